//! At most one execution per committed attempt.
//!
//! > S13: a start gives a job a new `attempt`, an instant, a place in the log, and a server.
//! > S39: no attempt is executed by two executors.
//!
//! So no attempt begins twice, no two attempts share a place in the log, and nothing ends that did
//! not begin.

use std::collections::BTreeMap;

use super::executions;
use crate::history::History;
use crate::report::{Invariant, Report};

pub(super) fn check(history: &History, report: &mut Report) {
    for (attempt, executions) in &history.executions {
        if executions.len() > 1 {
            let workers: Vec<String> = executions
                .iter()
                .map(|run| format!("{}#{}", run.begin.worker, run.begin.incarnation))
                .collect();
            report.breach(
                Invariant::OneExecution,
                format!(
                    "{} attempt {} was executed {} times, by {}",
                    attempt.job,
                    attempt.number,
                    executions.len(),
                    workers.join(", ")
                ),
            );
        }
    }
    let mut places = BTreeMap::new();
    for execution in executions(history) {
        let begin = &execution.begin;
        let attempt = (&begin.job, begin.attempt);
        let first = *places.entry(begin.start_index).or_insert(attempt);
        if first != attempt {
            report.breach(
                Invariant::OneExecution,
                format!(
                    "{} attempt {} and {} attempt {} have one start, {:?}",
                    first.0, first.1, attempt.0, attempt.1, begin.start_index
                ),
            );
        }
    }
    for end in &history.loose_ends {
        report.breach(
            Invariant::OneExecution,
            format!(
                "{} attempt {} ended on {} without a begin",
                end.job, end.attempt, end.worker
            ),
        );
    }
}
