//! The log of one member: vote, entries, the committed index and what was purged, in one ordered
//! write-ahead log.
//!
//! One queue gives one order: whatever is written goes through [`RaftLog`] under one lock, and one
//! thread of its own writes and syncs in that order. So a finished vote or append vouches for all
//! that came before it, which is what openraft's single watermark of finished writes assumes.
//!
//! **Durable before acknowledged**: a vote is answered, and an append's callback is called, after
//! the `fdatasync` that follows its bytes. Truncations and the committed index are not waited for:
//! they ride along with the next append or vote, and losing them with it is harmless. A purge asks
//! for a sync, because only then files may be deleted, and does not wait for it either.
//!
//! After a failed write or sync the writing thread is gone, and every later call fails: what the
//! kernel kept of the lost pages is unknown, so nothing is tried again. openraft takes the first
//! such error as fatal.
//!
//! Caveats: a read of entries that have left the cache reads the disk under the shared side of the
//! lock; it is bounded by [`READ_BYTES_MAX`] where replication asks. Of several records that were
//! on their way when the power failed, a disk that writes pages out of order may leave a hole with
//! something behind it: that looks like damage and is refused like damage.

use super::folder::FolderLock;
use crate::ReplicaError;
use crate::format::log::{LogId, StoredPayload, Vote, payload_bytes};
use crate::raft::{self, LogEntry, TypeConfig};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{OptionalSend, type_config::alias};
use raft_log::api::raft_log_writer::RaftLogWriter;
use raft_log::codeq::Decode;
use raft_log::{RaftLog, RaftWalTypes};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::oneshot;

/// Bytes of a file of the log: small, as space comes back file by file.
pub const CHUNK_BYTES: usize = 16 << 20;
/// Bytes of entries that are kept in memory, beside those of the last file: enough for followers
/// that are a little behind. A purge lets go of all of them at once, on the task that everything
/// waits for; 64 MiB, which are close to a million launches, took 44 ms.
pub const CACHE_BYTES_MAX: usize = 8 << 20;
/// Entries that are kept in memory, beside those of the last file.
pub const CACHE_ENTRIES_MAX: usize = 100_000;
/// Bytes that may wait for the disk before those who write must wait.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of entries that one read for a follower gives; one entry may be larger, alone.
pub const READ_BYTES_MAX: u64 = 1 << 20;
/// What an entry takes beside its payload.
const ENTRY_OVERHEAD_BYTES: u64 = 32;
/// Bytes read at once when the log is opened.
const REPLAY_BUFFER_BYTES: usize = 1 << 20;

/// What the write-ahead log is told about us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTypes;

impl raft_log::Types for LogTypes {
    type LogId = LogId;
    type LogPayload = StoredPayload;
    type Vote = Vote;
    type Callback = Flushed;
    type UserData = ();

    fn log_index(log_id: &LogId) -> u64 {
        log_id.index
    }

    fn payload_size(payload: &StoredPayload) -> u64 {
        payload_bytes(&payload.0) + ENTRY_OVERHEAD_BYTES
    }
}

/// Who waits for a write to be durable. Told exactly once: where the writing thread dies first,
/// its queue is dropped, and that is told as an error.
#[derive(Default)]
pub struct Flushed(Option<Waiting>);

enum Waiting {
    Raft(IOFlushed<TypeConfig>),
    Call(oneshot::Sender<io::Result<()>>),
}

impl Flushed {
    fn tell(&mut self, result: io::Result<()>) {
        match self.0.take() {
            Some(Waiting::Raft(callback)) => callback.io_completed(result),
            // Who no longer waits, stopped.
            Some(Waiting::Call(sender)) => drop(sender.send(result)),
            None => {}
        }
    }
}

impl raft_log::Callback for Flushed {
    fn send(mut self, result: io::Result<()>) {
        self.tell(result);
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        self.tell(Err(stopped()));
    }
}

