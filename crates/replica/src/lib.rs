//! One member of a cluster: the pool, its log and snapshots on disk, and its peers.
#![forbid(unsafe_code)]

mod clock;
pub mod error;
pub mod format;
mod leases;
pub mod raft;
pub mod replica;
pub mod state_machine;
pub mod store;

pub use error::ReplicaError;
// Whoever opens a member names its zone, and needs no other of the calendar.
pub use fermata_calendar::Zone;
pub use replica::{
    Config, ForwardError, ForwardedHandler, HeardError, Leadership, Member, MemberStatus,
    MembershipError, NodeId, ProposeError, Proposed, Replica, Role, ServerLease, Start, Status,
    Timing,
};
