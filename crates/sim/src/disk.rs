//! The simulated disk of one member: what was written, and what of it a crash leaves.
//!
//! Writes go in order, as into a write-ahead log, and are durable once a sync after them is over,
//! which takes a while. A crash leaves what was durable and a part of what came after it, cut
//! anywhere. A disk that fails refuses every sync from then on.
//!
//! Snapshots are durable when the call returns. Caveat: so their writing is not cut in the middle;
//! that is tested on the real store.

use crate::log::Log;
use crate::trace::{Kind, Trace};
use fermata_replica::ReplicaError;
use fermata_replica::format::snapshot::Manifest;
use fermata_replica::raft::{LogEntry, LogId, Vote};
use fermata_replica::state_machine::StateMachine;
use fermata_replica::store::{self, Generations, Owner, Recovery};
use openraft::EntryPayload;
use openraft::storage::IOFlushed;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a sync takes at most while a disk is well, in microseconds.
const SYNC_US_MAX: u64 = 2_000;

/// One write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// The vote.
    Vote(Vote),
    /// An entry at the end of the log.
    Append(LogEntry),
    /// Entries after this one go.
    Truncate(Option<LogId>),
    /// Entries up to this one go.
    Purge(LogId),
    /// What is known to be committed.
    Commit(LogId),
}

/// What lies in a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) vote: Option<Vote>,
    pub(crate) entries: BTreeMap<u64, LogEntry>,
    pub(crate) purged: Option<LogId>,
    pub(crate) committed: Option<LogId>,
}

impl Contents {
    fn take(&mut self, write: Write) {
        match write {
            Write::Vote(vote) => self.vote = Some(vote),
            Write::Append(entry) => {
                self.entries.insert(entry.log_id.index, entry);
            }
            Write::Truncate(last) => {
                let first = last.map_or(0, |last| last.index + 1);
                self.entries.split_off(&first);
            }
            Write::Purge(upto) => {
                self.entries = self.entries.split_off(&(upto.index + 1));
                self.purged = Some(upto);
            }
            Write::Commit(id) => self.committed = Some(id),
        }
    }

    /// The last entry, or the last that was purged.
    pub(crate) fn last(&self) -> Option<LogId> {
        let last = self.entries.last_key_value();
        last.map(|(_, entry)| entry.log_id).or(self.purged)
    }
}

/// A snapshot: its stream, and its manifest once it is whole.
#[derive(Clone, Debug, Default)]
struct Generation {
    stream: Vec<u8>,
    manifest: Option<Manifest>,
}

/// A disk; a clone is the same one.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    host: String,
    trace: Trace,
    random: StdRng,
    cluster: Option<u128>,
    /// As the member sees it.
    live: Contents,
    /// As a crash would leave it at least.
    durable: Contents,
    /// What came since, in order.
    pending: VecDeque<Write>,
    /// Counts what was ever written, and what of it is durable.
    written: u64,
    synced: u64,
    /// When the last sync that was asked for is over.
    busy_until: Option<Instant>,
    slow: Duration,
    fails: bool,
    generations: BTreeMap<u64, Generation>,
}

impl Disk {
    /// An empty one.
    pub(crate) fn new(host: &str, trace: Trace, seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            host: host.to_owned(),
            trace,
            random: StdRng::seed_from_u64(seed),
            cluster: None,
            live: Contents::default(),
            durable: Contents::default(),
            pending: VecDeque::new(),
            written: 0,
            synced: 0,
            busy_until: None,
            slow: Duration::ZERO,
            fails: false,
            generations: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the log as its member sees it.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Contents) -> R) -> R {
        look(&self.lock().live)
    }

    /// Writes, in order; not durable yet.
    pub(crate) fn write(&self, writes: impl IntoIterator<Item = Write>) {
        let mut state = self.lock();
        for write in writes {
            state.note(&write);
            state.live.take(write.clone());
            state.pending.push_back(write);
            state.written += 1;
        }
    }

    /// Makes durable what was written so far. The sync is under way when this returns; what is
    /// returned waits for its end.
    pub(crate) fn sync(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let (upto, over) = {
            let mut state = self.lock();
            let takes = Duration::from_micros(state.random.random_range(50..SYNC_US_MAX));
            let from = state
                .busy_until
                .map_or(Instant::now(), |at| at.max(Instant::now()));
            let over = from + takes + state.slow;
            state.busy_until = Some(over);
            (state.written, over)
        };
        let disk = self.clone();
        async move {
            tokio::time::sleep_until(over).await;
            disk.lock().have_synced(upto)
        }
    }

    /// The same, with nobody waiting but a callback.
    pub(crate) fn sync_then(&self, callback: IOFlushed<fermata_replica::raft::TypeConfig>) {
        let syncing = self.sync();
        tokio::spawn(async move { callback.io_completed(syncing.await) });
    }

    /// The power fails: what is left of the log is what was durable, and some of what came after.
    pub(crate) fn crash(&self) {
        let mut state = self.lock();
        let pending = state.pending.len();
        let survives = state.random.random_range(0..=pending);
        let survivors: Vec<Write> = state.pending.drain(..survives).collect();
        for write in survivors {
            state.durable.take(write);
        }
        state.pending.clear();
        state.live = state.durable.clone();
        state.written = 0;
        state.synced = 0;
        state.busy_until = None;
        state.fails = false;
        state.generations.retain(|_, one| one.manifest.is_some());
    }

    /// From now on syncs take so much longer.
    pub(crate) fn set_slow(&self, slow: Duration) {
        self.lock().slow = slow;
    }

    /// From now on every sync fails, until the crash that comes of it.
    pub(crate) fn fail(&self) {
        self.lock().fails = true;
    }
}

