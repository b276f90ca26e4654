//! The same log gives the same state, applied from its start or from any snapshot on (S37).

#![expect(clippy::expect_used, reason = "a test says what it expects")]

#[path = "../examples/run_cases/story.rs"]
mod story;

use fermata_pool::Pool;
use fermata_pool::command::Entry;
use fermata_pool::snapshot::{Restore, RestoreError, Row};
use serde::{Deserialize, Serialize};

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
