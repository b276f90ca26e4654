//! Wall clocks that are wrong on purpose, over one true time.

use fermata_replica::environment::WallClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The true time at which every run begins, in microseconds of Unix time: shortly before a
/// midnight, so that days turn over.
pub(crate) const EPOCH_US: i64 = 1_774_828_780_000_000;

/// The true time, in microseconds of Unix time.
pub(crate) fn true_us() -> i64 {
    let elapsed = turmoil::sim_elapsed().unwrap_or_default();
    EPOCH_US + i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX - EPOCH_US)
}

/// The wall clock of one host; a clone is the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wall(Arc<AtomicI64>);

impl Wall {
    /// Sets how far it is ahead of the true time, in microseconds.
    pub(crate) fn set_ahead_us(&self, ahead_us: i64) {
        self.0.store(ahead_us, Ordering::Relaxed);
    }
}

impl WallClock for Wall {
    fn now_us(&self) -> i64 {
        true_us() + self.0.load(Ordering::Relaxed)
    }
}
