//! A server: what was declared of it, and what it is doing.

use crate::command::ServerDefinition;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Most earlier incarnations that are remembered.
pub const SUPERSEDED_MAX: usize = 64;

/// A target that executes jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// What was declared.
    pub definition: ServerDefinition,
    /// Counts the edits of the definition, from 1.
    pub revision: u64,
    /// The life of its worker that was seen last.
    pub incarnation: Option<Box<str>>,
    /// Earlier lives, the latest last: none of them may come back (S42). One that is older than
    /// these would be taken for a new one; all that it held was given up long ago.
    pub superseded: Vec<Box<str>>,
    /// False until it is seen, and once it was silent for too long (S42).
    pub online: bool,
    /// The takeover under which it was last seen, counted from 1.
    pub seen_under: u64,
    /// Where its silence counts from unless it was heard under the leader of now: the first
    /// renewal under a leader, or a takeover that gave it a full lease anew (S41).
    pub heard_at: Instant,
    /// Jobs in `starting` and `active`.
    pub jobs: u32,
    /// Units of weight that they take.
    pub used: u32,
}

impl Server {
    /// Units of weight that it has room for now; none where it takes nothing new.
    #[must_use]
    pub fn room(&self) -> u32 {
        if !self.online || !self.definition.enabled {
            return 0;
        }
        match self.definition.max_jobs {
            None => u32::MAX,
            Some(max_jobs) => max_jobs.saturating_sub(self.used),
        }
    }
}
