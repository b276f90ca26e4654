//! A real cluster under load while one kind of thing goes wrong, again and again; then an audit.
//!
//! A [`Story`] is one kind of fault. A round of it waits until the load goes on, brings the fault in,
//! waits until the load goes on in spite of it (where a majority is left), and takes it out again.
//! When the time is over the load ends, every job that was accepted must come to its end, and the
//! one checker is given what clients and workers recorded ([`fermata_audit`]). Some of the clients
//! only launch, cancel, reset and count on one pool: an order of all their answers must be found.
//!
//! The tests run one round of each; `scripts/chaos` runs them for longer.
//!
//! # Caveats
//!
//! - The same seed makes the same choices, not the same timing.
//! - Network, clocks, disks and traced processes need what [`Story::needs`] says.

mod clocks;
mod disks;
mod load;
mod network;
mod processes;
mod ration;
mod resets;
mod stage;
mod workers;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fermata_audit::Report;

use stage::Stage;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// See [`Story::injects`], for this and all of them.
    KillLeader,
    /// As it is called.
    KillFollower,
    /// As it is called.
    KillAll,
    /// As it is called.
    PauseLeader,
    /// As it is called.
    CutLeader,
    /// As it is called.
    CutFollower,
    /// As it is called.
    CutOneWay,
    /// As it is called.
    ClockSteps,
    /// As it is called.
    SlowDisk,
    /// As it is called.
    FullDisk,
    /// As it is called.
    RollingRestart,
    /// As it is called.
    MoveLeadership,
    /// As it is called.
    CutWorker,
    /// As it is called.
    PauseWorker,
}

