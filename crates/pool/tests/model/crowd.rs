//! Crowds: stories in which the heads of many pools wait for a few buckets and for scarce servers,
//! so that heads of a kind meet at a gate, part, and go from one gate to another. Rivals have rates
//! of their own as well, so that those who want the same bucket or server wait elsewhere.

use crate::draws::{holder, id};
use crate::world::{Leader, Passes, Story, Turn, Wish, ZONES, attempt, sender, with_its_worker};
use fermata_pool::command::{
    Algo, Command, Event, Executor, Launch, Override, ServerDefinition, Settings,
};
use fermata_pool::limits::{
    JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, RetryLimit, Style,
};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Most entries of a story.
const ENTRIES_MAX: usize = 80;
/// And of one of rivals.
const RIVAL_ENTRIES_MAX: usize = 20;
/// Pools that are named by a key.
const KEYS: u8 = 8;
/// Events, each of which may be deleted and come back.
const EVENTS: u8 = 3;

fn enabled(kind: LimitKind) -> Limit {
    Limit {
        enabled: true,
        kind,
    }
}

/// Mostly `wait`: who is skipped is no longer there.
fn mode() -> impl Strategy<Value = Option<Mode>> {
    select(vec![
        Some(Mode::Wait),
        Some(Mode::Wait),
        Some(Mode::Wait),
        Some(Mode::Skip),
        None,
    ])
}

/// Limits on up to three buckets, in any order.
fn buckets() -> impl Strategy<Value = Vec<Limit>> {
    let styles = [
        ("r1", Style::Fixed),
        ("r2", Style::Sliding),
        ("r3", Style::TokenBucket),
    ];
    let some = prop_oneof![
        3 => subsequence(vec![0_usize], 0..=1),
        2 => subsequence(vec![0_usize, 1, 2], 1..=3),
    ];
    let sizes = prop::collection::vec((1_u64..4, select(vec![1_u64, 3, 10]), mode()), 3);
    (some.prop_shuffle(), sizes).prop_map(move |(some, sizes)| {
        let limit = |nth: usize| {
            let ((key, style), (count, per_seconds, mode)) = (styles[nth], sizes[nth]);
            enabled(LimitKind::Rate(RateLimit {
                key: key.into(),
                count,
                per_seconds,
                style: Some(style),
                burst: None,
                mode,
            }))
        };
        some.into_iter().map(limit).collect()
    })
}

/// A limit that names one of many pools, and a weight.
fn job_limit() -> impl Strategy<Value = Limit> {
    let rate = prop_oneof![3 => Just(0_u64), 1 => 1_u64..3];
    let weight = weighted(0.8, 1_u64..5);
    (
        0_u64..3,
        rate,
        select(vec![1_u64, 10]),
        weighted(0.9, 0..KEYS),
        weight,
        mode(),
    )
        .prop_map(|(amount, rate, window, key, weight, mode)| {
            enabled(LimitKind::Job(JobLimit {
                amount,
                rate,
                window: Some(window),
                cap_key: key.map(|key| id("k", key)),
                style: Some(Style::Sliding),
                align: None,
                burst: None,
                mode,
                weight,
            }))
        })
}

fn event(number: u8) -> impl Strategy<Value = Event> {
    let algo = select(vec![
        Algo::FewestJobs,
        Algo::FewestJobs,
        Algo::RoundRobin,
        Algo::Random,
        Algo::PreferLast,
    ]);
    let targets = prop_oneof![
        4 => Just(Vec::new()),
        1 => Just(vec!["g0".into()]),
        1 => Just(vec!["s1".into(), "g0".into()]),
    ];
    let retry = weighted(
        0.2,
        Just(LimitKind::Retry(RetryLimit {
            amount: 2,
            duration: 1,
            backoff: None,
        })),
    );
    (buckets(), retry, algo, targets).prop_map(move |(mut limits, retry, algo, targets)| {
        limits.extend(retry.map(enabled));
        Event {
            id: id("e", number),
            enabled: true,
            limits,
            targets,
            algo,
            ..Event::default()
        }
    })
}

fn put_event() -> impl Strategy<Value = Command> {
    (0..EVENTS)
        .prop_flat_map(event)
        .prop_map(|event| Command::PutEvent {
            event: Box::new(event),
            if_revision: None,
        })
}

