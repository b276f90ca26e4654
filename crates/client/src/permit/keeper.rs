//! The task behind a permit: it gets it, keeps it, and ends it.
//!
//! ```text
//! launch ──► wait ──► confirm ──► held ──► ended
//!    ▲         │ the lease lapsed   │ lost
//!    └─────────┘                    └──► nothing to renew, only to be told
//! ```

use std::time::Duration;

use fermata_api::jobs::{
    AbortReason, CompletedRequest, Executor, JobState, JobView, LaunchRequest, Wait,
};
use fermata_api::problem::{ErrorCode, Problem};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::client::Client;
use crate::error::ClientError;

use super::renewal::Renewal;
use super::{Permit, PermitError, PermitOptions, PermitStop, end};

/// How long a node holds an answer while the job waits, in seconds.
const HOLD: Duration = Duration::from_secs(10);
/// How long a job that is not wanted any more is tried to be withdrawn.
const WITHDRAW_MAX: Duration = Duration::from_secs(2);
/// The code of a permit that was confirmed, and given up before anything ran.
const CODE_WITHDRAWN: i32 = 1;
/// The shortest lease.
const LEASE_MIN: Duration = Duration::from_secs(1);
/// The longest lease (S3).
const LEASE_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// The part of a lease that may be taken to stop.
const STOP_SHARE: u32 = 3;

pub(super) type Grant = oneshot::Sender<Result<Permit, PermitError>>;

/// Gets a permit.
pub(super) struct Keeper {
    client: Client,
    launch: LaunchRequest,
    /// Whether the id is the request's own, and not ours to replace.
    has_own_id: bool,
    options: PermitOptions,
    lease: Duration,
    begun: Instant,
    /// The job that may be there.
    pending: Option<String>,
    /// Whether a node has answered.
    was_heard: bool,
    /// What the last call met, if it failed.
    failure: Option<ClientError>,
}

/// Keeps what was got.
struct Held {
    client: Client,
    job: JobView,
    renewal: Renewal,
    lease: Duration,
    stop_margin: Duration,
}

/// How waiting for a start came out.
enum Waited {
    Confirmed(JobView),
    Ended(JobView),
    /// The cluster does not know the job any more.
    Forgotten,
}

impl Keeper {
    pub(super) fn new(client: Client, launch: LaunchRequest, options: PermitOptions) -> Self {
        let lease_s = options.lease.clamp(LEASE_MIN, LEASE_MAX);
        let lease_s = lease_s.as_secs() + u64::from(lease_s.subsec_nanos() != 0);
        Self {
            client,
            has_own_id: launch.id.is_some(),
            launch: LaunchRequest {
                executor: Some(Executor::Caller),
                lease_s: Some(lease_s),
                ..launch
            },
            options,
            lease: Duration::from_secs(lease_s),
            begun: Instant::now(),
            pending: None,
            was_heard: false,
            failure: None,
        }
    }

    pub(super) async fn run(mut self, mut grant: Grant, given_up: oneshot::Receiver<()>) {
        let got = tokio::select! {
            got = self.get() => got,
            Ok(()) = given_up => Err(PermitError::GivenUp),
            () = grant.closed() => Err(PermitError::ShutDown),
        };
        match got {
            Ok(held) => held.run(grant).await,
            Err(error) => {
                self.withdraw().await;
                // Whoever waited may have gone.
                let _ = grant.send(Err(error));
            }
        }
    }

    async fn get(&mut self) -> Result<Held, PermitError> {
        let Some(wait) = self.options.wait else {
            return self.get_in_time().await;
        };
        // A wait beyond what the clock can count is none.
        let Some(ends) = self.begun.checked_add(wait) else {
            return self.get_in_time().await;
        };
        match timeout_at(ends, self.get_in_time()).await {
            Ok(got) => got,
            Err(_) if self.was_heard && self.failure.is_none() => {
                Err(PermitError::TimedOut { wait })
            }
            Err(_) => Err(self.unreachable()),
        }
    }

