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
mod inspection;
mod recovery;

pub use folder::{Owner, Store};
pub use inspection::{Inspection, LogFound, SnapshotFound, StateFound, inspect};
pub use log::LogStore;
pub use snapshot::{Generations, Recovery, SnapshotReader, SnapshotWriter};

pub(crate) use recovery::Recovered;

use crate::ReplicaError;
use crate::raft::TypeConfig;
use crate::state_machine::StateMachine;
use openraft::storage::RaftLogStorage;
use std::future::Future;
use std::io;
use std::path::PathBuf;

/// Where a member's log and snapshots lie: a folder ([`Folder`]), or what a simulation has instead.
pub trait Disk: Send + 'static {
    /// Its log.
    type Log: RaftLogStorage<TypeConfig> + Clone;

    /// The cluster that what is there belongs to; none where nothing is there.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    fn cluster(&self) -> Result<Option<u128>, ReplicaError>;

    /// Opens what is there, or makes it: the log, and the state machine as the newest snapshot has
    /// it.
    ///
    /// # Errors
    /// It is in use, another's, not whole or damaged; then nothing was changed.
    fn open(self, owner: Owner) -> Result<(Self::Log, StateMachine), ReplicaError>;

    /// Waits until everything that was written to a log is durable.
    fn flush(log: &Self::Log) -> impl Future<Output = io::Result<()>> + Send;
}

/// A folder of this machine, which belongs to one member.
#[derive(Clone, Debug)]
pub struct Folder(pub PathBuf);

impl Disk for Folder {
    type Log = LogStore;

    fn cluster(&self) -> Result<Option<u128>, ReplicaError> {
        let found = Store::identity(&self.0)?;
        Ok(found.map(|identity| identity.cluster))
    }

    fn open(self, owner: Owner) -> Result<(LogStore, StateMachine), ReplicaError> {
        let store = Store::open(&self.0, owner)?;
        Ok((store.log, store.machine))
    }

    fn flush(log: &LogStore) -> impl Future<Output = io::Result<()>> + Send {
        log.flush()
    }
}
