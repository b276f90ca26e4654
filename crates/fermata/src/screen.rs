//! How answers look: text for a terminal, or JSON for a script.
//!
//! Colours only decorate: whatever they say stands there in words too. They are used where
//! standard output (for errors, standard error) is a terminal and `NO_COLOR` is not set.

use std::borrow::Cow;
use std::io::{IsTerminal, Write, stderr, stdout};

use serde::Serialize;

use crate::error::CommandError;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    // Comments, not help: this stands in the help of every command.
    // For people.
    #[default]
    Text,
    // For scripts: one JSON value, or one a line where answers come one after the other.
    Json,
}

/// Where an answer is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// How it is written.
    pub(crate) format: Format,
    has_colours: bool,
}

impl Screen {
    /// Standard output.
    pub(crate) fn output(format: Format) -> Self {
        Self::new(format, stdout().is_terminal())
    }

    /// Standard error.
    pub(crate) fn errors(format: Format) -> Self {
        Self::new(format, stderr().is_terminal())
    }

    fn new(format: Format, is_terminal: bool) -> Self {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            format,
            has_colours: is_terminal && !is_refused && !is_dumb,
        }
    }

    /// Shows an answer: `text` writes it for people.
    pub(crate) fn show<T: Serialize>(
        self,
        answer: &T,
        text: impl FnOnce(Self) -> String,
    ) -> Result<(), CommandError> {
        match self.format {
            Format::Text => print(&text(self)),
            Format::Json => print(&format!("{}\n", pretty(answer)?)),
        }
    }

    /// Shows one of several answers that come one after the other.
    pub(crate) fn show_next<T: Serialize>(
        self,
        answer: &T,
        text: impl FnOnce(Self) -> String,
    ) -> Result<(), CommandError> {
        match self.format {
            Format::Text => print(&text(self)),
            Format::Json => {
                let line = serde_json::to_string(answer).map_err(unwritten)?;
                print(&format!("{line}\n"))
            }
        }
    }

    /// The text in a colour, where there are colours.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Bad => "31",
            Tone::Good => "32",
            Tone::Busy => "33",
        };
        if self.has_colours && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// What a colour says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// Of little interest.
    Faint,
    /// Failed, or gone.
    Bad,
    /// Well, or done.
    Good,
    /// Under way.
    Busy,
}

/// Writes to standard output at once, so that a watcher sees it when it happens.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    let mut output = stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(CommandError::Answer)
}

fn pretty<T: Serialize>(answer: &T) -> Result<String, CommandError> {
    serde_json::to_string_pretty(answer).map_err(unwritten)
}

fn unwritten(error: serde_json::Error) -> CommandError {
    CommandError::Answer(error.into())
}

/// A value of the contract as the word that stands in JSON.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// Text that others wrote (a job's output, a title), safe for a terminal: control characters, but
/// line ends and tabs, could move the cursor or worse.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(is_unsafe) {
        Cow::Owned(text.replace(is_unsafe, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}
