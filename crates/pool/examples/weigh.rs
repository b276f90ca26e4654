//! What the pool costs: memory per waiting job, commands per second, and how long a snapshot keeps
//! entries waiting.
//!
//! `cargo run --release -p fermata-pool --example weigh -- [JOBS]` runs on one core. First it has
//! jobs live whole lives in an otherwise empty pool: launched under a limit of their number and
//! their rate, started at once on one of a hundred servers, confirmed by its worker, completed, and
//! forgotten once [`FINISHED_MAX`] later ones have ended. It prints how many launches with their
//! starts go into a second, and how many whole lives. Then it launches JOBS (1,000,000) jobs into
//! one queue, prints bytes per waiting job, launches into that queue and completions with releases
//! out of it per second, the same whole lives beside it, and the longest time that one step of a
//! walk took while launches went on.
//!
//! Caveats: memory is the growth of the process's resident set, so it holds the allocator's rests;
//! on a busy machine the best of the rounds says most.

use fermata_pool::Pool;
use fermata_pool::command::{
    Claim, Command, Entry, Event, Holder, Launch, ServerDefinition, Settings,
};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, QueueLimit};
use fermata_pool::outcome::{Applied, Outcome, Standing};
use fermata_pool::time::{Instant, Stamp};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

/// Commands of one entry, as a busy leader gathers them.
const BATCH: usize = 256;
/// Finished jobs that are kept.
const FINISHED_MAX: u32 = 100_000;
/// Servers, each with a worker.
const SERVERS: usize = 100;
/// Lives of one round.
const LIVES: usize = 20_000;
/// Rounds of lives, of which the best and the middle one are printed.
const ROUNDS: usize = 25;
/// Rows of one step of a walk.
const WALK_ROWS: usize = 500;

struct Bench {
    pool: Pool,
    index: u64,
    now: Instant,
}

impl Bench {
    fn apply(&mut self, commands: Vec<Command>) -> (Applied, Duration) {
        self.index += 1;
        self.now = self.now.plus_us(100);
        let entry = Entry {
            claim: Claim(1),
            stamp: Stamp::utc(self.now),
            commands,
        };
        let begun = Clock::now();
        let applied = self.pool.apply(self.index, &entry);
        let spent = begun.elapsed();
        assert!(applied.outcomes.is_ok(), "{applied:?}");
        (applied, spent)
    }

    /// Applies `count` commands in batches and gives how long that took.
    fn apply_all(&mut self, count: usize, command: impl Fn(usize) -> Command) -> Duration {
        let mut spent = Duration::ZERO;
        for first in (0..count).step_by(BATCH) {
            let commands = (first..count.min(first + BATCH)).map(&command).collect();
            spent += self.apply(commands).1;
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

/// A cluster with servers, an event whose jobs wait behind one, and one whose jobs start.
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
        amount: 10_000,
        rate: 1_000_000,
        window: Some(1),
        ..JobLimit::default()
    };
    let queue = || limit(LimitKind::Queue(QueueLimit { amount: 10_000_000 }));
    let settings = Settings {
        finished_max: FINISHED_MAX,
        ..Settings::default()
    };
    bench.apply(vec![
        Command::Takeover,
        Command::PutSettings {
            settings: Box::new(settings),
            if_revision: None,
        },
        event("held", vec![limit(LimitKind::Job(held)), queue()]),
        event("free", vec![limit(LimitKind::Job(free)), queue()]),
    ]);
    for server in 0..SERVERS {
        let definition = ServerDefinition {
            id: format!("server-{server}").into(),
            max_jobs: Some(1_000),
            enabled: true,
            ..ServerDefinition::default()
        };
        let seen = Command::ServerSeen(worker(&definition.id));
        bench.apply(vec![Command::PutServer(definition), seen]);
    }
    bench
}

fn worker(server: &str) -> Holder {
    Holder {
        server: server.into(),
        incarnation: "1".into(),
    }
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

/// Jobs that were started, each with the server that got it.
fn starts_of(applied: &Applied) -> Vec<(Arc<str>, Arc<str>)> {
    let outcomes = applied.outcomes.as_deref().unwrap_or_default();
    let starts: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Job(job) => match &job.standing {
                Standing::Starting { server, .. } => Some((job.job.clone(), server.clone()?)),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(starts.len(), outcomes.len(), "every launch starts at once");
    starts
}

/// One round of whole lives: the time that launches with their starts took, and that all took.
fn lives(bench: &mut Bench, round: &str) -> (Duration, Duration) {
    let (mut launching, mut living) = (Duration::ZERO, Duration::ZERO);
    for first in (0..LIVES).step_by(BATCH) {
        let ids = first..LIVES.min(first + BATCH);
        let launches = ids.map(|job| launch(&format!("{round}-ac96-774b-bcce-{job:012}"), "free"));
        let (applied, spent) = bench.apply(launches.collect());
        launching += spent;
        let starts = starts_of(&applied);
        let confirm = |(job, server): &(Arc<str>, Arc<str>)| Command::Started {
            job: Box::from(&**job),
            attempt: 1,
            from: Some(worker(server)),
        };
        let (_, confirming) = bench.apply(starts.iter().map(confirm).collect());
        let complete = |(job, server): &(Arc<str>, Arc<str>)| Command::Completed {
            job: Box::from(&**job),
            attempt: 1,
            code: 0,
            description: "".into(),
            from: Some(worker(server)),
        };
        let (_, completing) = bench.apply(starts.iter().map(complete).collect());
        living += spent + confirming + completing;
    }
    (launching, living)
}

/// Runs and prints rounds of lives; `name` tells their ids from those of others.
fn live(bench: &mut Bench, name: char, beside: &str) {
    let rounds = (0..ROUNDS).map(|round| lives(bench, &format!("0189{name}a5d-{round:03}")));
    let (mut launching, mut living): (Vec<_>, Vec<_>) = rounds.unzip();
    for (what, spent) in [
        ("launches that start at once", &mut launching),
        ("whole lives", &mut living),
    ] {
        spent.sort_unstable();
        println!(
            "{what}, {beside}: {} per second at best, {} in the middle of {ROUNDS} rounds",
            per_second(LIVES, spent[0]),
            per_second(LIVES, spent[ROUNDS / 2])
        );
    }
}

fn main() {
    let jobs: usize = std::env::args()
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or(1_000_000);
    let mut bench = begin();
    live(&mut bench, '0', "nobody waiting");
    bench.apply(vec![launch("head", "held")]);

    let before = resident_bytes();
    let spent = bench.apply_all(jobs, |job| launch(&waiting_id(job), "held"));
    let bytes = resident_bytes().saturating_sub(before);
    println!("{jobs} jobs wait: {} bytes each", bytes / jobs as u64);
    println!(
        "launches into a queue: {} per second",
        per_second(jobs, spent)
    );
    live(&mut bench, '1', &format!("{jobs} waiting"));

    bench.apply(vec![started("head"), ended("head")]);
    let releases = LIVES.min(jobs);
    let spent = bench.apply_all(2 * releases, |step| {
        let job = waiting_id(step / 2);
        if step % 2 == 0 {
            started(&job)
        } else {
            ended(&job)
        }
    });
    println!(
        "confirmed, ended, next released: {} per second",
        per_second(releases, spent)
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
