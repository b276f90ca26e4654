//! Pools, windows, overrides and counters as they are answered.

use fermata_api::pools::{
    Gate, LimitsInForce, Override, OverrideView, PoolView, RateInForce, WindowView,
};
use fermata_api::stats::{JobCounts, RateOutcomes, StatsView};
use fermata_pool::Pool;
use fermata_pool::command;
use fermata_pool::limits::Style;
use fermata_pool::outcome::Reason;
use fermata_pool::query;
use fermata_pool::scope;
use fermata_pool::terms::{RateSettings, Rules};
use fermata_pool::time::{Calendar, Instant};

use super::outward::{align, style, time};
use super::refusals::reason;

/// The head of a queue with its rules.
struct Head<'a> {
    id: &'a str,
    gate: scope::Gate,
    rules: Rules,
}

/// A pool at an instant, by a calendar.
pub(crate) fn pool(
    state: &Pool,
    view: &query::PoolView<'_>,
    seen: (Instant, Calendar<'_>),
) -> PoolView {
    let head = view.head.and_then(|(id, gate)| {
        let rules = Rules::of(&state.job(id)?.terms.limits);
        Some(Head { id, gate, rules })
    });
    let head = head.as_ref();
    let settings = head
        .and_then(|head| head.rules.rate)
        .or_else(|| view.window.as_ref().map(|window| window.settings));
    PoolView {
        id: view.name.to_owned(),
        running: view.running.into(),
        waiting: view.waiting,
        delayed: view.delayed,
        limits: LimitsInForce {
            amount: view.amount.map(u64::from),
            queue: head.and_then(|head| head.rules.queue).map(u64::from),
            rate: settings.map(|settings| rate(&settings, view.sizes)),
        },
        head: head.map(|head| head.id.to_owned()),
        waits_for: head.and_then(|head| gate(state, head, view.name)),
        r#override: view.sizes.map(overridden),
        window: view.window.as_ref().map(|shown| window(state, shown, seen)),
    }
}

/// What a head waits for.
fn gate(state: &Pool, head: &Head<'_>, pool: &str) -> Option<Gate> {
    match head.gate {
        scope::Gate::Due => None,
        scope::Gate::Slot => Some(Gate::Slot),
        scope::Gate::Server => Some(Gate::Server),
        scope::Gate::Rate(number) => {
            let name = state.scope_name(number)?;
            Some(if name == pool {
                Gate::Window
            } else {
                Gate::Rate {
                    id: name.to_owned(),
                }
            })
        }
    }
}

fn rate(settings: &RateSettings, sizes: Option<&command::Override>) -> RateInForce {
    let in_force = settings.under(sizes);
    RateInForce {
        count: in_force.rate.into(),
        window_s: in_force.window_s.into(),
        style: style(in_force.style),
        align: (in_force.style == Style::Fixed).then(|| align(in_force.align)),
        burst: (in_force.style == Style::TokenBucket).then(|| in_force.burst.into()),
    }
}

/// A window at an instant, and when it allows one more start by a calendar.
pub(crate) fn window(
    pool: &Pool,
    view: &query::WindowView<'_>,
    (at, calendar): (Instant, Calendar<'_>),
) -> WindowView {
    let in_force = rate(&view.settings, view.sizes);
    WindowView {
        id: view.name.to_owned(),
        event: view.name.strip_prefix("event:").map(str::to_owned),
        count: view.count.into(),
        max: view.max.into(),
        window_s: in_force.window_s,
        style: in_force.style,
        expires_at: view.expires_at.map(time),
        expires_in_ms: view.expires_at.map(|expires| {
            let left_us = u64::try_from(expires.since_us(at)).unwrap_or(0);
            left_us.div_ceil(1_000)
        }),
        next_at: pool.rate_opens_at(view.name, at, calendar).map(time),
        r#override: view.sizes.map(overridden),
        settings_differ: view.settings_differ,
    }
}

/// An override with what it is for.
pub(crate) fn named_override(name: &str, sizes: &command::Override) -> OverrideView {
    OverrideView {
        id: name.to_owned(),
        r#override: overridden(sizes),
    }
}

/// An override.
pub(crate) fn overridden(sizes: &command::Override) -> Override {
    Override {
        count: sizes.count.map(Into::into),
        window_s: sizes.window_s.map(Into::into),
        amount: sizes.amount.map(Into::into),
        expires_at: sizes.expires_at.map(time),
        note: Some(sizes.note.to_string()).filter(|note| !note.is_empty()),
    }
}

/// The counters.
pub(crate) fn stats(pool: &Pool) -> StatsView {
    let stats = pool.stats();
    let jobs = pool.job_counts();
    StatsView {
        since: time(stats.since),
        jobs: JobCounts {
            delayed: jobs.delayed,
            queued: jobs.queued,
            starting: jobs.starting,
            active: jobs.active,
            finished: jobs.finished,
        },
        launched: stats.launched,
        started: stats.started,
        succeeded: stats.succeeded,
        failed: stats.failed,
        aborted: Reason::ALL
            .into_iter()
            .zip(stats.aborted)
            .filter(|(_, count)| *count > 0)
            .map(|(why, count)| (reason(why), count))
            .collect(),
        put_back: stats.put_back,
        queued_by_rate: stats.queued_by_rate,
        rates: RateOutcomes {
            acquired: stats.acquired,
            skipped: stats.skipped,
            throttled: stats.throttled,
        },
    }
}
