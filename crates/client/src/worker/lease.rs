//! The worker's lease (S41, S42), and what its end demands.

use std::time::Duration;

use tokio::time::Instant;

/// The lease of the last answered poll.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    /// When that poll was sent: what the lease counts from (S41).
    pub(super) sent: Instant,
    /// When executors are told to stop at once.
    pub(super) kills: Instant,
    pub(super) ends: Instant,
    /// How far the lapse has been acted upon.
    pub(super) stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has not lapsed.
    Running,
    /// The executors were told to stop at once.
    Told,
    /// What did not obey was dropped.
    Dropped,
}

impl Lease {
    pub(super) fn new(sent: Instant, length: Duration, kill_margin: Duration) -> Self {
        let ends = sent + length;
        Self {
            sent,
            kills: ends - kill_margin.min(length / 4),
            ends,
            stage: Stage::Running,
        }
    }

    /// The next instant at which something must be done about it.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running => Some(self.kills),
            Stage::Told => Some(self.ends),
            Stage::Dropped => None,
        }
    }
}