fn put_server() -> impl Strategy<Value = Command> {
    let groups = select(vec![Vec::new(), vec!["g0".into()]]);
    (0_u8..2, groups, 1_u32..7).prop_map(|(number, groups, max_jobs)| {
        Command::PutServer(ServerDefinition {
            id: id("s", number).into(),
            groups,
            max_jobs: Some(max_jobs),
            enabled: true,
        })
    })
}

fn launch() -> impl Strategy<Value = Wish> {
    let event = weighted(0.95, 0..EVENTS);
    let queue = enabled(LimitKind::Queue(QueueLimit { amount: 5 }));
    let own = (weighted(0.95, job_limit()), weighted(0.8, Just(queue)));
    let priority = weighted(0.2, select(vec![-1_i8, 1, 2]));
    let delay_s = weighted(0.05, 1_u64..5);
    let caller = prop::bool::weighted(0.1);
    (
        event,
        own,
        weighted(0.1, buckets()),
        priority,
        delay_s,
        caller,
    )
        .prop_map(
            |(event, (job, queue), buckets, priority, delay_s, caller)| {
                // A queue needs something that it is for.
                let queue = queue.filter(|_| job.is_some());
                let limits = buckets.into_iter().flatten().chain(job).chain(queue);
                let launch = Launch {
                    event: event.map(|number| id("e", number)),
                    limits: limits.collect(),
                    priority,
                    delay_s,
                    executor: caller.then_some(Executor::Caller),
                    ..Launch::default()
                };
                Wish::Launch(Box::new(launch), None)
            },
        )
}

/// A launch whose pool has a rate of its own, and that wants buckets that many others want.
fn rival() -> impl Strategy<Value = Wish> {
    let window = select(vec![1_u64, 2, 3, 5, 7]);
    let own_mode = select(vec![None, None, None, Some(Mode::Wait), Some(Mode::Skip)]);
    let own = (0..KEYS, window, own_mode, weighted(0.3, 1_u64..5));
    let own = own.prop_map(|(key, window, mode, weight)| {
        enabled(LimitKind::Job(JobLimit {
            amount: 0,
            rate: 1,
            window: Some(window),
            cap_key: Some(id("k", key)),
            style: Some(Style::Sliding),
            align: None,
            burst: None,
            mode,
            weight,
        }))
    });
    let keys = subsequence(vec!["r1", "r2", "r3"], 0..=3).prop_shuffle();
    let windows = prop::collection::vec((select(vec![2_u64, 6, 8, 30]), mode()), 3);
    let buckets = (keys, windows).prop_map(|(keys, windows)| {
        let limit = |(key, (per_seconds, mode)): (&str, (u64, Option<Mode>))| {
            enabled(LimitKind::Rate(RateLimit {
                key: key.into(),
                count: 1,
                per_seconds,
                style: Some(Style::Sliding),
                burst: None,
                mode,
            }))
        };
        keys.into_iter()
            .zip(windows)
            .map(limit)
            .collect::<Vec<Limit>>()
    });
    let queue = weighted(0.8, 1_u64..4);
    let times = (
        weighted(0.2, 1_u64..9),
        weighted(0.2, select(vec![-1_i8, 1])),
    );
    let caller = prop::bool::weighted(0.8);
    (own, buckets, queue, times, caller).prop_map(
        |(own, buckets, queue, (delay_s, priority), caller)| {
            let queue = queue.map(|amount| enabled(LimitKind::Queue(QueueLimit { amount })));
            let launch = Launch {
                limits: buckets.into_iter().chain([own]).chain(queue).collect(),
                priority,
                delay_s,
                executor: caller.then_some(Executor::Caller),
                ..Launch::default()
            };
            Wish::Launch(Box::new(launch), None)
        },
    )
}

fn scope() -> impl Strategy<Value = Box<str>> {
    prop_oneof![
        3 => select(vec!["rate:r1", "rate:r2", "rate:r3"]).prop_map(Into::into),
        2 => (0..KEYS).prop_map(|key| id("cap:k", key)),
    ]
}

fn over() -> impl Strategy<Value = Wish> {
    let sizes = (
        weighted(0.7, 0_u32..4),
        weighted(0.3, select(vec![1_u32, 10])),
        weighted(0.5, 0_u32..3),
    );
    let ends_ms = weighted(0.4, select(vec![1_i64, 1_000, 10_000]));
    (scope(), sizes, ends_ms).prop_map(|(scope, (count, window_s, amount), ends_ms)| {
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
    })
}

