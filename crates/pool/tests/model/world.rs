//! Random stories on a small world: what is drawn, and what it means where the story has come to.
//!
//! What is drawn refers to jobs by their place and to instants by what lies ahead, so that a story
//! keeps its meaning while it is shrunk.

use crate::history::{Model, Phase};
use fermata_calendar::Zone;
use fermata_pool::command::{
    Algo, Category, Claim, Command, Entry, Event, EventKind, Executor, Holder, Launch, Node,
    Override, Parent, ResolveLimits, ServerDefinition, Settings,
};
use fermata_pool::limits::{
    Align, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, RetryLimit, Style, TimeLimit,
};
use fermata_pool::time::{Boundaries, Instant, Stamp};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::LazyLock;

/// Most entries of a story.
const ENTRIES_MAX: usize = 80;
/// Most jobs of a story.
const JOBS_MAX: usize = 30;

/// Zones of leaders: one sets its clocks by half an hour, one lies half an hour off.
const ZONES: [&str; 4] = [
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
];

/// A zone, made once: that takes longer than a story.
fn zone(name: &str) -> Zone {
    static MADE: LazyLock<Vec<Zone>> = LazyLock::new(|| {
        let made = |name: &&str| Zone::built_in(name).expect("a zone that is built in");
        ZONES.iter().map(made).collect()
    });
    let zone = MADE.iter().find(|zone| zone.name() == name);
    zone.expect("a zone of the list").clone()
}

/// One drawn entry.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) passes: Passes,
    pub(crate) leader: Leader,
    pub(crate) wishes: Vec<Wish>,
}

/// How much time passes before an entry.
#[derive(Clone, Debug)]
pub(crate) enum Passes {
    Us(i64),
    /// To the next deadline, and so many µs beyond.
    ToDeadline(i64),
    /// To the n-th next end of a window, and so many µs beyond.
    ToEnd(u8, i64),
}

/// Whose entry it is.
#[derive(Clone, Debug)]
pub(crate) enum Leader {
    Same,
    New {
        zone: &'static str,
    },
    /// One whose term is over; it may try to take over again.
    Old {
        takes_over: bool,
    },
}

/// One drawn command.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Plain(Command),
    Launch(Box<Launch>, Option<(u8, u8)>),
    /// The request of an earlier job again, changed or not.
    LaunchAgain {
        job: u8,
        other: bool,
    },
    Started {
        job: u8,
        attempt: i8,
        from: Sender,
    },
    Completed {
        job: u8,
        attempt: i8,
        code: i32,
        from: Sender,
    },
    Missing {
        job: u8,
        attempt: i8,
        from: Sender,
    },
    Cancel(u8),
    CallerSeen(u8),
    LeaseExpired(u8),
    /// An override that ends so many milliseconds from now.
    Override {
        scope: Box<str>,
        sizes: Override,
        ends_ms: Option<i64>,
    },
}

/// Who sends a word about an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    Unnamed,
    Holder,
    Other(u8),
}

fn id(prefix: &str, number: u8) -> Box<str> {
    format!("{prefix}{number}").into()
}

fn style() -> impl Strategy<Value = Style> {
    select(vec![Style::Fixed, Style::Sliding, Style::TokenBucket])
}

fn mode() -> impl Strategy<Value = Option<Mode>> {
    select(vec![None, Some(Mode::Wait), Some(Mode::Skip)])
}

