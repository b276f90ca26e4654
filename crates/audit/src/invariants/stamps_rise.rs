//! Committed instants rise with the log.
//!
//! > S36: the leader stamps the later of its clock and the last stamp that it knows.
//!
//! Of two starts, the one that is later in the log has no earlier instant, whoever led.

use super::executions;
use crate::history::History;
use crate::report::{Invariant, Report};

pub(super) fn check(history: &History, report: &mut Report) {
    let mut starts: Vec<_> = executions(history)
        .map(|execution| &execution.begin)
        .collect();
    starts.sort_by_key(|begin| begin.start_index);
    for pair in starts.windows(2) {
        let [earlier, later] = pair else { continue };
        if later.start_us < earlier.start_us {
            report.breach(
                Invariant::StampsRise,
                format!(
                    "{} attempt {} at {:?} started {} µs before {} attempt {} at {:?}",
                    later.job,
                    later.attempt,
                    later.start_index,
                    earlier.start_us - later.start_us,
                    earlier.job,
                    earlier.attempt,
                    earlier.start_index
                ),
            );
        }
    }
}