    async fn get_in_time(&mut self) -> Result<Held, PermitError> {
        loop {
            let (job, sent) = self.launched().await?;
            let renewal = Renewal::new(self.client.clone(), job.id.clone(), self.lease, sent);
            let waited = tokio::select! {
                waited = self.confirmed(job, &renewal) => waited?,
                problem = renewal.run(None) => match problem.job {
                    Some(job) => Waited::Ended(*job),
                    None => Waited::Forgotten,
                },
            };
            match waited {
                Waited::Confirmed(job) => {
                    return Ok(Held {
                        client: self.client.clone(),
                        job,
                        renewal,
                        lease: self.lease,
                        stop_margin: self.stop_margin(),
                    });
                }
                Waited::Ended(job) => self.anew_after(job)?,
                Waited::Forgotten => self.anew()?,
            }
        }
    }

    /// Launches the job, as often as it takes, with one id. Answers it, and when the first launch
    /// was sent: repeated launches renew nothing.
    async fn launched(&mut self) -> Result<(JobView, Instant), PermitError> {
        let new_id = || Uuid::now_v7().to_string();
        let id = self.launch.id.get_or_insert_with(new_id).clone();
        let sent = Instant::now();
        let mut is_unknown = false;
        loop {
            self.pending = Some(id.clone());
            match self.client.launch(self.launch.clone()).await {
                Ok(job) => {
                    self.heard();
                    return Ok((job, sent));
                }
                Err(error) => {
                    is_unknown |= matches!(error, ClientError::Unknown { .. });
                    if !is_unknown {
                        self.pending = None;
                    }
                    self.failed(error)?;
                }
            }
        }
    }

    /// Waits for the start of the job and confirms it, with a lease that is good for more than
    /// being told to stop.
    async fn confirmed(
        &mut self,
        mut job: JobView,
        renewal: &Renewal,
    ) -> Result<Waited, PermitError> {
        loop {
            job = match job.state {
                JobState::Complete | JobState::Aborted => return Ok(Waited::Ended(job)),
                JobState::Starting | JobState::Active
                    if self.confirm(&job.id, job.attempt).await? =>
                {
                    let mut standing = renewal.standing();
                    let least = self.stop_margin();
                    // A sender that is borrowed does not go.
                    let _ = standing
                        .wait_for(|standing| standing.sent.elapsed() + least < self.lease)
                        .await;
                    job.state = JobState::Active;
                    return Ok(Waited::Confirmed(job));
                }
                _ => match self.look(&job.id).await? {
                    Some(job) => job,
                    None => return Ok(Waited::Forgotten),
                },
            }
        }
    }

    /// The job when it has been started, or as it is after a while.
    async fn look(&mut self, id: &str) -> Result<Option<JobView>, PermitError> {
        loop {
            match self.client.job_and_wait(id, Wait::Start, HOLD).await {
                Ok(job) => {
                    self.heard();
                    return Ok(Some(job));
                }
                Err(error) if error.code() == Some(ErrorCode::UnknownJob) => return Ok(None),
                Err(error) => self.failed(error)?,
            }
        }
    }

    /// Confirms an attempt. Whether it is ours to execute; else the job is to be looked at again.
    async fn confirm(&mut self, id: &str, attempt: u32) -> Result<bool, PermitError> {
        loop {
            match self.client.started(id, attempt).await {
                Ok(answer) => {
                    self.heard();
                    return Ok(answer.state == JobState::Active && answer.attempt == attempt);
                }
                Err(error) => match error.code() {
                    Some(ErrorCode::StaleAttempt | ErrorCode::Final | ErrorCode::UnknownJob) => {
                        return Ok(false);
                    }
                    _ => self.failed(error)?,
                },
            }
        }
    }

    /// What the end of a job that waited means: it is launched anew where this process was absent
    /// for too long.
    fn anew_after(&mut self, job: JobView) -> Result<(), PermitError> {
        let was_absent = matches!(
            job.reason,
            Some(AbortReason::LeaseExpired | AbortReason::StartTimeout)
        );
        if was_absent && !self.has_own_id {
            return self.anew();
        }
        self.pending = None;
        Err(PermitError::Ended(Box::new(job)))
    }

    fn anew(&mut self) -> Result<(), PermitError> {
        let lost = self.pending.take().unwrap_or_default();
        if self.has_own_id {
            let detail = format!("job {lost} is not there any more");
            let problem = Problem::new(ErrorCode::UnknownJob, detail);
            return Err(PermitError::Refused(Box::new(problem)));
        }
        warn!(
            job = lost,
            "a job that waited lost its lease; launching anew"
        );
        self.launch.id = None;
        Ok(())
    }

