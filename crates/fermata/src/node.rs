//! One node as a process: a member of the cluster behind an edge, from its start to its end.
//!
//! Raft has threads of its own, which the member brings; the edge gets others here, so that no
//! flood of calls costs the node its leadership. This thread only waits: for a signal, for a fault
//! of either, and for what else runs beside them.
//!
//! An end in order goes from the outside in: what runs beside ends first; leadership is handed
//! over while the edge still answers, so that clients are shown the way; then the edge ends its
//! calls, and the member stops with everything on disk (S43).

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fermata_server::ServeError;
use fermata_server::member::{Config, FORMAT_LATEST, Replica};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::error::CommandError;
use crate::remote::block_on;
use crate::settings::Settings;
use crate::signals::Signals;

/// How long a hand-over of leadership may take at the end.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

/// Where a node that serves is reached.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Addresses {
    /// The node.
    node: u64,
    /// Its process.
    pid: u32,
    /// How clients and other nodes reach it.
    pub(crate) client_url: String,
    /// Where it listens for clients.
    client_address: SocketAddr,
    /// Where it listens for peers.
    peer_address: SocketAddr,
}

/// Runs a node until a signal ends it. Once it serves, `beside` runs on this thread; its last
/// argument turns true when it shall end, and the node ends in order when it has.
pub(crate) fn run<B>(
    settings: &Settings,
    beside: impl FnOnce(Addresses, watch::Receiver<bool>) -> B,
) -> Result<(), CommandError>
where
    B: Future<Output = Result<(), CommandError>>,
{
    let edge = edge_runtime()?;
    let ended = block_on(async {
        let mut signals = Signals::new()?;
        // Nothing was promised yet: a signal ends the start at once.
        let node = tokio::select! {
            node = Node::start(settings, &edge) => node?,
            signal = signals.next() => {
                info!(signal, "stopped before the node served");
                return Ok(());
            }
        };
        node.stay(signals, beside).await
    });
    // What is left of the edge after its time is not waited for.
    edge.shutdown_background();
    ended
}

fn edge_runtime() -> Result<Runtime, CommandError> {
    let mut builder = Builder::new_multi_thread();
    builder.thread_name("edge").enable_all();
    builder.build().map_err(|source| CommandError::System {
        doing: "start the edge's threads",
        source,
    })
}

struct Node {
    replica: Replica,
    addresses: Addresses,
    ready_file: Option<PathBuf>,
    edge: JoinHandle<Result<(), ServeError>>,
    close_edge: oneshot::Sender<()>,
}

impl Node {
    async fn start(settings: &Settings, edge: &Runtime) -> Result<Self, CommandError> {
        if let Some(path) = &settings.ready_file {
            // Of a process that was killed.
            remove_ready_file(path)?;
        }
        // Addresses before the folder: if one is taken, nothing was changed.
        let unlistened = |source| CommandError::Listen {
            address: settings.listen,
            source,
        };
        let binding = edge.spawn(TcpListener::bind(settings.listen));
        let listener = binding.await.unwrap_or_else(|error| Err(error.into()));
        let listener = listener.map_err(unlistened)?;
        let client_address = listener.local_addr().map_err(unlistened)?;
        let client_url = with_port(&settings.advertise, client_address.port());
        let replica = Replica::open(Config {
            node: settings.id,
            data: settings.data.clone(),
            peer_listen: settings.peer_listen,
            peer_advertise: settings.peer_advertise.clone(),
            client_url: client_url.clone(),
            time_zone: settings.time_zone.clone(),
            timing: settings.profile.timing(),
            start: settings.start(),
            format_max: FORMAT_LATEST,
        })
        .await
        .map_err(CommandError::member)?;
        let (close_edge, closing) = oneshot::channel();
        let serving = fermata_server::serve(
            listener,
            replica.clone(),
            fermata_server::Config::default(),
            async {
                // A sender that is gone ends the edge as well.
                let _ = closing.await;
            },
        );
        let addresses = Addresses {
            node: settings.id,
            pid: std::process::id(),
            client_url,
            client_address,
            peer_address: replica.peer_address(),
        };
        let node = Self {
            edge: edge.spawn(serving),
            replica,
            addresses,
            ready_file: settings.ready_file.clone(),
            close_edge,
        };
        let Addresses {
            node: id,
            client_address: clients,
            peer_address: peers,
            ..
        } = &node.addresses;
        info!(node = id, %clients, %peers, zone = settings.time_zone.name(), "serving");
        if let Some(path) = &settings.ready_file {
            write_ready_file(path, &node.addresses)?;
        }
        Ok(node)
    }

    /// Until a signal, a fault, or the end of what runs beside.
    async fn stay<B>(
        mut self,
        mut signals: Signals,
        beside: impl FnOnce(Addresses, watch::Receiver<bool>) -> B,
    ) -> Result<(), CommandError>
    where
        B: Future<Output = Result<(), CommandError>>,
    {
        let (end, ending) = watch::channel(false);
        let mut beside = std::pin::pin!(beside(self.addresses.clone(), ending));
        let replica = self.replica.clone();
        let mut failed = std::pin::pin!(replica.failed());
        let ended_beside = loop {
            tokio::select! {
                ended = &mut beside => break ended,
                fault = &mut failed => return Err(CommandError::member(fault)),
                served = &mut self.edge => return Err(CommandError::edge(served)),
                signal = signals.next() => {
                    if end.send_replace(true) {
                        return Err(CommandError::Interrupted);
                    }
                    info!(signal, "ending in order; another signal ends at once");
                }
            }
        };
        tokio::select! {
            ended = self.end() => ended?,
            _ = signals.next() => return Err(CommandError::Interrupted),
        }
        ended_beside
    }

    async fn end(self) -> Result<(), CommandError> {
        match timeout(HAND_OVER_MAX, self.replica.transfer(None)).await {
            Ok(Ok(leader)) => info!(leader, "leadership was handed over"),
            // Where it does not lead, or leads alone, there is nothing to hand over.
            Ok(Err(error)) => debug!(%error, "leadership was not handed over"),
            Err(_) => warn!("leadership was not handed over in time"),
        }
        // It may have ended already; its result says so.
        let _ = self.close_edge.send(());
        match self.edge.await {
            Ok(Ok(())) => {}
            served => warn!(error = %CommandError::edge(served), "the edge ended with a fault"),
        }
        let stopped = self.replica.shutdown().await;
        stopped.map_err(CommandError::member)?;
        if let Some(path) = &self.ready_file {
            remove_ready_file(path)?;
        }
        info!("stopped");
        Ok(())
    }
}

/// A URL whose port 0 stands for the port that was taken.
fn with_port(url: &str, port: u16) -> String {
    let url = url.trim_end_matches('/');
    match url.strip_suffix(":0") {
        Some(host) => format!("{host}:{port}"),
        None => url.to_owned(),
    }
}

/// Takes away what names addresses at which nobody is any more.
fn remove_ready_file(path: &Path) -> Result<(), CommandError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(CommandError::Unwritable {
                path: path.to_owned(),
                source,
            })
        }
        _ => Ok(()),
    }
}

/// Puts the file in its place whole: whoever finds it can read it.
fn write_ready_file(path: &Path, addresses: &Addresses) -> Result<(), CommandError> {
    let folder = path.parent().filter(|folder| folder != &Path::new(""));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        serde_json::to_writer(&mut file, addresses)?;
        file.write_all(b"\n")?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|source| CommandError::Unwritable {
        path: path.to_owned(),
        source,
    })
}