fn stopped() -> io::Error {
    io::Error::other("the log's writer has stopped: its disk failed")
}

/// The log, and the handles with which openraft reads it.
#[derive(Clone, Debug)]
pub struct LogStore {
    log: Arc<RwLock<RaftLog<LogTypes>>>,
    _lock: Arc<FolderLock>,
}

fn wal_config(folder: &Path) -> raft_log::Config {
    raft_log::Config {
        wal: raft_log::chunked_wal::Config {
            dir: folder.to_string_lossy().into_owned(),
            read_buffer_size: Some(REPLAY_BUFFER_BYTES),
            chunk_max_records: None,
            chunk_max_size: Some(CHUNK_BYTES),
            truncate_incomplete_record: Some(true),
            // The leader gathers already; waiting for more would only delay each sync.
            flush_batch_wait: Some(std::time::Duration::ZERO),
            flush_batch_max_items: None,
            flush_queue_max_bytes: Some(QUEUE_BYTES_MAX),
        },
        log_cache_max_items: Some(CACHE_ENTRIES_MAX),
        log_cache_capacity: Some(CACHE_BYTES_MAX),
    }
}

impl LogStore {
    /// Opens the log in a folder that exists, and makes durable what is read from it: a process
    /// may have been killed between writing and syncing.
    ///
    /// # Errors
    /// A file holds what a crash cannot have left, or cannot be read or written.
    pub(super) fn open(folder: &Path, lock: &Arc<FolderLock>) -> Result<LogStore, ReplicaError> {
        let config = wal_config(folder);
        let mut log = RaftLog::open(Arc::new(config.clone()))
            .map_err(|cause| explain(folder, &config.wal, cause))?;
        log.flush(true, None)
            .and_then(|()| log.wait_worker_idle())
            .map_err(ReplicaError::io("syncing", folder))?;
        Ok(LogStore {
            log: Arc::new(RwLock::new(log)),
            _lock: Arc::clone(lock),
        })
    }

    /// Bytes of all its files.
    #[must_use]
    pub fn bytes_on_disk(&self) -> u64 {
        self.read().on_disk_size()
    }

    /// The last entry that was purged; those before it are gone too.
    #[must_use]
    pub fn purged(&self) -> Option<raft::LogId> {
        self.read().log_state().purged().copied().map(Into::into)
    }

    /// Waits until everything that was written is durable; for a stop that was asked for.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn flush(&self) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.write()
            .flush(true, Some(Flushed(Some(Waiting::Call(sender)))))?;
        receiver.await.unwrap_or_else(|_| Err(stopped()))
    }

    #[expect(
        clippy::expect_used,
        reason = "a panic inside the log leaves it half changed; nobody may go on with it"
    )]
    fn read(&self) -> RwLockReadGuard<'_, RaftLog<LogTypes>> {
        self.log.read().expect("the log was left half changed")
    }

    #[expect(
        clippy::expect_used,
        reason = "a panic inside the log leaves it half changed; nobody may go on with it"
    )]
    fn write(&self) -> RwLockWriteGuard<'_, RaftLog<LogTypes>> {
        self.log.write().expect("the log was left half changed")
    }
}

/// Checks that the first file of a log has its beginning. The log takes a last file without one
/// for a file that was just being begun, which it removes; but where it is the only one, it was
/// durable before anything was acknowledged.
pub(super) fn check_beginning(file: &Path) -> Result<(), ReplicaError> {
    type Record = raft_log::WALRecord<RaftWalTypes<LogTypes>>;

    let reader = File::open(file).map_err(ReplicaError::io("opening", file))?;
    match Record::decode(&mut BufReader::new(reader)) {
        Ok(_) => Ok(()),
        Err(why) => Err(ReplicaError::Damaged {
            file: file.to_path_buf(),
            why: why.to_string(),
        }),
    }
}

