//! The state as rows: how it leaves a pool, and how a pool is made of it again.
//!
//! Only tables are written. Indexes are made again from them, and a restored pool is checked
//! against the digest that the snapshot names.

use crate::Pool;
use crate::job::{Job, JobNumber, ScopeNumber, ServerNumber, TermsNumber};
use crate::scope::Scope;
use crate::server::Server;
use crate::terms::Terms;
use crate::time::Instant;
use alloc::borrow::Cow;
use core::fmt;
use serde::{Deserialize, Serialize};

/// One row of a snapshot. The first is the header; then the tables, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Row<'a> {
    /// A job.
    Job(JobNumber, Cow<'a, Job>),
    /// A pool or bucket.
    Scope(ScopeNumber, Cow<'a, Scope>),
    /// A server.
    Server(ServerNumber, Cow<'a, Server>),
    /// Interned terms.
    Terms(TermsNumber, Cow<'a, Terms>),
    /// Starts of a sliding window at one instant.
    Run(ScopeNumber, Instant, u32),
}

/// A walk is under way already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkUnderWay;

/// Why rows do not make a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// A row came out of its place, or refers to one that is not there.
    Inconsistent(&'static str),
    /// The rows are not those that were written.
    Digest,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Inconsistent(what) => write!(f, "the rows contradict each other: {what}"),
            RestoreError::Digest => f.write_str("the rows have another digest than the snapshot"),
        }
    }
}

impl core::error::Error for RestoreError {}

impl Pool {
    /// Begins to walk the state as it is now, while later entries are applied.
    ///
    /// # Errors
    /// Another walk is under way.
    pub fn begin_walk(&mut self) -> Result<(), WalkUnderWay> {
        todo!()
    }

    /// Hands out up to about `rows_max` further rows; false when that was all.
    pub fn walk(&mut self, rows_max: usize, hand_out: &mut dyn FnMut(&Row<'_>)) -> bool {
        todo!("{rows_max}{}", core::mem::size_of_val(hand_out))
    }

    /// Gives up the walk under way, if any.
    pub fn end_walk(&mut self) {
        todo!()
    }
}

/// Makes a pool of a snapshot's rows, in the order in which they were handed out.
#[derive(Debug, Default)]
pub struct Restore {
    pool: Pool,
}

impl Restore {
    /// Takes the next row.
    ///
    /// # Errors
    /// The row contradicts those before it.
    pub fn push(&mut self, row: Row<'_>) -> Result<(), RestoreError> {
        todo!("{row:?}")
    }

    /// The pool, with its indexes made and its digest checked.
    ///
    /// # Errors
    /// The rows contradict each other, or have another digest than the header says.
    pub fn finish(self) -> Result<Pool, RestoreError> {
        todo!()
    }
}
