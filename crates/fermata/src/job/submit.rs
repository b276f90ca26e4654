//! Launching jobs. Each gets its id here, before anything is sent: whatever happens on the way,
//! the command can be repeated with that id and has the effect of one (S40).

use std::path::Path;

use clap::ValueEnum;
use fermata_api::bounds::BATCH_JOBS_MAX;
use fermata_api::decode::decode;
use fermata_api::jobs::{Executor, JobView, LaunchRequest, Priority, Wait};
use fermata_api::params::Params;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_client::{Client, ClientError};
use uuid::Uuid;

use super::view;
use super::watch::{Patience, has_come, succeeded, wait};
use super::why;
use crate::definitions::read_text;
use crate::error::CommandError;
use crate::screen::{Format, Screen, Tone, printable};

/// What is launched.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fermata job submit salesforce
  fermata job submit salesforce --params '{\"account\": 17}' --wait end --timeout 60
  fermata job submit salesforce --id import-2026-03-02   harmless to repeat
  fermata job submit salesforce --count 200
  fermata job submit salesforce --dry-run                what would happen now, nothing done
  fermata job submit --target w1 --params @job.json      without an event: a pool of its own

With --wait, the exit code is 1 if the job ends with another code than 0, or is aborted; with
--dry-run it is 4 if the job would be aborted at once.")]
pub(super) struct SubmitArgs {
    /// The event; without one the job is a pool of its own
    event: Option<String>,
    /// The job's id, which makes a repetition harmless; else it gets one
    #[arg(long, conflicts_with = "count")]
    id: Option<String>,
    /// Its parameters; `@FILE` reads them from a file, `-` from standard input
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
    /// From -100 to 100, higher first; else the event's
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = priority)]
    priority: Option<Priority>,
    /// A list of limits that go before the event's
    #[arg(long, value_name = "JSON")]
    limits: Option<String>,
    /// A server or group that may execute it, instead of the event's. May be repeated
    #[arg(long = "target", value_name = "SERVER|GROUP")]
    targets: Vec<String>,
    /// Consider it only after so many seconds
    #[arg(long, value_name = "SECONDS")]
    delay_s: Option<u64>,
    /// Who executes it: a worker, or its caller by renewing its lease; else a worker
    #[arg(long, value_enum, value_name = "WHO")]
    executor: Option<ExecutorArg>,
    /// Launch so many jobs alike
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Wait until the job has been started, or until it has ended
    #[arg(long, value_enum, value_name = "UNTIL", conflicts_with = "count")]
    wait: Option<WaitArg>,
    /// Only say what would happen now: start, wait and for what, or be aborted. Nothing is done
    #[arg(long, conflicts_with_all = ["count", "wait"])]
    dry_run: bool,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WaitArg {
    Start,
    End,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExecutorArg {
    Server,
    Caller,
}

/// Reads a priority.
pub(crate) fn priority(text: &str) -> Result<Priority, String> {
    text.parse()
        .ok()
        .and_then(Priority::new)
        .ok_or_else(|| "a whole number from -100 to 100 is allowed".to_owned())
}

pub(super) async fn run(
    client: &Client,
    args: &SubmitArgs,
    screen: Screen,
) -> Result<(), CommandError> {
    let launch = launch(args)?;
    match args.count {
        None if args.dry_run => dry_run(client, launch, args, screen).await,
        Some(count) => launch_many(client, &launch, count, screen).await,
        None => launch_one(client, launch, args, screen).await,
    }
}

async fn launch_one(
    client: &Client,
    mut launch: LaunchRequest,
    args: &SubmitArgs,
    screen: Screen,
) -> Result<(), CommandError> {
    let id = args.id.clone().unwrap_or_else(new_id);
    launch.id = Some(id.clone());
    let launched = client.launch(launch).await;
    let job = launched.map_err(|error| match error {
        unknown @ ClientError::Unknown { .. } => CommandError::LaunchUnknown {
            id,
            source: Box::new(unknown),
        },
        other => other.into(),
    })?;
    let show = |job: &JobView| screen.show(job, |screen| view::line(job, screen));
    let Some(until) = args.wait else {
        return show(&job);
    };
    let until = match until {
        WaitArg::Start => Wait::Start,
        WaitArg::End => Wait::End,
    };
    // A script gets one answer; a person sees that there is something to wait for.
    if screen.format == Format::Text && !has_come(&job, until) {
        show(&job)?;
    }
    let job = wait(client, job, until, args.patience).await?;
    show(&job)?;
    succeeded(job)
}

async fn dry_run(
    client: &Client,
    mut launch: LaunchRequest,
    args: &SubmitArgs,
    screen: Screen,
) -> Result<(), CommandError> {
    launch.id = args.id.clone();
    let why = client.dry_run(launch).await?;
    screen.show(&why, |screen| why::described(&why, screen))?;
    match why.reason {
        Some(reason) => Err(CommandError::WouldBeAborted { reason }),
        None => Ok(()),
    }
}

async fn launch_many(
    client: &Client,
    launch: &LaunchRequest,
    count: u32,
    screen: Screen,
) -> Result<(), CommandError> {
    let mut refused = 0;
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    let all = left;
    while left > 0 {
        let batch = left.min(BATCH_JOBS_MAX);
        left -= batch;
        let alike = std::iter::repeat_with(|| LaunchRequest {
            id: Some(new_id()),
            ..launch.clone()
        });
        let answer = client.launch_batch(alike.take(batch).collect()).await?;
        for result in answer.results {
            refused += usize::from(result.problem.is_some());
            screen.show_next(&result, |screen| match (&result.job, &result.problem) {
                (_, Some(problem)) => refusal(problem, screen),
                (Some(job), None) => view::line(job, screen),
                (None, None) => String::new(),
            })?;
        }
    }
    if refused > 0 {
        return Err(CommandError::SomeRefused { refused, all });
    }
    Ok(())
}

fn refusal(problem: &Problem, screen: Screen) -> String {
    let text = printable(&problem.to_string()).into_owned();
    let id = problem.job.as_ref().map_or("-", |job| &job.id);
    format!("{id}  {}  {text}\n", screen.paint(Tone::Bad, "refused"))
}

fn launch(args: &SubmitArgs) -> Result<LaunchRequest, CommandError> {
    Ok(LaunchRequest {
        event: args.event.clone(),
        priority: args.priority,
        params: args.params.as_deref().map(params).transpose()?,
        targets: args.targets.clone(),
        delay_s: args.delay_s,
        executor: args.executor.map(|executor| match executor {
            ExecutorArg::Server => Executor::Server,
            ExecutorArg::Caller => Executor::Caller,
        }),
        ..limits(args.limits.as_deref())?
    })
}

fn params(given: &str) -> Result<Params, CommandError> {
    let json = match given.strip_prefix('@') {
        Some(file) => read_text(Path::new(file))?,
        None if given == "-" => read_text(Path::new("-"))?,
        None => given.to_owned(),
    };
    Params::from_json(&json).map_err(|error| CommandError::NotUnderstood {
        place: "--params".to_owned(),
        problem: Box::new(Problem::new(ErrorCode::InvalidJson, error.to_string())),
    })
}

/// A launch with these limits only: so they are read as they are in a request, and a fault is told
/// with its path.
fn limits(given: Option<&str>) -> Result<LaunchRequest, CommandError> {
    let Some(limits) = given else {
        return Ok(LaunchRequest::default());
    };
    let body = format!("{{\"limits\": {limits}}}");
    decode(body.as_bytes()).map_err(|problem| CommandError::NotUnderstood {
        place: "--limits".to_owned(),
        problem: Box::new(problem),
    })
}

/// In the order of time, which reads well in lists.
fn new_id() -> String {
    Uuid::now_v7().to_string()
}
