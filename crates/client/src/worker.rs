//! The worker's loop: it polls, confirms, executes, reports, and keeps its lease.
//!
//! What a job *is* (a process, a function) is the executor's affair: an async closure that gets a
//! [`Run`] and answers an [`Ending`]. The loop answers for the promises around it:
//!
//! - An attempt is executed only after the cluster accepted its confirmation, and once: what was
//!   offered or executed before is dropped, by job and attempt (S13, S14).
//! - An end is reported until it was acknowledged.
//! - The lease counts from when the last answered poll was *sent* (S41). Shortly before it ends,
//!   every executor is told to stop at once; what is still there at its end is dropped.
//! - An answer that was so long on its way that the lease it gives is over already (the worker was
//!   paused, say) counts as none.
//!
//! Two polls may be on their way. One is held by the server until there is something to say; the
//! other carries confirmations and ends, and is sent beside it as soon as there are any. So nothing
//! waits for the held one, and no connection is closed to interrupt it.
//!
//! # Caveats
//!
//! - The lease is measured with the monotonic clock, which stands still while a machine sleeps.
//! - A dropped executor must take down what it started: a process needs `kill_on_drop`.

mod lease;
mod ledger;
mod registration;
mod run;

use std::collections::HashMap;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fermata_api::bounds::POLL_WAIT_MS_MAX;
use fermata_api::jobs::JobState;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::servers::{AttemptRef, AttemptResult, PollAnswer, PollRequest, StopReason};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{error, info, warn};

use crate::client::{Client, longer, varied};
use crate::error::ClientError;

pub use registration::register;
pub use run::{CODE_KILLED, Ending, Run, Stop, StopSignal};

use lease::{Lease, Stage};
use ledger::Ledger;

/// The longest lease that is believed (S3).
const LEASE_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// The least time that a node has for an answer, however short the server timeout.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Who the worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerOptions {
    /// The server whose jobs it executes; it must be known to the cluster.
    pub server: String,
    /// This start of the worker: higher than that of every start before.
    pub incarnation: u64,
    /// How long before the end of the lease the executors are told to stop at once. At most a
    /// quarter of the lease is taken for it.
    pub kill_margin: Duration,
}

impl WorkerOptions {
    /// A worker of this server, whose incarnation is the present instant in microseconds.
    #[must_use]
    pub fn new(server: impl Into<String>) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "an incarnation only has to be another than those before; no decision hangs on it"
        )]
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        Self {
            server: server.into(),
            incarnation: u64::try_from(micros).unwrap_or(u64::MAX),
            kill_margin: Duration::from_secs(1),
        }
    }
}

/// Why a worker gave up. What it ran has been stopped.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// A newer incarnation of the worker has taken over.
    #[error("a newer incarnation of this worker has taken over: {0}")]
    Superseded(Box<Problem>),
    /// The cluster refuses its polls: its server is unknown, for instance.
    #[error("the polls are refused: {0}")]
    Refused(Box<Problem>),
    /// The polls cannot be sent.
    #[error("the polls cannot be sent: {0}")]
    Invalid(ClientError),
}

/// Executes the jobs of a server until `drain` is ready, and then until nothing is in hand: what
/// was offered by then is finished, nothing new is taken.
///
/// Dropping the future drops the executors.
///
/// # Errors
/// A newer incarnation took over, or the cluster refuses the polls. That no node answers is no
/// error: the worker goes on trying.
pub async fn run<F, E>(
    client: Client,
    options: WorkerOptions,
    execute: F,
    drain: impl Future<Output = ()>,
) -> Result<(), WorkerError>
where
    F: Fn(Run) -> E,
    E: Future<Output = Ending> + Send + 'static,
{
    let mut worker = Worker {
        answer_timeout: client.options().answer_timeout,
        client,
        options,
        execute,
        ledger: Ledger::default(),
        tasks: JoinSet::new(),
        attempts: HashMap::new(),
        executors: HashMap::new(),
        lease: None,
        wait: Duration::ZERO,
        held: Slot::default(),
        report: Slot::default(),
        is_draining: false,
    };
    let result = worker.work(drain).await;
    if result.is_err() {
        worker.dismiss().await;
    }
    result
}

struct Worker<F> {
    client: Client,
    options: WorkerOptions,
    execute: F,
    ledger: Ledger,
    /// Polls on their way, and executors.
    tasks: JoinSet<Happening>,
    /// Which attempt an executor's task is for: a panic tells only the task.
    attempts: HashMap<Id, AttemptRef>,
    executors: HashMap<AttemptRef, Executor>,
    lease: Option<Lease>,
    /// How long the server may hold a poll; known from its first answer.
    wait: Duration,
    answer_timeout: Duration,
    held: Slot,
    report: Slot,
    is_draining: bool,
}

/// A place for one poll on its way.
#[derive(Default)]
struct Slot {
    is_taken: bool,
    /// The pause before the next one; zero after an answer that brought something.
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Held,
    Report,
}

enum Happening {
    Polled {
        kind: Kind,
        sent: Instant,
        result: Result<PollAnswer, ClientError>,
    },
    Ended(AttemptRef, Ending),
}

