//! Three nodes: any of them answers, whoever leads, and none hangs.

mod harness;

use std::time::Duration;

use axum::body::Body;
use fermata_api::headers;
use harness::{Answer, Node, client, request};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Moves leadership to the node, and waits until all know.
async fn lead(nodes: &[Node; 3], heir: usize) {
    let heir = json!(heir + 1);
    harness::until("the heir leads", || async {
        nodes[0]
            .post("/v1/cluster/transfer", json!({"to": heir}))
            .await;
        let mut know = true;
        for node in nodes {
            know &= node.get("/v1/cluster").await.json()["leader"] == heir;
            know &= node.get("/readyz").await.status == 200;
        }
        know.then_some(())
    })
    .await;
}

/// A call that is on its way while the test goes on.
fn send(node: &Node, method: Method, target: &str, body: Value) -> tokio::task::JoinHandle<Answer> {
    let url = format!("{}{target}", node.url);
    tokio::spawn(async move {
        let client = client();
        request(&client, method, &url, &[JSON], body.to_string()).await
    })
}

/// A launch with an id, on its way while the test goes on; repeated until its outcome is known.
fn launch(node: &Node, target: &str, body: Value) -> tokio::task::JoinHandle<Answer> {
    let url = format!("{}{target}", node.url);
    tokio::spawn(async move {
        let client = client();
        loop {
            let body = body.to_string();
            let answer = request(&client, Method::POST, &url, &[JSON], body).await;
            if !matches!(answer.outcome().1.as_str(), "unknown_outcome" | "no_leader") {
                return answer;
            }
        }
    })
}

