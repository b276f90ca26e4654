//! The invariants, one file each, and the counting of what they are held against.

mod amount;
mod launches_exist;
mod linearizable;
mod one_execution;
mod queue_order;
mod run_once;
mod stamps_rise;
mod window_rate;

use crate::history::{Execution, History};
use crate::report::{PoolCounts, Report};

/// Holds the history against every invariant.
#[must_use]
pub fn check(history: &History) -> Report {
    let mut report = counted(history);
    window_rate::check(history, &mut report);
    amount::check(history, &mut report);
    run_once::check(history, &mut report);
    one_execution::check(history, &mut report);
    queue_order::check(history, &mut report);
    launches_exist::check(history, &mut report);
    stamps_rise::check(history, &mut report);
    linearizable::check(history, &mut report);
    report
}

fn counted(history: &History) -> Report {
    let mut report = Report::default();
    let counts = &mut report.counts;
    for launch in history.launches.values() {
        counts.launches += 1;
        counts.accepted += u64::from(launch.answered_us.is_some() && !launch.was_aborted);
    }
    for execution in executions(history) {
        counts.begins += 1;
        counts.ends += u64::from(execution.end.is_some());
    }
    counts.lost = history.lost.values().map(|_| 1).sum();
    counts.torn_lines = history.torn_lines;
    for (pool, expectation) in &history.expectations {
        let starts = executions(history)
            .filter(|execution| execution.begin.pool == *pool)
            .map(|_| 1)
            .sum();
        let pool_counts = PoolCounts {
            starts,
            amount: expectation.amount,
            rate: expectation.rate.as_ref().map(|rate| rate.count),
            ..PoolCounts::default()
        };
        report.pools.insert(pool.clone(), pool_counts);
    }
    report
}

fn executions(history: &History) -> impl Iterator<Item = &Execution> {
    history.executions.values().flatten()
}
