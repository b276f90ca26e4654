//! Servers that are emptied: by their workers, by people, and in a hurry.

mod harness;

use harness::Node;
use serde_json::{Value, json};

/// `s1` with a worker that polls, one job `active` and one `starting`.
async fn node() -> Node {
    let node = harness::alone().await;
    assert_eq!(node.put("/v1/servers/s1", json!({})).await.status, 200);
    node.poll(json!({})).await;
    for job in ["active", "starting"] {
        let limits = json!([{"type": "job", "rate": 9, "window": 604_800, "align": "utc"},
            {"type": "queue", "amount": 9}]);
        let launch = json!({"id": job, "limits": limits});
        assert_eq!(node.post("/v1/jobs", launch).await.status, 201);
    }
    node.poll(json!({"holds": held(), "started": held()})).await;
    assert_eq!(states(&node).await, ["active", "starting"]);
    node
}

fn held() -> Value {
    json!([{"job": "active", "attempt": 1}])
}

async fn states(node: &Node) -> [String; 2] {
    let state = async |job: &str| {
        let job = node.get(&format!("/v1/jobs/{job}")).await.json();
        job["state"].as_str().unwrap_or("?").to_owned()
    };
    [state("active").await, state("starting").await]
}

async fn server(node: &Node) -> Value {
    let server = node.get("/v1/servers/s1").await.json();
    json!([server["enabled"], server["online"], server["draining"]])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_drains_is_given_nothing_and_what_it_did_not_confirm_goes_back() {
    let node = node().await;
    let answer = node.poll(json!({"holds": held(), "draining": true})).await;
    assert_eq!(answer["launches"], json!([]));
    assert_eq!(answer.get("drain"), None, "it knows");
    assert_eq!(states(&node).await, ["active", "queued"]);
    assert_eq!(server(&node).await, json!([true, true, true]));
    let job = node.get("/v1/jobs/starting").await.json();
    let meta = job["meta"].to_string();
    assert!(meta.contains("its server takes nothing new"), "{meta}");

    // Said again, it is no news; a start that was on its way is refused.
    let stale = json!([{"job": "starting", "attempt": 1}]);
    let body = json!({"holds": held(), "draining": true, "started": stale});
    let answer = node.poll(body).await;
    assert_eq!(answer["started"][0]["error"], "stale_attempt");
    assert_eq!(states(&node).await, ["active", "queued"]);

    // It finishes and leaves; the next life takes what waits.
    let end = json!([{"job": "active", "attempt": 1, "code": 0}]);
    node.poll(json!({"holds": held(), "draining": true, "completed": end}))
        .await;
    let leave = node
        .post("/v1/servers/s1/leave", json!({"incarnation": 1}))
        .await;
    assert_eq!(leave.json()["online"], false);
    assert_eq!(states(&node).await, ["complete", "queued"]);
    let answer = node.poll(json!({"incarnation": 2})).await;
    assert_eq!(answer["launches"][0]["job"], "starting");
    assert_eq!(server(&node).await, json!([true, true, false]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_told_to_the_held_poll_and_lasts_until_the_server_is_enabled() {
    let node = node().await;
    let drain = async {
        node.until_held(1).await;
        let answer = node.post("/v1/servers/s1/drain", json!({})).await;
        assert_eq!(answer.json()["draining"], true);
    };
    let held_poll = json!({"holds": [{"job": "active", "attempt": 1}, {"job": "starting", "attempt": 1}],
        "wait_ms": 20_000});
    let (answer, ()) = tokio::join!(node.poll(held_poll), drain);
    assert_eq!(answer["drain"], true);
    assert_eq!(server(&node).await, json!([false, true, true]));
    assert_eq!(states(&node).await, ["active", "queued"]);

    // A worker that is started again gets nothing before the server is enabled.
    let leave = node
        .post("/v1/servers/s1/leave", json!({"incarnation": 1}))
        .await;
    assert_eq!(leave.status, 200);
    assert_eq!(
        states(&node).await,
        ["aborted", "queued"],
        "what it still held is lost"
    );
    let answer = node.poll(json!({"incarnation": 2})).await;
    assert_eq!(answer["launches"], json!([]));
    assert_eq!(answer.get("drain"), None, "it may stay");
    assert_eq!(
        node.put("/v1/servers/s1", json!({"enabled": true}))
            .await
            .status,
        200
    );
    let answer = node.poll(json!({"incarnation": 2})).await;
    assert_eq!(answer["launches"][0]["job"], "starting");

    let unknown = node.post("/v1/servers/s9/drain", json!({})).await;
    assert_eq!(unknown.outcome(), (404, "unknown_server".to_owned()));
}
