//! What limits come to: precedence (S7), the numbers in force, and the warnings (S35).

use crate::history::{Job, Model, Number, Plan, Scope};
use fermata_pool::command::Launch;
use fermata_pool::limits::{Align, JobLimit, Limit, LimitKind, Mode, RateLimit, RetryLimit, Style};
use fermata_pool::terms::RateSettings;

/// The first enabled limit of each type, for `rate` of each key, in the order of the lists.
pub(crate) fn first_of_each(lists: &[&[Limit]]) -> Vec<Limit> {
    let mut found: Vec<Limit> = Vec::new();
    for limit in lists.iter().copied().flatten().filter(|it| it.enabled) {
        if !found
            .iter()
            .any(|other| same_type(&other.kind, &limit.kind))
        {
            found.push(limit.clone());
        }
    }
    found
}

pub(crate) fn same_type(one: &LimitKind, two: &LimitKind) -> bool {
    match (one, two) {
        (LimitKind::Rate(one), LimitKind::Rate(two)) => one.key == two.key,
        (LimitKind::Job(_), LimitKind::Job(_))
        | (LimitKind::Queue(_), LimitKind::Queue(_))
        | (LimitKind::Time(_), LimitKind::Time(_))
        | (LimitKind::Retry(_), LimitKind::Retry(_)) => true,
        _ => false,
    }
}

fn small(number: u64) -> u32 {
    number.try_into().expect("a limit within its bounds")
}

fn job_limit(limits: &[Limit]) -> Option<&JobLimit> {
    limits.iter().find_map(|limit| match &limit.kind {
        LimitKind::Job(job) => Some(job),
        _ => None,
    })
}

/// The concurrency that a job carries; 0: none.
pub(crate) fn amount(limits: &[Limit]) -> u32 {
    job_limit(limits).map_or(0, |job| small(job.amount))
}

pub(crate) fn weight(limits: &[Limit]) -> u32 {
    let weight = job_limit(limits).and_then(|job| job.weight);
    small(weight.unwrap_or(1))
}

/// The rate of the job's pool, if it has one.
pub(crate) fn pool_rate(limits: &[Limit]) -> Option<RateSettings> {
    let job = job_limit(limits).filter(|job| job.rate > 0)?;
    Some(RateSettings {
        rate: small(job.rate),
        window_s: small(job.window.expect("a window with a rate")),
        style: job.style.unwrap_or(Style::Fixed),
        align: job.align.unwrap_or(Align::Local),
        burst: small(job.burst.unwrap_or(job.rate)),
    })
}

fn bucket_rate(rate: &RateLimit) -> RateSettings {
    RateSettings {
        rate: small(rate.count),
        window_s: small(rate.per_seconds),
        style: rate.style.unwrap_or(Style::Fixed),
        align: Align::Utc,
        burst: small(rate.burst.unwrap_or(rate.count)),
    }
}

/// Every rate that a job passes, in the order of S12, with what becomes of one that finds it shut;
/// no mode: the queue limit decides.
pub(crate) fn rates(job: &Job<'_>) -> Vec<(Scope, RateSettings, Option<Mode>)> {
    let limits = job.limits.expect("resolved");
    let mut rates = Vec::new();
    if let Some(settings) = pool_rate(limits) {
        let mode = job_limit(limits).and_then(|job| job.mode);
        rates.push((pool_of(job), settings, mode));
    }
    for limit in limits {
        if let LimitKind::Rate(rate) = &limit.kind {
            let mode = rate.mode.unwrap_or(Mode::Skip);
            let scope = format!("rate:{}", rate.key).into();
            rates.push((scope, bucket_rate(rate), Some(mode)));
        }
    }
    rates
}

/// The queue limit, where it counts (S4).
pub(crate) fn queue(limits: &[Limit]) -> Option<u32> {
    let names_a_gate = |limit: &Limit| matches!(limit.kind, LimitKind::Job(_) | LimitKind::Rate(_));
    if !limits.iter().any(names_a_gate) {
        return None;
    }
    non_zero_queue(limits)
}

pub(crate) fn non_zero_queue(limits: &[Limit]) -> Option<u32> {
    limits.iter().find_map(|limit| match &limit.kind {
        LimitKind::Queue(queue) if queue.amount > 0 => Some(small(queue.amount)),
        _ => None,
    })
}

pub(crate) fn time_limit_s(limits: &[Limit]) -> Option<u64> {
    limits.iter().find_map(|limit| match &limit.kind {
        LimitKind::Time(time) => Some(time.duration),
        _ => None,
    })
}

pub(crate) fn retry(limits: &[Limit]) -> Option<&RetryLimit> {
    limits.iter().find_map(|limit| match &limit.kind {
        LimitKind::Retry(retry) => Some(retry),
        _ => None,
    })
}

/// The name of a resolved job's pool (S9).
pub(crate) fn pool_of(job: &Job<'_>) -> Scope {
    let limits = job.limits.expect("resolved");
    let key = job_limit(limits)
        .and_then(|job| job.cap_key.as_deref())
        .filter(|key| !key.is_empty());
    let name = match (key, &job.request.parent, &job.plan.event) {
        (Some(key), _, _) => format!("cap:{key}"),
        (None, Some(parent), _) => format!("node:{}@{}", parent.node, parent.job),
        (None, None, Some(event)) => format!("event:{event}"),
        (None, None, None) => format!("job:{}", job.id()),
    };
    name.into()
}

/// What differs between the limits of two members of a pool (S35).
fn differences(ours: &[Limit], theirs: &[Limit]) -> Vec<&'static str> {
    let mut differ = Vec::new();
    if amount(ours) != amount(theirs) {
        differ.push("amount");
    }
    if pool_rate(ours) != pool_rate(theirs) {
        differ.push("rate");
    }
    if let (Some(ours), Some(theirs)) = (queue(ours), queue(theirs))
        && ours != theirs
    {
        differ.push("queue amount");
    }
    differ
}

impl Model {
    /// What a job's limits come to if they are fixed now.
    pub(crate) fn resolve(&self, request: &Launch, plan: &Plan) -> Vec<Limit> {
        let event = plan.event.as_deref().and_then(|id| self.event(id));
        let category = event
            .and_then(|(event, _)| event.category.as_deref())
            .and_then(|id| self.category(id));
        let settings = self.settings();
        let universal = if plan.workflow {
            &settings.universal_workflow_limits
        } else {
            &settings.universal_event_limits
        };
        first_of_each(&[
            &request.limits,
            event.map_or(&[], |(event, _)| &event.limits),
            &plan.node_limits,
            category.map_or(&[], |(category, _)| &category.limits),
            universal,
        ])
    }

    /// Each of the three in which another unfinished member of the job's pool differs, and which
    /// jobs those are.
    pub(crate) fn warnings_for(&self, number: Number) -> Vec<(&'static str, Vec<Number>)> {
        let jobs = self.jobs();
        let job = &jobs[number];
        let ours = job.limits.expect("resolved");
        let others: Vec<&Job<'_>> = jobs
            .iter()
            .filter(|other| other.number != number && !other.is_final() && other.limits.is_some())
            .filter(|other| pool_of(other) == pool_of(job))
            .collect();
        ["amount", "rate", "queue amount"]
            .into_iter()
            .filter_map(|what| {
                let differing: Vec<Number> = others
                    .iter()
                    .filter(|other| differences(ours, other.limits.unwrap_or(&[])).contains(&what))
                    .map(|other| other.number)
                    .collect();
                Some((what, differing)).filter(|(_, differing)| !differing.is_empty())
            })
            .collect()
    }
}
