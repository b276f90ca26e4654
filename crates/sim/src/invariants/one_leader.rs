//! A claim has one leader (S39).

use super::All;

pub(super) fn claimed(all: &mut All, node: u64, claim: u64) {
    let first = *all.claims.entry(claim).or_insert(node);
    if first != node {
        all.violate(format!(
            "members {first} and {node} both led under claim {claim}"
        ));
    }
}
