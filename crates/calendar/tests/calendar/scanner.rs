//! S24 read word by word, second by second, against what the calendar computes.
//!
//! The scanner knows no list of changes and does no arithmetic on offsets: it asks a date-time
//! library what the clock on the wall shows in each second of a stretch of time around a change,
//! and looks for the first second that fits the words of the rule.

use std::env;

use chrono::{DateTime, Datelike, Offset, Timelike};
use fermata_calendar::{Boundaries, Zone};
use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECOND_US: i64 = 1_000_000;
const HOUR_S: i64 = 3_600;

/// Instants are tried this long before and after a change.
const AROUND_S: i64 = 2 * HOUR_S;
/// No local day since 1970 was longer.
const DAY_S_MAX: i64 = 26 * HOUR_S;
const CHANGES_PER_ZONE: usize = 2;
const INSTANTS_PER_CHANGE: usize = 40;

/// What the clock on the wall shows during one second.
struct Reading {
    date: (i32, u32, u32),
    hour: u32,
    minute: u32,
    second: u32,
    /// Ahead of UTC; only compared, to tell a jump forward from one back.
    ahead_s: i32,
}

impl Reading {
    fn starts_minute(&self, before: &Reading) -> bool {
        let jumps_to_another = self.ahead_s > before.ahead_s
            && (self.date, self.hour, self.minute) != (before.date, before.hour, before.minute);
        self.second == 0 || jumps_to_another
    }

    fn starts_hour(&self, before: &Reading) -> bool {
        let jumps_to_another =
            self.ahead_s > before.ahead_s && (self.date, self.hour) != (before.date, before.hour);
        (self.minute == 0 && self.second == 0) || jumps_to_another
    }
}

#[test]
fn zone_files_give_what_a_scan_gives() {
    let root = super::root();
    scan_zones(|name| {
        let bytes = std::fs::read(root.join("usr/share/zoneinfo").join(name)).expect("zone file");
        let rules = TimeZone::tzif(name, &bytes).expect("a zone file");
        let zone = Zone::named_under(&root, name).expect("a zone");
        (zone, move |second_s| {
            let at = Timestamp::from_second(second_s).expect("an instant in range");
            let ahead_s = rules.to_offset(at).seconds();
            let local = rules.to_datetime(at);
            Reading {
                date: (
                    local.year().into(),
                    local.month() as u32,
                    local.day() as u32,
                ),
                hour: local.hour() as u32,
                minute: local.minute() as u32,
                second: local.second() as u32,
                ahead_s,
            }
        })
    });
}

#[test]
fn zones_built_in_give_what_a_scan_gives() {
    scan_zones(|name| {
        let rules: chrono_tz::Tz = name.parse().expect("a zone built in");
        let zone = Zone::built_in(name).expect("a zone");
        (zone, move |second_s| {
            let at = DateTime::from_timestamp(second_s, 0).expect("an instant in range");
            let local = at.with_timezone(&rules);
            Reading {
                date: (local.year(), local.month(), local.day()),
                hour: local.hour(),
                minute: local.minute(),
                second: local.second(),
                ahead_s: local.offset().fix().local_minus_utc(),
            }
        })
    });
}

/// Tries instants around some changes of every zone, chosen by a seed.
fn scan_zones<R: Fn(i64) -> Reading>(open: impl Fn(&str) -> (Zone, R)) {
    let seed = env::var("FERMATA_SEED").map_or(20_261_130, |text| text.parse().expect("a seed"));
    let mut random = Random { state: seed };
    let mut instants = 0;
    for name in super::zone_names() {
        let (zone, read) = open(&name);
        let changes = changes(&name);
        for _ in 0..CHANGES_PER_ZONE.min(changes.len()) {
            let change_s = changes[random.below(changes.len() as u64) as usize];
            let scan = Scan::new(change_s - AROUND_S, &read);
            for at_us in instants_around(change_s, &mut random) {
                instants += 1;
                assert_eq!(
                    zone.boundaries_after(at_us),
                    scan.boundaries_after(at_us),
                    "{name}, {at_us} us\nREPRODUCE WITH: \
                     FERMATA_SEED={seed} cargo test -p fermata-calendar scan"
                );
            }
        }
    }
    assert!(instants > 2_000, "only {instants} instants were tried");
}

/// All changes of a zone's offset from 1970 to 2050.
fn changes(name: &str) -> Vec<i64> {
    let bytes = std::fs::read(super::root().join("usr/share/zoneinfo").join(name));
    let rules = TimeZone::tzif(name, &bytes.expect("zone file")).expect("a zone file");
    rules
        .following(Timestamp::UNIX_EPOCH)
        .map(|change| change.timestamp().as_second())
        .take_while(|change_s| *change_s < 80 * 366 * 86_400)
        .collect()
}

fn instants_around(change_s: i64, random: &mut Random) -> Vec<i64> {
    let mut instants = vec![
        change_s * SECOND_US - 1,
        change_s * SECOND_US,
        change_s * SECOND_US + 1,
    ];
    while instants.len() < INSTANTS_PER_CHANGE {
        let offset_us = random.below((2 * AROUND_S * SECOND_US) as u64) as i64;
        let at_us = (change_s - AROUND_S) * SECOND_US + offset_us;
        // Whole seconds, minutes and half hours are where an off-by-one would show.
        let grid_us = [1, SECOND_US, 60 * SECOND_US, 1800 * SECOND_US][random.below(4) as usize];
        let nudge_us = random.below(3) as i64 - 1;
        instants.push((at_us.div_euclid(grid_us) * grid_us + nudge_us).max(
            // The scan has nothing before its first second.
            (change_s - AROUND_S) * SECOND_US,
        ));
    }
    instants
}

/// The readings of every second of a stretch of time.
struct Scan {
    first_s: i64,
    readings: Vec<Reading>,
}

impl Scan {
    fn new(first_s: i64, read: impl Fn(i64) -> Reading) -> Scan {
        let readings = (first_s..first_s + 2 * AROUND_S + DAY_S_MAX)
            .map(read)
            .collect();
        Scan { first_s, readings }
    }

    fn boundaries_after(&self, at_us: i64) -> Boundaries {
        let at = (at_us.div_euclid(SECOND_US) - self.first_s) as usize;
        let first = |fits: &dyn Fn(&Reading, &Reading) -> bool| {
            let found = (at + 1..self.readings.len())
                .find(|second| fits(&self.readings[*second], &self.readings[second - 1]));
            (self.first_s + found.expect("a boundary within the scan") as i64) * SECOND_US
        };
        let date = self.readings[at].date;
        Boundaries {
            second_us: first(&|_, _| true),
            minute_us: first(&|reading, before| reading.starts_minute(before)),
            hour_us: first(&|reading, before| reading.starts_hour(before)),
            day_us: first(&|reading, _| reading.date > date),
        }
    }
}

/// SplitMix64: small, and the same everywhere.
struct Random {
    state: u64,
}

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
