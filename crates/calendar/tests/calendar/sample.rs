//! The rows of `boundaries_sample.csv`, from both sources.

use fermata_calendar::{Boundaries, CalendarError, Zone};

const SAMPLE: &str = include_str!("../data/boundaries_sample.csv");
const ROWS: usize = 150;

#[test]
fn sample_holds_for_the_zones_built_in() {
    check_sample(Zone::built_in);
}

#[test]
fn sample_holds_for_zone_files() {
    check_sample(|name| Zone::named_under(&super::root(), name));
}

fn check_sample(open: impl Fn(&str) -> Result<Zone, CalendarError>) {
    let mut wrong = Vec::new();
    let rows: Vec<&str> = SAMPLE.lines().skip(1).collect();
    for row in &rows {
        let fields: Vec<&str> = row.split(',').collect();
        let zone = open(fields[0]).expect("a zone of the sample");
        let at_ms: i64 = fields[1].parse().expect("t_ms");
        let expires_ms: i64 = fields[3].parse().expect("expires_ms");
        let boundaries = zone.boundaries_after(at_ms * 1000);
        let got_us = of_window(&boundaries, fields[2]);
        if got_us != expires_ms * 1000 {
            wrong.push(format!("{row}\n  got {} ms", got_us / 1000));
        }
    }
    assert_eq!(rows.len(), ROWS, "rows of the sample");
    assert!(
        wrong.is_empty(),
        "{} rows are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn of_window(boundaries: &Boundaries, window_s: &str) -> i64 {
    match window_s {
        "1" => boundaries.second_us,
        "60" => boundaries.minute_us,
        "3600" => boundaries.hour_us,
        "86400" => boundaries.day_us,
        other => panic!("a window of {other} seconds is not in S24"),
    }
}
