//! Callers as executors: a launch that is a permit, its lease, and what heartbeats tell (S46).

mod harness;

use axum::body::Body;
use harness::{Answer, Node};
use http::Method;
use serde_json::{Value, json};

/// One job at once, one start a week, a queue: whatever is charged shows.
fn limits() -> Value {
    json!([
        {"type": "job", "amount": 1, "rate": 2, "window": 604_800, "style": "sliding",
         "cap_key": "crm"},
        {"type": "queue", "amount": 9},
    ])
}

/// A launch that is a permit.
fn permit(id: &str, lease_s: u64) -> Value {
    json!({"id": id, "executor": "caller", "lease_s": lease_s, "limits": limits()})
}

/// Long enough never to lapse in a test.
const LONG_S: u64 = 3_600;

async fn say(node: &Node, job: &str, what: &str, body: Value) -> Answer {
    node.post(&format!("/v1/jobs/{job}/{what}"), body).await
}

async fn heartbeat(node: &Node, job: &str, body: Value) -> Answer {
    say(node, job, "heartbeat", body).await
}

/// The starts that are counted in the window of the permits' pool.
async fn starts(node: &Node) -> u64 {
    let windows = node.get("/v1/windows").await.json();
    let windows = windows["items"].as_array().cloned().unwrap_or_default();
    let ours = windows.iter().find(|window| window["id"] == "cap:crm");
    ours.map_or(0, |window| window["count"].as_u64().unwrap_or(u64::MAX))
}