/// A limit on concurrency and rate, within its bounds.
fn job_limit() -> impl Strategy<Value = LimitKind> {
    let rate = select(vec![0_u64, 1, 2, 3, 5]);
    let any_window = select(vec![1_u64, 2, 7, 10, 60, 90, 3_600, 86_400]);
    let local_window = select(vec![1_u64, 60, 3_600, 86_400]);
    let windows = (any_window, local_window);
    let key = weighted(0.4, select(vec!["k1", "k2", ""]));
    let burst = weighted(0.5, 1_u64..5);
    let weight = weighted(0.3, 1_u64..4);
    (
        0_u64..4,
        rate,
        windows,
        style(),
        any::<bool>(),
        key,
        burst,
        mode(),
        weight,
    )
        .prop_map(
            |(amount, rate, windows, style, utc, key, burst, mode, weight)| {
                let fixed = style == Style::Fixed;
                let local = fixed && !utc;
                LimitKind::Job(JobLimit {
                    amount,
                    rate,
                    window: Some(if local { windows.1 } else { windows.0 }),
                    cap_key: key.map(Into::into),
                    style: Some(style).filter(|_| !local),
                    align: Some(Align::Utc).filter(|_| fixed && utc),
                    burst: burst.filter(|_| style == Style::TokenBucket),
                    mode,
                    weight,
                })
            },
        )
}

fn rate_limit() -> impl Strategy<Value = LimitKind> {
    let window = select(vec![1_u64, 3, 10, 60, 604_800]);
    let key = select(vec!["r1", "r2", "r3"]);
    (
        key,
        1_u64..4,
        window,
        style(),
        weighted(0.5, 1_u64..5),
        mode(),
    )
        .prop_map(|(key, count, per_seconds, style, burst, mode)| {
            LimitKind::Rate(RateLimit {
                key: key.into(),
                count,
                per_seconds,
                style: Some(style),
                burst: burst.filter(|_| style == Style::TokenBucket),
                mode,
            })
        })
}

fn queue_limit() -> impl Strategy<Value = LimitKind> {
    select(vec![0_u64, 1, 2, 3, 10]).prop_map(|amount| LimitKind::Queue(QueueLimit { amount }))
}

fn time_limit() -> impl Strategy<Value = LimitKind> {
    select(vec![1_u64, 10, 100]).prop_map(|duration| LimitKind::Time(TimeLimit { duration }))
}

fn retry_limit() -> impl Strategy<Value = LimitKind> {
    let durations = select(vec![0_u64, 1, 30, 50_000]);
    (0_u64..4, durations, weighted(0.5, 1_u64..=10)).prop_map(|(amount, duration, backoff)| {
        LimitKind::Retry(RetryLimit {
            amount,
            duration,
            backoff,
        })
    })
}

/// A list that breaks no rule, in any order: of each type at most one, of `rate` of each key.
fn limits(job: f64) -> impl Strategy<Value = Vec<Limit>> {
    let kinds = (
        weighted(job, job_limit()),
        weighted(0.8 * job, queue_limit()),
        prop::collection::vec(rate_limit(), 0..3),
        weighted(0.1, time_limit()),
        weighted(0.15, retry_limit()),
    );
    let kinds = kinds.prop_map(|(job, queue, rates, time, retry)| {
        let mut list: Vec<LimitKind> = Vec::new();
        for kind in rates
            .into_iter()
            .chain(time)
            .chain(retry)
            .chain(job)
            .chain(queue)
        {
            if !list
                .iter()
                .any(|other| crate::terms::same_type(other, &kind))
            {
                list.push(kind);
            }
        }
        list
    });
    let off = prop_oneof![15 => Just(None), 1 => any::<u8>().prop_map(Some)];
    (kinds.prop_shuffle(), off).prop_map(|(kinds, off)| {
        let off = off.map(|off| usize::from(off) % kinds.len().max(1));
        let limit = |(place, kind)| Limit {
            enabled: off != Some(place),
            kind,
        };
        kinds.into_iter().enumerate().map(limit).collect()
    })
}

fn targets() -> impl Strategy<Value = Vec<Box<str>>> {
    let one = select(vec!["s0", "s1", "s2", "g0", "g1"]).prop_map(Into::into);
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(one, 1..3)]
}

fn priority() -> impl Strategy<Value = i8> {
    prop_oneof![3 => Just(0_i8), 1 => select(vec![-100_i8, -1, 1, 100])]
}

