//! Start actions: the leader's HTTP call between a start and its hand-out.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

mod harness;

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use harness::Node;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Most calls that wait for the test to look at them.
const CALLS_MAX: usize = 64;

/// A receiver of start actions that answers what the test says.
struct Receiver {
    url: String,
    calls: mpsc::Receiver<Call>,
}

struct Call {
    headers: HeaderMap,
    body: Value,
    answer: oneshot::Sender<StatusCode>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!(
            "http://{}/hook?secret=1",
            listener.local_addr().expect("bound")
        );
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        let router = axum::Router::new()
            .route("/hook", post(receive))
            .with_state(sender);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, calls }
    }

    async fn call(&mut self) -> Call {
        let call = timeout(harness::PATIENCE, self.calls.recv()).await;
        call.expect("a call in time").expect("it serves")
    }

    fn is_quiet(&mut self) -> bool {
        self.calls.try_recv().is_err()
    }
}

async fn receive(
    State(calls): State<mpsc::Sender<Call>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let (answer, answered) = oneshot::channel();
    let body = serde_json::from_slice(&body).expect("JSON");
    let call = Call {
        headers,
        body,
        answer,
    };
    if calls.send(call).await.is_err() {
        return StatusCode::GONE;
    }
    // Dropped by the test: it is never answered.
    match answered.await {
        Ok(status) => status,
        Err(_) => std::future::pending().await,
    }
}

/// A node with server `s1`, whose worker polls, and the event `e`.
async fn node(action: Value, more: Value) -> Node {
    let node = harness::alone().await;
    assert_eq!(node.put("/v1/servers/s1", json!({})).await.status, 200);
    node.poll(json!({})).await;
    let mut event = more;
    event["on_start"] = action;
    let answer = node.put("/v1/events/e", event).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    node
}

async fn launch(node: &Node, body: Value) {
    let answer = node.post("/v1/jobs", body).await;
    assert_eq!(answer.status, 201, "{:?}", answer.json());
}

