//! What is recorded, by whom, as JSON lines.
//!
//! Instants are microseconds of Unix time.

use serde::{Deserialize, Serialize};

use crate::ration::{Operation, Ration};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// What a pool must keep; by whoever set the stage.
    Expect(Expectation),
    /// A launch; by the client, after the answer or when it gave up.
    Launch(Launch),
    /// The begin of an execution; by the worker process, before the command begins.
    Begin(Begin),
    /// The end of an execution; by the worker process, after the command ended and before the end
    /// is reported.
    End(End),
    /// The committed end of an attempt whose executor did not report it; by a client that read it.
    Lost(Lost),
    /// How a job ended; by a client that read it afterwards.
    Ended(Ended),
    /// A worker that was paused, cut off or killed on purpose; by whoever did it.
    Disturbed(Disturbed),
    /// A pool whose answers are searched for an order; by whoever set the stage.
    Ration(Ration),
    /// An operation on such a pool; by the client, after the answer or when it gave up.
    Operation(Operation),
}

impl Record {
    /// The record as one line with its newline, to be written in one call.
    ///
    /// # Errors
    /// None that a record can cause; serde_json's signature has one.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }
}

/// What a pool must keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The pool.
    pub pool: String,
    /// Most jobs at once; absent = not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
    /// Most starts per window; absent = not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// Most starts per window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The most.
    pub count: u64,
    /// The windows.
    pub windows: Windows,
}

/// Where fixed windows begin and end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Windows {
    /// `[k·W, (k+1)·W)` of Unix time (S25); the length in seconds, at least 1.
    UtcS(u32),
    /// From each of these instants to the next, for local windows (S24). They rise strictly and
    /// span every start of the pool.
    BoundariesUs(Vec<i64>),
}

/// The place of a start in the replicated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogPlace {
    /// Index of the log entry.
    pub index: u64,
    /// Which of the starts of that entry, from 0.
    pub ordinal: u32,
}

/// The place of a launch among all launches. How it lies to a start, the committed instants tell:
/// they rise with the log, and those of one entry are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchPlace {
    /// Its number, higher than that of every earlier launch.
    pub number: u64,
    /// Its committed instant as it was answered, which may be rounded up.
    pub at_us: i64,
}

/// A launch, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The job.
    pub job: String,
    /// The pool.
    pub pool: String,
    /// The priority, higher first.
    pub priority: i8,
    /// When the client first sent it.
    pub sent_us: i64,
    /// When the answer came; absent where none came and the outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_us: Option<i64>,
    /// Whether the answer said that the job was aborted at once: then it must not run.
    #[serde(default)]
    pub was_aborted: bool,
    /// The place of the launch among all launches, where it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<LaunchPlace>,
    /// When a delayed job falls due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_us: Option<i64>,
    /// How often it may be tried again after an end with another code than 0 (S49).
    #[serde(default)]
    pub retries: u64,
}

/// The begin of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The pool.
    pub pool: String,
    /// The worker that executes it.
    pub worker: String,
    /// Which start of that worker.
    pub incarnation: u64,
    /// The committed instant of the start, as it came with the attempt.
    pub start_us: i64,
    /// The committed place of the start in the log, as it came with the attempt.
    pub start_index: LogPlace,
    /// When the execution really began.
    pub at_us: i64,
}

/// The end of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The worker that executed it.
    pub worker: String,
    /// Which start of that worker.
    pub incarnation: u64,
    /// When the execution really ended.
    pub at_us: i64,
    /// The exit code.
    pub code: i32,
}

/// The committed end of an attempt whose executor was silent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// Why it ended.
    pub reason: LostReason,
    /// When it ended, as committed.
    pub at_us: i64,
}

/// Why an attempt ended without its executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// Its worker was silent for the whole lease, or restarted (S42).
    ServerLost,
    /// Its caller's lease lapsed (S46).
    LeaseExpired,
}

/// How a job ended, as read by a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// The job.
    pub job: String,
    /// The attempt with which it ended; 0 where it never started.
    pub attempt: u32,
    /// The exit code of a job that was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The reason of a job that was aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
}

/// A worker that was paused, cut off or killed on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disturbed {
    /// The worker.
    pub worker: String,
    /// Which start of it.
    pub incarnation: u64,
    /// When it was gone, if it was killed, and with it what it ran; absent = it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed_us: Option<i64>,
}