fn event() -> impl Strategy<Value = Event> {
    let algo = select(vec![
        Algo::FewestJobs,
        Algo::RoundRobin,
        Algo::PreferFirst,
        Algo::PreferLast,
        Algo::Random,
    ]);
    let category = weighted(0.4, 0_u8..2);
    let first_start = prop::bool::weighted(0.25);
    let enabled = prop::bool::weighted(0.95);
    let event = (
        0_u8..3,
        enabled,
        category,
        limits(0.8),
        targets(),
        algo,
        priority(),
        first_start,
    );
    event.prop_map(
        |(number, enabled, category, limits, targets, algo, priority, first_start)| Event {
            id: id("e", number),
            enabled,
            category: category.map(|number| id("c", number)),
            limits,
            targets,
            algo,
            priority,
            resolve: if first_start {
                ResolveLimits::FirstStart
            } else {
                ResolveLimits::Launch
            },
            ..Event::default()
        },
    )
}

fn workflow() -> impl Strategy<Value = Event> {
    let node = (weighted(0.7, 0_u8..3), limits(0.6));
    (limits(0.3), prop::collection::vec(node, 1..3)).prop_map(|(limits, nodes)| Event {
        id: "w".into(),
        kind: EventKind::Workflow,
        enabled: true,
        limits,
        nodes: (0_u8..)
            .zip(nodes)
            .map(|(number, (event, limits))| Node {
                id: id("n", number),
                title: "".into(),
                event: event.map(|number| id("e", number)),
                limits,
            })
            .collect(),
        ..Event::default()
    })
}

/// The revision that a definition must still have; mostly none.
fn guard() -> impl Strategy<Value = Option<u64>> {
    weighted(0.1, 0_u64..3)
}

fn put_event() -> impl Strategy<Value = Command> {
    let event = prop_oneof![4 => event(), 1 => workflow()];
    (event, guard()).prop_map(|(event, if_revision)| Command::PutEvent {
        event: Box::new(event),
        if_revision,
    })
}

fn put_server() -> impl Strategy<Value = Command> {
    let groups = prop::collection::vec(select(vec!["g0", "g1"]).prop_map(Into::into), 0..2);
    let max_jobs = weighted(0.5, 1_u32..6);
    let enabled = prop::bool::weighted(0.9);
    (0_u8..3, groups, max_jobs, enabled).prop_map(|(number, groups, max_jobs, enabled)| {
        Command::PutServer(ServerDefinition {
            id: id("s", number),
            groups,
            max_jobs,
            enabled,
        })
    })
}

