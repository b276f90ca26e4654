//! Opening a member: its folder, its address, its cluster, and the tasks that make it one.

use crate::clock::Clocks;
use crate::confirm::{self, Confirmations, Rounds};
use crate::core::{Core, Parts, Raft};
use crate::driver::{Driver, Gatherer, HandOver, Queue};
use crate::environment::{Accept, Environment};
use crate::peer::{self, Dialer, Forwards, Identity, Network};
use crate::raft::TypeConfig;
use crate::runtime::random;
use crate::state_machine::StateMachine;
use crate::store::{Disk, Owner};
use crate::{Config, Member, ReplicaError, Start, digests, membership};
use openraft::async_runtime::WatchReceiver;
use openraft::storage::RaftLogStorage;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

/// Threads for Raft, peers and driver.
const THREADS: usize = 2;
/// Wishes to hand leadership over that wait.
const HAND_OVERS_MAX: usize = 4;
/// How often the log is looked at, whether it has outgrown the last snapshot.
const GROWTH_LOOK_EVERY: Duration = Duration::from_secs(1);
/// A snapshot is taken when the log since the last one is larger than this, in bytes, and than
/// half of that snapshot.
const SNAPSHOT_AFTER_BYTES: u64 = 64 << 20;

/// A member that was opened.
pub(crate) struct Opened {
    pub(crate) core: Arc<Core>,
    pub(crate) peer_address: SocketAddr,
    pub(crate) flush: Flush,
}

/// Waits until everything that was written to the log is durable.
pub(crate) type Flush =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> + Send + Sync>;

/// Opens a member, and leaves its tasks on this runtime.
pub(crate) async fn open<D: Disk>(
    config: Config,
    environment: Environment,
    disk: D,
) -> Result<Opened, ReplicaError> {
    let found = disk.cluster()?;
    // The address first: if it is taken, nothing was changed.
    let failed = |cause| listen_error(config.peer_listen, cause);
    let listening = environment.transport.listen(config.peer_listen).await;
    let listener = listening.map_err(failed)?;
    let peer_address = listener.address().map_err(failed)?;
    let own = Member {
        node: config.node,
        peer: with_port(&config.peer_advertise, peer_address.port()),
        client_url: config.client_url.clone(),
    };
    membership::check(&own).map_err(|why| ReplicaError::Invalid { why })?;
    let dialer = Dialer {
        own: Identity {
            cluster: None,
            node: config.node,
        },
        transport: environment.transport,
    };
    let cluster = match (found, &config.start) {
        (Some(cluster), Start::Join { peers }) => {
            is_theirs(&config, cluster, &dialer, peers).await?;
            cluster
        }
        (Some(cluster), _) => cluster,
        (None, Start::Bootstrap) => random(),
        (None, Start::Join { peers }) => {
            membership::seek(&dialer, peers, config.format_max).await?
        }
        (None, Start::Restart) => {
            return Err(ReplicaError::NothingThere {
                folder: config.data,
            });
        }
    };
    let owner = Owner {
        cluster,
        node: config.node,
    };
    let (log, machine) = disk.open(owner)?;
    let founds = config.start == Start::Bootstrap;
    let peers = match &config.start {
        Start::Join { peers } => peers.clone(),
        Start::Bootstrap | Start::Restart => Vec::new(),
    };
    let kept = log.clone();
    let world = World {
        dialer: dialer.of(cluster),
        cluster,
        time: Clocks::new(environment.wall),
    };
    let (core, tasks) = assemble(&config, own, world, log, machine).await?;
    core.raft.run();
    if founds && !core.raft.is_initialized().await.map_err(core_error)? {
        let members = BTreeMap::from([(core.node, core.own.to_node())]);
        // Only a log that holds something refuses, and that was asked before.
        if let Err(error) = core.raft.initialize(members).await {
            tracing::warn!(%error, "the cluster was founded before");
        }
    }
    tasks.spawn(&core, listener, peers);
    Ok(Opened {
        core,
        peer_address,
        flush: Box::new(move || {
            let log = kept.clone();
            Box::pin(async move { D::flush(&log).await })
        }),
    })
}

/// What the member sees of what is outside.
struct World {
    dialer: Dialer,
    cluster: u128,
    time: Clocks,
}

/// A folder that is to join a cluster and belongs to another one is not opened.
async fn is_theirs(
    config: &Config,
    own: u128,
    dialer: &Dialer,
    peers: &[String],
) -> Result<(), ReplicaError> {
    match membership::cluster_of(dialer, peers).await {
        Some(theirs) if theirs != own => Err(ReplicaError::Foreign {
            file: config.data.clone(),
            what: "cluster",
            found: format!("{own:032x}"),
            wanted: format!("{theirs:032x}"),
        }),
        Some(_) | None => Ok(()),
    }
}

