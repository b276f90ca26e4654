//! Histories that are right, and histories that are wrong in each way: each names what must be
//! found in it, and nothing else may be.
//!
//! `data/*.jsonl`: the first line says what is expected, the others are the history.

#![expect(clippy::expect_used, reason = "the files are the tests' own")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fermata_audit::{
    Answer, Answered, Ask, Begin, Contradiction, End, Expectation, History, HistoryError,
    Invariant, Launch, LaunchPlace, LogPlace, Operation, Ration, Record, Report, check,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Invariant → breaches.
    breaches: BTreeMap<String, u64>,
    /// `JOB/ATTEMPT` → length in microseconds.
    #[serde(default)]
    overlaps: BTreeMap<String, i64>,
    /// Pool → `[most at once, most in a window, windows]`.
    #[serde(default)]
    pools: BTreeMap<String, (u64, u64, u64)>,
    /// A text that the report shows.
    #[serde(default)]
    says: Vec<String>,
}

fn audit(history: &str) -> Report {
    let mut read = History::default();
    read.read(history.as_bytes()).expect("a history");
    check(&read)
}

#[test]
fn every_history_gives_what_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut breached = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut files = 0;
    for file in fs::read_dir(folder).expect("the folder is there") {
        let path = file.expect("listed").path();
        let text = fs::read_to_string(&path).expect("read");
        let (first, history) = text.split_once('\n').expect("two lines at least");
        let expected: Expected = serde_json::from_str(first).expect("what is expected");
        let report = audit(history);
        files += 1;

        let breaches: BTreeMap<String, u64> = report
            .violations_by_invariant
            .iter()
            .map(|(invariant, count)| (format!("{invariant:?}"), *count))
            .collect();
        let overlaps: BTreeMap<String, i64> = report
            .overlaps
            .iter()
            .map(|overlap| {
                (
                    format!("{}/{}", overlap.job, overlap.attempt),
                    overlap.length_us,
                )
            })
            .collect();
        let pools_are_right = expected.pools.iter().all(|(pool, expected)| {
            let counts = report.pools[pool];
            (counts.at_once_max, counts.in_window_max, counts.windows) == *expected
        });
        let shown = report.to_string();
        if breaches != expected.breaches
            || overlaps != expected.overlaps
            || !pools_are_right
            || !expected.says.iter().all(|text| shown.contains(text))
            || report.holds() != breaches.is_empty()
        {
            wrong.push(format!("{}\n{shown}", path.display()));
        }
        for (invariant, count) in expected.breaches {
            *breached.entry(invariant).or_insert(0) += count;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(files >= 15, "only {files} histories");
    for invariant in Invariant::ALL {
        assert!(
            breached.contains_key(&format!("{invariant:?}")),
            "no history breaks {invariant}"
        );
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    for file in [
        "right.jsonl",
        "overlap_of_a_paused_holder.jsonl",
        "local_windows.jsonl",
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(file);
        let text = fs::read_to_string(path).expect("read");
        for line in text.lines().skip(1) {
            let record: Record = serde_json::from_str(line).expect("a record");
            let written = record.to_line().expect("written");
            assert!(written.ends_with('\n') && written.matches('\n').count() == 1);
            assert_eq!(
                serde_json::from_str::<Record>(&written).expect("read"),
                record
            );
        }
    }
}

#[test]
fn a_torn_last_line_is_counted_and_any_other_bad_line_is_told() {
    let line = r#"{"record": "disturbed", "worker": "w", "incarnation": 1}"#;
    let mut history = History::default();
    history
        .read(format!("{line}\n{{\"record\": \"beg").as_bytes())
        .expect("torn");
    assert_eq!(check(&history).counts.torn_lines, 1);

    let result =
        History::default().read(format!("{line}\n{{\"record\": \"beg\n{line}\n").as_bytes());
    assert!(
        matches!(result, Err(HistoryError::Malformed { line: 2, .. })),
        "{result:?}"
    );
    let result = History::default().read(b"{\"record\": \"launch\", \"job\": \"j\"}\n".as_slice());
    assert!(
        matches!(result, Err(HistoryError::Malformed { line: 1, .. })),
        "{result:?}"
    );
    let result = History::default().read(b"\xff\n".as_slice());
    assert!(
        matches!(result, Err(HistoryError::Read { line: 1, .. })),
        "{result:?}"
    );
}

#[test]
fn expectations_that_cannot_be_judged_are_refused() {
    let expect = |rate: &str| {
        let line = format!(
            "{{\"record\": \"expect\", \"pool\": \"p\", \"rate\": {{\"count\": 1, \"windows\": {rate}}}}}\n"
        );
        match History::default().read(line.as_bytes()) {
            Err(HistoryError::Contradiction { source, .. }) => Some(source),
            Err(error) => panic!("{error}"),
            Ok(()) => None,
        }
    };
    assert_eq!(expect("{\"utc_s\": 0}"), Some(Contradiction::NoLength));
    assert_eq!(expect("{\"utc_s\": 1}"), None);
    assert_eq!(
        expect("{\"boundaries_us\": [1]}"),
        Some(Contradiction::NoBoundaries)
    );
    assert_eq!(
        expect("{\"boundaries_us\": [1, 1]}"),
        Some(Contradiction::NoBoundaries)
    );
    assert_eq!(expect("{\"boundaries_us\": [1, 2]}"), None);

    let mut history = History::default();
    let of = |amount| {
        Record::Expect(Expectation {
            pool: "p".to_owned(),
            amount: Some(amount),
            rate: None,
        })
    };
    assert_eq!(history.add(of(5)), Ok(()));
    assert_eq!(history.add(of(5)), Ok(()));
    assert_eq!(history.add(of(6)), Err(Contradiction::OtherExpectation));
}

/// 20,000 jobs, five at once, in order: the checker takes them in a moment, and the report of as
/// many breaches stays short.
#[test]
fn a_long_history_is_checked_and_told_in_bounds() {
    const JOBS: u64 = 20_000;
    let mut history = History::default();
    let expectation = Expectation {
        pool: "p".to_owned(),
        amount: Some(5),
        rate: None,
    };
    history.add(Record::Expect(expectation)).expect("fits");
    for number in 0..JOBS {
        let at_us = i64::try_from(number).expect("small") * 1_000;
        let job = format!("j{number}");
        let launch = Launch {
            job: job.clone(),
            pool: "p".to_owned(),
            priority: 0,
            sent_us: 0,
            answered_us: Some(1),
            was_aborted: false,
            place: Some(LaunchPlace { number, at_us: -1 }),
            due_us: None,
            retries: 0,
        };
        let begin = Begin {
            job: job.clone(),
            attempt: 1,
            pool: "p".to_owned(),
            worker: "w".to_owned(),
            incarnation: 1,
            start_us: at_us,
            start_index: LogPlace {
                index: JOBS + number,
                ordinal: 0,
            },
            at_us,
        };
        let end = End {
            job,
            attempt: 1,
            worker: "w".to_owned(),
            incarnation: 1,
            at_us: at_us + 5_000,
            code: 0,
        };
        history.add(Record::Launch(launch)).expect("fits");
        history.add(Record::Begin(begin)).expect("fits");
        history.add(Record::End(end)).expect("fits");
    }
    let report = check(&history);
    assert!(report.holds(), "{report}");
    assert_eq!(
        (report.pools["p"].at_once_max, report.counts.ordered),
        (5, JOBS)
    );

    let mut crowded = history.clone();
    for number in 0..JOBS {
        let job = format!("j{number}");
        let again = Begin {
            job: job.clone(),
            attempt: 2,
            pool: "q".to_owned(),
            worker: "w".to_owned(),
            incarnation: 1,
            start_us: 0,
            start_index: LogPlace {
                index: 0,
                ordinal: 0,
            },
            at_us: 0,
        };
        crowded.add(Record::Begin(again)).expect("fits");
    }
    let report = check(&crowded);
    assert!(!report.holds());
    assert!(report.to_string().len() < 64 * 1024);
}

/// Four clients at once, each question open while others are answered: an order is found, and none
/// where one answer is another.
#[test]
fn a_long_history_of_operations_is_put_in_order() {
    const OPERATIONS: i64 = 2_000;
    const RATE: u64 = 50;
    let operation = |ask, at: i64, answer| {
        Record::Operation(Operation {
            pool: "p".to_owned(),
            ask,
            // Taken at 10 * at; asked up to 15 before, answered up to 25 after.
            sent_us: 10 * at - at % 4 * 5,
            answer: Some(Answered {
                at_us: 10 * at + at % 3 * 12,
                answer,
                index: None,
            }),
        })
    };
    let mut count = 0;
    let mut records = Vec::new();
    let mut started = None;
    for at in 1..=OPERATIONS {
        records.push(match (at % 7, started.take()) {
            (_, Some(job)) => operation(Ask::Confirm(job), at, Answer::Done),
            (0, _) => operation(Ask::Count, at, Answer::Count(count)),
            (1, _) if at % 133 == 1 => {
                count = 0;
                operation(Ask::Reset, at, Answer::Done)
            }
            _ if count < RATE => {
                count += 1;
                started = Some(format!("j{at}"));
                operation(Ask::Launch(format!("j{at}")), at, Answer::Started)
            }
            _ => operation(Ask::Launch(format!("j{at}")), at, Answer::Aborted),
        });
    }
    let checked = |records: &[Record]| {
        let mut history = History::default();
        let ration = Record::Ration(Ration {
            pool: "p".to_owned(),
            rate: RATE,
        });
        for record in std::iter::once(&ration).chain(records) {
            history.add(record.clone()).expect("it fits");
        }
        check(&history)
    };
    let report = checked(&records);
    assert!(report.holds(), "{report}");
    assert_eq!(
        (report.counts.operations, report.counts.undecided),
        (2_000, 0)
    );

    let last = records.pop().expect("there are some");
    let Record::Operation(mut last) = last else {
        panic!("it is an operation");
    };
    last.ask = Ask::Count;
    last.answer = last.answer.map(|answered| Answered {
        answer: Answer::Count(RATE + 1),
        ..answered
    });
    records.push(Record::Operation(last));
    let report = checked(&records);
    let found = &report.violations_by_invariant;
    assert_eq!(found.get(&Invariant::Linearizable), Some(&1), "{report}");
}
