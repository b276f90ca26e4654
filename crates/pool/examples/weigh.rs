//! What the pool costs: memory per waiting job, commands per second, and how long a snapshot keeps
//! entries waiting.
//!
//! `cargo run --release -p fermata-pool --example weigh -- [JOBS]` launches JOBS (1,000,000) jobs
//! into one queue, then prints bytes per waiting job, launches per second with and without starts,
//! completions with releases per second out of that queue, and the longest time that one step of a
//! walk took while launches went on.
//!
//! Caveat: memory is the growth of the process's resident set, so it holds the allocator's rests.

use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Entry, Event, Holder, Launch, ServerDefinition};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, QueueLimit};
use fermata_pool::time::{Instant, Stamp};
use std::time::{Duration, Instant as Clock};

/// Commands of one entry, as a busy leader gathers them.
const BATCH: usize = 256;
/// Rows of one step of a walk.
const WALK_ROWS: usize = 500;

struct Bench {
    pool: Pool,
    index: u64,
    now: Instant,
}

impl Bench {
    fn apply(&mut self, commands: Vec<Command>) {
        self.index += 1;
        self.now = self.now.plus_us(100);
        let stamp = Stamp::utc(self.now);
        let applied = self.pool.apply(
            self.index,
            &Entry {
                claim: Claim(1),
                stamp,
                commands,
            },
        );
        assert!(applied.outcomes.is_ok(), "{applied:?}");
    }

    /// Applies `count` commands in batches and gives how long that took.
    fn apply_all(&mut self, count: usize, command: impl Fn(usize) -> Command) -> Duration {
        let mut spent = Duration::ZERO;
        for first in (0..count).step_by(BATCH) {
            let commands = (first..count.min(first + BATCH)).map(&command).collect();
            let begun = Clock::now();
            self.apply(commands);
            spent += begun.elapsed();
        }
        spent
    }
}

fn limit(kind: LimitKind) -> Limit {
    Limit {
        enabled: true,
        kind,
    }
}

fn event(id: &str, limits: Vec<Limit>) -> Command {
    let event = Event {
        id: id.into(),
        enabled: true,
        limits,
        ..Event::default()
    };
    Command::PutEvent {
        event: Box::new(event),
        if_revision: None,
    }
}

fn launch(id: &str, event: &str) -> Command {
    let event = Some(event.into());
    Command::Launch(Box::new(Launch {
        id: id.into(),
        event,
        ..Launch::default()
    }))
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages
        .split_whitespace()
        .nth(1)
        .and_then(|it| it.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

fn per_second(count: usize, spent: Duration) -> u128 {
    count as u128 * 1_000_000_000 / spent.as_nanos().max(1)
}

/// A cluster with one server, an event whose jobs wait behind one, and one whose jobs start.
fn begin() -> Bench {
    let mut bench = Bench {
        pool: Pool::new(),
        index: 0,
        now: Instant::from_ms(1_780_000_000_000),
    };
    let held = JobLimit {
        amount: 1,
        ..JobLimit::default()
    };
    let free = JobLimit {
        rate: 1_000_000,
        window: Some(86_400),
        ..JobLimit::default()
    };
    let queue = limit(LimitKind::Queue(QueueLimit { amount: 10_000_000 }));
    let server = ServerDefinition {
        id: "s1".into(),
        enabled: true,
        ..ServerDefinition::default()
    };
    bench.apply(vec![
        Command::Takeover,
        event("held", vec![limit(LimitKind::Job(held)), queue]),
        event("free", vec![limit(LimitKind::Job(free))]),
        Command::PutServer(server),
        Command::ServerSeen(Holder {
            server: "s1".into(),
            incarnation: "1".into(),
        }),
        launch("head", "held"),
    ]);
    bench
}

fn waiting_id(job: usize) -> String {
    format!("01890a5d-ac96-774b-bcce-{job:012}")
}

fn started(job: &str) -> Command {
    Command::Started {
        job: job.into(),
        attempt: 1,
        from: None,
    }
}

fn ended(job: &str) -> Command {
    let description = "".into();
    Command::Completed {
        job: job.into(),
        attempt: 1,
        code: 0,
        description,
        from: None,
    }
}

fn main() {
    let jobs: usize = std::env::args()
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or(1_000_000);
    let mut bench = begin();

    let before = resident_bytes();
    let spent = bench.apply_all(jobs, |job| launch(&waiting_id(job), "held"));
    let bytes = resident_bytes().saturating_sub(before);
    println!("{jobs} jobs wait: {} bytes each", bytes / jobs as u64);
    println!(
        "launches into a queue: {} per second",
        per_second(jobs, spent)
    );

    let starts = 100_000.min(jobs);
    let spent = bench.apply_all(starts, |job| launch(&format!("free-{job}"), "free"));
    println!(
        "launches that start at once: {} per second",
        per_second(starts, spent)
    );

    bench.apply(vec![started("head"), ended("head")]);
    let spent = bench.apply_all(2 * starts, |step| {
        let job = waiting_id(step / 2);
        if step % 2 == 0 {
            started(&job)
        } else {
            ended(&job)
        }
    });
    println!(
        "confirmed, ended, next released: {} per second",
        per_second(starts, spent)
    );
    walk(&mut bench);
}

/// Walks the whole state while launches go on.
fn walk(bench: &mut Bench) {
    assert!(bench.pool.begin_walk().is_ok(), "another walk is under way");
    let (mut rows, mut steps, mut longest) = (0_u64, 0_usize, Duration::ZERO);
    let begun = Clock::now();
    loop {
        let step = Clock::now();
        let more = bench.pool.walk(WALK_ROWS, &mut |_| rows += 1);
        longest = longest.max(step.elapsed());
        bench.apply(vec![launch(&format!("during-{steps}"), "held")]);
        steps += 1;
        if !more {
            break;
        }
    }
    println!(
        "walk: {rows} rows in {} ms, {steps} steps, the longest {} us",
        begun.elapsed().as_millis(),
        longest.as_micros()
    );
}
