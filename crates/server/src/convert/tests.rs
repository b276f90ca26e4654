//! What goes in comes out, and what breaks a rule is named.

use fermata_api::events::Event;
use fermata_api::jobs::LaunchRequest;
use fermata_api::problem::ErrorCode;
use fermata_api::servers::ServerBody;
use fermata_api::settings::Settings;
use fermata_pool::query::Stored;
use serde_json::{Value, json};

use super::{inward, outward, rates};

fn launch(body: Value) -> Result<fermata_pool::command::Launch, fermata_api::problem::Problem> {
    let request: LaunchRequest = serde_json::from_value(body).expect("a well-formed launch");
    inward::launch(request, "j", 7)
}

#[test]
fn an_event_is_shown_as_it_was_put() {
    let whole = json!({
        "id": "e", "title": "Mail", "type": "workflow", "enabled": false, "category": "c",
        "limits": [
            {"type": "job", "enabled": true, "amount": 5, "rate": 100, "window": 60,
             "cap_key": "a/b @ 🎼", "style": "fixed", "align": "utc", "mode": "skip", "weight": 2},
            {"type": "queue", "enabled": false, "amount": 7},
            {"type": "rate", "enabled": true, "key": "k", "count": 3, "per_seconds": 9,
             "style": "token_bucket", "burst": 4, "mode": "wait"},
            {"type": "time", "enabled": true, "duration": 60},
            {"type": "retry", "enabled": true, "amount": 2, "duration": 5, "backoff": 3}
        ],
        "targets": ["s1", "group.a"], "algo": "prefer_last", "priority": -3,
        "params": {"a": [1]},
        "nodes": [{"id": "n", "title": "Node", "event": "f",
                   "limits": [{"type": "job", "enabled": true, "amount": 0, "rate": 0}]}],
        "resolve_limits": "first_start"
    });
    let body: Event = serde_json::from_value(whole.clone()).expect("a well-formed event");
    let definition = inward::event(body, "e").expect("an event that keeps the rules");
    let stored = Stored {
        definition: &definition,
        revision: 4,
    };
    let mut shown = serde_json::to_value(outward::event(&stored)).expect("JSON");
    assert_eq!(shown["revision"].take(), json!(4));
    shown.as_object_mut().expect("an object").remove("revision");
    assert_eq!(shown, whole);
}

#[test]
fn settings_and_overrides_are_shown_as_they_were_put() {
    let body = Settings {
        start_timeout_s: 31,
        lease_s: 7,
        ..Settings::default()
    };
    let settings = inward::settings(body.clone()).expect("settings in range");
    let stored = Stored {
        definition: &settings,
        revision: 4,
    };
    let shown = Settings {
        revision: Some(4),
        ..body
    };
    assert_eq!(outward::settings(&stored), shown);

    let whole = json!({"count": 0, "window_s": 60, "amount": 3,
                       "expires_at": "2026-03-02T12:00:17.000Z", "note": "until the fair"});
    let body = serde_json::from_value(whole.clone()).expect("a well-formed override");
    let sizes = inward::sizes(body, "cap:k").expect("an override in range");
    let shown = serde_json::to_value(rates::overridden(&sizes)).expect("JSON");
    assert_eq!(shown, whole);
}

#[test]
fn a_launch_keeps_what_was_given_and_nothing_else() {
    let bare = launch(json!({})).expect("a bare launch");
    let expected = fermata_pool::command::Launch {
        id: "j".into(),
        request_hash: Some(7),
        ..fermata_pool::command::Launch::default()
    };
    assert_eq!(bare, expected, "S40 compares before defaults");
    let given = launch(json!({"params": {"b":  1}, "priority": true, "targets": ["t"]}))
        .expect("a launch that keeps the rules");
    assert_eq!(given.priority, Some(1));
    assert_eq!(given.targets.map(|targets| targets.len()), Some(1));
}

