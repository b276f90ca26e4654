//! Between openraft and the pool: an adapter, without a rule of its own.
//!
//! Entries are applied to the [`Pool`] one by one under a short lock that everyone who looks into
//! the state shares. What came of each goes to whoever proposed it, and as a hint to whoever
//! listens.
//!
//! A snapshot never stops the world: a walk of the pool begins between two entries, then hands
//! out [`ROWS_PER_STEP`] rows at a time while further entries are applied, and what it hands out is
//! the state as it was when it began. It never has the disk for longer than a step at a time, and
//! pauses as long as it had it: the log is there, too. A snapshot from a peer is read into a new pool beside the
//! old one, made durable, and put in its place under one lock: all or nothing.
//!
//! Caveats: while a snapshot is installed both pools are in memory. Blank and membership entries
//! are openraft's own; they move the last applied index and touch no pool.

use crate::ReplicaError;
use crate::digests::Trail;
use crate::format::FormatError;
use crate::format::log::MembershipRecord;
use crate::format::snapshot::{CHUNK_BYTES, Manifest, encode_row};
use crate::raft::{LogEntry, LogId, Response, SnapshotMeta, StoredMembership, TypeConfig};
use crate::spans;
use crate::store::snapshot::{READ_BYTES_MAX, RowRestore};
use crate::store::{Recovered, Recovery, SnapshotReader, SnapshotWriter};
use fermata_pool::Pool;
use fermata_pool::outcome::Applied;
use fermata_pool::state::FORMAT_LATEST;
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

/// Rows that a snapshot takes under one lock: well below a millisecond.
pub const ROWS_PER_STEP: usize = 500;
/// The longest pause between two steps of a snapshot.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Applied entries that a listener may be behind before it must ask the state again.
pub const EVENTS_MAX: usize = 4_096;

/// A snapshot, as openraft passes it around.
pub type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, SnapshotReader>;

/// The state, shared by the state machine and by all who look into it.
#[derive(Debug)]
pub struct Shared {
    machine: Mutex<Machine>,
    applied: watch::Sender<u64>,
    events: broadcast::Sender<Arc<Applied>>,
    /// Why this member must not go on, once it must not.
    halted: watch::Sender<Option<ReplicaError>>,
}

#[derive(Debug)]
struct Machine {
    pool: Pool,
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<(SnapshotMeta, SnapshotReader)>,
    /// Counts the snapshots that were installed: a walk belongs to the pool that it began in.
    installed: u64,
    growth: Growth,
    trail: Trail,
    /// The newest format of the state that this member knows.
    format_max: u32,
}

/// How far the log has outgrown the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Bytes of the entries that were applied since the last snapshot was begun.
    pub log_bytes: u64,
    /// Bytes of the last snapshot; 0: there is none.
    pub snapshot_bytes: u64,
}

impl Shared {
    /// Looks into the pool. The lock is held meanwhile: be short.
    pub fn read<R>(&self, look: impl FnOnce(&Pool) -> R) -> R {
        look(&self.lock().pool)
    }

    /// Looks into the pool as [`Shared::read`], and says up to which entry it was applied.
    pub fn read_applied<R>(&self, look: impl FnOnce(&Pool) -> R) -> (Option<u64>, R) {
        let machine = self.lock();
        (machine.applied.map(|id| id.index), look(&machine.pool))
    }

    /// The index of the last entry that was applied; 0 before the first.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// What comes of every entry from now on: hints, of which a slow listener misses some.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Arc<Applied>> {
        self.events.subscribe()
    }

    /// The digest of the state after an entry; none: it is not applied yet, or too long ago.
    pub(crate) fn digest_at(&self, index: u64) -> Option<u64> {
        self.lock().trail.at(index)
    }

    /// The last entry that was applied, and the digest of the state then.
    pub(crate) fn last_digest(&self) -> Option<(u64, u64)> {
        self.lock().trail.last()
    }

    /// Says which formats this member knows.
    ///
    /// # Errors
    /// The state has a newer one.
    pub(crate) fn know_formats(&self, format_max: u32) -> Result<(), ReplicaError> {
        let mut machine = self.lock();
        machine.format_max = format_max;
        machine.check_format()
    }

    /// This member must not go on; the first cause stays.
    pub(crate) fn halt(&self, cause: ReplicaError) {
        self.halted.send_if_modified(|halted| {
            let is_first = halted.is_none();
            if is_first {
                *halted = Some(cause);
            }
            is_first
        });
    }

    /// Why this member must not go on.
    pub(crate) fn halted(&self) -> watch::Receiver<Option<ReplicaError>> {
        self.halted.subscribe()
    }

    /// How far the log has outgrown the last snapshot.
    #[must_use]
    pub fn growth(&self) -> Growth {
        self.lock().growth
    }

    #[expect(
        clippy::expect_used,
        reason = "a panic while an entry is applied leaves half a state; nobody may look at it"
    )]
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine
            .lock()
            .expect("the state was left half changed")
    }
}

