//! Permits: a job whose executor is the one who asked (S13, S46).
//!
//! [`Client::permit`] launches such a job, waits for its start, confirms it, and answers a
//! [`Permit`]: as long as it is held, the job holds its slot. A task of the runtime keeps it: it
//! renews the lease three times in each length of it, and ends the job when the permit is
//! completed or dropped. So a limit becomes a guard around a piece of code.
//!
//! ```no_run
//! use fermata_client::api::limits::Limit;
//! use fermata_client::{Client, LaunchRequest};
//!
//! # async fn sync_accounts() {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(["http://127.0.0.1:7400"])?;
//! let limits: Vec<Limit> = serde_json::from_str(
//!     r#"[{"type": "job", "amount": 5, "rate": 100, "window": 60, "cap_key": "salesforce"},
//!         {"type": "queue", "amount": 1000}]"#,
//! )?;
//! let launch = LaunchRequest { limits, ..LaunchRequest::default() };
//! let mut permit = client.permit(launch).await?;
//! tokio::select! {
//!     () = sync_accounts() => { permit.complete(0).await?; }
//!     stop = permit.must_stop() => println!("stopped: {stop:?}"),
//! }
//! # Ok(()) }
//! ```
//!
//! # What is promised
//!
//! - Whoever has a permit was confirmed: the start is counted, the slot is taken, and nobody else
//!   executes this attempt (S14).
//! - The lease counts from when the last answered renewal was *sent* (S41). Before it ends,
//!   [`Permit::must_stop`] says so, early enough to stop in order; what heeds it has stopped before
//!   the slot is given to another.
//! - Whoever stops waiting, by dropping the future or because the wait ends, has its job withdrawn.
//!   Where that does not succeed the lease lapses, and what was taken is given back.
//! - A job that waited and whose lease lapsed all the same (this process was stopped, or cut off)
//!   is launched anew, behind those who wait by then; unless the request names its own id.
//!
//! # Caveats
//!
//! - The lease is measured with the monotonic clock, which stands still while a machine sleeps: a
//!   machine that wakes up learns of its loss only by the next renewal.
//! - Nothing stops by itself. Code that does not look at [`Permit::must_stop`] may run on after
//!   its slot was given away.
//! - A permit that is dropped is ended by its task. A runtime that is shut down before that has
//!   happened leaves the slot taken until the lease lapses: [`Permit::complete`] waits for it.

mod keeper;
mod renewal;

use std::future::Future;
use std::time::Duration;

use fermata_api::jobs::{CompletedRequest, JobState, JobView, LaunchRequest};
use fermata_api::problem::{ErrorCode, Problem};
use thiserror::Error;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;

use keeper::Keeper;
use renewal::Standing;

/// The code of a permit that was dropped by a panic.
pub const CODE_PANICKED: i32 = 101;

/// How a permit is waited for and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitOptions {
    /// How long it is waited for, reaching the cluster included; absent: as long as it takes.
    pub wait: Option<Duration>,
    /// Whether to give up as soon as no node does what is asked within the client's deadline
    /// ([`crate::ClientOptions::deadline`]), though the wait is not over.
    pub gives_up_unreachable: bool,
    /// The lease, in whole seconds, from 1 s to 366 days; what is beyond is cut, a fraction rounded
    /// up. The shorter, the sooner the slot of a process that died is free; it should outlast a
    /// change of leader by far.
    pub lease: Duration,
    /// How long before the end of the lease the holder is told to stop; at most a third of the
    /// lease is taken for it.
    pub stop_margin: Duration,
}

impl Default for PermitOptions {
    /// Waits as long as it takes; a lease of 30 s, with 10 s to stop.
    fn default() -> Self {
        Self {
            wait: None,
            gives_up_unreachable: false,
            lease: Duration::from_secs(30),
            stop_margin: Duration::from_secs(10),
        }
    }
}

