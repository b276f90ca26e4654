//! How far a worker is on its way out.
//!
//! ```text
//! Work ──Drain──► nothing new, what runs ends ──► leaves
//!   └──Stop, Kill───────► what runs is stopped ──► leaves
//! ```
//!
//! A drain becomes a stop when its timeout is over. Once what was stopped has ended, its end is
//! reported for a bounded time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Order, Stop};

/// How long a worker that must be quick tries to report the ends of what it stopped.
pub const REPORT_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Shutdown {
    order: Order,
    /// Whether a node has heard that nothing new is taken.
    pub(super) is_told: bool,
    /// Executions that were stopped for it.
    pub(super) stopped: usize,
    /// When the drain has lasted long enough.
    drain_ends: Option<Instant>,
    /// When nobody is waited for any more.
    ends: Option<Instant>,
}

impl Shutdown {
    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn is_draining(&self) -> bool {
        self.order > Order::Work
    }

    /// What executors are told, if they are to stop.
    pub(super) fn stop(&self) -> Option<Stop> {
        match self.order {
            Order::Work | Order::Drain => None,
            Order::Stop => Some(Stop::DrainEnded),
            Order::Kill => Some(Stop::Shutdown),
        }
    }

    /// Takes an order; false where it is none that stands above those before.
    pub(super) fn ordered(&mut self, order: Order, drain_timeout: Option<Duration>) -> bool {
        if order <= self.order {
            return false;
        }
        self.order = order;
        self.drain_ends = match order {
            Order::Drain => drain_timeout.map(|timeout| Instant::now() + timeout),
            Order::Work | Order::Stop | Order::Kill => None,
        };
        true
    }

    /// Once nothing runs that was to be stopped, the time for reports begins.
    pub(super) fn ends_after(&mut self, nothing_runs: bool) {
        if self.order >= Order::Stop && nothing_runs && self.ends.is_none() {
            self.ends = Some(Instant::now() + REPORT_TIME_MAX);
        }
    }

    /// The next instant at which something changes by itself.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.drain_ends, self.ends].into_iter().flatten().min()
    }

    pub(super) fn drain_has_run_out(&self, now: Instant) -> bool {
        self.drain_ends.is_some_and(|ends| now >= ends)
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.ends.is_some_and(|ends| now >= ends)
    }
}

/// The next order above the one in force; never, where its giver is gone. Cancel safe.
pub(super) async fn above(orders: &mut watch::Receiver<Order>, order: Order) -> Order {
    let next = orders
        .wait_for(|next| *next > order)
        .await
        .map(|next| *next);
    match next {
        Ok(next) => next,
        Err(_) => std::future::pending().await,
    }
}
