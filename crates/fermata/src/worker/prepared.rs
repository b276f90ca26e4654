//! A process that is there before its attempt: it waits to be told what it executes.
//!
//! Making a process takes longer than all that lies between the start of a job and its confirmation.
//! So a worker has one made ahead, with its pipes. It is still nobody's: what makes it an attempt's
//! is the order, which is written after the confirmation.
//!
//! # Caveats
//!
//! - One alone: of many attempts that come at once, the others wait for their processes to be made.

use std::ffi::OsString;
use std::io::{self, pipe};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStdin};
use tracing::warn;

use crate::group::{self, Group, Warden};

/// A process that waits for its order.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) child: Child,
    pub(super) group: Group,
    pub(super) input: Option<ChildStdin>,
    /// What it writes, on standard output and error.
    pub(super) output: Receiver,
}

impl Process {
    fn make(command: &[OsString], warden: &Warden) -> io::Result<Self> {
        // One pipe for both, so that the tail has them in their order.
        let (reader, writer) = pipe()?;
        let mut command = group::ordered_command(command)?;
        command
            .stdin(Stdio::piped())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let output = Receiver::from_owned_fd(reader.into())?;
        let (mut child, group) = Group::start(command, warden)?;
        Ok(Self {
            input: child.stdin.take(),
            child,
            group,
            output,
        })
    }
}

/// The processes of one command; at most one of them is made ahead.
#[derive(Debug)]
pub(crate) struct Processes {
    command: Vec<OsString>,
    /// What ends those of a worker that was killed.
    warden: Warden,
    ahead: Mutex<Option<Process>>,
}

impl Processes {
    pub(crate) fn new(command: Vec<OsString>, warden: Warden) -> Self {
        Self {
            command,
            warden,
            ahead: Mutex::default(),
        }
    }

    /// The one that was made ahead, or a new one.
    pub(super) fn take(&self) -> io::Result<Process> {
        let ahead = self.lock().take();
        let ahead = ahead.and_then(|mut process| {
            // Somebody may have killed it.
            let is_there = matches!(process.child.try_wait(), Ok(None));
            is_there.then_some(process)
        });
        match ahead {
            Some(process) => Ok(process),
            None => Process::make(&self.command, &self.warden),
        }
    }

    /// Makes one ahead, if none is there. Needs a runtime.
    pub(crate) fn prepare(&self) {
        let mut ahead = self.lock();
        if ahead.is_none() {
            let made = Process::make(&self.command, &self.warden);
            *ahead = made
                .inspect_err(|error| warn!(%error, "no process was made ahead"))
                .ok();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
