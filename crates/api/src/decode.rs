//! Request bodies: bytes to a type of this crate, or to the problem that names what is wrong.

use serde::Deserialize;
use serde_json::error::Category;

use crate::object::Object;
use crate::problem::{ErrorCode, Problem};

/// The names that serde gives to numbers, and what they mean to whoever sent the body.
const NUMBERS: [(&str, &str); 4] = [
    (
        "expected u64",
        "expected a whole number from 0 to 18446744073709551615",
    ),
    (
        "expected u32",
        "expected a whole number from 0 to 4294967295",
    ),
    (
        "expected i32",
        "expected a whole number from -2147483648 to 2147483647",
    ),
    (
        "expected i64",
        "expected a whole number from -9223372036854775808 to 9223372036854775807",
    ),
];

/// How serde's message begins where a field is not known; the name follows, to the next backtick.
const UNKNOWN: &str = "unknown field `";

/// How the message begins where a field of a limit is no number; the name follows, as above.
pub(crate) const NO_NUMBER: &str = "no whole number in field `";

/// Reads one JSON value that fills the whole body.
///
/// # Errors
/// `invalid_json` where the bytes are no JSON; `unknown_field` and `invalid_request` with the path
/// of the field at fault.
pub fn decode<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let Object(value) = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        problem(&path, &error.into_inner())
    })?;
    deserializer
        .end()
        .map_err(|error| Problem::new(ErrorCode::InvalidJson, error.to_string()))?;
    Ok(value)
}

/// As [`decode`], for an item of a list that is judged by itself: `place` is its path from the
/// body's root. What serde says of lines and columns would be the item's, so it is left out.
pub(crate) fn decode_item<'de, T: Deserialize<'de>>(
    json: &'de str,
    place: &str,
) -> Result<T, Problem> {
    decode(json.as_bytes()).map_err(|mut problem| {
        if let Some(at) = problem.detail.rfind(" at line ") {
            problem.detail.truncate(at);
        }
        problem.field = Some(match problem.field {
            None => place.to_owned(),
            Some(field) => format!("{place}.{field}"),
        });
        problem
    })
}

fn problem(path: &str, error: &serde_json::Error) -> Problem {
    let mut detail = error.to_string();
    if error.classify() != Category::Data {
        return Problem::new(ErrorCode::InvalidJson, detail);
    }
    for (name, meaning) in NUMBERS {
        // Only where serde says it, right before the position; never in what it quotes.
        let last = detail.rfind(&format!("{name} at line "));
        if let Some(at) = last.filter(|at| !detail[at + name.len()..].contains(',')) {
            detail.replace_range(at..at + name.len(), meaning);
        }
    }
    let code = if detail.starts_with(UNKNOWN) {
        ErrorCode::UnknownField
    } else {
        ErrorCode::InvalidRequest
    };
    let named = [UNKNOWN, "missing field `", "duplicate field `", NO_NUMBER]
        .into_iter()
        .find_map(|start| detail.strip_prefix(start)?.split('`').next());
    let field = field_at(path, named);
    let problem = Problem::new(code, detail);
    match field {
        Some(field) => problem.with_field(field),
        None => problem,
    }
}

/// The path of the fault. Where serde names a field that is missing or unknown, the path may still
/// end at the object around it.
fn field_at(path: &str, named: Option<&str>) -> Option<String> {
    // serde_path_to_error's name of the body itself.
    let path = if path == "." { "" } else { path };
    match named {
        None if path.is_empty() => None,
        None => Some(path.to_owned()),
        Some(named) if path.is_empty() => Some(named.to_owned()),
        Some(named) if path == named || path.ends_with(&format!(".{named}")) => {
            Some(path.to_owned())
        }
        Some(named) => Some(format!("{path}.{named}")),
    }
}