fn holder() -> impl Strategy<Value = Holder> {
    (0_u8..3, prop_oneof![4 => Just(0_u8), 1 => 1_u8..3]).prop_map(|(number, life)| Holder {
        server: id("s", number),
        incarnation: id("i", life),
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let universal = prop_oneof![2 => Just(Vec::new()), 1 => limits(0.3)];
    let retention_s = select(vec![3_600_u32, 20, 31_000_000]);
    let finished_max = select(vec![1_000_000_u32, 1_000_000, 3]);
    let unfinished_max = select(vec![2_000_000_u32, 2_000_000, 4]);
    let starts = (select(vec![30_u32, 5, 86_400, 86_400]), 1_u32..4);
    (
        universal,
        limits(0.2),
        starts,
        retention_s,
        finished_max,
        unfinished_max,
    )
        .prop_map(
            |(
                event,
                workflow,
                (start_timeout_s, max_start_attempts),
                retention_s,
                finished_max,
                unfinished_max,
            )| {
                Settings {
                    universal_event_limits: event,
                    universal_workflow_limits: workflow,
                    start_timeout_s,
                    max_start_attempts,
                    retention_s,
                    finished_max,
                    unfinished_max,
                    ..Settings::default()
                }
            },
        )
}

fn scope() -> impl Strategy<Value = Box<str>> {
    select(vec![
        "event:e0",
        "event:e1",
        "event:e2",
        "cap:k1",
        "cap:k2",
        "rate:r1",
        "rate:r2",
        "node:n0@j0",
    ])
    .prop_map(Into::into)
}

fn launch() -> impl Strategy<Value = Wish> {
    let event = weighted(
        0.95,
        prop_oneof![20 => 0_u8..3, 10 => Just(0), 1 => Just(9)],
    );
    let delay_s = weighted(0.15, select(vec![0_u64, 1, 10, 86_400]));
    let own_limits = prop_oneof![4 => Just(Vec::new()), 1 => limits(0.7)];
    let own_targets = weighted(0.2, targets().prop_filter("some", |it| !it.is_empty()));
    let caller = weighted(0.2, any::<bool>());
    let parent = weighted(0.2, (any::<u8>(), 0_u8..3));
    let workflow = prop::bool::weighted(0.1);
    let lease_s = weighted(0.3, 1_u64..100);
    let parts = (
        event,
        weighted(0.3, priority()),
        delay_s,
        own_limits,
        own_targets,
        caller,
    );
    (parts, parent, workflow, lease_s).prop_map(
        |((event, priority, delay_s, limits, targets, caller), parent, workflow, lease_s)| {
            let event = event.map(|number| id("e", number));
            let launch = Launch {
                event: if workflow { Some("w".into()) } else { event },
                priority,
                limits,
                targets,
                delay_s,
                executor: caller.filter(|_| !workflow).map(|caller| {
                    if caller {
                        Executor::Caller
                    } else {
                        Executor::Server
                    }
                }),
                lease_s: lease_s.filter(|_| caller == Some(true) && !workflow),
                ..Launch::default()
            };
            Wish::Launch(Box::new(launch), parent)
        },
    )
}

fn sender() -> impl Strategy<Value = Sender> {
    prop_oneof![
        3 => Just(Sender::Unnamed),
        6 => Just(Sender::Holder),
        1 => any::<u8>().prop_map(Sender::Other),
    ]
}

fn attempt() -> impl Strategy<Value = i8> {
    prop_oneof![8 => Just(0_i8), 1 => Just(-1), 1 => Just(1)]
}

fn wish() -> impl Strategy<Value = Wish> {
    let job = any::<u8>;
    let started = (job(), attempt(), sender());
    let completed = (job(), attempt(), select(vec![0, 1, -1]), sender());
    let sizes = (
        weighted(0.6, select(vec![0_u32, 1, 2, 4, 1_000_000])),
        weighted(0.4, select(vec![1_u32, 7, 60, 3_600, 604_800])),
        weighted(0.4, 0_u32..3),
    );
    let ends_ms = weighted(0.4, select(vec![1_i64, 1_000, 10_000, 60_000]));
    let over = (scope(), sizes, ends_ms).prop_map(|(scope, (count, window_s, amount), ends_ms)| {
        Wish::Override {
            sizes: Override {
                count,
                window_s,
                amount: amount.filter(|_| !scope.starts_with("rate:")),
                ..Override::default()
            },
            scope,
            ends_ms,
        }
    });
    let category = (0_u8..2, limits(0.3), guard()).prop_map(|(number, limits, if_revision)| {
        Command::PutCategory {
            category: Box::new(Category {
                id: id("c", number),
                title: "".into(),
                limits,
            }),
            if_revision,
        }
    });
    let definitions = prop_oneof![
        6 => put_event(),
        2 => (0_u8..3, guard()).prop_map(|(number, if_revision)| Command::DeleteEvent { event: id("e", number), if_revision }),
        2 => category,
        1 => (0_u8..2, guard()).prop_map(|(number, if_revision)| Command::DeleteCategory { category: id("c", number), if_revision }),
        1 => (settings(), guard()).prop_map(|(settings, if_revision)| Command::PutSettings { settings: Box::new(settings), if_revision }),
        4 => put_server(),
        6 => holder().prop_map(Command::ServerSeen),
        1 => holder().prop_map(Command::ServerOffline),
        1 => holder().prop_map(Command::ServerLost),
        1 => (0_u8..3).prop_map(|number| Command::DeleteServer { server: id("s", number) }),
        3 => scope().prop_map(|scope| Command::Reset { scope }),
        1 => Just(Command::ResetAll),
        4 => scope().prop_map(|scope| Command::DeleteOverride { scope }),
    ];
    prop_oneof![
        60 => launch(),
        2 => (job(), any::<bool>()).prop_map(|(job, other)| Wish::LaunchAgain { job, other }),
        25 => started.prop_map(|(job, attempt, from)| Wish::Started { job, attempt, from }),
        18 => completed.prop_map(|(job, attempt, code, from)| Wish::Completed { job, attempt, code, from }),
        1 => (job(), attempt(), sender()).prop_map(|(job, attempt, from)| Wish::Missing { job, attempt, from }),
        4 => job().prop_map(Wish::Cancel),
        1 => job().prop_map(Wish::CallerSeen),
        1 => job().prop_map(Wish::LeaseExpired),
        5 => over,
        12 => definitions.prop_map(Wish::Plain),
    ]
}

fn passes() -> impl Strategy<Value = Passes> {
    let slip = || select(vec![0_i64, 0, 0, -1, 1, -1_000, 1_000]);
    prop_oneof![
        10 => Just(Passes::Us(0)),
        12 => select(vec![1_i64, 1_000, 400_000, 1_000_000, 5_500_000]).prop_map(Passes::Us),
        1 => select(vec![60_000_000_i64, 3_600_000_000, 86_400_000_000, 700_000_000_000])
            .prop_map(Passes::Us),
        1 => (-5_000_000_i64..0).prop_map(Passes::Us),
        4 => slip().prop_map(Passes::ToDeadline),
        3 => (any::<u8>(), slip()).prop_map(|(nth, slip)| Passes::ToEnd(nth, slip)),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let leader = prop_oneof![
        60 => Just(Leader::Same),
        2 => select(ZONES.to_vec()).prop_map(|zone| Leader::New { zone }),
        1 => any::<bool>().prop_map(|takes_over| Leader::Old { takes_over }),
    ];
    let wishes = prop_oneof![
        1 => prop::collection::vec(wish(), 0..1),
        6 => prop::collection::vec(wish(), 1..2),
        2 => prop::collection::vec(wish(), 1..5),
    ];
    (passes(), leader, wishes).prop_map(|(passes, leader, wishes)| Turn {
        passes,
        leader,
        wishes,
    })
}

/// What is there at the beginning.
fn given() -> impl Strategy<Value = Vec<Command>> {
    let events = prop::collection::vec(put_event(), 3..6);
    let servers = prop::collection::vec(put_server(), 1..4);
    let category = limits(0.3).prop_map(|limits| Command::PutCategory {
        category: Box::new(Category {
            id: "c0".into(),
            title: "".into(),
            limits,
        }),
        if_revision: None,
    });
    let settings = weighted(0.8, settings());
    (events, servers, weighted(0.3, category), settings).prop_map(
        |(mut events, servers, category, settings)| {
            let mut given: Vec<Command> = Vec::new();
            given.extend(settings.map(|settings| Command::PutSettings {
                settings: Box::new(settings),
                if_revision: None,
            }));
            given.extend(category);
            for (number, event) in (0_u8..3).zip(&mut events) {
                if let Command::PutEvent { event, .. } = event
                    && event.kind == EventKind::Event
                {
                    event.id = id("e", number);
                }
            }
            given.extend(events);
            for server in servers {
                let Command::PutServer(definition) = &server else {
                    continue;
                };
                let holder = Holder {
                    server: definition.id.clone(),
                    incarnation: "i0".into(),
                };
                given.extend([server, Command::ServerSeen(holder)]);
            }
            given
        },
    )
}

/// A whole story.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) zone: &'static str,
    pub(crate) begins_us: i64,
    pub(crate) given: Vec<Command>,
    pub(crate) turns: Vec<Turn>,
}

pub(crate) fn story() -> impl Strategy<Value = Story> {
    let zone = select(ZONES.to_vec());
    // An ordinary noon, and shortly before clocks change in each of the two zones with seasons.
    let begins_us = select(vec![
        1_772_452_790_000_000_i64,
        1_772_953_199_000_000,
        1_775_311_000_000_001,
        1_790_000_399_999_000,
    ]);
    let turns = prop::collection::vec(turn(), 1..ENTRIES_MAX);
    (zone, begins_us, given(), turns).prop_map(|(zone, begins_us, given, turns)| Story {
        zone,
        begins_us,
        given,
        turns,
    })
}

/// Makes entries of what was drawn, as a leader would where the story has come to.
pub(crate) struct Teller {
    zone: Zone,
    claim: u64,
}

impl Teller {
    pub(crate) fn new(story: &Story) -> Teller {
        Teller {
            zone: zone(story.zone),
            claim: 0,
        }
    }

    fn stamp(&self, at: Instant) -> Stamp {
        let local = self.zone.boundaries_after(at.us());
        let boundaries = Boundaries {
            second: Instant::from_us(local.second_us),
            minute: Instant::from_us(local.minute_us),
            hour: Instant::from_us(local.hour_us),
            day: Instant::from_us(local.day_us),
        };
        Stamp { at, boundaries }
    }

    pub(crate) fn begin(&mut self, story: &Story) -> Entry {
        self.claim = 1;
        let mut commands = vec![Command::Takeover];
        commands.extend(story.given.iter().cloned());
        Entry {
            claim: Claim(self.claim),
            stamp: self.stamp(Instant::from_us(story.begins_us)),
            commands,
        }
    }

    pub(crate) fn entry(&mut self, turn: &Turn, model: &Model) -> Entry {
        let mut commands = Vec::new();
        let mut claim = self.claim;
        match turn.leader {
            Leader::Same => {}
            Leader::New { zone: name } => {
                self.claim += 1;
                claim = self.claim;
                self.zone = zone(name);
                commands.push(Command::Takeover);
            }
            Leader::Old { takes_over } => {
                claim -= 1;
                commands.extend(takes_over.then_some(Command::Takeover));
            }
        }
        let at = self.instant(&turn.passes, model);
        let launched = model.jobs().len();
        for wish in &turn.wishes {
            let ahead = commands
                .iter()
                .filter(|it| matches!(it, Command::Launch(_)));
            let next = launched + ahead.count();
            commands.extend(command(wish, model, next, at));
        }
        Entry {
            claim: Claim(claim),
            stamp: self.stamp(at),
            commands,
        }
    }

    fn instant(&self, passes: &Passes, model: &Model) -> Instant {
        let now = model.now();
        match passes {
            Passes::Us(us) => now.plus_us(*us),
            Passes::ToDeadline(slip) => {
                let deadline = model.next_deadline();
                deadline.map_or(now, |deadline| deadline.plus_us(*slip))
            }
            Passes::ToEnd(nth, slip) => {
                let windows = model.scopes();
                let windows = windows.iter().filter_map(|scope| model.window(scope));
                let mut ends: Vec<Instant> = windows.filter_map(|it| it.expires_at()).collect();
                ends.sort();
                let end = ends.get(usize::from(*nth) % ends.len().max(1));
                end.map_or(now, |end| end.plus_us(*slip))
            }
        }
    }
}

/// The place of a job in one of these states, if there is one; sometimes, and otherwise, of any.
fn meant(model: &Model, drawn: u8, fits: impl Fn(Phase) -> bool) -> Option<usize> {
    let jobs = model.jobs();
    let fitting: Vec<usize> = jobs
        .iter()
        .filter(|job| fits(job.phase))
        .map(|job| job.number)
        .collect();
    let drawn = usize::from(drawn);
    if fitting.is_empty() || drawn % 8 == 7 {
        return (!jobs.is_empty()).then(|| drawn / 8 % jobs.len());
    }
    Some(fitting[drawn / 8 % fitting.len()])
}

fn unfinished(phase: Phase) -> bool {
    !matches!(phase, Phase::Ended(_))
}

fn command(wish: &Wish, model: &Model, next: usize, at: Instant) -> Option<Command> {
    let named = |job: &u8| {
        let number = meant(model, *job, unfinished)?;
        Some(model.job(number).id().into())
    };
    let about = |job: &u8, fits: Phase, attempt: i8, from: Sender| {
        let job = model.job(meant(model, *job, |phase| phase == fits)?);
        let attempt = job.attempt.saturating_add_signed(attempt.into());
        let server = match from {
            Sender::Unnamed => None,
            Sender::Holder => job.server().map(Into::into),
            Sender::Other(number) => Some(id("s", number % 3)),
        };
        let from = server.map(|server: Box<str>| {
            let known = model.server(&server);
            let lives = known.map_or(Vec::new(), |it| it.incarnations);
            let incarnation = match from {
                Sender::Other(number) if number > 127 => lives.first(),
                _ => lives.last(),
            };
            let incarnation = incarnation.map_or("i0", |it| it).into();
            Holder {
                server,
                incarnation,
            }
        });
        let job: Box<str> = job.id().into();
        Some((job, attempt, from))
    };
    Some(match wish {
        Wish::Plain(command) => command.clone(),
        Wish::Launch(_, _) if next >= JOBS_MAX => return None,
        Wish::Launch(launch, parent) => {
            let mut launch = launch.clone();
            launch.id = format!("j{next}").into();
            launch.parent = parent.and_then(|(job, node)| {
                let parents = model.jobs();
                let parents: Vec<_> = parents.iter().filter(|it| it.plan.workflow).collect();
                let parent = parents.get(usize::from(job) % parents.len().max(1))?;
                Some(Parent {
                    job: parent.id().into(),
                    node: id("n", node),
                })
            });
            Command::Launch(launch)
        }
        Wish::LaunchAgain { job, other } => {
            let number = usize::from(*job) % model.jobs().len().max(1);
            let jobs = model.jobs();
            let mut launch = jobs.get(number)?.request.clone();
            if *other {
                launch.delay_s = Some(launch.delay_s.map_or(3, |it| it + 1));
            }
            Command::Launch(Box::new(launch))
        }
        Wish::Started { job, attempt, from } => {
            let (job, attempt, from) = about(job, Phase::Starting, *attempt, *from)?;
            Command::Started { job, attempt, from }
        }
        Wish::Completed {
            job,
            attempt,
            code,
            from,
        } => {
            let (job, attempt, from) = about(job, Phase::Active, *attempt, *from)?;
            Command::Completed {
                job,
                attempt,
                code: *code,
                description: "".into(),
                from,
            }
        }
        Wish::Missing { job, attempt, from } => {
            let (job, attempt, from) = about(job, Phase::Active, *attempt, *from)?;
            Command::AttemptMissing {
                job,
                attempt,
                from: from?,
            }
        }
        Wish::Cancel(job) => Command::Cancel { job: named(job)? },
        Wish::CallerSeen(job) => Command::CallerSeen { job: named(job)? },
        Wish::LeaseExpired(job) => Command::LeaseExpired { job: named(job)? },
        Wish::Override {
            scope,
            sizes,
            ends_ms,
        } => {
            let mut sizes = sizes.clone();
            let now = at.max(model.now());
            sizes.expires_at = ends_ms.map(|ms| now.plus_us(ms * 1_000));
            Command::PutOverride {
                scope: scope.clone(),
                sizes,
            }
        }
    })
}
