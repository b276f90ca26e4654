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
//! - A worker that drains says so in every poll, takes nothing new, and ends what it has. When
//!   nothing is in hand it leaves, so that nobody waits for its lease. It drains when it is told to:
//!   by its program ([`Order`]), or by the cluster.
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
mod shutdown;

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
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{error, info, warn};

use crate::client::{Client, longer, varied};
use crate::error::ClientError;

pub use run::{CODE_KILLED, Ending, Run, Stop, StopSignal};

use lease::{Lease, Stage};
use ledger::Ledger;
use shutdown::Shutdown;

pub use shutdown::REPORT_TIME_MAX;

/// The longest lease that is believed (S3).
const LEASE_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// The longest pause after a poll that failed. Polls of a thousand workers are a load, above all for
/// nodes that are electing a leader.
const POLL_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long the last word of a worker may take.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(3);
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
    /// How long a drain lasts at most: what still runs then is stopped ([`Stop::Shutdown`]).
    /// None: until everything has ended.
    pub drain_timeout: Option<Duration>,
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
            drain_timeout: None,
        }
    }
}

/// What a program tells its worker. Later ones stand above earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// To execute what comes.
    #[default]
    Work,
    /// To take nothing new, end what it has, and leave.
    Drain,
    /// To have what runs end soon, report it, and leave.
    Stop,
    /// To stop everything at once, report it, and leave.
    Kill,
}

/// How a worker ended that was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Executions that were stopped for it.
    pub stopped: usize,
    /// Ends that no node took in time: the cluster finds them out when the lease is over.
    pub unreported: usize,
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

impl Client {
    /// Is the worker of a server, which [`Client::register_server`] makes known: executes its jobs
    /// with an async function until `drain` is ready or the cluster asks it to drain, and then until
    /// nothing is in hand; then it leaves. As [`Client::worker_by_orders`], for programs that need no
    /// more.
    ///
    /// # Errors
    /// As [`Client::worker_by_orders`].
    pub async fn worker<F, E>(
        &self,
        options: WorkerOptions,
        execute: F,
        drain: impl Future<Output = ()>,
    ) -> Result<Departure, WorkerError>
    where
        F: Fn(Run) -> E,
        E: Future<Output = Ending> + Send + 'static,
    {
        let (order, orders) = watch::channel(Order::Work);
        let mut working = std::pin::pin!(self.worker_by_orders(options, execute, orders));
        tokio::select! {
            ended = &mut working => return ended,
            () = drain => order.send_replace(Order::Drain),
        };
        working.await
    }

    /// Executes the jobs of a server until it is told to end: by `orders`, or by the cluster.
    ///
    /// - [`Order::Drain`]: what is confirmed is executed to its end, within
    ///   [`WorkerOptions::drain_timeout`]; what was only offered goes back to the cluster.
    /// - [`Order::Stop`], which the end of the drain timeout comes to: executors are told
    ///   [`Stop::DrainEnded`]; [`Order::Kill`]: [`Stop::Shutdown`]. Their ends are reported like any
    ///   other.
    ///
    /// Either way it says at last that it leaves. Where no node answers any more, it does not wait for
    /// one longer than [`REPORT_TIME_MAX`] after the last executor ended, if it was to be quick; a
    /// drain goes on trying until its timeout. An `orders` whose sender is gone gives no further
    /// orders.
    ///
    /// Dropping the future drops the executors.
    ///
    /// # Errors
    /// A newer incarnation took over, or the cluster refuses the polls. That no node answers is no
    /// error: the worker goes on trying.
    pub async fn worker_by_orders<F, E>(
        &self,
        options: WorkerOptions,
        execute: F,
        orders: watch::Receiver<Order>,
    ) -> Result<Departure, WorkerError>
    where
        F: Fn(Run) -> E,
        E: Future<Output = Ending> + Send + 'static,
    {
        let mut worker = Worker {
            answer_timeout: self.options().answer_timeout,
            client: self.clone(),
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
            shutdown: Shutdown::default(),
        };
        let result = worker.work(orders).await;
        if result.is_err() {
            worker.dismiss().await;
        }
        result
    }
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
    shutdown: Shutdown,
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
        /// Whether it said that nothing new is taken.
        draining: bool,
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
    async fn work(&mut self, mut orders: watch::Receiver<Order>) -> Result<Departure, WorkerError> {
        loop {
            let is_late = self.shutdown.is_over(Instant::now());
            if self.shutdown.is_draining() && (self.ledger.is_empty() || is_late) {
                return Ok(self.leave().await);
            }
            self.send_polls();
            let lapse = self.lease.as_ref().and_then(Lease::next);
            let next = self.shutdown.next();
            tokio::select! {
                // What ends the worker's rights goes before what gives it work.
                biased;
                order = shutdown::above(&mut orders, self.shutdown.order()) => self.ordered(order),
                () = sleep_until(lapse.unwrap_or_else(Instant::now)), if lapse.is_some() => {
                    self.lapse();
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    if self.shutdown.drain_has_run_out(Instant::now()) {
                        warn!(in_hand = self.ledger.len(), "the drain timeout is over");
                        self.ordered(Order::Stop);
                    }
                }
                Some(joined) = self.tasks.join_next_with_id() => self.joined(joined)?,
            }
        }
    }

