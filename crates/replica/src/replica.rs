//! One member, as the edge uses it.
#![allow(
    clippy::todo,
    clippy::unused_async,
    clippy::needless_pass_by_value,
    unused_variables,
    reason = "the surface, before its bodies"
)]

use crate::ReplicaError;
use fermata_calendar::Zone;
use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Holder};
use fermata_pool::outcome::{Applied, Outcome, Refusal};
use fermata_pool::time::Instant;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, watch};

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

/// Several commands that were applied in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The entry that held the last of them.
    pub index: u64,
    /// An outcome per command.
    pub outcomes: Vec<Outcome>,
}

/// Why a proposal has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This member does not lead. Certainly nothing was changed.
    #[error("this member does not lead")]
    NotLeader {
        /// Who does, if that is known.
        leader: Option<Member>,
    },
    /// It may happen or not. Safe to repeat under the same id (S40).
    #[error("the outcome is unknown: it may happen, and repeating it under its id is safe")]
    Unknown,
    /// As many commands wait as may; nothing was changed.
    #[error("as many commands wait as may")]
    Overloaded,
    /// More than one proposal may hold; nothing was changed.
    #[error("{given} commands or bytes in one proposal, where {most} are allowed")]
    TooLarge {
        /// What was given.
        given: usize,
        /// What is allowed.
        most: usize,
    },
    /// The member is being shut down; nothing was changed.
    #[error("the member is being shut down")]
    Stopping,
}

/// Why a holder's word did not renew its lease (S41).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeardError {
    /// No majority confirmed this leader, or the first renewal was not committed.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// The rules say no: no such server or job, or another incarnation is there.
    #[error("{0}")]
    Refused(Refusal),
}

/// A server's lease, from when its worker *sent* what renewed it (S42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLease {
    /// Silent for so long, the server is offline.
    pub server_timeout: Duration,
    /// Silent for so long after that, its active jobs are lost.
    pub job_timeout: Duration,
}

impl ServerLease {
    /// The whole lease: when it is over, the worker has stopped what it runs.
    #[must_use]
    pub fn whole(&self) -> Duration {
        self.server_timeout + self.job_timeout
    }
}

/// Why a request did not come back from the leader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Nobody is known to lead; it was not sent.
    #[error("no leader is known")]
    NoLeader,
    /// This member leads itself; it was not sent.
    #[error("this member leads itself")]
    Here,
    /// It was certainly not handed to the leader.
    #[error("the leader cannot be reached: {0}")]
    Unreachable(String),
    /// It may have reached the leader; no answer came.
    #[error("the leader did not answer in time: it may have done what was asked")]
    Unanswered,
    /// Longer than a request may be.
    #[error("{given} bytes, where {most} are allowed")]
    TooLarge {
        /// Its length in bytes.
        given: usize,
        /// The most, in bytes.
        most: usize,
    },
    /// As many requests are on their way as may; it was not sent.
    #[error("as many requests are on their way as may")]
    Overloaded,
}

/// Why the membership stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// This member does not lead.
    #[error("this member does not lead")]
    NotLeader {
        /// Who does, if that is known.
        leader: Option<Member>,
    },
    /// Another change is under way; the leader finishes it.
    #[error("another change of the membership is under way")]
    UnderWay,
    /// Not what a member can be: names the field, what was given and what is allowed.
    #[error("{0}")]
    Invalid(String),
    /// No such member.
    #[error("there is no member {node}")]
    UnknownMember {
        /// The one that was named.
        node: NodeId,
    },
    /// It was not reached, or did not catch up in time; it stays a learner.
    #[error("member {node} did not catch up in time; it stays a learner")]
    NotCaughtUp {
        /// The one.
        node: NodeId,
    },
    /// Nobody else can lead.
    #[error("no other member can lead")]
    NoSuccessor,
    /// It may have happened or not.
    #[error("the outcome is unknown: ask for the members")]
    Unknown,
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
}

/// Answers what another member forwarded: opaque bytes in, opaque bytes out.
pub type ForwardedHandler =
    Arc<dyn Fn(Vec<u8>) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send>> + Send + Sync>;

/// One member; a clone is the same one.
#[derive(Clone)]
pub struct Replica {}

