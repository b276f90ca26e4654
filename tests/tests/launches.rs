//! Launches through any node: alike, counted once, answered in time.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fermata_api::headers;
use fermata_e2e::http::Reply;
use fermata_e2e::{Cluster, DEADLINE, Worker, WorkerOptions, wait_for};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A launch that needs no worker: whoever launched it executes it.
fn by_caller(id: &str, event: &str) -> Value {
    json!({"id": id, "event": event, "executor": "caller"})
}

/// What two launches of the same kind have in common.
fn without_identity(job: &Value) -> Value {
    let mut job = job.clone();
    job["meta"][0]["at"] = Value::Null;
    let object = job.as_object_mut().expect("a job is an object");
    for field in [
        "id",
        "launched_at",
        "launch_number",
        "started_at",
        "start_index",
    ] {
        assert!(object.remove(field).is_some(), "{field} in {object:?}");
    }
    job
}

#[tokio::test]
async fn a_launch_through_a_follower_is_one_through_the_leader() {
    let cluster = Cluster::start().await;
    cluster.define_event("mail", json!({"title": "Mail"})).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let http = cluster.http();

    let through = async |node, id| {
        let url = cluster.url(node, "/v1/jobs");
        http.post(&url, &by_caller(id, "mail")).await
    };
    let at_leader = through(leader, "first").await;
    let at_follower = through(follower, "second").await;

    assert_eq!(at_leader.status, 201, "{}", at_leader.json);
    assert_eq!(at_follower.status, 201, "{}", at_follower.json);
    assert_eq!(
        without_identity(&at_follower.json),
        without_identity(&at_leader.json)
    );
    assert_eq!(
        at_follower.header(headers::LEADER),
        cluster.node(leader).url()
    );

    for id in ["first", "second"] {
        let path = format!("/v1/jobs/{id}");
        let one = http.get(&cluster.url(leader, &path)).await;
        let other = http.get(&cluster.url(follower, &path)).await;
        assert_eq!(one.status, 200);
        assert_eq!(one.json["state"], "starting");
        assert_eq!(other.json, one.json);
    }
    let missing = http.get(&cluster.url(follower, "/v1/jobs/third")).await;
    assert_eq!(
        (missing.status.as_u16(), missing.code()),
        (404, "unknown_job")
    );
}

/// F02: ten triggers in one instant all passed "max 1".
#[tokio::test]
async fn of_fifty_launches_at_once_one_starts_and_three_wait() {
    let cluster = Cluster::start().await;
    let limits = json!([{"type": "job", "amount": 1}, {"type": "queue", "amount": 3}]);
    cluster
        .define_event("rebuild", json!({"limits": limits}))
        .await;

    let mut launches = JoinSet::new();
    for number in 0..50_u64 {
        let http = cluster.http().clone();
        let url = cluster.url(1 + number % 3, "/v1/jobs");
        let body = by_caller(&format!("job-{number}"), "rebuild");
        launches.spawn(async move { http.post(&url, &body).await });
    }
    let mut became: BTreeMap<String, usize> = BTreeMap::new();
    for reply in launches.join_all().await {
        let state = match reply.json["state"].as_str() {
            Some(state) => state.to_owned(),
            None => format!("{} {}", reply.status.as_u16(), reply.code()),
        };
        *became.entry(state).or_default() += 1;
    }
    let expected = [("429 queue_full", 46), ("queued", 3), ("starting", 1)];
    assert_eq!(
        became,
        expected.map(|(state, n)| (state.to_owned(), n)).into()
    );

    let pool = cluster
        .client()
        .pool("event:rebuild")
        .await
        .expect("the pool");
    assert_eq!((pool.running, pool.waiting), (1, 3));
}

