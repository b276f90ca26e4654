//! The format of the state never rises above what a member's program knows, and rises once all know
//! a newer one.
//!
//! That it never falls is seen by the digests, of which it is a part.

use super::All;

pub(super) fn seen(all: &mut All, node: u64, format: u32, format_max: u32) {
    all.format = all.format.max(format);
    if format > format_max {
        all.violate(format!(
            "member {node} goes on with the format {format}, and knows {format_max}"
        ));
    }
}

pub(super) fn judge(all: &mut All, known_to_all: u32) {
    if all.format < known_to_all {
        all.violate(format!(
            "every program knows the format {known_to_all}, and the state still has {}",
            all.format
        ));
    }
}
