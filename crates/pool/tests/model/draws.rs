//! Random limits, definitions and settings, within their bounds and at their ends.

use fermata_pool::command::{
    Algo, Command, Event, EventKind, Holder, Node, ResolveLimits, ServerDefinition, Settings,
};
use fermata_pool::limits::{
    Align, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, RetryLimit, Style, TimeLimit,
};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) fn id(prefix: &str, number: u8) -> Box<str> {
    format!("{prefix}{number}").into()
}

pub(crate) fn style() -> impl Strategy<Value = Style> {
    select(vec![Style::Fixed, Style::Sliding, Style::TokenBucket])
}

pub(crate) fn mode() -> impl Strategy<Value = Option<Mode>> {
    select(vec![None, Some(Mode::Wait), Some(Mode::Skip)])
}

pub(crate) fn burst() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 1_u64..5, 1 => Just(1_000_000)]
}

/// A limit on concurrency and rate, within its bounds.
pub(crate) fn job_limit() -> impl Strategy<Value = LimitKind> {
    let rate = prop_oneof![20 => select(vec![0_u64, 1, 2, 3, 5]), 1 => Just(100_000_u64)];
    let amount = prop_oneof![20 => 0_u64..4, 1 => Just(10_000_000)];
    let any_window = select(vec![1_u64, 2, 7, 10, 60, 90, 3_600, 86_400, 604_800]);
    let local_window = select(vec![1_u64, 60, 3_600, 86_400]);
    let windows = (any_window, local_window);
    let key = weighted(0.4, select(vec!["k1", "k2", ""]));
    let burst = weighted(0.5, burst());
    let weight = weighted(0.3, prop_oneof![20 => 1_u64..4, 1 => Just(100_000)]);
    (
        amount,
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

pub(crate) fn rate_limit() -> impl Strategy<Value = LimitKind> {
    let window = select(vec![1_u64, 3, 10, 60, 604_800]);
    let count = prop_oneof![20 => 1_u64..4, 1 => Just(100_000_u64)];
    let key = select(vec![
        ("r1", Style::Sliding),
        ("r2", Style::TokenBucket),
        ("r3", Style::Fixed),
    ]);
    // Mostly the members of a bucket agree on its style: then its settings can change.
    let other = weighted(0.15, style());
    (key, count, window, other, weighted(0.5, burst()), mode()).prop_map(
        |((key, style), count, per_seconds, other, burst, mode)| {
            let style = other.unwrap_or(style);
            LimitKind::Rate(RateLimit {
                key: key.into(),
                count,
                per_seconds,
                style: Some(style),
                burst: burst.filter(|_| style == Style::TokenBucket),
                mode,
            })
        },
    )
}

pub(crate) fn queue_limit() -> impl Strategy<Value = LimitKind> {
    select(vec![0_u64, 1, 2, 3, 10]).prop_map(|amount| LimitKind::Queue(QueueLimit { amount }))
}

pub(crate) fn time_limit() -> impl Strategy<Value = LimitKind> {
    select(vec![1_u64, 10, 100]).prop_map(|duration| LimitKind::Time(TimeLimit { duration }))
}

pub(crate) fn retry_limit() -> impl Strategy<Value = LimitKind> {
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
pub(crate) fn limits(job: f64) -> impl Strategy<Value = Vec<Limit>> {
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

pub(crate) fn targets() -> impl Strategy<Value = Vec<Box<str>>> {
    let one = select(vec!["s0", "s1", "s2", "g0", "g1"]).prop_map(Into::into);
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(one, 1..3)]
}

pub(crate) fn priority() -> impl Strategy<Value = i8> {
    prop_oneof![3 => Just(0_i8), 1 => select(vec![-100_i8, -1, 1, 100])]
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
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

pub(crate) fn workflow() -> impl Strategy<Value = Event> {
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
pub(crate) fn guard() -> impl Strategy<Value = Option<u64>> {
    weighted(0.1, 0_u64..3)
}

pub(crate) fn put_event() -> impl Strategy<Value = Command> {
    let event = prop_oneof![4 => event(), 1 => workflow()];
    (event, guard()).prop_map(|(event, if_revision)| Command::PutEvent {
        event: Box::new(event),
        if_revision,
    })
}

pub(crate) fn put_server() -> impl Strategy<Value = Command> {
    let groups = prop::collection::vec(select(vec!["g0", "g1"]).prop_map(Into::into), 0..2);
    let max_jobs = weighted(0.5, 1_u32..6);
    let enabled = prop::bool::weighted(0.9);
    (0_u8..3, groups, max_jobs, enabled).prop_map(|(number, groups, max_jobs, enabled)| {
        Command::PutServer(ServerDefinition {
            id: id("s", number).into(),
            groups,
            max_jobs,
            enabled,
        })
    })
}

pub(crate) fn holder() -> impl Strategy<Value = Holder> {
    (0_u8..3, prop_oneof![4 => Just(0_u8), 1 => 1_u8..3]).prop_map(|(number, life)| Holder {
        server: id("s", number),
        incarnation: id("i", life),
    })
}

pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    let universal = prop_oneof![2 => Just(Vec::new()), 1 => limits(0.3)];
    let retention_s = select(vec![3_600_u32, 20, 31_000_000]);
    let finished_max = prop_oneof![4 => Just(1_000_000_u32), 1 => Just(3)];
    let unfinished_max = prop_oneof![9 => Just(2_000_000_u32), 1 => Just(4)];
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

pub(crate) fn scope() -> impl Strategy<Value = Box<str>> {
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