/// The state machine, for openraft.
#[derive(Debug)]
pub struct StateMachine {
    shared: Arc<Shared>,
    recovery: Recovery,
}

impl StateMachine {
    /// Begins with what was found on disk, or with nothing.
    ///
    /// # Errors
    /// The snapshot's membership contradicts itself.
    pub(crate) fn new(
        recovery: Recovery,
        recovered: Option<Recovered>,
    ) -> Result<StateMachine, ReplicaError> {
        let mut machine = Machine {
            pool: Pool::new(),
            applied: None,
            membership: StoredMembership::default(),
            snapshot: None,
            installed: 0,
            growth: Growth::default(),
            trail: Trail::default(),
            format_max: FORMAT_LATEST,
        };
        if let Some(found) = recovered {
            let meta = found.manifest.meta()?;
            let reader = recovery.reader(found.generation, &found.manifest);
            machine.replace(found.pool, &meta, reader);
        }
        let applied = watch::Sender::new(machine.applied.map_or(0, |id| id.index));
        Ok(StateMachine {
            shared: Arc::new(Shared {
                machine: Mutex::new(machine),
                applied,
                events: broadcast::Sender::new(EVENTS_MAX),
                halted: watch::Sender::new(None),
            }),
            recovery,
        })
    }

    /// Begins with a snapshot that is kept elsewhere than in a folder, or with nothing.
    ///
    /// # Errors
    /// The stream is not the one that the manifest tells of.
    pub fn recover(
        recovery: Recovery,
        snapshot: Option<(u64, Manifest, &[u8])>,
    ) -> Result<StateMachine, ReplicaError> {
        let recovered = match snapshot {
            None => None,
            Some((generation, manifest, stream)) => {
                let mut rows = RowRestore::default();
                rows.push(stream).map_err(FormatError::received)?;
                let pool = rows.finish(&manifest).map_err(FormatError::received)?;
                Some(Recovered {
                    manifest,
                    generation,
                    pool,
                })
            }
        };
        StateMachine::new(recovery, recovered)
    }

    /// The state, for those who look into it.
    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Where a snapshot that comes from a peer is written.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery.clone()
    }

    /// Applies one entry; `is_own`: this member proposed it, so it tells of the rates in it.
    fn apply_entry(&self, entry: &LogEntry, is_own: bool) -> Result<Response, ReplicaError> {
        let mut machine = self.shared.lock();
        machine.pool.record_rate_checks(is_own && spans::wanted());
        let applied = match &entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Normal(proposal) => {
                machine.growth.log_bytes += proposal.bytes().len() as u64;
                let applied = machine
                    .pool
                    .apply(entry.log_id.index, &proposal.take_entry()?);
                Some(Arc::new(applied))
            }
            EntryPayload::Membership(membership) => {
                machine.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                None
            }
        };
        machine.applied = Some(entry.log_id);
        let digest = machine.pool.digest();
        machine.trail.note(entry.log_id.index, digest);
        let known = machine.check_format();
        drop(machine);
        known.inspect_err(|error| self.shared.halt(error.clone()))?;
        self.shared.applied.send_replace(entry.log_id.index);
        if let Some(applied) = &applied {
            spans::emit(&applied.checks);
            // Nobody listens: then nobody misses it.
            let _ = self.shared.events.send(Arc::clone(applied));
        }
        Ok(Response(applied))
    }

    fn begin_snapshot(&self) -> SnapshotBuilder {
        let mut machine = self.shared.lock();
        SnapshotBuilder {
            begun: machine.pool.begin_walk().is_ok(),
            shared: Arc::clone(&self.shared),
            recovery: self.recovery.clone(),
            applied: machine.applied,
            membership: machine.membership.clone(),
            log_bytes: machine.growth.log_bytes,
            installed: machine.installed,
        }
    }
}

impl Machine {
    /// What a newer program has made of the state, this one cannot go on with.
    fn check_format(&self) -> Result<(), ReplicaError> {
        let (format, most) = (self.pool.format(), self.format_max);
        if format > most {
            return Err(ReplicaError::TooNew { format, most });
        }
        Ok(())
    }

    fn replace(&mut self, pool: Pool, meta: &SnapshotMeta, reader: SnapshotReader) {
        self.pool = pool;
        self.applied = meta.last_log_id;
        self.trail = Trail::default();
        if let Some(last) = meta.last_log_id {
            self.trail.note(last.index, self.pool.digest());
        }
        self.membership = meta.last_membership.clone();
        self.growth.log_bytes = 0;
        self.keep(meta.clone(), reader);
    }

    fn keep(&mut self, meta: SnapshotMeta, reader: SnapshotReader) {
        self.growth.snapshot_bytes = reader.bytes();
        if let Some((_, old)) = self.snapshot.replace((meta, reader)) {
            old.supersede();
        }
    }

