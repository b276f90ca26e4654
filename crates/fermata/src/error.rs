//! How a command fails: what is said on standard error, and the exit code that scripts go by.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use fermata_api::jobs::{AbortReason, JobState, JobView};
use fermata_api::problem::{Problem, RetryWith};
use fermata_api::servers::ServerView;
use fermata_client::worker::WorkerError;
use fermata_client::{ClientError, PermitError};
use fermata_server::ServeError;
use fermata_server::member::ReplicaError;
use serde_json::json;
use tokio::task::JoinError;

use crate::screen::{Format, Screen, Tone, printable, word};

/// The exit codes, as `--help` shows them. They are stable.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed: the job that was waited for, this node, or something on this machine
  2  wrong usage: an argument, a setting, a file, a port or a data folder
  3  not there: the cluster knows no such job, event, server, pool or node
  4  refused by the cluster: a limit, a conflict or a rule; nothing was done
  5  unavailable: no node could do it; nothing was done
  6  unknown: it may have been done; the same with the same id can be repeated
  7  not yet: `--timeout` ended before the job, or the server's drain, had come so far
`fermata exec` has codes of its own, beside those of its command: see its help";

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// An argument or setting that cannot be.
    #[error("{name}: {given:?} was given; {allowed}")]
    Setting {
        /// Its name, as it is written on the command line.
        name: &'static str,
        /// What was given.
        given: String,
        /// What is allowed.
        allowed: String,
    },
    /// A setting that is missing.
    #[error("{name} is missing: {needed}")]
    Missing {
        /// Its name, as it is written on the command line.
        name: &'static str,
        /// For what it is needed.
        needed: &'static str,
    },
    /// A file that was named and cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is not TOML, or holds what no setting allows.
    #[error("{} is not understood", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A file or argument that does not hold what it should.
    #[error("{place} is not understood")]
    NotUnderstood {
        /// The file or argument, and where in it.
        place: String,
        /// What is wrong.
        problem: Box<Problem>,
    },
    /// A file that cannot be written.
    #[error("cannot write {}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system does not give what a process needs.
    #[error("cannot {doing}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Standard output cannot be written. A closed pipe is no failure.
    #[error("cannot write the answer")]
    Answer(#[source] io::Error),
    /// The cluster said no, or did not answer.
    #[error(transparent)]
    Client(Box<ClientError>),
    /// It is not known whether a job was launched.
    #[error("whether job {id} was launched is unknown; repeat it with --id {id}")]
    LaunchUnknown {
        /// The id that it has, or will have.
        id: String,
        /// What was met.
        source: Box<ClientError>,
    },
    /// An address that cannot be listened on.
    #[error("cannot listen for clients on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The member of the cluster cannot be opened, or has failed.
    #[error(transparent)]
    Member(Box<ReplicaError>),
    /// A folder without a member, and nothing said about where its cluster comes from.
    #[error("{} holds no member: --bootstrap founds a new cluster, --join joins one", folder.display())]
    NothingThere {
        /// The folder.
        folder: PathBuf,
    },
    /// The edge has failed.
    #[error(transparent)]
    Edge(#[from] ServeError),
    /// The worker gave up.
    #[error(transparent)]
    Worker(Box<WorkerError>),
    /// The wait ended before the server was drained.
    #[error(
        "server {} has {} jobs and its worker is {} after {timeout_s} s",
        server.id,
        server.starting + server.active,
        if server.online { "there" } else { "gone" }
    )]
    NotDrained {
        /// The server.
        server: Box<ServerView>,
        /// How long it was waited for.
        timeout_s: u64,
    },
    /// The worker left before everything had ended and was reported.
    #[error(
        "the worker left early: {stopped} jobs were stopped, {unreported} ends were not reported"
    )]
    CutShort {
        /// Jobs that were stopped for it.
        stopped: usize,
        /// Ends that no node took.
        unreported: usize,
    },
    /// The job that was waited for did not end with code 0.
    #[error("job {} {}", job.id, end_of(job))]
    JobFailed {
        /// The job.
        job: Box<JobView>,
    },
    /// The wait ended before the job had come so far.
    #[error("job {id} is {} after {timeout_s} s", word(state))]
    NotYet {
        /// The job.
        id: String,
        /// How far it came.
        state: JobState,
        /// How long it was waited for.
        timeout_s: u64,
    },
    /// A worker's command that cannot be executed.
    #[error("cannot execute {program:?}")]
    NotExecuted {
        /// The command.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// There is no permit.
    #[error(transparent)]
    Permit(Box<PermitError>),
    /// The permit of a running command was lost.
    #[error("the permit was lost; the command was stopped")]
    PermitLost,
    /// What stands before a command failed, so that the command did not run.
    #[error(transparent)]
    BeforeCommand(Box<CommandError>),
    /// Some of many were refused; each refusal was shown.
    #[error("{refused} of {all} were refused")]
    SomeRefused {
        /// How many.
        refused: usize,
        /// Of how many.
        all: usize,
    },
    /// A dry run found that the job would not be taken.
    #[error("the job would be aborted: {}", word(reason))]
    WouldBeAborted {
        /// Why.
        reason: AbortReason,
    },
    /// A second signal came while the process was stopping.
    #[error("stopped at once by a second signal")]
    Interrupted,
    /// The demo did not show what it should.
    #[error(transparent)]
    Demo(Box<dyn Error + Send + Sync>),
}

