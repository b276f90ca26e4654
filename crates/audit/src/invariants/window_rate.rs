//! No window over its rate, by committed starts.
//!
//! > S2: `rate` = most starts per window. S24, S25: where windows begin and end.
//! > S31: an attempt that became active stays counted.
//!
//! A start counts in the window of its committed instant, whenever its execution really began.
//! Attempts that were not confirmed are refunded and recorded by nobody, so what is recorded is at
//! most what the cluster counted: a window over its rate here was over it there.

use std::collections::BTreeMap;

use super::executions;
use crate::history::History;
use crate::record::{Rate, Windows};
use crate::report::{Invariant, Report};

pub(super) fn check(history: &History, report: &mut Report) {
    for (pool, expectation) in &history.expectations {
        if let Some(rate) = &expectation.rate {
            check_pool(history, pool, rate, report);
        }
    }
}

fn check_pool(history: &History, pool: &str, rate: &Rate, report: &mut Report) {
    let mut starts: BTreeMap<(i64, i64), u64> = BTreeMap::new();
    for execution in executions(history) {
        let begin = &execution.begin;
        if begin.pool != pool {
            continue;
        }
        match window_of(&rate.windows, begin.start_us) {
            Some(window) => *starts.entry(window).or_default() += 1,
            None => report.breach(
                Invariant::WindowRate,
                format!(
                    "{pool}: {} attempt {} started at {} µs, outside of every expected window",
                    begin.job, begin.attempt, begin.start_us
                ),
            ),
        }
    }
    for ((from_us, to_us), count) in &starts {
        if *count > rate.count {
            report.breach(
                Invariant::WindowRate,
                format!(
                    "{pool}: {count} starts from {from_us} to {to_us} µs, {} are allowed",
                    rate.count
                ),
            );
        }
    }
    let counts = report.pools.entry(pool.to_owned()).or_default();
    counts.windows = starts.values().map(|_| 1).sum();
    counts.in_window_max = starts.values().max().copied().unwrap_or(0);
}

/// The window `[from, to)` that holds the instant.
fn window_of(windows: &Windows, at_us: i64) -> Option<(i64, i64)> {
    match windows {
        Windows::UtcS(length_s) => {
            let length_us = i64::from(*length_s) * 1_000_000;
            let from_us = at_us.div_euclid(length_us).checked_mul(length_us)?;
            Some((from_us, from_us.checked_add(length_us)?))
        }
        Windows::BoundariesUs(instants) => {
            let next = instants.partition_point(|boundary| *boundary <= at_us);
            let from_us = *instants.get(next.checked_sub(1)?)?;
            Some((from_us, *instants.get(next)?))
        }
    }
}
