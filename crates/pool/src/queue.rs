//! The order of a queue: priority, then launch order (S19).
//!
//! The order of a job is one number, [`order_of`], which also orders heads across pools. A queue
//! is a [`crate::ranked::Ranked`] set of such numbers.

use crate::job::{Job, JobNumber};

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
}