impl CommandError {
    /// One of [`EXIT_CODES`].
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Answer(source) if source.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Setting { .. }
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::NotToml { .. }
            | Self::Listen { .. }
            | Self::NothingThere { .. }
            | Self::NotUnderstood { .. } => 2,
            Self::Member(error) => member_exit_code(error),
            Self::Client(error) | Self::LaunchUnknown { source: error, .. } => {
                client_exit_code(error)
            }
            Self::Worker(error) => worker_exit_code(error),
            // As of a shell.
            Self::NotExecuted { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::NotExecuted { .. } => 126,
            Self::SomeRefused { .. } | Self::WouldBeAborted { .. } => 4,
            Self::Permit(error) => permit_exit_code(error),
            Self::PermitLost => 76,
            Self::BeforeCommand(_) => 125,
            Self::NotYet { .. } | Self::NotDrained { .. } => 7,
            Self::Edge(_)
            | Self::Unwritable { .. }
            | Self::System { .. }
            | Self::Answer(_)
            | Self::JobFailed { .. }
            | Self::CutShort { .. }
            | Self::Interrupted
            | Self::Demo(_) => 1,
        }
    }

    /// As it is told by what stands before another's command: its codes keep out of the way of the
    /// command's own.
    pub(crate) fn of_prefix(self) -> Self {
        let is_told_apart = match &self {
            Self::Permit(error) => !matches!(
                **error,
                PermitError::Refused(_) | PermitError::Client(_) | PermitError::ShutDown
            ),
            Self::PermitLost => true,
            other => other.exit_code() == 2,
        };
        if is_told_apart {
            self
        } else {
            Self::BeforeCommand(Box::new(self))
        }
    }

    /// The member cannot be opened.
    pub(crate) fn member(error: ReplicaError) -> Self {
        match error {
            ReplicaError::NothingThere { folder } => Self::NothingThere { folder },
            other => Self::Member(Box::new(other)),
        }
    }

    /// The edge ended although nobody asked it to.
    pub(crate) fn edge(served: Result<Result<(), ServeError>, JoinError>) -> Self {
        match served {
            Ok(Ok(())) => Self::System {
                doing: "serve clients",
                source: io::ErrorKind::ConnectionAborted.into(),
            },
            Ok(Err(error)) => error.into(),
            Err(error) => Self::System {
                doing: "serve clients",
                source: error.into(),
            },
        }
    }

    /// What is shown on standard error.
    pub(crate) fn shown(&self, screen: Screen) -> String {
        match screen.format {
            Format::Json => self.as_json(),
            Format::Text => match self.problem() {
                Some(problem) => self.with_problem(problem, screen),
                None => format!("{}: {}\n", screen.paint(Tone::Bad, "error"), causes(self)),
            },
        }
    }

    fn problem(&self) -> Option<&Problem> {
        match self {
            Self::NotUnderstood { problem, .. } => Some(problem),
            Self::Client(error) => match &**error {
                ClientError::Refused(problem) => Some(problem),
                _ => None,
            },
            Self::Worker(error) => match &**error {
                WorkerError::Refused(problem) | WorkerError::Superseded(problem) => Some(problem),
                WorkerError::Invalid(_) => None,
            },
            Self::Permit(error) => match &**error {
                PermitError::Refused(problem) => Some(problem),
                _ => None,
            },
            Self::BeforeCommand(error) => error.problem(),
            _ => None,
        }
    }

    fn as_json(&self) -> String {
        let error = json!({
            "error": {
                "message": causes(self),
                "exit_code": self.exit_code(),
                "problem": self.problem(),
            }
        });
        format!("{error}\n")
    }

    fn with_problem(&self, problem: &Problem, screen: Screen) -> String {
        let title = match self {
            Self::NotUnderstood { .. } => self.to_string(),
            _ => problem.code.title().to_owned(),
        };
        let mut text = format!(
            "{}: {}\n",
            screen.paint(Tone::Bad, "error"),
            printable(&title)
        );
        let mut line = |name: &str, value: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name:<7} {}", printable(value));
        };
        if problem.detail != title {
            line("what", &problem.detail);
        }
        if let Some(field) = &problem.field {
            line("field", field);
        }
        line("code", problem.code.as_str());
        if let Some(job) = &problem.job {
            line("job", &format!("{} {}", job.id, end_of(job)));
        }
        if let Some(retry) = retry_advice(problem) {
            line("retry", &retry);
        }
        text
    }
}

