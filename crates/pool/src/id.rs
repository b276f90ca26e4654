//! Names: what an id or a key may look like, and how pools are named.
//!
//! Ids are typed by people and stand in paths, so their alphabet is small. Keys are whatever a
//! team calls the thing it protects, so they are any text without control characters; they are
//! compared byte for byte (S9, S11).

use crate::limits::InvalidField;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

/// Longest id of an event, category, node, job or server, in bytes.
pub const ID_BYTES_MAX: usize = 64;
/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 128;
/// Longest name of a pool or bucket, in bytes: `node:NODE@PARENT_JOB`, or a prefix and a key.
pub const SCOPE_NAME_BYTES_MAX: usize = 5 + KEY_BYTES_MAX + 1;

/// Refuses what is not an id: `[A-Za-z0-9._:-]{1,64}` (S11).
///
/// # Errors
/// Names `field`, what was given, and the alphabet.
pub fn check_id(field: &str, id: &str) -> Result<(), InvalidField> {
    let allowed =
        |byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b':' | b'-');
    // All of them, without a look at each: an id is checked with every launch.
    let all = |id: &str| id.bytes().fold(true, |good, byte| good & allowed(byte));
    if (1..=ID_BYTES_MAX).contains(&id.len()) && all(id) {
        return Ok(());
    }
    Err(InvalidField::new(
        field,
        shown(id),
        "1 to 64 of the characters A-Z a-z 0-9 . _ : -",
    ))
}

/// Refuses what is not a key: 1–128 bytes of text without control characters (S11).
///
/// # Errors
/// Names `field`, what was given, and what a key is.
pub fn check_key(field: &str, key: &str) -> Result<(), InvalidField> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) && !key.chars().any(char::is_control) {
        return Ok(());
    }
    let allowed = "1 to 128 bytes of UTF-8 without control characters";
    Err(InvalidField::new(field, shown(key), allowed))
}

/// Refuses what names neither a pool nor a bucket: `cap:`, `event:`, `node:`, `job:` or `rate:`
/// and what may follow each.
///
/// # Errors
/// Names `field`, what was given, and the forms.
pub fn check_scope_name(field: &str, name: &str) -> Result<(), InvalidField> {
    let good = match name.split_once(':') {
        Some(("cap" | "rate", key)) => check_key(field, key).is_ok(),
        Some(("event" | "job", id)) => check_id(field, id).is_ok(),
        Some(("node", rest)) => rest.split_once('@').is_some_and(|(node, job)| {
            check_id(field, node).is_ok() && check_id(field, job).is_ok()
        }),
        _ => false,
    };
    if good {
        return Ok(());
    }
    let allowed = "cap:KEY, event:ID, node:NODE@JOB, job:ID or rate:KEY";
    Err(InvalidField::new(field, shown(name), allowed))
}

/// Text for an error: quoted, with control characters escaped, and cut where it is long.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(KEY_BYTES_MAX).collect();
    if cut.len() < text.len() {
        format!("{cut:?}… ({} bytes)", text.len())
    } else {
        format!("{cut:?}")
    }
}

/// The name of the bucket of a `rate` limit (S5).
#[must_use]
pub fn bucket_name(key: &str) -> Box<str> {
    format!("rate:{key}").into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ids_and_keys_at_their_ends() {
        assert!(check_id("id", &"a".repeat(64)).is_ok());
        assert!(check_id("id", &"a".repeat(65)).is_err());
        assert!(check_id("id", "").is_err());
        assert!(check_id("id", "a/b").is_err());
        assert!(check_key("key", &"é".repeat(64)).is_ok());
        assert!(check_key("key", &"é".repeat(65)).is_err());
        assert!(check_key("key", "a\u{0}b").is_err());
        assert!(check_key("key", "a/b @ 🎼").is_ok());
    }

    #[test]
    fn a_refusal_names_the_field_and_shows_no_control_character() {
        let fault = check_id("job", "a\u{1b}[31m").expect_err("an escape is no id");
        assert_eq!(fault.field, "job");
        assert!(!fault.to_string().contains('\u{1b}'));
    }

    #[test]
    fn scope_names() {
        for good in ["cap:any thing", "rate:x", "event:e", "job:j.1", "node:n@w1"] {
            assert!(check_scope_name("id", good).is_ok(), "{good}");
        }
        for bad in ["", "cap:", "pool:x", "node:n", "event:a b", "rate:\n"] {
            assert!(check_scope_name("id", bad).is_err(), "{bad}");
        }
    }
}
