//! Pools, windows, overrides and counters as they are answered.

use fermata_api::pools::{
    Gate, LimitsInForce, Override, OverrideView, PoolView, RateInForce, WindowView,
};
use fermata_api::stats::{RateOutcomes, StatsView};
use fermata_pool::Pool;
use fermata_pool::command;
use fermata_pool::limits::Style;
use fermata_pool::outcome::Reason;
use fermata_pool::query;
use fermata_pool::terms::{RateSettings, Rules};
use fermata_pool::time::Instant;

use super::outward::{align, style, time};
use super::refusals::reason;

/// A pool at an instant.
pub(crate) fn pool(state: &Pool, view: &query::PoolView<'_>, at: Instant) -> PoolView {
    let head = view.head.and_then(|(head, why)| {
        let rules = Rules::of(&state.job(head)?.terms.limits);
        Some((head, why, rules))
    });
    let sizes = view.sizes;
    let settings = head
        .as_ref()
        .and_then(|(_, _, rules)| rules.rate)
        .or_else(|| view.window.as_ref().map(|window| window.settings));
    PoolView {
        id: view.name.to_owned(),
        running: view.running.into(),
        waiting: view.waiting,
        delayed: view.delayed,
        limits: LimitsInForce {
            amount: sizes
                .and_then(|sizes| sizes.amount)
                .or(Some(view.amount).filter(|amount| *amount > 0))
                .map(u64::from),
            queue: head
                .as_ref()
                .and_then(|(_, _, rules)| rules.queue)
                .map(u64::from),
            rate: settings.map(|settings| rate(&settings, sizes)),
        },
        waits_for: head
            .as_ref()
            .and_then(|(_, why, rules)| gate(state, view, *why, rules, at)),
        head: head.map(|(head, _, _)| head.to_owned()),
        r#override: sizes.map(overridden),
        window: view.window.as_ref().map(|shown| window(shown, at)),
    }
}

/// What a head waits for. The pool names the reason; which rate it is, the windows tell.
fn gate(
    state: &Pool,
    view: &query::PoolView<'_>,
    why: Reason,
    rules: &Rules,
    at: Instant,
) -> Option<Gate> {
    match why {
        Reason::ConcurrencyLimited => Some(Gate::Slot),
        Reason::NoServer => Some(Gate::Server),
        Reason::RateLimited => {
            let is_shut =
                |window: &query::WindowView<'_>| window.next_at.is_none_or(|next| next > at);
            if rules.rate.is_some() && view.window.as_ref().is_some_and(is_shut) {
                return Some(Gate::Window);
            }
            let shut = rules.buckets.iter().find(|bucket| {
                let bucket = state.pool(&bucket.name, at);
                bucket
                    .and_then(|bucket| bucket.window)
                    .is_some_and(|window| is_shut(&window))
            });
            shut.map(|bucket| Gate::Rate {
                id: bucket.name.to_string(),
            })
        }
        Reason::QueueFull
        | Reason::ServerLost
        | Reason::StartTimeout
        | Reason::LeaseExpired
        | Reason::Cancelled
        | Reason::EventMissing
        | Reason::TimeLimit => None,
    }
}

fn rate(settings: &RateSettings, sizes: Option<&command::Override>) -> RateInForce {
    let count = sizes.and_then(|sizes| sizes.count);
    let window_s = sizes.and_then(|sizes| sizes.window_s);
    RateInForce {
        count: count.unwrap_or(settings.rate).into(),
        window_s: window_s.unwrap_or(settings.window_s).into(),
        style: style(settings.style),
        align: (settings.style == Style::Fixed).then(|| align(settings.align)),
        burst: (settings.style == Style::TokenBucket)
            .then(|| count.unwrap_or(settings.burst).into()),
    }
}

/// A window at an instant.
pub(crate) fn window(view: &query::WindowView<'_>, at: Instant) -> WindowView {
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
        next_at: view.next_at.map(time),
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
    StatsView {
        since: time(stats.since),
        jobs: std::collections::BTreeMap::new(),
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
