//! Why a job waits, and what would become of one: `GET /v1/jobs/{id}/why`, and `POST /v1/jobs`
//! with `dry_run=true`.
//!
//! Both answer a [`WhyView`]: how the job stands or would stand, and every gate in its order (S12),
//! open or shut, with what holds it. A dry run takes nothing and uses up no id; the items of a
//! batch are judged each alone, against what is there now.
//!
//! # Caveats
//!
//! - Holders, servers and those ahead are named up to a bound of 16; counts are of all. Who else
//!   waits for the same servers is not said.
//! - Everything is as of the moment of the answer, and every instant is what comes if nothing but
//!   time happens: who launches, ends, falls due or is put back can bring it forward or put it off.
//! - Boundaries of local windows that open later are those of this node's zone (S24).

use serde::{Deserialize, Serialize};

use crate::jobs::{AbortReason, JobState};
use crate::limits::Mode;
use crate::pools::WindowView;
use crate::problem::Problem;
use crate::time::Timestamp;

/// Why a job stands as it does, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyView {
    /// The job's id. In a dry run: the one that was given, or one that a launch could get.
    pub id: String,
    /// The state that it has, or would have at once.
    pub state: JobState,
    /// Why it was aborted, would be at once, or will be at `aborts_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<AbortReason>,
    /// The exit code of a `complete` job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The present attempt, or the one that it would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The server of that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The pool (S9). Absent before the job's limits are fixed (S8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Jobs of its queue that come before it, while it waits there; 0 = it is the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The head of the queue, where that is another job that comes before it (S17, S20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// Its gates in their order (S12). None for a job that was started or has ended.
    #[serde(default)]
    pub gates: Vec<GateView>,
    /// The earliest instant at which it could start, if nothing else happens: overrides that go by
    /// themselves are seen. Absent where something else has to happen first, where it is or will
    /// be aborted, or where others decide whether it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_at: Option<Timestamp>,
    /// Whether only time is in the way, so that it starts at `earliest_at`. Else that is a lower
    /// bound, the same for all who wait behind one head: others come before it (`behind`) or may
    /// take first what it needs (`ahead` at a bucket; those at servers are not named), it is
    /// delayed and others wait in its pool, or its limits are not fixed yet (S8). Absent without
    /// `earliest_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_is_exact: Option<bool>,
    /// When it will be aborted, with `reason`, if nothing else happens: it will be considered then,
    /// and find a rate shut whose mode is `skip`, or nowhere to wait (S16, S20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborts_at: Option<Timestamp>,
}

/// One gate as a job sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateView {
    /// What it is, and what holds it.
    #[serde(flatten)]
    pub what: GateKind,
    /// Whether it would let the job through now.
    pub open: bool,
    /// Whether the job is the head of its queue and is looked at again when this gate opens (S20).
    /// What holds it is the first gate that is shut, which may be another: one that has shut since.
    pub waited_for: bool,
    /// When it opens if nothing else happens; an override that goes by itself is seen. Absent where
    /// it is open, or not by time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Timestamp>,
}

/// The kinds of gates: `gate` in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "snake_case")]
pub enum GateKind {
    /// The pool's concurrency.
    Slot {
        /// Jobs in `starting` and `active`.
        running: u64,
        /// Most of them; absent = no limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amount: Option<u64>,
        /// Some of the jobs that hold the slots, oldest first.
        #[serde(default)]
        holders: Vec<String>,
        /// When the override of the amount goes by itself, where there is such a one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held_until: Option<Timestamp>,
    },
    /// The pool's rate, or a bucket.
    Rate {
        /// The pool's id, or `rate:KEY`.
        id: String,
        /// What becomes of a job that finds it shut; absent = the queue limit decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
        /// Most starts per window: of the open window, or of the one that the job would open.
        max: u64,
        /// The open window, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<Box<WindowView>>,
        /// When the override of the rate goes by itself, where there is such a one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held_until: Option<Timestamp>,
        /// Of a bucket: heads of other pools in which a job waits that names it and comes before
        /// this one or may take from it first, whatever gate the head waits for. The first of them
        /// first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ahead: Vec<String>,
    },
    /// A server with room.
    Server {
        /// Units of weight that the job needs.
        weight: u64,
        /// Some of the servers that its targets name.
        #[serde(default)]
        servers: Vec<ServerRoom>,
    },
}

/// A server that could execute a job, and the room that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRoom {
    /// Its id.
    pub id: String,
    /// Whether its worker is heard.
    pub online: bool,
    /// Whether it gets anything new.
    pub enabled: bool,
    /// Units of weight that it has room for; 0 while it is offline or disabled.
    pub room: u64,
    /// Units that are missing for this job.
    pub missing: u64,
}

/// The answer to a batch with `dry_run=true`, in the order of the request. Its status is 200
/// whatever the items say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DryRunAnswer {
    /// The results.
    pub results: Vec<DryRunResult>,
}

/// What would become of one job of a batch. Exactly one of `why` and `problem` is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DryRunResult {
    /// The HTTP status that the item alone would have got.
    pub status: u16,
    /// What would become of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Box<WhyView>>,
    /// What its launch would be refused with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Box<Problem>>,
}
