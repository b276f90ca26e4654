//! What may be asked of the pool: entries of the log and the commands in them.
//!
//! An [`Entry`] is what the leader proposes: its claim, its stamp, and the commands that arrived
//! while the entry before was on its way. These types are what lies in the log: variants are only
//! ever appended, fields only ever added together with a new format version.
//!
//! Caveat: nothing here is trusted to be valid. The edge checks first, to answer early, but the
//! pool checks again while it applies, because only then is the state known.

use crate::limits::Limit;
use crate::time::{Instant, Stamp};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The term of the leader that made an entry (S39).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Claim(pub u64);

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whose entry it is; one of another claim than the pool's changes nothing.
    pub claim: Claim,
    /// When it happens.
    pub stamp: Stamp,
    /// What happens, in order; none: time passes.
    pub commands: Vec<Command>,
}

/// Most commands in one entry.
pub const COMMANDS_PER_ENTRY_MAX: usize = 1_000;

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A new leader begins; the first command of its first entry (S39).
    Takeover,
    /// A job is launched.
    Launch(Box<Launch>),
    /// An executor has an attempt in hand and asks whether it may run it (S14).
    Started {
        /// The job.
        job: Box<str>,
        /// The attempt that the sender holds.
        attempt: u32,
        /// The sender, where it is a server's worker.
        from: Option<Holder>,
    },
    /// An executor says that an attempt ended (S14).
    Completed {
        /// The job.
        job: Box<str>,
        /// The attempt that ended.
        attempt: u32,
        /// Its exit code: 0 is success.
        code: i32,
        /// What it had to say, at most [`DESCRIPTION_BYTES_MAX`].
        description: Box<str>,
        /// The sender, where it is a server's worker.
        from: Option<Holder>,
    },
    /// A job is no longer wanted (S48).
    Cancel {
        /// The job.
        job: Box<str>,
    },
    /// An event is defined or edited (S8).
    PutEvent {
        /// The definition.
        event: Box<Event>,
        /// Refused unless the event is at this revision; 0: unless it is absent.
        if_revision: Option<u64>,
    },
    /// An event goes; what waits for it is aborted when it is considered (S10).
    DeleteEvent {
        /// The event.
        event: Box<str>,
        /// Refused unless the event is at this revision.
        if_revision: Option<u64>,
    },
    /// A category is defined or edited (S7).
    PutCategory {
        /// The definition.
        category: Box<Category>,
        /// Refused unless the category is at this revision; 0: unless it is absent.
        if_revision: Option<u64>,
    },
    /// A category goes.
    DeleteCategory {
        /// The category.
        category: Box<str>,
        /// Refused unless the category is at this revision.
        if_revision: Option<u64>,
    },
    /// The cluster's settings are replaced (S51).
    PutSettings {
        /// The settings.
        settings: Box<Settings>,
        /// Refused unless the settings are at this revision; 0: unless they were never set.
        if_revision: Option<u64>,
    },
    /// A server is defined or edited.
    PutServer(ServerDefinition),
    /// A server goes: what it held ends as in [`Command::ServerLost`].
    DeleteServer {
        /// The server.
        server: Box<str>,
    },
    /// A server's worker was heard: a new incarnation, or the first renewal under this leader
    /// (S41, S42). The server is online from now on.
    ServerSeen(Holder),
    /// A server was silent for `server_timeout`: it is offline, what it held in `starting` is put
    /// back (S42).
    ServerOffline(Holder),
    /// A server was silent for its whole lease: what it held `active` ends (S42).
    ServerLost(Holder),
    /// An `active` attempt is no longer held by its worker: it ends as `server_lost`.
    AttemptMissing {
        /// The job.
        job: Box<str>,
        /// The attempt that the worker no longer names.
        attempt: u32,
        /// The worker.
        from: Holder,
    },
    /// A caller was heard for the first time under this leader (S41).
    CallerSeen {
        /// Its job.
        job: Box<str>,
    },
    /// A caller was silent for its whole lease (S46).
    LeaseExpired {
        /// Its job.
        job: Box<str>,
    },
    /// A window is removed with its count (S32).
    Reset {
        /// The pool or bucket.
        scope: Box<str>,
    },
    /// Every window is removed (S32).
    ResetAll,
    /// The size of a pool or bucket is set from above (S33).
    PutOverride {
        /// The pool or bucket.
        scope: Box<str>,
        /// What is set.
        sizes: Override,
    },
    /// An override is removed (S33).
    DeleteOverride {
        /// The pool or bucket.
        scope: Box<str>,
    },
    /// The counters begin again.
    ResetStats,
    /// An operator's command, with who it was.
    By {
        /// The name by which the edge knows the operator, at most
        /// [`ACTOR_BYTES_MAX`](crate::audit::ACTOR_BYTES_MAX).
        actor: Box<str>,
        /// The command; not of this kind again.
        command: Box<Command>,
    },
    /// The members are changed, which is Raft's to do: this leaves the record of it.
    MembersChanged(MemberChange),
    /// A server is to be emptied: it is disabled, what it holds in `starting` is put back, and its
    /// worker ends what runs and leaves.
    DrainServer {
        /// The server.
        server: Box<str>,
    },
    /// A server's worker takes nothing new in this life: what it holds in `starting` is put back.
    ServerDraining(Holder),
    /// The start action of an attempt failed before it was handed out, and its event says that the
    /// job must not run then: it ends with [`CODE_NOT_BEGUN`].
    StartActionFailed {
        /// The job.
        job: Box<str>,
        /// The attempt.
        attempt: u32,
        /// What went wrong; cut at [`DESCRIPTION_BYTES_MAX`].
        description: Box<str>,
    },
    /// Every member says that it can apply this format: from here on the state has it. A lower one
    /// changes nothing.
    RaiseFormat {
        /// The format.
        to: u32,
    },
}

