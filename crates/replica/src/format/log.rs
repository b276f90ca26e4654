//! What lies in the write-ahead log: log ids, votes and payloads.
//!
//! The log closes each of its records with a checksum, and takes a record that the file's end
//! cuts off for one that a crash cut off: it drops it. A damaged length would look the same and
//! cost entries that were acknowledged. So what is written here can be told apart from anything
//! else before its end: each part begins with a tag of its own, and a payload's length has its
//! own checksum. A part that contradicts itself is damage, never an end.
//!
//! ```text
//! log id   'L' | term: u64 LE | index: u64 LE
//! vote     'V' | term: u64 LE | node: u64 LE | committed: u8
//! payload  'P' | length: u32 LE | crc32 of tag and length: u32 LE | body of that length
//! body     kind: u8 (1 blank, 2 entry, 3 membership) | version: u8 | bincode
//! ```
//!
//! The body alone is what travels between members.

use super::{ENTRY_BYTES_MAX, FormatError, decode, encode_into};
use crate::raft::{self, Node, Payload, Proposal};
use openraft::EntryPayload;
use raft_log::codeq::{Decode, Encode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

/// Most bytes of a payload's body.
pub const PAYLOAD_BYTES_MAX: u64 = ENTRY_BYTES_MAX + 1;
/// Most bytes of a membership.
pub const MEMBERSHIP_BYTES_MAX: u64 = 64 << 10;
/// The version of memberships that is written.
pub const MEMBERSHIP_VERSION: u8 = 1;

const TAG_LOG_ID: u8 = b'L';
const TAG_VOTE: u8 = b'V';
const TAG_PAYLOAD: u8 = b'P';
const KIND_BLANK: u8 = 1;
const KIND_ENTRY: u8 = 2;
const KIND_MEMBERSHIP: u8 = 3;
const BLANK_VERSION: u8 = 1;

/// A place in the log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct LogId {
    /// The term of the leader that made the entry.
    pub term: u64,
    /// Its index, from 0.
    pub index: u64,
}

impl From<raft::LogId> for LogId {
    fn from(id: raft::LogId) -> Self {
        LogId {
            term: *id.leader_id,
            index: id.index,
        }
    }
}

impl From<LogId> for raft::LogId {
    fn from(id: LogId) -> Self {
        raft::LogId::new_term_index(id.term, id.index)
    }
}

/// A vote. Ordered so that a later one of the same member is never less: a term's granted vote
/// comes after those that were only given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// True once a majority granted it.
    pub committed: bool,
    /// For whom.
    pub node: u64,
}

impl From<&raft::Vote> for Vote {
    fn from(vote: &raft::Vote) -> Self {
        Vote {
            term: vote.leader_id.term,
            committed: vote.is_committed(),
            node: vote.leader_id.voted_for,
        }
    }
}

impl From<Vote> for raft::Vote {
    fn from(vote: Vote) -> Self {
        if vote.committed {
            raft::Vote::new_committed(vote.term, vote.node)
        } else {
            raft::Vote::new(vote.term, vote.node)
        }
    }
}

/// A member as the log and snapshots keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// Its id.
    pub node: u64,
    /// Where its peers reach it.
    pub peer: String,
    /// Where clients reach its edge.
    pub client_url: String,
}

/// A membership as the log and snapshots keep it: sets of voters (two while it changes), and all
/// members, those that do not vote included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipRecord {
    /// Who votes: a decision takes a majority of each set.
    pub voters: Vec<Vec<u64>>,
    /// How every member is reached.
    pub members: Vec<MemberRecord>,
}

impl From<&raft::Membership> for MembershipRecord {
    fn from(membership: &raft::Membership) -> Self {
        MembershipRecord {
            voters: membership
                .get_joint_config()
                .iter()
                .map(|set| set.iter().copied().collect())
                .collect(),
            members: membership
                .nodes()
                .map(|(&node, Node { peer, client_url })| MemberRecord {
                    node,
                    peer: peer.clone(),
                    client_url: client_url.clone(),
                })
                .collect(),
        }
    }
}

impl TryFrom<MembershipRecord> for raft::Membership {
    type Error = FormatError;

    fn try_from(record: MembershipRecord) -> Result<Self, FormatError> {
        if record.voters.is_empty() && record.members.is_empty() {
            return Ok(raft::Membership::default());
        }
        let voters: Vec<BTreeSet<u64>> = record
            .voters
            .into_iter()
            .map(|set| set.into_iter().collect())
            .collect();
        let members: BTreeMap<u64, Node> = record
            .members
            .into_iter()
            .map(|member| {
                let node = Node {
                    peer: member.peer,
                    client_url: member.client_url,
                };
                (member.node, node)
            })
            .collect();
        raft::Membership::new(voters, members)
            .map_err(|error| FormatError::damaged("a membership", error.to_string()))
    }
}

/// Appends the body of a payload.
///
/// # Errors
/// It is larger than allowed.
pub fn encode_payload(payload: &Payload, out: &mut Vec<u8>) -> Result<(), FormatError> {
    match payload {
        EntryPayload::Blank => out.extend_from_slice(&[KIND_BLANK, BLANK_VERSION]),
        EntryPayload::Normal(proposal) => {
            out.push(KIND_ENTRY);
            out.extend_from_slice(proposal.bytes());
        }
        EntryPayload::Membership(membership) => {
            out.extend_from_slice(&[KIND_MEMBERSHIP, MEMBERSHIP_VERSION]);
            let record = MembershipRecord::from(membership);
            encode_into("a membership", &record, MEMBERSHIP_BYTES_MAX, out)?;
        }
    }
    Ok(())
}

