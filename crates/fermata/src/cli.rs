//! The command line: which commands there are, and what their result means for the process.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum as _};

use crate::error::{CommandError, EXIT_CODES};
use crate::screen::{Format, Screen};
use crate::{
    audit, cluster, completions, demo, dev, event, exec, hidden, inspect, job, overrides, pool,
    serve, server, worker,
};

/// What names the format where the command line does not.
const FORMAT_VARIABLE: &str = "FERMATA_OUTPUT";

/// Decides when a job may start: a cluster of conductors with limits, queues and rate windows
#[derive(Debug, Parser)]
#[command(name = "fermata", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// How answers are written: json is one value, or one a line where they come one by one
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        env = FORMAT_VARIABLE,
        display_order = 900
    )]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show it all on this machine in two minutes: three nodes, a killed leader, an audit
    Demo(demo::DemoArgs),
    /// A conductor and a worker on this machine, to try things with
    Dev(dev::DevArgs),
    /// One node of a cluster
    Serve(serve::ServeArgs),
    /// Execute jobs: one process each
    Worker(worker::WorkerArgs),
    /// Run a command under a limit: at most so many at once, and so many starts per window
    Exec(exec::ExecArgs),
    /// Events: the definitions from which jobs are launched
    Event(event::EventArgs),
    /// Jobs: launch, list, watch and cancel them
    Job(job::JobArgs),
    /// Pools: what runs and waits together, and its rate window
    Pool(pool::PoolArgs),
    /// Overrides: limits set from above, in an incident
    Override(overrides::OverrideArgs),
    /// Servers: where jobs are executed
    Server(server::ServerArgs),
    /// The nodes of the cluster, and changes of them
    Cluster(cluster::ClusterArgs),
    /// Who changed what, and when
    Audit(audit::AuditArgs),
    /// What lies in the folder of a node that does not run, and whether it is whole
    Inspect(inspect::InspectArgs),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    abort_on_panic();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(done) = hidden::run(&words) {
        return ended(done, format_of_environment);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help that nobody reads to its end is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let format = cli.output;
    ended(run(cli.command, format), || format)
}

/// What the result of a command means for the process; an error is shown in that format.
fn ended(done: Result<ExitCode, CommandError>, format: impl FnOnce() -> Format) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            let code = error.exit_code();
            if code != 0 {
                let shown = error.shown(Screen::errors(format()));
                let _ = std::io::stderr().write_all(shown.as_bytes());
            }
            ExitCode::from(code)
        }
    }
}

/// The format of what has no command line for people.
fn format_of_environment() -> Format {
    let named = std::env::var(FORMAT_VARIABLE).ok();
    named
        .and_then(|name| Format::from_str(&name, false).ok())
        .unwrap_or_default()
}

fn run(command: Command, format: Format) -> Result<ExitCode, CommandError> {
    let screen = Screen::output(format);
    let done = match command {
        Command::Exec(args) => return exec::run(&args),
        Command::Demo(args) => demo::run(&args, screen),
        Command::Dev(args) => dev::run(args, screen),
        Command::Serve(args) => serve::run(args, screen),
        Command::Worker(args) => worker::run(args),
        Command::Event(args) => event::run(&args, screen),
        Command::Job(args) => job::run(&args, screen),
        Command::Pool(args) => pool::run(&args, screen),
        Command::Override(args) => overrides::run(&args, screen),
        Command::Server(args) => server::run(&args, screen),
        Command::Cluster(args) => cluster::run(&args, screen),
        Command::Audit(args) => audit::run(&args, screen),
        Command::Inspect(args) => inspect::run(&args, screen),
        Command::Completions(args) => completions::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// A panicked Raft core goes on looking like a leader, and a worker's executor must not vanish
/// without its process: after the message, the process goes. Release builds abort anyway; this
/// makes the others alike.
fn abort_on_panic() {
    let message = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        message(panic);
        std::process::abort();
    }));
}
