//! Members come and go: under load, dead, wiped, and under wrong addresses (F28).

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fermata_api::jobs::LaunchRequest;
use fermata_api::params::Params;
use fermata_e2e::{Cluster, DEADLINE, Process, Rated, Recorder, Worker, WorkerOptions, wait_for};
use http::{Method, StatusCode};
use serde_json::json;
use tokio::task::JoinSet;

const SIZES: Rated = Rated {
    amount: 4,
    starts_per_window: 30,
    window_s: 2,
};
/// Launches that must be accepted between two changes of the members.
const BETWEEN: usize = 10;

async fn define(cluster: &Cluster) {
    cluster.define_event("sync", SIZES.event(Some("crm"))).await;
}

fn job() -> LaunchRequest {
    LaunchRequest {
        event: Some("sync".to_owned()),
        params: Some(Params::from_json("0.05").expect("a number")),
        ..LaunchRequest::default()
    }
}

/// A launch through any node is answered in time.
async fn launches_go_on(cluster: &Cluster) {
    let launched = cluster.client().launch(job()).await;
    launched.expect("a launch is accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grows_and_shrinks_under_load() {
    let mut cluster = Cluster::of(1).await;
    define(&cluster).await;
    for _ in 2..=5 {
        // Clients and workers of all five know all five.
        cluster.add_node().await;
    }
    let options = WorkerOptions::sleeping("east", cluster.urls());
    let worker = Worker::start(options, cluster.folder());
    let recorder = Arc::new(Recorder::new(
        cluster.client(),
        SIZES.expectation("cap:crm"),
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let mut launchers = JoinSet::new();
    for _ in 0..2 {
        let (recorder, stop) = (Arc::clone(&recorder), Arc::clone(&stop));
        launchers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                // What became of it is recorded.
                let _ = recorder.launch(job()).await;
            }
        });
    }
    let more = async || {
        let load = recorder.accepted() + BETWEEN;
        wait_for("more launches were accepted", DEADLINE, async || {
            (recorder.accepted() >= load).then_some(())
        })
        .await;
    };
    // Down to one, whoever leads, and up to three again.
    for id in [2, 5, 1, 4] {
        more().await;
        cluster.remove_node(id).await;
        cluster.kill(id).await;
    }
    for _ in 0..2 {
        more().await;
        cluster.add_node().await;
    }
    more().await;
    stop.store(true, Ordering::Relaxed);
    launchers.join_all().await;
    let view = cluster.client().cluster().await.expect("a view");
    let voters: Vec<u64> = view.nodes.iter().map(|node| node.id).collect();
    assert_eq!(voters, [3, 6, 7]);

    recorder.read_ends(Duration::from_secs(60)).await;
    let report = recorder.audit([worker.journal()]);
    assert!(report.holds(), "{report}");
    assert!(report.overlaps.is_empty(), "{report}");
    assert!(report.counts.accepted >= 7 * BETWEEN as u64, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_replaced_and_does_not_come_back() {
    let mut cluster = Cluster::start().await;
    define(&cluster).await;
    cluster.kill(3).await;
    cluster.remove_node(3).await;
    assert_eq!(cluster.add_node().await, 4);
    // The new one counts: with it, two of three go on.
    let follower = if cluster.leader().await == 2 { 1 } else { 2 };
    cluster.kill(follower).await;
    launches_go_on(&cluster).await;
    cluster.start_node(follower).await;

    // The old one is told why, and work goes on without it.
    cluster.start_node(3).await;
    wait_for("the removed node says so", DEADLINE, async || {
        let log = cluster.node(3).process().output();
        log.contains("it was removed").then_some(())
    })
    .await;
    launches_go_on(&cluster).await;
    let view = cluster.view(4).await.expect("it answers");
    assert!(view.nodes.iter().all(|node| node.id != 3), "{view:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_folder_under_an_old_id_is_refused() {
    let mut cluster = Cluster::start().await;
    define(&cluster).await;
    let id = cluster.follower().await;
    cluster.kill(id).await;
    std::fs::remove_dir_all(&cluster.node(id).data).expect("its folder");
    // Founding again would be another cluster: the founder, too, comes back as one that joins.
    let command = cluster.join_command(id);
    let process = Process::start("wiped", command, cluster.folder());
    let exit = process.ended(DEADLINE).await;
    assert_ne!(exit.status.code(), Some(0));
    let said = exit.output;
    assert!(said.contains("never used"), "the remedy is named: {said}");
    launches_go_on(&cluster).await;
    cluster.remove_node(id).await;
    cluster.add_node().await;
    launches_go_on(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_does_no_harm() {
    let cluster = Cluster::start().await;
    define(&cluster).await;
    let leader = cluster.leader().await;
    let url = cluster.url(leader, "/v1/cluster/members");
    let nowhere =
        json!({"id": 9, "peer_address": "127.0.0.1:1", "client_url": "http://127.0.0.1:1"});
    let adding = cluster.http().ask(Method::POST, &url).json(&nowhere).send();
    let meanwhile = async {
        for _ in 0..BETWEEN {
            launches_go_on(&cluster).await;
        }
    };
    let (added, ()) = tokio::join!(adding, meanwhile);
    assert_ne!(added.status, StatusCode::OK, "{}", added.json);
    let view = cluster.view(leader).await.expect("it answers");
    let voters: Vec<u64> = view
        .nodes
        .iter()
        .filter(|it| it.voter)
        .map(|it| it.id)
        .collect();
    assert_eq!((view.leader, voters), (Some(leader), vec![1, 2, 3]));
    cluster.remove_node(9).await;
    launches_go_on(&cluster).await;
}
