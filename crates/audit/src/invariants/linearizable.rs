//! The answers about a ration can be explained by one order of what was asked.
//!
//! > S38: what was answered to a client is never lost while a majority of disks survives. S39: a
//! > start is never counted twice. S40: a retried request has the effect of one.

use std::collections::BTreeMap;

use crate::history::History;
use crate::linear::{self, Verdict};
use crate::ration::Operation;
use crate::report::{Invariant, Report};

pub(super) fn check(history: &History, report: &mut Report) {
    let mut by_pool: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in &history.operations {
        by_pool.entry(&operation.pool).or_default().push(operation);
    }
    let mut breaches = Vec::new();
    for (pool, operations) in by_pool {
        report.counts.operations += operations.len() as u64;
        for (operation, highest) in linear::index_goes_back(&operations) {
            breaches.push(format!(
                "{pool}: {:?} at {} was answered by less of the log than the entry {highest}, which \
                 was seen before",
                operation.ask, operation.sent_us
            ));
        }
        let Some(ration) = history.rations.get(pool) else {
            breaches.push(format!("{pool}: nobody recorded its rate"));
            continue;
        };
        match linear::search(ration.rate, &operations) {
            Verdict::Explained => {}
            Verdict::Undecided => report.counts.undecided += 1,
            Verdict::Unexplained { ordered, stuck } => breaches.push(format!(
                "{pool}: no order explains the answers to {} operations: after {ordered} of them, \
                 not to {:?} of {}, answered {:?}",
                operations.len(),
                stuck.ask,
                stuck.sent_us,
                stuck.answer
            )),
        }
    }
    for breach in breaches {
        report.breach(Invariant::Linearizable, breach);
    }
}
