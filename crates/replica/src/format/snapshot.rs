//! A snapshot: a stream of rows, cut into chunks, and the manifest that makes it whole.
//!
//! The stream is `length: u32 LE | bincode of the row`, row after row, and is the same on disk
//! and between members. It is cut into chunks of [`CHUNK_BYTES`], whatever rows they cut; the
//! last is what is left. A snapshot exists once its manifest does.

use super::log::{LogId, MembershipRecord};
use super::record::{HEADER_BYTES, Kind, open, seal};
use super::{FormatError, decode, encode_into};
use crate::raft::{SnapshotMeta, StoredMembership};
use fermata_pool::snapshot::Row;
use serde::{Deserialize, Serialize};

/// Bytes of a stored chunk, its header included; larger values would leave sled's synced file.
pub const STORED_CHUNK_BYTES_MAX: usize = 4 << 10;
/// Bytes of the stream in a chunk; fewer only in the last.
pub const CHUNK_BYTES: usize = STORED_CHUNK_BYTES_MAX - HEADER_BYTES;
/// Most bytes of a row. The largest are event definitions and jobs with all their parameters.
pub const ROW_BYTES_MAX: u64 = 4 << 20;
/// Most bytes of a manifest.
pub const MANIFEST_BYTES_MAX: u64 = 128 << 10;

/// What a whole snapshot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The last entry that it covers; none: it was taken before the first.
    pub last: Option<LogId>,
    /// Where its membership stands in the log.
    pub membership_at: Option<LogId>,
    /// The membership.
    pub membership: MembershipRecord,
    /// Rows in the stream.
    pub rows: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// crc32 of the stream.
    pub checksum: u32,
}

impl Manifest {
    /// How many chunks the stream is cut into.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.bytes.div_ceil(CHUNK_BYTES as u64)
    }

    /// What openraft wants to know of it.
    ///
    /// # Errors
    /// Its membership contradicts itself.
    pub fn meta(&self) -> Result<SnapshotMeta, FormatError> {
        Ok(SnapshotMeta {
            last_log_id: self.last.map(Into::into),
            last_membership: StoredMembership::new(
                self.membership_at.map(Into::into),
                self.membership.clone().try_into()?,
            ),
        })
    }

    /// Its record, for the place that it is kept at.
    ///
    /// # Errors
    /// It is larger than [`MANIFEST_BYTES_MAX`].
    pub fn to_bytes(&self, place: &[u8]) -> Result<Vec<u8>, FormatError> {
        let mut body = Vec::new();
        encode_into("a snapshot manifest", self, MANIFEST_BYTES_MAX, &mut body)?;
        Ok(seal(Kind::Manifest, place, &body))
    }

    /// Reads it from its record.
    ///
    /// # Errors
    /// It is of an unknown version, or damaged.
    pub fn from_bytes(place: &[u8], bytes: &[u8]) -> Result<Manifest, FormatError> {
        let (_version, body) = open(Kind::Manifest, place, bytes)?;
        decode("a snapshot manifest", body, MANIFEST_BYTES_MAX)
    }
}

/// Whose folder it is: the same in the file `IDENTITY` beside the log and in sled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster, chosen at random when it was made.
    pub cluster: u128,
    /// The member.
    pub node: u64,
    /// This folder, chosen at random when it was made: the log and the snapshots of one member
    /// belong together.
    pub store: u128,
}

/// What an identity's checksum covers beside itself.
const IDENTITY_PLACE: &[u8] = b"identity";
/// Most bytes of an identity.
const IDENTITY_BYTES_MAX: u64 = 64;

impl Identity {
    /// Its record.
    ///
    /// # Errors
    /// None in practice: its length is fixed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut body = Vec::new();
        encode_into("an identity", self, IDENTITY_BYTES_MAX, &mut body)?;
        Ok(seal(Kind::Identity, IDENTITY_PLACE, &body))
    }

    /// Reads it from its record.
    ///
    /// # Errors
    /// It is of an unknown version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Identity, FormatError> {
        let (_version, body) = open(Kind::Identity, IDENTITY_PLACE, bytes)?;
        decode("an identity", body, IDENTITY_BYTES_MAX)
    }
}

/// Appends a row to a stream.
///
/// # Errors
/// It is larger than [`ROW_BYTES_MAX`].
pub fn encode_row(row: &Row<'_>, stream: &mut Vec<u8>) -> Result<(), FormatError> {
    let start = stream.len();
    stream.extend_from_slice(&[0; 4]);
    encode_into("a row of a snapshot", row, ROW_BYTES_MAX, stream)?;
    let len = (stream.len() - start - 4) as u32;
    if let Some(place) = stream.get_mut(start..start + 4) {
        place.copy_from_slice(&len.to_le_bytes());
    }
    Ok(())
}

/// Takes rows off a stream that comes in pieces.
#[derive(Debug, Default)]
pub struct RowReader {
    pending: Vec<u8>,
    taken: usize,
}

impl RowReader {
    /// Adds the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.pending.drain(..self.taken);
        self.taken = 0;
        self.pending.extend_from_slice(piece);
    }

    /// The next row that is there whole.
    ///
    /// # Errors
    /// What is there is no row.
    pub fn next_row(&mut self) -> Result<Option<Row<'static>>, FormatError> {
        let what = "a row of a snapshot";
        let rest = self.pending.get(self.taken..).unwrap_or_default();
        let Some((len, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*len);
        if u64::from(len) > ROW_BYTES_MAX {
            return Err(FormatError::TooLarge {
                what,
                given: len.into(),
                most: ROW_BYTES_MAX,
            });
        }
        let Some(row) = rest.get(..len as usize) else {
            return Ok(None);
        };
        let row = decode(what, row, ROW_BYTES_MAX)?;
        self.taken += 4 + len as usize;
        Ok(Some(row))
    }

    /// True where nothing is left over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.len() == self.taken
    }
}
