//! Never more than `amount` at once, by real begins and ends.
//!
//! > S2: `amount` = most jobs of the pool in `starting` + `active`. S41: the holder has stopped
//! > what it runs before the conductor may free the slot.
//!
//! An execution counts from its real begin to its real end, or to its attempt's committed end where
//! the executor was silent (`server_lost`, `lease_expired`). What ran on after that is an overlap,
//! if the slot was in other hands by then: it is listed apart with its length, and is a violation
//! unless its worker was paused or cut off on purpose. An execution without an end ends with its
//! worker, where that was killed: whoever did it recorded when. Else it counts for ever.

use super::executions;
use crate::history::{Attempt, Execution, History};
use crate::record::Lost;
use crate::report::{Invariant, Overlap, Report};

pub(super) fn check(history: &History, report: &mut Report) {
    for (pool, expectation) in &history.expectations {
        if let Some(amount) = expectation.amount {
            check_pool(history, pool, amount, report);
        }
    }
    report
        .overlaps
        .sort_by_key(|overlap| std::cmp::Reverse(overlap.length_us));
}

/// How many hold a slot from `at_us` on, until the next step.
struct Step {
    at_us: i64,
    holding: u64,
}

fn check_pool(history: &History, pool: &str, amount: u64, report: &mut Report) {
    let mut changes = Vec::new();
    let mut late = Vec::new();
    for execution in executions(history).filter(|execution| execution.begin.pool == pool) {
        let begin = &execution.begin;
        let worker = (begin.worker.clone(), begin.incarnation);
        let killed_us = history.disturbed.get(&worker).copied().flatten();
        let ended_us = execution.end.as_ref().map(|end| end.at_us);
        let ended_us = ended_us.or(killed_us).unwrap_or(i64::MAX);
        let lost = lost(history, execution);
        let held_until_us = lost.map_or(ended_us, |lost| lost.at_us.min(ended_us));
        if held_until_us > begin.at_us {
            changes.push((begin.at_us, 1, &begin.job));
            changes.push((held_until_us, -1, &begin.job));
        }
        if let Some(lost) = lost.filter(|lost| lost.at_us < ended_us) {
            late.push((execution, lost, lost.at_us.max(begin.at_us), ended_us));
        }
    }
    // At one instant the ends come first: who ends as another begins does not run beside it.
    changes.sort_unstable();
    let (mut holding, mut holding_max, mut steps) = (0_i64, 0, Vec::<Step>::new());
    for (at_us, change, job) in changes {
        holding += change;
        // Every end has its begin before it.
        let now = u64::try_from(holding).unwrap_or(0);
        holding_max = holding_max.max(now);
        if change > 0 && now > amount {
            report.breach(
                Invariant::Amount,
                format!(
                    "{pool}: {now} at once when {job} began at {at_us} µs, {amount} are allowed"
                ),
            );
        }
        steps.push(Step {
            at_us,
            holding: now,
        });
    }
    report.pools.entry(pool.to_owned()).or_default().at_once_max = holding_max;
    for (execution, lost, from_us, to_us) in late {
        let length_us = full_for(&steps, amount, from_us, to_us);
        if length_us > 0 {
            overlap(history, execution, lost, length_us, report);
        }
    }
}

fn overlap(
    history: &History,
    execution: &Execution,
    lost: &Lost,
    length_us: i64,
    report: &mut Report,
) {
    let begin = &execution.begin;
    let was_disturbed = history
        .disturbed
        .contains_key(&(begin.worker.clone(), begin.incarnation));
    if !was_disturbed {
        report.breach(
            Invariant::Amount,
            format!(
                "{}: {} attempt {} ran on for {length_us} µs while its slot was in other hands, \
                 and worker {} was left alone",
                begin.pool, begin.job, begin.attempt, begin.worker
            ),
        );
    }
    report.overlaps.push(Overlap {
        job: begin.job.clone(),
        attempt: begin.attempt,
        pool: begin.pool.clone(),
        reason: lost.reason,
        length_us,
        was_disturbed,
    });
}

/// For how long of `[from_us, to_us)` every slot is held by others.
fn full_for(steps: &[Step], amount: u64, from_us: i64, to_us: i64) -> i64 {
    let mut length_us = 0;
    for (place, step) in steps.iter().enumerate() {
        if step.holding < amount {
            continue;
        }
        let until_us = steps.get(place + 1).map_or(i64::MAX, |next| next.at_us);
        let (first_us, last_us) = (step.at_us.max(from_us), until_us.min(to_us));
        length_us += last_us.saturating_sub(first_us).max(0);
    }
    length_us
}

fn lost<'a>(history: &'a History, execution: &Execution) -> Option<&'a Lost> {
    history.lost.get(&Attempt {
        job: execution.begin.job.clone(),
        number: execution.begin.attempt,
    })
}
