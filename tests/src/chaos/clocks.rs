//! Wall clocks that step by an hour and by a day.
//!
//! > S36: a clock that jumps never grants a second quota and never stops the pool.
//!
//! So it went elsewhere (F18). One clock of three is no majority: whoever leads, what was stamped stays near the real time.

use fermata_audit::Begin;
use rand::seq::IndexedRandom;

use super::processes::hand_over;
use super::stage::Stage;

const STEPS_S: [i64; 2] = [3_600, 86_400];
/// How far a committed start may lie from the real begin of its execution: what a busy machine
/// needs to begin it, and what was lost at half speed while a clock was behind. A step that was
/// followed is far more.
const APART_MAX_US: i64 = 120_000_000;

/// The clock of some node steps forward, and of some node backward.
pub(super) async fn step(stage: &mut Stage) {
    for direction in [1, -1] {
        let step_s = *STEPS_S.choose(&mut stage.random).expect("there are some");
        step_once(stage, direction * step_s).await;
    }
}

/// The clock of some node steps; then that node leads; then the clock steps back.
async fn step_once(stage: &mut Stage, step_s: i64) {
    let node = stage.any_node();
    let leader = stage.cluster.leader().await;
    let clock = usize::try_from(node).expect("a small id") - 1;
    stage.clocks[clock].set(step_s);
    let whose = if node == leader { "leader" } else { "follower" };
    stage.did(&format!("the clock of a {whose} stepped by {step_s:+} s"));
    stage.goes_on().await;
    hand_over(stage, node).await;
    stage.did("a node with a wrong clock led");
    stage.goes_on().await;
    stage.clocks[clock].set(0);
    stage.did("its clock stepped back");
    stage.goes_on().await;
}

/// What was stamped is near the real time.
pub(super) fn check(begins: &[Begin]) -> Vec<String> {
    let apart = begins
        .iter()
        .filter(|begin| begin.start_us.abs_diff(begin.at_us) > APART_MAX_US.unsigned_abs());
    let told = apart.map(|begin| {
        format!(
            "{} attempt {} was stamped {} s before it really began",
            begin.job,
            begin.attempt,
            (begin.at_us - begin.start_us) / 1_000_000
        )
    });
    told.take(10).collect()
}
