//! The only stamp (S36).
//!
//! An entry's instant decides which window a start falls into, so a clock that jumps must neither
//! grant a second quota nor stop the pool. The clock here therefore does not show the wall clock:
//! it *runs* on monotonic time and *follows* the wall clock.
//!
//! - A wall clock that is a little ahead is followed at once, up to `max_clock_step`.
//! - One that is ahead by more has stepped. It is followed when a majority of the members' clocks
//!   show about the same; a member that is alone follows once the step has stood for a minute.
//!   Until then the clock goes on by monotonic time.
//! - One that is behind is waited for at half speed, never backward: every deadline still comes.
//!
//! [`Clock`] is that rule as data: whoever reads it says what the clocks of the machine and of
//! the members show ([`Sight`]). [`Clocks`] is the thin part that asks them.
//!
//! A new leader begins at the last stamp that it knows ([`Clock::resume`]), not at its own wall
//! clock: its clock may be the one that is wrong. What lies between is a step like any other, and
//! the majority that elected it is there to agree.
//!
//! Caveats: nothing can be said about what a clock did while its process was down, so a member
//! that is alone believes it when it starts. Steps that are each within the allowed one are
//! followed each, however many come. While a machine sleeps monotonic time stands, so waking up
//! is a step.

use crate::environment::WallClock;
use fermata_calendar::Zone;
use fermata_pool::time::{Boundaries, Instant, Stamp};
use std::sync::Arc;
use std::time::Duration;

/// How long a step has stood before a member that is alone follows it.
pub(crate) const ALONE_STANDS_US: i64 = 60_000_000;

/// What the clocks show at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    /// This machine's wall clock, in microseconds of Unix time.
    pub wall_us: i64,
    /// Its monotonic time, in microseconds since any fixed moment.
    pub monotonic_us: i64,
    /// The last stamp that is known, in microseconds of Unix time.
    pub last_stamp_us: i64,
    /// A step up to this is followed at once (`max_clock_step`).
    pub step_us_max: i64,
    /// Where the wall clocks of the other voters are now, as far as they were asked lately.
    pub others_us: &'a [i64],
    /// How many voters there are, this member among them.
    pub voters: usize,
}

impl Sight<'_> {
    /// Whether a majority of the voters, this one among them, show what this wall clock shows.
    fn majority_agrees(&self) -> bool {
        let agree =
            |&&other: &&i64| other.abs_diff(self.wall_us) <= self.step_us_max.unsigned_abs();
        let agreeing = 1 + self.others_us.iter().filter(agree).count();
        self.voters > 1 && agreeing > self.voters / 2
    }
}

/// A step of the wall clock that is not followed yet.
#[derive(Clone, Copy, Debug)]
struct Step {
    seen_at_monotonic_us: i64,
    ahead_us: i64,
}

/// A clock that runs on monotonic time and follows the wall clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// What it showed last, and at which monotonic time; none before the first look.
    shown: Option<(i64, i64)>,
    step: Option<Step>,
}

impl Clock {
    /// Goes back to the last stamp: a new leader's clock goes on from there, if it has others to
    /// ask. Without any stamp, or alone, it goes on from where it is.
    pub(crate) fn resume(&mut self, sight: &Sight<'_>) {
        if sight.last_stamp_us > 0 && sight.voters > 1 {
            self.shown = Some((sight.last_stamp_us, sight.monotonic_us));
            self.step = None;
        }
    }

    /// Microseconds of Unix time: never less than the last stamp, and than what it showed before.
    pub(crate) fn read(&mut self, sight: &Sight<'_>) -> i64 {
        let shown_us = match self.shown {
            None => sight.wall_us,
            Some((before_us, at_us)) => self.go_on(sight, before_us, sight.monotonic_us - at_us),
        };
        let shown_us = shown_us.max(sight.last_stamp_us);
        self.shown = Some((shown_us, sight.monotonic_us));
        shown_us
    }

    fn go_on(&mut self, sight: &Sight<'_>, before_us: i64, elapsed_us: i64) -> i64 {
        let elapsed_us = elapsed_us.max(0);
        let expected_us = before_us.saturating_add(elapsed_us);
        let ahead_us = sight.wall_us.saturating_sub(expected_us);
        if ahead_us < 0 {
            self.step = None;
            return sight.wall_us.max(before_us.saturating_add(elapsed_us / 2));
        }
        if ahead_us <= sight.step_us_max
            || sight.majority_agrees()
            || (sight.voters <= 1 && self.has_stood(sight, ahead_us))
        {
            self.step = None;
            return sight.wall_us;
        }
        expected_us
    }