impl Story {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 14] = [
        Self::KillLeader,
        Self::KillFollower,
        Self::KillAll,
        Self::PauseLeader,
        Self::CutLeader,
        Self::CutFollower,
        Self::CutOneWay,
        Self::ClockSteps,
        Self::SlowDisk,
        Self::FullDisk,
        Self::RollingRestart,
        Self::MoveLeadership,
        Self::CutWorker,
        Self::PauseWorker,
    ];

    /// Its name: that of its script in `scripts/chaos`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillLeader => "kill-leader",
            Self::KillFollower => "kill-follower",
            Self::KillAll => "kill-all",
            Self::PauseLeader => "pause-leader",
            Self::CutLeader => "cut-leader",
            Self::CutFollower => "cut-follower",
            Self::CutOneWay => "cut-one-way",
            Self::ClockSteps => "clock-steps",
            Self::SlowDisk => "slow-disk",
            Self::FullDisk => "full-disk",
            Self::RollingRestart => "rolling-restart",
            Self::MoveLeadership => "move-leadership",
            Self::CutWorker => "cut-worker",
            Self::PauseWorker => "pause-worker",
        }
    }

    /// The story of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|story| story.name() == name)
    }

    /// What goes wrong in it.
    #[must_use]
    pub const fn injects(self) -> &'static str {
        match self {
            Self::KillLeader => "the leader is killed (SIGKILL), and comes back",
            Self::KillFollower => "a follower is killed (SIGKILL), and comes back",
            Self::KillAll => "all nodes are killed at once (SIGKILL), and come back",
            Self::PauseLeader => "the leader stands still (SIGSTOP) until another leads, and wakes",
            Self::CutLeader => "the leader's cable is pulled until another leads",
            Self::CutFollower => "a follower's cable is pulled",
            Self::CutOneWay => "between the leader and the others one direction is lost",
            Self::ClockSteps => {
                "a node's wall clock steps by an hour or a day, either way, and back"
            }
            Self::SlowDisk => "a node's disk takes 150 ms longer for each sync",
            Self::FullDisk => "a node's disk is full; the node ends, and comes back with room",
            Self::RollingRestart => "each node in turn ends in order (SIGTERM), and comes back",
            Self::MoveLeadership => "leadership is handed over once a second",
            Self::CutWorker => "the leader is cut off together with the worker beside it",
            Self::PauseWorker => "a worker stands still (SIGSTOP) past its lease, and wakes",
        }
    }

    /// What it needs of the machine, beside Linux; nothing: a user's processes are enough.
    #[must_use]
    pub const fn needs(self) -> &'static str {
        match self {
            Self::CutLeader | Self::CutFollower | Self::CutOneWay | Self::CutWorker => {
                "root, and ip (iproute2)"
            }
            Self::ClockSteps => "libfaketime (faketime)",
            Self::SlowDisk => "strace, and the right to trace",
            Self::FullDisk => "root, and mount",
            Self::KillLeader
            | Self::KillFollower
            | Self::KillAll
            | Self::PauseLeader
            | Self::RollingRestart
            | Self::MoveLeadership
            | Self::PauseWorker => "",
        }
    }

    async fn round(self, stage: &mut Stage) {
        match self {
            Self::KillLeader => processes::kill_leader(stage).await,
            Self::KillFollower => processes::kill_follower(stage).await,
            Self::KillAll => processes::kill_all(stage).await,
            Self::PauseLeader => processes::pause_leader(stage).await,
            Self::RollingRestart => processes::rolling_restart(stage).await,
            Self::MoveLeadership => processes::move_leadership(stage).await,
            Self::CutLeader => network::cut_leader(stage).await,
            Self::CutFollower => network::cut_follower(stage).await,
            Self::CutOneWay => network::cut_one_way(stage).await,
            Self::ClockSteps => clocks::step(stage).await,
            Self::SlowDisk => disks::slow(stage).await,
            Self::FullDisk => disks::full(stage).await,
            Self::CutWorker => workers::cut(stage).await,
            Self::PauseWorker => workers::pause(stage).await,
        }
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct ChaosOptions {
    /// Rounds at least.
    pub rounds_min: u32,
    /// No round is begun after so long.
    pub duration: Duration,
    /// What the random choices come from.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct ChaosReport {
    /// Which story.
    pub story: Story,
    /// The audit.
    pub audit: Report,
    /// What was injected, and how often.
    pub injected: BTreeMap<String, u64>,
    /// Jobs that were told to be cancelled.
    pub cancels: u64,
    /// Windows that were reset.
    pub resets: u64,
    /// What is wrong beside the audit, each in a sentence.
    pub faults: Vec<String>,
    /// Where logs, journals and the nodes' state are; absent where all is well.
    pub kept: Option<PathBuf>,
}

impl ChaosReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.audit.holds() && self.faults.is_empty()
    }
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "story   {}: {}",
            self.story.name(),
            self.story.injects()
        )?;
        for (what, count) in &self.injected {
            writeln!(formatter, "did     {what}: {count} times")?;
        }
        writeln!(
            formatter,
            "load    {} launches, {} cancels, {} resets",
            self.audit.counts.launches, self.cancels, self.resets
        )?;
        writeln!(formatter, "{}", self.audit)?;
        for fault in &self.faults {
            writeln!(formatter, "FAULT   {fault}")?;
        }
        match &self.kept {
            None => write!(formatter, "result  {} holds", self.story.name()),
            Some(folder) => write!(
                formatter,
                "result  {} FAILED\nlook at {}: node-N.log, SERVER.log, the history in *.journal \
                 and clients.jsonl, the nodes' state in node-N",
                self.story.name(),
                folder.display()
            ),
        }
    }
}

/// Runs a story whole.
///
/// # Panics
/// Something does not come to pass in time.
pub async fn chaos(story: Story, options: ChaosOptions) -> ChaosReport {
    let begun = Instant::now();
    let mut stage = Stage::set(story, options.seed).await;
    let mut rounds = 0;
    while rounds < options.rounds_min || begun.elapsed() < options.duration {
        stage.calm().await;
        story.round(&mut stage).await;
        rounds += 1;
    }
    stage.calm().await;
    stage.clear().await
}