/// What all nodes answer alike, and how many of them did it themselves.
async fn alike(
    nodes: &[Node; 3],
    method: Method,
    target: &str,
    body: &'static str,
) -> (u16, Value, usize) {
    // The nodes are asked one after the other: something may happen in between, but not always.
    harness::until(&format!("{target} is answered alike"), || async {
        let mut seen = Vec::new();
        let mut by_itself = 0;
        for node in nodes {
            let answer = node.send(method.clone(), target, &[JSON], body).await;
            by_itself += usize::from(answer.header(headers::LEADER).is_none());
            seen.push((answer.status, answer.json()));
        }
        let (status, json) = seen.pop()?;
        let alike = seen.iter().all(|other| *other == (status, json.clone()));
        alike.then_some((status, json, by_itself))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_follower_answers_like_the_leader() {
    let nodes = harness::three().await;
    let follower = &nodes[1];
    let event = json!({"limits": [{"type": "job", "amount": 1, "cap_key": "a/b"}]});
    let put = follower
        .until_known(Method::PUT, "/v1/events/e", event)
        .await;
    // A repeated edit is another edit.
    assert_eq!(put.status, 200);
    assert!(put.header("etag").is_some());
    assert!(
        put.header(headers::LEADER).is_some(),
        "it was done elsewhere"
    );
    let job = json!({"id": "j", "event": "e", "executor": "caller"});
    let launched = follower.post_until_known("/v1/jobs", job).await;
    assert_eq!(launched.status, 201);
    for target in [
        "/v1/jobs/j",
        "/v1/pools/cap:a%2Fb",
        "/v1/events/e",
        "/v1/stats",
    ] {
        let (status, _, by_itself) = alike(&nodes, Method::GET, target, "").await;
        assert_eq!(
            (status, by_itself),
            (200, 1),
            "{target}: the leader alone does it itself"
        );
    }
    let refused = [
        ("/v1/jobs", r#"{"evnt": 1}"#, 400),
        ("/v1/jobs", "{", 400),
        ("/v1/jobs/j/started", r#"{"attempt": 77}"#, 409),
        ("/v1/jobs/nobody/started", r#"{"attempt": 7}"#, 404),
    ];
    for (target, body, expected) in refused {
        let (status, problem, _) = alike(&nodes, Method::POST, target, body).await;
        assert_eq!(status, expected, "{body}: {problem}");
    }
    let (status, nothing, _) = alike(&nodes, Method::DELETE, "/v1/windows", "").await;
    assert_eq!((status, nothing), (204, Value::Null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_node_tells_how_all_stand() {
    let nodes = harness::three().await;
    for node in nodes.iter() {
        let all_say = |cluster: &Value| {
            let nodes = cluster["nodes"].as_array();
            nodes.is_some_and(|nodes| nodes.iter().all(|node| node["time_zone"] == "UTC"))
        };
        let cluster = node.until("/v1/cluster", all_say).await;
        assert_eq!(cluster["warnings"], json!([]));
        for node in cluster["nodes"].as_array().expect("nodes") {
            for field in ["tzdb", "term", "applied", "last_index", "clock_skew_ms"] {
                assert!(!node[field].is_null(), "{field} is not in {node}");
            }
        }
    }
}

/// One token through all nodes at once makes one job (F07).
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_key_through_all_nodes_makes_one_job() {
    let nodes = harness::three().await;
    let launch = async |node: &Node, delay_s: u64| {
        let key = [("idempotency-key", "token")];
        let body = json!({"delay_s": delay_s, "params": {"n": 1}});
        harness::until("a known outcome", || async {
            let answer = node.json(Method::POST, "/v1/jobs", &key, body.clone());
            Some(answer.await).filter(|answer| answer.status != 503)
        })
        .await
    };
    let (one, two, three) = tokio::join!(
        launch(&nodes[0], 600),
        launch(&nodes[1], 600),
        launch(&nodes[2], 600),
    );
    assert_eq!([one.status, two.status, three.status], [201; 3]);
    assert_eq!(one.json(), two.json());
    assert_eq!(two.json(), three.json());
    let other = launch(&nodes[2], 601).await;
    assert_eq!(other.outcome(), (409, "id_conflict".to_owned()));
}

/// Fifty launches in one instant through three nodes, where one may run and three may wait (F02).
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_at_once_are_decided_by_one_order() {
    let nodes = harness::three().await;
    let event = json!({"limits": [{"type": "job", "amount": 1}, {"type": "queue", "amount": 3}]});
    assert_eq!(nodes[0].put("/v1/events/e", event).await.status, 200);
    let launches: Vec<_> = (0..50)
        .map(|number| {
            let body = json!({"id": format!("j{number}"), "event": "e", "executor": "caller"});
            launch(&nodes[number % 3], "/v1/jobs", body)
        })
        .collect();
    let mut states = std::collections::BTreeMap::<String, u32>::new();
    for launch in launches {
        let answer = launch.await.expect("an answer");
        let (status, code) = answer.outcome();
        let state = answer.json()["state"].as_str().unwrap_or(&code).to_owned();
        *states.entry(format!("{status} {state}")).or_default() += 1;
    }
    let expected = [
        ("201 queued", 3),
        ("201 starting", 1),
        ("429 queue_full", 46),
    ];
    let expected = expected.map(|(state, count)| (state.to_owned(), count));
    assert_eq!(states, expected.into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_may_be_sent_to_the_leader() {
    let nodes = harness::three().await;
    let [leader, follower, _] = &*nodes;
    let target = "/v1/jobs?wait=start&timeout_s=3&redirect=true";
    let answer = follower.post(target, json!({"id": "j"})).await;
    assert_eq!(answer.status, 307);
    assert_eq!(
        answer.header("location"),
        Some(format!("{}{target}", leader.url).as_str())
    );
    let answer = leader
        .post(target, json!({"id": "j", "executor": "caller"}))
        .await;
    assert_eq!(answer.status, 201, "there it is done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stale_read_says_how_old_it_is() {
    let nodes = harness::three().await;
    let [leader, follower, _] = &*nodes;
    let launched = leader
        .post("/v1/jobs", json!({"id": "j", "delay_s": 60}))
        .await;
    let index = |answer: &Answer| -> u64 {
        let index = answer.header(headers::APPLIED_INDEX).expect("an index");
        index.parse().expect("a number")
    };
    let written = index(&launched);
    let stale = harness::until("the follower's copy", || async {
        let answer = follower.get("/v1/jobs/j?consistency=stale").await;
        (answer.status == 200).then_some(answer)
    })
    .await;
    assert!(index(&stale) >= written);
    assert!(stale.header(headers::AGE_MS).is_some());
    assert_eq!(stale.header(headers::LEADER), None, "it was read here");
}

/// The answer is bound to the job: the node that holds it does not care who leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_held_answer_outlives_changes_of_leader() {
    let nodes = harness::three().await;
    let body = json!({"id": "j", "executor": "caller", "lease_s": 600, "delay_s": 1});
    let target = "/v1/jobs?wait=end&timeout_s=25";
    // One is held by a follower, one by the leader that loses its place, one by the next leader.
    let held: Vec<_> = nodes
        .iter()
        .map(|node| launch(node, target, body.clone()))
        .collect();
    nodes[0]
        .until("/v1/jobs/j", |job| job["state"] == "starting")
        .await;
    let started = nodes[1]
        .post_until_known("/v1/jobs/j/started", json!({"attempt": 1}))
        .await;
    assert_eq!(started.status, 200);
    lead(&nodes, 1).await;
    lead(&nodes, 2).await;
    let completed = nodes[0]
        .post_until_known("/v1/jobs/j/completed", json!({"attempt": 1, "code": 5}))
        .await;
    assert_eq!(completed.status, 200);
    for held in held {
        let answer = held.await.expect("an answer");
        assert_eq!((answer.status, &answer.json()["code"]), (201, &json!(5)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_may_poll_any_node_and_is_freed_when_the_leader_changes() {
    let nodes = harness::three().await;
    let follower = &nodes[1];
    let poll = |wait_ms: u64| json!({"incarnation": 1, "wait_ms": wait_ms});
    let target = "/v1/servers/s1/poll";
    assert_eq!(follower.put("/v1/servers/s1", json!({})).await.status, 200);
    assert_eq!(follower.post(target, poll(0)).await.status, 200);
    let held = send(follower, Method::POST, target, poll(9_000));
    assert_eq!(
        nodes[2].post("/v1/jobs", json!({"id": "j"})).await.status,
        201
    );
    let answer = held.await.expect("an answer").json();
    assert_eq!(answer["launches"][0]["job"], "j");

    // The leader holds its own and the forwarded one; then it is the leader no more.
    let holds = json!({"incarnation": 1, "wait_ms": 9_000, "holds": [{"job": "j", "attempt": 1}]});
    let begun = Instant::now();
    let here = send(&nodes[0], Method::POST, target, holds.clone());
    let there = send(follower, Method::POST, target, holds);
    nodes[0].until_held(2).await;
    let stays = nodes[2]
        .post("/v1/cluster/transfer", json!({"to": 1}))
        .await;
    assert_eq!(stays.status, 200, "it leads already");
    lead(&nodes, 2).await;
    for held in [here, there] {
        let answer = held.await.expect("an answer");
        assert_eq!(answer.outcome(), (503, "no_leader".to_owned()));
        assert!(answer.header("retry-after").is_some());
    }
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "not by the time that they were held for"
    );
}

/// While leadership moves, calls wait and are then done: none is refused, none is done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_go_on_while_leadership_moves() {
    let nodes = harness::three().await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let callers: Vec<_> = (0..6)
        .map(|caller| launch_until(&nodes[caller % 3], caller, stopped.clone()))
        .map(tokio::spawn)
        .collect();
    for heir in [1, 2, 0, 2] {
        lead(&nodes, heir).await;
    }
    stop.send_replace(true);
    let mut launched = 0;
    for caller in callers {
        launched += caller.await.expect("no refusal");
    }
    let stats = nodes[1].get("/v1/stats").await.json();
    assert_eq!(stats["launched"], launched);
}

/// Launches jobs one after the other until it is told to stop; how many.
fn launch_until(
    node: &Node,
    caller: usize,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> impl Future<Output = u64> + Send + 'static {
    let url = format!("{}/v1/jobs", node.url);
    async move {
        let client = client();
        let mut launched = 0;
        while !*stopped.borrow() {
            let body = json!({"id": format!("j{caller}.{launched}"), "delay_s": 60}).to_string();
            let answer = request(&client, Method::POST, &url, &[JSON], body).await;
            match answer.outcome() {
                (201, _) => launched += 1,
                // It may have been done: the same id makes it harmless to ask again (S40).
                (503, code) if code == "unknown_outcome" => {}
                other => panic!("{other:?}"),
            }
        }
        launched
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_a_majority_nobody_hangs() {
    let nodes = harness::three().await;
    lead(&nodes, 2).await;
    let [first, second, third] = &*nodes;
    first
        .post_until_known("/v1/jobs", json!({"id": "j", "delay_s": 60}))
        .await;
    for node in [first, second] {
        // The third is left alone, and believes for a while that it leads.
        node.replica.shutdown().await.expect("a clean end");
    }
    let named = [JSON, (headers::TIMEOUT_MS, "1500")];
    // A dry run is a read: nobody is told what a majority may know better.
    let asked = third
        .send(Method::POST, "/v1/jobs?dry_run=true", &named, "{}")
        .await;
    assert_eq!(asked.outcome(), (503, "no_leader".to_owned()));
    let read = third
        .send(Method::GET, "/v1/jobs/j", &named, Body::empty())
        .await;
    assert_eq!(read.outcome(), (503, "no_leader".to_owned()));
    let begun = Instant::now();
    let write = third
        .send(Method::POST, "/v1/jobs", &named, r#"{"delay_s": 60}"#)
        .await;
    let took = begun.elapsed();
    let known = ["no_leader", "unknown_outcome"];
    assert_eq!(write.status, 503);
    assert!(
        known.contains(&write.outcome().1.as_str()),
        "{:?}",
        write.outcome()
    );
    assert!(write.header("retry-after").is_some());
    assert!(
        took < Duration::from_secs(8),
        "by its deadline, and what a busy machine adds: {took:?}"
    );
    let waited = third
        .post("/v1/jobs?wait=end&timeout_s=1", json!({"id": "k"}))
        .await;
    assert_eq!(waited.status, 503);

    assert_eq!(third.get("/v1/jobs/j?consistency=stale").await.status, 200);
    assert_eq!(
        third.get("/livez").await.status,
        200,
        "want of a majority is no fault of its own"
    );
    let cluster = third
        .until("/v1/cluster", |cluster| cluster["has_quorum"] == false)
        .await;
    assert_eq!(cluster["nodes"].as_array().map(Vec::len), Some(3));
}
