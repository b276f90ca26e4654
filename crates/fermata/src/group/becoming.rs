//! Becoming a command: why none outlives the process that started it, not by a moment.
//!
//! A command is not spawned as it is, but through this program, which asks the kernel to be killed
//! with its parent and then becomes the command: at once, or when it is ordered to. A process that
//! waits for its order is there already when its time comes.
//!
//! The order comes on standard input, and is followed there by what the command is to read.
//!
//! # Caveats
//!
//! - Not on other systems than Linux: there the warden alone ends what is left, a moment later.
//! - The kernel kills the command alone, and when the *thread* that started it ends: that thread
//!   must last.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, stdin};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;

use tokio::process::Command;

use crate::error::CommandError;

/// The subcommand that becomes a command: used by workers and `fermata exec`, not by people.
pub(crate) const BECOME_COMMAND: &str = "become-command";

/// Says that a command begins at once.
const AT_ONCE: &str = "--at-once";
/// Says that it waits for an [`Order`].
const ORDERED: &str = "--ordered";
/// Most bytes of an order: far more than the system lets a program be given.
const ORDER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What becomes a command.
#[derive(Debug)]
pub(crate) struct BecomeArgs<'a> {
    /// Who starts it.
    parent: u32,
    is_ordered: bool,
    program: &'a OsStr,
    arguments: &'a [OsString],
}

impl<'a> BecomeArgs<'a> {
    /// Reads what [`command`] and [`ordered_command`] wrote; none where something else did.
    pub(crate) fn read(words: &'a [OsString]) -> Option<Self> {
        let [parent, when, program, arguments @ ..] = words else {
            return None;
        };
        Some(Self {
            parent: parent.to_str()?.parse().ok()?,
            is_ordered: match when.to_str()? {
                AT_ONCE => false,
                ORDERED => true,
                _ => return None,
            },
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
    becoming(AT_ONCE, argv)
}

/// The same, which begins when an [`Order`] was written to its standard input.
///
/// # Errors
/// This program cannot be found any more.
pub(crate) fn ordered_command(argv: &[OsString]) -> io::Result<Command> {
    becoming(ORDERED, argv)
}

fn becoming(when: &str, argv: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(this_program()?);
    command
        .arg(BECOME_COMMAND)
        .arg(std::process::id().to_string())
        .arg(when)
        .args(argv)
        .kill_on_drop(true);
    Ok(command)
}

/// What a command is told in its environment, once it is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Names and values; none: there is no such variable, whatever this process has.
    variables: Vec<(String, Option<String>)>,
}

impl Order {
    /// Sets a variable, or takes it away.
    pub(crate) fn variable(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        self.variables
            .push((name.to_owned(), value.map(str::to_owned)));
        self
    }

    /// The length in bytes, and each variable as NAME=VALUE or NAME, with a NUL behind.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = String::new();
        for (name, value) in &self.variables {
            text.push_str(name);
            if let Some(value) = value {
                text.push('=');
                text.push_str(value);
            }
            text.push('\0');
        }
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        [&length.to_le_bytes(), text.as_bytes()].concat()
    }

    /// Reads an order, and nothing of what follows it.
    fn read_from(mut input: impl Read) -> io::Result<Self> {
        let mut length = [0; size_of::<u32>()];
        input.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > ORDER_BYTES_MAX {
            return Err(io::Error::other("the order is too long"));
        }
        let mut text = vec![0; length];
        input.read_exact(&mut text)?;
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        let mut order = Self::default();
        for variable in text.split_terminator('\0') {
            match variable.split_once('=') {
                Some((name, value)) => order.variable(name, Some(value)),
                None => order.variable(variable, None),
            };
        }
        Ok(order)
    }
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
    command.args(args.arguments);
    if args.is_ordered {
        // Not through a buffer: what follows the order is the command's.
        let input = File::from(stdin().as_fd().try_clone_to_owned()?);
        for (name, value) in Order::read_from(input)?.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }
    Err(command.exec())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written_and_no_further() {
        let mut order = Order::default();
        let value = "{\"a\": \"b=c\\né\"}";
        order
            .variable("A", Some(value))
            .variable("B", Some(""))
            .variable("C", None);
        for order in [order, Order::default()] {
            let written = [&order.to_bytes()[..], b"rest"].concat();
            let mut input = &written[..];
            assert_eq!(Order::read_from(&mut input).expect("it is whole"), order);
            assert_eq!(input, b"rest");
        }
    }
}