fn client_exit_code(error: &ClientError) -> u8 {
    match error {
        ClientError::InvalidUrl { .. } => 2,
        ClientError::Refused(problem) => refusal_exit_code(problem),
        ClientError::Unavailable { .. } => 5,
        ClientError::Unknown { .. } => 6,
        ClientError::InvalidRequest(_) | ClientError::Unexpected { .. } => 1,
    }
}

/// The codes of `sysexits.h` where they say the same.
fn permit_exit_code(error: &PermitError) -> u8 {
    match error {
        PermitError::Unreachable { .. } => 69,
        PermitError::NotPermitted(_)
        | PermitError::TimedOut { .. }
        | PermitError::Ended(_)
        | PermitError::GivenUp => 75,
        PermitError::Refused(problem) => refusal_exit_code(problem),
        PermitError::Client(error) => client_exit_code(error),
        PermitError::ShutDown => 1,
    }
}

fn worker_exit_code(error: &WorkerError) -> u8 {
    match error {
        WorkerError::Refused(problem) | WorkerError::Superseded(problem) => {
            refusal_exit_code(problem)
        }
        WorkerError::Invalid(error) => client_exit_code(error),
    }
}

fn member_exit_code(error: &ReplicaError) -> u8 {
    match error {
        ReplicaError::InUse { .. }
        | ReplicaError::Foreign { .. }
        | ReplicaError::Listen { .. }
        | ReplicaError::Invalid { .. } => 2,
        _ => 1,
    }
}

fn refusal_exit_code(problem: &Problem) -> u8 {
    if problem.code.status() == 404 { 3 } else { 4 }
}

fn retry_advice(problem: &Problem) -> Option<String> {
    let wait = problem.retry_after_ms.map(|wait_ms| {
        let seconds = wait_ms.div_ceil(1_000);
        format!("in {seconds} s")
    });
    let with = problem.retry_with.map(|with| match with {
        RetryWith::NewId => "with a new id",
    });
    match (with, wait) {
        (Some(with), Some(wait)) => Some(format!("{with}, {wait}")),
        (Some(with), None) => Some(with.to_owned()),
        (None, wait) => wait,
    }
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<PermitError> for CommandError {
    fn from(error: PermitError) -> Self {
        Self::Permit(Box::new(error))
    }
}

impl From<WorkerError> for CommandError {
    fn from(error: WorkerError) -> Self {
        Self::Worker(Box::new(error))
    }
}

/// How a job stands, in words.
pub(crate) fn end_of(job: &JobView) -> String {
    match (job.state, job.code, job.reason) {
        (JobState::Complete, Some(code), _) => format!("ended with code {code}"),
        (JobState::Aborted, _, Some(reason)) => {
            format!("was aborted: {}", word(&reason))
        }
        (state, _, _) => format!("is {}", word(&state)),
    }
}

/// An error with what caused it, in one line.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // A transparent error says the same as its cause.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(cause_text.trim_end());
        }
        next = cause.source();
    }
    printable(&text).into_owned()
}
