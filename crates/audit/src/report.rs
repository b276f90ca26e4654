//! What an audit found, for programs and for people.

use std::collections::BTreeMap;
use std::fmt;

use crate::record::LostReason;

/// Most violations that are kept with their text; all are counted.
pub(crate) const VIOLATIONS_KEPT_MAX: usize = 100;

/// An invariant that a history is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// See `invariants/window_rate.rs`.
    WindowRate,
    /// See `invariants/amount.rs`.
    Amount,
    /// See `invariants/run_once.rs`.
    RunOnce,
    /// See `invariants/one_execution.rs`.
    OneExecution,
    /// See `invariants/queue_order.rs`.
    QueueOrder,
    /// See `invariants/launches_exist.rs`.
    LaunchesExist,
    /// See `invariants/stamps_rise.rs`.
    StampsRise,
    /// See `invariants/linearizable.rs`.
    Linearizable,
}

/// One breach of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// What happened.
    pub what: String,
}

/// An execution that went on after its attempt's committed end, while its slot was in other hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The job.
    pub job: String,
    /// The attempt.
    pub attempt: u32,
    /// The pool.
    pub pool: String,
    /// Why the attempt had ended.
    pub reason: LostReason,
    /// For how long more than the pool's `amount` ran because of it, in microseconds.
    pub length_us: i64,
    /// Whether its worker was paused or cut off on purpose. If not, it is a violation as well.
    pub was_disturbed: bool,
}

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Launches that were recorded.
    pub launches: u64,
    /// Those that were answered, and not aborted at once.
    pub accepted: u64,
    /// Executions that began.
    pub begins: u64,
    /// Executions that ended.
    pub ends: u64,
    /// Attempts that ended without their executor.
    pub lost: u64,
    /// Jobs whose place in the queue's order could be judged.
    pub ordered: u64,
    /// Operations that were put in one order.
    pub operations: u64,
    /// Pools of which it would take too long to say whether there is an order.
    pub undecided: u64,
    /// Lines that were torn when their writer was killed.
    pub torn_lines: u64,
}

/// What a pool came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Committed starts that were executed.
    pub starts: u64,
    /// Most executions at once.
    pub at_once_max: u64,
    /// The `amount` that it must keep.
    pub amount: Option<u64>,
    /// Windows in which something started.
    pub windows: u64,
    /// Most starts in one window.
    pub in_window_max: u64,
    /// The rate that it must keep.
    pub rate: Option<u64>,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How much was checked.
    pub counts: Counts,
    /// What each pool with an expectation came to.
    pub pools: BTreeMap<String, PoolCounts>,
    /// Executions after their committed end, longest first.
    pub overlaps: Vec<Overlap>,
    /// How often each invariant was breached; none where it held.
    pub violations_by_invariant: BTreeMap<Invariant, u64>,
    /// The first breaches.
    pub violations: Vec<Violation>,
}

impl Invariant {
    /// Every invariant.
    pub const ALL: [Self; 8] = [
        Self::WindowRate,
        Self::Amount,
        Self::RunOnce,
        Self::OneExecution,
        Self::QueueOrder,
        Self::LaunchesExist,
        Self::StampsRise,
        Self::Linearizable,
    ];
}

impl Report {
    /// Whether every invariant held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations_by_invariant.is_empty()
    }

    pub(crate) fn breach(&mut self, invariant: Invariant, what: String) {
        *self.violations_by_invariant.entry(invariant).or_default() += 1;
        if self.violations.len() < VIOLATIONS_KEPT_MAX {
            self.violations.push(Violation { invariant, what });
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::WindowRate => "no window over its rate",
            Self::Amount => "never more at once than the amount",
            Self::RunOnce => "every job run to its end exactly once",
            Self::OneExecution => "at most one execution per attempt",
            Self::QueueOrder => "starts in the queue's order",
            Self::LaunchesExist => "every answered launch exists",
            Self::StampsRise => "stamps rise with the log",
            Self::Linearizable => "one order explains all answers",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(
            formatter,
            "checked {} launches ({} accepted), {} begins, {} ends, {} places in queues",
            counts.launches, counts.accepted, counts.begins, counts.ends, counts.ordered
        )?;
        if counts.lost + counts.torn_lines > 0 {
            writeln!(
                formatter,
                "        {} attempts ended without their executor, {} torn lines",
                counts.lost, counts.torn_lines
            )?;
        }
        if counts.operations > 0 {
            writeln!(
                formatter,
                "        {} operations in one order, {} pools undecided",
                counts.operations, counts.undecided
            )?;
        }
        for (pool, counts) in &self.pools {
            write!(formatter, "pool    {pool}: {} starts", counts.starts)?;
            if let Some(amount) = counts.amount {
                write!(
                    formatter,
                    ", most at once {} of {amount}",
                    counts.at_once_max
                )?;
            }
            if let Some(rate) = counts.rate {
                write!(
                    formatter,
                    ", most in one of {} windows {} of {rate}",
                    counts.windows, counts.in_window_max
                )?;
            }
            writeln!(formatter)?;
        }
        for invariant in Invariant::ALL {
            match self.violations_by_invariant.get(&invariant) {
                None => writeln!(formatter, "ok      {invariant}")?,
                Some(count) => writeln!(formatter, "BROKEN  {invariant}: {count} times")?,
            }
        }
        for overlap in &self.overlaps {
            let excuse = if overlap.was_disturbed {
                "its worker was paused or cut off"
            } else {
                "its worker was left alone"
            };
            writeln!(
                formatter,
                "overlap {} attempt {} ran on in {} for {} ms; {excuse}",
                overlap.job,
                overlap.attempt,
                overlap.pool,
                overlap.length_us / 1_000
            )?;
        }
        for violation in &self.violations {
            writeln!(
                formatter,
                "        {}: {}",
                violation.invariant, violation.what
            )?;
        }
        let breaches: u64 = self.violations_by_invariant.values().sum();
        match breaches {
            0 => formatter.write_str("the audit holds"),
            _ => write!(formatter, "the audit FAILED: {breaches} violations"),
        }
    }
}
