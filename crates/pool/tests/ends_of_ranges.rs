//! What is allowed at the very ends of its range works there, and one beyond is refused by name:
//! keys, priorities, rates, windows (S3, S5, S11, S19), and a sliding window of the greatest length
//! with the most starts (S27).

use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Entry, Executor, Launch};
use fermata_pool::limits::{Align, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, Style};
use fermata_pool::outcome::{Outcome, Refusal, Standing};
use fermata_pool::snapshot::Row;
use fermata_pool::time::{Boundaries, Instant, Stamp};

const WEEK_S: u64 = 604_800;
/// The beginning of a week of UTC, in milliseconds.
const BEGIN_MS: i64 = 2_943 * 604_800_000;

struct Story {
    pool: Pool,
    index: u64,
    now: Instant,
}

impl Story {
    fn begin() -> Story {
        let mut story = Story {
            pool: Pool::new(),
            index: 0,
            now: Instant::from_ms(BEGIN_MS),
        };
        story.apply(Command::Takeover);
        story
    }

    fn apply(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let entry = Entry {
            claim: Claim(1),
            stamp: Stamp::utc(self.now),
            commands: vec![command],
        };
        let mut outcomes = self
            .pool
            .apply(self.index, &entry)
            .outcomes
            .unwrap_or_default();
        assert_eq!(outcomes.len(), 1, "the claim is in force");
        outcomes.remove(0)
    }

    /// A launch by a caller, so that no server is in the way.
    fn launch(&mut self, id: &str, priority: i8, limits: Vec<Limit>) -> Outcome {
        self.apply(Command::Launch(Box::new(Launch {
            id: id.into(),
            priority: Some(priority),
            limits,
            executor: Some(Executor::Caller),
            ..Launch::default()
        })))
    }

    /// Confirms and ends a job that starts, so that only its start is left of it.
    fn end(&mut self, id: &str) {
        for command in [
            Command::Started {
                job: id.into(),
                attempt: 1,
                from: None,
            },
            Command::Completed {
                job: id.into(),
                attempt: 1,
                code: 0,
                description: "".into(),
                from: None,
            },
        ] {
            let outcome = self.apply(command);
            assert!(matches!(outcome, Outcome::Job(_)), "{id}: {outcome:?}");
        }
    }

    fn runs(&mut self) -> usize {
        let mut runs = 0;
        assert!(self.pool.begin_walk().is_ok());
        while self.pool.walk(10_000, &mut |row| {
            runs += usize::from(matches!(row, Row::Run(..)));
        }) {}
        runs
    }
}

fn limit(kind: LimitKind) -> Vec<Limit> {
    vec![Limit {
        enabled: true,
        kind,
    }]
}

fn bucket(key: &str, count: u64, per_seconds: u64, style: Style) -> Vec<Limit> {
    limit(LimitKind::Rate(RateLimit {
        key: key.into(),
        count,
        per_seconds,
        style: Some(style),
        burst: None,
        mode: Some(Mode::Wait),
    }))
}

fn starts(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Job(job) if matches!(job.standing, Standing::Starting { .. }))
}

fn waits(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Job(job) if job.standing == Standing::Queued)
}

/// The field that a launch was refused for.
fn refused_for(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Refused(Refusal::Invalid(fault)) => Some(&fault.field),
        _ => None,
    }
}

#[test]
fn keys_of_any_text_name_buckets_and_pools_of_their_own() {
    let keys = [
        "a".to_string(),
        " ".to_string(),
        "/@:?#%2F&= '\"\\".to_string(),
        "x".repeat(128),
        "é".repeat(64),
        "🎼".repeat(32),
        // The same to the eye, but not byte for byte.
        "e\u{301}".to_string(),
        "\u{e9}".to_string(),
        // From right to left, invisible, and the last character of all.
        "מפתח\u{200f}".to_string(),
        "a\u{200b}".to_string(),
        "\u{10ffff}".to_string(),
    ];
    let mut story = Story::begin();
    for (number, key) in keys.iter().enumerate() {
        let mut limits = bucket(key, 1, WEEK_S, Style::Fixed);
        limits.extend(limit(LimitKind::Job(JobLimit {
            amount: 1,
            cap_key: Some(key.as_str().into()),
            ..JobLimit::default()
        })));
        let outcome = story.launch(&format!("job-{number}"), 0, limits);
        assert!(starts(&outcome), "{key:?}: {outcome:?}");
    }
    let mut names: Vec<String> = keys.iter().map(|key| format!("cap:{key}")).collect();
    names.sort_unstable();
    let pools = story.pool.pools("", story.now).map(|pool| pool.name);
    assert!(pools.eq(names.iter().map(String::as_str)));
    for key in &keys {
        let window = story.pool.window(&format!("rate:{key}"), story.now);
        assert_eq!(window.map(|window| window.count), Some(1), "{key:?}");
    }
}