    /// Acts upon an order that stands above those before.
    fn ordered(&mut self, order: Order) {
        let before = self.shutdown.order();
        if !self.shutdown.ordered(order, self.options.drain_timeout) {
            return;
        }
        // What was only offered goes back: the next poll says that nothing new is taken.
        self.ledger.discard_offers();
        let (running, in_hand) = (self.executors.len(), self.ledger.len());
        if let Some(stop) = self.shutdown.stop() {
            warn!(running, in_hand, "stopping what runs");
            for executor in self.executors.values() {
                executor.tell(stop);
            }
            if before < Order::Stop {
                self.shutdown.stopped += running;
            }
        } else {
            info!(running, in_hand, "draining");
        }
        self.shutdown.ends_after(self.executors.is_empty());
        // A pause is for a node that does not answer; this is news.
        self.report.pause = Duration::ZERO;
    }

    /// Says goodbye, once: who leaves does not wait for a cluster that does not listen.
    async fn leave(&mut self) -> Departure {
        let server = &self.options.server;
        let leaving = self.client.leave_server(server, self.options.incarnation);
        match timeout(LEAVE_TIME_MAX, leaving).await {
            Ok(Ok(_)) => info!(server, "left"),
            Ok(Err(error)) => warn!(%error, server, "left without being heard"),
            Err(_) => warn!(server, "left without being heard in time"),
        }
        Departure {
            stopped: self.shutdown.stopped,
            unreported: self.ledger.len(),
        }
    }

    fn send_polls(&mut self) {
        let draining = self.shutdown.is_draining();
        if !self.held.is_taken {
            self.held.is_taken = true;
            let wait_ms = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX);
            let poll = PollRequest {
                incarnation: self.options.incarnation,
                holds: self.ledger.holds(),
                wait_ms: Some(wait_ms),
                draining,
                ..PollRequest::default()
            };
            self.send_poll(Kind::Held, poll, self.held.pause);
        }
        let must_tell = draining && !self.shutdown.is_told;
        if !self.report.is_taken && (self.ledger.has_reports() || must_tell) {
            self.report.is_taken = true;
            let poll = PollRequest {
                incarnation: self.options.incarnation,
                holds: self.ledger.holds(),
                started: self.ledger.confirm(),
                completed: self.ledger.completions(),
                wait_ms: Some(0),
                draining,
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
            let draining = poll.draining;
            Happening::Polled {
                kind,
                draining,
                sent,
                result,
            }
        });
    }

    fn joined(&mut self, joined: Result<(Id, Happening), JoinError>) -> Result<(), WorkerError> {
        match joined {
            Ok((
                _,
                Happening::Polled {
                    kind,
                    draining,
                    sent,
                    result,
                },
            )) => {
                self.shutdown.is_told |= draining && result.is_ok();
                self.polled(kind, sent, result)
            }
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
        self.shutdown.ends_after(self.executors.is_empty());
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
            longer(slot.pause).max((slot.pause * 2).min(POLL_PAUSE_MAX))
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
        if answer.drain && !self.shutdown.is_draining() {
            info!("the cluster asks this worker to drain");
            self.ordered(Order::Drain);
            has_news = true;
        }
        if !self.shutdown.is_draining() {
            for offer in answer.launches {
                has_news |= self.ledger.offered(offer);
            }
        }
        has_news
    }

    /// Whether it is settled. One that is settled otherwise as well, by an order to stop what has
    /// ended, is no reason for a pause.
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
        self.ledger.acknowledged(&named(result));
        true
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
        let executor = Executor { stop, task };
        if let Some(stop) = self.shutdown.stop() {
            // Confirmed while the order came: it is committed, so it must end by a report.
            executor.tell(stop);
            self.shutdown.stopped += 1;
        }
        self.executors.insert(attempt.clone(), executor);
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
        // One that ended while the order was on its way is not named again: no reason for a pause.
        was_dropped || was_told || !self.ledger.has(attempt)
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