struct Executor {
    stop: watch::Sender<Option<Stop>>,
    task: AbortHandle,
}

impl<F, E> Worker<F>
where
    F: Fn(Run) -> E,
    E: Future<Output = Ending> + Send + 'static,
{
    async fn work(&mut self, drain: impl Future<Output = ()>) -> Result<(), WorkerError> {
        let mut drain = std::pin::pin!(drain);
        loop {
            if self.is_draining && self.ledger.is_empty() {
                return Ok(());
            }
            self.send_polls();
            let lapse = self.lease.as_ref().and_then(Lease::next);
            tokio::select! {
                // What ends the worker's rights goes before what gives it work.
                biased;
                () = &mut drain, if !self.is_draining => {
                    info!(in_hand = self.ledger.len(), "draining");
                    self.is_draining = true;
                }
                () = sleep_until(lapse.unwrap_or_else(Instant::now)), if lapse.is_some() => {
                    self.lapse();
                }
                Some(joined) = self.tasks.join_next_with_id() => self.joined(joined)?,
            }
        }
    }

    fn send_polls(&mut self) {
        if !self.held.is_taken {
            self.held.is_taken = true;
            let wait_ms = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX);
            let poll = PollRequest {
                incarnation: self.options.incarnation,
                holds: self.ledger.holds(),
                wait_ms: Some(wait_ms),
                ..PollRequest::default()
            };
            self.send_poll(Kind::Held, poll, self.held.pause);
        }
        if !self.report.is_taken && self.ledger.has_reports() {
            self.report.is_taken = true;
            let poll = PollRequest {
                incarnation: self.options.incarnation,
                holds: self.ledger.holds(),
                started: self.ledger.confirmations(),
                completed: self.ledger.completions(),
                wait_ms: Some(0),
            };
            self.send_poll(Kind::Report, poll, self.report.pause);
        }
    }

    fn send_poll(&mut self, kind: Kind, poll: PollRequest, pause: Duration) {
        let client = self.client.clone();
        let server = self.options.server.clone();
        let answer_timeout = self.answer_timeout;
        self.tasks.spawn(async move {
            if !pause.is_zero() {
                sleep(varied(pause)).await;
            }
            let sent = Instant::now();
            let result = client.poll_once(&server, &poll, answer_timeout).await;
            Happening::Polled { kind, sent, result }
        });
    }

    fn joined(&mut self, joined: Result<(Id, Happening), JoinError>) -> Result<(), WorkerError> {
        match joined {
            Ok((_, Happening::Polled { kind, sent, result })) => self.polled(kind, sent, result),
            Ok((id, Happening::Ended(attempt, ending))) => {
                self.attempts.remove(&id);
                self.ended(&attempt, ending);
                Ok(())
            }
            Err(error) => {
                // A poll's task neither panics nor is it aborted.
                if let Some(attempt) = self.attempts.remove(&error.id()) {
                    let what = if error.is_panic() {
                        "the executor panicked"
                    } else {
                        "the executor was dropped at the end of the lease"
                    };
                    error!(job = attempt.job, attempt = attempt.attempt, "{what}");
                    self.ended(&attempt, Ending::killed(what));
                }
                Ok(())
            }
        }
    }

    fn ended(&mut self, attempt: &AttemptRef, ending: Ending) {
        self.executors.remove(attempt);
        self.ledger.ended(attempt, ending);
    }

    fn polled(
        &mut self,
        kind: Kind,
        sent: Instant,
        result: Result<PollAnswer, ClientError>,
    ) -> Result<(), WorkerError> {
        let has_news = match result {
            Ok(answer) => self.answered(sent, answer),
            Err(ClientError::Refused(problem)) if problem.code == ErrorCode::Superseded => {
                return Err(WorkerError::Superseded(problem));
            }
            Err(ClientError::Refused(problem)) => return Err(WorkerError::Refused(problem)),
            Err(error @ (ClientError::InvalidRequest(_) | ClientError::InvalidUrl { .. })) => {
                return Err(WorkerError::Invalid(error));
            }
            Err(error) => {
                warn!(%error, "a poll failed");
                false
            }
        };
        // An answer that was held for its time needs no pause, though it brought nothing.
        let was_held =
            kind == Kind::Held && !self.wait.is_zero() && sent.elapsed() >= self.wait / 2;
        let slot = match kind {
            Kind::Held => &mut self.held,
            Kind::Report => &mut self.report,
        };
        slot.is_taken = false;
        slot.pause = if has_news || was_held {
            Duration::ZERO
        } else {
            longer(slot.pause)
        };
        Ok(())
    }

    /// Takes an answer in. Whether it brought anything new.
    fn answered(&mut self, sent: Instant, answer: PollAnswer) -> bool {
        let length = Duration::from_millis(answer.lease_ms).min(LEASE_MAX);
        let lease = Lease::new(sent, length, self.options.kill_margin);
        if Instant::now() >= lease.kills {
            warn!("an answer came when the lease that it gives was over");
            return false;
        }
        let mut has_news = self.lease.is_none();
        if self.lease.is_none_or(|old| old.sent < sent) {
            self.lease = Some(lease);
        }
        let wait_ms = (answer.server_timeout_ms / 3).min(POLL_WAIT_MS_MAX);
        self.wait = Duration::from_millis(wait_ms);
        let answer_timeout = self.client.options().answer_timeout;
        self.answer_timeout = answer_timeout.min(self.wait.max(ANSWER_TIMEOUT_MIN));
        for result in answer.completed {
            has_news |= self.completion_answered(&result);
        }
        for result in answer.started {
            has_news |= self.confirmation_answered(&result);
        }
        for order in answer.stop {
            let attempt = AttemptRef {
                job: order.job,
                attempt: order.attempt,
            };
            has_news |= self.ordered_to_stop(&attempt, order.reason);
        }
        if !self.is_draining {
            for offer in answer.launches {
                has_news |= self.ledger.offered(offer);
            }
        }
        has_news
    }

    fn completion_answered(&mut self, result: &AttemptResult) -> bool {
        match result.error {
            None => {}
            Some(
                code @ (ErrorCode::StaleAttempt
                | ErrorCode::Final
                | ErrorCode::UnknownJob
                | ErrorCode::NotActive),
            ) => warn!(job = result.job, attempt = result.attempt, %code, "an end was refused"),
            Some(_) => return false,
        }
        self.ledger.acknowledged(&named(result))
    }

    fn confirmation_answered(&mut self, result: &AttemptResult) -> bool {
        let attempt = named(result);
        match (result.error, result.state) {
            (None, Some(JobState::Active)) => self.execute(&attempt),
            (Some(ErrorCode::StaleAttempt | ErrorCode::Final | ErrorCode::UnknownJob), _) => {
                info!(
                    job = attempt.job,
                    attempt = attempt.attempt,
                    "a start was refused; it does not run"
                );
                self.ledger.discard(&attempt)
            }
            _ => false,
        }
    }

    fn execute(&mut self, attempt: &AttemptRef) -> bool {
        let Some(offer) = self.ledger.confirmed(attempt) else {
            return false;
        };
        let (stop, signal) = watch::channel(None);
        let ending = (self.execute)(Run {
            offer,
            incarnation: self.options.incarnation,
            stop: StopSignal::new(signal),
        });
        let key = attempt.clone();
        let task = self
            .tasks
            .spawn(async move { Happening::Ended(key, ending.await) });
        self.attempts.insert(task.id(), attempt.clone());
        self.executors
            .insert(attempt.clone(), Executor { stop, task });
        true
    }

    fn ordered_to_stop(&mut self, attempt: &AttemptRef, reason: StopReason) -> bool {
        let stop = match reason {
            StopReason::Cancelled => Stop::Cancelled,
            StopReason::TimeLimit => Stop::TimeLimit,
            StopReason::Stale => Stop::Stale,
        };
        let was_dropped = reason == StopReason::Stale && self.ledger.discard(attempt);
        let was_told = self
            .executors
            .get(attempt)
            .is_some_and(|executor| executor.tell(stop));
        was_dropped || was_told
    }

    /// Acts upon the end of the lease.
    fn lapse(&mut self) {
        let Some(lease) = &mut self.lease else {
            return;
        };
        if Instant::now() < lease.kills {
            return;
        }
        if lease.stage == Stage::Running {
            lease.stage = Stage::Told;
            if !self.executors.is_empty() {
                let running = self.executors.len();
                error!(running, "the lease ends: killing what runs");
            }
            for executor in self.executors.values() {
                executor.tell(Stop::LeaseExpired);
            }
        } else if Instant::now() >= lease.ends {
            lease.stage = Stage::Dropped;
            for executor in self.executors.values() {
                executor.task.abort();
            }
        }
    }

    /// Stops everything, for a worker that must not go on: by being told, and where that does not
    /// help until the end of the lease, by being dropped.
    async fn dismiss(&mut self) {
        for executor in self.executors.values() {
            executor.tell(Stop::Dismissed);
        }
        let ends = self.lease.map_or_else(Instant::now, |lease| lease.ends);
        while !self.executors.is_empty() {
            tokio::select! {
                Some(joined) = self.tasks.join_next_with_id() => {
                    // A poll on its way has no say any more.
                    if !matches!(joined, Ok((_, Happening::Polled { .. }))) {
                        let _ = self.joined(joined);
                    }
                }
                () = sleep_until(ends) => self.tasks.shutdown().await,
            }
            if self.tasks.is_empty() {
                return;
            }
        }
    }
}

impl Executor {
    /// Whether this is news. What must stop at once is not told again to take its time.
    fn tell(&self, stop: Stop) -> bool {
        self.stop.send_if_modified(|told| {
            let is_news = told.is_none_or(|told| told.has_grace() && told != stop);
            if is_news {
                *told = Some(stop);
            }
            is_news
        })
    }
}

fn named(result: &AttemptResult) -> AttemptRef {
    AttemptRef {
        job: result.job.clone(),
        attempt: result.attempt,
    }
}
