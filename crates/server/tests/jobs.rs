//! Launches: their answers, retries, batches, and held answers.

mod harness;

use std::time::Duration;

use axum::body::Body;
use fermata_api::time::Timestamp;
use fermata_server::Config;
use harness::Node;
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A server `s1` with room whose worker was heard, so that jobs start.
async fn with_server(node: &Node) {
    assert_eq!(node.put("/v1/servers/s1", json!({})).await.status, 200);
    let answer = poll(node, json!({"incarnation": 1, "wait_ms": 0})).await;
    assert_eq!(answer["launches"], json!([]));
}

async fn poll(node: &Node, body: Value) -> Value {
    let answer = node.post("/v1/servers/s1/poll", body).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    answer.json()
}

async fn started(node: &Node, job: &str, attempt: u32) {
    let path = format!("/v1/jobs/{job}/started");
    let answer = node.post(&path, json!({"attempt": attempt})).await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
}

async fn completed(node: &Node, job: &str, attempt: u32, code: i32) -> Value {
    let path = format!("/v1/jobs/{job}/completed");
    let answer = node
        .post(
            &path,
            json!({"attempt": attempt, "code": code, "description": "bye"}),
        )
        .await;
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    answer.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_its_way() {
    let node = harness::alone().await;
    with_server(&node).await;
    let event = json!({"title": "Mail", "limits": [{"type": "job", "amount": 1}, {"type": "queue", "amount": 1}]});
    assert_eq!(node.put("/v1/events/mail", event).await.status, 200);

    let answer = node
        .post(
            "/v1/jobs",
            json!({"id": "j1", "event": "mail", "params": {"to": [1]}}),
        )
        .await;
    assert_eq!(answer.status, 201);
    let job = answer.json();
    assert_eq!(job["state"], "starting");
    assert_eq!(job["pool"], "event:mail");
    assert_eq!(job["server"], "s1");
    assert_eq!(job["params"], json!({"to": [1]}));
    assert!(answer.header("fermata-applied-index").is_some());

    let answer = node
        .post("/v1/jobs", json!({"id": "j2", "event": "mail"}))
        .await;
    assert_eq!(
        (answer.status, &answer.json()["state"]),
        (201, &json!("queued"))
    );
    assert_eq!(answer.json()["position"], 0);
    let answer = node
        .post("/v1/jobs", json!({"id": "j3", "event": "mail"}))
        .await;
    assert_eq!(answer.outcome(), (429, "queue_full".to_owned()));
    assert_eq!(answer.json()["retry_with"], "new_id");
    assert_eq!(answer.json()["job"]["reason"], "queue_full");
    assert_eq!(answer.header("retry-after"), None, "nobody knows when");

    started(&node, "j1", 1).await;
    let stale = node
        .post("/v1/jobs/j1/started", json!({"attempt": 2}))
        .await;
    assert_eq!(stale.outcome(), (409, "stale_attempt".to_owned()));
    assert_eq!(
        stale.json()["job"]["attempt"],
        1,
        "what is current is shown"
    );
    assert_eq!(completed(&node, "j1", 1, 3).await["code"], 3);
    assert_eq!(
        completed(&node, "j1", 1, 0).await["code"],
        3,
        "the first result stands"
    );

    let job = node.get("/v1/jobs/j2").await.json();
    assert_eq!(job["state"], "starting", "the next one is released");
    let answer = node
        .send(Method::POST, "/v1/jobs/j2/cancel", &[], Body::empty())
        .await;
    assert_eq!(answer.json()["reason"], "cancelled");
    let answer = node
        .send(Method::POST, "/v1/jobs/j2/cancel", &[], Body::empty())
        .await;
    assert_eq!(answer.outcome(), (409, "final".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_has_the_effect_of_one() {
    let node = harness::alone().await;
    let key = [("idempotency-key", "order 7 / é")];
    let body = json!({"delay_s": 60, "params": [1]});
    let first = node
        .json(Method::POST, "/v1/jobs", &key, body.clone())
        .await;
    let again = node
        .json(Method::POST, "/v1/jobs", &key, body.clone())
        .await;
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.json()["id"], again.json()["id"]);

    let other = node
        .json(Method::POST, "/v1/jobs", &key, json!({"delay_s": 61}))
        .await;
    assert_eq!(other.outcome(), (409, "id_conflict".to_owned()));
    let own = json!({"id": "own", "delay_s": 60});
    let answer = node.json(Method::POST, "/v1/jobs", &key, own).await;
    assert_eq!(answer.json()["id"], "own", "an id that is named wins");

    // A key is one request, alone or as a batch.
    let batch = json!({"jobs": [{"delay_s": 60}, body.clone()]});
    let answer = node.json(Method::POST, "/v1/jobs", &key, batch).await;
    assert_eq!(answer.outcome(), (409, "id_conflict".to_owned()));
    assert_eq!(answer.json()["field"], "idempotency-key");
    assert_eq!(node.get("/v1/stats").await.json()["launched"], 2);

    let key = [("idempotency-key", "order 8")];
    let batch = json!({"jobs": [body, body, {"id": "mine", "delay_s": 60}]});
    let ids = |answer: &Value| -> Vec<Value> {
        let results = answer["results"].as_array().expect("results");
        results
            .iter()
            .map(|result| result["job"]["id"].clone())
            .collect()
    };
    let first_batch = node
        .json(Method::POST, "/v1/jobs", &key, batch.clone())
        .await
        .json();
    let again = node
        .json(Method::POST, "/v1/jobs", &key, batch)
        .await
        .json();
    assert_eq!(ids(&first_batch), ids(&again));
    let mut distinct = ids(&first_batch);
    distinct.push(first.json()["id"].clone());
    let alone = node
        .json(Method::POST, "/v1/jobs", &key, body.clone())
        .await;
    assert_eq!(alone.outcome(), (409, "id_conflict".to_owned()));
    let longer = json!({"jobs": [body, body, {"id": "mine", "delay_s": 60}, body]});
    let longer = node.json(Method::POST, "/v1/jobs", &key, longer).await;
    assert_eq!(longer.outcome(), (409, "id_conflict".to_owned()));
    distinct.sort_by_key(Value::to_string);
    distinct.dedup();
    assert_eq!(
        distinct.len(),
        4,
        "each place of a batch is a job of its own"
    );
    assert_eq!(node.get("/v1/stats").await.json()["launched"], 5);
}

/// S40: compared as parsed, before defaults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_that_is_given_is_another_request() {
    let node = harness::alone().await;
    let body = |limit: Value| json!({"id": "j", "delay_s": 60, "limits": [limit]});
    let first = node.post("/v1/jobs", body(json!({"type": "job"}))).await;
    assert_eq!(first.status, 201);
    let again = node.post("/v1/jobs", body(json!({"type": "job"}))).await;
    assert_eq!(again.status, 201);
    let given = body(json!({"type": "job", "enabled": true}));
    let other = node.post("/v1/jobs", given).await;
    assert_eq!(other.outcome(), (409, "id_conflict".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_a_result_for_each_in_order() {
    let node = harness::alone().await;
    let event = json!({"limits": [{"type": "job", "amount": 1}]});
    assert_eq!(node.put("/v1/events/e", event).await.status, 200);
    let jobs = json!({"jobs": [
        {"id": "a", "delay_s": 5},
        {"id": "b", "event": "nobody"},
        {"id": "c", "limits": [{"type": "job", "rate": 1, "window": 2}]},
        {"id": "d", "event": "e"},
        {"id": "a", "delay_s": 6},
        {"id": "f", "priority": 101},
        {"id": "g", "limits": [{"type": "job", "amount": -1}]},
        {"id": "h", "event": "e", "colour": 1},
        7,
        {"id": "a", "delay_s": 5},
    ]});
    let answer = node.post("/v1/jobs", jobs).await;
    assert_eq!(answer.status, 200);
    let results = answer.json()["results"].clone();
    let seen: Vec<(u64, String, Value)> = results
        .as_array()
        .expect("results")
        .iter()
        .map(|result| {
            let code = result["problem"]["code"].as_str().unwrap_or("").to_owned();
            (
                result["status"].as_u64().expect("a status"),
                code,
                result["problem"]["field"].clone(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (201, String::new(), Value::Null),
            (404, "event_missing".to_owned(), json!("jobs[1].event")),
            (
                400,
                "invalid_request".to_owned(),
                json!("jobs[2].limits[0].window")
            ),
            (503, "no_server".to_owned(), Value::Null),
            (409, "id_conflict".to_owned(), json!("jobs[4].id")),
            (400, "invalid_request".to_owned(), json!("jobs[5].priority")),
            (
                400,
                "invalid_request".to_owned(),
                json!("jobs[6].limits[0].amount")
            ),
            (400, "unknown_field".to_owned(), json!("jobs[7].colour")),
            (400, "invalid_request".to_owned(), json!("jobs[8]")),
            (201, String::new(), Value::Null),
        ]
    );
    assert_eq!(results[0]["job"]["state"], "delayed");
    let empty = node.post("/v1/jobs", json!({"jobs": []})).await;
    assert_eq!((empty.status, empty.json()), (200, json!({"results": []})));
    let thousand: Vec<Value> = (0..1_000).map(|_| json!({"delay_s": 60})).collect();
    let answer = node.post("/v1/jobs", json!({"jobs": thousand})).await;
    assert_eq!(
        answer.json()["results"].as_array().map(Vec::len),
        Some(1_000)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shut_rate_says_when_to_come_back() {
    let node = harness::alone().await;
    with_server(&node).await;
    let limit = json!([{"type": "rate", "key": "mail", "count": 1, "per_seconds": 604_800,
                        "style": "sliding"}]);
    let launch = |id: &str| json!({"id": id, "limits": limit});
    let answer = node.post("/v1/jobs", launch("a")).await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some("\"rate:mail\";q=1;w=604800")
    );
    assert_eq!(
        answer.header("ratelimit"),
        Some("\"rate:mail\";r=0;t=604800")
    );
    let answer = node.post("/v1/jobs", launch("b")).await;
    assert_eq!(answer.outcome(), (429, "rate_limited".to_owned()));
    let after: u64 = answer
        .header("retry-after")
        .and_then(|seconds| seconds.parse().ok())
        .expect("an instant is known");
    let started = node.get("/v1/jobs/a").await.json();
    let refused = answer.json();
    assert!((604_000..=604_800).contains(&after), "{after}");
    assert!(
        refused["retry_after_ms"]
            .as_u64()
            .is_some_and(|ms| ms <= after * 1_000)
    );
    assert_eq!(started["state"], "starting");
    let free = node.post("/v1/jobs", json!({"delay_s": 1})).await;
    assert_eq!(free.header("ratelimit"), None, "it has no rate");
}

/// What is told of a pool or bucket under an override that goes by itself: by which an instant is
/// told too early, by which too late, by which not at all, if its end is not seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_goes_by_the_end_of_an_override() {
    let node = harness::alone().await;
    const HOUR: u64 = 3_600;
    const WEEK: u64 = 604_800;
    let rate = |per_seconds: u64, style: &str| json!([{"type": "rate", "key": "KEY", "count": 1, "per_seconds": per_seconds, "style": style}]);
    // The scope, the limits, the override, after how many seconds it goes, what is answered, and
    // the seconds after which one more may start.
    let table = [
        (
            "rate:",
            rate(WEEK, "sliding"),
            json!({"window_s": 40}),
            20,
            "rate_limited",
            WEEK,
        ),
        (
            "rate:",
            rate(10, "sliding"),
            json!({"window_s": WEEK}),
            60,
            "rate_limited",
            60,
        ),
        (
            "rate:",
            rate(10, "token_bucket"),
            json!({"window_s": WEEK}),
            60,
            "rate_limited",
            70,
        ),
        (
            "rate:",
            rate(HOUR, "sliding"),
            json!({"count": 0}),
            60,
            "rate_limited",
            HOUR,
        ),
        (
            "rate:",
            rate(10, "sliding"),
            json!({"count": 0}),
            60,
            "rate_limited",
            60,
        ),
        (
            "cap:",
            json!([{"type": "job", "amount": 9, "cap_key": "KEY"}]),
            json!({"amount": 0}),
            60,
            "concurrency_limited",
            60,
        ),
    ];
    for (nth, (scope, limits, sizes, ends_s, code, opens_s)) in table.into_iter().enumerate() {
        let key = format!("ends-{nth}");
        let limits: Value =
            serde_json::from_str(&limits.to_string().replace("KEY", &key)).expect("limits");
        let launch = json!({"executor": "caller", "limits": limits});
        let first = node.post("/v1/jobs", launch.clone()).await;
        assert_eq!(first.status, 201, "{key}");
        let started = first.json()["started_at"].as_str().map(str::to_owned);
        let started = started.and_then(|text| Timestamp::parse(&text));
        let ends_ms = started.expect("an instant").unix_ms() + ends_s * 1_000;
        let mut sizes = sizes;
        sizes["expires_at"] = json!(Timestamp::from_unix_ms(ends_ms).to_string());
        let target = format!("/v1/overrides/{scope}{key}");
        assert!(node.put(&target, sizes).await.status < 300, "{key}");
        let refused = node.post("/v1/jobs", launch).await;
        assert_eq!(refused.outcome(), (429, code.to_owned()), "{key}");
        // What has passed since the first start is not known, but it is no half of a minute.
        let told = opens_s - 30..=opens_s + 1;
        let after = refused.header("retry-after").and_then(|it| it.parse().ok());
        assert!(
            after.is_some_and(|after: u64| told.contains(&after)),
            "{key}: {after:?}"
        );
        if scope == "rate:" {
            let limit = refused.header("ratelimit").expect("a rate");
            let left = limit.split_once(";t=").and_then(|(_, t)| t.parse().ok());
            assert!(
                left.is_some_and(|left: u64| told.contains(&left)),
                "{key}: {limit}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tightest_rate_is_shown() {
    let node = harness::alone().await;
    let limits = json!([
        {"type": "job", "rate": 9, "window": 604_800, "align": "utc", "cap_key": "a/b é"},
        {"type": "rate", "key": "mail", "count": 5, "per_seconds": 600, "style": "token_bucket", "burst": 3},
    ]);
    let body = json!({"executor": "caller", "limits": limits});
    let answer = node.post("/v1/jobs", body.clone()).await;
    assert_eq!(answer.status, 201);
    let policy = answer.header("ratelimit-policy");
    assert_eq!(policy, Some("\"rate:mail\";q=3;w=600"));
    assert!(
        answer
            .header("ratelimit")
            .is_some_and(|left| left.starts_with("\"rate:mail\";r=2;t="))
    );
    let own = json!({"executor": "caller", "limits": [limits[0]]});
    let answer = node.post("/v1/jobs", own).await;
    let left = answer.header("ratelimit").expect("a rate");
    assert!(left.starts_with("\"cap:a%2Fb%20%C3%A9\";r=7;t="), "{left}");
}

/// Of two rates with nothing left the tighter is the one that stays shut for longer; and an answer that
/// came before the job did has the fields too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rate_that_stays_shut_for_longest_is_told() {
    let node = harness::alone().await;
    let bucket = |key: &str, per_seconds: u64| {
        json!({"type": "rate", "key": key, "count": 1, "per_seconds": per_seconds,
               "style": "sliding", "mode": "wait"})
    };
    let limits = json!([bucket("short", 600), bucket("long", 6_000)]);
    let body = json!({"executor": "caller", "limits": limits});
    let target = "/v1/jobs?wait=start&timeout_s=0";
    for expected in [201, 202] {
        let answer = node.post(target, body.clone()).await;
        assert_eq!(answer.status, expected);
        let left = answer.header("ratelimit").expect("a rate");
        assert!(left.starts_with("\"rate:long\";r=0;t="), "{left}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_answer_comes_when_the_job_has_come_so_far() {
    let node = harness::alone().await;
    with_server(&node).await;
    let event = json!({"limits": [{"type": "job", "amount": 1}, {"type": "queue", "amount": 9}]});
    assert_eq!(node.put("/v1/events/e", event).await.status, 200);
    let first = node
        .post("/v1/jobs?wait=start", json!({"id": "j1", "event": "e"}))
        .await;
    assert_eq!(
        (first.status, first.json()["state"].clone()),
        (201, json!("starting"))
    );

    let second = json!({"id": "j2", "event": "e"});
    let timed_out = node
        .post("/v1/jobs?wait=start&timeout_s=0", second.clone())
        .await;
    assert_eq!(
        (timed_out.status, &timed_out.json()["state"]),
        (202, &json!("queued"))
    );

    // The second starts when the first ends; both are waited for, the second by a repeated POST.
    let run = async {
        started(&node, "j1", 1).await;
        completed(&node, "j1", 1, 7).await;
    };
    let begun = Instant::now();
    let (ended, repeated, looked, ()) = tokio::join!(
        node.get("/v1/jobs/j1?wait=end&timeout_s=20"),
        node.post("/v1/jobs?wait=start&timeout_s=20", second),
        node.get("/v1/jobs/j2?wait=start&timeout_s=20"),
        run
    );
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(15),
        "not with its time: {took:?}"
    );
    assert_eq!((ended.status, &ended.json()["code"]), (200, &json!(7)));
    assert_eq!(
        (repeated.status, &repeated.json()["state"]),
        (201, &json!("starting"))
    );
    assert_eq!((looked.status, &looked.json()["attempt"]), (200, &json!(1)));

    let begun = Instant::now();
    let waited = node.get("/v1/jobs/j2?wait=end&timeout_s=1").await;
    assert_eq!(waited.status, 202);
    assert!(begun.elapsed() >= Duration::from_millis(900), "it was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_what_a_node_holds_a_launch_is_answered_at_once() {
    let config = Config {
        held_max: 1,
        ..Config::default()
    };
    let node = harness::alone_with(config).await;
    let target = "/v1/jobs?wait=start&timeout_s=600";
    let url = format!("{}{target}", node.url);
    let first = tokio::spawn(async move {
        let json = [("content-type", "application/json")];
        let body = r#"{"id": "a", "delay_s": 600}"#;
        harness::request(&harness::client(), Method::POST, &url, &json, body).await
    });
    node.until_held(1).await;
    let second = json!({"id": "b", "delay_s": 600});
    let answer = node.post(target, second.clone()).await;
    assert_eq!(
        (answer.status, &answer.json()["state"]),
        (202, &json!("delayed")),
        "it is launched all the same"
    );
    first.abort();
    node.until_held(0).await;
    let url = format!("{}{target}", node.url);
    let again = tokio::spawn(async move {
        let json = [("content-type", "application/json")];
        let body = second.to_string();
        harness::request(&harness::client(), Method::POST, &url, &json, body).await
    });
    node.until_held(1).await;
    again.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_launch_that_is_aborted_later_is_answered_with_why() {
    let node = harness::alone().await;
    let event = json!({"limits": [{"type": "job", "amount": 1}, {"type": "queue", "amount": 9}]});
    assert_eq!(node.put("/v1/events/e", event).await.status, 200);
    let held = node.post(
        "/v1/jobs?wait=end&timeout_s=20",
        json!({"id": "j", "event": "e"}),
    );
    let deleted = async {
        node.until("/v1/pools/event:e", |pool| pool["waiting"] == 1)
            .await;
        assert_eq!(node.delete("/v1/events/e").await.status, 204);
        // The head is looked at again when there is a server.
        with_server(&node).await;
    };
    let (held, ()) = tokio::join!(held, deleted);
    assert_eq!(held.outcome(), (404, "event_missing".to_owned()));
    assert_eq!(held.json()["job"]["state"], "aborted");

    let jobs = json!({"jobs": [{"id": "x", "delay_s": 1}, {"id": "y", "event": "nobody"}, {"id": "z", "delay_s": 90}]});
    let batch = node.post("/v1/jobs?wait=start&timeout_s=2", jobs).await;
    let statuses: Vec<u64> = batch.json()["results"]
        .as_array()
        .expect("results")
        .iter()
        .filter_map(|result| result["status"].as_u64())
        .collect();
    assert_eq!(statuses, [201, 404, 202]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_ends_with_the_edge() {
    let mut node = harness::alone().await;
    let path = "/v1/jobs?wait=start&timeout_s=600";
    let url = node.url.clone();
    let client = harness::client();
    let launched = tokio::spawn(async move {
        harness::request(
            &client,
            Method::POST,
            &format!("{url}{path}"),
            &[("content-type", "application/json")],
            r#"{"id": "j", "delay_s": 600}"#,
        )
        .await
    });
    node.until("/v1/jobs", |page| page["items"][0]["id"] == "j")
        .await;
    node.stop_serving().await;
    let answer = launched.await.expect("an answer");
    assert_eq!(
        (answer.status, &answer.json()["state"]),
        (202, &json!("delayed"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_listed_by_pages_and_filters() {
    let node = harness::alone().await;
    let jobs: Vec<Value> = (0..5)
        .map(|number| {
            json!({"id": format!("j{number}"), "delay_s": 60 + number,
                   "limits": [{"type": "job", "amount": 1, "cap_key": format!("k/{}", number % 2)}]})
        })
        .collect();
    assert_eq!(
        node.post("/v1/jobs", json!({"jobs": jobs})).await.status,
        200
    );
    let mut seen = Vec::new();
    let mut target = "/v1/jobs?limit=2".to_owned();
    loop {
        let page = node.get(&target).await.json();
        let items = page["items"].as_array().expect("items").clone();
        seen.extend(
            items
                .iter()
                .map(|job| job["id"].as_str().expect("an id").to_owned()),
        );
        let Some(after) = page["after"].as_str() else {
            break;
        };
        target = format!("/v1/jobs?limit=2&after={after}");
    }
    assert_eq!(seen, ["j0", "j1", "j2", "j3", "j4"]);
    let page = node
        .get("/v1/jobs?pool=cap:k%2F1&state=delayed")
        .await
        .json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
    let page = node.get("/v1/jobs?state=active").await.json();
    assert_eq!(page, json!({"items": []}));
}
