//! Calls against nodes that fail in every way they can.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

mod fake;

use std::time::Duration;

use fake::{DEADLINE, FakeNode, dead_url, soon};
use fermata_api::jobs::{JobState, JobsQuery, LaunchRequest, Wait};
use fermata_api::problem::ErrorCode;
use fermata_client::{Client, ClientError, ClientOptions};
use serde_json::{Value, json};
use tokio::time::Instant;

fn options() -> ClientOptions {
    ClientOptions {
        deadline: DEADLINE,
        ..ClientOptions::default()
    }
}

/// Short, for calls that must fail; long enough for several attempts.
fn impatient() -> ClientOptions {
    ClientOptions {
        deadline: Duration::from_millis(300),
        ..ClientOptions::default()
    }
}

fn client<const N: usize>(urls: [&str; N], options: ClientOptions) -> Client {
    Client::connect_with(urls, options).expect("the URLs are well-formed")
}

fn job(id: &Value, state: &str) -> Value {
    json!({"id": id, "state": state, "pool": "event:e", "priority": 0, "executor": "server",
        "attempt": 1, "launched_at": "2026-03-02T12:00:00.000Z",
        "launch_number": 5, "added_later": true})
}

fn problem(code: &str, status: u16) -> Value {
    json!({"type": "urn", "title": "t", "status": status, "detail": "d", "code": code})
}

fn launch() -> LaunchRequest {
    LaunchRequest {
        event: Some("e".to_owned()),
        ..LaunchRequest::default()
    }
}

#[tokio::test]
async fn a_launch_whose_answer_is_lost_is_repeated_with_the_same_id() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], options());
    let call = tokio::spawn(async move { client.launch(launch()).await });
    let first = node.asked().await;
    assert_eq!(
        (first.method.as_str(), first.target.as_str()),
        ("POST", "/v1/jobs")
    );
    assert_eq!(first.headers["content-type"], "application/json");
    assert!(first.headers.contains_key("fermata-timeout-ms"));
    let id = first.body["id"].clone();
    assert_eq!(id.as_str().map(str::len), Some(36), "a UUID: {id}");
    first.hang_up();
    let second = node.asked().await;
    assert_eq!(second.body, json!({"id": id, "event": "e"}));
    second.answer(201, &job(&id, "starting"));
    let job = call.await.expect("no panic").expect("launched");
    assert_eq!(
        (job.id.as_str(), job.state),
        (id.as_str().expect("text"), JobState::Starting)
    );
}

#[tokio::test]
async fn a_dry_run_and_why_are_asked_as_the_contract_says() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], options());
    let why = json!({"id": "j", "state": "queued", "gates": [], "added_later": 1});
    let asking = client.clone();
    let call = tokio::spawn(async move { asking.dry_run(launch()).await });
    let asked = node.asked().await;
    let seen = (asked.method.as_str(), asked.target.as_str());
    assert_eq!(seen, ("POST", "/v1/jobs?dry_run=true"));
    assert_eq!(asked.body["event"], "e");
    asked.answer(200, &why);
    let told = call.await.expect("no panic").expect("answered");
    assert_eq!(told.state, JobState::Queued);

    let asking = client.clone();
    let batch = vec![launch(), launch()];
    let call = tokio::spawn(async move { asking.dry_run_batch(batch).await });
    let asked = node.asked().await;
    assert_eq!(asked.target, "/v1/jobs?dry_run=true");
    assert_eq!(asked.body["jobs"].as_array().map(Vec::len), Some(2));
    asked.answer(200, &json!({"results": [{"status": 200, "why": why}]}));
    let told = call.await.expect("no panic").expect("answered");
    assert!(told.results[0].why.is_some());

    let call = tokio::spawn(async move { client.why("j/1").await });
    let asked = node.asked().await;
    let seen = (asked.method.as_str(), asked.target.as_str());
    assert_eq!(seen, ("GET", "/v1/jobs/j%2F1/why"));
    asked.answer(404, &problem("unknown_job", 404));
    let refused = call.await.expect("no panic");
    assert!(matches!(refused, Err(ClientError::Refused(_))));
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_is_called_unknown() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], impatient());
    let call = tokio::spawn(async move { client.launch(launch()).await });
    // One lost answer; from then on nothing is done, which does not make the first one known.
    node.asked().await.hang_up();
    let mut asked = 1;
    let mut call = std::pin::pin!(call);
    let result = loop {
        tokio::select! {
            result = &mut call => break result.expect("no panic"),
            request = node.asked() => {
                asked += 1;
                request.answer(503, &problem("no_leader", 503));
            }
        }
    };
    assert!(
        matches!(result, Err(ClientError::Unknown { .. })),
        "{result:?}"
    );
    assert!(asked > 2, "repeated within the deadline: {asked}");
}

