//! Cables that are pulled, and such of which one wire is broken.

use rand::RngExt;

use super::stage::Stage;

pub(super) async fn cut_leader(stage: &mut Stage) {
    let leader = stage.cluster.leader().await;
    cut(stage, leader, "the leader was cut off").await;
}

pub(super) async fn cut_follower(stage: &mut Stage) {
    let follower = stage.cluster.follower().await;
    cut(stage, follower, "a follower was cut off").await;
}

async fn cut(stage: &mut Stage, node: u64, what: &str) {
    stage.network().cut(place(node));
    stage.did(what);
    stage.goes_on().await;
    stage.network().mend(place(node));
}

/// The leader is not heard by the others, or does not hear them; clients reach all of them.
pub(super) async fn cut_one_way(stage: &mut Stage) {
    let leader = stage.cluster.leader().await;
    let is_unheard = stage.random.random();
    let others = stage.others(leader);
    let ways = others.iter().map(|&other| {
        let (leader, other) = (place(leader), place(other));
        if is_unheard {
            (leader, other)
        } else {
            (other, leader)
        }
    });
    let ways: Vec<(u8, u8)> = ways.collect();
    for (from, to) in &ways {
        stage.network().cut_one_way(*from, *to);
    }
    stage.did(if is_unheard {
        "the others did not hear the leader"
    } else {
        "the leader did not hear the others"
    });
    stage.goes_on().await;
    for (from, to) in &ways {
        stage.network().mend_one_way(*from, *to);
    }
}

pub(super) fn place(node: u64) -> u8 {
    u8::try_from(node).expect("a small id")
}
