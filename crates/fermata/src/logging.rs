//! What a process that stays tells about itself, on standard error.

use std::io::{IsTerminal, stderr};

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::error::CommandError;

/// What is logged where nothing else is said: of Raft and its log, what is wrong; how they get
/// about their work is theirs. Spans of rates (S44) are for whoever asks for them.
const FILTER_DEFAULT: &str =
    "info,fermata::rate_limit=off,openraft=error,chunked_wal=error,raft_log=warn";

/// What is logged where nothing else is said by what stands before another's command: only what
/// goes wrong.
const FILTER_QUIET: &str = "warn";

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    // Comments, not help: one line of help says it, and long help takes a screen for it.
    #[default]
    Text,
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogArgs {
    /// What is logged: a level, or levels by module, as in `info,fermata_replica=debug`. Else
    /// RUST_LOG says it, else it is `info`, with Raft's inner workings left out
    #[arg(long, help_heading = "Log", env = "FERMATA_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// How the log is written: for people, or one JSON object a line
    #[arg(
        long,
        help_heading = "Log",
        env = "FERMATA_LOG_FORMAT",
        value_enum,
        value_name = "FORMAT"
    )]
    pub(crate) log_format: Option<LogFormat>,
}

impl LogArgs {
    /// The filter that is in force.
    pub(crate) fn filter(&self) -> String {
        self.filter_or(FILTER_DEFAULT)
    }

    fn filter_or(&self, default: &str) -> String {
        let from_environment = || std::env::var("RUST_LOG").ok().filter(|log| !log.is_empty());
        self.log
            .clone()
            .or_else(from_environment)
            .unwrap_or_else(|| default.to_owned())
    }

    /// Logs from now on. To be called once.
    pub(crate) fn start(&self) -> Result<(), CommandError> {
        start(self.filter(), self.log_format)
    }

    /// As [`LogArgs::start`]; where nothing is said, only what goes wrong is logged.
    pub(crate) fn start_quietly(&self) -> Result<(), CommandError> {
        start(self.filter_or(FILTER_QUIET), self.log_format)
    }
}

fn start(filter: String, format: Option<LogFormat>) -> Result<(), CommandError> {
    let parsed = EnvFilter::try_new(&filter).map_err(|error| CommandError::Setting {
        name: "--log",
        given: filter,
        allowed: format!("a filter like info,fermata_replica=debug is allowed: {error}"),
    })?;
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(stderr().is_terminal() && !is_plain)
        .with_writer(stderr);
    match format.unwrap_or_default() {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}
