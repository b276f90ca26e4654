//! Jobs: launching, watching and ending them, and what their executors say about an attempt.

use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::bounds::{self, BATCH_JOBS_MAX, LIMITS_MAX, TARGETS_MAX};
use crate::decode::{decode, decode_item};
use crate::limits::{Limit, SourcedLimit};
use crate::object;
use crate::params::Params;
use crate::problem::Problem;
use crate::query::Consistency;
use crate::time::Timestamp;
use crate::whole;

/// A place in the queue's order (S19): an integer from −100 to 100, higher first. In JSON, `true`
/// is read as 1 and `false` as 0; it is written as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Priority(i8);

impl Priority {
    /// The lowest.
    pub const MIN: Self = Self(-100);
    /// The highest.
    pub const MAX: Self = Self(100);

    /// `None` outside −100…100.
    #[must_use]
    pub fn new(priority: i64) -> Option<Self> {
        let priority = Self(i8::try_from(priority).ok()?);
        (Self::MIN..=Self::MAX)
            .contains(&priority)
            .then_some(priority)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> i8 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrBool;

        impl Visitor<'_> for NumberOrBool {
            type Value = Priority;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number from -100 to 100, true or false")
            }

            fn visit_bool<E: Error>(self, is_raised: bool) -> Result<Priority, E> {
                Ok(Priority(i8::from(is_raised)))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Priority, E> {
                Priority::new(number)
                    .ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Priority, E> {
                i64::try_from(number)
                    .ok()
                    .and_then(Priority::new)
                    .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }

        deserializer.deserialize_any(NumberOrBool)
    }
}

/// One job to launch.
///
/// Absent fields stay apart from given ones, because S40 compares requests before defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a job: an object")]
pub struct LaunchRequest {
    /// The job's id; the server gives one where it is absent. It makes a retry harmless (S40).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The event; a launch without one is a pool of its own (S9). On a launch from a workflow's node:
    /// absent = the node's event; another one stands for it, with the node's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The priority; absent = the event's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The parameters; absent = the event's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Params>,
    /// Limits that go before the event's, type by type (S7); at most [`LIMITS_MAX`].
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounds::list::<_, _, LIMITS_MAX>"
    )]
    pub limits: Vec<Limit>,
    /// Servers and groups that stand for the event's (S18); at most [`TARGETS_MAX`].
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounds::list::<_, _, TARGETS_MAX>"
    )]
    pub targets: Vec<String>,
    /// Seconds for which the job is `delayed` before it is first considered.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional::<_, _, 0, { bounds::DURATION_S_MAX }>"
    )]
    pub delay_s: Option<u64>,
    /// The workflow job and its node from which the job is launched (S9).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object::optional_by_name"
    )]
    pub workflow: Option<WorkflowNode>,
    /// Who executes the job; absent = a server (for a workflow: its caller, and nobody else).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<Executor>,
    /// The caller's lease in seconds (S46); absent = the settings'.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional::<_, _, 1, { bounds::DURATION_S_MAX }>"
    )]
    pub lease_s: Option<u64>,
}

/// A node of a running workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `job` and `node`")]
pub struct WorkflowNode {
    /// The parent: a workflow job that has not ended.
    pub job: String,
    /// The node, by its id in the parent's snapshot of the workflow.
    pub node: String,
}

/// Who executes a job (S13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// A worker on a server that the conductor picks.
    Server,
    /// Whoever launched it, by renewing its lease.
    Caller,
}

/// The body of `POST /v1/jobs`: one job, or a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Launches<'a> {
    /// One job; the answer is a [`JobView`] or a problem.
    One(Box<LaunchRequest>),
    /// Many jobs, which count in the order of the list; the answer is a [`BatchAnswer`].
    Batch(Vec<BatchItem<'a>>),
}

/// One job of a batch, as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchItem<'a> {
    /// The text of the item.
    pub json: &'a str,
    /// The job, or why the item is none: `jobs[3].limits[0].rate`.
    pub request: Result<LaunchRequest, Problem>,
}

/// Many jobs in one request, as it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `jobs`")]
pub struct LaunchBatch {
    /// The jobs, at most [`BATCH_JOBS_MAX`].
    #[serde(deserialize_with = "bounds::list::<_, _, BATCH_JOBS_MAX>")]
    pub jobs: Vec<LaunchRequest>,
}