/// Why there is no permit. Nothing runs, and nothing is charged.
#[derive(Debug, Error)]
pub enum PermitError {
    /// A limit did not allow it, and the limits say not to wait (S16).
    #[error("not permitted: {0}")]
    NotPermitted(Box<Problem>),
    /// It was not permitted before the wait ended.
    #[error("not permitted within {wait:?}")]
    TimedOut {
        /// The wait.
        wait: Duration,
    },
    /// No node did what was asked, for the client's deadline or until the wait ended.
    #[error("the cluster could not be reached for {waited:?}{}", last(cause.as_ref()))]
    Unreachable {
        /// How long was tried.
        waited: Duration,
        /// What the last call met; absent where it still was on its way.
        cause: Option<ClientError>,
    },
    /// The job was ended while it waited: somebody cancelled it, say.
    #[error("job {}, which waited for its permit, was aborted: {}", .0.id, reason(.0))]
    Ended(Box<JobView>),
    /// The request was refused: it breaks a rule, or names what is not there.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The request cannot be sent, or its answer was not understood.
    #[error(transparent)]
    Client(ClientError),
    /// Whoever waited for it gave up.
    #[error("given up")]
    GivenUp,
    /// The runtime was shut down while the permit was waited for.
    #[error("the runtime was shut down")]
    ShutDown,
}

fn last(cause: Option<&ClientError>) -> String {
    cause.map_or_else(String::new, |cause| format!("; last, {cause}"))
}

/// Why the job was aborted, as the contract writes it.
fn reason(job: &JobView) -> String {
    let reason = job.reason.map(serde_json::to_value);
    match reason {
        Some(Ok(serde_json::Value::String(reason))) => reason,
        _ => "for no reason that is known".to_owned(),
    }
}

impl PermitError {
    /// What a refused launch means.
    fn refused(problem: Box<Problem>) -> Self {
        match problem.code {
            ErrorCode::RateLimited
            | ErrorCode::ConcurrencyLimited
            | ErrorCode::QueueFull
            | ErrorCode::ClusterFull => Self::NotPermitted(problem),
            _ => Self::Refused(problem),
        }
    }
}

/// Why the holder of a permit must stop, the least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PermitStop {
    /// The job was cancelled, or was active for too long (S48, S50). The slot is kept until the
    /// permit is completed or dropped.
    Cancelled,
    /// The lease could not be renewed and is about to end: what runs must have stopped by
    /// [`Permit::lease_ends`].
    Lapsing,
    /// The lease is over, or the job was ended: the slot may be in other hands.
    Lost,
}

/// A start that was granted, and a slot that is held: see the [module](self).
///
/// Dropped, it is released in the background, with the code 0, or [`CODE_PANICKED`] while its
/// thread panics.
#[derive(Debug)]
#[must_use = "a permit that is dropped is released"]
pub struct Permit {
    client: Client,
    job: JobView,
    lease: Duration,
    standing: watch::Receiver<Standing>,
    stop: watch::Receiver<Option<PermitStop>>,
    ending: Option<CompletedRequest>,
    /// Gone once the end was told, or is given up.
    release: Option<oneshot::Sender<CompletedRequest>>,
}

impl Client {
    /// Takes a permit: launches a job whose executor is this program, waits for its start and
    /// confirms it. Waits as long as it takes, where the limits say to wait: a queue limit, or
    /// `"mode": "wait"`.
    ///
    /// The request's executor and lease are set here. Without an `id` it gets one; with one, it must
    /// be no other program's: two that wait for one job would both take its start for theirs. Needs
    /// a Tokio runtime.
    ///
    /// # Errors
    /// See [`PermitError`].
    pub async fn permit(&self, launch: LaunchRequest) -> Result<Permit, PermitError> {
        self.permit_with(launch, PermitOptions::default()).await
    }

    /// As [`Client::permit`], with options.
    ///
    /// # Errors
    /// See [`PermitError`].
    pub async fn permit_with(
        &self,
        launch: LaunchRequest,
        options: PermitOptions,
    ) -> Result<Permit, PermitError> {
        self.permit_until(launch, options, std::future::pending())
            .await
    }

