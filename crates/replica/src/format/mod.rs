//! Every byte that outlives a process, and its version.
//!
//! Bytes are made by bincode 1.3.3 through one constructor, [`options`]: integers of fixed
//! length, little-endian, nothing left over, and never more than the record's own limit. Only our
//! own types are encoded, never openraft's. bincode is positional: a field or a variant is only
//! ever added at the end, together with a new version, and what was written under an old version
//! stays readable: `tests/fixtures` holds bytes of each, for ever.
//!
//! | record | where | version | checked by |
//! |---|---|---|---|
//! | log id, vote | write-ahead log | a tag byte of its own | itself and the log's checksum |
//! | payload: blank, entry, membership | write-ahead log, peers | its first two bytes | the log, the frame |
//! | identity | file `IDENTITY`, sled | [`record`] | [`record`] |
//! | snapshot chunk | sled | [`record`] | [`record`], over its place too |
//! | snapshot manifest | sled | [`record`] | [`record`]; names the stream's length and checksum |
//! | row of a snapshot | in the stream of chunks | the manifest's | the stream's checksum, the pool's digest |
//!
//! What changed, and when:
//!
//! - 2026-11-30, version 1 of everything.
//!
//! Caveat: the pool's own types (`command::Entry`, `snapshot::Row`) are encoded as they are; a
//! change to them is a change of these versions, and the fixtures fail when it is forgotten.

pub mod log;
pub mod record;
pub mod snapshot;
pub mod wire;

use bincode::Options;
use fermata_pool::command::{Command, Entry};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of entries that is written.
pub const ENTRY_VERSION: u8 = 1;
/// Most bytes of an entry: twice what a leader gathers into one, as a command may stand alone.
pub const ENTRY_BYTES_MAX: u64 = 2 << 20;

/// Why bytes cannot be read, or a value cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A newer program wrote it.
    #[error(
        "{what} of version {given}; this program reads up to {most}: it was written by a newer one"
    )]
    Version {
        /// Which record.
        what: &'static str,
        /// The version found.
        given: u8,
        /// The newest that is known.
        most: u8,
    },
    /// The bytes are not those that were written.
    #[error("{what} is damaged: {why}")]
    Damaged {
        /// Which record.
        what: &'static str,
        /// What does not hold.
        why: String,
    },
    /// It is larger than its record may be.
    #[error("{what} of {given} bytes, where {most} are allowed")]
    TooLarge {
        /// Which record.
        what: &'static str,
        /// Its length.
        given: u64,
        /// The limit.
        most: u64,
    },
}

impl FormatError {
    pub(crate) fn damaged(what: &'static str, why: impl Into<String>) -> FormatError {
        FormatError::Damaged {
            what,
            why: why.into(),
        }
    }
}

impl FormatError {
    /// For `map_err`: a snapshot that cannot be installed.
    pub(crate) fn received(why: String) -> FormatError {
        FormatError::Damaged {
            what: "the snapshot to install",
            why,
        }
    }
}

impl From<FormatError> for std::io::Error {
    fn from(error: FormatError) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// The one way in which values become bytes and bytes values.
fn options(bytes_max: u64) -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_limit(bytes_max)
        .reject_trailing_bytes()
}

/// Appends a value's bytes, at most `bytes_max` of them.
pub(crate) fn encode_into<T: Serialize>(
    what: &'static str,
    value: &T,
    bytes_max: u64,
    out: &mut Vec<u8>,
) -> Result<(), FormatError> {
    let given = options(u64::MAX)
        .serialized_size(value)
        .map_err(|error| FormatError::damaged(what, error.to_string()))?;
    if given > bytes_max {
        return Err(FormatError::TooLarge {
            what,
            given,
            most: bytes_max,
        });
    }
    options(bytes_max)
        .serialize_into(out, value)
        .map_err(|error| FormatError::damaged(what, error.to_string()))
}

/// Reads exactly one value of at most `bytes_max` bytes.
pub(crate) fn decode<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
    bytes_max: u64,
) -> Result<T, FormatError> {
    let given = bytes.len() as u64;
    if given > bytes_max {
        return Err(FormatError::TooLarge {
            what,
            given,
            most: bytes_max,
        });
    }
    options(bytes_max)
        .deserialize(bytes)
        .map_err(|error| FormatError::damaged(what, error.to_string()))
}

/// The bytes of an entry: its version, then the entry.
///
/// # Errors
/// It is larger than [`ENTRY_BYTES_MAX`].
pub fn encode_entry(entry: &Entry) -> Result<Vec<u8>, FormatError> {
    let mut bytes = vec![ENTRY_VERSION];
    encode_into("an entry", entry, ENTRY_BYTES_MAX - 1, &mut bytes)?;
    Ok(bytes)
}

/// Reads an entry of any version.
///
/// # Errors
/// The version is unknown, or the bytes do not hold exactly one entry.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, FormatError> {
    match bytes.split_first() {
        Some((&ENTRY_VERSION, body)) => decode("an entry", body, ENTRY_BYTES_MAX - 1),
        Some((&given, _)) => Err(FormatError::Version {
            what: "an entry",
            given,
            most: ENTRY_VERSION,
        }),
        None => Err(FormatError::damaged("an entry", "it is empty")),
    }
}

/// How many bytes a command takes in an entry: what a leader counts while it gathers.
#[must_use]
pub fn command_bytes(command: &Command) -> u64 {
    options(u64::MAX)
        .serialized_size(command)
        .unwrap_or(u64::MAX)
}
