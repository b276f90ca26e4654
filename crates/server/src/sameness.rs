//! Whether two requests are the same (S40): compared as parsed, before defaults.
//!
//! White space, the order of keys and the spelling of strings do not tell requests apart. A field
//! that is given does, also where it says what its default is: the default may change.
//!
//! A key (`Idempotency-Key`) stands for a whole request. So an item of a batch whose id comes of
//! the key is the same only in the same batch.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// What a launch hashes to. `json` is its text, which was read as a launch before.
pub(crate) fn of_launch(json: &str) -> u64 {
    first_bytes(&canonical(json))
}

/// What an item of a batch hashes to, where its id comes of the key of the whole: `batch` is the
/// hash of all items.
pub(crate) fn of_item(json: &str, batch: u64) -> u64 {
    first_bytes(&format!("{batch:x} {}", canonical(json)))
}

/// What a batch hashes to: all its items in their order.
pub(crate) fn of_batch<'a>(items: impl Iterator<Item = &'a str>) -> u64 {
    let texts: Vec<String> = items.map(canonical).collect();
    first_bytes(&texts.join(","))
}

/// The request in one spelling. Its id is not part of it: it is what both have in common.
fn canonical(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(Value::Object(mut fields)) => {
            fields.remove("id");
            // As it is read: null is absent, and `true` and `false` are priorities (S19).
            fields.retain(|_, value| !value.is_null());
            if let Some(Value::Bool(is_raised)) = fields.get("priority") {
                let number = u8::from(*is_raised);
                fields.insert("priority".to_owned(), number.into());
            }
            Value::Object(fields).to_string()
        }
        Ok(other) => other.to_string(),
        Err(_) => json.to_owned(),
    }
}

fn first_bytes(text: &str) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(text)[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_tell_requests_apart_and_what_is_given_does() {
        let same = [
            (r#"{"id": "a", "event": "e"}"#, r#"{ "event":"e" }"#),
            (r#"{"priority": true}"#, r#"{"priority": 1}"#),
            (r#"{"delay_s": null}"#, "{}"),
            (
                r#"{"params": {"a": 1, "b": 2}}"#,
                r#"{"params": {"b":2,"a":1}}"#,
            ),
        ];
        for (one, other) in same {
            assert_eq!(of_launch(one), of_launch(other), "{one} {other}");
        }
        let different = [
            (r#"{"event": "e"}"#, r#"{"event": "f"}"#),
            (r#"{"priority": 0}"#, "{}"),
            (r#"{"params": null}"#, r#"{"params": {"a": null}}"#),
            (r#"{"params": {"a": null}}"#, r#"{"params": {}}"#),
            (
                r#"{"limits": [{"type": "job", "enabled": true}]}"#,
                r#"{"limits": [{"type": "job"}]}"#,
            ),
        ];
        for (one, other) in different {
            assert_ne!(of_launch(one), of_launch(other), "{one} {other}");
        }
    }

    #[test]
    fn an_item_is_the_same_in_the_same_batch_only() {
        let batch = |items: &[&'static str]| of_batch(items.iter().copied());
        let (one, two) = (batch(&["{}"]), batch(&["{}", "{}"]));
        assert_ne!(one, two);
        assert_ne!(of_item("{}", one), of_item("{}", two));
        assert_ne!(of_item("{}", one), of_launch("{}"));
        assert_eq!(of_item("{}", one), of_item("{ }", batch(&[" {} "])));
    }
}
