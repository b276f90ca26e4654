//! No rolling window has more starts than a sliding rate allows (S27), and no stretch of time more
//! than a token bucket had (S28), however clocks jump and leaders change (F18).

use super::All;
use crate::users;

pub(super) fn judge(all: &mut All) {
    let starts = all.confirmed_starts(users::ROLLING);
    let (most, window_us) = (
        users::ROLLING_RATE,
        i64::from(users::ROLLING_WINDOW_S) * 1_000_000,
    );
    for window in starts.windows(most as usize + 1) {
        if let [first, .., last] = window
            && last - first < window_us
        {
            all.violate(format!(
                "{} starts of {} within {} ms: from {first} to {last}",
                window.len(),
                users::ROLLING,
                (last - first) / 1_000
            ));
        }
    }
    let starts = all.confirmed_starts(users::PACED);
    for (at, from) in starts.iter().enumerate() {
        for (count, to) in (1_i64..).zip(&starts[at..]) {
            let refilled = (to - from) * users::PACED_RATE as i64
                / (i64::from(users::PACED_WINDOW_S) * 1_000_000);
            if count > users::PACED_BURST as i64 + refilled {
                all.violate(format!(
                    "{count} starts of {} between {from} and {to}",
                    users::PACED
                ));
                return;
            }
        }
    }
}