/// Finds the file that an error at opening comes from.
fn explain(
    folder: &Path,
    config: &raft_log::chunked_wal::Config,
    cause: io::Error,
) -> ReplicaError {
    type Wal = raft_log::chunked_wal::ChunkedWal<RaftWalTypes<LogTypes>>;

    let repairable = !matches!(
        cause.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other
    );
    if repairable {
        return ReplicaError::io("opening the log in", folder)(cause);
    }
    let mut found = None;
    if let Ok(lock) = Wal::acquire_lock(config) {
        // What stops the search is the first damage, or a file that cannot be read at all.
        let _ = Wal::dump_records(config, &lock, |chunk, _ordinal, record| match record {
            Ok(_) => Ok(()),
            Err(why) => {
                let file = config.chunk_path(chunk).into();
                found.get_or_insert((file, why.to_string()));
                Ok(())
            }
        });
    }
    let (file, why) = found.unwrap_or_else(|| (folder.to_path_buf(), cause.to_string()));
    ReplicaError::Damaged { file, why }
}

fn entry((id, payload): (LogId, StoredPayload)) -> LogEntry {
    LogEntry::new(id.into(), payload.0)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<LogEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let from = match range.start_bound() {
            Bound::Included(&index) => index,
            Bound::Excluded(&index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&index) => index.saturating_add(1),
            Bound::Excluded(&index) => index,
            Bound::Unbounded => u64::MAX,
        };
        if from >= to {
            return Ok(Vec::new());
        }
        let log = self.read();
        log.read(from, to).map(|read| read.map(entry)).collect()
    }

    async fn read_vote(&mut self) -> io::Result<Option<raft::Vote>> {
        Ok(self.read().log_state().vote().copied().map(Into::into))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry>> {
        if start >= end {
            return Ok(Vec::new());
        }
        let log = self.read();
        let mut entries = Vec::new();
        let mut bytes = 0;
        for read in log.read(start, end) {
            let (id, payload) = read?;
            bytes += payload_bytes(&payload.0) + ENTRY_OVERHEAD_BYTES;
            if bytes > READ_BYTES_MAX && !entries.is_empty() {
                break;
            }
            entries.push(entry((id, payload)));
        }
        Ok(entries)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let log = self.read();
        let state = log.log_state();
        Ok(LogState {
            last_purged_log_id: state.purged().copied().map(Into::into),
            last_log_id: state.last().copied().map(Into::into),
        })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &alias::VoteOf<TypeConfig>) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut log = self.write();
            log.save_vote(vote.into())?;
            log.flush(true, Some(Flushed(Some(Waiting::Call(sender)))))?;
        }
        receiver.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Kept so that a restart applies what was known to be committed before it serves; an index
    /// that the log does not reach yet is left out, and learned again.
    async fn save_committed(&mut self, committed: Option<raft::LogId>) -> io::Result<()> {
        let Some(committed) = committed.map(LogId::from) else {
            return Ok(());
        };
        let mut log = self.write();
        let state = log.log_state();
        if Some(&committed) <= state.last() && Some(&committed) > state.committed() {
            log.commit(committed)?;
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<raft::LogId>> {
        Ok(self.read().log_state().committed().copied().map(Into::into))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let flushed = Flushed(Some(Waiting::Raft(callback)));
        let mut log = self.write();
        log.append(
            entries
                .into_iter()
                .map(|entry| (entry.log_id.into(), StoredPayload(entry.payload))),
        )?;
        log.flush(true, Some(flushed))
    }

    async fn truncate_after(&mut self, last: Option<raft::LogId>) -> io::Result<()> {
        let first_gone = last.map_or(0, |last| last.index + 1);
        let mut log = self.write();
        if log
            .log_state()
            .last()
            .is_some_and(|last| last.index >= first_gone)
        {
            log.truncate(first_gone)?;
        }
        Ok(())
    }

    async fn purge(&mut self, upto: raft::LogId) -> io::Result<()> {
        let mut log = self.write();
        log.purge(upto.into())?;
        log.flush(true, None)
    }
}
