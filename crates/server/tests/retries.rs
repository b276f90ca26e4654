//! Retries (S49): those who wait, the retention and the counters see the last end only.

mod harness;

use harness::Node;
use serde_json::{Value, json};

/// Waits for the attempt, confirms it and ends it with the code.
async fn execute(node: &Node, attempt: u32, code: i32) {
    harness::until("the attempt is offered", || async {
        let answer = node.poll(json!({"wait_ms": 1_000})).await;
        (answer["launches"][0]["attempt"] == attempt).then_some(())
    })
    .await;
    let held = json!([{"job": "j", "attempt": attempt}]);
    let answer = node.poll(json!({"holds": held, "started": held})).await;
    assert_eq!(answer["started"][0]["state"], "active");
    let end = json!([{"job": "j", "attempt": attempt, "code": code, "description": "said"}]);
    let answer = node.poll(json!({"holds": held, "completed": end})).await;
    assert_eq!(answer["completed"][0].get("error"), None, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_last_end_is_one() {
    let node = harness::alone().await;
    let settings = node.get("/v1/settings").await.json();
    let mut kept_briefly = settings.clone();
    kept_briefly["retention_s"] = json!(3_600);
    kept_briefly["finished_max"] = json!(1);
    assert_eq!(node.put("/v1/settings", kept_briefly).await.status, 200);
    assert_eq!(node.put("/v1/servers/s1", json!({})).await.status, 200);
    node.poll(json!({})).await;
    let limits = json!([{"type": "retry", "amount": 2, "duration": 1, "backoff": 2}]);
    let launch = json!({"id": "j", "limits": limits});
    let waiting = node.post("/v1/jobs?wait=end&timeout_s=25", launch);
    let failing = async {
        for attempt in [1, 2] {
            execute(&node, attempt, 3).await;
            let job = node.get("/v1/jobs/j").await.json();
            assert_eq!(job["state"], "delayed");
            assert_eq!(
                (&job["code"], &job["ended_at"]),
                (&Value::Null, &Value::Null)
            );
            let stats = node.get("/v1/stats").await.json();
            assert_eq!(stats["failed"], 0, "no end yet: {stats}");
            // An end of another job takes the only place among the finished: `j` is not one of them.
            let other = format!("other-{attempt}");
            node.post("/v1/jobs", json!({"id": other, "delay_s": 60}))
                .await;
            node.post(&format!("/v1/jobs/{other}/cancel"), json!({}))
                .await;
            assert_eq!(node.get("/v1/jobs/j").await.status, 200);
            // The end that was retried is not repeated to its sender as if it were the last.
            let held = json!([{"job": "j", "attempt": attempt}]);
            let end = json!([{"job": "j", "attempt": attempt, "code": 3}]);
            let answer = node.poll(json!({"holds": held, "completed": end})).await;
            assert_eq!(answer["completed"][0]["error"], "stale_attempt");
        }
        execute(&node, 3, 4).await;
    };
    let (answer, ()) = tokio::join!(waiting, failing);
    let job = answer.json();
    assert_eq!(answer.status, 201, "{job}");
    assert_eq!(
        json!([
            job["state"],
            job["code"],
            job["attempt"],
            job["description"]
        ]),
        json!(["complete", 4, 3, "said"])
    );
    let meta = job["meta"].to_string();
    assert!(
        meta.contains("retry 1") && meta.contains("retry 2"),
        "{meta}"
    );
    assert_eq!(node.get("/v1/stats").await.json()["failed"], 1);
    assert_eq!(
        node.get("/v1/jobs/other-2").await.status,
        404,
        "only one is kept"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_is_not_tried_again() {
    let node = harness::alone().await;
    assert_eq!(node.put("/v1/servers/s1", json!({})).await.status, 200);
    node.poll(json!({})).await;
    let limits = json!([{"type": "retry", "amount": 5, "duration": 0}]);
    node.post("/v1/jobs", json!({"id": "j", "limits": limits}))
        .await;
    let held = json!([{"job": "j", "attempt": 1}]);
    node.poll(json!({"holds": held, "started": held})).await;
    node.post("/v1/jobs/j/cancel", json!({})).await;
    let end = json!([{"job": "j", "attempt": 1, "code": 143}]);
    node.poll(json!({"holds": held, "completed": end})).await;
    let job = node.get("/v1/jobs/j").await.json();
    assert_eq!(
        (&job["state"], &job["reason"]),
        (&json!("aborted"), &json!("cancelled"))
    );
}
