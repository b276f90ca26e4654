//! A leader that is cut off, with a worker beside it.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::time::Duration;

use fermata_api::jobs::{AbortReason, JobState, LaunchRequest};
use fermata_api::params::Params;
use fermata_api::settings::Settings;
use fermata_audit::Expectation;
use fermata_client::Client;
use fermata_e2e::fleet::online;
use fermata_e2e::namespaces::Network;
use fermata_e2e::{Cluster, ClusterOptions, DEADLINE, Recorder, Worker, WorkerOptions, wait_for};
use serde_json::json;

/// Longer than the test: whoever runs it is stopped.
const ENDLESS_S: &str = "300";

fn job(seconds: &str) -> LaunchRequest {
    LaunchRequest {
        event: Some("mutex".to_owned()),
        params: Some(Params::from_json(seconds).expect("a number")),
        ..LaunchRequest::default()
    }
}

fn expectation() -> Expectation {
    Expectation {
        pool: "event:mutex".to_owned(),
        amount: Some(1),
        rate: None,
    }
}

/// S41, S42: the worker has stopped what it runs before its slot is in other hands, though neither
/// hears of the other. The audit lists every overlap and finds none.
#[tokio::test]
async fn a_worker_beside_a_leader_that_is_cut_off_stops_in_time() {
    let network = Network::new(3);
    let mut cluster = Cluster::start_with(ClusterOptions {
        places: network.places(),
        flags: vec!["--insecure".to_owned()],
        ..ClusterOptions::default()
    })
    .await;
    let settings = Settings {
        server_timeout_s: 1,
        job_timeout_s: 2,
        ..Settings::default()
    };
    cluster
        .client()
        .put_settings(&settings)
        .await
        .expect("settings");
    let limits = json!([{"type": "job", "amount": 1}, {"type": "queue", "amount": 100}]);
    cluster
        .define_event("mutex", json!({"limits": limits, "algo": "prefer_first"}))
        .await;

    let leader = cluster.leader().await;
    let others: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
    let beside = place_of(&network, leader);
    let far = place_of(&network, others[0]);
    let worker = |server: &str, place| WorkerOptions {
        place: Some(place),
        ..WorkerOptions::sleeping(server, cluster.urls())
    };
    let cut_off = Worker::start(worker("a-beside", beside), cluster.folder());
    let reached = Worker::start(worker("b-far", far), cluster.folder());
    online(&cluster.client(), "a-beside").await;
    online(&cluster.client(), "b-far").await;

    let of_the_others = Client::connect(others.iter().map(|node| cluster.node(*node).url()));
    let of_the_others = of_the_others.expect("URLs");
    let recorder = Recorder::new(of_the_others.clone(), expectation());
    let held = recorder.launch(job(ENDLESS_S)).await.expect("a launch");
    for _ in 0..5 {
        recorder.launch(job("0.2")).await.expect("a launch");
    }
    wait_for("the job runs beside the leader", DEADLINE, async || {
        let job = of_the_others.job(&held.id).await.ok()?;
        let runs = job.state == JobState::Active && job.server.as_deref() == Some("a-beside");
        runs.then_some(())
    })
    .await;

    network.cut(u8::try_from(leader).expect("a small id"));
    let ended = recorder.read_ends(DEADLINE).await;
    assert_eq!(ended[&held.id].reason, Some(AbortReason::ServerLost));
    for job in ended.values().filter(|job| job.id != held.id) {
        assert_eq!(
            (job.state, job.code),
            (JobState::Complete, Some(0)),
            "{job:?}"
        );
        assert_eq!(job.server.as_deref(), Some("b-far"));
    }

    // Together again: the worker is told, and takes new work.
    network.mend(u8::try_from(leader).expect("a small id"));
    online(&cluster.client(), "a-beside").await;
    let after = recorder.launch(job("0.1")).await.expect("a launch");
    let ended = recorder.read_ends(DEADLINE).await;
    assert_eq!(ended[&after.id].server.as_deref(), Some("a-beside"));

    let report = recorder.audit([cut_off.journal(), reached.journal()]);
    println!("{report}");
    assert!(report.holds(), "{report}");
    assert_eq!(report.overlaps, []);
    assert_eq!((report.counts.begins, report.counts.lost), (7, 1));
    for node in 1..=3 {
        let exit = cluster.stop(node).await;
        assert!(exit.status.success(), "{}: {}", exit.status, exit.output);
    }
    for worker in [cut_off, reached] {
        worker.stop(Duration::from_secs(10)).await;
    }
}

fn place_of(network: &Network, node: u64) -> fermata_e2e::Place {
    network.place(u8::try_from(node).expect("a small id"))
}
