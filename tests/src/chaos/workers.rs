//! Workers that are cut off, and such that stand still.

use fermata_api::jobs::AbortReason;
use rand::seq::IteratorRandom;

use super::network::place;
use super::stage::Stage;
use crate::fleet::{missed, online};

/// The worker is not told of as disturbed: awake as it is, it has stopped before its slots are in
/// other hands (S41).
pub(super) async fn cut(stage: &mut Stage) {
    let leader = stage.cluster.leader().await;
    let worker = stage.worker_beside(leader);
    let held = stage.load.hold(&stage.client, &worker).await;
    stage.network().cut(place(leader));
    stage.did("the leader was cut off with a worker");
    missed(&stage.client, &worker, true).await;
    must_be_lost(stage, &held).await;
    stage.goes_on().await;
    stage.network().mend(place(leader));
    online(&stage.client, &worker).await;
}

pub(super) async fn pause(stage: &mut Stage) {
    let worker = stage.fleet.servers().choose(&mut stage.random);
    let worker = worker.expect("a worker").to_owned();
    let held = stage.load.hold(&stage.client, &worker).await;
    let paused = stage.fleet.pause_until_missed(&stage.client, &worker, true);
    paused.await;
    stage.did("a worker stood still past its lease");
    must_be_lost(stage, &held).await;
    stage.goes_on().await;
}

/// What the worker ran has ended without it.
async fn must_be_lost(stage: &Stage, held: &str) {
    let job = stage.client.job(held).await.expect("it was launched");
    assert_eq!(job.reason, Some(AbortReason::ServerLost), "{job:?}");
}
