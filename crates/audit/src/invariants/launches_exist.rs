//! Every answered launch exists, and nothing else runs.
//!
//! > S38: what was answered to a client is never lost while a majority of disks survives.
//! > S40: a retried request has the effect of one.
//!
//! A launch that was accepted has been executed, or was read by a client afterwards. What was
//! executed, somebody launched.

use crate::history::History;
use crate::report::{Invariant, Report};

pub(super) fn check(history: &History, report: &mut Report) {
    for (job, launch) in &history.launches {
        let must_exist = launch.answered_us.is_some() && !launch.was_aborted;
        let was_seen = history.ended.contains_key(job)
            || history
                .executions
                .range(first_attempt(job)..)
                .next()
                .is_some_and(|(attempt, _)| attempt.job == *job);
        if must_exist && !was_seen {
            report.breach(
                Invariant::LaunchesExist,
                format!("{job} was answered, and is nowhere"),
            );
        }
    }
    let mut last = None;
    for attempt in history.executions.keys() {
        if last != Some(&attempt.job) && !history.launches.contains_key(&attempt.job) {
            report.breach(
                Invariant::LaunchesExist,
                format!("{} ran, and nobody launched it", attempt.job),
            );
        }
        last = Some(&attempt.job);
    }
}

fn first_attempt(job: &str) -> crate::history::Attempt {
    crate::history::Attempt {
        job: job.to_owned(),
        number: 0,
    }
}
