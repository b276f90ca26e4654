//! Heads that cannot move are not visited: 100,000 of them wait for one bucket and one scarce
//! server, and what a completion or the turn of a window looks at is counted (S20).

#![expect(clippy::expect_used, reason = "a test says what it expects")]

use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Entry, Holder, Launch, ServerDefinition};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, Style};
use fermata_pool::outcome::{Applied, Standing};
use fermata_pool::time::{Boundaries, Instant, SECOND_US, Stamp};
use fermata_pool::why::{SHOWN_MAX, What};
use std::sync::Arc;

/// Most visits of an entry beside one for each job that starts, per kind of heads: its first head
/// is looked at, looked at again after a start, and all of it is moved.
const VISITS_PER_KIND_MAX: u64 = 3;

/// A pool, and where its log has come to.
struct World {
    pool: Pool,
    index: u64,
    now: Instant,
}

/// What an entry did.
struct Did {
    visits: u64,
    started: Vec<Arc<str>>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            pool: Pool::new(),
            index: 0,
            now: Instant::from_us(1_772_452_800 * SECOND_US),
        };
        world.apply(vec![Command::Takeover]);
        world
    }

    fn apply(&mut self, commands: Vec<Command>) -> Applied {
        let second = self.now.us() / SECOND_US + 1;
        let boundary = Instant::from_us(second * SECOND_US);
        let boundaries = Boundaries {
            second: boundary,
            minute: boundary,
            hour: boundary,
            day: boundary,
        };
        let stamp = Stamp {
            at: self.now,
            boundaries,
        };
        let entry = Entry {
            claim: Claim(1),
            stamp,
            commands,
        };
        self.index += 1;
        self.pool.apply(self.index, &entry)
    }

    /// Applies an entry after which nothing may be left over for another one.
    fn whole(&mut self, commands: Vec<Command>) -> Did {
        let before = self.pool.heads_visited();
        let applied = self.apply(commands);
        applied.outcomes.expect("an entry of the claim in force");
        let due = self.pool.next_deadline();
        assert!(due.is_none_or(|due| due > self.now), "heads are left over");
        let moves = applied.moves.into_iter();
        let starting = |standing: &Standing| matches!(standing, Standing::Starting { .. });
        Did {
            visits: self.pool.heads_visited() - before,
            started: moves
                .filter(|it| starting(&it.standing))
                .map(|it| it.job)
                .collect(),
        }
    }

    fn add_server(&mut self, id: &str, max_jobs: u32) {
        let server = ServerDefinition {
            id: id.into(),
            groups: Vec::new(),
            max_jobs: Some(max_jobs),
            enabled: true,
        };
        let holder = Holder {
            server: id.into(),
            incarnation: "i".into(),
        };
        self.apply(vec![
            Command::PutServer(server),
            Command::ServerSeen(holder),
        ]);
    }

    /// Fills the world with heads of pools of their own, whose weights go round.
    fn add_heads(&mut self, count: u64, weights: u64, buckets: &[(&str, u64)]) {
        let launches = (0..count).map(|number| {
            let mut limits = vec![job_limit(number, 1 + number % weights), queue()];
            limits.extend(buckets.iter().map(|(key, count)| bucket(key, *count)));
            let launch = Launch {
                id: format!("j{number}").into(),
                limits,
                // Heads of a kind do not stand side by side, and later ones come before earlier.
                priority: Some(i8::try_from(number * 7 % 13).expect("less than 13")),
                ..Launch::default()
            };
            Command::Launch(Box::new(launch))
        });
        let launches: Vec<Command> = launches.collect();
        for some in launches.chunks(1_000) {
            self.apply(some.to_vec());
        }
    }

    /// Confirms and completes a job's first attempt: two entries.
    fn complete(&mut self, job: &str) -> [Did; 2] {
        let started = Command::Started {
            job: job.into(),
            attempt: 1,
            from: None,
        };
        let completed = Command::Completed {
            job: job.into(),
            attempt: 1,
            code: 0,
            description: "".into(),
            from: None,
        };
        [self.whole(vec![started]), self.whole(vec![completed])]
    }
}

fn job_limit(pool: u64, weight: u64) -> Limit {
    let kind = LimitKind::Job(JobLimit {
        amount: 1,
        cap_key: Some(format!("p{pool}").into()),
        weight: Some(weight),
        ..JobLimit::default()
    });
    Limit {
        enabled: true,
        kind,
    }
}

fn queue() -> Limit {
    Limit {
        enabled: true,
        kind: LimitKind::Queue(QueueLimit { amount: 1 }),
    }
}