#[test]
fn what_is_no_key_is_refused() {
    let beyond = [
        String::new(),
        "x".repeat(129),
        "é".repeat(64) + "x",
        "🎼".repeat(32) + "x",
        "a\u{0}".to_string(),
        "\u{7f}".to_string(),
        "a\u{85}b".to_string(),
        "\n".to_string(),
    ];
    let mut story = Story::begin();
    for key in &beyond {
        let outcome = story.launch("job", 0, bucket(key, 1, 60, Style::Fixed));
        let field = refused_for(&outcome).unwrap_or_default();
        assert!(field.ends_with("key"), "{key:?}: {outcome:?}");
    }
}

#[test]
fn every_priority_has_its_place() {
    let mut story = Story::begin();
    let limits = || {
        let mut limits = limit(LimitKind::Job(JobLimit {
            amount: 1,
            cap_key: Some("one".into()),
            ..JobLimit::default()
        }));
        limits.extend(limit(LimitKind::Queue(QueueLimit { amount: 1_000 })));
        limits
    };
    assert!(starts(&story.launch("runs", 0, limits())));
    // 89 has no factor in common with 201: each priority once, in no order.
    for step in 0..201_i32 {
        let priority = i8::try_from(step * 89 % 201 - 100).unwrap_or_default();
        let outcome = story.launch(&format!("p{priority}"), priority, limits());
        assert!(waits(&outcome), "{priority}: {outcome:?}");
    }
    let expected = (-100..=100).rev().map(|priority| format!("p{priority}"));
    assert!(story.pool.queue("cap:one").eq(expected));
    for priority in [-101, 101, i8::MIN, i8::MAX] {
        let outcome = story.launch("beyond", priority, limits());
        assert_eq!(refused_for(&outcome), Some("priority"), "{priority}");
    }
}

#[test]
fn rates_and_windows_at_their_ends_open_when_they_should() {
    // Style, count, seconds, how many start at once, and when the next may, in microseconds.
    let week_us = 604_800_000_000;
    let cases = [
        (Style::Fixed, 1, 1, 1, 1_000_000),
        (Style::Fixed, 1, WEEK_S, 1, week_us),
        (Style::Fixed, 1_000_000, 1, 2_000, 0),
        (Style::Fixed, 1_000_000, WEEK_S, 2_000, 0),
        (Style::Sliding, 1, 1, 1, 1_000_000),
        (Style::Sliding, 1, WEEK_S, 1, week_us),
        (Style::Sliding, 100_000, 1, 2_000, 0),
        (Style::TokenBucket, 1, 1, 1, 1_000_000),
        (Style::TokenBucket, 1, WEEK_S, 1, week_us),
        (Style::TokenBucket, 1_000_000, 1, 2_000, 0),
        (Style::TokenBucket, 1_000_000, WEEK_S, 2_000, 0),
    ];
    for (style, count, seconds, at_once, next_us) in cases {
        let what = format!("{style:?}, {count} per {seconds} s");
        let mut story = Story::begin();
        for job in 0..at_once {
            let outcome = story.launch(&format!("j{job}"), 0, bucket("k", count, seconds, style));
            assert!(starts(&outcome), "{what}: {outcome:?}");
            story.end(&format!("j{job}"));
        }
        if next_us == 0 {
            continue;
        }
        let late = story.launch("late", 0, bucket("k", count, seconds, style));
        assert!(waits(&late), "{what}: {late:?}");
        let opens = story.now.plus_us(next_us);
        let why = story.pool.why("late", story.now, &Boundaries::utc);
        assert_eq!(why.and_then(|why| why.earliest), Some(opens), "{what}");
        for (at, has_started) in [(opens.plus_us(-1), false), (opens, true)] {
            story.now = at;
            story.apply(Command::DeleteOverride {
                scope: "cap:none".into(),
            });
            let starting = story
                .pool
                .standing("late")
                .is_some_and(|it| it != Standing::Queued);
            assert_eq!(starting, has_started, "{what} at {at}");
        }
    }
}

