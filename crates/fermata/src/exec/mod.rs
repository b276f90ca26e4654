//! `fermata exec`: a limit by a prefix. It takes a permit, runs a command under it, and gives it
//! back.
//!
//! The permit is the client's [`fermata_client::permit`]; here stands what is asked for, and what
//! becomes of a command whose permit is lost: it is stopped before the slot may be given to
//! another. That must hold whatever happens to this process, so three things see to it: this
//! process, in order ([`command`]); its warden ([`crate::group::warden`]), which kills the command
//! when this process does not, because it was stopped or killed; and the kernel, which kills the
//! command with this process.

mod command;
mod limits;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use fermata_api::bounds::PARAMS_BYTES_MAX;
use fermata_api::jobs::{JobState, JobView, Priority};
use fermata_api::params::Params;
use fermata_client::{Client, LaunchRequest, Permit, PermitError, PermitOptions};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::error::CommandError;
use crate::group::{CODE_NOT_RUN, GraceArgs};
use crate::job::priority;
use crate::logging::LogArgs;
use crate::moment::duration_s;
use crate::remote::{RemoteArgs, block_on};

use command::{Ended, Running, Signals};
use limits::LimitArgs;

/// How long the end of a permit that was lost is tried to be told.
const LOST_END_MAX: Duration = Duration::from_secs(1);
/// How long the end of a permit is tried to be told after a signal.
const INTERRUPTED_END_MAX: Duration = Duration::from_secs(3);
/// Most bytes of the command's name that the job shows.
const PROGRAM_BYTES_MAX: usize = 256;
const _: () = assert!(PROGRAM_BYTES_MAX < PARAMS_BYTES_MAX);

