//! The order of a queue: priority, then launch order (S19).
//!
//! The order of a job is one number, [`order_of`], which also orders heads across pools. A queue
//! is a sorted set of such numbers that knows the rank of each: pages of a few hundred, filled to
//! the brim when jobs come in order, as they do.
//!
//! Caveat: the rank of a job adds up the lengths of the pages before it.

use crate::job::{Job, JobNumber};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Most jobs of a page.
const PAGE_JOBS_MAX: usize = 512;
/// Bits of a job's number within its order: enough for two thousand years of a million a second.
const NUMBER_BITS: u32 = 56;

/// What jobs are ordered by: a higher priority first, then launch order.
pub(crate) fn order_of(number: JobNumber, job: &Job) -> u64 {
    order(job.priority, number)
}

/// The order of a job of this priority and number.
pub(crate) fn order(priority: i8, number: JobNumber) -> u64 {
    let by_priority = (127 - i64::from(priority)).unsigned_abs();
    (by_priority << NUMBER_BITS) | number.0
}

/// The job that an order belongs to.
pub(crate) fn job_of(order: u64) -> JobNumber {
    JobNumber(order & ((1 << NUMBER_BITS) - 1))
}

/// The waiting jobs of one pool, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    pages: VecDeque<Vec<u64>>,
    len: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.pages.front().and_then(|page| page.first()).copied()
    }

    /// The first of this order or a later one.
    pub(crate) fn first_from(&self, order: u64) -> Option<u64> {
        let at = self.page_of(order);
        let page = self.pages.get(at)?;
        let within = page.get(page.partition_point(|it| *it < order));
        let next = || self.pages.get(at + 1).and_then(|page| page.first());
        within.or_else(next).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().flatten().copied()
    }

    /// The page that holds an order, or would.
    fn page_of(&self, order: u64) -> usize {
        let later = self
            .pages
            .partition_point(|page| page.first().is_some_and(|it| *it <= order));
        later.saturating_sub(1)
    }

    pub(crate) fn insert(&mut self, order: u64) {
        let at = self.page_of(order);
        let Some(page) = self.pages.get_mut(at) else {
            self.pages.push_back(Vec::from([order]));
            self.len = 1;
            return;
        };
        let Err(place) = page.binary_search(&order) else {
            return;
        };
        self.len += 1;
        if page.len() < PAGE_JOBS_MAX {
            page.insert(place, order);
        } else if place == page.len() {
            // The usual case: a queue that grows at its end leaves full pages behind.
            self.pages.insert(at + 1, Vec::from([order]));
        } else {
            let rest = page.split_off(PAGE_JOBS_MAX / 2);
            self.pages.insert(at + 1, rest);
            self.len -= 1;
            self.insert(order);
        }
    }

    pub(crate) fn remove(&mut self, order: u64) {
        let at = self.page_of(order);
        let Some(page) = self.pages.get_mut(at) else {
            return;
        };
        let Ok(place) = page.binary_search(&order) else {
            return;
        };
        page.remove(place);
        self.len -= 1;
        if page.is_empty() {
            self.pages.remove(at);
        }
    }

    /// How many come before an order.
    pub(crate) fn rank(&self, order: u64) -> usize {
        let at = self.page_of(order);
        let before: usize = self.pages.iter().take(at).map(Vec::len).sum();
        let within = self
            .pages
            .get(at)
            .map_or(0, |page| page.partition_point(|it| *it < order));
        before + within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_priority_then_number() {
        assert!(order(1, JobNumber(9)) < order(0, JobNumber(1)));
        assert!(order(0, JobNumber(1)) < order(0, JobNumber(2)));
        assert!(order(-100, JobNumber(1)) > order(100, JobNumber((1 << NUMBER_BITS) - 1)));
        assert_eq!(job_of(order(-100, JobNumber(77))), JobNumber(77));
    }

    #[test]
    fn keeps_order_and_rank_through_any_insertion() {
        let mut queue = Queue::default();
        let count = 5_000_u64;
        // A permutation: 1,999 has no factor in common with 5,000.
        for step in 0..count {
            queue.insert(step * 1_999 % count);
        }
        queue.insert(7);
        assert_eq!(queue.len(), 5_000);
        assert!(queue.iter().eq(0..count));
        assert_eq!(queue.rank(4_321), 4_321);
        (0..count)
            .filter(|order| order % 3 != 0)
            .for_each(|order| queue.remove(order));
        queue.remove(1);
        assert!(queue.iter().eq((0..count).filter(|order| order % 3 == 0)));
        assert_eq!(queue.rank(300), 100);
        assert_eq!(queue.first(), Some(0));
    }
}
