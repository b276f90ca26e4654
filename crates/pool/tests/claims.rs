//! Entries of another claim than the one in force change nothing (S39).

use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Entry, Launch};
use fermata_pool::outcome::NotLeader;
use fermata_pool::time::{Instant, Stamp};

fn entry(claim: u64, at_s: i64, commands: Vec<Command>) -> Entry {
    Entry {
        claim: Claim(claim),
        stamp: Stamp::utc(Instant::from_ms(1_780_000_000_000 + at_s * 1_000)),
        commands,
    }
}

fn launch() -> Command {
    Command::Launch(Box::new(Launch {
        id: "j".into(),
        delay_s: Some(3_600),
        ..Launch::default()
    }))
}

#[test]
fn what_a_deposed_leader_proposed_changes_nothing() {
    let mut pool = Pool::new();
    assert!(
        pool.apply(1, &entry(3, 0, vec![Command::Takeover]))
            .outcomes
            .is_ok()
    );
    let (digest, stamp) = (pool.digest(), pool.stamp());
    let others = [
        // Deposed, with a takeover of its own that comes too late, and one that took nothing over.
        entry(2, 1, vec![launch()]),
        entry(2, 2, vec![Command::Takeover, launch()]),
        entry(3 + 1, 3, vec![launch()]),
        entry(3 + 1, 4, vec![launch(), Command::Takeover]),
        entry(2, 5, Vec::new()),
    ];
    for (index, other) in (2..).zip(&others) {
        let applied = pool.apply(index, other);
        let refused = Err(NotLeader { claim: Claim(3) });
        assert_eq!(applied.outcomes, refused, "{other:?}");
        assert!(applied.moves.is_empty(), "{other:?}");
    }
    assert_eq!(pool.digest(), digest);
    assert_eq!(pool.stamp(), stamp, "no time has passed either");
    let own = pool.apply(9, &entry(3, 6, vec![launch()]));
    assert!(own.outcomes.is_ok());
    assert_ne!(pool.digest(), digest);
}
