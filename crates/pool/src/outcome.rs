//! What became of an entry: an outcome per command, and the moves of jobs as hints.
//!
//! A "no" is a value: every command has exactly one outcome, and a refusal changes nothing.
//! Moves are hints for those who wait (polls, held answers, streams): who misses them asks the
//! state.

use crate::command::Claim;
use crate::limits::{InvalidField, Style};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What applying one entry gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The entry's index in the log.
    pub index: u64,
    /// The instant that the entry happened at: its stamp, or the latest seen before (S36).
    pub at: Instant,
    /// An outcome per command, in order; or the claim in force, where the entry was of another.
    pub outcomes: Result<Vec<Outcome>, NotLeader>,
    /// Every change of a job's standing, in order.
    pub moves: Vec<Move>,
    /// The rates that decided about starts, in order, up to [`RATE_CHECKS_PER_ENTRY_MAX`]; empty
    /// unless somebody asked for them ([`Pool::record_rate_checks`](crate::Pool::record_rate_checks)).
    pub checks: Vec<RateCheck>,
}

/// Most checks of rates that one entry tells of; what is beyond is not told.
pub const RATE_CHECKS_PER_ENTRY_MAX: usize = 10_000;

/// A rate decided about a start (S44): a hint, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateCheck {
    /// The pool or bucket.
    pub key: Box<str>,
    /// The rate in force: most starts per window.
    pub count: u32,
    /// The window in force, in seconds.
    pub window_s: u32,
    /// Its shape.
    pub style: Style,
    /// What it decided.
    pub outcome: RateOutcome,
}

/// What a rate decided about a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RateOutcome {
    /// The start was taken from it.
    Acquired,
    /// It was shut, and the job was aborted.
    Skipped,
    /// It was shut, and the job waits.
    Throttled,
}

impl RateOutcome {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RateOutcome::Acquired => "acquired",
            RateOutcome::Skipped => "skipped",
            RateOutcome::Throttled => "throttled",
        }
    }
}

/// The entry was made under another claim than the one in force; it changed nothing (S39).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeader {
    /// The claim in force.
    pub claim: Claim,
}

/// What became of one command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It concerned a job, which now stands so.
    Job(JobOutcome),
    /// A definition was stored at this revision.
    Stored {
        /// Counts the edits of this definition, from 1.
        revision: u64,
    },
    /// It was refused and changed nothing.
    Refused(Refusal),
}

/// How a job stands after a command that named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The job.
    pub job: Arc<str>,
    /// How it stands, after the queues were examined.
    pub standing: Standing,
    /// True where the command had been carried out before, and this is its answer again (S40).
    pub repeated: bool,
}

/// One change of a job's standing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The job.
    pub job: Arc<str>,
    /// How it stands now.
    pub standing: Standing,
    /// The server whose attempt ended with it, if one did.
    pub left: Option<Arc<str>>,
}

/// How a job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It is not due yet.
    Delayed,
    /// It waits.
    Queued,
    /// It was started and is not confirmed.
    Starting {
        /// Which start of the job this is, from 1.
        attempt: u32,
        /// Where; none: the caller executes it.
        server: Option<Arc<str>>,
    },
    /// Its executor confirmed the start.
    Active {
        /// Which start of the job this is.
        attempt: u32,
        /// Where; none: the caller executes it.
        server: Option<Arc<str>>,
    },
    /// It ended by itself.
    Complete {
        /// Its exit code: 0 is success.
        code: i32,
    },
    /// It was ended.
    Aborted {
        /// Why.
        reason: Reason,
    },
}

impl Standing {
    /// True for `complete` and `aborted`.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Standing::Complete { .. } | Standing::Aborted { .. })
    }
}

/// Why a job was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A rate was shut.
    RateLimited,
    /// The pool's concurrency was used up.
    ConcurrencyLimited,
    /// The queue had no room.
    QueueFull,
    /// No eligible server had room.
    NoServer,
    /// Its server was silent for its whole lease.
    ServerLost,
    /// Its starts went unconfirmed.
    StartTimeout,
    /// Its caller was silent for its whole lease.
    LeaseExpired,
    /// It was cancelled.
    Cancelled,
    /// Its event was deleted.
    EventMissing,
    /// It ran for too long.
    TimeLimit,
}

impl Reason {
    /// Every reason, in the order in which they are counted.
    pub const ALL: [Reason; 10] = [
        Reason::RateLimited,
        Reason::ConcurrencyLimited,
        Reason::QueueFull,
        Reason::NoServer,
        Reason::ServerLost,
        Reason::StartTimeout,
        Reason::LeaseExpired,
        Reason::Cancelled,
        Reason::EventMissing,
        Reason::TimeLimit,
    ];

    /// The word for it, as in `aborted:rate_limited`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Reason::RateLimited => "rate_limited",
            Reason::ConcurrencyLimited => "concurrency_limited",
            Reason::QueueFull => "queue_full",
            Reason::NoServer => "no_server",
            Reason::ServerLost => "server_lost",
            Reason::StartTimeout => "start_timeout",
            Reason::LeaseExpired => "lease_expired",
            Reason::Cancelled => "cancelled",
            Reason::EventMissing => "event_missing",
            Reason::TimeLimit => "time_limit",
        }
    }
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A field breaks a rule (S6).
    Invalid(InvalidField),
    /// No such job.
    UnknownJob,
    /// Another attempt is the current one, or none is: the sender must not run it (S14).
    StaleAttempt,
    /// The attempt was not confirmed yet (S14).
    NotActive,
    /// The job has ended (S14).
    Final,
    /// The id was used for another request (S40).
    IdConflict,
    /// No such event (S10).
    EventMissing,
    /// The event is disabled (S10).
    EventDisabled,
    /// The parent job is unknown or has ended (S9).
    UnknownParent,
    /// The parent job has no such node (S9).
    UnknownNode,
    /// There are as many unfinished jobs as there may be (S47).
    ClusterFull,
    /// There are as many of these as there may be.
    TooMany {
        /// Which bound was reached.
        most: u64,
    },
    /// No such server.
    UnknownServer,
    /// A newer incarnation of the server's worker is there (S42).
    Superseded,
    /// No such category.
    UnknownCategory,
    /// The definition is at another revision than the one named.
    RevisionConflict {
        /// The one it is at; 0: it is absent.
        revision: u64,
    },
}

impl Refusal {
    /// The stable word for it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Refusal::Invalid(_) => "invalid_request",
            Refusal::UnknownJob => "unknown_job",
            Refusal::StaleAttempt => "stale_attempt",
            Refusal::NotActive => "not_active",
            Refusal::Final => "final",
            Refusal::IdConflict => "id_conflict",
            Refusal::EventMissing => "event_missing",
            Refusal::EventDisabled => "event_disabled",
            Refusal::UnknownParent => "unknown_parent",
            Refusal::UnknownNode => "unknown_node",
            Refusal::ClusterFull => "cluster_full",
            Refusal::TooMany { .. } => "too_many",
            Refusal::UnknownServer => "unknown_server",
            Refusal::Superseded => "superseded",
            Refusal::UnknownCategory => "unknown_category",
            Refusal::RevisionConflict { .. } => "revision_conflict",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Invalid(fault) => fault.fmt(f),
            Refusal::TooMany { most } => write!(f, "too_many (at most {most})"),
            Refusal::RevisionConflict { revision } => {
                write!(f, "revision_conflict (it is at {revision})")
            }
            other => f.write_str(other.code()),
        }
    }
}
