//! What members say to each other.
//!
//! Everything travels in frames:
//!
//! ```text
//! version: u8 | head length: u32 LE | tail length: u32 LE | crc32 of the 9 bytes before, head and tail: u32 LE
//! head: bincode of one message | tail: bytes that the message speaks of
//! ```
//!
//! The head says what it is about; the tail holds what is large and has a format of its own
//! already: payloads of the log, parts of a snapshot's stream, requests of the edge. Lengths are
//! checked against the bounds of the connection before anything is allocated or decoded.
//!
//! A connection begins with [`Hello`] and its [`Greeting`]. From then on one side asks
//! ([`Request`]), the other answers ([`Answer`]), in order; only forwarded requests carry numbers
//! and are answered as they are done.
//!
//! Caveats: variants are only ever appended, as bincode is positional; a field more is a new
//! version of the frame. A member that was sent a variant it does not know closes the
//! connection.

use super::FormatError;
use super::log::{LogId, MemberRecord, MembershipRecord, Vote};
use crate::raft;
use serde::{Deserialize, Serialize};

/// The version of frames that is written.
pub const WIRE_VERSION: u8 = 1;
/// Bytes before a frame's head.
pub const FRAME_HEADER_BYTES: usize = 13;
/// Most bytes of a head: an append names each of its entries there.
pub const HEAD_BYTES_MAX: u32 = 256 << 10;
/// Most entries of one append; its head holds them with room to spare.
pub const APPEND_ENTRIES_MAX: u64 = 4_096;
/// Most bytes of the payloads in one append: what is gathered, and one entry that stands alone.
pub const APPEND_BYTES_MAX: u32 = 4 << 20;
/// Most bytes of a part of a snapshot.
pub const SNAPSHOT_PART_BYTES_MAX: u32 = 256 << 10;
/// Most bytes of a forwarded request, or of its answer.
pub const FORWARDED_BYTES_MAX: u32 = 16 << 20;

/// What a connection is for; each has its own, so that none waits behind another's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Purpose {
    /// Votes, transfers of leadership, and how members stand.
    Votes,
    /// The leader's sign of life.
    Heartbeats,
    /// Entries of the log.
    Appends,
    /// Snapshots.
    Snapshots,
    /// Requests that a follower's edge hands to the leader's.
    Forwards,
    /// Who belongs to the cluster.
    Membership,
}

impl Purpose {
    /// Most bytes of a tail on such a connection.
    #[must_use]
    pub const fn tail_bytes_max(self) -> u32 {
        match self {
            Purpose::Appends => APPEND_BYTES_MAX,
            Purpose::Snapshots => SNAPSHOT_PART_BYTES_MAX,
            Purpose::Forwards => FORWARDED_BYTES_MAX,
            Purpose::Votes | Purpose::Heartbeats | Purpose::Membership => 0,
        }
    }
}

/// The first message of a connection: who calls whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The caller's cluster; none: it has none yet and only asks for one.
    pub cluster: Option<u128>,
    /// The caller.
    pub from: u64,
    /// Whom it means to reach; none: whoever is there.
    pub to: Option<u64>,
    /// What for.
    pub purpose: Purpose,
}

/// What is said to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Greeting {
    /// Go on.
    Welcome {
        /// Who answers.
        node: u64,
    },
    /// The connection is closed: it reached the wrong member, or another cluster.
    Refused {
        /// What does not fit.
        why: String,
    },
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A candidate asks for a vote.
    Vote(Candidacy),
    /// A member asks whether it would get the vote.
    PreVote(Candidacy),
    /// A leader hands its leadership over.
    Transfer {
        /// Its vote.
        from: Vote,
        /// To whom.
        to: u64,
        /// What that one must have.
        last: Option<LogId>,
    },
    /// A leader appends entries; none: its sign of life. The tail holds their payloads.
    Append {
        /// Its vote.
        vote: Vote,
        /// What comes before them.
        previous: Option<LogId>,
        /// What is committed.
        committed: Option<LogId>,
        /// Where each belongs, and how many bytes of the tail are its payload.
        entries: Vec<(LogId, u32)>,
    },
    /// A leader sends a snapshot.
    SnapshotBegin {
        /// Its vote.
        vote: Vote,
        /// What the snapshot is.
        outline: SnapshotOutline,
    },
    /// The next part of it: the tail.
    SnapshotPart,
    /// That was all of it.
    SnapshotEnd,
    /// A request for the leader's edge: the tail.
    Forward {
        /// Names it among those on this connection.
        number: u64,
        /// How long its answer is waited for, in milliseconds.
        deadline_ms: u64,
    },
    /// How does it stand, and what does its wall clock show?
    Standing,
    /// Which cluster is this, and who leads it?
    Seek {
        /// The newest format of the state that the asker's program knows.
        format_max: u32,
    },
    /// A member says how it is reached, and asks to be let in if it is not in yet.
    Announce {
        /// The member.
        member: MemberRecord,
        /// True where it was told to join; false where it only says how it is reached.
        join: bool,
        /// The newest format of the state that its program knows.
        format_max: u32,
    },
    /// What was the digest of its state when it had applied this entry? The asker's differs from
    /// somebody's.
    Digest {
        /// The entry.
        index: u64,
        /// The asker's digest.
        digest: u64,
    },
}