    /// Whether this step has been there for so long; a wall clock that moves on is another step.
    fn has_stood(&mut self, sight: &Sight<'_>, ahead_us: i64) -> bool {
        match self.step {
            Some(step) if step.ahead_us.abs_diff(ahead_us) <= sight.step_us_max.unsigned_abs() => {
                sight.monotonic_us - step.seen_at_monotonic_us >= ALONE_STANDS_US
            }
            _ => {
                self.step = Some(Step {
                    seen_at_monotonic_us: sight.monotonic_us,
                    ahead_us,
                });
                false
            }
        }
    }
}

/// The stamp of an instant: with the boundaries of exactly that instant in a zone (S24).
pub(crate) fn stamp(zone: &Zone, at_us: i64) -> Stamp {
    let at = Instant::from_us(at_us);
    let after = zone.boundaries_after(at.us());
    Stamp {
        at,
        boundaries: Boundaries {
            second: Instant::from_us(after.second_us),
            minute: Instant::from_us(after.minute_us),
            hour: Instant::from_us(after.hour_us),
            day: Instant::from_us(after.day_us),
        },
    }
}

/// The clocks that a member reads.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    began: tokio::time::Instant,
    wall: Arc<dyn WallClock>,
}

impl Clocks {
    /// Monotonic time counts from now.
    pub(crate) fn new(wall: Arc<dyn WallClock>) -> Clocks {
        Clocks {
            began: tokio::time::Instant::now(),
            wall,
        }
    }

    /// Microseconds since it was made.
    pub(crate) fn monotonic_us(&self) -> i64 {
        to_us(self.began.elapsed())
    }

    /// The wall clock, in microseconds of Unix time.
    pub(crate) fn wall_us(&self) -> i64 {
        self.wall.now_us()
    }
}

