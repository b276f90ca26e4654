//! Disks that are slow, and such that are full.

use std::time::Duration;

use rand::RngExt;

use super::stage::Stage;
use crate::disk::{DiskFault, FaultyDisk};

/// How much longer a sync takes: less than an election's timeout, so that the leader may stay.
const DELAY: Duration = Duration::from_millis(150);

pub(super) async fn slow(stage: &mut Stage) {
    let leader = stage.cluster.leader().await;
    let is_leader: bool = stage.random.random();
    let node = if is_leader {
        leader
    } else {
        stage.cluster.follower().await
    };
    let process = stage.cluster.node(node).process().id();
    let disk = FaultyDisk::under(process, DiskFault::Slow(DELAY)).await;
    stage.did(if is_leader {
        "the leader's disk was slow"
    } else {
        "a follower's disk was slow"
    });
    stage.goes_on().await;
    disk.mend().await;
}

pub(super) async fn full(stage: &mut Stage) {
    let node = stage.any_node();
    let leader = stage.cluster.leader().await;
    let disk = usize::try_from(node).expect("a small id") - 1;
    stage.disks[disk].fill();
    stage.did(if node == leader {
        "the leader's disk was full"
    } else {
        "a follower's disk was full"
    });
    let exit = stage.cluster.ended(node).await;
    assert!(
        !exit.status.success() && exit.output.contains("No space left on device"),
        "{}: {}",
        exit.status,
        exit.output
    );
    stage.goes_on().await;
    stage.disks[disk].widen();
    stage.cluster.start_node(node).await;
}