impl State {
    fn note(&self, write: &Write) {
        let told = match write {
            Write::Append(entry) => match &entry.payload {
                EntryPayload::Normal(proposal) => {
                    let mut told = format!("{} ", entry.log_id).into_bytes();
                    told.extend_from_slice(proposal.bytes());
                    told
                }
                other => format!("{} {other}", entry.log_id).into_bytes(),
            },
            Write::Vote(vote) => format!("vote {vote}").into_bytes(),
            Write::Truncate(last) => format!("truncate {last:?}").into_bytes(),
            Write::Purge(upto) => format!("purge {upto}").into_bytes(),
            Write::Commit(id) => format!("commit {id}").into_bytes(),
        };
        self.trace.note(Kind::Write, &self.host, &told);
    }

    fn have_synced(&mut self, upto: u64) -> io::Result<()> {
        if self.fails {
            return Err(io::Error::other("the simulated disk fails"));
        }
        while self.synced < upto {
            let Some(write) = self.pending.pop_front() else {
                break;
            };
            self.durable.take(write);
            self.synced += 1;
        }
        Ok(())
    }
}

impl store::Disk for Disk {
    type Log = Log;

    fn cluster(&self) -> Result<Option<u128>, ReplicaError> {
        Ok(self.lock().cluster)
    }

    fn open(self, owner: Owner) -> Result<(Log, StateMachine), ReplicaError> {
        let newest = {
            let mut state = self.lock();
            state.cluster = Some(owner.cluster);
            let whole = state.generations.iter().filter_map(|(number, generation)| {
                let manifest = generation.manifest.clone()?;
                Some((*number, manifest, generation.stream.clone()))
            });
            whole.max_by_key(|(number, manifest, _)| (manifest.last, *number))
        };
        let recovery = Recovery::elsewhere(Arc::new(Mutex::new(Shelf(self.clone()))));
        let newest = newest
            .as_ref()
            .map(|(number, manifest, stream)| (*number, manifest.clone(), stream.as_slice()));
        let machine = StateMachine::recover(recovery, newest)?;
        Ok((Log(self), machine))
    }

    async fn flush(log: &Log) -> io::Result<()> {
        log.0.sync().await
    }
}

/// The snapshots of a disk.
#[derive(Debug)]
struct Shelf(Disk);

impl Generations for Shelf {
    fn begin(&mut self) -> Result<u64, ReplicaError> {
        let mut state = self.0.lock();
        let number = state
            .generations
            .last_key_value()
            .map_or(1, |(last, _)| last + 1);
        state.generations.insert(number, Generation::default());
        Ok(number)
    }

    fn write(&mut self, generation: u64, stream: &[u8]) -> Result<(), ReplicaError> {
        let mut state = self.0.lock();
        state.trace.note(Kind::Write, &state.host, stream);
        let generation = state.generations.entry(generation).or_default();
        generation.stream.extend_from_slice(stream);
        Ok(())
    }

    fn complete(&mut self, generation: u64, manifest: &Manifest) -> Result<(), ReplicaError> {
        let mut state = self.0.lock();
        let generation = state.generations.entry(generation).or_default();
        generation.manifest = Some(manifest.clone());
        Ok(())
    }

    fn read(
        &self,
        generation: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, ReplicaError> {
        let state = self.0.lock();
        let stream = state.generations.get(&generation).map(|one| &one.stream);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = stream
            .and_then(|stream| stream.get(offset..))
            .unwrap_or(&[]);
        Ok(rest[..rest.len().min(bytes_max)].to_vec())
    }

    fn remove(&mut self, generation: u64) {
        self.0.lock().generations.remove(&generation);
    }
}
