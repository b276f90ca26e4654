//! A server: what was declared of it, and what it is doing.
use crate::command::ServerDefinition;
use crate::time::Instant;
use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

/// A target that executes jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// What was declared.
    pub definition: ServerDefinition,
    /// Counts the edits of the definition, from 1.
    pub revision: u64,
    /// The life of its worker that was seen last.
    pub incarnation: Option<Box<str>>,
    /// False once it was silent for too long (S42).
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
