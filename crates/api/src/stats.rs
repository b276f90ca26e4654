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
    /// Jobs that have not ended.
    pub unfinished: u64,
    /// Jobs that have ended and are kept yet (S47).
    pub finished: u64,
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
