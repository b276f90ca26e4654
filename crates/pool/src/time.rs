//! Instants and stamps: time as data.
//!
//! The pool never reads a clock. The leader reads one, once per entry, and writes what it saw
//! into the entry as a [`Stamp`]: the instant, and where the local second, minute, hour and day
//! that hold it end. Applying an entry is then the same on every replica, whatever zone or clock
//! that replica has (S36, S37).
//!
//! Inside, an instant is a whole number of microseconds of Unix time. Everything shown to people
//! rounds *up* to milliseconds (S30), so that nobody who waits for a shown instant comes too early.
//!
//! Caveat: leap seconds do not exist here, as in Unix time.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Microseconds in a second.
pub const SECOND_US: i64 = 1_000_000;

/// The latest instant that the pool works with, in microseconds: the end of the year 9999.
/// Later ones are brought down to it, so that adding any allowed duration cannot overflow.
pub const INSTANT_US_MAX: i64 = 253_402_300_800 * SECOND_US;

/// A point in time: microseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Instant(i64);

impl Instant {
    /// The beginning of Unix time: earlier than any stamp of a real clock.
    pub const EPOCH: Instant = Instant(0);

    /// The instant so many microseconds after 1970, brought into `0..=INSTANT_US_MAX`.
    #[must_use]
    pub const fn from_us(us: i64) -> Instant {
        if us < 0 {
            Instant(0)
        } else if us > INSTANT_US_MAX {
            Instant(INSTANT_US_MAX)
        } else {
            Instant(us)
        }
    }

    /// The instant so many milliseconds after 1970.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Instant {
        Instant::from_us(ms.saturating_mul(1_000))
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn us(self) -> i64 {
        self.0
    }

    /// Milliseconds since 1970, rounded up (S30).
    #[must_use]
    pub const fn ms_up(self) -> i64 {
        (self.0 + 999).div_euclid(1_000)
    }

    /// This instant and so many microseconds; never beyond [`INSTANT_US_MAX`].
    #[must_use]
    pub const fn plus_us(self, us: i64) -> Instant {
        Instant::from_us(self.0.saturating_add(us))
    }

    /// This instant and so many seconds; never beyond [`INSTANT_US_MAX`].
    #[must_use]
    pub const fn plus_s(self, seconds: u64) -> Instant {
        let seconds = if seconds > 400_000_000_000 {
            400_000_000_000
        } else {
            seconds
        };
        self.plus_us(seconds as i64 * SECOND_US)
    }

    /// Microseconds from `earlier` to this instant; 0 if it is not earlier.
    #[must_use]
    pub const fn since_us(self, earlier: Instant) -> i64 {
        if self.0 > earlier.0 {
            self.0 - earlier.0
        } else {
            0
        }
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.ms_up();
        let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
        let (year, month, day) = civil_from_days(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            of_day / 3_600_000,
            of_day / 60_000 % 60,
            of_day / 1_000 % 60,
            of_day % 1_000
        )
    }
}

/// Year, month and day of the proleptic Gregorian calendar for a number of days since 1970,
/// by counting in 400-year cycles that begin on the first of March.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Where the local second, minute, hour and day that hold an instant end (S24), in the zone of
/// the leader that made the stamp. Each is later than the instant it was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Boundaries {
    /// The next local second.
    pub second: Instant,
    /// The next local minute.
    pub minute: Instant,
    /// The next local hour.
    pub hour: Instant,
    /// The next local midnight, or what stands for it.
    pub day: Instant,
}

impl Boundaries {
    /// The boundaries of UTC after an instant.
    #[must_use]
    pub const fn utc(at: Instant) -> Boundaries {
        Boundaries {
            second: next_multiple(at, 1),
            minute: next_multiple(at, 60),
            hour: next_multiple(at, 3_600),
            day: next_multiple(at, 86_400),
        }
    }
}

/// The end of the window `[k·W, (k+1)·W)` of Unix time that holds an instant (S25).
#[must_use]
pub(crate) const fn next_multiple(at: Instant, window_s: u32) -> Instant {
    let length = window_s as i64 * SECOND_US;
    Instant::from_us((at.us().div_euclid(length) + 1) * length)
}

/// Where the local boundaries after an instant lie: those that the leader will stamp then. Asked
/// only to look ahead; what an entry does goes by its stamp.
pub type Calendar<'a> = &'a dyn Fn(Instant) -> Boundaries;

/// What the leader writes into an entry: the instant, and the local boundaries after it (S36).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// When the entry happens: the later of the leader's clock and the last stamp it knew.
    pub at: Instant,
    /// The local boundaries after exactly that instant.
    pub boundaries: Boundaries,
}

impl Stamp {
    /// A stamp by the boundaries of UTC.
    #[must_use]
    pub const fn utc(at: Instant) -> Stamp {
        Stamp {
            at,
            boundaries: Boundaries::utc(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn shows_as_rfc_3339_rounded_up() {
        assert_eq!(Instant::from_us(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Instant::from_us(1).to_string(), "1970-01-01T00:00:00.001Z");
        assert_eq!(
            Instant::from_ms(1_772_452_817_250).to_string(),
            "2026-03-02T12:00:17.250Z"
        );
        assert_eq!(
            Instant::from_ms(951_782_399_999).to_string(),
            "2000-02-28T23:59:59.999Z"
        );
        assert_eq!(
            Instant::from_ms(951_825_600_000).to_string(),
            "2000-02-29T12:00:00.000Z"
        );
    }

    #[test]
    fn no_allowed_sum_overflows() {
        let last = Instant::from_us(i64::MAX);
        assert_eq!(last.us(), INSTANT_US_MAX);
        assert_eq!(last.plus_s(u64::MAX), last);
        assert_eq!(next_multiple(last, 604_800), last);
    }
}