/// What a snapshot covers, and what its stream must turn out to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOutline {
    /// The last entry that it covers.
    pub last: Option<LogId>,
    /// Where its membership stands in the log.
    pub membership_at: Option<LogId>,
    /// The membership.
    pub membership: MembershipRecord,
    /// Bytes of the stream.
    pub bytes: u64,
    /// crc32 of the stream.
    pub checksum: u32,
}

/// How a member stands, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What its wall clock shows, in microseconds of Unix time.
    pub wall_us: i64,
    /// The term that it knows.
    pub term: u64,
    /// The last entry in its log.
    pub last_log: Option<u64>,
    /// The last entry that it applied.
    pub applied: Option<u64>,
    /// The name of its time zone.
    pub time_zone: String,
    /// Which zone database its rules came from.
    pub tzdb: String,
    /// The version of its program.
    pub version: String,
    /// The digest of its state when it had applied that entry.
    pub digest: u64,
    /// The newest format of the state that its program knows.
    pub format_max: u32,
}

/// What a candidate says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidacy {
    /// The vote that it asks for.
    pub vote: Vote,
    /// The last entry that it has.
    pub last: Option<LogId>,
    /// True where the leader asked it to.
    pub transfer: bool,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To a candidacy.
    Voted {
        /// The vote that stands.
        vote: Vote,
        /// The last entry that the voter has.
        last: Option<LogId>,
        /// Whether it was granted.
        granted: bool,
    },
    /// To a transfer: taken.
    Transferring,
    /// To a transfer: another vote stands.
    TransferVoteChanged {
        /// That vote.
        vote: Vote,
    },
    /// To a transfer: entries are missing.
    TransferBehind {
        /// The last that is there.
        last: Option<LogId>,
    },
    /// To an append: all are on disk.
    Appended,
    /// To an append: those up to this one are on disk.
    AppendedUpTo(Option<LogId>),
    /// To an append: what comes before is not there.
    AppendConflict,
    /// To an append: a later vote stands.
    AppendHigherVote(Vote),
    /// To a part of a snapshot: the next one may come.
    SnapshotGoOn,
    /// To the end of a snapshot: it is installed, unless this vote is later than the sender's.
    SnapshotInstalled {
        /// The vote that stands.
        vote: Vote,
    },
    /// To a forwarded request: the tail.
    Forwarded {
        /// Which.
        number: u64,
    },
    /// To a forwarded request: nobody took it.
    NotForwarded {
        /// Which.
        number: u64,
    },
    /// To [`Request::Standing`].
    Stands(Standing),
    /// To [`Request::Seek`].
    Cluster {
        /// Its id.
        cluster: u128,
        /// Who leads, if that is known.
        leader: Option<MemberRecord>,
        /// Why the caller may not join with an empty folder; none where it may. Only the leader's
        /// word counts.
        refusal: Option<String>,
    },
    /// To [`Request::Announce`]: it is in.
    Announced {
        /// Whether it votes; where it does not yet, it is to ask again.
        votes: bool,
    },
    /// To [`Request::Announce`]: ask this one instead, or again where none is named.
    AskLeader {
        /// Who leads, if that is known.
        leader: Option<MemberRecord>,
    },
    /// To anything: no.
    Refused {
        /// Why not.
        why: String,
    },
    /// To [`Request::Digest`].
    Digested {
        /// The digest; none: it has not applied that entry yet, or no longer knows.
        digest: Option<u64>,
    },
}

impl Request {
    /// A leader's append, with the payloads for the tail.
    ///
    /// # Errors
    /// A payload cannot be encoded, or they are more than an append may carry.
    pub(crate) fn append(
        request: &openraft::raft::AppendEntriesRequest<raft::TypeConfig>,
    ) -> Result<(Request, Vec<u8>), FormatError> {
        let mut tail = Vec::new();
        let mut entries = Vec::with_capacity(request.entries.len());
        for entry in &request.entries {
            let before = tail.len();
            super::log::encode_payload(&entry.payload, &mut tail)?;
            let bytes = u32::try_from(tail.len() - before).unwrap_or(u32::MAX);
            entries.push((entry.log_id.into(), bytes));
        }
        let head = Request::Append {
            vote: (&request.vote).into(),
            previous: request.prev_log_id.map(Into::into),
            committed: request.leader_commit.map(Into::into),
            entries,
        };
        Ok((head, tail))
    }
}

