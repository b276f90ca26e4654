//! Programs are replaced one node at a time: the format of the state rises once every member says
//! that it knows the newer one, and who does not know it is no member any more.
//!
//! There is one format so far; a program that knows another is one that says so.

mod harness;

use fermata_pool::Pool;
use fermata_replica::{FORMAT_LATEST, ReplicaError, WarningKind};
use harness::{Cluster, DEADLINE, eventually, launch, propose};

const NEWER: u32 = FORMAT_LATEST + 1;

#[tokio::test(flavor = "multi_thread")]
async fn the_format_rises_when_the_last_member_knows_it() {
    let mut cluster = Cluster::of(3).await;
    for node in 1..=3 {
        propose(&cluster, &launch(&format!("before-{node}"))).await;
        for replica in cluster.running.values() {
            assert_eq!(replica.read(Pool::format), FORMAT_LATEST);
        }
        cluster.kill(node).await;
        cluster.knows_format(node, NEWER);
        cluster.restart(node).await;
        if node < 3 {
            // Once the leader has asked everybody, it says who holds the cluster back.
            let leader = cluster.leader().await;
            eventually("who is behind is named", || {
                let warnings = leader.status().warnings();
                let behind = warnings
                    .iter()
                    .filter(|it| it.kind == WarningKind::FormatBehind);
                behind.map(|it| it.node).eq(node + 1..=3)
            })
            .await;
        }
    }
    eventually("all members have the newer format", || {
        let mut formats = cluster.running.values().map(|it| it.read(Pool::format));
        formats.all(|format| format == NEWER)
    })
    .await;
    propose(&cluster, &launch("after")).await;
    cluster.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_the_format_stops_and_says_why() {
    let mut cluster = Cluster::empty();
    for node in 1..=3 {
        cluster.knows_format(node, NEWER);
    }
    cluster.grow(3).await;
    eventually("the format has risen", || {
        let mut formats = cluster.running.values().map(|it| it.read(Pool::format));
        formats.all(|format| format == NEWER)
    })
    .await;

    // By its log, and by its snapshot.
    for by_snapshot in [false, true] {
        if by_snapshot {
            cluster.knows_format(3, NEWER);
            let replica = cluster.restart(3).await;
            eventually("it is up to date", || replica.read(Pool::format) == NEWER).await;
            replica.take_snapshot().await.expect("it is taken");
        }
        cluster.kill(3).await;
        cluster.knows_format(3, FORMAT_LATEST);
        let error = match cluster.try_restart(3).await {
            Ok(replica) => {
                let failed = tokio::time::timeout(DEADLINE, replica.failed()).await;
                drop(replica);
                cluster.kill(3).await;
                failed.expect("it stops")
            }
            Err(error) => error,
        };
        assert!(
            matches!(
                error,
                ReplicaError::TooNew {
                    format: NEWER,
                    most: FORMAT_LATEST
                }
            ),
            "{error}"
        );
    }
    propose(&cluster, &launch("j")).await;
    cluster.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_the_format_is_not_let_in() {
    let mut cluster = Cluster::empty();
    cluster.knows_format(1, NEWER);
    cluster.grow(1).await;
    eventually("the format has risen", || {
        cluster.running[&1].read(Pool::format) == NEWER
    })
    .await;
    let Err(refused) = cluster.join(2).await else {
        panic!("it was let in");
    };
    let said = refused.to_string();
    assert!(said.contains("has the format 2"), "{said}");
}
