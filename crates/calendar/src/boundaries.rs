//! The rules of S24, for any list of offsets.
//!
//! Everything here is in whole seconds: offsets are, so boundaries are. "Later than t" for an
//! instant t within a second is then "at least the next whole second".

use crate::offsets::Offsets;

const MICROS_PER_SECOND: i64 = 1_000_000;
const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;

/// Where the local second, minute, hour and day that follow an instant begin: in microseconds
/// of Unix time, each strictly later than the instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundaries {
    /// The next second.
    pub second_us: i64,
    /// The next minute: the clock reads :00, or jumps forward into another minute.
    pub minute_us: i64,
    /// The next hour: the clock reads :00:00, or jumps forward into another hour.
    pub hour_us: i64,
    /// The next day: the local date is later than it was.
    pub day_us: i64,
}

pub(crate) fn after(offsets: &Offsets, at_us: i64) -> Boundaries {
    let real_s = at_us.div_euclid(MICROS_PER_SECOND);
    let (at_s, cycles_s) = offsets.within_list(real_s);
    let to_us = |boundary_s: i64| (boundary_s + cycles_s).saturating_mul(MICROS_PER_SECOND);
    Boundaries {
        second_us: to_us(at_s + 1),
        minute_us: to_us(next_reading(offsets, at_s, MINUTE_S)),
        hour_us: to_us(next_reading(offsets, at_s, HOUR_S)),
        day_us: to_us(next_day(offsets, at_s)),
    }
}

/// The first second after `at_s` at which the local clock reads a multiple of `unit_s`, or to
/// which it jumps forward out of the unit in which it was.
///
/// A jump back is no boundary: the clock reads a multiple after it, or it does not.
fn next_reading(offsets: &Offsets, at_s: i64, unit_s: i64) -> i64 {
    let mut from_s = at_s + 1;
    let mut span = offsets.span_at(at_s);
    loop {
        let reading_s = from_s + (-(from_s + span.offset_s)).rem_euclid(unit_s);
        let Some(next) = offsets.span_after(&span) else {
            return reading_s;
        };
        if reading_s < next.start_s {
            return reading_s;
        }
        let unit_before = (next.start_s - 1 + span.offset_s).div_euclid(unit_s);
        let unit_after = (next.start_s + next.offset_s).div_euclid(unit_s);
        if unit_after > unit_before {
            return next.start_s;
        }
        from_s = next.start_s;
        span = next;
    }
}

/// The first second after `at_s` whose local date is later than that of `at_s`.
///
/// Later, not merely other: a clock that is set back over midnight returns to a date that has
/// already begun.
fn next_day(offsets: &Offsets, at_s: i64) -> i64 {
    let mut from_s = at_s + 1;
    let mut span = offsets.span_at(at_s);
    let midnight_s = ((at_s + span.offset_s).div_euclid(DAY_S) + 1) * DAY_S;
    loop {
        let begins_s = from_s.max(midnight_s - span.offset_s);
        match offsets.span_after(&span) {
            Some(next) if begins_s >= next.start_s => {
                from_s = next.start_s;
                span = next;
            }
            _ => return begins_s,
        }
    }
}
