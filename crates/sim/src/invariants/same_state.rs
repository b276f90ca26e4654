//! Every member that applies the same log has the same state, and says the same of every entry
//! (S37): with clocks and zones that differ (F17), and after a snapshot of another was installed
//! (F22).

use super::All;
use fermata_pool::outcome::Applied;
use std::sync::Arc;

pub(super) fn digest(all: &mut All, node: u64, index: u64, digest: u64) {
    let (theirs, first) = *all.digests.entry(index).or_insert((digest, node));
    if theirs != digest {
        all.violate(format!(
            "after entry {index} the state of member {node} is {digest:016x}, of member {first} \
             {theirs:016x}"
        ));
    }
}

pub(super) fn entry(all: &mut All, node: u64, entry: &Arc<Applied>) {
    let known = all
        .entries
        .entry(entry.index)
        .or_insert_with(|| (node, Arc::clone(entry)));
    if known.1 != *entry {
        let (first, index) = (known.0, entry.index);
        all.violate(format!(
            "entry {index} gave one thing on member {first}, another on member {node}"
        ));
    }
}