fn listen_error(address: SocketAddr, cause: std::io::Error) -> ReplicaError {
    ReplicaError::Listen {
        address,
        cause: Arc::new(cause),
    }
}

fn core_error(cause: openraft::error::Fatal<crate::raft::TypeConfig>) -> ReplicaError {
    ReplicaError::Core {
        cause: Box::new(cause),
    }
}

/// An address whose port 0 stands for the port that was taken.
fn with_port(address: &str, port: u16) -> String {
    match address.strip_suffix(":0") {
        Some(host) => format!("{host}:{port}"),
        None => address.to_owned(),
    }
}

/// What is left to be started once the core is there.
struct Tasks {
    gatherer: Gatherer,
    wishes: mpsc::Receiver<HandOver>,
    rounds: Rounds,
}

async fn assemble(
    config: &Config,
    own: Member,
    world: World,
    log: impl RaftLogStorage<TypeConfig>,
    machine: StateMachine,
) -> Result<(Arc<Core>, Tasks), ReplicaError> {
    let World {
        dialer,
        cluster,
        time,
    } = world;
    let network = Network::new(dialer.clone());
    let (state, recovery) = (machine.shared(), machine.recovery());
    state.know_formats(config.format_max)?;
    let raft_config = Arc::new(config.timing.raft_config(cluster));
    let raft = Raft::build(own.node, raft_config, network.clone(), log, machine);
    // What was applied on the way may be what this member must not go on with.
    let halted = state.halted();
    let raft = raft.await.map_err(|error| {
        let cause = halted.borrow().clone();
        cause.unwrap_or_else(|| core_error(error))
    })?;
    let (queue, gatherer) = Queue::new();
    let (hand_over, wishes) = mpsc::channel(HAND_OVERS_MAX);
    let (confirmations, rounds) = Confirmations::new();
    let core = Core::new(Parts {
        cluster,
        own,
        zone: config.time_zone.clone(),
        timing: config.timing,
        format_max: config.format_max,
        raft,
        state,
        recovery,
        forwards: Forwards::new(dialer.clone(), runtime::Handle::current()),
        dialer,
        time,
        network,
        queue,
        hand_over,
        confirmations,
    });
    let tasks = Tasks {
        gatherer,
        wishes,
        rounds,
    };
    Ok((Arc::new(core), tasks))
}

impl Tasks {
    /// Starts them on the runtime that this is called on; they end with it.
    fn spawn(self, core: &Arc<Core>, listener: Box<dyn Accept>, peers: Vec<String>) {
        tokio::spawn(peer::listen(Arc::clone(core), listener));
        tokio::spawn(Driver::new(Arc::clone(core), self.gatherer, self.wishes).run());
        let leader = Arc::clone(core);
        let round = async move || confirm::round(&leader).await;
        tokio::spawn(self.rounds.hold(round));
        tokio::spawn(take_snapshots(Arc::clone(core)));
        tokio::spawn(note_members(Arc::clone(core)));
        tokio::spawn(digests::keep_inquiring(Arc::clone(core)));
        let core = Arc::clone(core);
        tokio::spawn(async move {
            membership::announce(&core, &peers).await;
        });
    }
}

/// Tells the network of every change of the membership.
async fn note_members(core: Arc<Core>) {
    let mut metrics = core.raft.server_metrics();
    loop {
        core.network.note_members(core.members().membership());
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Takes a snapshot whenever the log has outgrown the last one.
async fn take_snapshots(core: Arc<Core>) {
    let mut looks = tokio::time::interval(GROWTH_LOOK_EVERY);
    loop {
        looks.tick().await;
        let growth = core.state.growth();
        if growth.log_bytes > SNAPSHOT_AFTER_BYTES.max(growth.snapshot_bytes / 2)
            && core.raft.trigger().snapshot().await.is_err()
        {
            return;
        }
    }
}

/// The threads of one replica, which end when this is dropped.
///
/// A runtime must not be dropped where others wait, so one more thread holds it.
pub(crate) struct Threads {
    _end: oneshot::Sender<()>,
}

impl Threads {
    /// Starts them.
    pub(crate) fn start() -> Result<(Threads, runtime::Handle), ReplicaError> {
        let failed = |cause| ReplicaError::Threads {
            cause: Arc::new(cause),
        };
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("replica")
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("replica-main".to_owned())
            .spawn(move || {
                // Nothing is ever sent: the sender is let go of.
                let _ = ended.blocking_recv();
                drop(runtime);
            })
            .map_err(failed)?;
        Ok((Threads { _end: end }, handle))
    }
}
