//! What is foretold where heads at different gates want the same bucket or server: each may take it
//! first when time moves it, so nothing is called exact and nobody is told when to come again.

#![expect(clippy::expect_used, reason = "a test says what it expects")]

use fermata_pool::Pool;
use fermata_pool::command::{
    Claim, Command, Entry, Event, Executor, Launch, Override, ResolveLimits,
};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, Style};
use fermata_pool::outcome::{Reason, Standing};
use fermata_pool::time::{Boundaries, Instant, SECOND_US, Stamp};
use fermata_pool::why::{What, Why};

struct World {
    pool: Pool,
    index: u64,
    begin: Instant,
    now: Instant,
}

fn limit(kind: LimitKind) -> Limit {
    Limit {
        enabled: true,
        kind,
    }
}

/// One start per so many seconds.
fn bucket(key: &str, per_seconds: u64, mode: Mode) -> Limit {
    limit(LimitKind::Rate(RateLimit {
        key: key.into(),
        count: 1,
        per_seconds,
        style: Some(Style::Sliding),
        burst: None,
        mode: Some(mode),
    }))
}

/// A pool with a rate of one start per so many seconds, or none.
fn shared(key: &str, per_seconds: Option<u64>) -> Limit {
    limit(LimitKind::Job(JobLimit {
        amount: 0,
        rate: u64::from(per_seconds.is_some()),
        window: Some(per_seconds.unwrap_or(1)),
        cap_key: Some(key.into()),
        style: Some(Style::Sliding),
        align: None,
        burst: None,
        mode: None,
        weight: None,
    }))
}

fn queue(amount: u64) -> Limit {
    limit(LimitKind::Queue(QueueLimit { amount }))
}

fn launch(id: &str, limits: Vec<Limit>) -> Launch {
    Launch {
        id: id.into(),
        limits,
        executor: Some(Executor::Caller),
        ..Launch::default()
    }
}

impl World {
    fn new() -> World {
        let begin = Instant::from_us(1_772_452_800 * SECOND_US);
        let mut world = World {
            pool: Pool::new(),
            index: 0,
            begin,
            now: begin,
        };
        world.apply(vec![Command::Takeover]);
        world
    }

    fn apply(&mut self, commands: Vec<Command>) {
        let stamp = Stamp {
            at: self.now,
            boundaries: Boundaries::utc(self.now),
        };
        let entry = Entry {
            claim: Claim(1),
            stamp,
            commands,
        };
        self.index += 1;
        let applied = self.pool.apply(self.index, &entry);
        applied.outcomes.expect("an entry of the claim in force");
    }

    fn launch(&mut self, id: &str, limits: Vec<Limit>) {
        let launch = launch(id, limits);
        self.apply(vec![Command::Launch(Box::new(launch))]);
    }

    fn launch_later(&mut self, id: &str, delay_s: u64, priority: i8, limits: Vec<Limit>) {
        let later = Launch {
            delay_s: Some(delay_s),
            priority: Some(priority),
            ..launch(id, limits)
        };
        self.apply(vec![Command::Launch(Box::new(later))]);
    }

    /// So many seconds after the begin.
    fn second(&self, second: i64) -> Instant {
        self.begin.plus_us(second * SECOND_US)
    }

    /// Time passes to a second, through every instant at which a tick is owed.
    fn pass_to(&mut self, second: i64) {
        let until = self.second(second);
        while let Some(next) = self.pool.next_deadline().filter(|next| *next <= until) {
            self.now = next.max(self.now);
            self.apply(Vec::new());
        }
        self.now = until;
        self.apply(Vec::new());
    }

    fn why(&self, id: &str) -> Why<'_> {
        let why = self.pool.why(id, self.now, &Boundaries::utc);
        why.expect("a job that is known")
    }

    fn would(&self, launch: &Launch) -> Why<'_> {
        let would = self.pool.would(launch, self.now, &Boundaries::utc);
        would.expect("a launch that is taken")
    }

    fn is_running(&self, id: &str) -> bool {
        matches!(self.pool.standing(id), Some(Standing::Starting { .. }))
    }
}

