//! Who changed what: told by every node, whoever leads.

#![expect(
    clippy::expect_used,
    reason = "the answers are those that the test expects"
)]

mod harness;

use fermata_api::headers;
use http::Method;
use serde_json::{Value, json};

/// The records as `[action, target, revision]`, newest first.
fn told(page: &Value) -> Vec<Value> {
    let items = page["items"].as_array().expect("items");
    items
        .iter()
        .map(|it| json!([it["action"], it["target"], it["revision"]]))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_through_any_node_are_told_by_every_leader() {
    let nodes = harness::three().await;
    let changes = [
        (Method::PUT, "/v1/events/e", json!({})),
        (Method::PUT, "/v1/events/e", json!({"title": "Mail"})),
        (Method::PUT, "/v1/categories/c", json!({})),
        (Method::PUT, "/v1/settings", json!({"lease_s": 40})),
        (Method::PUT, "/v1/servers/s", json!({})),
        (Method::PUT, "/v1/overrides/cap:a%2Fb", json!({"amount": 0})),
        (Method::DELETE, "/v1/overrides/cap:a%2Fb", Value::Null),
        (Method::DELETE, "/v1/windows/cap:a%2Fb", Value::Null),
        (Method::DELETE, "/v1/windows", Value::Null),
        (Method::DELETE, "/v1/stats", Value::Null),
        (Method::DELETE, "/v1/servers/s", Value::Null),
        (Method::DELETE, "/v1/categories/c", Value::Null),
        (Method::DELETE, "/v1/events/e", Value::Null),
    ];
    for (at, (method, target, body)) in changes.into_iter().enumerate() {
        let node = &nodes[at % nodes.len()];
        // A header of a client's gives nobody a name.
        let forged = [("fermata-actor", "root")];
        let answer = node.json(method, target, &forged, body).await;
        assert!(
            answer.status < 300,
            "{target}: {} {:?}",
            answer.status,
            answer.json()
        );
    }
    let refused = nodes[0]
        .put("/v1/overrides/cap:k", json!({"count": -1}))
        .await;
    assert_eq!(refused.status, 400);

    let answer = nodes[1].get("/v1/audit").await;
    assert_eq!(answer.status, 200);
    let page = answer.json();
    let expected = [
        json!(["delete_event", "e", null]),
        json!(["delete_category", "c", null]),
        json!(["delete_server", "s", null]),
        json!(["reset_stats", null, null]),
        json!(["reset_windows", null, null]),
        json!(["reset_window", "cap:a/b", null]),
        json!(["delete_override", "cap:a/b", null]),
        json!(["put_override", "cap:a/b", null]),
        json!(["put_server", "s", 1]),
        json!(["put_settings", null, 1]),
        json!(["put_category", "c", 1]),
        json!(["put_event", "e", 2]),
        json!(["put_event", "e", 1]),
    ];
    assert_eq!(told(&page), expected);
    for item in page["items"].as_array().expect("items") {
        assert_eq!(item["actor"], "anonymous@127.0.0.1");
        assert!(item["at"].is_string() && item["index"].is_u64(), "{item}");
    }
    assert_eq!(page["items"][11]["change"], "changed: title");

    let mut target = "/v1/audit?limit=5".to_owned();
    let mut paged = Vec::new();
    loop {
        let page = nodes[2].get(&target).await.json();
        paged.extend(told(&page));
        let Some(after) = page["after"].as_str() else {
            break;
        };
        target = format!("/v1/audit?limit=5&after={after}");
    }
    assert_eq!(paged, expected, "page by page");

    let moved = nodes[1]
        .post("/v1/cluster/transfer", json!({"to": 2}))
        .await;
    assert_eq!(moved.status, 200, "{:?}", moved.json());
    let page = nodes[0]
        .until("/v1/audit", |page| {
            told(page).first() == Some(&json!(["transfer", "2", null]))
        })
        .await;
    assert_eq!(told(&page)[1..], expected, "the next leader knows them");
    let answer = nodes[0].get("/v1/audit").await;
    assert!(answer.header(headers::LEADER).is_some(), "node 2 leads");
    let unknown = nodes[0]
        .post("/v1/cluster/transfer", json!({"to": 9}))
        .await;
    assert_eq!(unknown.status, 404);
    let removed = nodes[0]
        .json(Method::DELETE, "/v1/cluster/members/3", &[], Value::Null)
        .await;
    assert_eq!(removed.status, 204, "{:?}", removed.json());
    let page = nodes[0].get("/v1/audit?limit=1").await.json();
    assert_eq!(told(&page), [json!(["remove_member", "3", null])]);
}
