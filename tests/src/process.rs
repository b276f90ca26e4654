//! A process of the binary: started with its output in a file, signalled by its id, ended with its
//! owner.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Which variable names the binary.
const BINARY_VARIABLE: &str = "FERMATA_BIN";
/// Bytes of a log's end that are shown.
const LOG_TAIL_BYTES: usize = 4_000;

/// The binary under test.
///
/// # Panics
/// `FERMATA_BIN` does not name one.
#[must_use]
pub fn binary() -> PathBuf {
    let named = std::env::var_os(BINARY_VARIABLE).map(PathBuf::from);
    let Some(path) = named.filter(|path| path.is_file()) else {
        panic!(
            "{BINARY_VARIABLE} names no binary: run `cargo xtask verify`, which builds it and \
             says which"
        );
    };
    path
}

/// How a process ended, and what it had said.
#[derive(Debug)]
pub struct Exit {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to stdout and stderr.
    pub output: String,
}

/// A running process. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; its output is appended to `NAME.log` in `folder`.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn start(name: &str, mut command: Command, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log);
        let output = output.expect("the folder can be written to");
        let errors = output.try_clone().expect("a file has a second handle");
        let child = command
            .stdin(std::process::Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// The process's id.
    ///
    /// # Panics
    /// It was waited for already.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id().expect("a process that was not waited for")
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    /// SIGSTOP: it stands still.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT: it goes on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM, without waiting.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGTERM, and waits until it is gone.
    ///
    /// # Panics
    /// It is not gone within `deadline`.
    pub async fn stop(self, deadline: Duration) -> Exit {
        self.signal(Signal::TERM);
        self.ended(deadline).await
    }

    /// Waits until it is gone.
    ///
    /// # Panics
    /// It is not gone within `deadline`.
    pub async fn ended(mut self, deadline: Duration) -> Exit {
        match timeout(deadline, self.child.wait()).await {
            Ok(status) => Exit {
                status: status.expect("a child can be waited for"),
                output: self.output(),
            },
            Err(_) => panic!(
                "{} did not end within {deadline:?}; it said:\n{}",
                self.name,
                self.log_tail()
            ),
        }
    }

    /// Everything that it and its predecessors of the same name wrote.
    #[must_use]
    pub fn output(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of that, for a failure's message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let tail = &bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..];
        String::from_utf8_lossy(tail).into_owned()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("the id of a process is positive");
        kill_process(pid, signal).expect("a child can be signalled");
    }
}
