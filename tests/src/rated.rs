//! A pool with an amount and fixed windows: what its event says, and what the audit holds it to.

use fermata_audit::{Expectation, Rate, Windows};
use serde_json::{Value, json};

/// More jobs than ever wait in a run.
const QUEUE_MAX: u64 = 100_000;

/// Its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Rated {
    /// Most jobs at once.
    pub amount: u64,
    /// Most starts in a window.
    pub starts_per_window: u64,
    /// The length of a window, which is aligned to UTC, in seconds.
    pub window_s: u32,
}

impl Rated {
    /// An event whose jobs share a key, or are a pool by themselves.
    #[must_use]
    pub fn event(&self, cap_key: Option<&str>) -> Value {
        let mut job = json!({"type": "job", "amount": self.amount, "rate": self.starts_per_window,
            "window": self.window_s, "align": "utc"});
        if let Some(key) = cap_key {
            job["cap_key"] = json!(key);
        }
        json!({"limits": [job, {"type": "queue", "amount": QUEUE_MAX}]})
    }

    /// What its pool must keep.
    #[must_use]
    pub fn expectation(&self, pool: &str) -> Expectation {
        Expectation {
            pool: pool.to_owned(),
            amount: Some(self.amount),
            rate: Some(Rate {
                count: self.starts_per_window,
                windows: Windows::UtcS(self.window_s),
            }),
        }
    }
}