fn bucket(key: &str, count: u64) -> Limit {
    let kind = LimitKind::Rate(RateLimit {
        key: key.into(),
        count,
        per_seconds: 1,
        style: Some(Style::Fixed),
        burst: None,
        mode: Some(Mode::Wait),
    });
    Limit {
        enabled: true,
        kind,
    }
}

/// Lets jobs end and windows turn, and holds every entry against the bound. Gives the most visits
/// of one entry, and how many jobs started.
fn run(world: &mut World, kinds: u64, rounds: u64, running: Vec<Arc<str>>) -> (u64, usize) {
    let mut running = std::collections::VecDeque::from(running);
    let (mut most, mut starts) = (0, 0);
    for round in 0..rounds {
        let mut done = Vec::new();
        if let Some(job) = running.pop_front() {
            done.extend(world.complete(&job));
        }
        if round % 3 == 0 || running.is_empty() {
            world.now = world.pool.next_deadline().unwrap_or(world.now);
            done.push(world.whole(Vec::new()));
        }
        for did in done {
            let bound = did.started.len() as u64 + VISITS_PER_KIND_MAX * kinds;
            assert!(did.visits <= bound, "{} of {bound} visits", did.visits);
            most = most.max(did.visits);
            starts += did.started.len();
            running.extend(did.started);
        }
    }
    (most, starts)
}

/// The jobs that run already.
fn running(world: &World, server: &str) -> Vec<Arc<str>> {
    world
        .pool
        .held_by(server)
        .map(|view| view.job.id.clone())
        .collect()
}

#[test]
fn a_completion_visits_kinds_and_not_heads() {
    let mut world = World::new();
    world.add_server("s", 10);
    world.add_heads(100_000, 10, &[("b", 4)]);
    assert!(world.pool.job_counts().queued > 99_000);
    let running = running(&world, "s");
    let (most, starts) = run(&mut world, 10, 1_200, running);
    println!("at most {most} visits, {starts} starts");
    assert!(starts > 1_000, "{starts} starts");
    // All of them have found a gate shut again and again, as if each had been looked at.
    assert!(world.pool.stats().throttled > 1_000_000);
    world.pool.check_invariants().expect("a whole state");
}

/// Kinds are merged in the order in which their heads are considered.
#[test]
fn why_the_last_of_all_heads_waits_names_the_first_of_them() {
    let mut world = World::new();
    world.add_server("s", 10);
    world.add_heads(2_000, 10, &[("b", 4)]);
    let last = (0..2_000).rev().find(|number| number * 7 % 13 == 0);
    let last = format!("j{}", last.expect("one of the lowest priority"));
    let why = world.pool.why(&last, world.now, &Boundaries::utc);
    let why = why.expect("it waits");
    let ahead = why.gates.iter().find_map(|gate| match &gate.what {
        What::Rate { ahead, .. } => Some(ahead.clone()),
        _ => None,
    });
    let waits = |number: &u64| world.pool.standing(&format!("j{number}")) == Some(Standing::Queued);
    let first = (0..2_000)
        .filter(|number| number * 7 % 13 == 12)
        .filter(waits);
    let first: Vec<String> = first.take(SHOWN_MAX).map(|it| format!("j{it}")).collect();
    assert!(
        !why.is_exact && ahead.expect("a bucket") == first,
        "{first:?}"
    );
}

#[test]
fn many_kinds_are_each_visited_a_few_times() {
    let mut world = World::new();
    world.add_server("s", 1_000);
    world.add_heads(20_000, 1_000, &[("b", 3)]);
    let running = running(&world, "s");
    let (most, starts) = run(&mut world, 1_000, 150, running);
    println!("at most {most} visits, {starts} starts");
    assert!(starts > 50, "{starts} starts");
}

#[test]
fn heads_that_wait_for_two_buckets_and_two_servers_are_visited_as_kinds() {
    let mut world = World::new();
    world.add_server("s", 10);
    world.add_server("t", 7);
    world.add_heads(20_000, 10, &[("b", 3), ("c", 2)]);
    let running = [running(&world, "s"), running(&world, "t")].concat();
    let (most, starts) = run(&mut world, 10, 1_000, running);
    println!("at most {most} visits, {starts} starts");
    assert!(starts > 300, "{starts} starts");
    world.pool.check_invariants().expect("a whole state");
}

#[test]
fn a_server_that_comes_back_wakes_no_more_than_it_can_take() {
    let mut world = World::new();
    world.add_heads(50_000, 10, &[]);
    world.add_server("s", 50);
    let started = running(&world, "s").len() as u64;
    assert!(started > 5, "{started} started");
    let visits = world.pool.heads_visited();
    assert!(
        visits <= started + 1,
        "{visits} visits for {started} starts"
    );
}