/// Who is named at a bucket.
fn ahead<'a>(why: &'a Why<'_>, bucket: &str) -> &'a [&'a str] {
    let found = why.gates.iter().find_map(|gate| match &gate.what {
        What::Rate { name, ahead, .. } if name == bucket => Some(&ahead[..]),
        _ => None,
    });
    found.expect("a bucket that the job names")
}

#[test]
fn who_waits_at_another_bucket_may_take_this_one_first() {
    let mut world = World::new();
    world.launch("x", vec![bucket("p", 3, Mode::Wait)]);
    world.launch("y", vec![bucket("q", 5, Mode::Wait)]);
    let both = [bucket("p", 3, Mode::Wait), bucket("q", 5, Mode::Wait)];
    world.launch("a", [vec![shared("a", None)], both.to_vec()].concat());
    world.launch("b", vec![shared("b", None), bucket("q", 5, Mode::Wait)]);
    let why = world.why("b");
    assert_eq!((why.earliest, why.is_exact), (Some(world.second(5)), false));
    assert_eq!(ahead(&why, "rate:q"), ["a"]);
    let first = world.why("a");
    assert_eq!(
        (first.earliest, first.is_exact),
        (Some(world.second(5)), true)
    );
    world.pass_to(5);
    assert!(world.is_running("a") && !world.is_running("b"));
}

#[test]
fn who_waits_for_its_own_window_may_take_a_bucket_first() {
    let mut world = World::new();
    let own = |key, per_seconds| vec![shared(key, Some(per_seconds)), queue(9)];
    let and_bucket = |key, s| [own(key, s), vec![bucket("k", 6, Mode::Skip)]].concat();
    world.launch("a0", own("a", 3));
    world.launch("b0", own("b", 5));
    world.launch("a1", and_bucket("a", 3));
    world.launch("b1", and_bucket("b", 5));
    let why = world.why("b1");
    assert!(!why.is_exact && why.aborts.is_none(), "{why:?}");
    assert_eq!(ahead(&why, "rate:k"), ["a1"]);
    world.pass_to(5);
    let reason = Reason::RateLimited;
    assert_eq!(
        world.pool.standing("b1"),
        Some(Standing::Aborted { reason })
    );
}

#[test]
fn a_head_that_may_be_aborted_sooner_leaves_sooner() {
    let mut world = World::new();
    let own = |key, per_seconds| vec![shared(key, Some(per_seconds)), queue(9)];
    world.launch("k1", vec![bucket("k1", 8, Mode::Wait)]);
    world.launch("f0", own("f", 3));
    world.launch("g0", own("g", 2));
    let skips = [bucket("k2", 30, Mode::Skip), bucket("k1", 8, Mode::Wait)];
    world.launch("f1", [own("f", 3), skips.to_vec()].concat());
    world.launch("f2", own("f", 3));
    world.launch(
        "g1",
        [own("g", 2), vec![bucket("k2", 30, Mode::Skip)]].concat(),
    );
    let earliest = world.why("f2").earliest;
    world.pass_to(3);
    assert!(world.is_running("f2"));
    assert_eq!(earliest, Some(world.second(3)));
}

#[test]
fn nobody_is_told_to_come_again_for_what_others_would_take() {
    let mut world = World::new();
    let own = vec![shared("a", Some(3)), queue(9)];
    world.launch("a0", own.clone());
    world.launch("k0", vec![bucket("k", 5, Mode::Wait)]);
    world.launch("a1", [own, vec![bucket("k", 5, Mode::Wait)]].concat());
    world.launch("c", vec![bucket("k", 5, Mode::Skip)]);
    assert!(matches!(
        world.pool.standing("c"),
        Some(Standing::Aborted { .. })
    ));
    assert_eq!(world.pool.admits_at("c", world.now, &Boundaries::utc), None);
}

