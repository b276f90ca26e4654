//! Subcommands that this program gives itself: what becomes a command, and what watches over them.
//!
//! They stand between a start and its command, so they are recognised before the command line for
//! people is even described: that takes longer than starting a process. Each takes its words in the
//! one order in which this program writes them, and is read beside where it is written.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::error::CommandError;
use crate::group::{becoming, warden};

/// Does what the words after the program's name say, if they are such a subcommand; none where they
/// are somebody else's.
pub(crate) fn run(words: &[OsString]) -> Option<Result<ExitCode, CommandError>> {
    let (name, arguments) = words.split_first()?;
    Some(match name.to_str()? {
        becoming::BECOME_COMMAND => become_command(arguments),
        warden::WATCH_COMMANDS => watch_commands(arguments),
        _ => return None,
    })
}

fn become_command(arguments: &[OsString]) -> Result<ExitCode, CommandError> {
    let args = becoming::BecomeArgs::read(arguments);
    let args = args.ok_or_else(|| unread(becoming::BECOME_COMMAND, arguments))?;
    Err(becoming::become_command(&args))
}

fn watch_commands(arguments: &[OsString]) -> Result<ExitCode, CommandError> {
    if !arguments.is_empty() {
        return Err(unread(warden::WATCH_COMMANDS, arguments));
    }
    warden::watch()
}

fn unread(name: &'static str, arguments: &[OsString]) -> CommandError {
    CommandError::Setting {
        name,
        given: arguments.join(" ".as_ref()).to_string_lossy().into_owned(),
        allowed: "it is a subcommand that only this program gives itself".to_owned(),
    }
}
