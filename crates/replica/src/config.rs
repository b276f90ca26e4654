//! How a member is opened, and how members are known.

use crate::format::log::MemberRecord;
use crate::format::wire::APPEND_ENTRIES_MAX;
use crate::raft::Node;
use fermata_calendar::Zone;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Entries that stay in the log behind a snapshot, for members that are a little behind: at most
/// 128 MiB of full ones.
const LOG_ENTRIES_TO_KEEP: u64 = 128;

/// Names a member for ever; never used again for another disk. From 1.
pub type NodeId = u64;

/// How a member is opened.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member.
    pub node: NodeId,
    /// Its folder, which belongs to it alone.
    pub data: PathBuf,
    /// Where it listens for peers; nowhere else. Port 0: any.
    pub peer_listen: SocketAddr,
    /// How peers reach it, `host:port`. Port 0 stands for the one that was taken.
    pub peer_advertise: String,
    /// How clients reach its edge; told to the others, never used here.
    pub client_url: String,
    /// Whose local boundaries it stamps while it leads (S24).
    pub time_zone: Zone,
    /// How fast it finds that a leader is gone.
    pub timing: Timing,
    /// Where its cluster comes from.
    pub start: Start,
    /// The newest format of the state that this member says it knows: the program's own
    /// ([`FORMAT_LATEST`](fermata_pool::state::FORMAT_LATEST)), unless a test of upgrades puts
    /// another program in its place.
    pub format_max: u32,
}

/// How fast a lost leader is found; the same on every member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// Heartbeats every 100 ms, campaigns after 300 to 400 ms.
    #[default]
    Normal,
    /// Heartbeats every 50 ms, campaigns after 200 to 250 ms: for members on one machine or rack.
    Fast,
}

impl Timing {
    /// How often a leader gives a sign of life; also the deadline for its answer.
    pub(crate) const fn heartbeat(self) -> Duration {
        match self {
            Timing::Normal => Duration::from_millis(100),
            Timing::Fast => Duration::from_millis(50),
        }
    }

    /// After how long without one a follower campaigns: at least, and at most beyond the lease.
    const fn election_ms(self) -> (u64, u64) {
        match self {
            Timing::Normal => (300, 400),
            Timing::Fast => (200, 250),
        }
    }

    /// For how long a leader that a majority heard is believed.
    pub(crate) const fn lease(self) -> Duration {
        Duration::from_millis(self.election_ms().1)
    }

    /// What openraft is to go by.
    pub(crate) fn raft_config(self, cluster: u128) -> openraft::Config {
        let (min_ms, max_ms) = self.election_ms();
        openraft::Config {
            cluster_name: format!("{cluster:032x}"),
            heartbeat_interval: self.heartbeat().as_millis() as u64,
            election_timeout_min: min_ms,
            election_timeout_max: max_ms,
            enable_pre_vote: Some(true),
            // A leader that restarts has lost its leases and must take over anew.
            enable_leader_restore: Some(false),
            quorum_loss_probe_interval: Some(1_000),
            install_snapshot_timeout: 60_000,
            // Snapshots are taken by bytes: see replica.rs.
            snapshot_policy: openraft::SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: LOG_ENTRIES_TO_KEEP,
            max_append_entries: Some(APPEND_ENTRIES_MAX),
            ..openraft::Config::default()
        }
    }
}

/// Where a member's cluster comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new cluster, of this member alone.
    Bootstrap,
    /// A cluster that is there: any of its members is asked to be let in.
    Join {
        /// Their peer addresses, `host:port`.
        peers: Vec<String>,
    },
    /// What the folder holds; taken too, whatever was asked, where it holds something.
    Restart,
}

/// A member of the cluster, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub node: NodeId,
    /// Where its peers reach it, `host:port`.
    pub peer: String,
    /// Where clients reach its edge.
    pub client_url: String,
}

impl Member {
    /// A member from the membership.
    pub(crate) fn at(node: NodeId, at: &Node) -> Member {
        Member {
            node,
            peer: at.peer.clone(),
            client_url: at.client_url.clone(),
        }
    }

    /// What the membership keeps of it.
    pub(crate) fn to_node(&self) -> Node {
        Node {
            peer: self.peer.clone(),
            client_url: self.client_url.clone(),
        }
    }
}

impl From<Member> for MemberRecord {
    fn from(member: Member) -> Self {
        MemberRecord {
            node: member.node,
            peer: member.peer,
            client_url: member.client_url,
        }
    }
}

impl From<MemberRecord> for Member {
    fn from(record: MemberRecord) -> Self {
        Member {
            node: record.node,
            peer: record.peer,
            client_url: record.client_url,
        }
    }
}
