//! One member of a cluster: the pool, its log and snapshots on disk, and its peers.
#![forbid(unsafe_code)]

mod clock;
mod config;
mod confirm;
mod core;
mod digests;
mod driver;
pub mod environment;
pub mod error;
pub mod format;
mod leases;
mod membership;
mod open;
mod peer;
pub mod raft;
mod refused;
mod replica;
pub mod runtime;
mod spans;
mod standing;
pub mod state_machine;
mod status;
pub mod store;

pub use config::{Config, Member, NodeId, Start, Timing};
pub use driver::{QUEUED_BYTES_MAX, QUEUED_COMMANDS_MAX};
pub use error::ReplicaError;
// Whoever opens a member names its zone, and needs no other of the calendar.
pub use fermata_calendar::Zone;
pub use fermata_pool::state::FORMAT_LATEST;
pub use format::wire::FORWARDED_BYTES_MAX;
pub use membership::{ADDRESS_BYTES_MAX, MEMBERS_MAX};
pub use refused::{ForwardError, HeardError, MembershipError, ProposeError};
pub use replica::{ForwardedHandler, Proposed, Replica, ServerLease, SnapshotTaken};
pub use spans::RATE_SPANS_TARGET;
pub use standing::{CLOCK_SKEW_MS_MAX, Report, Warning, WarningKind};
pub use status::{Leadership, MemberStatus, Role, Status};
