//! The worker's poll: offers, confirmations, ends, stops, incarnations, and being held.

mod harness;

use std::time::Duration;

use harness::{Answer, Node};
use serde_json::{Value, json};
use tokio::time::Instant;

const POLL: &str = "/v1/servers/s1/poll";
/// What was answered before came with a hint; what was answered later, because the time was over.
const SOON: Duration = Duration::from_secs(8);

async fn node() -> Node {
    let node = harness::alone().await;
    assert_eq!(node.put("/v1/servers/s1", json!({})).await.status, 200);
    poll(&node, json!({"wait_ms": 0})).await;
    node
}

async fn poll(node: &Node, body: Value) -> Value {
    let answer = try_poll(node, body).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    answer.json()
}

async fn try_poll(node: &Node, mut body: Value) -> Answer {
    if body.get("incarnation").is_none() {
        body["incarnation"] = json!(1);
    }
    node.post(POLL, body).await
}

async fn launch(node: &Node, id: &str) {
    let answer = node
        .post("/v1/jobs", json!({"id": id, "params": {"n": 1.50}}))
        .await;
    assert_eq!(answer.status, 201, "{:?}", answer.json());
}

fn held(id: &str, attempt: u32) -> Value {
    json!({"job": id, "attempt": attempt})
}

fn offered(answer: &Value) -> Vec<&str> {
    let Some(launches) = answer["launches"].as_array() else {
        panic!("no launches in {answer}");
    };
    let jobs = launches.iter().map(|offer| offer["job"].as_str());
    jobs.map(|job| job.unwrap_or_else(|| panic!("no id in {answer}")))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_offered_until_it_is_held_and_runs_once_it_is_confirmed() {
    let node = node().await;
    launch(&node, "j").await;
    let answer = poll(&node, json!({"wait_ms": 0})).await;
    let offer = &answer["launches"][0];
    let job = node.get("/v1/jobs/j").await.json();
    assert_eq!((&offer["job"], &offer["attempt"]), (&json!("j"), &json!(1)));
    assert_eq!(offer["start_at"], job["started_at"]);
    assert_eq!(offer["start_index"], job["start_index"]);
    assert_eq!(offer["pool"], "job:j");
    assert_eq!(offer["params"].to_string(), r#"{"n":1.5}"#);
    let shown_ms = offer["start_at_us"].as_i64().expect("microseconds");
    assert!(shown_ms > 1_000_000_000_000_000, "{shown_ms}");
    assert_eq!(answer["lease_ms"], 150_000);
    assert_eq!(answer["server_timeout_ms"], 30_000);

    assert_eq!(
        offered(&poll(&node, json!({"wait_ms": 0})).await),
        ["j"],
        "again"
    );
    let answer = poll(&node, json!({"wait_ms": 0, "holds": [held("j", 1)]})).await;
    assert!(offered(&answer).is_empty(), "not what it holds");

    let answer = poll(
        &node,
        json!({"holds": [held("j", 1)], "started": [held("j", 1), held("k", 1), held("j", 2)]}),
    )
    .await;
    assert_eq!(
        answer["started"],
        json!([
            {"job": "j", "attempt": 1, "state": "active"},
            {"job": "k", "attempt": 1, "error": "unknown_job"},
            {"job": "j", "attempt": 2, "state": "active", "error": "stale_attempt"},
        ])
    );
    let answer = poll(
        &node,
        json!({"holds": [held("j", 1)], "completed": [{"job": "j", "attempt": 1, "code": 0, "description": "ok"}]}),
    )
    .await;
    assert_eq!(
        answer["completed"],
        json!([{"job": "j", "attempt": 1, "state": "complete"}])
    );
    assert_eq!(
        answer["stop"],
        json!([]),
        "what it reports it need not stop"
    );
    assert_eq!(node.get("/v1/jobs/j").await.json()["description"], "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_is_held_until_there_is_something_to_say() {
    let node = node().await;
    let begun = Instant::now();
    let (answer, ()) = tokio::join!(poll(&node, json!({"wait_ms": 20_000})), launch(&node, "j"));
    assert_eq!(offered(&answer), ["j"]);
    assert!(begun.elapsed() < SOON, "it came with the launch");

    let begun = Instant::now();
    let answer = poll(&node, json!({"wait_ms": 300, "holds": [held("j", 1)]})).await;
    assert!(offered(&answer).is_empty());
    assert!(
        begun.elapsed() >= Duration::from_millis(300),
        "it was held for its time"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_just_said_does_not_end_the_next_poll() {
    let node = node().await;
    launch(&node, "j").await;
    assert_eq!(offered(&poll(&node, json!({})).await), ["j"]);
    let begun = Instant::now();
    assert_eq!(
        offered(&poll(&node, json!({})).await),
        ["j"],
        "the first may be lost"
    );
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(500),
        "no storm of polls: {took:?}"
    );
    assert!(took < Duration::from_secs(5), "and no long wait: {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_is_stopped_and_ends_with_its_report() {
    let node = node().await;
    launch(&node, "j").await;
    poll(
        &node,
        json!({"holds": [held("j", 1)], "started": [held("j", 1)]}),
    )
    .await;
    let cancel = async {
        let answer = node.post("/v1/jobs/j/cancel", json!({})).await;
        assert_eq!(
            (&answer.json()["state"], &answer.json()["cancel"]),
            (&json!("active"), &json!(true))
        );
    };
    let begun = Instant::now();
    let (answer, ()) = tokio::join!(poll(&node, json!({"holds": [held("j", 1)]})), cancel);
    assert!(begun.elapsed() < SOON, "it came with the cancellation");
    let order = json!([{"job": "j", "attempt": 1, "reason": "cancelled"}]);
    assert_eq!(answer["stop"], order);
    let ended = json!([{"job": "j", "attempt": 1, "code": 143}]);
    let answer = poll(&node, json!({"holds": [held("j", 1)], "completed": ended})).await;
    assert_eq!(answer["completed"][0]["state"], "aborted");
    let answer = poll(
        &node,
        json!({"wait_ms": 0, "holds": [held("j", 1), held("gone", 4)]}),
    )
    .await;
    assert_eq!(
        answer["stop"],
        json!([{"job": "gone", "attempt": 4, "reason": "stale"}, {"job": "j", "attempt": 1, "reason": "stale"}])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_attempt_that_is_missing_twice_running_is_lost() {
    let node = node().await;
    for job in ["a", "b"] {
        launch(&node, job).await;
    }
    let both = json!([held("a", 1), held("b", 1)]);
    poll(&node, json!({"holds": both, "started": both})).await;
    let state =
        async |job: &str| node.get(&format!("/v1/jobs/{job}")).await.json()["state"].clone();

    // One poll may have been on its way when the attempt was confirmed.
    poll(&node, json!({"wait_ms": 0, "holds": [held("a", 1)]})).await;
    poll(&node, json!({"wait_ms": 0, "holds": both})).await;
    poll(&node, json!({"wait_ms": 0, "holds": [held("a", 1)]})).await;
    assert_eq!(state("b").await, "active");
    poll(&node, json!({"wait_ms": 0, "holds": [held("a", 1)]})).await;
    assert_eq!(state("b").await, "aborted");
    assert_eq!(node.get("/v1/jobs/b").await.json()["reason"], "server_lost");
    assert_eq!(state("a").await, "active");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_incarnation_supersedes_the_older_one_also_while_it_is_held() {
    let node = node().await;
    launch(&node, "j").await;
    poll(
        &node,
        json!({"holds": [held("j", 1)], "started": [held("j", 1)]}),
    )
    .await;
    let newer = async {
        node.until("/v1/servers/s1", |server| server["active"] == 1)
            .await;
        let answer = poll(&node, json!({"incarnation": 2, "wait_ms": 0})).await;
        assert!(offered(&answer).is_empty());
    };
    let held_poll = json!({"holds": [held("j", 1)], "wait_ms": 20_000});
    let begun = Instant::now();
    let (older, ()) = tokio::join!(try_poll(&node, held_poll), newer);
    assert!(begun.elapsed() < SOON, "it did not wait for its time");
    assert_eq!(older.outcome(), (409, "superseded".to_owned()));
    let answer = try_poll(&node, json!({"wait_ms": 0})).await;
    assert_eq!(answer.outcome(), (409, "superseded".to_owned()));
    assert_eq!(node.get("/v1/jobs/j").await.json()["reason"], "server_lost");
    let server = node.get("/v1/servers/s1").await.json();
    assert_eq!(
        (&server["incarnation"], &server["online"]),
        (&json!(2), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_deleted_tells_its_held_poll() {
    let node = node().await;
    let delete = async {
        assert_eq!(node.delete("/v1/servers/s1").await.status, 204);
    };
    let begun = Instant::now();
    let (held_poll, ()) = tokio::join!(try_poll(&node, json!({"wait_ms": 20_000})), delete);
    assert!(begun.elapsed() < SOON, "it did not wait for its time");
    assert_eq!(held_poll.outcome(), (404, "unknown_server".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_one_answer_holds_is_offered_in_turn() {
    let node = node().await;
    let jobs: Vec<Value> = (0..1_000)
        .map(|number| json!({"id": format!("j{number}")}))
        .collect();
    node.post("/v1/jobs", json!({"jobs": jobs})).await;
    launch(&node, "last").await;
    let answer = poll(&node, json!({"wait_ms": 0})).await;
    let first: Vec<Value> = offered(&answer)
        .into_iter()
        .map(|job| held(job, 1))
        .collect();
    assert_eq!(first.len(), 1_000);
    let answer = poll(&node, json!({"holds": first, "started": first})).await;
    assert_eq!(offered(&answer), ["last"]);
    assert!(
        answer["started"]
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["state"] == "active"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_executes_its_own_job() {
    let node = harness::alone().await;
    let body = json!({"id": "c", "executor": "caller", "lease_s": 77});
    let job = node.post("/v1/jobs", body).await.json();
    assert_eq!(
        (&job["state"], &job["server"]),
        (&json!("starting"), &Value::Null)
    );
    let answer = node.post("/v1/jobs/c/started", json!({"attempt": 1})).await;
    assert_eq!(
        answer.json(),
        json!({"state": "active", "attempt": 1, "lease_s": 77, "cancel": false})
    );
    let beat = node
        .post("/v1/jobs/c/heartbeat", json!({"attempt": 1}))
        .await;
    assert_eq!(
        beat.json(),
        json!({"state": "active", "attempt": 1, "lease_s": 77, "cancel": false})
    );
    let stale = node
        .post("/v1/jobs/c/heartbeat", json!({"attempt": 2}))
        .await;
    assert_eq!(stale.outcome(), (409, "stale_attempt".to_owned()));
    node.post("/v1/jobs/c/cancel", json!({})).await;
    let beat = node.post("/v1/jobs/c/heartbeat", json!({})).await;
    assert_eq!(beat.json()["cancel"], true);
    node.post("/v1/jobs/c/completed", json!({"attempt": 1, "code": 0}))
        .await;
    let beat = node.post("/v1/jobs/c/heartbeat", json!({})).await;
    assert_eq!(beat.outcome(), (409, "final".to_owned()));

    node.post("/v1/jobs", json!({"id": "d", "delay_s": 60}))
        .await;
    let beat = node.post("/v1/jobs/d/heartbeat", json!({})).await;
    assert_eq!(
        beat.json(),
        json!({"state": "delayed", "attempt": 0, "cancel": false})
    );
}