#[test]
fn one_beyond_is_refused() {
    let job = |rate, window, style, align| {
        limit(LimitKind::Job(JobLimit {
            rate,
            window: Some(window),
            style: Some(style),
            align,
            ..JobLimit::default()
        }))
    };
    let utc = Some(Align::Utc);
    let cases = [
        (job(1_000_001, 60, Style::Fixed, utc), "rate"),
        (job(100_001, 60, Style::Sliding, None), "rate"),
        (job(1, WEEK_S + 1, Style::Fixed, utc), "window"),
        (job(1, 0, Style::Sliding, None), "window"),
        (job(1, 61, Style::Fixed, None), "window"),
        (job(u64::MAX, 60, Style::TokenBucket, None), "rate"),
        (bucket("k", 0, 60, Style::Fixed), "count"),
        (bucket("k", 1_000_001, 60, Style::TokenBucket), "count"),
        (bucket("k", 100_001, 60, Style::Sliding), "count"),
        (bucket("k", 1, WEEK_S + 1, Style::Fixed), "per_seconds"),
        (bucket("k", 1, u64::MAX, Style::Fixed), "per_seconds"),
    ];
    let mut story = Story::begin();
    for (limits, field) in cases {
        let outcome = story.launch("job", 0, limits.clone());
        let named = refused_for(&outcome).unwrap_or_default();
        assert!(named.ends_with(field), "{limits:?}: {outcome:?}");
    }
}

#[test]
fn a_sliding_week_of_100_000_starts_is_exact_and_bounded() {
    const STARTS: usize = 100_000;
    // So far apart that 100,000 of them take the week and no two share an instant.
    const APART_US: i64 = 6_048_000;
    let limits = || bucket("week", STARTS as u64, WEEK_S, Style::Sliding);
    let mut story = Story::begin();
    let begin = story.now;
    for job in 0..STARTS {
        story.now = begin.plus_us(job as i64 * APART_US);
        let id = format!("j{job}");
        assert!(starts(&story.launch(&id, 0, limits())), "{id}");
        story.end(&id);
    }
    // The week is full until its first start leaves: a week after it, and not a microsecond sooner.
    let second_week = begin.plus_s(WEEK_S);
    story.now = second_week.plus_us(-1);
    let count = |story: &Story| story.pool.window("rate:week", story.now).map(|it| it.count);
    assert_eq!(count(&story), Some(100_000));
    assert!(waits(&story.launch("j100000", 0, limits())));
    assert_eq!(story.pool.next_deadline(), Some(second_week));
    story.now = second_week;
    assert!(starts(&story.apply(Command::CallerSeen {
        job: "j100000".into()
    })));
    story.end("j100000");
    // From now on each start takes the place of one that has left, and its row.
    let mut most_runs = story.runs();
    for job in STARTS + 1..STARTS + STARTS / 2 {
        story.now = begin.plus_us(job as i64 * APART_US);
        let id = format!("j{job}");
        assert!(starts(&story.launch(&id, 0, limits())), "{id}");
        story.end(&id);
        if job % 10_000 == 0 {
            assert_eq!(count(&story), Some(100_000), "after {id}");
            assert!(waits(&story.launch(&format!("above-{job}"), 0, limits())));
            most_runs = most_runs.max(story.runs());
            let above = format!("above-{job}").into();
            story.apply(Command::Cancel { job: above });
        }
    }
    assert!(most_runs <= STARTS + 1, "{most_runs} rows are kept");
}
