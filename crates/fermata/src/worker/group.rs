//! A command with everything that it starts: one process group, killed as one.
//!
//! The group is killed when its [`Group`] is dropped, however that comes about: the end of the
//! lease, a second signal, a worker that was superseded.
//!
//! A worker that is killed itself (SIGKILL, out of memory) drops nothing. Then its warden kills the
//! groups ([`super::warden`]). And a command is not spawned as it is, but through this program
//! ([`BecomeArgs`]), which asks the kernel to be killed with its parent and then becomes the command:
//! so it never outlives the worker, not by a moment.
//!
//! # Caveats
//!
//! - Not on other systems than Linux: there the warden alone does it, a moment later.
//! - A process that makes a group or session of its own has left, and is not killed.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tracing::warn;

use super::warden::Warden;
use crate::error::CommandError;

/// A running command and what it has started.
#[derive(Debug)]
pub(super) struct Group {
    leader: Option<Pid>,
    warden: Warden,
}

impl Group {
    /// The group that `child` leads.
    pub(super) fn of(child: &Child, warden: &Warden) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let leader = pid.and_then(Pid::from_raw);
        if let Some(leader) = leader {
            warden.add(leader);
        }
        Self {
            leader,
            warden: warden.clone(),
        }
    }

    /// Asks all of it to end.
    pub(super) fn terminate(&self) {
        self.send(Signal::TERM);
    }

    /// Ends all of it.
    pub(super) fn kill(&self) {
        self.send(Signal::KILL);
    }

    /// The command has ended, by itself or not: what it left behind ends now. A group's id is
    /// not used again while it has members; without any, it would have to be used again at once
    /// to be mistaken.
    pub(super) fn finish(self) {
        drop(self);
    }

    fn send(&self, signal: Signal) {
        let Some(leader) = self.leader else {
            return;
        };
        match kill_process_group(leader, signal) {
            // Nobody is left.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => warn!(%error, ?leader, ?signal, "a process group was not signalled"),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if let Some(leader) = self.leader {
            self.warden.remove(leader);
        }
    }
}

/// The subcommand that becomes a command: used by workers and `fermata exec`, not by people.
pub(crate) const BECOME_COMMAND: &str = "become-command";

/// What becomes a command.
#[derive(Debug)]
pub(crate) struct BecomeArgs<'a> {
    /// Who starts it.
    parent: u32,
    program: &'a OsStr,
    arguments: &'a [OsString],
}

impl<'a> BecomeArgs<'a> {
    /// Reads what [`command_beside_us`] wrote; none where something else did.
    pub(crate) fn read(words: &'a [OsString]) -> Option<Self> {
        let [parent, program, arguments @ ..] = words else {
            return None;
        };
        Some(Self {
            parent: parent.to_str()?.parse().ok()?,
            program,
            arguments,
        })
    }
}

/// The command, to be spawned as the leader of a group that dies with this process.
///
/// # Errors
/// This program cannot be found any more.
pub(crate) fn command(argv: &[OsString]) -> io::Result<Command> {
    let mut command = command_beside_us(argv)?;
    command.process_group(0);
    Ok(command)
}

/// The command, to be spawned in the group of this process, with which it dies.
///
/// # Errors
/// This program cannot be found any more.
pub(crate) fn command_beside_us(argv: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command
        .arg(BECOME_COMMAND)
        .arg(std::process::id().to_string())
        .args(argv)
        .kill_on_drop(true);
    Ok(command)
}

/// Becomes the command. Comes back only if that failed; what is said of it then is the job's
/// output.
pub(crate) fn become_command(args: &BecomeArgs<'_>) -> CommandError {
    let Err(source) = replace_this(args);
    CommandError::NotExecuted {
        program: args.program.to_owned(),
        source,
    }
}

fn replace_this(args: &BecomeArgs<'_>) -> io::Result<Infallible> {
    die_with_parent(args.parent)?;
    let mut command = std::process::Command::new(args.program);
    Err(command.args(args.arguments).exec())
}

#[cfg(target_os = "linux")]
fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before this was asked for is not noticed any more.
    let lives = rustix::process::getppid()
        .and_then(|now| u32::try_from(now.as_raw_nonzero().get()).ok())
        .is_some_and(|now| now == parent);
    if lives {
        Ok(())
    } else {
        Err(io::Error::other("who started this is gone"))
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_parent: u32) -> io::Result<()> {
    Ok(())
}

/// The file that this process runs, also after another was put in its place.
#[cfg(target_os = "linux")]
pub(crate) fn this_program() -> io::Result<std::path::PathBuf> {
    Ok("/proc/self/exe".into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn this_program() -> io::Result<std::path::PathBuf> {
    std::env::current_exe()
}
