//! Definitions, pools, windows and overrides: what is put is shown, guarded, paged and removed.

mod harness;

use axum::body::Body;
use http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_is_guarded_by_the_revision_that_it_names() {
    let node = harness::alone().await;
    let first = node
        .put("/v1/events/e", json!({"title": "one", "priority": true}))
        .await;
    assert_eq!((first.status, first.header("etag")), (200, Some("\"1\"")));
    assert_eq!(first.json()["priority"], 1);
    // What was read can be put back.
    let mut event = node.get("/v1/events/e").await.json();
    event["title"] = json!("two");
    let second = node.put("/v1/events/e", event.clone()).await;
    assert_eq!(
        (second.status, &second.json()["revision"]),
        (200, &json!(2))
    );
    let late = node.put("/v1/events/e", event).await;
    assert_eq!(late.outcome(), (412, "revision_conflict".to_owned()));
    assert!(
        late.json()["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("revision 2"))
    );
    let guard = |revision: &'static str| [("if-match", revision)];
    let late = node
        .json(Method::PUT, "/v1/events/e", &guard("\"1\""), json!({}))
        .await;
    assert_eq!(late.outcome(), (412, "revision_conflict".to_owned()));
    let new = node
        .json(Method::PUT, "/v1/events/f", &guard("\"0\""), json!({}))
        .await;
    assert_eq!(new.status, 200, "revision 0 is one that is absent");
    let absent = [("if-none-match", "*")];
    for (event, expected) in [("e", 412), ("g", 200)] {
        let path = format!("/v1/events/{event}");
        let put = node.json(Method::PUT, &path, &absent, json!({})).await;
        assert_eq!(put.status, expected, "{event}");
    }
    let answer = node
        .send(
            Method::DELETE,
            "/v1/events/e",
            &guard("\"1\""),
            Body::empty(),
        )
        .await;
    assert_eq!(answer.outcome(), (412, "revision_conflict".to_owned()));
    let answer = node
        .send(
            Method::DELETE,
            "/v1/events/e",
            &guard("\"2\""),
            Body::empty(),
        )
        .await;
    assert_eq!(answer.status, 204);
    assert_eq!(node.get("/v1/events/e").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_go_by_pages() {
    let node = harness::alone().await;
    for id in ["a", "b", "c"] {
        assert_eq!(
            node.put(&format!("/v1/events/{id}"), json!({}))
                .await
                .status,
            200
        );
        assert_eq!(
            node.put(&format!("/v1/servers/{id}"), json!({}))
                .await
                .status,
            200
        );
        assert_eq!(
            node.put(&format!("/v1/categories/{id}"), json!({}))
                .await
                .status,
            200
        );
    }
    for list in ["events", "servers", "categories"] {
        let page = node.get(&format!("/v1/{list}?limit=2")).await.json();
        assert_eq!(
            (&page["items"][1]["id"], &page["after"]),
            (&json!("b"), &json!("b")),
            "{list}"
        );
        let page = node
            .get(&format!("/v1/{list}?limit=2&after=b"))
            .await
            .json();
        assert_eq!(
            (&page["items"][0]["id"], page.get("after")),
            (&json!("c"), None),
            "{list}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_replaced_whole() {
    let node = harness::alone().await;
    let before = node.get("/v1/settings").await.json();
    assert_eq!(before["server_timeout_s"], 30);
    let answer = node
        .put("/v1/settings", json!({"lease_s": 9, "universal_limits": {"default": [{"type": "time", "duration": 60}]}}))
        .await;
    assert_eq!((answer.status, &answer.json()["lease_s"]), (200, &json!(9)));
    let job = node
        .post("/v1/jobs", json!({"id": "j", "delay_s": 60}))
        .await
        .json();
    assert_eq!(job["limits"][0]["source"], "universal");
    let stale = node.put("/v1/settings", before.clone()).await;
    assert_eq!(
        stale.outcome(),
        (412, "revision_conflict".to_owned()),
        "what was read before somebody's edit does not undo it"
    );
    let mut before = before;
    before["revision"] = json!(1);
    let back = node.put("/v1/settings", before).await;
    assert_eq!(
        (back.status, &back.json()["lease_s"], back.header("etag")),
        (200, &json!(30), Some("\"2\""))
    );
    assert_eq!(node.put("/v1/settings", json!({})).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_category_is_guarded_as_an_event_is() {
    let node = harness::alone().await;
    let first = node.put("/v1/categories/c", json!({"title": "one"})).await;
    assert_eq!((first.status, first.header("etag")), (200, Some("\"1\"")));
    let read = node.get("/v1/categories/c").await;
    assert_eq!(read.header("etag"), Some("\"1\""));
    let again = node.put("/v1/categories/c", read.json()).await;
    assert_eq!((again.status, &again.json()["revision"]), (200, &json!(2)));
    let late = node.put("/v1/categories/c", read.json()).await;
    assert_eq!(late.outcome(), (412, "revision_conflict".to_owned()));
    for (revision, status) in [("\"1\"", 412), ("\"2\"", 204), ("\"2\"", 404)] {
        let guard = [("if-match", revision)];
        let answer = node
            .send(Method::DELETE, "/v1/categories/c", &guard, Body::empty())
            .await;
        assert_eq!(answer.status, status, "{revision}");
    }
}

/// Keys of every kind: each pool is its own, and can be read, overridden and reset (F38).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_keys_are_kept_apart_and_reached() {
    let node = harness::alone().await;
    let longest = "k".repeat(128);
    let keys = [
        "a/b", "a", "a ", "a@b", "..", ".", "a%2Fb", "é", "🎼", "a?b#c", "a:b", "+", &longest,
    ];
    for (number, key) in keys.iter().enumerate() {
        let limit = json!([{"type": "job", "amount": 1, "cap_key": key}]);
        let body = json!({"id": format!("j{number}"), "delay_s": 60, "limits": limit});
        assert_eq!(node.post("/v1/jobs", body).await.status, 201, "{key}");
    }
    for key in keys {
        let name = format!("cap:{key}");
        let path = |template: &str| fermata_api::routes::path(template, &name);
        let pool = node.get(&path(fermata_api::routes::POOL)).await;
        assert_eq!(
            (pool.status, &pool.json()["id"]),
            (200, &json!(name)),
            "{key}"
        );
        assert_eq!(pool.json()["delayed"], 1, "{key}");
        let sizes = json!({"amount": 0, "note": "hold"});
        let answer = node.put(&path(fermata_api::routes::OVERRIDE), sizes).await;
        assert_eq!(
            (answer.status, &answer.json()["id"]),
            (200, &json!(name)),
            "{key}"
        );
        assert_eq!(
            node.delete(&path(fermata_api::routes::WINDOW)).await.status,
            204,
            "{key}"
        );
        let listed = format!("/v1/jobs?pool={}", fermata_api::routes::encode(&name));
        assert_eq!(
            node.get(&listed).await.json()["items"]
                .as_array()
                .map(Vec::len),
            Some(1),
            "{key}"
        );
    }
    let overrides = node.get("/v1/overrides").await.json();
    assert_eq!(
        overrides["items"].as_array().map(Vec::len),
        Some(keys.len())
    );
    let path = fermata_api::routes::path(fermata_api::routes::OVERRIDE, "cap:a/b");
    assert_eq!(node.delete(&path).await.status, 204);
    assert_eq!(
        node.get("/v1/pools/cap:a%2Fb").await.json().get("override"),
        None
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_is_shown_and_reset() {
    let node = harness::alone().await;
    let rate = json!([
        {"type": "job", "rate": 2, "window": 86_400, "align": "utc", "cap_key": "k"},
        {"type": "queue", "amount": 9},
    ]);
    let launch = |id: &str| json!({"id": id, "executor": "caller", "limits": rate});
    for id in ["a", "b", "c"] {
        assert_eq!(node.post("/v1/jobs", launch(id)).await.status, 201);
    }
    let windows = node.get("/v1/windows").await.json();
    let window = &windows["items"][0];
    assert_eq!(
        (
            &window["id"],
            &window["event"],
            &window["count"],
            &window["max"]
        ),
        (&json!("cap:k"), &Value::Null, &json!(2), &json!(2))
    );
    assert_eq!(
        (&window["window_s"], &window["style"]),
        (&json!(86_400), &json!("fixed"))
    );
    assert!(
        window["expires_in_ms"]
            .as_u64()
            .is_some_and(|left| left <= 86_400_000)
    );
    let pool = node.get("/v1/pools/cap:k").await.json();
    assert_eq!((&pool["waiting"], &pool["head"]), (&json!(1), &json!("c")));
    assert_eq!(pool["waits_for"], json!({"gate": "window"}));
    assert_eq!(pool["limits"]["rate"]["count"], 2);
    assert_eq!(pool["limits"]["queue"], 9);

    assert_eq!(node.delete("/v1/windows/cap:k").await.status, 204);
    assert_eq!(node.get("/v1/jobs/c").await.json()["state"], "starting");
    assert_eq!(node.delete("/v1/windows/cap:k").await.status, 204);
    assert_eq!(
        node.delete("/v1/windows/cap:k").await.status,
        204,
        "also where none is open"
    );
    assert_eq!(node.delete("/v1/windows").await.status, 204);
    assert_eq!(node.get("/v1/windows").await.json(), json!({"items": []}));

    let stats = node.get("/v1/stats").await.json();
    assert_eq!(
        (
            &stats["launched"],
            &stats["started"],
            &stats["jobs"]["starting"]
        ),
        (&json!(3), &json!(3), &json!(3))
    );
    assert_eq!(node.delete("/v1/stats").await.status, 204);
    assert_eq!(node.get("/v1/stats").await.json()["launched"], 0);
}

/// The limits of a pool are those in force, under an override too (S33).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_of_another_length_is_aligned_to_utc() {
    let node = harness::alone().await;
    let limits = json!([
        {"type": "job", "rate": 1, "window": 60, "cap_key": "k"},
        {"type": "queue", "amount": 9},
    ]);
    let launch = json!({"limits": limits, "executor": "caller"});
    for _ in 0..2 {
        node.post("/v1/jobs", launch.clone()).await;
    }
    let align = async || {
        let pool = node.get("/v1/pools/cap:k").await.json();
        pool["limits"]["rate"]["align"].clone()
    };
    assert_eq!(align().await, "local");
    for (window_s, expected) in [(7, "utc"), (3_600, "local")] {
        let body = json!({"window_s": window_s});
        assert_eq!(node.put("/v1/overrides/cap:k", body).await.status, 200);
        assert_eq!(align().await, expected, "{window_s}");
    }
}

/// Nobody executes a workflow but who launched it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_not_launched_for_a_server() {
    let node = harness::alone().await;
    let workflow = json!({"type": "workflow", "nodes": [{"id": "n"}]});
    assert!(node.put("/v1/events/w", workflow).await.status < 300);
    let launch = json!({"event": "w", "executor": "server"});
    let refused = node.post("/v1/jobs", launch).await;
    assert_eq!(refused.outcome(), (400, "invalid_request".to_owned()));
    assert_eq!(refused.json()["field"], "executor");
    for launch in [
        json!({"event": "w"}),
        json!({"event": "w", "executor": "caller"}),
    ] {
        let launched = node.post("/v1/jobs", launch).await;
        assert_eq!(launched.json()["executor"], "caller");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_and_the_probes_are_answered() {
    let node = harness::alone().await;
    let cluster = node.get("/v1/cluster").await.json();
    assert_eq!(
        (&cluster["node"], &cluster["leader"], &cluster["has_quorum"]),
        (&json!(1), &json!(1), &json!(true))
    );
    assert_eq!(cluster["nodes"][0]["role"], "leader");
    assert_eq!(cluster["nodes"][0]["client_url"], json!(node.url));
    assert_eq!(node.get("/livez").await.status, 200);
    assert_eq!(node.get("/readyz").await.status, 200);
    let metrics = node.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.bytes).into_owned();
    assert!(text.contains("\nfermata_raft_is_leader 1\n"), "{text}");
    assert!(
        text.contains("fermata_jobs_ended{end=\"rate_limited\"} 0"),
        "{text}"
    );
    let alone = node.post("/v1/cluster/transfer", json!({})).await;
    assert_eq!(alone.outcome(), (409, "membership_conflict".to_owned()));
    let head = node
        .send(Method::HEAD, "/v1/stats", &[], Body::empty())
        .await;
    assert_eq!((head.status, head.bytes.len()), (200, 0));
    let stale = node.get("/v1/stats?consistency=stale").await;
    assert!(
        stale
            .header("fermata-age-ms")
            .is_some_and(|age| age.parse::<u64>().is_ok())
    );
}
