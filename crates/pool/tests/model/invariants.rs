//! What must hold of every story, checked on the list by itself: how the decisions were made plays
//! no part here, only what happened.

use crate::history::{Fact, Model, Number, Phase, Scope, Start, override_change};
use crate::terms;
use crate::windows::Opening;
use fermata_pool::limits::Style;
use fermata_pool::terms::RateSettings;
use fermata_pool::time::Instant;

type Holds = Result<(), String>;

/// Checks a told story.
pub(crate) fn check(model: &Model) -> Holds {
    no_job_is_lost(model)?;
    refunds_are_of_unconfirmed_starts_and_once(model)?;
    every_opening_keeps_its_rate(model)?;
    for (place, fact) in model.facts.iter().enumerate() {
        if let Fact::Started(start) = fact {
            let before = Model {
                facts: model.facts[..place].to_vec(),
            };
            nobody_is_overtaken(&before, start)?;
            concurrency_has_room(&before, start)?;
        }
    }
    Ok(())
}

/// Every launched job is delayed, waits, runs, or has ended; what could start does not wait (S20).
fn no_job_is_lost(model: &Model) -> Holds {
    let launched = |fact: &&Fact| matches!(fact, Fact::Launched { .. });
    let jobs = model.jobs();
    if model.facts.iter().filter(launched).count() != jobs.len() {
        return Err("a launched job is not there".into());
    }
    for job in &jobs {
        let waits_well = match job.phase {
            Phase::Queued => model.queue(&terms::pool_of(job)).contains(&job.number),
            Phase::Starting => job.start.is_some_and(|start| start.deadline > model.now()),
            Phase::Delayed(_) | Phase::Active | Phase::Ended(_) => true,
        };
        if !waits_well {
            return Err(format!("{} is lost in {:?}", job.id(), job.phase));
        }
    }
    for head in model.heads() {
        if model.first_shut(head).is_none() {
            return Err(format!("{} waits, but could start", jobs[head].id()));
        }
    }
    Ok(())
}

/// A start is given back at most once, only where it was taken, and not once it was confirmed
/// (S31).
fn refunds_are_of_unconfirmed_starts_and_once(model: &Model) -> Holds {
    let mut given: Vec<(Number, u32, &Scope)> = Vec::new();
    let mut confirmed: Vec<(Number, u32)> = Vec::new();
    let mut started: Vec<&Start> = Vec::new();
    for fact in &model.facts {
        match fact {
            Fact::Started(start) => started.push(start),
            Fact::Confirmed(job) => {
                let start = started.iter().rfind(|start| start.job == *job);
                confirmed.extend(start.map(|start| (start.job, start.attempt)));
            }
            Fact::Refunded {
                job,
                attempt,
                scope,
            } => {
                let refund = (*job, *attempt, scope);
                let taken = started
                    .iter()
                    .find(|start| start.job == *job && start.attempt == *attempt)
                    .is_some_and(|start| start.taken.iter().any(|(it, _)| it == scope));
                if given.contains(&refund) || !taken || confirmed.contains(&(*job, *attempt)) {
                    return Err(format!("{refund:?} was given back, but should not"));
                }
                given.push(refund);
            }
            _ => {}
        }
    }
    Ok(())
}

/// One opening of a window whose settings were never changed: the instants of the starts that were
/// not given back. A bucket gains while a start is out that is given back later, so none of these
/// is kept of which a start was.
struct Kept {
    scope: Scope,
    settings: RateSettings,
    starts: Vec<Instant>,
    gave_back: bool,
}

fn kept_openings(model: &Model) -> Vec<Kept> {
    let mut openings: Vec<Option<Kept>> = Vec::new();
    let mut overridden: Vec<&str> = Vec::new();
    let mut now = Instant::EPOCH;
    for fact in &model.facts {
        if let Some((scope, _)) = override_change(fact) {
            overridden.push(scope);
        }
        match fact {
            Fact::Entry { at, .. } => now = *at,
            Fact::Opened { scope, settings } => openings.push(Some(Kept {
                scope: scope.clone(),
                settings: *settings,
                starts: Vec::new(),
                gave_back: false,
            })),
            Fact::Settled { scope, .. } => {
                let same = |kept: &&mut Option<Kept>| {
                    kept.as_ref().is_some_and(|kept| kept.scope == *scope)
                };
                openings.iter_mut().filter(same).for_each(|it| *it = None);
            }
            Fact::Started(start) => {
                for (scope, opening) in &start.taken {
                    let given_back = |fact: &Fact| {
                        matches!(fact, Fact::Refunded { job, attempt, scope: it }
                            if (*job, *attempt, it) == (start.job, start.attempt, scope))
                    };
                    let given_back = model.facts.iter().any(given_back);
                    if let Some(kept) = &mut openings[opening - 1] {
                        kept.gave_back |= given_back;
                        kept.starts.extend(Some(now).filter(|_| !given_back));
                    }
                }
            }
            _ => {}
        }
    }
    let plain = |kept: &Kept| {
        let bucket_gave_back = kept.settings.style == Style::TokenBucket && kept.gave_back;
        !bucket_gave_back && !overridden.contains(&&*kept.scope)
    };
    openings.into_iter().flatten().filter(plain).collect()
}

/// Never above the rate: in an opening of a fixed window, in any rolling window of a sliding one,
/// and never faster than a bucket refills.
fn every_opening_keeps_its_rate(model: &Model) -> Holds {
    for Kept {
        scope,
        settings,
        starts,
        ..
    } in kept_openings(model)
    {
        let length_us = i64::from(settings.window_s) * 1_000_000;
        for (first, from) in starts.iter().enumerate() {
            for (last, to) in starts.iter().enumerate().skip(first) {
                let count = (last - first + 1) as i64;
                let passed_us = to.since_us(*from);
                let most = match settings.style {
                    Style::Fixed => i64::from(settings.rate),
                    Style::Sliding if passed_us < length_us => i64::from(settings.rate),
                    Style::Sliding => continue,
                    Style::TokenBucket => {
                        i64::from(settings.burst) + i64::from(settings.rate) * passed_us / length_us
                    }
                };
                if count > most {
                    return Err(format!(
                        "{scope} let {count} start from {from} to {to}, {settings:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Nobody of its pool waits who comes before a job that starts (S17, S21).
fn nobody_is_overtaken(before: &Model, start: &Start) -> Holds {
    let jobs = before.jobs();
    let job = &jobs[start.job];
    let ahead = jobs.iter().find(|other| {
        other.phase == Phase::Queued
            && other.number != job.number
            && other.limits.is_some()
            && other.order() < job.order()
            && terms::pool_of(other) == terms::pool_of(job)
    });
    ahead.map_or(Ok(()), |ahead| {
        Err(format!("{} overtakes {}", job.id(), ahead.id()))
    })
}

/// Its pool runs fewer than the amount in force, and its rates were open.
fn concurrency_has_room(before: &Model, start: &Start) -> Holds {
    let job = before.job(start.job);
    let running = before.running(&terms::pool_of(&job));
    let amount = before.amount_in_force(&job);
    if amount.is_some_and(|amount| running >= amount as usize) {
        return Err(format!("{} starts as one too many", job.id()));
    }
    let shut = terms::rates(&job).into_iter().find(|(scope, settings, _)| {
        let held = before.override_of(scope).and_then(|sizes| sizes.count) == Some(0);
        held || before.opening(scope, settings) == Opening::Never
    });
    shut.map_or(Ok(()), |(scope, ..)| {
        Err(format!("{} starts while {scope} is held", job.id()))
    })
}
