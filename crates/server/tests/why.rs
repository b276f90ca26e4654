//! Why a job waits, and what would become of one: over a real member, as data.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

mod harness;

use harness::{Answer, Node};
use http::Method;
use serde_json::{Value, json};

/// What is expected: fields that are not named may be anything, null stands for absent, `"*"` for
/// whatever is there.
fn fits(seen: &Value, expected: &Value) -> bool {
    match (seen, expected) {
        (seen, Value::String(any)) if any == "*" => !seen.is_null(),
        (Value::Object(seen), Value::Object(expected)) => expected
            .iter()
            .all(|(name, expected)| fits(seen.get(name).unwrap_or(&Value::Null), expected)),
        (Value::Array(seen), Value::Array(expected)) => {
            seen.len() == expected.len() && seen.iter().zip(expected).all(|(s, e)| fits(s, e))
        }
        (seen, expected) => seen == expected,
    }
}

async fn call(node: &Node, step: &Value) -> Answer {
    let (method, target) = step["call"]
        .as_str()
        .and_then(|call| call.split_once(' '))
        .expect("a call");
    let method: Method = method.parse().expect("a method");
    match step.get("body") {
        Some(body) => node.json(method, target, &[], body.clone()).await,
        None => node.get(target).await,
    }
}

/// A server `s1` with room for two, whose worker was heard.
async fn with_server(node: &Node) {
    let server = json!({"max_jobs": 2});
    assert_eq!(node.put("/v1/servers/s1", server).await.status, 200);
    let poll = json!({"incarnation": 1, "wait_ms": 0});
    assert_eq!(node.post("/v1/servers/s1/poll", poll).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_question_is_answered_as_the_table_says() {
    let node = harness::alone().await;
    with_server(&node).await;
    let stories: Vec<Value> =
        serde_json::from_str(include_str!("data/why.json")).expect("the table");
    let list = |story: &Value, name: &str| story[name].as_array().expect("a list").clone();
    let mut wrong = Vec::new();
    for story in &stories {
        for step in list(story, "before") {
            let answer = call(&node, &step).await;
            assert!(answer.status < 300, "{step}: {:?}", answer.json());
        }
        for step in list(story, "asked") {
            let answer = call(&node, &step).await;
            let status = step["status"].as_u64().unwrap_or(200);
            if u64::from(answer.status) != status || !fits(&answer.json(), &step["answer"]) {
                let (title, came) = (&story["title"], answer.json());
                wrong.push(format!(
                    "{title}\n  {step}\n  came: {} {came}",
                    answer.status
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The instant that is named is the one at which the rate allows one more start (S27, S29).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earliest_instant_is_exact() {
    let node = harness::alone().await;
    let limits = json!([{"type": "rate", "key": "k", "count": 1, "per_seconds": 600,
                         "style": "sliding", "mode": "wait"}]);
    let launch = |id: &str| json!({"id": id, "executor": "caller", "limits": limits});
    let first = node.post("/v1/jobs", launch("a")).await.json();
    let told = node.post("/v1/jobs?dry_run=true", launch("b")).await.json();
    assert_eq!(node.post("/v1/jobs", launch("b")).await.status, 201);
    let why = node.get("/v1/jobs/b/why").await.json();
    let earliest = &why["earliest_at"];
    assert_eq!(told["earliest_at"], *earliest, "{told}");
    assert_eq!(why["gates"][1]["opens_at"], *earliest);
    assert_eq!(why["gates"][1]["window"]["next_at"], *earliest);
    let instant = |text: &Value| {
        let text = text.as_str().expect("an instant");
        let read = fermata_api::time::Timestamp::parse(text).expect("RFC 3339");
        read.unix_ms()
    };
    assert_eq!(instant(earliest), instant(&first["started_at"]) + 600_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_changes_nothing() {
    let node = harness::alone().await;
    let limits = json!([{"type": "job", "amount": 1, "rate": 1, "window": 604_800,
                         "style": "sliding", "cap_key": "k"}]);
    let launch = json!({"id": "j", "executor": "caller", "limits": limits});
    let before = node.replica.status().last_log;
    for _ in 0..3 {
        let told = node
            .post("/v1/jobs?dry_run=true", launch.clone())
            .await
            .json();
        assert_eq!(told["state"], "starting", "{told}");
    }
    let batch = json!({"jobs": [launch, launch]});
    let told = node.post("/v1/jobs?dry_run=true", batch).await.json();
    assert_eq!(told["results"][1]["why"]["state"], "starting", "{told}");
    assert_eq!(node.replica.status().last_log, before, "nothing is written");
    assert_eq!(node.get("/v1/jobs/j/why").await.status, 404);
    let launched = node.post("/v1/jobs", launch).await;
    assert_eq!(launched.json()["state"], "starting", "its id was not used");
    let shut = json!({"executor": "caller", "limits": limits});
    let told = node.post("/v1/jobs?dry_run=true", shut).await.json();
    assert_eq!(told["reason"], "concurrency_limited", "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_answers_as_the_leader_would() {
    let nodes = harness::three().await;
    let limits =
        json!([{"type": "job", "amount": 1, "cap_key": "k"}, {"type": "queue", "amount": 9}]);
    let launch = |id: &str| json!({"id": id, "executor": "caller", "limits": limits});
    for id in ["a", "b"] {
        let answer = nodes[1].post_until_known("/v1/jobs", launch(id)).await;
        assert_eq!(answer.status, 201, "{:?}", answer.json());
    }
    for node in nodes.iter() {
        let told = node
            .post_until_known("/v1/jobs?dry_run=true", launch("c"))
            .await;
        let why = told.json();
        assert_eq!((told.status, &why["state"]), (200, &json!("queued")));
        assert_eq!((&why["position"], &why["behind"]), (&json!(1), &json!("b")));
        let why = node
            .until("/v1/jobs/b/why", |why| why["state"] == "queued")
            .await;
        assert_eq!(why["gates"][0]["holders"], json!(["a"]));
        node.until("/v1/jobs/b/why?consistency=stale", |why| {
            why["gates"][0]["holders"] == json!(["a"])
        })
        .await;
    }
}
