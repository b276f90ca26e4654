//! Servers, and the poll by which a worker executes their jobs.
//!
//! The poll is heartbeat, work queue and report in one. A worker repeats it without pause; the
//! server holds it until there is something to say, at most a third of `server_timeout` (S42).
//!
//! - Each start of the worker process takes a new `incarnation`, a number that no start before it
//!   had (its start in microseconds of Unix time will do). A new one supersedes the one before,
//!   which is answered `superseded` from then on.
//! - `launches` offers every `starting` attempt of the server that the worker does not say it
//!   holds, again and again until it is confirmed. Being offered means nothing: the worker keeps
//!   the attempt, reports it under `started`, and executes it only when that has the result
//!   `active` (S13).
//! - `holds` names everything that the worker has taken in hand: offered, confirmed, running, and
//!   ended but not yet acknowledged. An `active` attempt that is missing in two polls running ends
//!   as `server_lost`.
//! - `started` and `completed` are repeated until they have a result.
//! - A worker that is asked to end says `draining` in every poll: it is offered nothing from then
//!   on. An answer that says `drain` asks it to do so. With nothing left in hand it leaves
//!   (`POST /v1/servers/{id}/leave`), so that nobody waits for its lease to run out.

use serde::{Deserialize, Serialize};

use crate::bounds::{self, GROUPS_MAX, POLL_ENTRIES_MAX};
use crate::jobs::{JobState, LogPlace, Priority};
use crate::params::Params;
use crate::problem::ErrorCode;
use crate::time::Timestamp;
use crate::whole;

/// A server's definition: the body of `PUT /v1/servers/{id}`. It replaces the one before: what is
/// left out has its default, not its old value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a server: an object")]
pub struct ServerBody {
    /// The groups by which targets name it, at most [`GROUPS_MAX`].
    #[serde(default, deserialize_with = "bounds::list::<_, _, GROUPS_MAX>")]
    pub groups: Vec<String>,
    /// Its capacity in units of weight, 1 to 100,000; absent = no limit.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional::<_, _, 1, { bounds::WEIGHT_MAX }>"
    )]
    pub max_jobs: Option<u64>,
    /// Whether it takes new jobs.
    #[serde(default = "enabled")]
    pub enabled: bool,
}

/// A server as it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerView {
    /// The id.
    pub id: String,
    /// The groups.
    pub groups: Vec<String>,
    /// The capacity in units of weight; absent = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs: Option<u64>,
    /// Whether it takes new jobs.
    pub enabled: bool,
    /// Whether its worker polls.
    pub online: bool,
    /// Whether its worker takes nothing new, ends what it runs and leaves.
    #[serde(default)]
    pub draining: bool,
    /// The incarnation of its worker; absent before the first poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// Its jobs in `starting`.
    pub starting: u64,
    /// Its jobs in `active`.
    pub active: u64,
    /// The capacity that they take, in units of weight.
    pub weight: u64,
    /// When the leader last had a poll of it; absent where this leader had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_at: Option<Timestamp>,
}

/// A worker's heartbeat and long poll: the body of `POST /v1/servers/{id}/poll`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a poll: an object")]
pub struct PollRequest {
    /// Which start of the worker this is: another number than that of every start before.
    pub incarnation: u64,
    /// Every attempt that the worker has in hand.
    #[serde(default, deserialize_with = "bounds::list::<_, _, POLL_ENTRIES_MAX>")]
    pub holds: Vec<AttemptRef>,
    /// Attempts that it confirms.
    #[serde(default, deserialize_with = "bounds::list::<_, _, POLL_ENTRIES_MAX>")]
    pub started: Vec<AttemptRef>,
    /// Attempts that have ended.
    #[serde(default, deserialize_with = "bounds::list::<_, _, POLL_ENTRIES_MAX>")]
    pub completed: Vec<Completion>,
    /// How long the answer may be held where there is nothing to say, in milliseconds; absent =
    /// as long as the server holds it. A poll that carries `started` or `completed` is not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Whether the worker takes nothing new. What it was offered and did not confirm is put back;
    /// this incarnation is offered nothing any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

/// A worker leaves: the body of `POST /v1/servers/{id}/leave`. The server is offline at once; what
/// it held in `starting` is put back, what it held `active` ends as `server_lost`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `incarnation`")]
pub struct LeaveRequest {
    /// Which start of the worker this is.
    pub incarnation: u64,
}

/// One attempt of one job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `job` and `attempt`")]
pub struct AttemptRef {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with `job`, `attempt` and `code`"
)]
pub struct Completion {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The exit code; 0 is success.
    pub code: i32,
    /// What there is to say about it, at most [`bounds::DESCRIPTION_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The answer to a poll. Receiving it renews the lease, counted from when the poll was sent (S41).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PollAnswer {
    /// Attempts in `starting` that the worker does not hold.
    #[serde(default)]
    pub launches: Vec<Offer>,
    /// Attempts that the worker must stop.
    #[serde(default)]
    pub stop: Vec<StopOrder>,
    /// A result for each confirmation, in the order of the request.
    #[serde(default)]
    pub started: Vec<AttemptResult>,
    /// A result for each completion, in the order of the request.
    #[serde(default)]
    pub completed: Vec<AttemptResult>,
    /// The lease in milliseconds: `server_timeout` + `job_timeout`. Without an answer for so long,
    /// the worker has stopped everything that it runs (S42).
    pub lease_ms: u64,
    /// Silence in milliseconds after which the server counts as offline.
    pub server_timeout_ms: u64,
    /// Whether the worker is asked to take nothing new, to end what it runs and to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// An attempt that is offered to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The committed instant of the start.
    pub start_at: Timestamp,
    /// The same in microseconds of Unix time, exactly: what an audit of windows counts.
    pub start_at_us: i64,
    /// The place of the start in the log: higher than that of every earlier start anywhere.
    pub start_index: LogPlace,
    /// The event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The pool.
    pub pool: String,
    /// The priority.
    pub priority: Priority,
    /// The parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Params>,
}

/// What a start action tells (see [`crate::events::StartAction`]): the attempt as its executor will
/// get it, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartNotice {
    /// The attempt.
    #[serde(flatten)]
    pub offer: Offer,
    /// The server; absent where the caller executes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// An attempt that must be stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// Why, and whether the end is still to be reported.
    pub reason: StopReason,
}

/// Why an attempt must be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The job was cancelled; it keeps its slot until the end is reported (S48).
    Cancelled,
    /// The job was active for too long; it keeps its slot until the end is reported (S50).
    TimeLimit,
    /// The attempt is not this worker's any more (S14): put back, ended or unknown. Nothing is to
    /// be reported.
    Stale,
}

/// What became of one confirmation or completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptResult {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The job's state after it; absent where the job is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// The refusal; absent where it was accepted. `stale_attempt`, `final` and `unknown_job` are
    /// definite: the attempt must not run. After any other one the report is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorCode>,
}

fn enabled() -> bool {
    true
}