/// Found by `random_crowds` with the seed 16222557382909181215.
#[test]
fn a_slot_that_shuts_before_a_bucket_lets_a_job_wait_that_the_bucket_would_end() {
    let mut world = World::new();
    let one = limit(LimitKind::Job(JobLimit {
        amount: 1,
        rate: 0,
        window: None,
        cap_key: Some("a".into()),
        style: None,
        align: None,
        burst: None,
        mode: None,
        weight: None,
    }));
    let limits = vec![one, queue(9), bucket("k", 5, Mode::Skip)];
    world.launch("a0", limits.clone());
    let expires_at = world.second(2);
    world.apply(vec![Command::PutOverride {
        scope: "cap:a".into(),
        sizes: Override {
            count: None,
            window_s: None,
            amount: Some(2),
            expires_at: Some(expires_at),
            note: "".into(),
        },
    }]);
    world.launch("a1", limits.clone());
    let reason = Reason::RateLimited;
    assert_eq!(
        world.pool.standing("a1"),
        Some(Standing::Aborted { reason })
    );
    // The bucket opens at second 5; from second 2 on the slot is shut before it.
    let admits = world.pool.admits_at("a1", world.now, &Boundaries::utc);
    assert_eq!(admits, Some(expires_at));
    world.pass_to(2);
    world.launch("a2", limits);
    assert_eq!(world.pool.standing("a2"), Some(Standing::Queued));
}

#[test]
fn a_delayed_job_that_cannot_wait_behind_others_is_aborted() {
    let mut world = World::new();
    let own = vec![shared("p", Some(10))];
    let with_queue = [own.clone(), vec![queue(1)]].concat();
    world.launch("p0", own.clone());
    world.launch("p1", with_queue.clone());
    world.launch_later("none", 4, 0, own.clone());
    world.launch_later("full", 4, 0, with_queue.clone());
    world.launch_later("before", 4, 9, with_queue);
    world.launch_later("room", 4, 0, [own.clone(), vec![queue(2)]].concat());
    world.launch_later("after", 11, 0, own);
    let aborts = |id| (world.why(id).earliest, world.why(id).aborts);
    let at = world.second(4);
    assert_eq!(aborts("none"), (None, Some((at, Reason::RateLimited))));
    assert_eq!(aborts("full"), (None, Some((at, Reason::QueueFull))));
    assert_eq!(aborts("before"), (None, Some((at, Reason::QueueFull))));
    assert_eq!(aborts("room"), (Some(world.second(10)), None));
    // The head has gone by then, and whether another one waits is not known.
    assert_eq!(aborts("after").1, None);
    world.pass_to(4);
    for (id, reason) in [
        ("none", Reason::RateLimited),
        ("full", Reason::QueueFull),
        ("before", Reason::QueueFull),
    ] {
        assert_eq!(world.pool.standing(id), Some(Standing::Aborted { reason }));
    }
}

#[test]
fn before_limits_are_fixed_a_dry_run_says_what_the_job_will() {
    let mut world = World::new();
    let event = Event {
        id: "e".into(),
        enabled: true,
        limits: vec![shared("p", Some(10))],
        resolve: ResolveLimits::FirstStart,
        ..Event::default()
    };
    world.apply(vec![Command::PutEvent {
        event: Box::new(event),
        if_revision: None,
    }]);
    let later = Launch {
        event: Some("e".into()),
        delay_s: Some(5),
        ..launch("later", Vec::new())
    };
    let dry = world.would(&later);
    let dry = (dry.pool, dry.earliest, dry.is_exact, dry.gates.len());
    world.apply(vec![Command::Launch(Box::new(later))]);
    let why = world.why("later");
    assert_eq!(dry, (why.pool, why.earliest, why.is_exact, why.gates.len()));
    assert_eq!(dry.1, Some(world.second(5)));
    assert!(!dry.2);
}

#[test]
fn a_dry_run_before_the_tick_that_is_owed_judges_nothing_by_half() {
    let mut world = World::new();
    let own = vec![shared("p", Some(3)), queue(1)];
    world.launch("p0", own.clone());
    world.launch("p1", own);
    let no_queue = launch("n", vec![shared("p", Some(3))]);
    let before = world.would(&no_queue).standing;
    world.now = world.second(3);
    // The rate is open and the head has not gone: it is as it was.
    assert_eq!(world.would(&no_queue).standing, before);
    let mut held = World::new();
    let sizes = Override {
        count: Some(0),
        expires_at: Some(held.second(3)),
        ..Override::default()
    };
    held.apply(vec![Command::PutOverride {
        scope: "rate:k".into(),
        sizes,
    }]);
    let k = launch("n", vec![bucket("k", 5, Mode::Skip)]);
    held.now = held.second(3);
    assert!(matches!(held.would(&k).standing, Standing::Starting { .. }));
}
