//! The command line: which commands there are, and what their result means for the process.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::demo;
use crate::error::{CommandError, EXIT_CODES};
use crate::screen::{Format, Screen};

/// Decides when a job may start: a cluster of conductors with limits, queues and rate windows
#[derive(Debug, Parser)]
#[command(name = "fermata", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    /// How answers are written
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        env = "FERMATA_OUTPUT"
    )]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show it all on this machine in two minutes: three nodes, a killed leader, an audit
    Demo(demo::DemoArgs),
}

/// Reads the command line and does what it says.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help that nobody reads to its end is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let format = cli.output;
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.exit_code();
            if code != 0 {
                let shown = error.shown(Screen::errors(format));
                let _ = std::io::stderr().write_all(shown.as_bytes());
            }
            ExitCode::from(code)
        }
    }
}

fn run(cli: Cli) -> Result<(), CommandError> {
    match cli.command {
        Command::Demo(args) => demo::run(args),
    }
}
