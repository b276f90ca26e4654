//! One checker of what a cluster did, judged by what those who used it saw.
//!
//! Clients record what they asked and what was answered; workers record when they really began and
//! ended, with the committed start that came with each attempt. No counter of the cluster is
//! believed. The records are JSON lines ([`Record`]), so that processes can write them on their own
//! and be killed at any moment; a [`History`] is read from all of their files, and [`check`] holds
//! it against the invariants, one file each in `invariants/`, with the rule that it keeps quoted
//! there.
//!
//! Answers about one kind of pool, a [`Ration`], are put to a further test: one order of all that was
//! asked must explain them (`linear.rs`), as if one node had answered everybody, one after the other.
//!
//! The checker knows neither the pool nor the clock: the same history gives the same report.
//!
//! # Caveats
//!
//! - Begins and ends of different workers are compared as recorded: their clocks must agree, as
//!   those of one machine do. Committed starts come from the cluster and need no such care.
//! - An execution that seems to end before it began (its worker's clock was set back) is taken to
//!   have no length.
//! - Windows are judged as expected for the whole history: a reset or an override in the middle of
//!   it must be told as boundaries.
//! - Fixed windows only; rolling ones and shared `rate` buckets are not expressed yet.
//! - Attempts that were never confirmed were never executed, and no worker recorded them. So the
//!   order is judged by first attempts, and a job whose first attempt was put back is not judged.

#![forbid(unsafe_code)]

mod history;
mod invariants;
mod linear;
mod ration;
mod record;
mod report;

pub use history::{Contradiction, History, HistoryError};
pub use invariants::check;
pub use linear::STEPS_MAX;
pub use ration::{Answer, Answered, Ask, Operation, Ration};
pub use record::{
    Begin, Disturbed, End, Ended, Expectation, Launch, LaunchPlace, LogPlace, Lost, LostReason,
    Rate, Record, Windows,
};
pub use report::{Counts, Invariant, Overlap, PoolCounts, Report, Violation};
