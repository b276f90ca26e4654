//! Definitions in files, JSON or TOML, one or several in each.
//!
//! JSON reaches the contract's decoder as the bytes that were written, so parameters stay as they
//! are, and a fault is told with the path of its field. TOML is turned into JSON first.
//!
//! # Caveats
//!
//! - JSON has no dates: a date in TOML must be written as a string.

use std::io::Read;
use std::path::{Path, PathBuf};

use fermata_api::decode::decode;
use fermata_api::events::Event;
use fermata_api::problem::{ErrorCode, Problem};
use serde_json::value::RawValue;

use crate::error::CommandError;

/// Most bytes of a file of definitions.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The events of a file, each with its id; `-` is standard input. A file holds one event, a list
/// of them, or an object with the list `events`.
pub(crate) fn events(path: &Path) -> Result<Vec<(String, Event)>, CommandError> {
    let place = path.display().to_string();
    let text = read_text(path)?;
    let json = if is_toml(path, &text) {
        as_json(path, &text)?
    } else {
        text
    };
    let parts = parts(&place, &json)?;
    let is_one = parts.len() == 1;
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(index, part)| {
            let place = if is_one {
                place.clone()
            } else {
                format!("{place}, event {}", index + 1)
            };
            event(&place, part)
        })
        .collect()
}

/// The text of a file; `-` is standard input.
pub(crate) fn read_text(path: &Path) -> Result<String, CommandError> {
    let unreadable = |source| CommandError::Unreadable {
        path: PathBuf::from(path),
        source,
    };
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(unreadable)?)
    };
    let mut text = String::new();
    let mut input = input.take(FILE_BYTES_MAX + 1);
    let length = input.read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(length).is_ok_and(|length| length > FILE_BYTES_MAX) {
        let what = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(unreadable(std::io::Error::other(what)));
    }
    Ok(text)
}

/// By its name; where that says nothing, by its first character.
fn is_toml(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => true,
        Some("json") => false,
        _ => {
            let first = text.trim_start();
            !first.starts_with('{')
                && (!first.starts_with('[') || serde_json::from_str::<&RawValue>(text).is_err())
        }
    }
}

fn as_json(path: &Path, text: &str) -> Result<String, CommandError> {
    let value: serde_json::Value =
        toml::from_str(text).map_err(|source| CommandError::NotToml {
            path: PathBuf::from(path),
            source: Box::new(source),
        })?;
    Ok(value.to_string())
}

/// The definitions of a file, as they are written.
fn parts<'a>(place: &str, json: &'a str) -> Result<Vec<&'a str>, CommandError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Events<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
    }

    let list = if json.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<&RawValue>>(json)
    } else {
        match serde_json::from_str::<Events<'_>>(json) {
            Ok(events) => Ok(events.events),
            // Then it is one event, or else its own fault is told.
            Err(_) => return Ok(vec![json]),
        }
    };
    let list = list.map_err(|error| CommandError::NotUnderstood {
        place: place.to_owned(),
        problem: Box::new(Problem::new(ErrorCode::InvalidJson, error.to_string())),
    })?;
    Ok(list.into_iter().map(RawValue::get).collect())
}

fn event(place: &str, json: &str) -> Result<(String, Event), CommandError> {
    let not_understood = |problem| CommandError::NotUnderstood {
        place: place.to_owned(),
        problem: Box::new(problem),
    };
    let event: Event = decode(json.as_bytes()).map_err(not_understood)?;
    match event.id.clone() {
        Some(id) => Ok((id, event)),
        None => Err(not_understood(
            Problem::new(ErrorCode::InvalidRequest, "an event in a file needs its id")
                .with_field("id"),
        )),
    }
}
