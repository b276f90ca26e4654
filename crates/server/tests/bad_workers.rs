//! Workers that say what is not so: refused clearly, and nothing moves.

mod harness;

use harness::{Answer, Node};
use http::Method;
use serde_json::{Value, json};

/// Two servers whose workers poll; `s1` has `starting` and `active`, `s2` has `theirs`.
async fn node() -> Node {
    let node = harness::alone().await;
    for server in ["s1", "s2"] {
        let path = format!("/v1/servers/{server}");
        assert_eq!(node.put(&path, json!({})).await.status, 200);
        assert_eq!(poll(&node, server, json!({})).await.status, 200);
    }
    for (job, server) in [("active", "s1"), ("starting", "s1"), ("theirs", "s2")] {
        let launch = json!({"id": job, "targets": [server]});
        assert_eq!(node.post("/v1/jobs", launch).await.status, 201);
    }
    for (job, server) in [("active", "s1"), ("theirs", "s2")] {
        let one = json!([{"job": job, "attempt": 1}]);
        let answer = poll(&node, server, json!({"holds": one, "started": one})).await;
        assert_eq!(answer.json()["started"][0]["state"], "active");
    }
    node
}

async fn poll(node: &Node, server: &str, mut body: Value) -> Answer {
    if body.get("incarnation").is_none() {
        body["incarnation"] = json!(1);
    }
    body["wait_ms"] = json!(0);
    node.post(&format!("/v1/servers/{server}/poll"), body).await
}

/// What must not move.
async fn standing(node: &Node) -> Value {
    let mut rows = Vec::new();
    for job in ["active", "starting", "theirs"] {
        let job = node.get(&format!("/v1/jobs/{job}")).await.json();
        rows.push(json!([
            job["id"],
            job["state"],
            job["attempt"],
            job["server"],
            job["meta"]
        ]));
    }
    json!(rows)
}

