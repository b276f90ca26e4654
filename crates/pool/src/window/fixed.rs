//! A fixed window: a counter that ends at a boundary of the clock (S24, S25).
//!
//! Caveat: up to twice the rate may start close together on the two sides of a boundary. That is
//! what a fixed window is (S45); who cannot bear it takes another style.

use super::Opening;
use crate::limits::Align;
use crate::terms::RateSettings;
use crate::time::{Instant, Stamp, next_multiple};
use serde::{Deserialize, Serialize};

/// The counter of a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// Starts taken. An override may bring the rate below it.
    pub count: u32,
    /// The boundary at which the window is gone.
    pub ends_at: Instant,
}

impl Fixed {
    pub(super) fn open(force: &RateSettings, stamp: &Stamp) -> Fixed {
        Fixed {
            count: 0,
            ends_at: boundary(force, stamp),
        }
    }

    pub(super) fn opening(&self, force: &RateSettings) -> Opening {
        if self.count < force.rate {
            Opening::Open
        } else if force.rate == 0 {
            Opening::Never
        } else {
            Opening::At(self.ends_at)
        }
    }

    pub(super) fn refit(&mut self, before: &RateSettings, after: &RateSettings, stamp: &Stamp) {
        if before.window_s != after.window_s {
            self.ends_at = boundary(after, stamp);
        }
    }
}

/// The next boundary, after now, of the length in force.
fn boundary(force: &RateSettings, stamp: &Stamp) -> Instant {
    match (force.align, force.window_s) {
        (Align::Local, 1) => stamp.boundaries.second,
        (Align::Local, 60) => stamp.boundaries.minute,
        (Align::Local, 3_600) => stamp.boundaries.hour,
        (Align::Local, 86_400) => stamp.boundaries.day,
        (_, window_s) => next_multiple(stamp.at, window_s),
    }
}
