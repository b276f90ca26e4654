//! What one member keeps on its disk: its log, and its snapshots.
//!
//! ```text
//! FOLDER/LOCK          held while a process works here
//! FOLDER/log/IDENTITY  whose folder it is
//! FOLDER/log/r-*.wal   vote, entries, committed, purged: one ordered write-ahead log
//! FOLDER/state/        sled: the identity again, and snapshots
//! ```
//!
//! **Durable before acknowledged** is done in two places: `log.rs` answers a vote or an append
//! after the `fdatasync` that follows it, and `recovery.rs` answers a snapshot after its chunks,
//! and then its manifest, were flushed and synced.
//!
//! The log and the snapshots are useless without each other: a log whose beginning was purged
//! needs its snapshot, and a member that lost its log would vote a second time. So both carry the
//! same random id, and a folder of which one half is missing or of another origin is refused.
//!
//! Caveat: the order at the first start is lock, sled with its identity, log, and `IDENTITY` last:
//! a start that was cut off before is begun again, as nothing can have been acknowledged.

pub mod log;
pub mod snapshot;

mod folder;
mod recovery;

pub use folder::{Owner, Store};
pub use log::LogStore;
pub use snapshot::{Recovery, SnapshotReader, SnapshotWriter};

pub(crate) use recovery::Recovered;
