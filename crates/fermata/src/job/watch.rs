//! Waiting for a job, and following it.
//!
//! A wait is held by the node that is asked, in slices: a slice that ends without news costs a
//! call, and a node that dies costs the rest of its slice.

use std::time::Duration;

use fermata_api::jobs::{JobState, JobView, Wait};
use fermata_client::Client;
use tokio::time::Instant;

use super::view;
use crate::error::CommandError;
use crate::screen::Screen;

/// The longest hold of one call.
const SLICE_MAX: Duration = Duration::from_secs(30);
/// How often a job that is followed is looked at while it only moves within its queue.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which job is followed.
#[derive(Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// The job
    id: String,
    #[command(flatten)]
    patience: Patience,
}

/// How long a job is waited for.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Patience {
    /// Give up after so many seconds, with exit code 7; else it is waited for as long as it takes
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
}

impl Patience {
    /// What is left of it, at most a slice.
    fn slice(self, since: Instant, slice: Duration) -> Duration {
        match self.timeout {
            Some(timeout_s) => Duration::from_secs(timeout_s)
                .saturating_sub(since.elapsed())
                .min(slice),
            None => slice,
        }
    }

    fn not_yet(self, job: &JobView) -> CommandError {
        CommandError::NotYet {
            id: job.id.clone(),
            state: job.state,
            timeout_s: self.timeout.unwrap_or_default(),
        }
    }
}

pub(super) async fn run(
    client: &Client,
    args: &WatchArgs,
    screen: Screen,
) -> Result<(), CommandError> {
    let since = Instant::now();
    let mut job = client.job(&args.id).await?;
    loop {
        screen.show_next(&job, |screen| view::line(&job, screen))?;
        if job.state.is_final() {
            return succeeded(job);
        }
        job = loop {
            let slice = args.patience.slice(since, LOOK_EVERY);
            if slice.is_zero() {
                return Err(args.patience.not_yet(&job));
            }
            let now = client.job_and_wait(&args.id, Wait::End, slice).await?;
            if standing(&now) != standing(&job) {
                break now;
            }
        };
    }
}

/// The job, once it has come so far.
pub(super) async fn wait(
    client: &Client,
    mut job: JobView,
    wait: Wait,
    patience: Patience,
) -> Result<JobView, CommandError> {
    let since = Instant::now();
    while !has_come(&job, wait) {
        let slice = patience.slice(since, SLICE_MAX);
        if slice.is_zero() {
            return Err(patience.not_yet(&job));
        }
        job = client.job_and_wait(&job.id, wait, slice).await?;
    }
    Ok(job)
}

/// Whether a job that has ended did so with code 0.
pub(super) fn succeeded(job: JobView) -> Result<(), CommandError> {
    if job.state.is_final() && job.code != Some(0) {
        return Err(CommandError::JobFailed { job: Box::new(job) });
    }
    Ok(())
}

/// Whether a wait for this is over.
pub(super) fn has_come(job: &JobView, wait: Wait) -> bool {
    match wait {
        Wait::Start => !matches!(job.state, JobState::Delayed | JobState::Queued),
        Wait::End => job.state.is_final(),
    }
}

/// What a line shows: a follower is told when it changes.
fn standing(job: &JobView) -> (JobState, u32, Option<u64>, Option<&str>, bool) {
    let server = job.server.as_deref();
    (job.state, job.attempt, job.position, server, job.cancel)
}