/// A batch whose items are read one by one, so that a fault of one is that one's alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `jobs`")]
struct RawBatch<'a> {
    #[serde(borrow, deserialize_with = "bounds::list::<_, _, BATCH_JOBS_MAX>")]
    jobs: Vec<&'a RawValue>,
}

impl<'a> Launches<'a> {
    /// Reads the body. An object with the key `jobs` is a batch, and judged as one: what is wrong
    /// with an item is told in the item's own result, whatever it is; a list that is none or is
    /// too long, and what is no JSON, refuse the whole.
    ///
    /// # Errors
    /// As [`decode`].
    pub fn decode(body: &'a [u8]) -> Result<Self, Problem> {
        if !is_batch(body) {
            return decode(body).map(|launch| Self::One(Box::new(launch)));
        }
        let RawBatch { jobs } = decode(body)?;
        let items = jobs.into_iter().enumerate().map(|(place, raw)| BatchItem {
            json: raw.get(),
            request: decode_item(raw.get(), &format!("jobs[{place}]")),
        });
        Ok(Self::Batch(items.collect()))
    }
}

/// Whether the body is an object with the key `jobs`. Reads no further than that key.
fn is_batch(body: &[u8]) -> bool {
    struct Keys<'a>(&'a mut bool);

    impl<'de> Visitor<'de> for Keys<'_> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                if key == "jobs" {
                    *self.0 = true;
                    return Ok(());
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }

    let mut has_jobs = false;
    // What is malformed is told by the reading that follows, with its place.
    let _ = serde_json::Deserializer::from_slice(body).deserialize_any(Keys(&mut has_jobs));
    has_jobs
}

/// The query of `POST /v1/jobs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchQuery {
    /// Holds the answer until the job has come so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// How long the answer is held at most, in seconds, up to [`bounds::WAIT_S_MAX`]; then 202.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional_text::<_, _, 0, { bounds::WAIT_S_MAX }>"
    )]
    pub timeout_s: Option<u64>,
    /// Answers what would happen now, and does nothing: [`crate::why::WhyView`], or
    /// [`crate::why::DryRunAnswer`] for a batch. Not together with `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Whether a follower answers with a 307 to the leader instead of forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<bool>,
}

/// The query of `GET /v1/jobs/{id}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobQuery {
    /// Holds the answer until the job has come so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// How long the answer is held at most, in seconds, up to [`bounds::WAIT_S_MAX`]; then 202.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional_text::<_, _, 0, { bounds::WAIT_S_MAX }>"
    )]
    pub timeout_s: Option<u64>,
    /// Whose copy is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Whether a follower answers with a 307 to the leader instead of forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<bool>,
}

/// How far a job must have come before a held answer is given. A final state ends every wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// It has been started: `starting` or later.
    Start,
    /// It has ended.
    End,
}

/// The query of `GET /v1/jobs`. Filters that are given must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobsQuery {
    /// Jobs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// Jobs of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Jobs of this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Jobs whose present attempt is on this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Most items of the page, 1 to [`bounds::PAGE_ITEMS_MAX`].
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional_text::<_, _, 1, { bounds::PAGE_ITEMS_MAX as u64 }>"
    )]
    pub limit: Option<u32>,
    /// The `after` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Whose copy is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consistency: Option<Consistency>,
    /// Whether a follower answers with a 307 to the leader instead of forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<bool>,
}

/// The answer to a batch: a result for each job, in the order of the request. Its status is 200
/// whatever the items say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchAnswer {
    /// The results.
    pub results: Vec<LaunchResult>,
}

/// What became of one job of a batch. Exactly one of `job` and `problem` is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchResult {
    /// The HTTP status that the job alone would have got.
    pub status: u16,
    /// The job, where it was launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<JobView>>,
    /// The refusal, or the job that was aborted at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Box<Problem>>,
}

/// A job's state (see "Words" of the rules). `complete` and `aborted` are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Not due yet: launched with a delay, or before a retry.
    Delayed,
    /// Waits for its gates.
    Queued,
    /// Started, and not yet confirmed by its executor.
    Starting,
    /// Confirmed.
    Active,
    /// Ended by its executor, with a code.
    Complete,
    /// Ended otherwise, with a reason.
    Aborted,
}

impl JobState {
    /// Whether nothing can happen to the job any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Aborted)
    }
}

