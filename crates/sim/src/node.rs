//! One node: the real member over a simulated disk, network and clock, with a small edge.

use crate::clock::Wall;
use crate::disk::Disk;
use crate::edge;
use crate::invariants::Seen;
use crate::network::Network;
use crate::trace::Kind;
use fermata_replica::environment::Environment;
use fermata_replica::{Config, FORMAT_LATEST, Replica, Start, Timing, Zone};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The zones of the nodes, by their numbers: whoever leads stamps by its own, and all must have the
/// same state all the same (F17).
const ZONES: [&str; 4] = [
    "Europe/Berlin",
    "Asia/Kolkata",
    "America/Los_Angeles",
    "Australia/Lord_Howe",
];

/// Where nodes listen for each other.
const PEER_PORT: u16 = 7401;

/// A node, through all its lives.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) disk: Disk,
    pub(crate) wall: Wall,
    pub(crate) network: Network,
    pub(crate) seen: Seen,
    pub(crate) program: Program,
}

/// The program that a node runs from its next start on; a clone is the same.
#[derive(Clone, Debug)]
pub(crate) struct Program(Arc<AtomicU32>);

impl Program {
    pub(crate) fn of_today() -> Program {
        Program(Arc::new(AtomicU32::new(FORMAT_LATEST)))
    }

    /// A newer one takes its place, which knows one more format of the state.
    pub(crate) fn replace(&self) {
        self.0.store(FORMAT_LATEST + 1, Ordering::Relaxed);
    }

    /// The newest format that it knows.
    pub(crate) fn format_max(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Node {
    fn config(&self) -> Option<Config> {
        let start = if self.number == 1 {
            Start::Bootstrap
        } else {
            Start::Join {
                peers: (1..self.number)
                    .map(|peer| format!("n{peer}:{PEER_PORT}"))
                    .collect(),
            }
        };
        let zone = ZONES.iter().cycle().nth(self.number as usize - 1)?;
        Some(Config {
            node: self.number,
            data: PathBuf::new(),
            peer_listen: ([0, 0, 0, 0], PEER_PORT).into(),
            peer_advertise: format!("n{}:{PEER_PORT}", self.number),
            client_url: String::new(),
            time_zone: Zone::built_in(zone).ok()?,
            timing: Timing::Fast,
            start,
            format_max: self.program.format_max(),
        })
    }

    /// One life, from start to crash.
    pub(crate) async fn live(self) -> turmoil::Result {
        let config = self.config().ok_or("the zone is built in")?;
        let environment = Environment {
            transport: Arc::new(self.network.clone()),
            wall: Arc::new(self.wall.clone()),
        };
        let replica = match Replica::open_in(config, environment, self.disk.clone()).await {
            Ok(replica) => replica,
            Err(error) => {
                tracing::warn!(node = self.number, %error, "a node does not start");
                self.seen.stopped(self.number, &error.to_string());
                return std::future::pending().await;
            }
        };
        tokio::spawn(watch(replica.clone(), self.clone()));
        tokio::spawn(edge::serve(replica.clone(), self.network.clone()));
        let error = replica.failed().await;
        self.seen.stopped(self.number, &error.to_string());
        // It serves no more; what is left of it goes when it is started again.
        std::future::pending().await
    }
}

/// Notes the state after every entry.
async fn watch(replica: Replica, node: Node) {
    let mut applied = replica.applied();
    let mut events = replica.events();
    loop {
        let status = replica.status();
        node.seen
            .format(node.number, status.format, node.program.format_max());
        let stamp = replica.read(|pool| pool.stamp().at.us());
        if let Some(index) = status.applied {
            let told = format!("{index} {:016x} {stamp}", status.digest);
            node.network
                .trace
                .note(Kind::Entry, &node.network.host, told.as_bytes());
            node.seen.state(node.number, index, status.digest, stamp);
        }
        while let Ok(entry) = events.try_recv() {
            node.seen.entry(node.number, &entry);
        }
        let claim = replica.leadership();
        node.seen.leads(node.number, &claim.borrow());
        if applied.changed().await.is_err() {
            return;
        }
    }
}
