//! A sliding window: at most so many starts in any rolling window, exactly (S27).
//!
//! The history is kept as runs: all starts of one instant are one row. A start at t counts until
//! t + W, exclusive. The window carries the number of starts that count and the instant up to
//! which earlier ones were taken off, so that each run is visited twice in its life: when it stops
//! counting and when it is forgotten.
//!
//! Under an override with a shorter window, starts are counted within that but kept for the
//! window's own length (S33): the two visits come apart.
//!
//! Caveat: forgotten rows are removed a few at a time; `forgotten` says which are none of the
//! window's any more.

use super::{Opening, Runs};
use crate::terms::RateSettings;
use crate::time::Instant;
use core::ops::Bound::{Excluded, Included};
use serde::{Deserialize, Serialize};

/// Most forgotten rows that one start removes. More than one, so that they come to an end.
const FORGET_PER_START_MAX: usize = 8;

/// The counter of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sliding {
    /// Starts later than `horizon`.
    pub counted: u32,
    /// Starts at or before this were taken off `counted`.
    pub horizon: Instant,
    /// Starts at or before this are forgotten, though their rows may still be there.
    pub forgotten: Instant,
}

/// The latest start that a window knows.
pub(super) fn newest(window: u64, runs: &Runs) -> Option<Instant> {
    let all = (window, Instant::EPOCH)..=(window, Instant::from_us(i64::MAX));
    runs.range(all).next_back().map(|((_, at), _)| *at)
}

fn within(
    window: u64,
    after: Instant,
    until: Instant,
    runs: &Runs,
) -> impl Iterator<Item = (Instant, u32)> {
    // An empty range must not be asked for: its ends would cross.
    let until = until.max(after);
    runs.range((Excluded((window, after)), Included((window, until))))
        .map(|((_, at), starts)| (*at, *starts))
}

impl Sliding {
    pub(super) fn open(force: &RateSettings, now: Instant) -> Sliding {
        let horizon = now.plus_us(-force.length_us());
        Sliding {
            counted: 0,
            horizon,
            forgotten: horizon,
        }
    }

    /// Starts that count at `now`.
    pub(super) fn count_at(
        &self,
        window: u64,
        force: &RateSettings,
        now: Instant,
        runs: &Runs,
    ) -> u32 {
        let horizon = now.plus_us(-force.length_us());
        let left: u32 = within(window, self.horizon, horizon, runs)
            .map(|(_, starts)| starts)
            .sum();
        self.counted.saturating_sub(left)
    }

    pub(super) fn opening(
        &self,
        window: u64,
        force: &RateSettings,
        now: Instant,
        runs: &Runs,
    ) -> Opening {
        let mut counted = self.count_at(window, force, now, runs);
        if counted < force.rate {
            return Opening::Open;
        }
        if force.rate == 0 {
            return Opening::Never;
        }
        let horizon = now.plus_us(-force.length_us()).max(self.horizon);
        for (at, starts) in within(window, horizon, now, runs) {
            counted = counted.saturating_sub(starts);
            if counted < force.rate {
                return Opening::At(at.plus_us(force.length_us()));
            }
        }
        Opening::Never
    }

    /// Takes off what no longer counts at `now`, and forgets what is older than `kept_us`.
    fn settle(
        &mut self,
        window: u64,
        force: &RateSettings,
        kept_us: i64,
        now: Instant,
        runs: &Runs,
    ) {
        self.counted = self.count_at(window, force, now, runs);
        self.horizon = self.horizon.max(now.plus_us(-force.length_us()));
        self.forgotten = self.forgotten.max(now.plus_us(-kept_us));
    }

    pub(super) fn take(
        &mut self,
        window: u64,
        force: &RateSettings,
        kept_us: i64,
        now: Instant,
        runs: &mut Runs,
    ) {
        self.settle(window, force, kept_us, now, runs);
        self.counted += 1;
        if runs.change(&(window, now), |starts| *starts += 1).is_none() {
            runs.insert((window, now), 1);
        }
        for _ in 0..FORGET_PER_START_MAX {
            let rest = (window, Instant::EPOCH)..=(window, self.forgotten);
            let Some(key) = runs.range(rest).next().map(|(key, _)| *key) else {
                break;
            };
            runs.remove(&key);
        }
    }

    pub(super) fn give_back(&mut self, window: u64, taken_at: Instant, runs: &mut Runs) {
        let key = (window, taken_at);
        let Some(starts) = runs.get(&key).copied() else {
            return;
        };
        if starts == 1 {
            runs.remove(&key);
        } else {
            runs.change(&key, |starts| *starts -= 1);
        }
        if taken_at > self.horizon {
            self.counted = self.counted.saturating_sub(1);
        }
    }

    /// Counts anew within the length now in force.
    pub(super) fn refit(
        &mut self,
        window: u64,
        before: &RateSettings,
        kept_us: i64,
        after: &RateSettings,
        now: Instant,
        runs: &Runs,
    ) {
        self.settle(window, before, kept_us, now, runs);
        self.horizon = now.plus_us(-after.length_us()).max(self.forgotten);
        self.counted = within(window, self.horizon, now, runs)
            .map(|(_, starts)| starts)
            .sum();
    }
}
