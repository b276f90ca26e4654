//! The rules: when may a job start?
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
mod digest;
pub mod id;
pub mod job;
pub mod limits;
pub mod outcome;
pub mod query;
pub mod scope;
pub mod server;
pub mod snapshot;
mod table;
pub mod terms;
pub mod time;
pub mod window;

use command::{Claim, Entry, Settings};
use outcome::Applied;
use time::{Instant, Stamp};

/// The state of all pools, and the only thing that changes it.
#[derive(Debug, Default)]
pub struct Pool {
    settings: Settings,
}

/// Most jobs that leave their queues in one entry (S20); part of the format version.
pub const MOVES_PER_ENTRY_MAX: usize = 10_000;

impl Pool {
    /// An empty state, before the first entry.
    #[must_use]
    pub fn new() -> Pool {
        Pool::default()
    }

    /// Applies one entry of the log. Total: whatever the entry holds, it has outcomes.
    pub fn apply(&mut self, index: u64, entry: &Entry) -> Applied {
        todo!("{index}{entry:?}")
    }

    /// The claim in force: entries of another change nothing (S39).
    #[must_use]
    pub fn claim(&self) -> Claim {
        todo!()
    }

    /// The latest stamp that was seen; a leader stamps nothing earlier (S36).
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        todo!()
    }

    /// When a tick is owed next: a delay, a start timeout, the end of an override, the opening of
    /// a rate that a head waits for, or at once where an entry's bound left work. None: never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        todo!()
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A number that is equal on all replicas that applied the same entries (S37).
    #[must_use]
    pub fn digest(&self) -> u64 {
        todo!()
    }
}