/// What became of the members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// A node was added.
    Added {
        /// The node.
        node: u64,
        /// Where its peers reach it.
        peer: Box<str>,
    },
    /// A node was removed.
    Removed {
        /// The node.
        node: u64,
    },
    /// A leader was told to hand over.
    HandedOver {
        /// The leader.
        from: u64,
        /// To whom; none: whoever is least behind.
        to: Option<u64>,
    },
}

/// The exit code of an attempt that could not be begun, whatever its command.
pub const CODE_NOT_BEGUN: i32 = 125;

/// Longest description of an end, in bytes (S11).
pub const DESCRIPTION_BYTES_MAX: usize = 4_096;
/// Longest parameters that any settings may allow, in bytes (S11).
pub const PARAMS_BYTES_MAX: usize = 65_536;
/// Most targets of an event or a launch.
pub const TARGETS_MAX: usize = 32;
/// Most groups of a server.
pub const GROUPS_MAX: usize = 16;
/// Most nodes of a workflow.
pub const NODES_MAX: usize = 256;
/// Most servers of a cluster.
pub const SERVERS_MAX: usize = 20_000;
/// Most events of a cluster.
pub const EVENTS_MAX: usize = 100_000;
/// Most categories of a cluster.
pub const CATEGORIES_MAX: usize = 10_000;
/// Most overrides at a time.
pub const OVERRIDES_MAX: usize = 100_000;
/// Longest title or note, in bytes.
pub const TITLE_BYTES_MAX: usize = 256;

/// One life of a server's worker. A worker that restarts under its id is a new incarnation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// The server's id.
    pub server: Box<str>,
    /// Chosen by the worker when it starts; like an id.
    pub incarnation: Box<str>,
}

/// Who executes a job (S13).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Executor {
    /// A server.
    #[default]
    Server,
    /// Whoever launched it.
    Caller,
}

/// The node of a workflow job that a job is launched from (S9).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Parent {
    /// The workflow job.
    pub job: Box<str>,
    /// Its node.
    pub node: Box<str>,
}

/// A request for one run, as parsed and before defaults: what is compared when an id comes again
/// (S40).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The job's id.
    pub id: Box<str>,
    /// The event, if any.
    pub event: Option<Box<str>>,
    /// Stands for the event's; −100…100.
    pub priority: Option<i8>,
    /// Stand for the event's: JSON, kept as the bytes that came.
    #[serde(with = "serde_bytes")]
    pub params: Option<Box<[u8]>>,
    /// What the request hashes to as parsed and before defaults, whatever its spelling: by this
    /// alone, where it is given, requests are compared (S40).
    pub request_hash: Option<u64>,
    /// First in precedence (S7).
    pub limits: Vec<Limit>,
    /// Stand for the event's; an empty list is as if absent.
    pub targets: Option<Vec<Box<str>>>,
    /// The job is considered so many seconds later.
    pub delay_s: Option<u64>,
    /// The workflow node that it is launched from.
    pub parent: Option<Parent>,
    /// Who executes it; absent: a server.
    pub executor: Option<Executor>,
    /// How long a caller may be silent, in seconds; absent: the settings' (S46).
    pub lease_s: Option<u64>,
}

/// What an event is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum EventKind {
    /// Its jobs are executed.
    #[default]
    Event,
    /// Its jobs are parents of others; the caller executes them.
    Workflow,
}

/// How a server is picked among the eligible (S18).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Algo {
    /// By number of starting and active jobs, then by id.
    #[default]
    FewestJobs,
    /// The next id after the event's last pick.
    RoundRobin,
    /// The first id.
    PreferFirst,
    /// The last id.
    PreferLast,
    /// By the place of the start in the log.
    Random,
}

/// When a job's limits are fixed (S8).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum ResolveLimits {
    /// At the launch.
    #[default]
    Launch,
    /// When the job first falls due.
    FirstStart,
}

/// What becomes of a job whose start action fails.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum OnFailure {
    /// It ends with [`CODE_NOT_BEGUN`], which may be retried (S49).
    #[default]
    Abort,
    /// It goes on as if the action had succeeded.
    Continue,
}

