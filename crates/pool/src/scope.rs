//! A scope: what the name of a pool or of a rate bucket stands for.
//!
//! Pools and buckets share one space of names, so that windows, resets and overrides are the same
//! for both. A scope exists while anything needs it: a window, an override, or an unfinished job.

use crate::command::Override;
use crate::job::{JobNumber, KindNumber, ScopeNumber};
use crate::window::Window;
use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

/// A pool or a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// `cap:KEY`, `event:ID`, `node:NODE@JOB`, `job:ID` or `rate:KEY`.
    pub name: Box<str>,
    /// Its window, if one is open; an expired one is as if absent (S30).
    pub window: Option<Window>,
    /// The override, if one is set (S33).
    pub sizes: Option<Override>,
    /// Unfinished jobs of the pool.
    pub members: u32,
    /// Those of them in `starting` and `active`.
    pub running: u32,
    /// The head of the pool's queue and what it waits for; none where nobody waits.
    pub head: Option<Head>,
}

/// The first of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The job.
    pub job: JobNumber,
    /// Where it is written which gate it waits for.
    pub waits: Waits,
}

/// How a head waits for the one gate that it found shut (S20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// By itself, for this gate.
    Alone(Gate),
    /// With those of its kind, for a bucket or a server: the gate is that of its stretch.
    InKind(KindNumber),
}

/// What a head waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Gate {
    /// Nothing: it is to be considered.
    Due,
    /// A slot of its pool.
    Slot,
    /// The rate of its pool, or of a bucket.
    Rate(ScopeNumber),
    /// A server with room.
    Server,
}

impl Gate {
    /// True for a bucket and for servers: gates that a pool shares with others.
    pub(crate) fn is_shared_by(self, pool: ScopeNumber) -> bool {
        match self {
            Gate::Due | Gate::Slot => false,
            Gate::Rate(scope) => scope != pool,
            Gate::Server => true,
        }
    }
}

impl Scope {
    /// The concurrency in force for a job whose own is `amount`: the override's, where it sets
    /// one, else its own, where it has one (S33).
    #[must_use]
    pub fn amount_in_force(&self, amount: u32) -> Option<u32> {
        match self.sizes.as_ref().and_then(|sizes| sizes.amount) {
            Some(amount) => Some(amount),
            None => Some(amount).filter(|amount| *amount > 0),
        }
    }
}
