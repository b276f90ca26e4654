//! Counters of the cluster: `GET /v1/stats` (S44).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::jobs::AbortReason;
use crate::time::Timestamp;

/// What was counted since the counters were last set to zero, and what there is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsView {
    /// When the counters were last set to zero.
    pub since: Timestamp,
    /// Jobs that are there now, by state.
    pub jobs: JobCounts,
    /// Jobs launched.
    pub launched: u64,
    /// Starts, every attempt counted.
    pub started: u64,
    /// Jobs that ended with code 0.
    pub succeeded: u64,
    /// Jobs that ended with another code.
    pub failed: u64,
    /// Jobs aborted, by reason.
    pub aborted: BTreeMap<AbortReason, u64>,
    /// Attempts that were put back.
    pub put_back: u64,
    /// Jobs that were queued because a rate was exhausted.
    pub queued_by_rate: u64,
    /// Decisions of rates about starts.
    pub rates: RateOutcomes,
}

/// Jobs that are there now, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    /// Not due yet.
    pub delayed: u64,
    /// Waiting.
    pub queued: u64,
    /// Started, not confirmed.
    pub starting: u64,
    /// Confirmed by their executors.
    pub active: u64,
    /// Ended, and kept yet (S47).
    pub finished: u64,
}

/// Decisions of rates about starts, by outcome (S44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateOutcomes {
    /// A start was taken.
    pub acquired: u64,
    /// The rate was exhausted and the job aborted.
    pub skipped: u64,
    /// The rate was exhausted and the job waits.
    pub throttled: u64,
}
