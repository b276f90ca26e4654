//! Workers that are cut off, and such that stand still.

use rand::seq::IteratorRandom;

use super::network::place;
use super::stage::Stage;
use crate::fleet::{missed, online};

/// The worker is not told of as disturbed: awake as it is, it has stopped before its slots are in
/// other hands (S41).
pub(super) async fn cut(stage: &mut Stage) {
    let leader = stage.cluster.leader().await;
    let worker = stage.worker_beside(leader);
    stage.network().cut(place(leader));
    stage.did("the leader was cut off with a worker");
    missed(&stage.client, &worker, true).await;
    stage.goes_on().await;
    stage.network().mend(place(leader));
    online(&stage.client, &worker).await;
}

pub(super) async fn pause(stage: &mut Stage) {
    let worker = stage.fleet.servers().choose(&mut stage.random);
    let worker = worker.expect("a worker").to_owned();
    let paused = stage.fleet.pause_until_missed(&stage.client, &worker, true);
    paused.await;
    stage.did("a worker stood still past its lease");
    stage.goes_on().await;
}