#[tokio::test]
async fn without_a_leader_nothing_was_done_and_the_deadline_holds() {
    let mut node = FakeNode::start().await;
    let dead = dead_url().await;
    let client = client([&node.url, &dead], impatient());
    let began = Instant::now();
    let call = tokio::spawn(async move { client.launch(launch()).await });
    let mut call = std::pin::pin!(call);
    let result = loop {
        tokio::select! {
            result = &mut call => break result.expect("no panic"),
            request = node.asked() => request.answer(503, &problem("no_leader", 503)),
        }
    };
    assert!(
        matches!(result, Err(ClientError::Unavailable { .. })),
        "{result:?}"
    );
    assert!(began.elapsed() < DEADLINE / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_leader_is_followed_and_left_when_it_is_gone() {
    let mut follower = FakeNode::start().await;
    let mut leader = FakeNode::start().await;
    // The client was told of one node only.
    let client = client([&follower.url], options());
    let ask = || {
        let client = client.clone();
        tokio::spawn(async move { client.job("j").await.expect("answered") })
    };
    let call = ask();
    let request = follower.asked().await;
    request.answer_with_leader(200, &leader.url, &job(&json!("j"), "queued"));
    call.await.expect("no panic");

    let call = ask();
    let request = leader.asked().await;
    request.answer_with_leader(200, &leader.url, &job(&json!("j"), "active"));
    assert_eq!(call.await.expect("no panic").state, JobState::Active);

    drop(leader);
    let call = ask();
    let request = follower.asked().await;
    request.answer(200, &job(&json!("j"), "complete"));
    assert_eq!(call.await.expect("no panic").state, JobState::Complete);
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_left_for_another() {
    let mut paused = FakeNode::start().await;
    let mut node = FakeNode::start().await;
    let options = ClientOptions {
        answer_timeout: Duration::from_millis(100),
        ..options()
    };
    let client = client([&paused.url, &node.url], options);
    // Whichever is asked first, the second one to be asked is the other.
    let call = tokio::spawn(async move { client.job("j").await });
    let request = tokio::select! {
        first = paused.asked() => {
            let second = node.asked().await;
            drop(first);
            second
        }
        first = node.asked() => first,
    };
    request.answer(200, &job(&json!("j"), "queued"));
    call.await.expect("no panic").expect("answered");
}

#[tokio::test]
async fn a_reset_is_not_repeated_once_it_may_have_been_done() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], options());
    let call = tokio::spawn(async move { client.reset_window("cap:a/b").await });
    // `no_leader` is a definite no: again.
    node.asked().await.answer(503, &problem("no_leader", 503));
    let request = node.asked().await;
    assert_eq!(request.method, "DELETE");
    assert_eq!(request.target, "/v1/windows/cap:a%2Fb");
    request.hang_up();
    let result = call.await.expect("no panic");
    assert!(
        matches!(result, Err(ClientError::Unknown { .. })),
        "{result:?}"
    );
    assert!(node.is_quiet());
}

