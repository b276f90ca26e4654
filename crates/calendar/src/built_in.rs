//! The zones that are built in.
//!
//! The crate that carries them answers one question, the offset at an instant, and keeps its
//! list of changes to itself. So the list is made by asking once a day and, where two days
//! differ, halving the time between. Two changes within one day that cancel each other would
//! go unseen; the shortest span that the database has lasted four days (Freetown, 1939).

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::{IANA_TZDB_VERSION, Tz};

use crate::offsets::Offsets;
use crate::{CalendarError, TzdbSource, Zone, system};

/// The release of the time zone database that the zones built in were made from.
pub(crate) const VERSION: &str = IANA_TZDB_VERSION;

/// 1900-01-01T00:00:00Z. What was before is taken to be as it was then.
const FIRST_S: i64 = -2_208_988_800;

/// 2101-01-01T00:00:00Z. The zones built in have no change after 2099.
const LAST_S: i64 = 4_133_980_800;

const PROBE_EVERY_S: i64 = 86_400;

pub(crate) fn named(name: &str) -> Result<Zone, CalendarError> {
    system::check_name(name)?;
    open(name).ok_or_else(|| CalendarError::Unknown {
        name: name.to_owned(),
        directory: None,
    })
}

/// `None` where no zone of this name is built in.
pub(crate) fn open(name: &str) -> Option<Zone> {
    let zone: Tz = name.parse().ok()?;
    Some(Zone::new(
        name,
        TzdbSource::BuiltIn { version: VERSION },
        offsets(zone),
    ))
}

fn offsets(zone: Tz) -> Offsets {
    let mut before_s = FIRST_S;
    let mut before = offset_at(zone, before_s);
    let mut offsets = Offsets::new(before);
    while before_s < LAST_S {
        let probe_s = before_s + PROBE_EVERY_S;
        let probed = offset_at(zone, probe_s);
        if probed != before {
            offsets.push(first_with_other_offset(zone, before_s, probe_s), probed);
        }
        (before_s, before) = (probe_s, probed);
    }
    offsets
}

/// The first second after `before_s`, up to `after_s`, with the offset of the latter.
fn first_with_other_offset(zone: Tz, mut before_s: i64, mut after_s: i64) -> i64 {
    let before = offset_at(zone, before_s);
    while after_s - before_s > 1 {
        let middle_s = before_s + (after_s - before_s) / 2;
        if offset_at(zone, middle_s) == before {
            before_s = middle_s;
        } else {
            after_s = middle_s;
        }
    }
    after_s
}

fn offset_at(zone: Tz, at_s: i64) -> i64 {
    // Instants between FIRST_S and LAST_S are all within what a DateTime holds.
    let at = DateTime::from_timestamp(at_s, 0).unwrap_or_default();
    i64::from(
        zone.offset_from_utc_datetime(&at.naive_utc())
            .fix()
            .local_minus_utc(),
    )
}
