//! A record that stands alone: what it is, its version, its checksum, its body.
//!
//! ```text
//! kind: u8 | version: u8 | crc32 of place, kind, version and body: u32 LE | body
//! ```
//!
//! The place is what the record is found under (a key, a file's name). It is not stored again but
//! is part of the checksum, so that a record that lies in another's place is found out.

use super::FormatError;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Whose folder it is.
    Identity = 1,
    /// Part of a snapshot's stream.
    Chunk = 2,
    /// What a whole snapshot is.
    Manifest = 3,
}

impl Kind {
    /// Its name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Identity => "an identity",
            Kind::Chunk => "a snapshot chunk",
            Kind::Manifest => "a snapshot manifest",
        }
    }

    /// The version that is written.
    #[must_use]
    pub const fn version(self) -> u8 {
        match self {
            Kind::Identity | Kind::Chunk | Kind::Manifest => 1,
        }
    }
}

/// Bytes before a record's body.
pub const HEADER_BYTES: usize = 6;

fn checksum(place: &[u8], kind: u8, version: u8, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(place);
    hasher.update(&[kind, version]);
    hasher.update(body);
    hasher.finalize()
}

/// Wraps a body into a record of the present version.
#[must_use]
pub fn seal(kind: Kind, place: &[u8], body: &[u8]) -> Vec<u8> {
    let sum = checksum(place, kind as u8, kind.version(), body);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&[kind as u8, kind.version()]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Checks a record and gives its version and body.
///
/// # Errors
/// It is of another kind, of an unknown version, or not what was written at this place.
pub fn open<'a>(kind: Kind, place: &[u8], bytes: &'a [u8]) -> Result<(u8, &'a [u8]), FormatError> {
    let what = kind.name();
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(FormatError::damaged(
            what,
            format!("{} bytes are too few", bytes.len()),
        ));
    };
    let [found, version, a, b, c, d] = *header;
    if u32::from_le_bytes([a, b, c, d]) != checksum(place, found, version, body) {
        return Err(FormatError::damaged(what, "its checksum differs"));
    }
    if found != kind as u8 {
        return Err(FormatError::damaged(
            what,
            format!("it is a record of kind {found}"),
        ));
    }
    if version == 0 || version > kind.version() {
        return Err(FormatError::Version {
            what,
            given: version,
            most: kind.version(),
        });
    }
    Ok((version, body))
}