    fn heard(&mut self) {
        self.was_heard = true;
        if self.failure.take().is_some() {
            info!("the cluster is reached again");
        }
    }

    /// Takes a failed call in. It is tried again unless this ends the matter.
    fn failed(&mut self, error: ClientError) -> Result<(), PermitError> {
        match error {
            error @ (ClientError::Unavailable { .. } | ClientError::Unknown { .. }) => {
                if self.failure.is_none() && !self.options.gives_up_unreachable {
                    warn!(%error, "the cluster is not reached; trying on");
                }
                self.failure = Some(error);
                if self.options.gives_up_unreachable {
                    return Err(self.unreachable());
                }
                Ok(())
            }
            ClientError::Refused(problem) => {
                self.pending = None;
                Err(PermitError::refused(problem))
            }
            error => Err(PermitError::Client(error)),
        }
    }

    fn unreachable(&mut self) -> PermitError {
        PermitError::Unreachable {
            waited: self.begun.elapsed(),
            cause: self.failure.take(),
        }
    }

    fn stop_margin(&self) -> Duration {
        self.options.stop_margin.min(self.lease / STOP_SHARE)
    }

    /// Takes the job back that is not wanted any more. Where that fails, its lease lapses.
    async fn withdraw(&mut self) {
        let Some(id) = self.pending.take() else {
            return;
        };
        let withdrawn = async {
            let job = self.client.cancel(&id).await?;
            if job.state != JobState::Active {
                return Ok(job);
            }
            // Confirmed while it was given up: told to stop, it keeps its slot until it has.
            let completed = CompletedRequest {
                attempt: job.attempt,
                code: CODE_WITHDRAWN,
                description: Some("given up before it ran".to_owned()),
            };
            self.client.completed(&id, &completed).await
        };
        if let Ok(Err(error)) = timeout(WITHDRAW_MAX, withdrawn).await {
            debug!(%error, job = id, "a job was not withdrawn");
        }
    }
}

impl Held {
    /// Hands the permit out and keeps it until it is given back.
    async fn run(self, grant: Grant) {
        let (release, released) = oneshot::channel();
        let (stop, told) = watch::channel(None);
        let permit = Permit {
            client: self.client.clone(),
            job: self.job.clone(),
            lease: self.lease,
            standing: self.renewal.standing(),
            stop: told,
            ending: None,
            release: Some(release),
        };
        // Refused by whoever has gone, it is dropped, and thereby given back.
        let _ = grant.send(Ok(permit));
        // Without a word, its end was told already.
        let Ok(completed) = self.keep(released, &stop).await else {
            return;
        };
        if let Err(error) = end(&self.client, &self.job.id, &completed).await {
            warn!(%error, job = self.job.id, "the end of a permit was not told");
        }
    }

    async fn keep(
        &self,
        mut released: oneshot::Receiver<CompletedRequest>,
        stop: &watch::Sender<Option<PermitStop>>,
    ) -> Result<CompletedRequest, oneshot::error::RecvError> {
        let mut standing = self.renewal.standing();
        let mut renewing = std::pin::pin!(self.renewal.run(Some(self.job.attempt)));
        loop {
            let now = *standing.borrow_and_update();
            if now.is_cancelled {
                tell(stop, PermitStop::Cancelled);
            }
            let told = *stop.borrow();
            let ends = now.sent + self.lease;
            let next = match told {
                Some(PermitStop::Lapsing) => ends,
                _ => ends - self.stop_margin,
            };
            tokio::select! {
                biased;
                completed = &mut released => return completed,
                () = sleep_until(next), if told < Some(PermitStop::Lost) => {
                    let is_over = Instant::now() >= ends;
                    tell(stop, if is_over { PermitStop::Lost } else { PermitStop::Lapsing });
                }
                problem = &mut renewing, if told < Some(PermitStop::Lost) => {
                    warn!(job = self.job.id, %problem, "a permit is lost");
                    tell(stop, PermitStop::Lost);
                }
                // Its sender is borrowed, so it is there.
                _ = standing.changed() => {}
            }
        }
    }
}

/// Tells a reason to stop that is more urgent than those before.
fn tell(stop: &watch::Sender<Option<PermitStop>>, reason: PermitStop) {
    stop.send_if_modified(|told| {
        let is_news = *told < Some(reason);
        if is_news {
            *told = Some(reason);
        }
        is_news
    });
}