    /// As [`Client::permit_with`], but gives up waiting when `given_up` is ready, and answers when
    /// the job is withdrawn. To drop the future withdraws it too, but unseen: a program that ends
    /// would end before that.
    ///
    /// # Errors
    /// See [`PermitError`].
    pub async fn permit_until(
        &self,
        launch: LaunchRequest,
        options: PermitOptions,
        given_up: impl Future<Output = ()>,
    ) -> Result<Permit, PermitError> {
        let (grant, mut granted) = oneshot::channel();
        let (give_up, told) = oneshot::channel();
        tokio::spawn(Keeper::new(self.clone(), launch, options).run(grant, told));
        let got = tokio::select! {
            got = &mut granted => got,
            () = given_up => {
                // One that has just been granted is answered: it is there.
                let _ = give_up.send(());
                granted.await
            }
        };
        got.unwrap_or(Err(PermitError::ShutDown))
    }
}

impl Permit {
    /// The job as it was started: its id, pool and attempt, and `start_index`, a number that only
    /// grows from one start to the next, for whoever wants to fence what a former holder writes.
    #[must_use]
    pub fn job(&self) -> &JobView {
        &self.job
    }

    /// Ready when there is a reason to stop; called again, when there is a further, more urgent
    /// one. Cancel safe.
    pub async fn must_stop(&mut self) -> PermitStop {
        loop {
            if self.stop.changed().await.is_err() {
                // The task is gone with its runtime, and renews nothing any more.
                std::future::pending::<()>().await;
            }
            if let Some(stop) = *self.stop.borrow_and_update() {
                return stop;
            }
        }
    }

    /// When the lease ends unless it is renewed. By then whatever the permit is for has stopped,
    /// or it may overlap with that of the next holder.
    #[must_use]
    pub fn lease_ends(&self) -> Instant {
        self.standing.borrow().sent + self.lease
    }

    /// A view of the lease, for what has to know when it ends and does not hold the permit.
    #[must_use]
    pub fn lease(&self) -> PermitLease {
        PermitLease {
            standing: self.standing.clone(),
            lease: self.lease,
        }
    }

    /// Whether the permit is certainly held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        *self.stop.borrow() != Some(PermitStop::Lost) && Instant::now() < self.lease_ends()
    }

    /// Ends the job with this code, 0 being success, and answers how it ended: of a permit that was
    /// lost, that is told. Repeated until it is known, within the client's deadline.
    ///
    /// # Errors
    /// Among others `stale_attempt` and `unknown_job`, of a permit that was lost. Where no node
    /// could be reached, the slot is free when the lease lapses.
    pub async fn complete(self, code: i32) -> Result<JobView, ClientError> {
        self.complete_with(code, None).await
    }

    /// As [`Permit::complete`], with what there is to say about the end: at most
    /// [`fermata_api::bounds::DESCRIPTION_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// As [`Permit::complete`].
    pub async fn complete_with(
        mut self,
        code: i32,
        description: Option<String>,
    ) -> Result<JobView, ClientError> {
        let completed = CompletedRequest {
            attempt: self.job.attempt,
            code,
            description,
        };
        // Should this future be dropped, the task goes on with it.
        self.ending = Some(completed.clone());
        let ended = end(&self.client, &self.job.id, &completed).await;
        self.release = None;
        ended
    }
}

/// The lease of a permit, which is held elsewhere.
#[derive(Clone, Debug)]
pub struct PermitLease {
    standing: watch::Receiver<Standing>,
    lease: Duration,
}

impl PermitLease {
    /// As [`Permit::lease_ends`].
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.standing.borrow().sent + self.lease
    }

    /// Ready when the lease was renewed since this view was made, or since it was last ready; never
    /// once the permit is gone. Cancel safe.
    pub async fn renewed(&mut self) {
        if self.standing.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(release) = self.release.take() else {
            return;
        };
        let is_panic = std::thread::panicking();
        let ending = self.ending.take().unwrap_or(CompletedRequest {
            attempt: self.job.attempt,
            code: if is_panic { CODE_PANICKED } else { 0 },
            description: None,
        });
        // Without its task there is nobody left to tell.
        let _ = release.send(ending);
    }
}

/// Ends an attempt. A job that would be tried again (S49) is cancelled: nobody is there to execute
/// it.
async fn end(
    client: &Client,
    job: &str,
    completed: &CompletedRequest,
) -> Result<JobView, ClientError> {
    let ended = client.completed(job, completed).await?;
    if ended.state == JobState::Delayed || ended.state == JobState::Queued {
        return client.cancel(job).await;
    }
    Ok(ended)
}
