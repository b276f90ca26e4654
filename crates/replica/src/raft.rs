//! What openraft is told about us: its types, filled in.
//!
//! A term has one leader at most (`leader_id_std`), so that a term names its leader's claim
//! (S39). What lies in the log is a [`Proposal`]: an entry of the pool as bytes, which are made once,
//! where the entry is proposed or arrives, and then shared by the log and the followers'
//! connections; the entry itself goes along until it is applied. What comes back is a [`Response`].
//!
//! Caveat: the serde implementations here exist because openraft's bounds ask for them. Nothing
//! is ever written to disk or to a peer through them; the bytes that are stand in
//! [`crate::format`].

use crate::NodeId;
use crate::format::{self, FormatError};
use fermata_pool::command::Entry;
use fermata_pool::outcome::Applied;
use openraft::impls::leader_id_std;
use openraft::type_config::alias;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

openraft::declare_raft_types!(
    /// The types of a cluster.
    pub TypeConfig:
        D = Proposal,
        R = Response,
        NodeId = NodeId,
        Node = Node,
        Term = u64,
        LeaderId = leader_id_std::LeaderId<u64, NodeId>,
        AsyncRuntime = crate::runtime::Runtime,
);

/// The place of an entry in the log: its term and its index.
pub type LogId = alias::LogIdOf<TypeConfig>;
/// Whom a member voted for, and whether a majority did.
pub type Vote = alias::VoteOf<TypeConfig>;
/// An entry of the log, as openraft passes it around.
pub type LogEntry = alias::EntryOf<TypeConfig>;
/// What an entry of the log holds.
pub type Payload = alias::PayloadOf<TypeConfig>;
/// Who belongs to the cluster, and who of them votes.
pub type Membership = openraft::Membership<NodeId, Node>;
/// A membership, with the place in the log that it comes from.
pub type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
/// What a snapshot covers.
pub type SnapshotMeta = alias::SnapshotMetaOf<TypeConfig>;

/// How a member is reached; part of the membership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Where its peers reach it, `host:port`.
    pub peer: String,
    /// Where clients reach its edge.
    pub client_url: String,
}

/// The bytes of an entry of the pool, as they lie on disk and travel between members, and the
/// entry itself until it is applied.
///
/// What was read or made once is not decoded again to be applied; but the log keeps thousands of
/// entries in memory for followers, who want the bytes only. So whoever applies an entry takes it.
#[derive(Clone)]
pub struct Proposal {
    bytes: Arc<[u8]>,
    entry: Arc<Mutex<Option<Entry>>>,
}

impl Proposal {
    /// Makes the bytes of an entry.
    ///
    /// # Errors
    /// It is larger than [`format::ENTRY_BYTES_MAX`].
    pub fn new(entry: Entry) -> Result<Proposal, FormatError> {
        let bytes = format::encode_entry(&entry)?.into();
        Ok(Proposal::of(entry, bytes))
    }

    /// Reads an entry from its bytes.
    ///
    /// # Errors
    /// They are of an unknown version, or do not hold exactly one entry.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Proposal, FormatError> {
        let bytes = bytes.into();
        let entry = format::decode_entry(&bytes)?;
        Ok(Proposal::of(entry, bytes))
    }

    fn of(entry: Entry, bytes: Arc<[u8]>) -> Proposal {
        Proposal {
            bytes,
            entry: Arc::new(Mutex::new(Some(entry))),
        }
    }

    /// Takes the entry, to apply it; who comes later reads it from the bytes again.
    ///
    /// # Errors
    /// It was taken, and its bytes cannot be read again.
    pub fn take_entry(&self) -> Result<Entry, FormatError> {
        let mut entry = self.entry.lock().unwrap_or_else(PoisonError::into_inner);
        match entry.take() {
            Some(entry) => Ok(entry),
            None => format::decode_entry(&self.bytes),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }
}

impl PartialEq for Proposal {
    fn eq(&self, other: &Proposal) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Proposal {}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an entry of {} bytes", self.bytes.len())
    }
}

impl Serialize for Proposal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.bytes.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Proposal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Proposal, D::Error> {
        Proposal::from_bytes(Vec::<u8>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// What became of an entry; nothing for those that openraft writes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response(pub Option<Arc<Applied>>);
