//! A token bucket: a steady pace with room for a burst, exact in integers (S28).
//!
//! A token is as many units as the window has microseconds; every microsecond brings as many units
//! as the rate. So `rate` tokens come in exactly one window, nothing is ever rounded while time
//! passes, and a million tokens later not one is missing. Only a change of the window's length
//! rescales the units, downwards (S33).
//!
//! Caveat: the largest bucket, a million tokens of seven days, has 6·10^17 units: it fits 64 bits;
//! products with time are made in 128.

use super::Opening;
use crate::terms::RateSettings;
use crate::time::Instant;
use serde::{Deserialize, Serialize};

/// The contents of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenBucket {
    /// Units that were in it at `at`.
    pub units: u64,
    /// When.
    pub at: Instant,
}

/// Units of one token.
fn token(force: &RateSettings) -> u64 {
    force.length_us().unsigned_abs()
}

/// Units of a full bucket.
fn capacity(force: &RateSettings) -> u64 {
    u64::from(force.burst) * token(force)
}

impl TokenBucket {
    pub(super) fn open(force: &RateSettings, now: Instant) -> TokenBucket {
        TokenBucket {
            units: capacity(force),
            at: now,
        }
    }

    fn units_at(&self, force: &RateSettings, now: Instant) -> u64 {
        let elapsed_us = u128::from(now.since_us(self.at).unsigned_abs());
        let refilled = u128::from(self.units) + elapsed_us * u128::from(force.rate);
        u64::try_from(refilled).map_or(capacity(force), |units| units.min(capacity(force)))
    }

    /// Whole tokens at `now`.
    pub(super) fn tokens_at(&self, force: &RateSettings, now: Instant) -> u32 {
        u32::try_from(self.units_at(force, now) / token(force)).unwrap_or(u32::MAX)
    }

    /// When it holds so many units; now or earlier: it does already.
    fn reaches(&self, units: u64, force: &RateSettings) -> Option<Instant> {
        let missing = units.saturating_sub(self.units);
        if missing == 0 {
            return Some(self.at);
        }
        let wait_us = missing.div_ceil(u64::from(force.rate).max(1));
        (force.rate > 0).then(|| self.at.plus_us(i64::try_from(wait_us).unwrap_or(i64::MAX)))
    }

    pub(super) fn opening(&self, force: &RateSettings, now: Instant) -> Opening {
        if self.units_at(force, now) >= token(force) {
            return Opening::Open;
        }
        match self.reaches(token(force), force) {
            Some(at) if force.burst > 0 => Opening::At(at),
            _ => Opening::Never,
        }
    }

    /// When it is full.
    pub(super) fn full_at(&self, force: &RateSettings) -> Instant {
        self.reaches(capacity(force), force)
            .unwrap_or(Instant::from_us(i64::MAX))
    }

    pub(super) fn take(&mut self, force: &RateSettings, now: Instant) {
        let units = self.units_at(force, now).saturating_sub(token(force));
        *self = TokenBucket { units, at: now };
    }

    pub(super) fn give_back(&mut self, force: &RateSettings, now: Instant) {
        let units = self.units_at(force, now) + token(force);
        *self = TokenBucket {
            units: units.min(capacity(force)),
            at: now,
        };
    }

    pub(super) fn refit(&mut self, before: &RateSettings, after: &RateSettings, now: Instant) {
        let units = u128::from(self.units_at(before, now));
        let rescaled = units * u128::from(token(after)) / u128::from(token(before));
        let units = u64::try_from(rescaled).map_or(capacity(after), |it| it.min(capacity(after)));
        *self = TokenBucket { units, at: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Align, Style};

    /// Beyond what floating point holds exactly: one unit more or less is seen.
    #[test]
    fn nothing_is_rounded_however_large_the_bucket_is() {
        let force = RateSettings {
            rate: 1,
            window_s: 604_800,
            style: Style::TokenBucket,
            align: Align::Utc,
            burst: 1_000_000,
        };
        let full = capacity(&force);
        let bucket = TokenBucket {
            units: full - 3,
            at: Instant::EPOCH,
        };
        let units = (0..5).map(|us| bucket.units_at(&force, Instant::EPOCH.plus_us(us)));
        let units: alloc::vec::Vec<u64> = units.collect();
        assert_eq!(units, [full - 3, full - 2, full - 1, full, full]);
        assert_eq!(bucket.full_at(&force), Instant::EPOCH.plus_us(3));
    }
}
