//! A job's parameters: any JSON value, kept as the bytes that came (S11).

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::bounds::PARAMS_DEPTH_MAX;

/// A JSON value as the text in which it was written, without white space around it.
///
/// Nesting deeper than [`PARAMS_DEPTH_MAX`] is refused here, because whoever parses it later
/// (the comparison of S40, a worker) may not be able to. The size is a rule of the pool.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Params(Box<RawValue>);

impl Params {
    /// Parameters from JSON text.
    ///
    /// # Errors
    /// The text is no JSON value, or is nested too deeply.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Parameters from a value, in serde_json's writing of it.
    ///
    /// # Errors
    /// The value cannot be written as JSON (a map with keys that are no strings), or is nested too
    /// deeply.
    pub fn from_value<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        Self::from_json(&serde_json::to_string(value)?)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

impl fmt::Debug for Params {
    /// Shows the length only: parameters may carry what no log should (F39).
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Params({} bytes)", self.as_json().len())
    }
}

impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

impl Eq for Params {}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if is_too_deep(raw.get()) {
            return Err(D::Error::custom(format_args!(
                "nested deeper than {PARAMS_DEPTH_MAX} arrays and objects, which is the most allowed"
            )));
        }
        Ok(Self(raw))
    }
}

/// Counts brackets outside of strings. The text is known to be one JSON value.
fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' if depth == PARAMS_DEPTH_MAX => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    false
}
