//! The warden of a worker: a process that outlives it for a moment, and ends what it left.
//!
//! A worker that is killed (SIGKILL, out of memory) cannot kill the process groups of its commands.
//! So it tells their ids, as they come and go, to a second process of this program, through a
//! pipe. When the pipe ends, the worker is gone, and the warden kills what is listed.
//!
//! # Caveats
//!
//! - A command is listed just after it was made. Where the worker is killed in between, the kernel
//!   kills the command ([`super::group`]), and only that.
//! - Who kills the warden as well leaves the rest to the kernel: a worker whose warden is gone says
//!   so once, and goes on.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};
use tracing::error;

use super::group::this_program;
use crate::error::CommandError;

/// The subcommand that is a warden.
pub(crate) const WATCH_FOR_WORKER: &str = "watch-for-worker";

/// The worker's end: what tells the warden.
#[derive(Clone, Debug)]
pub(crate) struct Warden {
    /// None once it is gone.
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

impl Warden {
    /// Starts one for this process.
    pub(crate) fn start() -> Result<Self, CommandError> {
        let spawn = || {
            Command::new(this_program()?)
                .arg(WATCH_FOR_WORKER)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // A signal of the terminal is not for it.
                .process_group(0)
                .spawn()
        };
        let mut child = spawn().map_err(|source| CommandError::System {
            doing: "start the process that watches over commands",
            source,
        })?;
        let pipe = Arc::new(Mutex::new(child.stdin.take()));
        Ok(Self { pipe })
    }

    /// A group has come.
    pub(super) fn add(&self, leader: Pid) {
        self.tell('+', leader);
    }

    /// It is gone.
    pub(super) fn remove(&self, leader: Pid) {
        self.tell('-', leader);
    }

    fn tell(&self, sign: char, leader: Pid) {
        let word = format!("{sign}{}\n", leader.as_raw_nonzero());
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let told = pipe.as_mut().map(|pipe| pipe.write_all(word.as_bytes()));
        if let Some(Err(error)) = told {
            error!(%error, "the process that watches over commands is gone; the worker goes on");
            *pipe = None;
        }
    }
}

/// Waits for the end of the worker, and ends what it left. Used by workers, not by people.
pub(crate) fn watch() {
    let mut groups = BTreeSet::new();
    let mut input = io::stdin().lock();
    let mut word = String::new();
    while let Ok(1..) = input.read_line(&mut word) {
        // A word that is torn names somebody else.
        match word.strip_suffix('\n').and_then(parsed) {
            Some(('+', leader)) => groups.insert(leader),
            Some((_, leader)) => groups.remove(&leader),
            None => break,
        };
        word.clear();
    }
    for leader in groups.into_iter().filter_map(Pid::from_raw) {
        // Most have ended with the worker.
        let _ = kill_process_group(leader, Signal::KILL);
    }
}

/// A sign and a group; none where it is no word of a worker.
fn parsed(word: &str) -> Option<(char, i32)> {
    let mut letters = word.chars();
    let sign = letters.next().filter(|sign| matches!(sign, '+' | '-'))?;
    let leader = letters.as_str().parse().ok().filter(|leader| *leader > 1)?;
    Some((sign, leader))
}
