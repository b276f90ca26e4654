//! Bad input: a status, a code, the field at fault, what is allowed; and the node goes on.

mod harness;

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use fermata_server::Config;
use http::Method;
use hyper::body::Frame;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_request_is_refused_with_the_field_that_is_at_fault() {
    let node = harness::alone().await;
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("data/bad_requests.json")).expect("the table");
    let before = node.replica.status().last_log;
    let mut wrong = Vec::new();
    for case in &cases {
        let text = |name: &str| case[name].as_str();
        let (method, target) = text("call")
            .expect("a call")
            .split_once(' ')
            .expect("a path");
        let method: Method = method.parse().expect("a method");
        let mut headers: Vec<(&str, &str)> = Vec::new();
        if let Some(given) = case["headers"].as_object() {
            headers.extend(
                given
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str().expect("text"))),
            );
        }
        let media_type = text("type").unwrap_or("application/json");
        if case.get("body").is_some() && !media_type.is_empty() {
            headers.push(("content-type", media_type));
        }
        let body = Body::from(text("body").unwrap_or("").to_owned());
        let answer = node.send(method, target, &headers, body).await;
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap_or("");
        let is_right = u64::from(answer.status) == case["status"]
            && answer.header("content-type") == Some("application/problem+json")
            && problem["code"] == case["code"]
            && problem["status"] == case["status"]
            && text("field").is_none_or(|field| problem["field"] == field)
            && text("says").is_none_or(|says| detail.contains(says));
        if !is_right {
            wrong.push(format!("{case}\n    came: {} {problem}", answer.status));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let answer = node.post("/v1/jobs", json!({"delay_s": 60})).await;
    assert_eq!(answer.status, 201, "the node goes on: {:?}", answer.json());
    let written = node.replica.status().last_log.unwrap_or(0) - before.unwrap_or(0);
    assert!(
        written < cases.len() as u64 / 2,
        "{written} entries for bad requests"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_bounded_in_length_and_depth() {
    let node = harness::alone().await;
    let json_type = [("content-type", "application/json")];
    let long = format!("{{\"params\": \"{}\"}}", "x".repeat(8 * 1024 * 1024));
    let answer = node
        .send(Method::POST, "/v1/jobs", &json_type, long.clone())
        .await;
    assert_eq!(answer.outcome(), (413, "body_too_large".to_owned()));
    // Without an announced length, too.
    let pieces = long
        .as_bytes()
        .chunks(64 * 1024)
        .map(Bytes::copy_from_slice);
    let body = Body::new(Pieces(pieces.collect::<Vec<_>>().into_iter()));
    let answer = node.send(Method::POST, "/v1/jobs", &json_type, body).await;
    assert_eq!(answer.outcome(), (413, "body_too_large".to_owned()));

    let nested = |depth: usize| {
        format!(
            "{{\"delay_s\": 60, \"params\": {}{}}}",
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    for (depth, status) in [(64, 201), (65, 400), (100_000, 400)] {
        let answer = node
            .send(Method::POST, "/v1/jobs", &json_type, nested(depth))
            .await;
        assert_eq!(answer.status, status, "{depth} deep: {:?}", answer.json());
    }
    let jobs: Vec<Value> = (0..=1_000).map(|_| json!({"delay_s": 60})).collect();
    let answer = node.post("/v1/jobs", json!({"jobs": jobs})).await;
    assert_eq!(answer.outcome(), (400, "invalid_request".to_owned()));
    assert_eq!(answer.json()["field"], "jobs");
}

/// A body in pieces, without a length.
struct Pieces(std::vec::IntoIter<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.next().map(|piece| Ok(Frame::data(piece))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_its_places_a_node_refuses_before_it_parses() {
    let node = harness::alone_with(Config {
        calls_max: 0,
        ..Config::default()
    })
    .await;
    let answer = node
        .send(
            Method::POST,
            "/v1/jobs",
            &[("content-type", "text/plain")],
            "no JSON",
        )
        .await;
    assert_eq!(answer.outcome(), (503, "overloaded".to_owned()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(
        node.get("/livez").await.status,
        200,
        "an overloaded node is alive"
    );

    let node = harness::alone_with(Config {
        body_bytes_max: 10,
        ..Config::default()
    })
    .await;
    let answer = node.post("/v1/jobs", json!({"delay_s": 60})).await;
    assert_eq!(answer.outcome(), (503, "overloaded".to_owned()));
    let answer = node.post("/v1/jobs", json!({})).await;
    assert_ne!(answer.outcome().1, "overloaded", "the room was given back");
}