/// The entries of an append, from its head and its tail.
///
/// # Errors
/// The lengths do not add up, or a payload is damaged.
pub(crate) fn entries(
    heads: &[(LogId, u32)],
    mut tail: &[u8],
) -> Result<Vec<raft::LogEntry>, FormatError> {
    let mut entries = Vec::with_capacity(heads.len());
    for &(id, bytes) in heads {
        let Some((payload, rest)) = tail.split_at_checked(bytes as usize) else {
            return Err(FormatError::damaged("an append", "its payloads are short"));
        };
        tail = rest;
        entries.push(raft::LogEntry {
            log_id: id.into(),
            payload: super::log::decode_payload(payload)?,
        });
    }
    if !tail.is_empty() {
        return Err(FormatError::damaged(
            "an append",
            "bytes follow its payloads",
        ));
    }
    Ok(entries)
}

/// Makes a frame.
///
/// # Errors
/// The head or the tail is larger than the connection allows.
pub fn frame<T: Serialize>(
    message: &T,
    tail: &[u8],
    tail_bytes_max: u32,
) -> Result<Vec<u8>, FormatError> {
    let tail_bytes = u32::try_from(tail.len())
        .ok()
        .filter(|&bytes| bytes <= tail_bytes_max)
        .ok_or(FormatError::TooLarge {
            what: "a message's tail",
            given: tail.len() as u64,
            most: u64::from(tail_bytes_max),
        })?;
    let mut bytes = vec![0; FRAME_HEADER_BYTES];
    super::encode_into("a message", message, u64::from(HEAD_BYTES_MAX), &mut bytes)?;
    let head_bytes = (bytes.len() - FRAME_HEADER_BYTES) as u32;
    let header = Header {
        head_bytes,
        tail_bytes,
    };
    let lengths = header.lengths();
    let sum = checksum(&lengths, &bytes[FRAME_HEADER_BYTES..], tail);
    bytes[..9].copy_from_slice(&lengths);
    bytes[9..FRAME_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(tail);
    Ok(bytes)
}

/// What stands before a frame's head.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Bytes of the head.
    pub head_bytes: u32,
    /// Bytes of the tail.
    pub tail_bytes: u32,
}

impl Header {
    fn lengths(self) -> [u8; 9] {
        let mut bytes = [WIRE_VERSION; 9];
        bytes[1..5].copy_from_slice(&self.head_bytes.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.tail_bytes.to_le_bytes());
        bytes
    }

    /// Reads it, with the checksum.
    ///
    /// # Errors
    /// Another version, or lengths beyond the bounds.
    pub fn parse(
        bytes: &[u8; FRAME_HEADER_BYTES],
        tail_bytes_max: u32,
    ) -> Result<(Header, u32), FormatError> {
        let [version, a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        if version != WIRE_VERSION {
            return Err(FormatError::Version {
                what: "a message",
                given: version,
                most: WIRE_VERSION,
            });
        }
        let header = Header {
            head_bytes: u32::from_le_bytes([a, b, c, d]),
            tail_bytes: u32::from_le_bytes([e, f, g, h]),
        };
        for (what, given, most) in [
            ("a message", header.head_bytes, HEAD_BYTES_MAX),
            ("a message's tail", header.tail_bytes, tail_bytes_max),
        ] {
            if given > most {
                return Err(FormatError::TooLarge {
                    what,
                    given: u64::from(given),
                    most: u64::from(most),
                });
            }
        }
        Ok((header, u32::from_le_bytes([i, j, k, l])))
    }

    /// Checks head and tail and decodes the head.
    ///
    /// # Errors
    /// The checksum differs, or the head is no such message.
    pub fn decode<T: serde::de::DeserializeOwned>(
        self,
        sum: u32,
        head: &[u8],
        tail: &[u8],
    ) -> Result<T, FormatError> {
        if checksum(&self.lengths(), head, tail) != sum {
            return Err(FormatError::damaged("a message", "its checksum differs"));
        }
        super::decode("a message", head, u64::from(HEAD_BYTES_MAX))
    }
}

fn checksum(lengths: &[u8; 9], head: &[u8], tail: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(lengths);
    hasher.update(head);
    hasher.update(tail);
    hasher.finalize()
}
