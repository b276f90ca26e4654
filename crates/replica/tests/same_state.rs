//! Members whose states differ do not go on: who differs from a majority stops, and where there is
//! no majority all do (S37).

#![expect(clippy::expect_used, reason = "what the test builds is its own")]

mod harness;

use fermata_pool::command::Entry;
use fermata_replica::raft::{LogEntry, Proposal};
use fermata_replica::store::{Owner, Store};
use fermata_replica::{NodeId, Replica, ReplicaError};
use harness::{Cluster, DEADLINE, eventually, launch, leads, node_of, propose, server};
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
use std::path::Path;

/// Ends a member, and leaves it a snapshot in which a server is that the others do not know.
async fn forge(cluster: &mut Cluster, node: NodeId) {
    let replica = &cluster.running[&node];
    replica.take_snapshot().await.expect("it is taken");
    let status = replica.status();
    let owner = Owner {
        cluster: u128::from_str_radix(&status.cluster, 16).expect("hexadecimal"),
        node,
    };
    cluster.kill(node).await;
    forge_in(cluster.folder(node), owner).await;
}

async fn forge_in(folder: &Path, owner: Owner) {
    let mut store = Store::open(folder, owner).expect("it was let go of");
    let applied = store.machine.applied_state().await.expect("it was applied");
    let last = applied.0.expect("the snapshot's last entry");
    let (claim, stamp) = store
        .machine
        .shared()
        .read(|pool| (pool.claim(), pool.stamp()));
    let entry = Entry {
        claim,
        stamp,
        commands: vec![server("forged")],
    };
    let proposal = Proposal::new(entry).expect("it is small");
    let entry = LogEntry::new(last, EntryPayload::Normal(proposal));
    let entries = futures_util::stream::iter([Ok((entry, None))]);
    store.machine.apply(entries).await.expect("it is applied");
    let mut builder = store.machine.get_snapshot_builder().await;
    let snapshot = builder.build_snapshot().await.expect("it is built");
    assert_eq!(snapshot.meta.last_log_id, Some(last));
}

/// Why a member stops by itself.
async fn stops(replica: &Replica) -> ReplicaError {
    tokio::time::timeout(DEADLINE, replica.failed())
        .await
        .expect("it stops")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_differs_stops_and_the_others_go_on() {
    let mut cluster = Cluster::of(3).await;
    propose(&cluster, &launch("j1")).await;
    let odd = node_of(&cluster.follower().await);
    forge(&mut cluster, odd).await;
    let replica = cluster.restart(odd).await;
    let error = stops(&replica).await;
    assert!(
        matches!(error, ReplicaError::Diverged { own, majority, .. } if own != majority),
        "{error}"
    );
    assert!(error.to_string().contains("new node id"), "{error}");
    drop(replica);
    cluster.kill(odd).await;
    propose(&cluster, &launch("j2")).await;
    cluster.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_differs_stops_as_well() {
    let mut cluster = Cluster::of(3).await;
    propose(&cluster, &launch("j1")).await;
    forge(&mut cluster, 1).await;
    cluster.kill(2).await;
    cluster.kill(3).await;
    // With two of three there is no majority to find yet, so it may lead.
    let odd = cluster.restart(1).await;
    cluster.restart(2).await;
    eventually("it leads", || {
        if let Some(leader) = cluster.running.values().find(|replica| leads(replica))
            && node_of(leader) != 1
        {
            let leader = leader.clone();
            tokio::spawn(async move { leader.transfer(Some(1)).await });
        }
        leads(&odd)
    })
    .await;
    cluster.restart(3).await;
    let error = stops(&odd).await;
    assert!(matches!(error, ReplicaError::Diverged { .. }), "{error}");
    drop(odd);
    cluster.kill(1).await;
    propose(&cluster, &launch("j2")).await;
    cluster.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_tell_who_is_right_all_stop() {
    let mut cluster = Cluster::of(2).await;
    propose(&cluster, &launch("j1")).await;
    forge(&mut cluster, 2).await;
    cluster.restart(2).await;
    for replica in cluster.running.values() {
        let error = stops(replica).await;
        assert!(
            matches!(error, ReplicaError::NoMajorityState { .. }),
            "{error}"
        );
    }
}
