//! Becoming a command: why none outlives the process that started it, not by a moment.
//!
//! A command is not spawned as it is, but through this program, which asks the kernel to be killed
//! with its parent and then becomes the command.
//!
//! # Caveats
//!
//! - Not on other systems than Linux: there the warden alone ends what is left, a moment later.
//! - The kernel kills the command alone, and when the *thread* that started it ends: that thread
//!   must last.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;

use tokio::process::Command;

use crate::error::CommandError;

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
    /// Reads what [`command`] wrote; none where something else did.
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

/// The command, to be spawned as one that dies with this process.
///
/// # Errors
/// This program cannot be found any more.
pub(crate) fn command(argv: &[OsString]) -> io::Result<Command> {
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
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill)?;
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
pub(super) fn this_program() -> io::Result<std::path::PathBuf> {
    Ok("/proc/self/exe".into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn this_program() -> io::Result<std::path::PathBuf> {
    std::env::current_exe()
}
