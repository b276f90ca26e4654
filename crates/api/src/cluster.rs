//! The cluster: its nodes, their roles, and changes of them.

use serde::{Deserialize, Serialize};

/// The cluster as one node sees it: `GET /v1/cluster`.
///
/// The answering node asks the others how they stand; what one that does not answer in time would
/// have said is absent. The call is answered without a leader, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The id of the cluster, the same on every node and disk.
    pub cluster_id: String,
    /// The node that answers.
    pub node: u64,
    /// The leader; absent where none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<u64>,
    /// The term that the answering node is in.
    pub term: u64,
    /// Whether a majority confirmed the leader just now.
    pub has_quorum: bool,
    /// The format of the state and of the rules in force. It rises by itself once every node says
    /// that it knows a newer one, and never falls: after that no older program can take part.
    #[serde(default)]
    pub format: u32,
    /// The nodes, by id.
    pub nodes: Vec<NodeView>,
    /// What an operator should know of them.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// Something that an operator should know of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What it is.
    pub code: WarningCode,
    /// Of which node.
    pub node: u64,
    /// The same in a sentence, with both values.
    pub detail: String,
}

/// What is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// Its time zone is not the leader's: local windows move when leadership does (S24).
    TimeZoneDiffers,
    /// Its zone rules are not the leader's: local windows may.
    TzdbDiffers,
    /// Its clock and the answering node's are more than a second apart.
    ClockSkew,
    /// Its program knows fewer formats of the state than another's: the cluster's does not rise.
    FormatBehind,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The id: never reused.
    pub id: u64,
    /// Its role.
    pub role: Role,
    /// Whether its vote counts.
    pub voter: bool,
    /// The term that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// The last index of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_index: Option<u64>,
    /// The last index that it applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// Entries by which it is behind the leader's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Where clients reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_url: Option<String>,
    /// Where its peers reach it, as `HOST:PORT`.
    pub peer_address: String,
    /// Its time zone, by its IANA name: what local windows go by while it leads (S24).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The version of its zone rules, such as `2025b`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tzdb: Option<String>,
    /// Its clock minus that of the answering node, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_skew_ms: Option<i64>,
    /// The version of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The newest format of the state that its program knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format_max: Option<u32>,
}

/// What a node does in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Decides and replicates: the active conductor.
    Leader,
    /// Votes and replicates.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Replicates without a vote.
    Learner,
    /// It does not answer the node that answers here.
    Unreachable,
}

/// A node to be added: the body of `POST /v1/cluster/members`. The answer is the [`ClusterView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a node: an object")]
pub struct MemberBody {
    /// Its id, which no node of this cluster ever had.
    pub id: u64,
    /// Where its peers reach it, as `HOST:PORT`.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_url: String,
}

/// A hand-over of leadership: the body of `POST /v1/cluster/transfer`. The answer is the
/// [`ClusterView`] under the new leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct TransferRequest {
    /// The node that shall lead; absent = the follower that is furthest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}
