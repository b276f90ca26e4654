//! Bad input over HTTP: a 4xx that names the field, and a node that goes on (F38).

use fermata_api::bounds::BODY_BYTES_MAX;
use fermata_api::routes;
use fermata_e2e::{Cluster, DEADLINE};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What is sent, and what must be answered.
struct Case {
    call: &'static str,
    body: &'static str,
    status: u16,
    code: &'static str,
    /// The field that the problem must name; empty where none is at fault.
    field: &'static str,
}

const fn case(
    call: &'static str,
    body: &'static str,
    status: u16,
    code: &'static str,
    field: &'static str,
) -> Case {
    Case {
        call,
        body,
        status,
        code,
        field,
    }
}

const EVENT: &str = "PUT /v1/events/e";
const JOBS: &str = "POST /v1/jobs";

const CASES: &[Case] = &[
    // No JSON, or not what was asked for.
    case(EVENT, "", 400, "invalid_json", ""),
    case(EVENT, "{", 400, "invalid_json", ""),
    case(EVENT, "{} {}", 400, "invalid_json", ""),
    case(EVENT, "\u{feff}{}", 400, "invalid_json", ""),
    case(EVENT, "[]", 400, "invalid_request", ""),
    case(EVENT, "null", 400, "invalid_request", ""),
    // Wrong types and unknown fields.
    case(EVENT, r#"{"title": 5}"#, 400, "invalid_request", "title"),
    case(
        EVENT,
        r#"{"enabled": "yes"}"#,
        400,
        "invalid_request",
        "enabled",
    ),
    case(
        EVENT,
        r#"{"priority": 101}"#,
        400,
        "invalid_request",
        "priority",
    ),
    case(
        EVENT,
        r#"{"priority": 1.5}"#,
        400,
        "invalid_request",
        "priority",
    ),
    case(EVENT, r#"{"tilte": "x"}"#, 400, "unknown_field", "tilte"),
    case(
        EVENT,
        r#"{"title": "a", "title": "b"}"#,
        400,
        "invalid_request",
        "title",
    ),
    case(EVENT, r#"{"id": "other"}"#, 400, "invalid_request", "id"),
    case(EVENT, r#"{"algo": "best"}"#, 400, "invalid_request", "algo"),
    case(
        EVENT,
        r#"{"targets": "east"}"#,
        400,
        "invalid_request",
        "targets",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "jobs"}]}"#,
        400,
        "invalid_request",
        "limits[0].type",
    ),
    case(
        EVENT,
        r#"{"limits": [{"amount": 1}]}"#,
        400,
        "invalid_request",
        "limits[0].type",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "amount": -1}]}"#,
        400,
        "invalid_request",
        "limits[0].amount",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "queue", "amount": 1, "rate": 3}]}"#,
        400,
        "unknown_field",
        "limits[0].rate",
    ),
    // Limits that break the rules (S2 to S6).
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "amount": 10000001}]}"#,
        400,
        "invalid_request",
        "limits[0].amount",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "rate": 5}]}"#,
        400,
        "invalid_request",
        "limits[0].window",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "rate": 5, "window": 61}]}"#,
        400,
        "invalid_request",
        "limits[0].window",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "rate": 5, "window": 0, "align": "utc"}]}"#,
        400,
        "invalid_request",
        "limits[0].window",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "rate": 5, "window": 604801, "align": "utc"}]}"#,
        400,
        "invalid_request",
        "limits[0].window",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "rate": 1000001, "window": 60}]}"#,
        400,
        "invalid_request",
        "limits[0].rate",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "rate": 100001, "window": 60, "style": "sliding"}]}"#,
        400,
        "invalid_request",
        "limits[0].rate",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "rate": 5, "window": 60, "burst": 9}]}"#,
        400,
        "invalid_request",
        "limits[0].burst",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "weight": 0}]}"#,
        400,
        "invalid_request",
        "limits[0].weight",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "amount": 1, "cap_key": "a\u0000b"}]}"#,
        400,
        "invalid_request",
        "limits[0].cap_key",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "rate", "key": "", "count": 1, "per_seconds": 1}]}"#,
        400,
        "invalid_request",
        "limits[0].key",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "rate", "key": "k", "count": 0, "per_seconds": 1}]}"#,
        400,
        "invalid_request",
        "limits[0].count",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "rate", "key": "k", "count": 1, "per_seconds": 0}]}"#,
        400,
        "invalid_request",
        "limits[0].per_seconds",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "rate", "key": "k", "count": 1}]}"#,
        400,
        "invalid_request",
        "limits[0].per_seconds",
    ),
    case(
        EVENT,
        r#"{"limits": [{"type": "job", "amount": 1}, {"type": "job", "amount": 2}]}"#,
        400,
        "invalid_request",
        "limits[1]",
    ),
    // Ids with odd characters.
    case("PUT /v1/events/a%20b", "{}", 400, "invalid_request", "id"),
    case("PUT /v1/events/a%2Fb", "{}", 400, "invalid_request", "id"),
    case("PUT /v1/events/%00", "{}", 400, "invalid_request", "id"),
    case("PUT /v1/events/%FF", "{}", 400, "invalid_request", "id"),
    case(
        "PUT /v1/events/%F0%9F%8E%BC",
        "{}",
        400,
        "invalid_request",
        "id",
    ),
    case("PUT /v1/servers/a%0Ab", "{}", 400, "invalid_request", "id"),
    case(
        "PUT /v1/servers/s",
        r#"{"max_jobs": 0}"#,
        400,
        "invalid_request",
        "max_jobs",
    ),
    case(
        "PUT /v1/servers/s",
        r#"{"groups": ["a b"]}"#,
        400,
        "invalid_request",
        "groups[0]",
    ),
    case(
        "PUT /v1/settings",
        r#"{"start_timeout_s": 0}"#,
        400,
        "invalid_request",
        "start_timeout_s",
    ),
    case(
        "PUT /v1/settings",
        r#"{"lease_s": 99999999}"#,
        400,
        "invalid_request",
        "lease_s",
    ),
    // Launches.
    case(
        JOBS,
        r#"{"event": "nobody"}"#,
        404,
        "event_missing",
        "event",
    ),
    case(JOBS, r#"{"event": "a b"}"#, 400, "invalid_request", "event"),
    case(
        JOBS,
        r#"{"id": "a/b", "executor": "caller"}"#,
        400,
        "invalid_request",
        "id",
    ),
    case(
        JOBS,
        r#"{"id": "", "executor": "caller"}"#,
        400,
        "invalid_request",
        "id",
    ),
    case(
        JOBS,
        r#"{"executor": "nobody"}"#,
        400,
        "invalid_request",
        "executor",
    ),
    case(
        JOBS,
        r#"{"delay_s": -5}"#,
        400,
        "invalid_request",
        "delay_s",
    ),
    case(
        JOBS,
        r#"{"delay_s": 99999999999}"#,
        400,
        "invalid_request",
        "delay_s",
    ),
    case(
        JOBS,
        r#"{"limits": [{"type": "queue", "amount": 5}]}"#,
        400,
        "invalid_request",
        "limits",
    ),
    case(
        JOBS,
        r#"{"workflow": {"job": "nobody", "node": "n"}}"#,
        409,
        "unknown_parent",
        "workflow.job",
    ),
    case(JOBS, r#"{"jobs": {}}"#, 400, "invalid_request", "jobs"),
    case(
        "POST /v1/jobs?wait=soon",
        "{}",
        400,
        "invalid_request",
        "wait",
    ),
    case("POST /v1/jobs?hold=1", "{}", 400, "unknown_field", "hold"),
    case(
        "POST /v1/jobs/nobody/started",
        r#"{"attempt": 1}"#,
        404,
        "unknown_job",
        "",
    ),
    case(
        "POST /v1/jobs/nobody/started",
        r"{}",
        400,
        "invalid_request",
        "attempt",
    ),
    case("POST /v1/jobs/nobody/cancel", "", 404, "unknown_job", ""),
    case(
        "POST /v1/servers/nobody/poll",
        r#"{"incarnation": 1}"#,
        404,
        "unknown_server",
        "",
    ),
    case("GET /v1/jobs?limit=0", "", 400, "invalid_request", "limit"),
    case(
        "GET /v1/jobs?after=%F0%9F",
        "",
        400,
        "invalid_request",
        "after",
    ),
    case("GET /v1/nothing", "", 404, "not_found", ""),
    case("PATCH /v1/jobs", "", 405, "method_not_allowed", ""),
];

#[tokio::test]
async fn bad_input_is_answered_with_the_field_at_fault() {
    let cluster = Cluster::of(1).await;
    let mut wrong = Vec::new();
    for Case {
        call,
        body,
        status,
        code,
        field,
    } in CASES
    {
        let (method, path) = call.split_once(' ').expect("a method and a path");
        let method: Method = method.parse().expect("a method");
        let mut asking = cluster.http().ask(method, &cluster.url(1, path));
        if !call.starts_with("GET") && !call.ends_with("cancel") {
            asking = asking.bytes(body.as_bytes().to_vec());
        }
        let reply = asking.send().await;
        let problem = &reply.json;
        let is_field_right = match *field {
            "" => problem["field"].is_null(),
            field => problem["field"] == *field,
        };
        let is_right = reply.status == *status
            && reply.code() == *code
            && is_field_right
            && problem["status"] == *status
            && reply.header("content-type") == "application/problem+json"
            && problem["detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty());
        if !is_right {
            wrong.push(format!(
                "{call} {body}\n  wanted {status} {code} {field:?}, got {problem}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        CASES.len(),
        wrong.join("\n")
    );
    assert_nothing_is_stored(&cluster).await;
}

#[tokio::test]
async fn bodies_that_are_too_large_or_too_deep_are_refused() {
    let cluster = Cluster::of(1).await;
    let url = cluster.url(1, "/v1/jobs");
    let http = cluster.http();

    let large = format!(r#"{{"params": "{}"}}"#, "x".repeat(BODY_BYTES_MAX));
    let reply = http
        .ask(Method::POST, &url)
        .bytes(large.into_bytes())
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (413, "body_too_large")
    );

    let over_params = json!({"executor": "caller", "params": "x".repeat(20_000)});
    let reply = http.post(&url, &over_params).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (400, "invalid_request")
    );
    assert_eq!(reply.json["field"], "params");

    let depth = 100_000;
    let deep = format!(
        r#"{{"params": {}{}}}"#,
        "[".repeat(depth),
        "]".repeat(depth)
    );
    let reply = http
        .ask(Method::POST, &url)
        .bytes(deep.into_bytes())
        .send()
        .await;
    assert_eq!(reply.status, 400, "{}", reply.json);

    let many = json!({"jobs": vec![json!({}); 1_001]});
    let reply = http.post(&url, &many).await;
    assert_eq!(reply.json["field"], "jobs", "{}", reply.json);

    let reply = http
        .ask(Method::POST, &url)
        .bytes(b"{\"id\": \"\xff\"}".to_vec())
        .send()
        .await;
    assert_eq!((reply.status.as_u16(), reply.code()), (400, "invalid_json"));

    let untyped = http.ask(Method::POST, &url).json(&json!({}));
    let reply = untyped.header("content-type", "text/plain").send().await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (415, "unsupported_media_type")
    );
    assert_nothing_is_stored(&cluster).await;
}

/// A body of 256 MiB is refused by what its head says, before it is sent.
#[tokio::test]
async fn a_body_that_only_says_that_it_is_huge_is_refused_before_it_comes() {
    let cluster = Cluster::of(1).await;
    let mut stream = TcpStream::connect(cluster.node(1).client)
        .await
        .expect("a connection");
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: node\r\ncontent-type: application/json\r\n\
                content-length: 268435456\r\n\r\n{";
    stream
        .write_all(head.as_bytes())
        .await
        .expect("the head is sent");
    let mut answer = vec![0; 64];
    let read = timeout(DEADLINE, stream.read(&mut answer)).await;
    let length = read.expect("an answer in time").expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_nothing_is_stored(&cluster).await;
}

/// F38: different keys stay different; every key that is accepted can be read, overridden and
/// reset.
#[tokio::test]
async fn every_key_that_is_accepted_can_be_reached() {
    let cluster = Cluster::of(1).await;
    let client = cluster.client();
    let longest = "k".repeat(128);
    let keys = [
        "a/b",
        "a%2Fb",
        "a b",
        "a+b",
        "ä",
        "a\u{308}",
        "🎼",
        "..",
        "?x=1#y",
        "\"quoted\"",
        "cap:x",
        "\\",
        &longest,
    ];
    for (number, key) in keys.iter().enumerate() {
        let limits = json!([
            {"type": "job", "amount": 5, "rate": 5, "window": 604_800, "align": "utc", "cap_key": key},
        ]);
        let launch = json!({"id": format!("key-{number}"), "executor": "caller", "limits": limits});
        let reply = cluster
            .http()
            .post(&cluster.url(1, "/v1/jobs"), &launch)
            .await;
        assert_eq!(reply.status, 201, "{key:?}: {}", reply.json);
    }
    for key in keys {
        let id = format!("cap:{key}");
        let pool = client
            .pool(&id)
            .await
            .unwrap_or_else(|error| panic!("{id:?}: {error}"));
        assert_eq!((pool.id, pool.running), (id.clone(), 1));
        let hold = serde_json::from_value(json!({"amount": 0})).expect("an override");
        let hold = client.put_override(&id, &hold).await;
        assert_eq!(hold.expect("an override").id, id);
        client
            .reset_window(&id)
            .await
            .unwrap_or_else(|error| panic!("{id:?}: {error}"));
        let pool = client.pool(&id).await.expect("the pool");
        assert!(
            pool.window.is_none() && pool.r#override.is_some(),
            "{pool:?}"
        );
    }
    let windows = client
        .windows(&fermata_api::query::PageQuery::default())
        .await;
    assert_eq!(windows.expect("the windows").items, []);

    let too_long = "k".repeat(129);
    let path = routes::path(routes::WINDOW, &format!("cap:{too_long}"));
    let reply = cluster
        .http()
        .ask(Method::DELETE, &cluster.url(1, &path))
        .send()
        .await;
    assert_eq!(reply.status, 400, "{}", reply.json);
}

async fn assert_nothing_is_stored(cluster: &Cluster) {
    for list in ["/v1/events", "/v1/jobs", "/v1/servers", "/v1/windows"] {
        let reply = cluster.http().get(&cluster.url(1, list)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json["items"], Value::Array(Vec::new()), "{list}");
    }
}
