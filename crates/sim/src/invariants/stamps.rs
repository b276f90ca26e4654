//! Stamps never go back, and a clock that jumps ahead does not take them along (S36).

use super::All;

/// How far a stamp may be ahead of the true time: a member's skew, and one step that is followed at
/// once.
const AHEAD_US_MAX: i64 = crate::faults::SKEW_US_MAX + 5_000_000 + 1_000_000;

pub(super) fn seen(all: &mut All, index: u64, stamp_us: i64, true_us: i64) {
    let before = all.stamps.range(..index).next_back();
    if let Some((earlier, (stamp, _))) = before
        && *stamp > stamp_us
    {
        let (earlier, stamp) = (*earlier, *stamp);
        all.violate(format!(
            "entry {index} is stamped {stamp_us}, before the {stamp} of entry {earlier}"
        ));
    }
    all.stamps.entry(index).or_insert((stamp_us, true_us));
    if stamp_us - true_us > AHEAD_US_MAX {
        let ahead_ms = (stamp_us - true_us) / 1_000;
        all.violate(format!(
            "entry {index} is stamped {ahead_ms} ms ahead of the true time"
        ));
    }
}