/// Whole microseconds; a duration beyond what counts is the longest that does.
pub(crate) fn to_us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A duration of so many microseconds; none for a negative number.
pub(crate) fn from_us(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// One look: what the clocks show, and what ours is to show.
    struct Look {
        wall_s: i64,
        monotonic_s: i64,
        last_stamp_s: i64,
        others_s: &'static [i64],
        shows_us: i64,
    }

    fn look(wall_s: i64, monotonic_s: i64, shows_us: i64) -> Look {
        Look {
            wall_s,
            monotonic_s,
            last_stamp_s: 0,
            others_s: &[],
            shows_us,
        }
    }

    fn check(name: &str, voters: usize, looks: &[Look]) {
        check_from(name, voters, &mut Clock::default(), looks);
    }

    fn check_from(name: &str, voters: usize, clock: &mut Clock, looks: &[Look]) {
        for (at, look) in looks.iter().enumerate() {
            let others_us: Vec<i64> = look.others_s.iter().map(|s| s * SECOND).collect();
            let shows = clock.read(&Sight {
                wall_us: look.wall_s * SECOND,
                monotonic_us: look.monotonic_s * SECOND,
                last_stamp_us: look.last_stamp_s * SECOND,
                step_us_max: 5 * SECOND,
                others_us: &others_us,
                voters,
            });
            assert_eq!(shows, look.shows_us, "{name}: look {at}");
        }
    }

    #[test]
    fn follows_a_wall_clock_that_runs_and_small_steps() {
        let looks = [
            look(1_000, 0, 1_000 * SECOND),
            look(1_010, 10, 1_010 * SECOND),
            look(1_016, 11, 1_016 * SECOND),
        ];
        check("five seconds ahead", 3, &looks);
    }

    #[test]
    fn a_step_is_not_followed_without_a_majority() {
        let mut looks = vec![
            look(1_000, 0, 1_000 * SECOND),
            look(4_601, 1, 1_001 * SECOND),
            look(4_700, 100, 1_100 * SECOND),
        ];
        check("nobody was asked", 3, &looks);
        looks[1].others_s = &[1_001];
        looks[2].others_s = &[1_100, 1_100];
        check("the others show the old time", 3, &looks);
        looks[2].others_s = &[4_698, 1_100];
        looks[2].shows_us = 4_700 * SECOND;
        check("two of three", 3, &looks);
        looks[2].shows_us = 1_100 * SECOND;
        check("two of five", 5, &looks);
    }

    #[test]
    fn a_member_that_is_alone_follows_a_step_that_has_stood_for_a_minute() {
        let looks = [
            look(1_000, 0, 1_000 * SECOND),
            look(4_601, 1, 1_001 * SECOND),
            look(4_660, 60, 1_060 * SECOND),
            look(4_661, 61, 4_661 * SECOND),
        ];
        check("it stood", 1, &looks);
        let moved = [
            look(1_000, 0, 1_000 * SECOND),
            look(4_601, 1, 1_001 * SECOND),
            look(9_660, 60, 1_060 * SECOND),
            look(9_661, 61, 1_061 * SECOND),
            look(9_720, 120, 9_720 * SECOND),
        ];
        check("it moved on", 1, &moved);
        let back = [
            look(1_000, 0, 1_000 * SECOND),
            look(4_601, 1, 1_001 * SECOND),
            look(1_030, 30, 1_030 * SECOND),
            look(4_661, 61, 1_061 * SECOND),
        ];
        check("it went back in between", 1, &back);
    }

    #[test]
    fn waits_at_half_speed_for_a_wall_clock_that_is_behind() {
        let looks = [
            look(1_000, 0, 1_000 * SECOND),
            look(901, 1, 1_000 * SECOND + SECOND / 2),
            look(1_000, 100, 1_050 * SECOND),
            look(1_100, 200, 1_100 * SECOND),
            look(1_101, 201, 1_101 * SECOND),
        ];
        check("a step back of 100 s is made good after 200 s", 3, &looks);
    }

    #[test]
    fn never_shows_less_than_the_last_stamp() {
        let mut looks = [
            look(1_000, 0, 2_000 * SECOND),
            look(1_010, 10, 2_005 * SECOND),
            look(1_010, 10, 2_005 * SECOND),
        ];
        looks[0].last_stamp_s = 2_000;
        check("another leader was ahead", 3, &looks);
    }

    #[test]
    fn a_new_leader_goes_on_from_the_last_stamp_until_a_majority_agrees() {
        let sight = Sight {
            wall_us: 9_000 * SECOND,
            monotonic_us: 100 * SECOND,
            last_stamp_us: 1_000 * SECOND,
            step_us_max: 5 * SECOND,
            others_us: &[],
            voters: 3,
        };
        let mut clock = Clock::default();
        clock.resume(&sight);
        let mut looks = [
            look(9_000, 100, 1_000 * SECOND),
            look(9_001, 101, 1_001 * SECOND),
            look(9_002, 102, 9_002 * SECOND),
        ];
        looks[2].others_s = &[9_001];
        check_from("the cluster was idle", 3, &mut clock, &looks);

        let mut alone = Clock::default();
        alone.resume(&Sight { voters: 1, ..sight });
        check_from("alone", 1, &mut alone, &[look(9_000, 100, 9_000 * SECOND)]);
    }

    #[test]
    fn no_clock_overflows_it() {
        let mut clock = Clock::default();
        for wall_us in [i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX] {
            let shown = clock.read(&Sight {
                wall_us,
                monotonic_us: 0,
                last_stamp_us: 0,
                step_us_max: 5 * SECOND,
                others_us: &[0],
                voters: 3,
            });
            assert!(shown >= 0);
        }
    }

    #[test]
    fn a_stamp_carries_the_boundaries_of_its_own_instant() {
        let zone = Zone::built_in("Asia/Kolkata").expect("a zone that is built in");
        let stamp = stamp(&zone, 1_772_452_817_250_000);
        assert_eq!(stamp.at.to_string(), "2026-03-02T12:00:17.250Z");
        let shown = |instant: Instant| instant.to_string();
        assert_eq!(shown(stamp.boundaries.second), "2026-03-02T12:00:18.000Z");
        assert_eq!(shown(stamp.boundaries.minute), "2026-03-02T12:01:00.000Z");
        assert_eq!(shown(stamp.boundaries.hour), "2026-03-02T12:30:00.000Z");
        assert_eq!(shown(stamp.boundaries.day), "2026-03-02T18:30:00.000Z");
    }
}
