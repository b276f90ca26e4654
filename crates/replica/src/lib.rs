//! One member of a cluster: the pool, its log and snapshots on disk, and its peers.
#![forbid(unsafe_code)]

pub mod error;
pub mod replica;

pub use error::ReplicaError;
pub use replica::{
    Config, ForwardError, ForwardedHandler, HeardError, Leadership, Member, MemberStatus,
    MembershipError, NodeId, ProposeError, Proposed, Replica, Role, ServerLease, Start, Status,
    Timing,
};
