//! The same log gives the same state, applied from its start or from any snapshot on (S37).

#![expect(clippy::expect_used, reason = "a test says what it expects")]

#[path = "../examples/run_cases/story.rs"]
mod story;

use fermata_pool::Pool;
use fermata_pool::command::Entry;
use fermata_pool::snapshot::{Restore, RestoreError, Row};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hasher};

/// The log of every case, with the name of its file.
fn logs() -> Vec<(String, Vec<Entry>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut logs = Vec::new();
    for file in std::fs::read_dir(folder).expect("the cases are there") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|it| it == "json") {
            let text = std::fs::read_to_string(&path).expect("a readable case");
            let log = story::replay(&text).expect("a case that passes");
            logs.push((path.display().to_string(), log));
        }
    }
    assert!(logs.len() >= 50, "only {} cases were found", logs.len());
    logs
}

/// A row as it comes back from a disk: written, and read again.
fn over_the_disk(row: &Row<'_>) -> Row<'static> {
    fn same<'a, T: Serialize + Deserialize<'a>>(value: &T, text: &'a mut String) -> T {
        *text = serde_json::to_string(value).expect("rows can be written");
        serde_json::from_str(text).expect("rows can be read")
    }
    let mut text = String::new();
    let read: Row<'_> = same(row, &mut text);
    match read {
        Row::Header(header, digest) => Row::Header(header, digest),
        Row::Event(it) => Row::Event(std::borrow::Cow::Owned(it.into_owned())),
        Row::Category(it) => Row::Category(std::borrow::Cow::Owned(it.into_owned())),
        Row::Server(key, it) => Row::Server(key, std::borrow::Cow::Owned(it.into_owned())),
        Row::Terms(key, it) => Row::Terms(key, std::borrow::Cow::Owned(it.into_owned())),
        Row::Scope(key, it) => Row::Scope(key, std::borrow::Cow::Owned(it.into_owned())),
        Row::Job(key, it) => Row::Job(key, std::borrow::Cow::Owned(it.into_owned())),
        Row::Params(key, it) => Row::Params(key, std::borrow::Cow::Owned(it.into_owned())),
        Row::Run(window, at, starts) => Row::Run(window, at, starts),
        Row::Stretch(kind, begin, gate) => Row::Stretch(kind, begin, gate),
        Row::Audit(key, it) => Row::Audit(key, std::borrow::Cow::Owned(it.into_owned())),
    }
}

/// Applies a log from its start, and walks the state as it was after `snapshot_at` entries while
/// the later ones are applied, `rows_max` rows between two entries.
fn walk_while_applying(
    log: &[Entry],
    snapshot_at: usize,
    rows_max: usize,
) -> (Pool, Vec<Row<'static>>) {
    let mut pool = Pool::new();
    let mut rows = Vec::new();
    let mut walking = false;
    for (at, entry) in log.iter().enumerate() {
        if at == snapshot_at {
            pool.begin_walk().expect("no other walk");
            walking = true;
        }
        if walking {
            walking = pool.walk(rows_max, &mut |row| rows.push(over_the_disk(row)));
        }
        pool.apply(at as u64 + 1, entry);
    }
    while walking {
        walking = pool.walk(rows_max, &mut |row| rows.push(over_the_disk(row)));
    }
    (pool, rows)
}

fn restore(rows: &[Row<'static>]) -> Result<Pool, RestoreError> {
    let mut restore = Restore::default();
    rows.iter().try_for_each(|row| restore.push(row.clone()))?;
    restore.finish()
}

#[test]
fn any_snapshot_and_the_rest_of_the_log_give_the_same_state() {
    for (name, log) in logs() {
        for snapshot_at in 0..log.len() {
            let rows_max = 1 + snapshot_at % 7;
            let (live, rows) = walk_while_applying(&log, snapshot_at, rows_max);
            let mut restored = restore(&rows).unwrap_or_else(|fault| {
                panic!("{name}: the snapshot after {snapshot_at} entries: {fault}")
            });
            for (at, entry) in log.iter().enumerate().skip(snapshot_at) {
                restored.apply(at as u64 + 1, entry);
            }
            assert_eq!(
                restored.digest(),
                live.digest(),
                "{name} after {snapshot_at} entries"
            );
            assert_eq!(
                restored.next_deadline(),
                live.next_deadline(),
                "{name}, {snapshot_at}"
            );
            restored.check_invariants().expect("a whole state");
        }
    }
}

#[test]
fn what_is_answered_is_the_same_after_a_snapshot() {
    for (name, log) in logs() {
        let snapshot_at = log.len() / 2;
        let (_, rows) = walk_while_applying(&log, snapshot_at, 100);
        let mut restored = restore(&rows).expect("a whole snapshot");
        let mut live = Pool::new();
        for (at, entry) in log.iter().enumerate() {
            let answer = live.apply(at as u64 + 1, entry);
            if at >= snapshot_at {
                assert_eq!(
                    restored.apply(at as u64 + 1, entry),
                    answer,
                    "{name}, entry {at}"
                );
            }
        }
    }
}

#[test]
fn damaged_rows_make_no_pool() {
    let (_, log) = logs()
        .into_iter()
        .max_by_key(|(_, log)| log.len())
        .expect("a log");
    let (_, rows) = walk_while_applying(&log, log.len() - 1, 100);
    assert!(restore(&rows).is_ok());
    for left_out in 0..rows.len() {
        let mut fewer = rows.clone();
        fewer.remove(left_out);
        assert!(
            restore(&fewer).is_err(),
            "row {left_out} is missing: {:?}",
            rows[left_out]
        );
    }
    let mut twice = rows.clone();
    twice.push(rows[0].clone());
    assert!(restore(&twice).is_err());
}

#[test]
fn one_walk_at_a_time_and_a_walk_can_be_given_up() {
    let mut pool = Pool::new();
    assert!(pool.begin_walk().is_ok());
    assert!(pool.begin_walk().is_err());
    pool.end_walk();
    assert!(pool.begin_walk().is_ok());
    let mut rows = 0;
    while pool.walk(1, &mut |_| rows += 1) {}
    assert_eq!(rows, 1, "an empty state has only its header");
    assert!(!pool.walk(1, &mut |_| rows += 1));
    assert!(pool.begin_walk().is_ok());
}

/// Names the file with the logs that a child process applies.
const LOGS_VARIABLE: &str = "FERMATA_REPLAY_LOGS";

/// What the logs come to, a line each: the digest of the state, and the hash of the bytes of its
/// snapshot.
fn come_to(logs: &[(String, Vec<Entry>)]) -> Vec<String> {
    let line = |(name, log): &(String, Vec<Entry>)| {
        let mut pool = Pool::new();
        for (at, entry) in log.iter().enumerate() {
            pool.apply(at as u64 + 1, entry);
        }
        let mut bytes = DefaultHasher::new();
        pool.begin_walk().expect("no other walk");
        while pool.walk(100, &mut |row| {
            let row = serde_json::to_vec(row).expect("rows can be written");
            bytes.write(&row);
        }) {}
        let (digest, snapshot) = (pool.digest(), bytes.finish());
        format!("{LINE}{name} {digest:016x} {snapshot:016x}")
    };
    logs.iter().map(line).collect()
}

/// How lines begin that tell what a log comes to.
const LINE: &str = "log ";

/// Alone, a process agrees with itself; told of a file, it prints what that comes to.
#[test]
fn logs_come_to_the_same_again() {
    let logs = match std::env::var_os(LOGS_VARIABLE) {
        None => logs(),
        Some(file) => {
            let text = std::fs::read_to_string(file).expect("the file with the logs");
            serde_json::from_str(&text).expect("logs")
        }
    };
    let once = come_to(&logs);
    assert_eq!(once, come_to(&logs));
    for line in once {
        println!("{line}");
    }
}

#[test]
fn another_process_in_another_zone_comes_to_the_same() {
    let logs = logs();
    let expected = come_to(&logs);
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/replay-logs.json");
    let text = serde_json::to_string(&logs).expect("entries can be written");
    std::fs::write(file, text).expect("a place for the logs");
    for zone in ["Pacific/Apia", "America/St_Johns", "UTC"] {
        let this = std::env::current_exe().expect("this program");
        let child = std::process::Command::new(this)
            .args(["--exact", "logs_come_to_the_same_again", "--nocapture"])
            .env(LOGS_VARIABLE, file)
            .env("TZ", zone)
            .output()
            .expect("it runs");
        assert!(child.status.success(), "{zone}: {child:?}");
        let said = String::from_utf8_lossy(&child.stdout);
        // The harness may print the name of the test before the first.
        let came: Vec<&str> = said
            .lines()
            .filter_map(|line| line.find(LINE).map(|at| &line[at..]))
            .collect();
        assert_eq!(came, expected, "{zone}");
    }
}
