//! Where zones come from: names, zone files, the system's own zone, the zones built in.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fermata_calendar::{CalendarError, TzdbSource, Zone};
use tempfile::TempDir;

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;
const DAY_US: i64 = 86_400 * SECOND_US;
const NEW_YORK: &str = "America/New_York";
/// 2026-03-08T05:30:00Z in microseconds: half an hour into a day of 23 hours in New York.
const SHORT_DAY_US: i64 = 1_772_947_800 * SECOND_US;
/// 2026-03-08T05:00:00Z, when that day begins.
const SHORT_DAY_BEGIN_US: i64 = 1_772_946_000 * SECOND_US;
/// 2026-03-09T04:00:00Z, when that day ends.
const SHORT_DAY_END_US: i64 = 1_773_028_800 * SECOND_US;

#[test]
fn names_that_no_zone_can_have_are_refused() {
    let too_long = "A".repeat(65);
    let names = [
        "",
        "/",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "Europe/../Europe/Berlin",
        "Europe/",
        "/Europe/Berlin",
        "Europe//Berlin",
        "./UTC",
        "Europe/.hidden",
        "UTC\0",
        "Europe/Berlin\n",
        "Europe Berlin",
        "Europe\\Berlin",
        "Europé/Berlin",
        ":UTC",
        &too_long,
    ];
    for name in names {
        for opened in [Zone::named(name), Zone::built_in(name)] {
            let error = opened.expect_err(name);
            assert!(
                matches!(&error, CalendarError::BadName { .. }),
                "{name:?}: {error}"
            );
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
    }
}

#[test]
fn unknown_names_are_refused_with_where_they_were_looked_for() {
    let longest = "A".repeat(64);
    for name in [
        "Europe/Atlantis",
        "Europe",
        "europe/berlin",
        "tzdata",
        &longest,
    ] {
        let error = Zone::named_under(&super::root(), name)
            .expect_err(name)
            .to_string();
        assert!(
            error.contains(name) && error.contains("usr/share/zoneinfo"),
            "{error}"
        );
        let error = Zone::built_in(name).expect_err(name).to_string();
        assert!(
            error.contains(name) && error.contains("built in"),
            "{error}"
        );
    }
}

#[test]
fn zones_that_count_leap_seconds_are_refused() {
    let error = Zone::named("right/Europe/Berlin").expect_err("a zone below right/");
    assert!(
        matches!(error, CalendarError::CountsLeapSeconds { .. }),
        "{error}"
    );
}

#[test]
fn both_sources_agree_on_every_zone_they_share() {
    for name in super::zone_names() {
        let from_file = Zone::named_under(&super::root(), &name).expect("a zone file");
        let built_in = Zone::built_in(&name).expect("a zone built in");
        assert_eq!(from_file.source().to_string(), "system 2025b", "{name}");
        assert_eq!(built_in.source().to_string(), "built-in 2025b", "{name}");
        assert_eq!((from_file.name(), built_in.name()), (&*name, &*name));
        // Every 6 hours and a bit from 1970 to 2099: on both sides of every change.
        let step_us = DAY_US / 4 + 1_000_003;
        for at_us in (0..)
            .map(|step| step * step_us)
            .take_while(|at_us| *at_us < 129 * 365 * DAY_US)
        {
            assert_eq!(
                from_file.boundaries_after(at_us),
                built_in.boundaries_after(at_us),
                "{name}, {at_us} us"
            );
        }
    }
}

#[test]
fn every_zone_built_in_opens_on_this_machine() {
    for zone in chrono_tz::TZ_VARIANTS {
        let opened = Zone::named(zone.name());
        assert_eq!(opened.expect("a known zone").name(), zone.name());
    }
}

#[test]
fn newer_zone_files_are_preferred_and_older_ones_are_not() {
    let cases = [
        (
            Some(("tzdata.zi", "# version 2026c\n# and so on\n")),
            "system 2026c",
        ),
        (Some(("tzdata.zi", "# version 2025b\n")), "system 2025b"),
        (Some(("tzdata.zi", "# version 2025a\n")), "built-in 2025b"),
        (Some(("+VERSION", "2026a\n")), "system 2026a"),
        (Some(("+VERSION", "2024b")), "built-in 2025b"),
        (Some(("tzdata.zi", "")), "system, unknown version"),
        (None, "system, unknown version"),
    ];
    for (version_file, source) in cases {
        let machine = Machine::new();
        machine.add_zone(NEW_YORK);
        if let Some((file, text)) = version_file {
            fs::write(machine.zone_files().join(file), text).expect("a written file");
        }
        let zone = Zone::named_under(machine.root(), NEW_YORK).expect("a zone");
        assert_eq!(zone.source().to_string(), source, "{version_file:?}");
        assert_eq!(zone.boundaries_after(SHORT_DAY_US).day_us, SHORT_DAY_END_US);
    }
}

#[test]
fn zones_without_a_file_are_built_in() {
    let machine = Machine::new();
    let zone = Zone::named_under(machine.root(), NEW_YORK).expect("a zone built in");
    assert_eq!(zone.source(), &TzdbSource::BuiltIn { version: "2025b" });
    assert_eq!(zone.boundaries_after(SHORT_DAY_US).day_us, SHORT_DAY_END_US);
}

#[test]
fn old_zone_files_are_used_for_zones_that_are_not_built_in() {
    let machine = Machine::new();
    machine.add_zone_as(NEW_YORK, "Mars/Olympus");
    fs::write(machine.zone_files().join("tzdata.zi"), "# version 2019a\n").expect("a file");
    let zone = Zone::named_under(machine.root(), "Mars/Olympus").expect("a zone");
    assert_eq!(zone.source().to_string(), "system 2019a");
}

#[test]
fn damaged_zone_files_are_named_and_never_replaced_by_what_is_built_in() {
    let whole = fs::read(super::root().join("usr/share/zoneinfo").join(NEW_YORK)).expect("a file");
    let machine = Machine::new();
    machine.add_zone(NEW_YORK);
    let path = machine.zone_files().join(NEW_YORK);
    let cuts = (0..whole.len() - 1)
        .step_by(97)
        .map(|cut| whole[..cut].to_vec());
    let others = [
        b"TZif".to_vec(),
        b"not a zone".to_vec(),
        vec![0; 1024 * 1024],
    ];
    for damaged in cuts.chain(others) {
        fs::write(&path, &damaged).expect("a written file");
        let error = Zone::named_under(machine.root(), NEW_YORK).expect_err("a damaged file");
        assert!(matches!(&error, CalendarError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(NEW_YORK), "{error}");
    }
    fs::write(&path, vec![0; 1024 * 1024 + 1]).expect("a written file");
    let error = Zone::named_under(machine.root(), NEW_YORK).expect_err("a file too large");
    assert!(matches!(&error, CalendarError::TooLarge { .. }), "{error}");
}

#[test]
fn the_systems_own_zone_is_found() {
    struct Case {
        link: Option<&'static str>,
        text: Option<&'static str>,
        expected: &'static str,
    }
    let cases = [
        Case {
            link: Some("/usr/share/zoneinfo/Asia/Kolkata"),
            text: None,
            expected: "Asia/Kolkata",
        },
        Case {
            link: Some("../usr/share/zoneinfo/UTC"),
            text: None,
            expected: "UTC",
        },
        // The link is what every program on the machine obeys; the text can be left over.
        Case {
            link: Some("/usr/share/zoneinfo/Asia/Kolkata"),
            text: Some("Europe/Berlin\n"),
            expected: "Asia/Kolkata",
        },
        Case {
            link: Some("/elsewhere"),
            text: Some("Europe/Berlin\n"),
            expected: "Europe/Berlin",
        },
        Case {
            link: None,
            text: Some("  Europe/Berlin  \n"),
            expected: "Europe/Berlin",
        },
        Case {
            link: None,
            text: Some("\n"),
            expected: "UTC",
        },
        Case {
            link: None,
            text: None,
            expected: "UTC",
        },
    ];
    for Case {
        link,
        text,
        expected,
    } in cases
    {
        let machine = Machine::new();
        if let Some(link) = link {
            symlink(link, machine.etc().join("localtime")).expect("a link");
        }
        if let Some(text) = text {
            fs::write(machine.etc().join("timezone"), text).expect("a written file");
        }
        let zone = Zone::system_under(machine.root()).expect("a zone");
        assert_eq!(zone.name(), expected, "{link:?} {text:?}");
    }
}

#[test]
fn a_local_time_file_without_a_name_is_obeyed() {
    let machine = Machine::new();
    let file = super::root().join("usr/share/zoneinfo").join(NEW_YORK);
    fs::copy(file, machine.etc().join("localtime")).expect("a copied file");
    let zone = Zone::system_under(machine.root()).expect("a zone");
    assert_eq!(zone.name(), "localtime");
    assert_eq!(zone.boundaries_after(SHORT_DAY_US).day_us, SHORT_DAY_END_US);
}

#[test]
fn a_system_zone_that_is_unknown_is_an_error() {
    let machine = Machine::new();
    for name in ["Europe/Atlantis", "../../etc/passwd"] {
        fs::write(machine.etc().join("timezone"), name).expect("a written file");
        let error = Zone::system_under(machine.root()).expect_err("an unknown zone");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn this_machine_has_a_zone() {
    let zone = Zone::system().expect("the system's zone");
    assert!(!zone.name().is_empty());
}

#[test]
fn any_instant_has_boundaries_and_they_are_later() {
    // The years 1 and 9999, and as far beyond as an i64 reaches.
    let year_1_us = -62_135_596_800 * SECOND_US;
    let year_9999_us = 253_402_300_799 * SECOND_US;
    for name in super::zone_names() {
        for zone in [
            Zone::named_under(&super::root(), &name),
            Zone::built_in(&name),
        ] {
            let zone = zone.expect("a zone");
            for at_us in [
                i64::MIN,
                i64::MIN + 1,
                year_1_us,
                -1,
                0,
                1,
                year_9999_us,
                i64::MAX / 2,
            ] {
                let boundaries = zone.boundaries_after(at_us);
                assert!(at_us < boundaries.second_us, "{name}, {at_us}");
                assert!(
                    boundaries.second_us <= boundaries.minute_us,
                    "{name}, {at_us}"
                );
                assert!(
                    boundaries.minute_us <= boundaries.hour_us,
                    "{name}, {at_us}"
                );
                assert!(boundaries.hour_us <= boundaries.day_us, "{name}, {at_us}");
                assert!(
                    boundaries.day_us <= at_us.saturating_add(26 * HOUR_US),
                    "{name}, {at_us}"
                );
            }
            let boundaries = zone.boundaries_after(i64::MAX);
            assert_eq!(
                (boundaries.second_us, boundaries.day_us),
                (i64::MAX, i64::MAX)
            );
        }
    }
}

#[test]
fn zone_files_have_rules_for_ever() {
    let zone = Zone::named_under(&super::root(), NEW_YORK).expect("a zone");
    let cycle_us = 146_097 * DAY_US;
    for cycle in 0..=18 {
        // 2426-03-08 is a short day as 2026-03-08 is, and so on to the year 9226.
        let later_us = cycle * cycle_us;
        let begin = zone.boundaries_after(SHORT_DAY_US - HOUR_US + later_us);
        let end = zone.boundaries_after(SHORT_DAY_US + later_us);
        assert_eq!(begin.day_us, SHORT_DAY_BEGIN_US + later_us, "cycle {cycle}");
        assert_eq!(end.day_us, SHORT_DAY_END_US + later_us, "cycle {cycle}");
    }
    // 2499-12-31T23:59:59.5 in New York, where one looked-up cycle ends.
    let last_us = 16_725_243_600 * SECOND_US;
    assert_eq!(
        zone.boundaries_after(last_us - SECOND_US / 2).day_us,
        last_us
    );
    assert_eq!(zone.boundaries_after(last_us).day_us, last_us + DAY_US);
}

/// A file system with an empty `etc` and no zone files yet.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine {
            root: TempDir::new().expect("a temporary folder"),
        };
        fs::create_dir_all(machine.etc()).expect("a folder");
        fs::create_dir_all(machine.zone_files()).expect("a folder");
        machine
    }

    fn root(&self) -> &Path {
        self.root.path()
    }

    fn etc(&self) -> PathBuf {
        self.root().join("etc")
    }

    fn zone_files(&self) -> PathBuf {
        self.root().join("usr/share/zoneinfo")
    }

    fn add_zone(&self, name: &str) {
        self.add_zone_as(name, name);
    }

    fn add_zone_as(&self, from: &str, name: &str) {
        let path = self.zone_files().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::copy(super::root().join("usr/share/zoneinfo").join(from), path).expect("a copied file");
    }
}
