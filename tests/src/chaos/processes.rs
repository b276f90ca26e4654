//! Nodes that are killed, stand still, and hand over.

use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;

use super::stage::Stage;
use crate::wait::{DEADLINE, wait_for};

/// Between two hand-overs.
const HAND_OVER_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn kill_leader(stage: &mut Stage) {
    let leader = stage.cluster.leader().await;
    kill(stage, leader, "the leader was killed").await;
}

pub(super) async fn kill_follower(stage: &mut Stage) {
    let follower = stage.cluster.follower().await;
    kill(stage, follower, "a follower was killed").await;
}

async fn kill(stage: &mut Stage, node: u64, what: &str) {
    stage.cluster.kill(node).await;
    stage.did(what);
    stage.goes_on().await;
    stage.cluster.start_node(node).await;
}

pub(super) async fn kill_all(stage: &mut Stage) {
    for node in 1..=3 {
        stage.cluster.kill(node).await;
    }
    stage.did("all nodes were killed");
    for node in 1..=3 {
        stage.cluster.start_node(node).await;
    }
}

pub(super) async fn pause_leader(stage: &mut Stage) {
    let leader = stage.cluster.leader().await;
    stage.cluster.node(leader).process().pause();
    stage.did("the leader stood still");
    stage.goes_on().await;
    stage.cluster.node(leader).process().resume();
}

pub(super) async fn rolling_restart(stage: &mut Stage) {
    for node in 1..=3 {
        let exit = stage.cluster.stop(node).await;
        assert!(exit.status.success(), "{}: {}", exit.status, exit.output);
        stage.did("a node was restarted");
        stage.goes_on().await;
        stage.cluster.start_node(node).await;
        stage.cluster.leader().await;
    }
}

pub(super) async fn move_leadership(stage: &mut Stage) {
    let begun = Instant::now();
    let leader = stage.cluster.leader().await;
    let others = stage.others(leader);
    let to = *others.choose(&mut stage.random).expect("others");
    hand_over(stage, to).await;
    stage.did("leadership was handed over");
    stage.goes_on().await;
    wait_for("a second is over", DEADLINE, async || {
        (begun.elapsed() >= HAND_OVER_EVERY).then_some(())
    })
    .await;
}

/// Has that node lead. It may be behind, and another may have been elected meanwhile.
pub(super) async fn hand_over(stage: &Stage, to: u64) {
    wait_for(&format!("node {to} leads"), DEADLINE, async || {
        // Who leads already is told so, and who is behind is asked again.
        let _ = stage.client.transfer(Some(to)).await;
        let view = stage.cluster.view(to).await?;
        (view.leader == Some(to)).then_some(())
    })
    .await;
}