fn wish() -> impl Strategy<Value = Wish> {
    let job = any::<u8>;
    let started = (job(), attempt(), sender());
    let completed = (job(), attempt(), select(vec![0, 0, 0, 1]), sender());
    let plain = prop_oneof![
        2 => put_event(),
        2 => (0..EVENTS).prop_map(|number| Command::DeleteEvent {
            event: id("e", number),
            if_revision: None,
        }),
        3 => put_server(),
        3 => holder().prop_map(Command::ServerSeen),
        1 => holder().prop_map(Command::ServerOffline),
        2 => scope().prop_map(|scope| Command::Reset { scope }),
        3 => scope().prop_map(|scope| Command::DeleteOverride { scope }),
    ];
    prop_oneof![
        60 => launch(),
        20 => started.prop_map(|(job, attempt, from)| Wish::Started { job, attempt, from }),
        20 => completed.prop_map(|(job, attempt, code, from)| Wish::Completed {
            job,
            attempt,
            code,
            from,
        }),
        4 => job().prop_map(Wish::Cancel),
        6 => over(),
        8 => plain.prop_map(Wish::Plain),
    ]
}

fn passes() -> impl Strategy<Value = Passes> {
    let slip = || select(vec![0_i64, 0, 0, -1, 1]);
    prop_oneof![
        12 => Just(Passes::Us(0)),
        6 => select(vec![1_000_i64, 400_000, 1_000_000]).prop_map(Passes::Us),
        1 => Just(Passes::Us(10_000_000)),
        8 => slip().prop_map(Passes::ToDeadline),
        2 => (any::<u8>(), slip()).prop_map(|(nth, slip)| Passes::ToEnd(nth, slip)),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let leader = prop_oneof![
        60 => Just(Leader::Same),
        1 => select(ZONES.to_vec()).prop_map(|zone| Leader::New { zone }),
    ];
    let wishes = prop_oneof![
        1 => prop::collection::vec(wish(), 0..1),
        4 => prop::collection::vec(wish(), 1..2),
        2 => prop::collection::vec(wish(), 1..5),
    ];
    (passes(), leader, wishes).prop_map(|(passes, leader, wishes)| Turn {
        passes,
        leader,
        wishes,
    })
}

fn given() -> impl Strategy<Value = Vec<Command>> {
    let events = (event(0), event(1), event(2));
    let servers = prop::collection::vec(put_server(), 1..3);
    let start_timeout_s = select(vec![86_400_u32, 86_400, 5]);
    (events, servers, start_timeout_s).prop_map(|(events, servers, start_timeout_s)| {
        let settings = Settings {
            start_timeout_s,
            ..Settings::default()
        };
        let mut given = vec![Command::PutSettings {
            settings: Box::new(settings),
            if_revision: None,
        }];
        let events = [events.0, events.1, events.2];
        given.extend(events.map(|event| Command::PutEvent {
            event: Box::new(event),
            if_revision: None,
        }));
        given.extend(servers.into_iter().flat_map(with_its_worker));
        given
    })
}

/// Stories of rivals: their heads wait at different gates, and want the same buckets and servers.
pub(crate) fn rivals() -> impl Strategy<Value = Story> {
    let wish = prop_oneof![12 => rival(), 2 => launch(), 1 => wish()];
    let passes = prop_oneof![
        4 => select(vec![0_i64, 400_000, 1_000_000]).prop_map(Passes::Us),
        1 => Just(Passes::ToDeadline(0)),
    ];
    let turn = (passes, prop::collection::vec(wish, 1..5)).prop_map(|(passes, wishes)| Turn {
        passes,
        leader: Leader::Same,
        wishes,
    });
    let turns = prop::collection::vec(turn, 1..RIVAL_ENTRIES_MAX);
    (given(), turns).prop_map(|(given, turns)| Story {
        zone: "UTC",
        begins_us: 1_772_452_790_000_000,
        given,
        turns,
    })
}

pub(crate) fn story() -> impl Strategy<Value = Story> {
    let turns = prop::collection::vec(turn(), 1..ENTRIES_MAX);
    (given(), turns).prop_map(|(given, turns)| Story {
        zone: "UTC",
        begins_us: 1_772_452_790_000_000,
        given,
        turns,
    })
}
