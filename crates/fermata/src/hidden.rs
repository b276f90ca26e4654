//! Subcommands that this program gives itself: what becomes a command, and what watches over one.
//!
//! They stand between a start and its command, so they are recognised before the command line for
//! people is even described: that takes longer than starting a process. Each takes its words in the
//! one order in which this program writes them, and is read beside where it is written.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::error::CommandError;
use crate::exec;
use crate::worker::{group, warden};

/// Does what the words after the program's name say, if they are such a subcommand; none where they
/// are somebody else's.
pub(crate) fn run(words: &[OsString]) -> Option<Result<ExitCode, CommandError>> {
    let (name, arguments) = words.split_first()?;
    Some(match name.to_str()? {
        group::BECOME_COMMAND => become_command(arguments),
        exec::WATCH_COMMAND => watch_command(arguments),
        warden::WATCH_FOR_WORKER => watch_for_worker(arguments),
        _ => return None,
    })
}

fn become_command(arguments: &[OsString]) -> Result<ExitCode, CommandError> {
    let args = group::BecomeArgs::read(arguments);
    let args = args.ok_or_else(|| unread(group::BECOME_COMMAND, arguments))?;
    Err(group::become_command(&args))
}

fn watch_command(arguments: &[OsString]) -> Result<ExitCode, CommandError> {
    let args = exec::WatchArgs::read(arguments);
    exec::watch(args.ok_or_else(|| unread(exec::WATCH_COMMAND, arguments))?)
}

fn watch_for_worker(arguments: &[OsString]) -> Result<ExitCode, CommandError> {
    if !arguments.is_empty() {
        return Err(unread(warden::WATCH_FOR_WORKER, arguments));
    }
    warden::watch();
    Ok(ExitCode::SUCCESS)
}

fn unread(name: &'static str, arguments: &[OsString]) -> CommandError {
    CommandError::Setting {
        name,
        given: arguments.join(" ".as_ref()).to_string_lossy().into_owned(),
        allowed: "it is a subcommand that only this program gives itself".to_owned(),
    }
}
