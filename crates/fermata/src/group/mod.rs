//! A command with everything that it starts: one process group, killed as one.
//!
//! The group is killed when its [`Group`] is dropped, however that comes about: the end of the
//! lease, a second signal, a worker that was superseded. Two more see to it when this process
//! cannot, because it was killed or stopped: its [`warden`], and the kernel ([`becoming`]).
//!
//! A command that stays in the group of this process, because a terminal is at work there, is
//! signalled and killed alone.
//!
//! # Caveats
//!
//! - A process that makes a group or session of its own has left, and is not killed.

pub(crate) mod becoming;
pub(crate) mod warden;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tracing::warn;

pub(crate) use becoming::{Order, command, ordered_command};
pub(crate) use warden::Warden;

/// The exit code of a command that this program could not run.
pub(crate) const CODE_NOT_RUN: u8 = 125;

/// How long commands have to end, as whoever starts them is told.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct GraceArgs {
    /// How long a command has to end after SIGTERM, in seconds
    #[arg(
        long,
        env = "FERMATA_GRACE_S",
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=86_400)
    )]
    grace_s: u64,
}

impl GraceArgs {
    /// The time between SIGTERM and SIGKILL.
    pub(crate) fn time(self) -> Duration {
        Duration::from_secs(self.grace_s)
    }
}

/// What is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// All of a group, by its leader.
    Group(Pid),
    /// One process, in the group of this one.
    Process(Pid),
}

impl Target {
    /// As `kill` of a shell names it: a group by the negative number of its leader.
    fn number(self) -> i32 {
        match self {
            Self::Group(leader) => -leader.as_raw_nonzero().get(),
            Self::Process(process) => process.as_raw_nonzero().get(),
        }
    }

    /// None where it is the number of everybody, of nobody or of the first process.
    fn of_number(number: i32) -> Option<Self> {
        let pid = number.checked_abs().filter(|pid| *pid > 1)?;
        let pid = Pid::from_raw(pid)?;
        Some(match number {
            ..0 => Self::Group(pid),
            0.. => Self::Process(pid),
        })
    }

    fn send(self, signal: Signal) {
        let sent = match self {
            Self::Group(leader) => kill_process_group(leader, signal),
            Self::Process(process) => kill_process(process, signal),
        };
        match sent {
            // Nobody is left.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => warn!(%error, target = ?self, ?signal, "a command was not signalled"),
        }
    }
}

/// A running command and what it has started, watched over by a warden.
#[derive(Debug)]
pub(crate) struct Group {
    target: Target,
    warden: Warden,
}

impl Group {
    /// Starts a command as the leader of a group.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(mut command: Command, warden: &Warden) -> io::Result<(Child, Self)> {
        command.process_group(0);
        Self::watched(command, Target::Group, warden)
    }

    /// Starts a command in the group of this process.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start_beside_us(command: Command, warden: &Warden) -> io::Result<(Child, Self)> {
        Self::watched(command, Target::Process, warden)
    }

    fn watched(
        mut command: Command,
        target: impl FnOnce(Pid) -> Target,
        warden: &Warden,
    ) -> io::Result<(Child, Self)> {
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let target = target(pid);
        warden.watch_over(target, None);
        let warden = warden.clone();
        Ok((child, Self { target, warden }))
    }

    /// Has the warden kill it then, if it is still there and nothing else was said.
    pub(crate) fn lasts_until(&self, end: Instant) {
        self.warden.watch_over(self.target, Some(end));
    }

    /// Whether the command is in the group of this process.
    pub(crate) fn is_beside_us(&self) -> bool {
        matches!(self.target, Target::Process(_))
    }

    /// Sends all of it a signal.
    pub(crate) fn send(&self, signal: Signal) {
        self.target.send(signal);
    }

    /// Asks all of it to end.
    pub(crate) fn terminate(&self) {
        self.send(Signal::TERM);
    }

    /// Ends all of it.
    pub(crate) fn kill(&self) {
        self.send(Signal::KILL);
    }

    /// The command has ended, by itself or not: what it left behind ends now. A group's id is
    /// not used again while it has members; without any, it would have to be used again at once
    /// to be mistaken.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process by itself is its child's affair (`kill_on_drop`), which knows whether it lives.
        if let Target::Group(_) = self.target {
            self.kill();
        }
        self.warden.forget(self.target);
    }
}

/// The code of the exit, or 128 and the signal, as of a shell.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let of_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(of_signal);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(CODE_NOT_RUN)
}