/// F07: one token sent to two nodes within a millisecond made two jobs.
#[tokio::test]
async fn one_id_at_two_nodes_at_once_is_one_job() {
    let cluster = Cluster::start().await;
    cluster.define_event("pay", json!({})).await;
    let http = cluster.http();
    let urls = [1, 2].map(|node| cluster.url(node, "/v1/jobs"));

    for round in 0..10 {
        let by_id = by_caller(&format!("pay-{round}"), "pay");
        let (one, other) = tokio::join!(http.post(&urls[0], &by_id), http.post(&urls[1], &by_id));
        assert_same_job(&one, &other);

        let by_key = json!({"event": "pay", "executor": "caller"});
        let key = format!("order {round}, again");
        let keyed = |url: &str| {
            let asking = http.ask(Method::POST, url).json(&by_key);
            asking.header(headers::IDEMPOTENCY_KEY, &key).send()
        };
        let (one, other) = tokio::join!(keyed(&urls[0]), keyed(&urls[1]));
        assert_same_job(&one, &other);
    }
    let pool = cluster.client().pool("event:pay").await.expect("the pool");
    assert_eq!(pool.running, 20);

    let other_content = json!({"id": "pay-0", "event": "pay", "executor": "caller", "priority": 7});
    for url in &urls {
        let reply = http.post(url, &other_content).await;
        assert_eq!((reply.status.as_u16(), reply.code()), (409, "id_conflict"));
    }
}

fn assert_same_job(one: &Reply, other: &Reply) {
    assert_eq!(one.status, 201, "{}", one.json);
    assert_eq!(other.status, 201, "{}", other.json);
    for field in ["id", "launched_at", "launch_number", "attempt"] {
        assert_eq!(one.json[field], other.json[field], "{field}");
    }
}

/// F25: without quorum, calls hung for ever.
#[tokio::test]
async fn without_a_majority_a_launch_is_refused_in_time() {
    let mut cluster = Cluster::start().await;
    cluster.define_event("mail", json!({})).await;
    for (round, survivor) in [cluster.leader().await, cluster.follower().await]
        .into_iter()
        .enumerate()
    {
        let lost: Vec<u64> = (1..=3).filter(|node| *node != survivor).collect();
        for node in &lost {
            cluster.kill(*node).await;
        }
        let time = Duration::from_millis(1_500);
        let id = format!("lonely-{round}");
        let begun = Instant::now();
        let reply = cluster
            .http()
            .ask(Method::POST, &cluster.url(survivor, "/v1/jobs"))
            .json(&by_caller(&id, "mail"))
            .within(time)
            .send()
            .await;
        assert!(begun.elapsed() < time + Duration::from_millis(500));
        assert_eq!(reply.status, 503, "{}", reply.json);
        let is_honest = ["no_leader", "not_leader", "unknown_outcome"].contains(&reply.code());
        assert!(is_honest, "{}", reply.json);
        assert_ne!(reply.header(headers::RETRY_AFTER), "");

        for node in lost {
            cluster.start_node(node).await;
        }
        // The same id: if the first one came through after all, this is the same job.
        let url = cluster.url(survivor, "/v1/jobs");
        let again = wait_for(
            "a launch after the majority is back",
            DEADLINE,
            async || {
                let reply = cluster.http().post(&url, &by_caller(&id, "mail")).await;
                (reply.status == 201).then_some(reply)
            },
        )
        .await;
        assert_eq!(again.json["id"], *id);
        cluster.leader().await;
    }
}

#[tokio::test]
async fn an_idle_cluster_writes_nothing() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    cluster.define_event("mail", json!({})).await;
    let worker = WorkerOptions::sleeping("idler", cluster.urls());
    let _worker = Worker::start(worker, cluster.folder());
    wait_for("the worker is online", DEADLINE, async || {
        let server = client.server("idler").await.ok()?;
        server.online.then_some(())
    })
    .await;

    let leader = cluster.leader().await;
    let last_index = async || {
        let view = cluster.view(leader).await.expect("the leader answers");
        let node = view.nodes.into_iter().find(|node| node.id == leader);
        (
            view.term,
            node.and_then(|node| node.last_index).expect("its index"),
        )
    };
    // The age of a node's copy is that of its last stamp: it grows while nothing is written.
    let age_ms = async |node| {
        let url = cluster.url(node, "/v1/servers?consistency=stale");
        let reply = cluster.http().get(&url).await;
        reply
            .header(headers::AGE_MS)
            .parse::<u64>()
            .expect("an age")
    };
    let follower = cluster.follower().await;
    let quiet_ms = 3_000;
    let before = wait_for("the cluster has come to rest", DEADLINE, async || {
        (age_ms(leader).await > 500).then_some(())?;
        Some(last_index().await)
    })
    .await;
    for node in [leader, follower] {
        wait_for(
            "nothing was written for three seconds",
            DEADLINE,
            async || (age_ms(node).await >= quiet_ms).then_some(()),
        )
        .await;
    }
    assert_eq!(last_index().await, before);
}
