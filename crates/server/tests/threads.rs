//! The edge on threads of its own, as the binary runs it, and many that wait at once.

mod harness;

use axum::body::Body;
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

/// Polls that are held at once in the test of idle ones.
const IDLE_POLLS: usize = 200;

#[test]
fn the_member_and_its_edge_may_have_runtimes_of_their_own() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let (members, edges) = (runtime(), runtime());
    let node = edges.block_on(harness::Node::start_on(members.handle().clone()));
    edges.block_on(async {
        node.until_led().await;
        let job = json!({"id": "j", "executor": "caller"});
        let answer = node.post("/v1/jobs?wait=start&timeout_s=9", job).await;
        assert_eq!(
            (answer.status, &answer.json()["state"]),
            (201, &json!("starting"))
        );
        assert_eq!(node.get("/v1/jobs/j").await.status, 200);
        let beat = node
            .send(Method::POST, "/v1/jobs/j/heartbeat", &[], Body::empty())
            .await;
        assert_eq!(beat.status, 200);
    });
    drop(node);
    edges.shutdown_background();
    members.shutdown_background();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_for_one_server_wakes_its_poll_alone() {
    let node = harness::alone().await;
    // Long enough that all are held before the first comes back.
    node.put("/v1/settings", json!({"server_timeout_s": 90}))
        .await;
    let names: Vec<String> = (0..IDLE_POLLS).map(|number| format!("s{number}")).collect();
    for name in &names {
        assert_eq!(
            node.put(&format!("/v1/servers/{name}"), json!({}))
                .await
                .status,
            200
        );
    }
    let mut polls = JoinSet::new();
    for name in names {
        let url = format!("{}/v1/servers/{name}/poll", node.url);
        polls.spawn(async move {
            let client = harness::client();
            let json_type = [("content-type", "application/json")];
            let body = r#"{"incarnation": 1, "wait_ms": 30000}"#;
            let answer = harness::request(&client, Method::POST, &url, &json_type, body).await;
            (name, answer)
        });
    }
    node.until_held(IDLE_POLLS).await;
    let answer = node
        .post("/v1/jobs", json!({"id": "j", "targets": ["s7"]}))
        .await;
    assert_eq!(answer.json()["server"], "s7");
    let (server, answer) = polls.join_next().await.expect("a poll").expect("an answer");
    assert_eq!(
        (server.as_str(), &answer.json()["launches"][0]["job"]),
        ("s7", &json!("j"))
    );
    node.until_held(IDLE_POLLS - 1).await;
}