impl Replica {
    /// Opens the folder, and founds, joins or goes on with its cluster.
    ///
    /// # Errors
    /// The folder is another's, damaged or in use; the address is taken; no peer lets it in.
    pub async fn open(config: Config) -> Result<Replica, ReplicaError> {
        todo!()
    }

    /// Where it listens for peers.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        todo!()
    }

    /// Leader only: has a command committed and applied here.
    ///
    /// Gathered with what else arrives into one entry. Dropping the future never takes the
    /// command back.
    ///
    /// # Errors
    /// See [`ProposeError`] for which of them leave the outcome open.
    pub async fn propose(&self, command: Command) -> Result<Outcome, ProposeError> {
        todo!()
    }

    /// The same for several commands, kept in order and in one entry, as far as its bounds allow.
    ///
    /// # Errors
    /// As [`Replica::propose`].
    pub async fn propose_all(&self, commands: Vec<Command>) -> Result<Proposed, ProposeError> {
        todo!()
    }

    /// Returns once a majority confirmed this leader after the call arrived, and all that was
    /// committed by then is applied here: what is read then is linearizable.
    ///
    /// # Errors
    /// This member does not lead, or no majority confirmed it.
    pub async fn confirm(&self) -> Result<(), ProposeError> {
        todo!()
    }

    /// Looks into this member's own copy, under a lock that applying waits for: be short.
    pub fn read<R>(&self, look: impl FnOnce(&Pool) -> R) -> R {
        todo!()
    }

    /// The instant that this member's clock would stamp now.
    #[must_use]
    pub fn now(&self) -> Instant {
        todo!()
    }

    /// The index of the last entry applied here.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        todo!()
    }

    /// What was applied: hints, of which a slow reader misses some; the state is the truth.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Arc<Applied>> {
        todo!()
    }

    /// Who leads.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        todo!()
    }

    /// A server's worker was heard. Returns once that renewed its lease (S41, S42): a majority
    /// confirmed this leader after the call arrived, and a new incarnation or the first renewal
    /// under this claim is committed.
    ///
    /// # Errors
    /// See [`HeardError`]; nothing was renewed.
    pub async fn server_heard(&self, holder: Holder) -> Result<ServerLease, HeardError> {
        todo!()
    }

    /// The caller of a job was heard; as [`Replica::server_heard`] (S46).
    ///
    /// # Errors
    /// See [`HeardError`]; nothing was renewed.
    pub async fn caller_heard(&self, job: &str) -> Result<(), HeardError> {
        todo!()
    }

    /// Has the leader's edge answer a request.
    ///
    /// # Errors
    /// See [`ForwardError`] for which of them leave open whether it was answered.
    pub async fn forward(
        &self,
        request: Vec<u8>,
        deadline: Duration,
    ) -> Result<Vec<u8>, ForwardError> {
        todo!()
    }

    /// Sets who answers what others forward; once, by the edge. Until then they are told that
    /// this member cannot be reached.
    pub fn answer_forwarded(&self, answer: ForwardedHandler) {
        todo!()
    }

    /// How this member stands.
    #[must_use]
    pub fn status(&self) -> Status {
        todo!()
    }

    /// Hands leadership to the named member, or to the one that is least behind; says to whom.
    ///
    /// # Errors
    /// This member does not lead, or no other can.
    pub async fn transfer(&self, to: Option<NodeId>) -> Result<NodeId, MembershipError> {
        todo!()
    }

    /// Leader only: lets a member in, as a learner until it has caught up, then as a voter.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn add_member(&self, member: Member) -> Result<(), MembershipError> {
        todo!()
    }

    /// Leader only: takes a member out, dead or alive.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn remove_member(&self, node: NodeId) -> Result<(), MembershipError> {
        todo!()
    }

    /// Hands leadership over if this member has it, then stops, with its state on disk (S43).
    ///
    /// # Errors
    /// Something could not be written.
    pub async fn shutdown(&self) -> Result<(), ReplicaError> {
        todo!()
    }

    /// Returns when the member has stopped by itself, with the cause; never otherwise.
    pub async fn failed(&self) -> ReplicaError {
        todo!()
    }
}