    fn current(&self) -> Option<Snapshot> {
        self.snapshot
            .clone()
            .map(|(meta, snapshot)| Snapshot { meta, snapshot })
    }
}

fn manifest(meta: &SnapshotMeta, reader: &SnapshotReader, rows: u64) -> Manifest {
    Manifest {
        last: meta.last_log_id.map(Into::into),
        membership_at: meta.last_membership.log_id().map(Into::into),
        membership: MembershipRecord::from(meta.last_membership.membership()),
        rows,
        bytes: reader.bytes(),
        checksum: reader.checksum(),
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotReader;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let machine = self.shared.lock();
        Ok((machine.applied, machine.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let response = self.apply_entry(&entry, responder.is_some())?;
            if let Some(responder) = responder {
                responder.send(response);
            }
        }
        Ok(())
    }

    /// None while another one is being built.
    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<SnapshotBuilder> {
        Some(self.begin_snapshot()).filter(|builder| builder.begun || force)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        self.begin_snapshot()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotReader,
    ) -> io::Result<()> {
        if meta.last_log_id <= self.shared.lock().applied {
            // It was installed before, or says less than is known.
            return Ok(());
        }
        let mut rows = RowRestore::default();
        let mut offset = 0;
        while offset < snapshot.bytes() {
            let piece = snapshot.read(offset, READ_BYTES_MAX).await?;
            offset += piece.len() as u64;
            for part in piece.chunks(CHUNK_BYTES) {
                rows.push(part).map_err(FormatError::received)?;
            }
            tokio::task::yield_now().await;
        }
        let manifest = manifest(meta, &snapshot, rows.rows);
        let pool = rows.finish(&manifest).map_err(FormatError::received)?;
        snapshot.complete(manifest).await?;
        let mut machine = self.shared.lock();
        machine.installed += 1;
        let old = std::mem::take(&mut machine.pool);
        machine.replace(pool, meta, snapshot);
        let known = machine.check_format();
        drop(machine);
        known.inspect_err(|error| self.shared.halt(error.clone()))?;
        drop(old);
        self.shared
            .applied
            .send_replace(meta.last_log_id.map_or(0, |id| id.index));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        Ok(self.shared.lock().current())
    }
}

/// A snapshot in the making: the state as it was when this was made.
#[derive(Debug)]
pub struct SnapshotBuilder {
    /// False where another one walks the pool.
    begun: bool,
    shared: Arc<Shared>,
    recovery: Recovery,
    applied: Option<LogId>,
    membership: StoredMembership,
    log_bytes: u64,
    installed: u64,
}

impl SnapshotBuilder {
    /// Walks the whole pool; none where a snapshot was installed meanwhile.
    async fn walk(&self, writer: &mut SnapshotWriter) -> Result<Option<u64>, ReplicaError> {
        let mut rows = 0;
        let mut stream = Vec::new();
        loop {
            let mut fault = None;
            let more = {
                let mut machine = self.shared.lock();
                if machine.installed != self.installed {
                    return Ok(None);
                }
                machine.pool.walk(ROWS_PER_STEP, &mut |row| {
                    rows += 1;
                    if let Err(error) = encode_row(row, &mut stream) {
                        fault.get_or_insert(error);
                    }
                })
            };
            if let Some(fault) = fault {
                return Err(fault.into());
            }
            let begun = Instant::now();
            writer.write(&stream).await?;
            stream.clear();
            if !more {
                return Ok(Some(rows));
            }
            // The log has the disk to itself for as long as the snapshot had a part of it.
            tokio::time::sleep(begun.elapsed().min(PAUSE_MAX)).await;
        }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotReader;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        if !self.begun {
            return Err(io::Error::other("another snapshot is being built"));
        }
        let mut writer = self.recovery.begin().await?;
        if let Some(rows) = self.walk(&mut writer).await? {
            let reader = writer.finish().await?;
            let meta = SnapshotMeta {
                last_log_id: self.applied,
                last_membership: self.membership.clone(),
            };
            reader.complete(manifest(&meta, &reader, rows)).await?;
            let mut machine = self.shared.lock();
            if machine.installed == self.installed {
                machine.growth.log_bytes -= self.log_bytes;
                machine.keep(meta.clone(), reader.clone());
                return Ok(Snapshot {
                    meta,
                    snapshot: reader,
                });
            }
            reader.supersede();
        }
        // A snapshot was installed meanwhile: it covers more.
        self.shared
            .lock()
            .current()
            .ok_or_else(|| ReplicaError::Stopped.into())
    }
}

impl Drop for SnapshotBuilder {
    fn drop(&mut self) {
        let mut machine = self.shared.lock();
        if self.begun && machine.installed == self.installed {
            machine.pool.end_walk();
        }
    }
}
