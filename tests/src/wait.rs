//! The only wait: for a condition, with a deadline.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};

/// Long enough for anything that happens at all, on a machine that has much else to do.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A wait that is longer than this is told: it is where a test spends its time.
const TOLD_MIN: Duration = Duration::from_secs(1);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks until there is something to see, and answers it.
///
/// # Panics
/// The deadline is over; `what` says what was waited for.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let begun = Instant::now();
    loop {
        let seen = look().await;
        let waited = begun.elapsed();
        if seen.is_some() && waited >= TOLD_MIN {
            println!("after {} ms: {what}", waited.as_millis());
        }
        if let Some(seen) = seen {
            return seen;
        }
        assert!(waited < deadline, "not within {deadline:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// The wall clock in microseconds of Unix time, as the audit's records want it.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "records of a history carry the wall clock; nothing is decided by it"
)]
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}
