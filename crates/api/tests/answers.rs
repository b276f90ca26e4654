//! Answers: problems, instants, paths, and views as they stand in JSON.

#![expect(
    clippy::expect_used,
    reason = "the documents that the tests read are their own"
)]

use std::collections::BTreeSet;

use fermata_api::audit::AuditRecord;
use fermata_api::cluster::ClusterView;
use fermata_api::jobs::{BatchAnswer, JobView};
use fermata_api::pools::{PoolView, WindowView};
use fermata_api::problem::{DETAIL_BYTES_MAX, ErrorCode, Problem};
use fermata_api::query::Page;
use fermata_api::routes;
use fermata_api::servers::{PollAnswer, ServerView};
use fermata_api::stats::StatsView;
use fermata_api::time::Timestamp;
use fermata_api::why::{DryRunAnswer, WhyView};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reads each document and writes it: the same JSON comes out.
fn same<T: DeserializeOwned + serde::Serialize>(documents: &Value) {
    for document in documents.as_array().expect("a list of documents") {
        let read: T = serde_json::from_str(&document.to_string())
            .unwrap_or_else(|error| panic!("{document}: {error}"));
        assert_eq!(&serde_json::to_value(&read).expect("JSON"), document);
    }
}

#[test]
fn views_are_written_as_they_were_read() {
    let documents: Value = serde_json::from_str(include_str!("data/answers.json")).expect("JSON");
    same::<JobView>(&documents["job"]);
    same::<BatchAnswer>(&documents["batch"]);
    same::<Page<JobView>>(&documents["jobs"]);
    same::<PollAnswer>(&documents["poll"]);
    same::<ServerView>(&documents["server"]);
    same::<PoolView>(&documents["pool"]);
    same::<WindowView>(&documents["window"]);
    same::<WhyView>(&documents["why"]);
    same::<DryRunAnswer>(&documents["dry_run"]);
    same::<ClusterView>(&documents["cluster"]);
    same::<Page<AuditRecord>>(&documents["audit"]);
    same::<StatsView>(&documents["stats"]);
    same::<Problem>(&documents["problem"]);
}

#[test]
fn an_answer_may_have_gained_fields() {
    let server = json!({"id": "s", "groups": [], "enabled": true, "online": true, "draining": false, "starting": 0,
        "active": 0, "weight": 0, "added_in_a_later_version": 1});
    assert!(serde_json::from_value::<ServerView>(server).is_ok());
}

#[test]
fn codes_are_distinct_and_their_statuses_are_errors() {
    let names: BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(names.len(), ErrorCode::ALL.len());
    for code in ErrorCode::ALL {
        assert_eq!(serde_json::to_value(code).expect("JSON"), code.as_str());
        assert!((400..600).contains(&code.status()), "{code}");
    }
}

#[test]
fn a_problem_quotes_but_does_not_mirror() {
    let problem = Problem::new(ErrorCode::InvalidRequest, "é".repeat(DETAIL_BYTES_MAX));
    assert!(problem.detail.len() <= DETAIL_BYTES_MAX);
    assert!(problem.detail.ends_with("é…"));
    assert_eq!(Problem::new(ErrorCode::Final, "short").detail, "short");
}

#[test]
fn instants_are_utc_with_milliseconds() {
    for (given, written) in [
        ("2026-03-02T12:00:17.000Z", "2026-03-02T12:00:17.000Z"),
        ("2026-03-02T12:00:17Z", "2026-03-02T12:00:17.000Z"),
        ("2026-03-02T13:30:17.5+01:30", "2026-03-02T12:00:17.500Z"),
        ("2026-03-02t12:00:17.000000001z", "2026-03-02T12:00:17.001Z"),
        ("2024-02-29T23:59:59.9999Z", "2024-03-01T00:00:00.000Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ] {
        let instant = Timestamp::parse(given).unwrap_or_else(|| panic!("{given} is refused"));
        assert_eq!(instant.to_string(), written);
        assert_eq!(Timestamp::parse(written), Some(instant));
    }
    for refused in [
        "",
        "2026-03-02",
        "2026-03-02T12:00:17",
        "2026-02-30T12:00:17Z",
        "2026-03-02T24:00:00Z",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59.9999Z",
        "1772452817",
    ] {
        assert_eq!(Timestamp::parse(refused), None, "{refused}");
    }
}

#[test]
fn shown_instants_are_rounded_up() {
    assert_eq!(Timestamp::from_unix_us_rounded_up(1_000).unix_ms(), 1);
    assert_eq!(Timestamp::from_unix_us_rounded_up(1_001).unix_ms(), 2);
    assert_eq!(Timestamp::from_unix_us_rounded_up(-5).unix_ms(), 0);
    let last = Timestamp::from_unix_us_rounded_up(i64::MAX);
    assert_eq!(last.to_string(), "9999-12-31T23:59:59.999Z");
}

#[test]
fn different_keys_have_different_paths() {
    let keys = [
        "cap:a/b",
        "cap:a%2Fb",
        "cap:a b",
        "cap:a+b",
        "cap:a?b#c",
        "cap:ключ",
        "cap:🎼",
        "..",
        ".",
        "cap:{id}",
    ];
    let paths: BTreeSet<String> = keys
        .iter()
        .map(|key| routes::path(routes::WINDOW, key))
        .collect();
    assert_eq!(paths.len(), keys.len());
    for path in &paths {
        let segment = path
            .strip_prefix("/v1/windows/")
            .expect("the template's path");
        assert!(
            segment.bytes().all(|byte| byte.is_ascii_graphic())
                && !segment.contains(['/', '?', '#', '+', ' ', '{'])
                && !matches!(segment, "." | ".."),
            "{path}"
        );
    }
    assert_eq!(
        routes::path(routes::JOB_STARTED, "j.1"),
        "/v1/jobs/j.1/started"
    );
}