/// A header of a start action's request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Header {
    /// Its name.
    pub name: Box<str>,
    /// Its value.
    pub value: Box<str>,
}

/// An HTTP request that the leader makes between the start of a job and its hand-out (S13). To
/// the pool it is text that it keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StartAction {
    /// Where it goes, `http://…`, at most [`URL_BYTES_MAX`].
    pub url: Box<str>,
    /// Further headers, at most [`HEADERS_MAX`].
    pub headers: Vec<Header>,
    /// How long it may take, in seconds, 1 to [`ACTION_TIMEOUT_S_MAX`].
    pub timeout_s: u32,
    /// What becomes of the job if it fails.
    pub on_failure: OnFailure,
}

/// Longest URL of a start action, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;
/// Most headers of a start action.
pub const HEADERS_MAX: usize = 16;
/// Longest name or value of a header of a start action, in bytes.
pub const HEADER_BYTES_MAX: usize = 1_024;
/// Longest time that a start action may take, in seconds.
pub const ACTION_TIMEOUT_S_MAX: u64 = 300;

/// A named definition of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its id.
    pub id: Box<str>,
    /// For people, at most [`TITLE_BYTES_MAX`].
    pub title: Box<str>,
    /// What it is.
    pub kind: EventKind,
    /// A disabled event launches nothing; what waits goes on (S10).
    pub enabled: bool,
    /// Its category, if any.
    pub category: Option<Box<str>>,
    /// Second in precedence (S7).
    pub limits: Vec<Limit>,
    /// Ids and groups of servers; none: every server.
    pub targets: Vec<Box<str>>,
    /// How a server is picked.
    pub algo: Algo,
    /// −100…100.
    pub priority: i8,
    /// For launches without their own: JSON.
    #[serde(with = "serde_bytes")]
    pub params: Option<Box<[u8]>>,
    /// The nodes of a workflow.
    pub nodes: Vec<Node>,
    /// When limits are fixed.
    pub resolve: ResolveLimits,
    /// What the leader does between a start and its hand-out.
    pub on_start: Option<Box<StartAction>>,
}

/// A node of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node {
    /// Its id, unique in the workflow.
    pub id: Box<str>,
    /// For people.
    pub title: Box<str>,
    /// The event of launches from it that name none.
    pub event: Option<Box<str>>,
    /// Third in precedence (S7).
    pub limits: Vec<Limit>,
}

/// A category of events, which gives them limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Category {
    /// Its id.
    pub id: Box<str>,
    /// For people.
    pub title: Box<str>,
    /// Fourth in precedence (S7).
    pub limits: Vec<Limit>,
}

/// A server as it is declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDefinition {
    /// Its id.
    pub id: Arc<str>,
    /// The groups by which events may name it.
    pub groups: Vec<Box<str>>,
    /// Its capacity in units of weight, 1…100,000; absent: no limit.
    pub max_jobs: Option<u32>,
    /// A disabled server gets nothing new.
    pub enabled: bool,
}

/// The cluster's settings (S51).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Limits of events, last in precedence (S7).
    pub universal_event_limits: Vec<Limit>,
    /// Limits of workflows, last in precedence (S7).
    pub universal_workflow_limits: Vec<Limit>,
    /// How long a start may go unconfirmed (S15).
    pub start_timeout_s: u32,
    /// How many unconfirmed starts a job has (S15).
    pub max_start_attempts: u32,
    /// How long a server may be silent before it is offline (S42).
    pub server_timeout_s: u32,
    /// How long after that its active jobs are given up (S42).
    pub job_timeout_s: u32,
    /// How long a caller may be silent (S46).
    pub lease_s: u32,
    /// How long finished jobs are kept (S47).
    pub retention_s: u32,
    /// How many finished jobs are kept (S47).
    pub finished_max: u32,
    /// How many unfinished jobs there may be (S47).
    pub unfinished_max: u32,
    /// A step of the wall clock beyond this is followed only with a majority (S36).
    pub max_clock_step_s: u32,
    /// Longest parameters, in bytes (S11).
    pub params_bytes_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            universal_event_limits: Vec::new(),
            universal_workflow_limits: Vec::new(),
            start_timeout_s: 30,
            max_start_attempts: 3,
            server_timeout_s: 30,
            job_timeout_s: 120,
            lease_s: 30,
            retention_s: 3_600,
            finished_max: 1_000_000,
            unfinished_max: 2_000_000,
            max_clock_step_s: 5,
            params_bytes_max: 16_384,
        }
    }
}

/// Sizes set from above (S33); at least one of the three.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Stands for the rate and the burst; 0: nobody who uses the rate starts.
    pub count: Option<u32>,
    /// Stands for the length of the window, in seconds.
    pub window_s: Option<u32>,
    /// Stands for the concurrency of a pool; 0: nobody of the pool starts.
    pub amount: Option<u32>,
    /// When it goes by itself.
    pub expires_at: Option<Instant>,
    /// Why it was set, at most [`TITLE_BYTES_MAX`].
    pub note: Box<str>,
}
