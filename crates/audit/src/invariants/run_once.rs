//! Every job run to its end exactly once.
//!
//! > S38: what was answered to a client is never lost. S39: no attempt is executed by two
//! > executors. S49: only its last end is final.
//!
//! Of an accepted job one execution came to its end, and its attempts before that ended without
//! their executor (`lost`), or with another code than 0 where the job could be tried again. What
//! clients read is what the worker
//! recorded. A job that a client read as aborted need not have run; one that was
//! aborted at once must not have.

use std::collections::BTreeMap;

use crate::history::{Attempt, Execution, History};
use crate::record::Launch;
use crate::report::{Invariant, Report};

pub(super) fn check(history: &History, report: &mut Report) {
    let mut by_job: BTreeMap<&str, Vec<(&Attempt, &Execution)>> = BTreeMap::new();
    for (attempt, executions) in &history.executions {
        let list = by_job.entry(&attempt.job).or_default();
        list.extend(executions.iter().map(|execution| (attempt, execution)));
    }
    for (job, launch) in &history.launches {
        let executions = by_job.get(job.as_str()).map_or(&[][..], Vec::as_slice);
        if launch.was_aborted {
            if !executions.is_empty() {
                report.breach(
                    Invariant::RunOnce,
                    format!("{job} was answered as aborted, and ran"),
                );
            }
            continue;
        }
        let was_read_as_aborted = history
            .ended
            .get(job)
            .is_some_and(|ended| ended.aborted.is_some());
        // An unknown launch that never ran may not exist.
        let must_run =
            !was_read_as_aborted && (launch.answered_us.is_some() || !executions.is_empty());
        check_job(history, launch, executions, must_run, report);
    }
}

fn check_job(
    history: &History,
    launch: &Launch,
    executions: &[(&Attempt, &Execution)],
    must_run: bool,
    report: &mut Report,
) {
    let job = &launch.job;
    let last = executions.iter().map(|(attempt, _)| attempt.number).max();
    let (mut ends, mut retries, mut is_open) = (0, 0, false);
    for (attempt, execution) in executions {
        let is_lost = history.lost.contains_key(attempt);
        match &execution.end {
            // It ran on after its committed end, or did not come to its own.
            _ if is_lost => {}
            // The attempts are in their order, so the first ones use up the retries.
            Some(end)
                if end.code != 0 && Some(attempt.number) != last && retries < launch.retries =>
            {
                retries += 1;
            }
            Some(end) => {
                ends += 1;
                check_result(history, attempt, end.code, report);
            }
            None if must_run => {
                is_open = true;
                report.breach(
                    Invariant::RunOnce,
                    format!(
                        "{job} attempt {} began on {} and never ended",
                        attempt.number, execution.begin.worker
                    ),
                );
            }
            None => {}
        }
    }
    if ends > 1 {
        report.breach(
            Invariant::RunOnce,
            format!("{job} was run to its end {ends} times"),
        );
    }
    if ends == 0 && must_run && !is_open {
        report.breach(
            Invariant::RunOnce,
            format!("{job} was accepted and never run to its end"),
        );
    }
}

/// The result that clients read is the one that the worker recorded.
fn check_result(history: &History, attempt: &Attempt, code: i32, report: &mut Report) {
    let read = history
        .ended
        .get(&attempt.job)
        .filter(|ended| ended.attempt == attempt.number)
        .and_then(|ended| ended.code);
    if let Some(read) = read.filter(|read| *read != code) {
        report.breach(
            Invariant::RunOnce,
            format!(
                "{} attempt {} ended with {code} and was read as {read}",
                attempt.job, attempt.number
            ),
        );
    }
}