/// Reads the body of a payload.
///
/// # Errors
/// Its kind or version is unknown, or it is damaged.
pub fn decode_payload(bytes: &[u8]) -> Result<Payload, FormatError> {
    let Some((&kind, body)) = bytes.split_first() else {
        return Err(FormatError::damaged("a payload", "it is empty"));
    };
    match (kind, body) {
        (KIND_BLANK, [BLANK_VERSION]) => Ok(EntryPayload::Blank),
        (KIND_ENTRY, body) => Proposal::from_bytes(body).map(EntryPayload::Normal),
        (KIND_MEMBERSHIP, [MEMBERSHIP_VERSION, body @ ..]) => {
            let record: MembershipRecord = decode("a membership", body, MEMBERSHIP_BYTES_MAX)?;
            Ok(EntryPayload::Membership(record.try_into()?))
        }
        (KIND_MEMBERSHIP, [given, ..]) => Err(FormatError::Version {
            what: "a membership",
            given: *given,
            most: MEMBERSHIP_VERSION,
        }),
        _ => Err(FormatError::damaged(
            "a payload",
            format!("kind {kind} with {} bytes", body.len()),
        )),
    }
}

/// How many bytes the body of a payload takes, about.
#[must_use]
pub fn payload_bytes(payload: &Payload) -> u64 {
    match payload {
        EntryPayload::Blank => 2,
        EntryPayload::Normal(proposal) => 1 + proposal.bytes().len() as u64,
        EntryPayload::Membership(membership) => 64 * membership.nodes().count() as u64 + 64,
    }
}

/// A payload as the write-ahead log holds it.
#[derive(Clone, Debug)]
pub struct StoredPayload(pub Payload);

fn expect_tag(what: &'static str, tag: u8, r: &mut impl Read) -> io::Result<()> {
    let [found] = read_array(r)?;
    if found == tag {
        return Ok(());
    }
    Err(FormatError::damaged(what, format!("it begins with byte {found}")).into())
}

fn read_array<const N: usize>(r: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    r.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Encode for LogId {
    fn encode<W: Write>(&self, mut w: W) -> io::Result<usize> {
        w.write_all(&[TAG_LOG_ID])?;
        w.write_all(&self.term.to_le_bytes())?;
        w.write_all(&self.index.to_le_bytes())?;
        Ok(17)
    }
}

impl Decode for LogId {
    fn decode<R: Read>(mut r: R) -> io::Result<Self> {
        expect_tag("a log id", TAG_LOG_ID, &mut r)?;
        Ok(LogId {
            term: u64::from_le_bytes(read_array(&mut r)?),
            index: u64::from_le_bytes(read_array(&mut r)?),
        })
    }
}

impl Encode for Vote {
    fn encode<W: Write>(&self, mut w: W) -> io::Result<usize> {
        w.write_all(&[TAG_VOTE])?;
        w.write_all(&self.term.to_le_bytes())?;
        w.write_all(&self.node.to_le_bytes())?;
        w.write_all(&[u8::from(self.committed)])?;
        Ok(18)
    }
}

impl Decode for Vote {
    fn decode<R: Read>(mut r: R) -> io::Result<Self> {
        expect_tag("a vote", TAG_VOTE, &mut r)?;
        let term = u64::from_le_bytes(read_array(&mut r)?);
        let node = u64::from_le_bytes(read_array(&mut r)?);
        let committed = match read_array(&mut r)? {
            [0] => false,
            [1] => true,
            [found] => {
                let why = format!("it is committed: {found}");
                return Err(FormatError::damaged("a vote", why).into());
            }
        };
        Ok(Vote {
            term,
            committed,
            node,
        })
    }
}

fn payload_header(len: u32) -> [u8; 9] {
    let [a, b, c, d] = len.to_le_bytes();
    let [e, f, g, h] = crc32fast::hash(&[TAG_PAYLOAD, a, b, c, d]).to_le_bytes();
    [TAG_PAYLOAD, a, b, c, d, e, f, g, h]
}

impl Encode for StoredPayload {
    fn encode<W: Write>(&self, mut w: W) -> io::Result<usize> {
        let mut body = Vec::with_capacity(2 + payload_bytes(&self.0) as usize);
        encode_payload(&self.0, &mut body)?;
        let header = u32::try_from(body.len())
            .ok()
            .filter(|&len| u64::from(len) <= PAYLOAD_BYTES_MAX)
            .map(payload_header)
            .ok_or(FormatError::TooLarge {
                what: "a payload",
                given: body.len() as u64,
                most: PAYLOAD_BYTES_MAX,
            })?;
        w.write_all(&header)?;
        w.write_all(&body)?;
        Ok(header.len() + body.len())
    }
}

impl Decode for StoredPayload {
    fn decode<R: Read>(mut r: R) -> io::Result<Self> {
        expect_tag("a payload", TAG_PAYLOAD, &mut r)?;
        let len = u32::from_le_bytes(read_array(&mut r)?);
        let sum: [u8; 4] = read_array(&mut r)?;
        if payload_header(len)[5..] != sum || u64::from(len) > PAYLOAD_BYTES_MAX {
            let why = format!("its length, {len}, is not what was written");
            return Err(FormatError::damaged("a payload", why).into());
        }
        let mut body = vec![0; len as usize];
        r.read_exact(&mut body)?;
        Ok(StoredPayload(decode_payload(&body)?))
    }
}