#[test]
fn params_are_the_bytes_that_came() {
    let request: LaunchRequest =
        serde_json::from_str(r#"{"params": {"b":  1.0, "a": 1e2}}"#).expect("a launch");
    let launch = inward::launch(request, "j", 7).expect("a launch that keeps the rules");
    assert_eq!(
        launch.params.as_deref(),
        Some(br#"{"b":  1.0, "a": 1e2}"#.as_slice())
    );
}

#[test]
fn launches_that_break_a_rule_name_the_field() {
    let long = "x".repeat(65);
    let cases = [
        (json!({"event": "a b"}), "event"),
        (json!({"event": long}), "event"),
        (json!({"targets": ["ok", "é"]}), "targets[1]"),
        (
            json!({"workflow": {"job": "", "node": "n"}}),
            "workflow.job",
        ),
        (
            json!({"workflow": {"job": "w", "node": "/"}}),
            "workflow.node",
        ),
        (json!({"params": "x".repeat(65_535)}), "params"),
        (
            json!({"limits": [{"type": "queue", "amount": 1}, {"type": "job", "rate": 1}]}),
            "limits[1].window",
        ),
        (
            json!({"limits": [{"type": "rate", "key": "\u{0}", "count": 1, "per_seconds": 1}]}),
            "limits[0].key",
        ),
    ];
    for (body, field) in cases {
        let problem = launch(body.clone()).expect_err(field);
        assert_eq!(problem.code, ErrorCode::InvalidRequest, "{body}");
        assert_eq!(problem.field.as_deref(), Some(field), "{body}");
    }
}

#[test]
fn definitions_that_break_a_rule_name_the_field() {
    let event = |body: Value| inward::event(serde_json::from_value(body).expect("an event"), "e");
    let cases = [
        (json!({"id": "f"}), "id"),
        (json!({"category": "a/b"}), "category"),
        (json!({"title": "x".repeat(257)}), "title"),
        (json!({"nodes": [{"id": "n"}]}), "nodes"),
        (
            json!({"type": "workflow", "nodes": [{"id": "n"}, {"id": "n n"}]}),
            "nodes[1].id",
        ),
        (
            json!({"type": "workflow", "nodes": [{"id": "n", "limits": [{"type": "job", "amount": 10_000_001}]}]}),
            "nodes[0].limits[0].amount",
        ),
    ];
    for (body, field) in cases {
        let problem = event(body.clone()).expect_err(field);
        assert_eq!(problem.field.as_deref(), Some(field), "{body}");
    }
    let server = |body: Value| {
        let body: ServerBody = serde_json::from_value(body).expect("a server");
        inward::server(body, "s").map_err(|problem| problem.field)
    };
    assert_eq!(
        server(json!({"groups": ["a", ""]})),
        Err(Some("groups[1]".to_owned()))
    );
}

#[test]
fn incarnations_keep_their_order_as_text() {
    let text = |incarnation| inward::holder("s", incarnation).incarnation;
    assert!(text(9) < text(10));
    assert!(text(10) < text(u64::MAX));
    assert!(fermata_pool::id::check_id("incarnation", &text(u64::MAX)).is_ok());
}

/// The contract names the bounds of the rules in its refusals, so they must be the rules'.
#[test]
fn the_bounds_of_the_contract_are_those_of_the_rules() {
    use fermata_api::bounds;
    use fermata_pool::limits as rules;
    assert_eq!(bounds::AMOUNT_MAX, rules::AMOUNT_MAX);
    assert_eq!(bounds::RATE_MAX, rules::RATE_MAX);
    assert_eq!(bounds::WINDOW_S_MAX, rules::WINDOW_S_MAX);
    assert_eq!(bounds::WEIGHT_MAX, rules::WEIGHT_MAX);
    assert_eq!(bounds::DURATION_S_MAX, rules::DURATION_S_MAX);
    assert_eq!(bounds::RETRIES_MAX, rules::RETRIES_MAX);
    assert_eq!(bounds::BACKOFF_MAX, rules::BACKOFF_MAX);
    let most = fermata_pool::command::Settings {
        finished_max: u32::try_from(bounds::JOBS_KEPT_MAX).expect("32 bits"),
        max_start_attempts: u32::try_from(bounds::START_ATTEMPTS_MAX).expect("32 bits"),
        ..fermata_pool::command::Settings::default()
    };
    assert!(most.check().is_ok());
    for beyond in [
        fermata_pool::command::Settings {
            finished_max: most.finished_max + 1,
            ..most.clone()
        },
        fermata_pool::command::Settings {
            max_start_attempts: most.max_start_attempts + 1,
            ..most
        },
    ] {
        assert!(beyond.check().is_err());
    }
}
