//! `fermata worker`: executes the jobs of a server, one process each.
//!
//! The loop around it (polls, confirmations, the lease) is the client's
//! [`fermata_client::worker`]; here stands what an execution is. It runs on one thread: the kernel
//! kills a command when the *thread* that started it ends, so that thread must last.

mod execution;
mod journal;
mod prepared;

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fermata_api::servers::ServerBody;
use fermata_client::Client;
use fermata_client::worker::{Departure, Order, WorkerOptions};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::error::CommandError;
use crate::group::{GraceArgs, Warden};
use crate::logging::LogArgs;
use crate::remote::{RemoteArgs, block_on};
use crate::signals::Signals;

pub(crate) use execution::Execution;
use journal::Journal;
pub(crate) use prepared::Processes;

/// Which server, and how its jobs are executed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command is executed once per job, in a process group of its own, without a shell. It gets
  on standard input   the job's parameters, as JSON
  in its environment  FERMATA_JOB, FERMATA_ATTEMPT, FERMATA_EVENT, FERMATA_POOL,
                      FERMATA_PRIORITY, FERMATA_PARAMS, FERMATA_SERVER, FERMATA_START_AT,
                      FERMATA_START_AT_US, FERMATA_START_INDEX

Its exit code becomes the job's; ended by signal N, 128+N; not found, 127; not executable, 126;
125 where the worker itself could not. The last 4 KiB that it wrote, standard output and error
together, become the job's description. When it has ended, what is left of its group is killed. The
process of the next job is made ahead: one named become-command waits beside those that run.

A job that is cancelled or runs for too long gets SIGTERM, then SIGKILL, as a whole process group.
What the cluster may give to another worker is killed at once: so is everything shortly before the
lease ends, where no node of a majority can be reached.

SIGTERM or SIGINT, and `fermata server drain`, drain the worker: it takes nothing new, finishes what
runs, and leaves; what it was offered and did not confirm starts elsewhere. After the drain timeout
what still runs gets SIGTERM, then SIGKILL, and its end is reported. A second signal kills what runs
at once, reports it, and leaves; a third ends the worker where it is. SIGKILL takes the commands
along; their jobs end as server_lost when the lease is over, or when the worker is started again.

Exit codes: 0 drained; 1 jobs were stopped, or ends not reported; 4 superseded by a newer worker of
the same server, or refused by the cluster: what ran was killed.

Examples:
  fermata worker --server w1 -- ./handle-job
  fermata worker --server w2 --group main --group eu --max-jobs 4 -- python3 handle.py
  fermata worker --server w3 -- sh -c 'echo \"$FERMATA_JOB: $FERMATA_PARAMS\"'")]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The server that this worker is; one worker at a time
    #[arg(long, env = "FERMATA_SERVER", value_name = "ID")]
    server: String,
    /// A group that events may name as their target. May be repeated
    #[arg(
        long = "group",
        env = "FERMATA_GROUPS",
        value_delimiter = ',',
        value_name = "GROUP"
    )]
    groups: Vec<String>,
    /// Most jobs at once, in units of weight; else as many as this machine has processors
    #[arg(
        long,
        env = "FERMATA_MAX_JOBS",
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u64).range(1..=100_000)
    )]
    max_jobs: Option<u64>,
    #[command(flatten)]
    grace: GraceArgs,
    /// How long a drain may take, in seconds, before what still runs is stopped; 0 = as long as it
    /// takes
    #[arg(
        long,
        env = "FERMATA_DRAIN_TIMEOUT_S",
        value_name = "SECONDS",
        default_value_t = 3_600,
        value_parser = clap::value_parser!(u64).range(0..=31_622_400)
    )]
    drain_timeout_s: u64,
    /// Add a durable record of each begin and end to this file, for an audit
    #[arg(long, env = "FERMATA_JOURNAL", value_name = "FILE")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    /// What is executed for each job
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The server as the cluster is to know it.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Its groups.
    pub(crate) groups: Vec<String>,
    /// Its capacity; absent = as many as this machine has processors.
    pub(crate) max_jobs: Option<u64>,
}

