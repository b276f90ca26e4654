//! A server: what was declared of it, and what it is doing.

use crate::command::ServerDefinition;
use crate::job::{PutBackCause, ServerNumber};
use crate::outcome::{Outcome, Refusal};
use crate::state::{Pool, Turn};
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
    /// Whether the worker of this life takes nothing new: it ends what it runs and leaves.
    pub draining: bool,
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
        if !self.online || self.draining || !self.definition.enabled {
            return 0;
        }
        match self.definition.max_jobs {
            None => u32::MAX,
            Some(max_jobs) => max_jobs.saturating_sub(self.used),
        }
    }
}

impl Pool {
    /// A server is to be emptied, and stays so until it is enabled.
    pub(crate) fn drain_server(
        &mut self,
        server: &str,
        turn: &mut Turn,
    ) -> Result<Outcome, Refusal> {
        let number = self
            .index
            .fleet
            .number(server)
            .ok_or(Refusal::UnknownServer)?;
        self.change_server(number, |server| {
            if core::mem::replace(&mut server.definition.enabled, false) {
                server.revision += 1;
            }
        });
        Ok(self.drain(number, turn))
    }

    /// A server takes nothing new. What is not confirmed is put back, to start elsewhere.
    pub(crate) fn drain(&mut self, number: ServerNumber, turn: &mut Turn) -> Outcome {
        self.change_server(number, |server| server.draining = true);
        self.put_back_starting(number, PutBackCause::ServerDraining, turn);
        Outcome::Done
    }
}
