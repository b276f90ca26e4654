//! The heartbeats that keep a job (S41, S46).

use std::time::Duration;

use fermata_api::problem::Problem;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use crate::client::{Client, longer, varied};
use crate::error::ClientError;

/// How many renewals fit into a lease, so that several can fail before it ends.
const RENEWALS_PER_LEASE: u32 = 3;
/// The least time that a node has for an answer, however short the lease.
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// What is known of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// When the last renewal that was answered was sent: what the lease counts from.
    pub(super) sent: Instant,
    /// Whether the job was told to stop.
    pub(super) is_cancelled: bool,
}

/// Renews the lease of one job.
pub(super) struct Renewal {
    client: Client,
    job: String,
    lease: Duration,
    standing: watch::Sender<Standing>,
}

impl Renewal {
    /// For a job whose launch, the first renewal, was sent at this instant.
    pub(super) fn new(client: Client, job: String, lease: Duration, sent: Instant) -> Self {
        let (standing, _) = watch::channel(Standing {
            sent,
            is_cancelled: false,
        });
        Self {
            client,
            job,
            lease,
            standing,
        }
    }

    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Renews the lease until that is refused, and answers the refusal.
    pub(super) async fn run(&self, attempt: Option<u32>) -> Box<Problem> {
        let answer_timeout = self.client.options().answer_timeout;
        let answer_timeout = answer_timeout
            .min(self.lease / (2 * RENEWALS_PER_LEASE))
            .max(ANSWER_TIMEOUT_MIN);
        let mut pause = Duration::ZERO;
        loop {
            let last = self.standing.borrow().sent;
            sleep_until(last + self.lease / RENEWALS_PER_LEASE).await;
            let sent = Instant::now();
            let beat = self
                .client
                .heartbeat_once(&self.job, attempt, answer_timeout);
            match beat.await {
                Ok(answer) => {
                    pause = Duration::ZERO;
                    self.standing.send_modify(|standing| {
                        standing.sent = sent;
                        standing.is_cancelled |= answer.cancel;
                    });
                }
                Err(ClientError::Refused(problem)) => return problem,
                Err(error) => {
                    if pause.is_zero() {
                        warn!(%error, job = self.job, "a lease was not renewed; trying again");
                    }
                    pause = longer(pause);
                    sleep(varied(pause)).await;
                }
            }
        }
    }
}