fn held() -> Value {
    json!([{"job": "j", "attempt": 1}])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_handed_out_once_its_action_is_over() {
    let mut receiver = Receiver::start().await;
    let action = json!({"url": receiver.url, "headers": {"x-team": "crm"}});
    let node = node(action, json!({})).await;
    launch(&node, json!({"id": "j", "event": "e", "params": {"n": 1}})).await;
    let call = receiver.call().await;
    assert_eq!(call.headers["x-team"], "crm");
    assert_eq!(call.headers["content-type"], "application/json");
    assert_eq!(call.headers["idempotency-key"], "j/1");
    let job = node.get("/v1/jobs/j").await.json();
    let told = json!({"job": "j", "attempt": 1, "event": "e", "pool": "event:e", "priority": 0,
        "params": {"n": 1}, "server": "s1", "start_at": job["started_at"],
        "start_at_us": call.body["start_at_us"], "start_index": job["start_index"]});
    assert_eq!(call.body, told);

    assert_eq!(node.poll(json!({})).await["launches"], json!([]));
    // A worker that confirms what it was not offered is not believed.
    let answer = node.poll(json!({"holds": held(), "started": held()})).await;
    assert_eq!(answer["started"][0]["error"], "start_action_pending");
    assert_eq!(answer["started"][0]["state"], "starting");

    let (answer, _) = tokio::join!(node.poll(json!({"wait_ms": 20_000})), async {
        call.answer.send(StatusCode::NO_CONTENT)
    });
    assert_eq!(answer["launches"][0]["job"], "j");
    let answer = node.poll(json!({"holds": held(), "started": held()})).await;
    assert_eq!(answer["started"][0]["state"], "active");
    assert!(receiver.is_quiet(), "one call for an attempt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_aborts_and_gives_the_start_back() {
    let mut receiver = Receiver::start().await;
    let limits = json!([{"type": "job", "rate": 2, "window": 604_800, "align": "utc"}]);
    let node = node(json!({"url": receiver.url}), json!({"limits": limits})).await;
    launch(&node, json!({"id": "j", "event": "e"})).await;
    let call = receiver.call().await;
    let window = node.get("/v1/windows").await.json();
    assert_eq!(window["items"][0]["count"], 1, "taken before the action");
    call.answer.send(StatusCode::BAD_GATEWAY).expect("it waits");
    let job = node
        .until("/v1/jobs/j", |job| job["state"] == "complete")
        .await;
    assert_eq!(job["code"], 125);
    let said = job["description"].as_str().expect("a description");
    assert!(said.contains("502") && said.contains("/hook"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let window = node.get("/v1/windows").await.json();
    assert_ne!(window["items"][0]["count"], 1, "given back: {window}");
    assert_eq!(node.poll(json!({})).await["launches"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_can_let_the_job_go_on() {
    let mut receiver = Receiver::start().await;
    let action = json!({"url": receiver.url, "timeout_s": 1, "on_failure": "continue"});
    let node = node(action, json!({})).await;
    launch(&node, json!({"id": "j", "event": "e"})).await;
    let call = receiver.call().await;
    let answer = node.poll(json!({"wait_ms": 20_000})).await;
    assert_eq!(answer["launches"][0]["job"], "j", "{answer}");
    drop(call);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_uses_a_retry() {
    let mut receiver = Receiver::start().await;
    let limits = json!([{"type": "retry", "amount": 1, "duration": 1}]);
    let node = node(json!({"url": receiver.url}), json!({"limits": limits})).await;
    launch(&node, json!({"id": "j", "event": "e"})).await;
    let first = receiver.call().await;
    first.answer.send(StatusCode::FOUND).expect("it waits");
    let second = receiver.call().await;
    assert_eq!(second.body["attempt"], 2);
    second.answer.send(StatusCode::OK).expect("it waits");
    let answer = node.poll(json!({"wait_ms": 20_000})).await;
    assert_eq!(answer["launches"][0]["attempt"], 2, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_confirmation_waits_for_the_action() {
    let mut receiver = Receiver::start().await;
    let node = node(json!({"url": receiver.url}), json!({})).await;
    let body = json!({"id": "j", "event": "e", "executor": "caller", "lease_s": 600});
    launch(&node, body).await;
    let call = receiver.call().await;
    assert_eq!(call.body.get("server"), None);
    let confirm = json!({"attempt": 1});
    let short = [("fermata-timeout-ms", "300")];
    let early = node
        .json(
            http::Method::POST,
            "/v1/jobs/j/started",
            &short,
            confirm.clone(),
        )
        .await;
    assert_eq!(early.outcome(), (503, "start_action_pending".to_owned()));
    let (confirmed, _) = tokio::join!(node.post("/v1/jobs/j/started", confirm), async {
        call.answer.send(StatusCode::OK)
    });
    assert_eq!(confirmed.json()["state"], "active");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_waits_for_nothing() {
    let mut receiver = Receiver::start().await;
    let node = node(json!({"url": receiver.url}), json!({})).await;
    launch(&node, json!({"id": "j", "event": "e"})).await;
    let call = receiver.call().await;
    node.post("/v1/jobs/j/cancel", json!({})).await;
    call.answer.send(StatusCode::OK).expect("it waits");
    let job = node.get("/v1/jobs/j").await.json();
    assert_eq!(
        (&job["state"], &job["reason"]),
        (&json!("aborted"), &json!("cancelled"))
    );
    let answer = node.poll(json!({"wait_ms": 300})).await;
    assert_eq!(answer["launches"], json!([]));
}

/// S39: a takeover puts the attempt back, and the next leader makes the call for the next attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_leader_calls_again_for_the_next_attempt() {
    let mut receiver = Receiver::start().await;
    let three = harness::three().await;
    let node = &three[0];
    assert_eq!(node.put("/v1/servers/s1", json!({})).await.status, 200);
    node.poll(json!({})).await;
    let event = json!({"on_start": {"url": receiver.url}});
    assert_eq!(node.put("/v1/events/e", event).await.status, 200);
    launch(node, json!({"id": "j", "event": "e"})).await;
    let first = receiver.call().await;
    assert_eq!(first.body["attempt"], 1);
    let moved = node
        .post_until_known("/v1/cluster/transfer", json!({}))
        .await;
    assert_eq!(moved.status, 200, "{:?}", moved.json());
    let second = receiver.call().await;
    assert!(second.body["attempt"].as_u64() > Some(1), "{}", second.body);
    second.answer.send(StatusCode::OK).expect("it waits");
    let attempt = second.body["attempt"].clone();
    harness::until("the next attempt is offered", || async {
        let body = json!({"incarnation": 1, "wait_ms": 0});
        let answer = node.post("/v1/servers/s1/poll", body).await;
        (answer.status == 200 && answer.json()["launches"][0]["attempt"] == attempt).then_some(())
    })
    .await;
    drop(first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_sent_is_refused_when_it_is_defined() {
    let node = harness::alone().await;
    let long = "x".repeat(3_000);
    let many: serde_json::Map<String, Value> =
        (0..17).map(|n| (format!("x-{n}"), json!(""))).collect();
    for (action, field) in [
        (json!({"url": "https://hooks/"}), "on_start.url"),
        (json!({"url": "hooks"}), "on_start.url"),
        (json!({"url": "http://"}), "on_start.url"),
        (json!({"url": "http://me:secret@hooks/"}), "on_start.url"),
        (
            json!({"url": format!("http://hooks/{long}")}),
            "on_start.url",
        ),
        (
            json!({"url": "http://hooks/", "timeout_s": 0}),
            "on_start.timeout_s",
        ),
        (
            json!({"url": "http://hooks/", "timeout_s": 301}),
            "on_start.timeout_s",
        ),
        (
            json!({"url": "http://hooks/", "headers": {"Host": "x"}}),
            "on_start.headers",
        ),
        (
            json!({"url": "http://hooks/", "headers": {"a b": "x"}}),
            "on_start.headers",
        ),
        (
            json!({"url": "http://hooks/", "headers": {"a": "x\ny"}}),
            "on_start.headers",
        ),
        (
            json!({"url": "http://hooks/", "headers": {"a": long}}),
            "on_start.headers",
        ),
        (
            json!({"url": "http://hooks/", "headers": many}),
            "on_start.headers",
        ),
    ] {
        let answer = node.put("/v1/events/e", json!({"on_start": action})).await;
        assert_eq!(
            answer.outcome(),
            (400, "invalid_request".to_owned()),
            "{action}"
        );
        assert_eq!(answer.json()["field"], field, "{action}");
    }
    let action = json!({"url": "http://hooks/a?b=c", "headers": {"x": "y"}, "timeout_s": 300,
        "on_failure": "continue"});
    let answer = node.put("/v1/events/e", json!({"on_start": action})).await;
    assert_eq!(answer.json()["on_start"], action);
}

/// More than are made at a time: the others wait for their turn, and none is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bounded_number_of_calls_is_made_at_a_time() {
    let mut receiver = Receiver::start().await;
    let node = node(json!({"url": receiver.url, "timeout_s": 60}), json!({})).await;
    let jobs: Vec<Value> = (0..70)
        .map(|number| json!({"id": format!("j{number}"), "event": "e"}))
        .collect();
    node.post("/v1/jobs", json!({"jobs": jobs})).await;
    let mut calls = Vec::new();
    for _ in 0..64 {
        calls.push(receiver.call().await);
    }
    let more = timeout(Duration::from_millis(200), receiver.calls.recv()).await;
    assert!(more.is_err(), "no 65th at the same time");
    for call in calls {
        call.answer.send(StatusCode::OK).expect("it waits");
    }
    for _ in 64..70 {
        receiver
            .call()
            .await
            .answer
            .send(StatusCode::OK)
            .expect("it waits");
    }
    harness::until("all are offered", || async {
        let answer = node.poll(json!({})).await;
        (answer["launches"].as_array()?.len() == 70).then_some(())
    })
    .await;
}
