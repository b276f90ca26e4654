//! What an entry tells about the rates in it: on request, and bounded (S44).

use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Entry, Executor, Launch};
use fermata_pool::limits::{Limit, LimitKind, RateLimit};
use fermata_pool::outcome::{Applied, RATE_CHECKS_PER_ENTRY_MAX, RateOutcome};
use fermata_pool::time::{Instant, Stamp};

/// Rates that each job of the test takes a start from.
const RATES: usize = 16;

fn launch(number: usize) -> Command {
    let limits = (0..RATES).map(|key| Limit {
        enabled: true,
        kind: LimitKind::Rate(RateLimit {
            key: format!("k{key}").into(),
            count: 1_000,
            per_seconds: 60,
            style: None,
            burst: None,
            mode: None,
        }),
    });
    Command::Launch(Box::new(Launch {
        id: format!("j{number}").into(),
        executor: Some(Executor::Caller),
        limits: limits.collect(),
        ..Launch::default()
    }))
}

/// Applies so many launches in one entry to a new pool.
fn apply(launches: usize, recorded: bool) -> (Pool, Applied) {
    let mut pool = Pool::new();
    pool.record_rate_checks(recorded);
    let mut commands = vec![Command::Takeover];
    commands.extend((0..launches).map(launch));
    let entry = Entry {
        claim: Claim(1),
        stamp: Stamp::utc(Instant::from_ms(1_780_000_000_000)),
        commands,
    };
    let applied = pool.apply(1, &entry);
    (pool, applied)
}

#[test]
fn nothing_is_told_unless_somebody_asks_and_the_state_is_the_same() {
    let (asked, told) = apply(2, true);
    let (unasked, untold) = apply(2, false);
    assert_eq!(told.checks.len(), 2 * RATES);
    assert!(untold.checks.is_empty());
    assert_eq!(asked.digest(), unasked.digest());
    assert_eq!(told.outcomes, untold.outcomes);
    let first = told.checks.first().expect("there is one");
    assert_eq!(&*first.key, "rate:k0");
    assert_eq!((first.count, first.window_s), (1_000, 60));
    assert_eq!(first.outcome, RateOutcome::Acquired);
}

#[test]
fn one_entry_tells_so_much_and_no_more() {
    let launches = 1 + RATE_CHECKS_PER_ENTRY_MAX / RATES;
    let (pool, told) = apply(launches, true);
    assert_eq!(told.checks.len(), RATE_CHECKS_PER_ENTRY_MAX);
    assert_eq!(pool.stats().acquired, (launches * RATES) as u64);
}
