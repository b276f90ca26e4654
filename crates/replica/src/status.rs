//! How a member stands in its cluster.

use crate::core::Core;
use crate::standing::{self, Report};
use crate::{Member, NodeId};
use fermata_pool::command::Claim;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;

/// Who leads, as far as this member knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// Nobody, or nobody knows: an election, or no majority.
    #[default]
    Unknown,
    /// Another member.
    Follower {
        /// That one.
        leader: Member,
    },
    /// This member, whose takeover was applied (S39).
    Leader {
        /// Its claim, on every entry that it proposes.
        claim: Claim,
    },
}

/// What a member does in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It receives the log and has no vote.
    Learner,
    /// It votes.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It was elected.
    Leader,
    /// Its core has stopped.
    Stopped,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Role::Learner => "learner",
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Leader => "leader",
            Role::Stopped => "stopped",
        }
    }
}

/// How this member stands, and how it sees the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The cluster, as 32 hexadecimal digits.
    pub cluster: String,
    /// This member.
    pub node: NodeId,
    /// The term that it knows.
    pub term: u64,
    /// What it does.
    pub role: Role,
    /// Who leads, if that is known.
    pub leader: Option<NodeId>,
    /// Every member, by id.
    pub members: Vec<MemberStatus>,
    /// The membership is changing: until it has, both the old and the new majority are needed.
    pub changing: bool,
    /// The last entry in its log.
    pub last_log: Option<u64>,
    /// The last entry that it knows to be on a majority of disks.
    pub committed: Option<u64>,
    /// The last entry that it applied.
    pub applied: Option<u64>,
    /// The last entry in its newest snapshot.
    pub snapshot: Option<u64>,
    /// The last entry that its log no longer holds.
    pub purged: Option<u64>,
    /// The name of its time zone.
    pub time_zone: String,
    /// Which zone database its rules came from.
    pub tzdb: String,
    /// The digest of its state at `applied` (S37).
    pub digest: u64,
    /// The format of its state and of the rules in force.
    pub format: u32,
}

/// A member as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The member.
    pub member: Member,
    /// False for a learner.
    pub voter: bool,
    /// The last entry known to be on its disk; known by the leader only.
    pub matched: Option<u64>,
    /// How many entries it is behind; known by the leader only.
    pub lag: Option<u64>,
    /// What it said of itself not long ago; of this member, what it says now.
    pub report: Option<Report>,
}

impl Status {
    /// How a member stands now.
    pub(crate) fn of(core: &Core) -> Status {
        let metrics = core.raft.metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        let voters: Vec<NodeId> = membership.voter_ids().collect();
        let matched = |node: NodeId| {
            if node == core.node && metrics.state == ServerState::Leader {
                return metrics.last_log_index;
            }
            let replication = metrics.replication.as_ref()?;
            replication.get(&node)?.map(|id| id.index)
        };
        let known = metrics.state == ServerState::Leader;
        let members = membership.nodes().map(|(&node, at)| {
            let matched = matched(node);
            let last = metrics.last_log_index.map_or(0, |index| index + 1);
            MemberStatus {
                member: Member::at(node, at),
                voter: voters.contains(&node),
                matched,
                report: if node == core.node {
                    let own = standing::own(core);
                    let wall_us = own.wall_us;
                    Some(Report::of(own, wall_us))
                } else {
                    core.report(node)
                },
                lag: known.then(|| last.saturating_sub(matched.map_or(0, |index| index + 1))),
            }
        });
        let (applied, (digest, format)) = core
            .state
            .read_applied(|pool| (pool.digest(), pool.format()));
        Status {
            cluster: format!("{:032x}", core.cluster),
            node: core.node,
            term: metrics.current_term,
            role: match (&metrics.running_state, metrics.state) {
                (Err(_), _) | (_, ServerState::Shutdown) => Role::Stopped,
                (_, ServerState::Learner) => Role::Learner,
                (_, ServerState::Follower) => Role::Follower,
                (_, ServerState::Candidate) => Role::Candidate,
                (_, ServerState::Leader) => Role::Leader,
            },
            leader: match metrics.state {
                ServerState::Leader => metrics.current_leader,
                _ => core.other_leader().map(|leader| leader.node),
            },
            members: members.collect(),
            changing: membership.get_joint_config().len() > 1,
            last_log: metrics.last_log_index,
            committed: metrics.local_committed.map(|id| id.index),
            applied,
            snapshot: metrics.snapshot.map(|id| id.index),
            purged: metrics.purged.map(|id| id.index),
            time_zone: core.zone.name().to_owned(),
            tzdb: core.zone.source().to_string(),
            digest,
            format,
        }
    }
}