pub(crate) fn run(args: WorkerArgs) -> Result<(), CommandError> {
    args.log.start()?;
    let client = args.remote.client()?;
    let journal = args.journal.as_deref().map(Journal::open).transpose()?;
    let registration = Registration {
        groups: args.groups,
        max_jobs: args.max_jobs,
    };
    let execution = Execution {
        server: args.server,
        processes: Processes::new(args.command, Warden::start()?),
        grace: args.grace.time(),
        journal,
    };
    let drain_timeout =
        (args.drain_timeout_s > 0).then(|| Duration::from_secs(args.drain_timeout_s));
    block_on(async {
        let mut signals = Signals::new()?;
        let (order, orders) = watch::channel(Order::Work);
        let worker = Worker {
            client,
            registration,
            execution,
            drain_timeout,
        };
        let mut working = std::pin::pin!(work(worker, orders));
        loop {
            tokio::select! {
                worked = &mut working => return worked,
                signal = signals.next() => {
                    let before = *order.borrow();
                    let next = match before {
                        Order::Work => Order::Drain,
                        Order::Drain | Order::Stop => Order::Kill,
                        Order::Kill => return Err(CommandError::Interrupted),
                    };
                    order.send_replace(next);
                    if next == Order::Drain {
                        info!(signal, "draining; another signal kills what runs");
                    } else {
                        warn!(signal, "killing what runs; another signal ends the worker at once");
                    }
                }
            }
        }
    })
}

/// A worker about to begin.
#[derive(Debug)]
pub(crate) struct Worker {
    /// How it reaches the cluster.
    pub(crate) client: Client,
    /// What the cluster is to know of it.
    pub(crate) registration: Registration,
    /// What it does with attempts.
    pub(crate) execution: Execution,
    /// How long a drain lasts at most; none: until everything has ended.
    pub(crate) drain_timeout: Option<Duration>,
}

/// Registers the server and executes its jobs until it is ordered to end, or the cluster asks it to.
/// Dropped, it kills what runs.
pub(crate) async fn work(
    worker: Worker,
    mut orders: watch::Receiver<Order>,
) -> Result<(), CommandError> {
    let Worker {
        client,
        registration,
        execution,
        drain_timeout,
    } = worker;
    let server = execution.server.clone();
    tokio::select! {
        registered = register(&client, &server, registration) => registered?,
        _ = orders.wait_for(|order| *order > Order::Work) => return Ok(()),
    }
    let options = WorkerOptions {
        drain_timeout,
        ..WorkerOptions::new(server)
    };
    let incarnation = options.incarnation;
    info!(server = options.server, incarnation, "working");
    execution.processes.prepare();
    let execution = Arc::new(execution);
    let execute = move |run| {
        let execution = Arc::clone(&execution);
        async move { execution.execute(run).await }
    };
    let departure = client.worker_by_orders(options, execute, orders).await?;
    match departure {
        Departure {
            stopped: 0,
            unreported: 0,
        } => Ok(()),
        Departure {
            stopped,
            unreported,
        } => Err(CommandError::CutShort {
            stopped,
            unreported,
        }),
    }
}

/// Makes the server known, for as long as no node can be reached. One that was disabled stays so.
async fn register(
    client: &Client,
    server: &str,
    registration: Registration,
) -> Result<(), CommandError> {
    let of_machine = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let of_machine = || u64::try_from(of_machine()).unwrap_or(1);
    let body = ServerBody {
        groups: registration.groups,
        max_jobs: Some(registration.max_jobs.unwrap_or_else(of_machine)),
        enabled: true,
    };
    let view = client.register_server(server, &body).await?;
    if !view.enabled {
        warn!(server, "the server is disabled: it is given no jobs");
    }
    Ok(())
}
