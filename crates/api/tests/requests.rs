//! Requests: what is accepted and what it means, and how the rest is refused.

#![expect(
    clippy::expect_used,
    reason = "the documents that the tests read are their own"
)]

use fermata_api::bounds::{BATCH_JOBS_MAX, LIMITS_MAX, PARAMS_DEPTH_MAX};
use fermata_api::decode::decode;
use fermata_api::events::Event;
use fermata_api::jobs::{
    CompletedRequest, LaunchBatch, LaunchRequest, Launches, Priority, StartedRequest,
};
use fermata_api::limits::Limit;
use fermata_api::pools::Override;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::servers::{PollRequest, ServerBody};
use fermata_api::settings::Settings;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[derive(serde::Deserialize)]
struct Refusal {
    call: String,
    body: String,
    code: ErrorCode,
    field: Option<String>,
    says: Vec<String>,
}

fn refusal_of<T: DeserializeOwned>(body: &[u8]) -> Option<Problem> {
    decode::<T>(body).err()
}

#[test]
fn each_bad_body_is_refused_with_the_field_that_is_at_fault() {
    let refusals: Vec<Refusal> =
        serde_json::from_str(include_str!("data/refusals.json")).expect("the table is well-formed");
    assert!(refusals.len() > 40, "the table is not cut off");
    let mut wrong = Vec::new();
    for refusal in refusals {
        let body = refusal.body.as_bytes();
        let problem = match refusal.call.as_str() {
            "launch" => match Launches::decode(body) {
                Ok(Launches::Batch(items)) => items.into_iter().find_map(|item| item.request.err()),
                Ok(Launches::One(_)) => None,
                Err(problem) => Some(problem),
            },
            "event" => refusal_of::<Event>(body),
            "started" => refusal_of::<StartedRequest>(body),
            "completed" => refusal_of::<CompletedRequest>(body),
            "server" => refusal_of::<ServerBody>(body),
            "poll" => refusal_of::<PollRequest>(body),
            "override" => refusal_of::<Override>(body),
            "settings" => refusal_of::<Settings>(body),
            other => panic!("no call {other}"),
        };
        let body = refusal.body;
        match problem {
            None => wrong.push(format!("{body}: accepted")),
            Some(problem)
                if problem.code != refusal.code
                    || problem.field != refusal.field
                    || !refusal
                        .says
                        .iter()
                        .all(|text| problem.detail.contains(text)) =>
            {
                wrong.push(format!("{body}: {problem} (field {:?})", problem.field));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reads each document, writes it and reads it again: nothing is lost, and what was given is
/// there.
fn round_trip<T>(documents: &Value)
where
    T: DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug,
{
    for document in documents.as_array().expect("a list of documents") {
        let read: T = decode(document.to_string().as_bytes())
            .unwrap_or_else(|problem| panic!("{document}: {problem}"));
        let written = serde_json::to_value(&read).expect("it can be written");
        contains(&written, document);
        let again: T = decode(written.to_string().as_bytes()).expect("what was written is read");
        assert_eq!(read, again);
    }
}

fn contains(written: &Value, given: &Value) {
    match (written, given) {
        (Value::Object(written), Value::Object(given)) => {
            for (key, value) in given {
                let found = written
                    .get(key)
                    .unwrap_or_else(|| panic!("{key} is not in {written:?}"));
                contains(found, value);
            }
        }
        (Value::Array(written), Value::Array(given)) => {
            assert_eq!(written.len(), given.len());
            for (written, given) in written.iter().zip(given) {
                contains(written, given);
            }
        }
        // S19: `true` is 1.
        (Value::Number(number), Value::Bool(is_raised)) => {
            assert_eq!(number.as_u64(), Some(u64::from(*is_raised)));
        }
        _ => assert_eq!(written, given),
    }
}

#[test]
fn good_bodies_survive_reading_and_writing() {
    let documents: Value = serde_json::from_str(include_str!("data/requests.json")).expect("JSON");
    round_trip::<Event>(&documents["event"]);
    round_trip::<LaunchRequest>(&documents["launch"]);
    round_trip::<LaunchBatch>(&documents["batch"]);
    round_trip::<ServerBody>(&documents["server"]);
    round_trip::<PollRequest>(&documents["poll"]);
    round_trip::<CompletedRequest>(&documents["completed"]);
    round_trip::<Override>(&documents["override"]);
    round_trip::<Settings>(&documents["settings"]);
}

#[test]
fn the_limits_of_the_reference_documents_are_accepted_verbatim() {
    let examples: Vec<Event> =
        serde_json::from_str(include_str!("data/reference_limits.json")).expect("accepted");
    let Limit::Job(salesforce) = &examples[2].limits[0] else {
        panic!("the first limit of the third example is a job limit");
    };
    assert_eq!(salesforce.cap_key.as_deref(), Some("salesforce"));
    assert_eq!(
        (salesforce.amount, salesforce.rate, salesforce.window),
        (5, 100, Some(60))
    );
    assert!(salesforce.enabled && salesforce.style.is_none() && salesforce.weight.is_none());
}

#[test]
fn a_limit_is_enabled_unless_it_says_otherwise() {
    let limits: Vec<Limit> = serde_json::from_value(json!([
        {"type": "queue", "amount": 7},
        {"amount": 7, "enabled": false, "type": "queue"},
    ]))
    .expect("accepted");
    let enabled: Vec<bool> = limits
        .iter()
        .map(|limit| matches!(limit, Limit::Queue(queue) if queue.enabled && queue.amount == 7))
        .collect();
    assert_eq!(enabled, [true, false]);
}

#[test]
fn the_key_jobs_makes_a_batch_wherever_it_stands() {
    let batch = |body: &str| matches!(Launches::decode(body.as_bytes()), Ok(Launches::Batch(_)));
    assert!(batch(r#"{"jobs": []}"#));
    assert!(batch(r#"{"jobs": [{"event": "e"}, {}]}"#));
    assert!(!batch(r#"{"event": "jobs", "params": {"jobs": []}}"#));
    // An escape in the key changes nothing.
    assert!(batch(r#"{"\u006aobs": []}"#));
    let problem = Launches::decode(br#"{"id": "a", "jobs": []}"#).expect_err("both are given");
    assert_eq!(
        (problem.code, problem.field.as_deref()),
        (ErrorCode::UnknownField, Some("id"))
    );
}

#[test]
fn lists_are_bounded_while_they_are_read() {
    let jobs = |count| json!({"jobs": vec![json!({}); count]}).to_string();
    assert!(Launches::decode(jobs(BATCH_JOBS_MAX).as_bytes()).is_ok());
    let problem = Launches::decode(jobs(BATCH_JOBS_MAX + 1).as_bytes()).expect_err("too many");
    assert_eq!(problem.field.as_deref(), Some("jobs"));
    assert!(problem.detail.contains("at most 1000"), "{problem}");

    let limits = |count| json!({"limits": vec![json!({"type": "job"}); count]}).to_string();
    assert!(decode::<Event>(limits(LIMITS_MAX).as_bytes()).is_ok());
    assert!(decode::<Event>(limits(LIMITS_MAX + 1).as_bytes()).is_err());
}

#[test]
fn params_are_kept_as_the_bytes_that_came() {
    let text = "{ \"b\":1.50,  \"a\":[1e2, \"\\u00e9\" ], \"b\":null}";
    let body = format!(r#"{{"event": "e", "params":  {text}  }}"#);
    let launch: LaunchRequest = decode(body.as_bytes()).expect("accepted");
    let params = launch.params.as_ref().expect("given");
    assert_eq!(params.as_json(), text);
    assert!(
        serde_json::to_string(&launch).expect("JSON").contains(text),
        "written as it came"
    );
    assert!(!format!("{launch:?}").contains("1.50"), "not in any log");
}

#[test]
fn params_may_be_nested_to_the_bound_and_not_beyond() {
    let nested = |depth| {
        let value = format!("{}\"[[\\\"[\"{}", "[".repeat(depth), "]".repeat(depth));
        decode::<LaunchRequest>(format!(r#"{{"params": {value}}}"#).as_bytes())
    };
    assert!(nested(PARAMS_DEPTH_MAX).is_ok());
    let problem = nested(PARAMS_DEPTH_MAX + 1).expect_err("too deep");
    assert_eq!(problem.field.as_deref(), Some("params"));
    assert!(nested(200_000).is_err(), "and the stack holds");
    let array = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(decode::<Vec<Value>>(array(200_000).as_bytes()).is_err());
}

#[test]
fn priorities_are_numbers_or_truth_values() {
    let read = |text: &str| {
        serde_json::from_str::<Priority>(text)
            .ok()
            .map(Priority::get)
    };
    assert_eq!(read("true"), Some(1));
    assert_eq!(read("false"), Some(0));
    assert_eq!(read("-100"), Some(-100));
    assert_eq!(read("100"), Some(100));
    for refused in [
        "101",
        "-101",
        "1.0",
        "\"1\"",
        "null",
        "18446744073709551615",
    ] {
        assert_eq!(read(refused), None, "{refused}");
    }
}

#[test]
fn defaults_of_settings_are_those_of_the_rules() {
    let settings: Settings = decode(b"{}").expect("accepted");
    assert_eq!(settings, Settings::default());
    assert_eq!(
        (settings.start_timeout_s, settings.max_start_attempts),
        (30, 3)
    );
}
