//! What one command or question costs does not grow with what waits, with the pools or with the
//! servers: steps in tables are counted (`fermata_pool::steps`). `scripts/bench/pool` measures the
//! time of the same.
//!
//! One test: the count is the process's.

mod scale;

use fermata_pool::steps;
use scale::{Cluster, LARGE, OPERATIONS, SMALL};

/// Most steps in the large cluster for one in the small one: a thousand times as many jobs may
/// double the height of a tree.
const RATIO_MAX: f64 = 2.5;
/// How often each operation is done.
const TIMES: u64 = 8;

/// The steps of each operation.
fn steps_of(cluster: &mut Cluster) -> Vec<f64> {
    let count = |work: &mut dyn FnMut()| {
        let before = steps::taken();
        work();
        steps::taken() - before
    };
    OPERATIONS
        .iter()
        .map(|it| {
            let steps: u64 = (0..TIMES).map(|_| it.run(cluster, count)).sum();
            steps as f64 / TIMES as f64
        })
        .collect()
}

#[test]
fn what_a_command_costs_does_not_grow_with_what_is_there() {
    let small = steps_of(&mut Cluster::new(SMALL));
    let large = steps_of(&mut Cluster::new(LARGE));
    let mut above = Vec::new();
    for (it, (small, large)) in OPERATIONS.iter().zip(small.iter().zip(&large)) {
        let ratio = large / small;
        println!(
            "{}: {small:.1} steps, {large:.1}, {ratio:.2} times",
            it.name
        );
        if !(*small > 0.0 && ratio <= RATIO_MAX) {
            above.push(it.name);
        }
    }
    assert!(above.is_empty(), "more than {RATIO_MAX} times: {above:?}");
}