/// Everything that `s1` has in hand: what is not named is missing.
fn holds() -> Value {
    json!([{"job": "active", "attempt": 1}])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_about_attempts_that_are_not_its_own_are_refused_one_by_one() {
    let node = node().await;
    let before = standing(&node).await;
    let said = [
        // Another attempt than the current one, earlier and later.
        ("started", "starting", 0, "stale_attempt"),
        ("started", "starting", 2, "stale_attempt"),
        ("completed", "active", 2, "stale_attempt"),
        // Somebody else's job.
        ("started", "theirs", 1, "stale_attempt"),
        ("completed", "theirs", 1, "stale_attempt"),
        // Completed before it was confirmed.
        ("completed", "starting", 1, "not_active"),
        // Nobody's.
        ("started", "nobody", 1, "unknown_job"),
        ("completed", "nobody", 1, "unknown_job"),
    ];
    for (word, job, attempt, code) in said {
        let mut about = json!({"job": job, "attempt": attempt});
        if word == "completed" {
            about["code"] = json!(0);
        }
        let answer = poll(&node, "s1", json!({"holds": holds(), word: [about]})).await;
        assert_eq!(answer.status, 200, "{:?}", answer.json());
        assert_eq!(
            answer.json()[word][0]["error"],
            code,
            "{word} {job} {attempt}"
        );
    }
    // What it claims to hold and does not, it is told to stop; its owner keeps it.
    let claims = json!([{"job": "active", "attempt": 1}, {"job": "theirs", "attempt": 1},
        {"job": "nobody", "attempt": 1}]);
    let answer = poll(&node, "s1", json!({"holds": claims})).await.json();
    let stale = json!([{"job": "nobody", "attempt": 1, "reason": "stale"},
        {"job": "theirs", "attempt": 1, "reason": "stale"}]);
    assert_eq!(answer["stop"], stale);
    assert_eq!(standing(&node).await, before);
}

/// The same through the calls for a single job, which any executor may make.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_about_a_single_job_are_refused() {
    let node = node().await;
    let before = standing(&node).await;
    for (path, body, outcome) in [
        (
            "starting/started",
            json!({"attempt": 7}),
            (409, "stale_attempt"),
        ),
        (
            "starting/completed",
            json!({"attempt": 1, "code": 0}),
            (409, "not_active"),
        ),
        (
            "active/completed",
            json!({"attempt": 2, "code": 0}),
            (409, "stale_attempt"),
        ),
        (
            "active/heartbeat",
            json!({"attempt": 2}),
            (409, "stale_attempt"),
        ),
        (
            "nobody/started",
            json!({"attempt": 1}),
            (404, "unknown_job"),
        ),
        (
            "nobody/completed",
            json!({"attempt": 1, "code": 0}),
            (404, "unknown_job"),
        ),
        (
            "active/completed",
            json!({"attempt": 1}),
            (400, "invalid_request"),
        ),
        (
            "active/completed",
            json!({"attempt": -1, "code": 0}),
            (400, "invalid_request"),
        ),
        (
            "active/completed",
            json!({"attempt": 1, "code": 1_u64 << 40}),
            (400, "invalid_request"),
        ),
        (
            "active/completed",
            json!({"attempt": 1, "code": 0, "x": 1}),
            (400, "unknown_field"),
        ),
    ] {
        let answer = node.post(&format!("/v1/jobs/{path}"), body.clone()).await;
        let expected = (outcome.0, outcome.1.to_owned());
        assert_eq!(
            answer.outcome(),
            expected,
            "{path} {body}: {:?}",
            answer.json()
        );
    }
    assert_eq!(standing(&node).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_polls_are_refused_that_cannot_be() {
    let node = node().await;
    let before = standing(&node).await;
    let one = json!({"job": "active", "attempt": 1});
    let too_many: Vec<Value> = (0..100_001)
        .map(|n| json!({"job": format!("j{n}"), "attempt": 1}))
        .collect();
    let end = |description: String| json!([{"job": "active", "attempt": 1, "code": 0, "description": description}]);
    for (body, code, field) in [
        (
            json!({"completed": end("x".repeat(4_097))}),
            "invalid_request",
            "completed[0].description",
        ),
        (json!({"holds": too_many}), "invalid_request", "holds"),
        (
            json!({"started": [{"job": "../s2", "attempt": 1}]}),
            "invalid_request",
            "started[0].job",
        ),
        (
            json!({"started": [{"job": "a b", "attempt": 1}]}),
            "invalid_request",
            "started[0].job",
        ),
        (
            json!({"started": [one, 5]}),
            "invalid_request",
            "started[1]",
        ),
        (json!({"holds": {"active": 1}}), "invalid_request", "holds"),
        (
            json!({"incarnation": "7"}),
            "invalid_request",
            "incarnation",
        ),
        (json!({"incarnation": -7}), "invalid_request", "incarnation"),
        (json!({"ended": [one]}), "unknown_field", "ended"),
        (json!({"draining": "yes"}), "invalid_request", "draining"),
    ] {
        let answer = poll(&node, "s1", body).await;
        assert_eq!(
            answer.outcome(),
            (400, code.to_owned()),
            "{:?}",
            answer.json()
        );
        assert_eq!(answer.json()["field"], field, "{:?}", answer.json());
    }
    let garbage = [
        ("", "invalid_json"),
        ("{\"incarnation\": 1", "invalid_json"),
        ("\u{0}\u{1}", "invalid_json"),
        ("[]", "invalid_request"),
        ("null", "invalid_request"),
    ];
    for (body, code) in garbage {
        let json_type = [("content-type", "application/json")];
        let answer = node
            .send(Method::POST, "/v1/servers/s1/poll", &json_type, body)
            .await;
        assert_eq!(answer.outcome(), (400, code.to_owned()), "{body:?}");
    }
    // More than any body may have: a description of 9 MiB.
    let huge = poll(&node, "s1", json!({"completed": end("x".repeat(9 << 20))})).await;
    assert_eq!(huge.outcome(), (413, "body_too_large".to_owned()));
    assert_eq!(standing(&node).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_not_there_and_lives_that_are_over_move_nothing() {
    let node = node().await;
    let end = json!([{"job": "active", "attempt": 1, "code": 0}]);
    let answer = poll(&node, "s9", json!({"completed": end})).await;
    assert_eq!(answer.outcome(), (404, "unknown_server".to_owned()));
    let answer = poll(&node, "a%20b", json!({})).await;
    assert_eq!(answer.outcome(), (400, "invalid_request".to_owned()));
    let leave = node
        .post("/v1/servers/s1/leave", json!({"incarnation": 7}))
        .await;
    assert_eq!(
        leave.outcome(),
        (409, "superseded".to_owned()),
        "not its life"
    );
    let before = standing(&node).await;

    let answer = poll(&node, "s1", json!({"incarnation": 2})).await;
    assert_eq!(answer.status, 200);
    let taken_over = standing(&node).await;
    assert_ne!(
        taken_over, before,
        "the new life ended what the old one held"
    );
    for body in [
        json!({"completed": end}),
        json!({"started": holds()}),
        json!({"draining": true}),
    ] {
        let answer = poll(&node, "s1", body).await;
        assert_eq!(answer.outcome(), (409, "superseded".to_owned()));
    }
    let leave = node
        .post("/v1/servers/s1/leave", json!({"incarnation": 1}))
        .await;
    assert_eq!(leave.outcome(), (409, "superseded".to_owned()));
    assert_eq!(standing(&node).await, taken_over);
    let server = node.get("/v1/servers/s1").await.json();
    assert_eq!(
        (&server["online"], &server["draining"]),
        (&json!(true), &json!(false))
    );
}