/// Why a job was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortReason {
    /// A rate was exhausted (S16).
    RateLimited,
    /// The pool's slots were taken (S16).
    ConcurrencyLimited,
    /// The queue was full (S16).
    QueueFull,
    /// No server could take it (S16, S18).
    NoServer,
    /// Its server was silent for the whole lease, or restarted (S42).
    ServerLost,
    /// Its attempts were not confirmed in time (S15).
    StartTimeout,
    /// Its caller did not renew its lease (S46).
    LeaseExpired,
    /// Somebody cancelled it (S48).
    Cancelled,
    /// Its event was deleted while it waited (S10).
    EventMissing,
    /// It was active for too long (S50).
    TimeLimit,
}

/// A place in the replicated log. Ordinals are counted apart for launches and for starts, so
/// within one entry launches have an order, starts have an order, and a launch and a start have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogPlace {
    /// Index of the log entry.
    pub index: u64,
    /// Which of the launches, or of the starts, of that entry, from 0.
    pub ordinal: u32,
}

/// A job as it is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// The id.
    pub id: String,
    /// The event from which it was launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The state.
    pub state: JobState,
    /// The exit code of a `complete` job; 0 is success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Why an `aborted` job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<AbortReason>,
    /// What the executor said about the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The pool (S9): `cap:KEY`, `node:NODE@JOB`, `event:ID` or `job:ID`. Absent before the job's
    /// limits are fixed (S8), because they may name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The priority.
    pub priority: Priority,
    /// Who executes it.
    pub executor: Executor,
    /// The workflow node from which it was launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowNode>,
    /// The number of the present or last attempt; 0 before the first start.
    pub attempt: u32,
    /// The server of the present or last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Whether an active job was told to stop (S48, S50).
    #[serde(default)]
    pub cancel: bool,
    /// Jobs of its queue that come before it; 0 = it is the head. For `queued` jobs, where the
    /// node counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// Its place among all launches: the order among jobs of one priority (S19).
    pub launch_number: u64,
    /// When a `delayed` job falls due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// The committed instant of the present or last attempt's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The place of that start in the log: the fencing number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_index: Option<LogPlace>,
    /// When the attempt was confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_at: Option<Timestamp>,
    /// When the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The caller's lease in seconds, for jobs that a caller executes (S46).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_s: Option<u64>,
    /// Its limits, each with its source (S7).
    #[serde(default)]
    pub limits: Vec<SourcedLimit>,
    /// Its parameters; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Params>,
    /// Its meta log, oldest first; absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meta: Vec<MetaLine>,
}

/// A line of a job's meta log (S11, S35).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaLine {
    /// When it was written.
    pub at: Timestamp,
    /// What happened, for people.
    pub text: String,
}

/// The executor's confirmation of an attempt: `POST /v1/jobs/{id}/started` (S13, S14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `attempt`")]
pub struct StartedRequest {
    /// The attempt.
    pub attempt: u32,
}

/// The caller's renewal of its lease: `POST /v1/jobs/{id}/heartbeat` (S46).
///
/// For a job that waits, starts or runs, the lease is renewed whatever attempt is named; another
/// attempt than the one that starts or runs is refused with `stale_attempt`, and its holder stops
/// it. A job that has ended is refused with `final`, whoever executes it. Both refusals carry the
/// job, so that its holder learns how it stands or why it ended without asking again.
///
/// An executor on a server has no lease of its own and may ask all the same: it is told whether to
/// stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct HeartbeatRequest {
    /// The attempt that the caller runs; absent while it waits for its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// The executor's result of an attempt: `POST /v1/jobs/{id}/completed`. The answer is the
/// [`JobView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `attempt` and `code`")]
pub struct CompletedRequest {
    /// The attempt.
    pub attempt: u32,
    /// The exit code; 0 is success.
    pub code: i32,
    /// What there is to say about it, at most [`bounds::DESCRIPTION_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The answer to `started` and `heartbeat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptAnswer {
    /// The job's state.
    pub state: JobState,
    /// Its present attempt.
    pub attempt: u32,
    /// The lease in seconds, which the caller counts from when it sent the renewal (S41); absent
    /// for jobs of servers, whose lease is their server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_s: Option<u64>,
    /// Whether the executor must stop and report the end (S48, S50). It keeps its slot until then.
    pub cancel: bool,
}
