//! Instants as a person in an incident types them: `14:00`, `2h`, or RFC 3339.
//!
//! # Caveats
//!
//! - A time of day is of the zone of this machine, where the command is typed, which need not be
//!   that of the conductors; the answer shows the instant in UTC.
//! - What is counted from now is counted from this machine's clock.

use fermata_api::time::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

/// Longest duration, in seconds: 366 days (S3).
const DURATION_S_MAX: u64 = 366 * 86_400;

/// When something ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// At this instant.
    At(Timestamp),
    /// When a clock of this zone next shows this time of day.
    Clock(Time),
}

/// Reads `14:00`, `14:00:30`, or an RFC 3339 instant.
pub(crate) fn until(text: &str) -> Result<Until, String> {
    if let Some(at) = Timestamp::parse(text) {
        return Ok(Until::At(at));
    }
    let is_clock = text.contains(':') && text.bytes().all(|b| b.is_ascii_digit() || b == b':');
    let time = text.parse().ok().filter(|_| is_clock);
    time.map(Until::Clock).ok_or_else(|| {
        "a time of day, as in 14:00, or an RFC 3339 instant, as in 2026-03-02T14:00:00Z, is allowed"
            .to_owned()
    })
}

/// Reads a number with its unit, as seconds.
pub(crate) fn duration_s(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let seconds = number.zip(unit_s).and_then(|(n, unit)| n.checked_mul(unit));
    seconds
        .filter(|seconds| (1..=DURATION_S_MAX).contains(seconds))
        .ok_or_else(|| {
            "a number with its unit, as in 90s, 15m, 2h or 1d, up to 366d, is allowed".to_owned()
        })
}

/// So many seconds from now.
pub(crate) fn after_s(duration_s: u64) -> Timestamp {
    let duration_ms = duration_s.saturating_mul(1_000);
    Timestamp::from_unix_ms(now().unix_ms().saturating_add_unsigned(duration_ms))
}

/// When a clock of this machine's zone next shows this time of day.
pub(crate) fn next_here(time: Time) -> Result<Timestamp, jiff::Error> {
    next(time, now(), &TimeZone::try_system()?)
}

fn now() -> Timestamp {
    Timestamp::from_unix_ms(jiff::Timestamp::now().as_millisecond())
}

/// The instant at which a clock next shows this time of day, after now. Shown twice in a night,
/// either counts; left out in a night, it is what it would have been without the change of clocks.
fn next(time: Time, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, jiff::Error> {
    let now = jiff::Timestamp::from_millisecond(now.unix_ms())?;
    let today = zone.to_datetime(now).date();
    let on = |date: Date| zone.to_ambiguous_timestamp(date.to_datetime(time));
    let tomorrow = on(today.tomorrow()?).compatible()?;
    let today = [on(today).compatible()?, on(today).later()?];
    let at = today.into_iter().find(|at| *at > now).unwrap_or(tomorrow);
    Ok(Timestamp::from_unix_ms(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_next_one() {
        // Forward on the last Sunday of March at 02:00, back on the last of October at 03:00.
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        let cases = [
            (
                "14:00",
                "2026-03-02T12:59:59.999Z",
                "2026-03-02T13:00:00.000Z",
            ),
            (
                "14:00",
                "2026-03-02T13:00:00.000Z",
                "2026-03-03T13:00:00.000Z",
            ),
            (
                "00:00",
                "2026-03-02T12:00:00.000Z",
                "2026-03-02T23:00:00.000Z",
            ),
            (
                "14:00:30",
                "2026-07-02T12:00:29Z",
                "2026-07-02T12:00:30.000Z",
            ),
            ("14:00", "2026-03-28T13:00:00Z", "2026-03-29T12:00:00.000Z"),
            ("02:30", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00.000Z"),
            ("02:30", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00.000Z"),
            ("02:30", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00.000Z"),
            ("02:30", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00.000Z"),
        ];
        for (clock, now, expected) in cases {
            let Ok(Until::Clock(time)) = until(clock) else {
                panic!("{clock} is a time of day");
            };
            let now = Timestamp::parse(now).expect("an instant");
            let at = next(time, now, &berlin).expect("in range");
            assert_eq!(at.to_string(), expected, "{clock} after {now}");
        }
    }

    #[test]
    fn an_instant_is_taken_as_it_is() {
        let at = Timestamp::parse("2026-03-02T14:00:00+01:00");
        assert_eq!(until("2026-03-02T14:00:00+01:00").ok(), at.map(Until::At));
        for wrong in [
            "",
            "14",
            "24:00",
            "14:60",
            "2pm",
            "14:00Z",
            "2026-03-02",
            "T14:00",
        ] {
            assert!(until(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_duration_has_a_unit() {
        let cases = [
            ("1s", 1),
            ("90s", 90),
            ("15m", 900),
            ("2h", 7_200),
            ("366d", 31_622_400),
        ];
        for (text, seconds) in cases {
            assert_eq!(duration_s(text), Ok(seconds));
        }
        for wrong in [
            "",
            "5",
            "m",
            "0m",
            "-1m",
            "1.5h",
            "1w",
            "367d",
            "1h30m",
            "18446744073709551615d",
        ] {
            assert!(duration_s(wrong).is_err(), "{wrong:?}");
        }
    }
}
