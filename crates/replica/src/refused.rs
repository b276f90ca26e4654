//! Why something was not done: answers, not faults.

use crate::{Member, NodeId};
use fermata_pool::outcome::Refusal;

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
    /// A command is larger than an entry may be; nothing was changed.
    #[error("a command of {given} bytes, where {most} are allowed")]
    TooLarge {
        /// Its bytes.
        given: u64,
        /// The most, in bytes.
        most: u64,
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
        given: u64,
        /// The most, in bytes.
        most: u64,
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
    /// It was not reached, or is far behind; it is a learner and becomes a voter by itself once it
    /// has caught up.
    #[error("member {node} has not caught up yet; it is a learner until it has")]
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