#[tokio::test]
async fn a_no_is_a_value() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], options());
    let cases = [
        (429, "rate_limited", ErrorCode::RateLimited),
        (404, "event_missing", ErrorCode::EventMissing),
        (409, "id_conflict", ErrorCode::IdConflict),
        // 503, and definite all the same.
        (503, "no_server", ErrorCode::NoServer),
        (503, "cluster_full", ErrorCode::ClusterFull),
    ];
    for (status, name, code) in cases {
        let client = client.clone();
        let call = tokio::spawn(async move { client.launch(launch()).await });
        let request = node.asked().await;
        let mut problem = problem(name, status);
        problem["job"] = job(&request.body["id"], "aborted");
        problem["retry_with"] = json!("new_id");
        request.answer(status, &problem);
        let error = call.await.expect("no panic").expect_err("refused");
        assert_eq!(error.code(), Some(code));
        let ClientError::Refused(problem) = error else {
            panic!("{name} is a refusal");
        };
        assert_eq!(problem.job.map(|job| job.state), Some(JobState::Aborted));
    }
    assert!(node.is_quiet(), "none was repeated");
}

#[tokio::test]
async fn what_is_no_answer_of_a_node_is_told_as_such() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], options());
    for (status, body) in [(200, "<html>"), (200, "{}"), (404, "gone"), (302, "")] {
        let client = client.clone();
        let call = tokio::spawn(async move { client.job("j").await });
        node.asked().await.answer_text(status, body);
        let result = call.await.expect("no panic");
        assert!(
            matches!(&result, Err(ClientError::Unexpected { status: told, .. }) if *told == status),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn a_held_call_says_how_long_it_waits() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], options());
    let call = tokio::spawn(async move {
        let hold = Duration::from_millis(1_500);
        client.launch_and_wait(launch(), Wait::End, hold).await
    });
    let request = node.asked().await;
    assert_eq!(request.target, "/v1/jobs?timeout_s=2&wait=end");
    let id = request.body["id"].clone();
    request.answer(202, &job(&id, "queued"));
    let job = call.await.expect("no panic").expect("answered");
    assert_eq!(job.state, JobState::Queued);
}

#[tokio::test]
async fn filters_are_encoded() {
    let mut node = FakeNode::start().await;
    let client = client([&node.url], options());
    let call = tokio::spawn(async move {
        let query = JobsQuery {
            pool: Some("cap:a&b=c d/ü".to_owned()),
            state: Some(JobState::Queued),
            limit: Some(5),
            ..JobsQuery::default()
        };
        client.jobs(&query).await
    });
    let request = node.asked().await;
    assert_eq!(
        request.target,
        "/v1/jobs?limit=5&pool=cap:a%26b%3Dc%20d%2F%C3%BC&state=queued"
    );
    request.answer(200, &json!({"items": [job(&json!("j"), "queued")]}));
    let page = call.await.expect("no panic").expect("answered");
    assert_eq!((page.items.len(), page.after), (1, None));
}

#[tokio::test]
async fn no_more_connections_than_allowed_are_used() {
    let mut node = FakeNode::start().await;
    let options = ClientOptions {
        connections_max: 2,
        answer_timeout: DEADLINE,
        ..options()
    };
    let client = client([&node.url], options);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let client = client.clone();
        calls.spawn(async move { client.job("j").await.map(|_| ()) });
    }
    for _ in 0..3 {
        let (first, second) = (node.asked().await, node.asked().await);
        assert!(
            node.is_quiet(),
            "a third call before one of the two was answered"
        );
        first.answer(200, &job(&json!("j"), "queued"));
        second.answer(200, &job(&json!("j"), "queued"));
    }
    while let Some(call) = soon("the calls end", calls.join_next()).await {
        call.expect("no panic").expect("answered");
    }
}

#[test]
fn only_nodes_are_accepted() {
    let none: [&str; 0] = [];
    assert!(Client::connect(none).is_err());
    for url in [
        "",
        "127.0.0.1:7400",
        "https://a:1",
        "http://a:1/v1",
        "http://u:p@a:1",
        "http://a:1?x",
    ] {
        assert!(Client::connect([url]).is_err(), "{url}");
    }
    assert!(Client::connect(["http://a:1/", "http://[::1]:7400"]).is_ok());
}
