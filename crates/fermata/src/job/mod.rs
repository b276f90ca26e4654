//! `fermata job`: launching, watching and ending jobs.

mod submit;
mod view;
mod watch;
mod why;

pub(crate) use submit::priority;

use clap::{Subcommand, ValueEnum};
use fermata_api::jobs::{JobState, JobsQuery};
use fermata_client::Client;

use crate::error::CommandError;
use crate::remote::{ListArgs, RemoteArgs, block_on, more};
use crate::screen::Screen;
use crate::table::table;

/// What to do with jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    action: JobAction,
}

const WHY_HELP: &str = "\
A job starts when all its gates are open: a slot of its pool, the rate of its pool, each rate
bucket that it names, and a server with room. The head of a queue waits for one gate at a time;
all others are shown as well, and the first shut one is what holds the job. What is not launched
yet: fermata job submit --dry-run

The earliest start is exact where only time is in the way, also through the end of an override.
\"not before\" is a lower bound: others come first, in its queue or at a bucket, or its limits are
not fixed yet. All of it is what comes if nothing else happens.

Example:
  fermata job why import-2026-03-02";

#[derive(Debug, Subcommand)]
enum JobAction {
    /// Launch a job, or many alike
    Submit(submit::SubmitArgs),
    /// List jobs
    List(JobListArgs),
    /// Show one job with its limits and its log
    Show {
        /// The job
        id: String,
    },
    /// Say why a job waits: every gate, open or shut, what holds it, and the earliest start
    #[command(after_help = WHY_HELP)]
    Why {
        /// The job
        id: String,
    },
    /// Follow a job until it ends; exit code 1 if it fails
    Watch(watch::WatchArgs),
    /// End jobs that have not ended: at once, or by telling their worker to stop
    Cancel {
        /// The jobs
        #[arg(required = true)]
        id: Vec<String>,
    },
}

/// Which jobs are listed. Filters that are given must all hold.
#[derive(Debug, clap::Args)]
struct JobListArgs {
    /// Only jobs in this state
    #[arg(long, value_enum)]
    state: Option<StateFilter>,
    /// Only jobs of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only jobs of this event
    #[arg(long)]
    event: Option<String>,
    /// Only jobs whose present attempt is on this server
    #[arg(long)]
    server: Option<String>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateFilter {
    /// Not due yet
    Delayed,
    /// Waits for a slot, a rate or a server
    Queued,
    /// Given to a server, which has not confirmed yet
    Starting,
    /// Runs
    Active,
    /// Ended by its executor, with a code
    Complete,
    /// Ended otherwise, with a reason
    Aborted,
}

impl From<StateFilter> for JobState {
    fn from(filter: StateFilter) -> Self {
        match filter {
            StateFilter::Delayed => Self::Delayed,
            StateFilter::Queued => Self::Queued,
            StateFilter::Starting => Self::Starting,
            StateFilter::Active => Self::Active,
            StateFilter::Complete => Self::Complete,
            StateFilter::Aborted => Self::Aborted,
        }
    }
}

pub(crate) fn run(args: &JobArgs, screen: Screen) -> Result<(), CommandError> {
    let client = args.remote.client()?;
    block_on(async {
        match &args.action {
            JobAction::Submit(submit) => submit::run(&client, submit, screen).await,
            JobAction::List(list) => show_list(&client, list, screen).await,
            JobAction::Show { id } => {
                let job = client.job(id).await?;
                screen.show(&job, |screen| view::described(&job, screen))
            }
            JobAction::Why { id } => {
                let why = client.why(id).await?;
                screen.show(&why, |screen| why::described(&why, screen))
            }
            JobAction::Watch(watch) => watch::run(&client, watch, screen).await,
            JobAction::Cancel { id } => {
                for id in id {
                    let job = client.cancel(id).await?;
                    screen.show_next(&job, |screen| view::line(&job, screen))?;
                }
                Ok(())
            }
        }
    })
}

async fn show_list(
    client: &Client,
    filters: &JobListArgs,
    screen: Screen,
) -> Result<(), CommandError> {
    let page = filters
        .list
        .gather(async |limit, after| {
            let query = JobsQuery {
                state: filters.state.map(JobState::from),
                pool: filters.pool.clone(),
                event: filters.event.clone(),
                server: filters.server.clone(),
                limit: Some(limit),
                after,
                ..JobsQuery::default()
            };
            client.jobs(&query).await
        })
        .await?;
    screen.show(&page, |screen| {
        let rows: Vec<_> = page.items.iter().map(view::row).collect();
        table(screen, view::HEADING, &rows) + &more(&page)
    })
}