const HELP: &str = "\
Everything that names the key, on whatever machine, shares one pool: the commands of other `fermata
exec`, and the jobs of events whose job limit has it as `cap_key`. With other numbers for one key,
each is judged by its own when it is its turn; a warning in the job's log says so.

The command gets standard input, output and error as they are; FERMATA_PERMIT has the permit's job,
which `fermata job list` and `job show` know, and FERMATA_PERMIT_INDEX a number (LOG.ORDINAL) that
only grows from one start to the next. It runs in a process group of its own, which gets SIGTERM,
SIGINT and SIGHUP passed on; a second one kills it. When it has ended, what it left in its group is
killed. Where standard input is a terminal, it stays in the terminal's group instead: Ctrl-C and
Ctrl-Z reach it as ever, SIGTERM and SIGHUP are passed on to it alone.

What goes wrong is told on standard error, and nothing else is unless --log says more (--log info).

What happens when
  there is no room       it waits in the pool's queue, for as long as --wait says; with --skip it
                         does not. Interrupted while it waits, it leaves the queue
  no node is reached     before the command runs: as --if-unreachable says. With `wait`, it goes on
                         trying within --wait, with the same place in the queue where the cluster
                         kept it. No permit, no command; but with `run`, the limit is not kept.
                         While it waits in the queue, this is noticed up to 10 s later
  the lease is not       renewed in time, because no node with a majority is reached: the command
                         gets SIGTERM --grace-s before the lease ends, at the earliest after two
                         thirds of it, SIGKILL a second before its end, and then the slot is free
  the permit is lost     because the lease is over: the command is killed at once
  the job is cancelled   `fermata job cancel`: SIGTERM, and SIGKILL after --grace-s
  this is killed (-9)    the command is killed with it; the slot is free when the lease is over
  this is stopped        (SIGSTOP) beyond its lease: the command is killed before the lease ends.
                         Stopped together with the command, it is killed when it goes on
  the end cannot be told the exit code is the command's; the slot is free when the lease is over. A
                         signal leaves it 3 s to be told

Exit codes:
  the command's own; 128+N when it was ended by signal N
  69   no node was reached (--if-unreachable); it did not run
  75   not permitted: no room (--skip), not in time (--wait), the queue is full, or the job was
       cancelled; it did not run
  76   the permit was lost, and the command was stopped
  125  failed otherwise, as when the cluster refuses the limits; it did not run
  126  the command cannot be executed
  127  the command was not found
  2    wrong usage

Examples:
  fermata exec --key salesforce --max 5 --rate 100/60 -- ./sync.sh
  fermata exec --key nightly --max 1 --skip -- ./report.sh              at most one, else not at all
  fermata exec --key api --rate 10/1s --style sliding --wait 10m -- ./call.sh
  */5 * * * *  fermata exec --url http://n1:7400,http://n2:7400 --key crm --max 2 --wait 4m -- sync";

/// What is allowed, how long it is waited for, and what runs then.
#[derive(Debug, clap::Args)]
#[command(
    after_help = HELP,
    group(clap::ArgGroup::new("limit").args(["max", "rate"]).required(true).multiple(true)),
)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    limits: LimitArgs,
    /// Wait at most so long for the permit, as in 90s, 10m or 2h; else as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = duration_s)]
    wait: Option<u64>,
    /// Do not wait: run now, or exit with 75
    #[arg(long, conflicts_with = "wait")]
    skip: bool,
    /// What to do when no node does what is asked within --deadline-s: try on within --wait, refuse
    /// to run (69), or run without a permit. --skip does not try on
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    if_unreachable: IfUnreachable,
    /// From -100 to 100, higher first in the queue
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = priority)]
    priority: Option<Priority>,
    /// How long the permit lasts without being renewed, in seconds; it is renewed three times in it
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(3..=86_400)
    )]
    lease_s: u64,
    #[command(flatten)]
    grace: GraceArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    log: LogArgs,
    /// What runs
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum IfUnreachable {
    #[default]
    Wait,
    Refuse,
    Run,
}

pub(crate) fn run(args: &ExecArgs) -> Result<ExitCode, CommandError> {
    args.log.start_quietly()?;
    let ran = args
        .remote
        .client()
        .and_then(|client| block_on(args.run(client)));
    match ran {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(error) => Err(error.of_prefix()),
    }
}

impl ExecArgs {
    async fn run(&self, client: Client) -> Result<u8, CommandError> {
        let mut signals = Signals::new()?;
        let mut interrupt = None;
        let given_up = async { interrupt = Some(signals.next().await) };
        let permit = client
            .permit_until(self.launch()?, self.permit_options(&client), given_up)
            .await;
        match (permit, interrupt) {
            (Ok(permit), None) => self.execute(Some(permit), signals).await,
            (Ok(permit), Some(signal)) => {
                // Granted in the moment in which it was given up.
                tell(permit.complete(ended_by(signal).into()).await);
                Ok(ended_by(signal))
            }
            (Err(PermitError::GivenUp), Some(signal)) => Ok(ended_by(signal)),
            (Err(error @ PermitError::Unreachable { .. }), _)
                if self.if_unreachable == IfUnreachable::Run =>
            {
                warn!(%error, "running without a permit");
                self.execute(None, signals).await
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    async fn execute(
        &self,
        mut permit: Option<Permit>,
        mut signals: Signals,
    ) -> Result<u8, CommandError> {
        let ended = self.attended(permit.as_mut(), &mut signals).await;
        let Some(permit) = permit else {
            return Ok(ended?.code);
        };
        let Ended { code, was_lost } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tell(permit.complete(CODE_NOT_RUN.into()).await);
                return Err(error);
            }
        };
        if was_lost {
            // The slot may be somebody else's, and the cluster out of reach.
            let _ = timeout(LOST_END_MAX, permit.complete(code.into())).await;
            return Err(CommandError::PermitLost);
        }
        let interrupted = async {
            signals.next().await;
            // It may be what ended the command: the keyboard's reaches both.
            sleep(INTERRUPTED_END_MAX).await;
        };
        tokio::select! {
            ended = permit.complete(code.into()) => tell(ended),
            () = interrupted => warn!("interrupted before the end was told"),
        }
        Ok(code)
    }

    async fn attended(
        &self,
        permit: Option<&mut Permit>,
        signals: &mut Signals,
    ) -> Result<Ended, CommandError> {
        if permit.as_deref().is_some_and(|permit| !permit.is_held()) {
            // This process was stopped between the permit and its use.
            return Ok(Ended {
                code: CODE_NOT_RUN,
                was_lost: true,
            });
        }
        let margin = command::kill_margin(Duration::from_secs(self.lease_s));
        let permitted = permit.as_deref();
        let running = Running::start(&self.command, permitted, self.grace.time(), margin)?;
        running.attend(permit, signals).await
    }

    fn launch(&self) -> Result<LaunchRequest, CommandError> {
        Ok(LaunchRequest {
            limits: self.limits.limits(self.skip),
            priority: self.priority,
            params: Some(self.holder()?),
            ..LaunchRequest::default()
        })
    }

    /// Who holds the slot, for those who look at the job. Not the arguments: they may be secret.
    fn holder(&self) -> Result<Params, CommandError> {
        let program = self
            .command
            .first()
            .map(|program| program.to_string_lossy());
        let program: String = program
            .unwrap_or_default()
            .chars()
            .take(PROGRAM_BYTES_MAX / char::MAX.len_utf8())
            .collect();
        let system = rustix::system::uname();
        let holder = json!({
            "host": system.nodename().to_string_lossy(),
            "pid": std::process::id(),
            "program": program,
        });
        Params::from_json(&holder.to_string()).map_err(|error| CommandError::System {
            doing: "describe the command",
            source: std::io::Error::other(error.to_string()),
        })
    }

    fn permit_options(&self, client: &Client) -> PermitOptions {
        PermitOptions {
            wait: match self.skip {
                true => Some(client.options().deadline),
                false => self.wait.map(Duration::from_secs),
            },
            gives_up_unreachable: self.skip || self.if_unreachable != IfUnreachable::Wait,
            lease: Duration::from_secs(self.lease_s),
            stop_margin: self.grace.time() + command::KILL_MARGIN,
        }
    }
}

/// The exit code of whoever a signal ended, as of a shell.
fn ended_by(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

/// The permit's end was told; whatever was answered, the command has run.
fn tell(ended: Result<JobView, fermata_client::ClientError>) {
    match ended {
        Ok(job) if job.state == JobState::Aborted => {
            info!(job = job.id, reason = ?job.reason, "the job was ended otherwise");
        }
        Ok(_) => {}
        Err(error) => {
            warn!(%error, "the end was not told; the slot is free when the lease is over");
        }
    }
}