async fn ended_as(node: &Node, job: &str, reason: &str) -> Value {
    let path = format!("/v1/jobs/{job}");
    let job = node.until(&path, |job| job["state"] == "aborted").await;
    assert_eq!(job["reason"], reason, "{job}");
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_goes_its_way() {
    let node = harness::alone().await;
    let launched = node
        .post("/v1/jobs?wait=start&timeout_s=20", permit("a", LONG_S))
        .await;
    assert_eq!(launched.status, 201);
    let job = launched.json();
    assert_eq!(
        (&job["state"], &job["lease_s"]),
        (&json!("starting"), &json!(LONG_S))
    );
    assert_eq!(job.get("server"), None, "its caller executes it");
    let early = say(&node, "a", "completed", json!({"attempt": 1, "code": 0})).await;
    assert_eq!(early.outcome(), (409, "not_active".to_owned()));

    let expected = json!({"state": "starting", "attempt": 1, "lease_s": LONG_S, "cancel": false});
    for body in [json!({}), json!({"attempt": 1})] {
        assert_eq!(heartbeat(&node, "a", body).await.json(), expected);
    }
    let started = say(&node, "a", "started", json!({"attempt": 1})).await;
    let expected = json!({"state": "active", "attempt": 1, "lease_s": LONG_S, "cancel": false});
    assert_eq!((started.status, started.json()), (200, expected.clone()));
    let beat = heartbeat(&node, "a", json!({"attempt": 1})).await;
    assert_eq!((beat.status, beat.json()), (200, expected));

    let waiting = node.post("/v1/jobs", permit("b", LONG_S)).await;
    assert_eq!(waiting.json()["state"], "queued");
    let beat = heartbeat(&node, "b", json!({})).await.json();
    assert_eq!(
        (&beat["state"], &beat["attempt"]),
        (&json!("queued"), &json!(0))
    );
    let eager = heartbeat(&node, "b", json!({"attempt": 1})).await;
    assert_eq!(eager.outcome(), (409, "stale_attempt".to_owned()));
    assert_eq!(eager.json()["job"]["state"], "queued");

    let held = node.get("/v1/jobs/b?wait=start&timeout_s=20");
    let ending = say(&node, "a", "completed", json!({"attempt": 1, "code": 3}));
    let (held, ending) = tokio::join!(held, ending);
    assert_eq!(
        (ending.status, &ending.json()["code"]),
        (200, &json!(3)),
        "the end is answered with the job"
    );
    assert_eq!(
        held.json()["state"],
        "starting",
        "the slot is the next one's"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_of_what_has_ended_is_told_how_whoever_executes_it() {
    let node = harness::alone().await;
    node.put("/v1/servers/s1", json!({})).await;
    let poll = json!({"incarnation": 1, "wait_ms": 0});
    assert_eq!(node.post("/v1/servers/s1/poll", poll).await.status, 200);
    for (id, executor) in [("caller", "caller"), ("server", "server")] {
        let launch = json!({"id": id, "executor": executor});
        assert_eq!(node.post("/v1/jobs", launch).await.status, 201);
        let beat = heartbeat(&node, id, json!({"attempt": 1})).await;
        assert_eq!(
            (beat.status, &beat.json()["cancel"]),
            (200, &json!(false)),
            "{id}"
        );
        let cancelled = node
            .send(
                Method::POST,
                &format!("/v1/jobs/{id}/cancel"),
                &[],
                Body::empty(),
            )
            .await;
        assert_eq!(cancelled.json()["state"], "aborted");
        for body in [json!({}), json!({"attempt": 1})] {
            let beat = heartbeat(&node, id, body).await;
            assert_eq!(beat.outcome(), (409, "final".to_owned()), "{id}");
            assert_eq!(beat.json()["job"]["reason"], "cancelled", "{id}");
        }
        let other = heartbeat(&node, id, json!({"attempt": 2})).await;
        assert_eq!(other.outcome(), (409, "stale_attempt".to_owned()), "{id}");
        assert_eq!(other.json()["job"]["attempt"], 1, "{id}");
    }
    let nobody = heartbeat(&node, "nobody", json!({})).await;
    assert_eq!(nobody.outcome(), (404, "unknown_job".to_owned()));
    assert_eq!(nobody.json().get("job"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_permit_is_told_to_stop_and_keeps_its_slot_until_it_has() {
    let node = harness::alone().await;
    assert_eq!(node.post("/v1/jobs", permit("a", LONG_S)).await.status, 201);
    say(&node, "a", "started", json!({"attempt": 1})).await;
    assert_eq!(node.post("/v1/jobs", permit("b", LONG_S)).await.status, 201);
    let cancel = node
        .send(Method::POST, "/v1/jobs/a/cancel", &[], Body::empty())
        .await;
    assert_eq!(
        (&cancel.json()["state"], &cancel.json()["cancel"]),
        (&json!("active"), &json!(true))
    );
    let beat = heartbeat(&node, "a", json!({"attempt": 1})).await.json();
    assert_eq!(
        (&beat["state"], &beat["cancel"]),
        (&json!("active"), &json!(true))
    );
    assert_eq!(node.get("/v1/jobs/b").await.json()["state"], "queued");
    let ending = say(&node, "a", "completed", json!({"attempt": 1, "code": 143})).await;
    assert_eq!(ending.json()["reason"], "cancelled");
    assert_eq!(node.get("/v1/jobs/b").await.json()["state"], "starting");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_lapses_in_the_queue_takes_nothing() {
    let node = harness::alone().await;
    assert_eq!(node.post("/v1/jobs", permit("a", LONG_S)).await.status, 201);
    say(&node, "a", "started", json!({"attempt": 1})).await;
    let held = node
        .post("/v1/jobs?wait=start&timeout_s=20", permit("b", 1))
        .await;
    // To hold an answer is not to renew: the connection may outlive whoever waits at its end.
    assert_eq!(held.status, 201);
    assert_eq!(
        (&held.json()["state"], &held.json()["reason"]),
        (&json!("aborted"), &json!("lease_expired"))
    );
    assert_eq!(starts(&node).await, 1);
    assert_eq!(node.get("/v1/pools/cap:crm").await.json()["waiting"], 0);
    let late = heartbeat(&node, "b", json!({})).await;
    assert_eq!(late.outcome(), (409, "final".to_owned()));
    assert_eq!(late.json()["job"]["reason"], "lease_expired");
}

/// Who was never told of its start gives it back, and the next one has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_gone_before_it_was_told_is_not_charged() {
    let node = harness::alone().await;
    assert_eq!(node.post("/v1/jobs", permit("a", LONG_S)).await.status, 201);
    say(&node, "a", "started", json!({"attempt": 1})).await;

    let url = format!("{}/v1/jobs?wait=start&timeout_s=600", node.url);
    let gone = tokio::spawn(async move {
        let json = [("content-type", "application/json")];
        let body = permit("gone", 4).to_string();
        harness::request(&harness::client(), Method::POST, &url, &json, body).await
    });
    node.until_held(1).await;
    gone.abort();
    node.until_held(0).await;
    assert_eq!(node.post("/v1/jobs", permit("c", LONG_S)).await.status, 201);
    say(&node, "a", "completed", json!({"attempt": 1, "code": 0})).await;
    let gone = node.get("/v1/jobs/gone").await.json();
    assert_eq!(
        (&gone["state"], &gone["attempt"]),
        (&json!("starting"), &json!(1))
    );
    assert_eq!(starts(&node).await, 2, "it took the last start");

    ended_as(&node, "gone", "lease_expired").await;
    assert_eq!(node.get("/v1/jobs/c").await.json()["state"], "starting");
    assert_eq!(starts(&node).await, 2, "which now is the next one's");
    let late = say(&node, "gone", "started", json!({"attempt": 1})).await;
    assert_eq!(late.outcome(), (409, "final".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_lapses_while_it_runs_frees_the_slot_and_stays_counted() {
    let node = harness::alone().await;
    assert_eq!(node.post("/v1/jobs", permit("a", 1)).await.status, 201);
    say(&node, "a", "started", json!({"attempt": 1})).await;
    ended_as(&node, "a", "lease_expired").await;
    assert_eq!(starts(&node).await, 1);
    assert_eq!(node.get("/v1/pools/cap:crm").await.json()["running"], 0);
    let late = say(&node, "a", "completed", json!({"attempt": 1, "code": 0})).await;
    assert_eq!(
        (late.status, &late.json()["reason"]),
        (200, &json!("lease_expired")),
        "a late end is answered with the one that stands"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_does_not_confirm_is_put_back_and_then_given_up() {
    let node = harness::alone().await;
    let settings = json!({"start_timeout_s": 1, "max_start_attempts": 2});
    assert_eq!(node.put("/v1/settings", settings).await.status, 200);
    assert_eq!(node.post("/v1/jobs", permit("a", LONG_S)).await.status, 201);
    node.until("/v1/jobs/a", |job| job["attempt"] == 2).await;
    let stale = say(&node, "a", "started", json!({"attempt": 1})).await;
    assert_eq!(stale.outcome(), (409, "stale_attempt".to_owned()));
    let beat = heartbeat(&node, "a", json!({"attempt": 1})).await;
    assert_eq!(beat.outcome(), (409, "stale_attempt".to_owned()));
    ended_as(&node, "a", "start_timeout").await;
    assert_eq!(starts(&node).await, 0, "both attempts were refunded");
}
