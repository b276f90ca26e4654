//! Snapshots, as the rest of the replica handles them: begun, written, finished, read, superseded.
//!
//! A snapshot is a generation in the database that [`super::recovery`] owns. These handles ask its
//! owner and await the answer; a generation is there for as long as it is the newest, or somebody
//! holds a handle to it: a follower that is being sent one never sees it vanish.

use super::folder::FolderLock;
use super::recovery::Database;
use crate::ReplicaError;
use crate::format::snapshot::{CHUNK_BYTES, Manifest, RowReader};
use fermata_pool::Pool;
use fermata_pool::snapshot::Restore;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Requests that may wait for the owner. Whoever asks awaits the answer before it asks again, so
/// this many ask at once only in error; one more would block its thread until the owner gets to it.
const REQUESTS_MAX: usize = 1_024;
/// Most bytes that one read gives.
pub const READ_BYTES_MAX: usize = 1 << 20;

type Answer<T> = oneshot::Sender<Result<T, ReplicaError>>;

/// What the owner is asked.
#[derive(Debug)]
pub(super) enum Request {
    Begin(Answer<u64>),
    Write {
        generation: u64,
        first: u64,
        stream: Vec<u8>,
        answer: Answer<()>,
    },
    Complete {
        generation: u64,
        manifest: Box<Manifest>,
        answer: Answer<()>,
    },
    Read {
        generation: u64,
        offset: u64,
        bytes_max: usize,
        answer: Answer<Vec<u8>>,
    },
    Remove(u64),
}

impl Request {
    /// Does it at once; who no longer waits for the answer has stopped.
    fn do_with(self, generations: &mut dyn Generations) {
        match self {
            Request::Begin(answer) => drop(answer.send(generations.begin())),
            Request::Write {
                generation,
                stream,
                answer,
                ..
            } => drop(answer.send(generations.write(generation, &stream))),
            Request::Complete {
                generation,
                manifest,
                answer,
            } => drop(answer.send(generations.complete(generation, &manifest))),
            Request::Read {
                generation,
                offset,
                bytes_max,
                answer,
            } => drop(answer.send(generations.read(generation, offset, bytes_max))),
            Request::Remove(generation) => generations.remove(generation),
        }
    }
}

/// Where generations of snapshots are kept, if not in the folder's database: what a simulation has
/// instead. Each call is done when it returns, and then durable.
pub trait Generations: Debug + Send {
    /// The number of a new generation.
    ///
    /// # Errors
    /// As for all of these: what is kept cannot be reached.
    fn begin(&mut self) -> Result<u64, ReplicaError>;

    /// Adds to a generation's stream.
    ///
    /// # Errors
    /// As [`Generations::begin`].
    fn write(&mut self, generation: u64, stream: &[u8]) -> Result<(), ReplicaError>;

    /// Makes a generation a snapshot.
    ///
    /// # Errors
    /// As [`Generations::begin`].
    fn complete(&mut self, generation: u64, manifest: &Manifest) -> Result<(), ReplicaError>;

    /// Up to so many bytes of a generation's stream from a place on.
    ///
    /// # Errors
    /// As [`Generations::begin`].
    fn read(&self, generation: u64, offset: u64, bytes_max: usize)
    -> Result<Vec<u8>, ReplicaError>;

    /// Forgets a generation.
    fn remove(&mut self, generation: u64);
}

/// The handle with which snapshots are written and read. With the last of them the database is
/// closed.
#[derive(Clone, Debug)]
pub struct Recovery {
    owner: Owner,
}

#[derive(Clone, Debug)]
enum Owner {
    Thread(Arc<OwnerThread>),
    Elsewhere(Arc<Mutex<dyn Generations>>),
}

/// The thread that owns the database, and the folder's lock, which outlives it.
#[derive(Debug)]
struct OwnerThread {
    requests: Option<mpsc::SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
    _lock: Arc<FolderLock>,
}

impl Drop for OwnerThread {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // It panicked: that was reported where it happened, and every request since failed.
            let _ = thread.join();
        }
    }
}

/// A generation that is there until the last handle to it is dropped, if it was superseded.
#[derive(Debug)]
struct Generation {
    number: u64,
    superseded: AtomicBool,
    recovery: Recovery,
}

impl Drop for Generation {
    fn drop(&mut self) {
        if *self.superseded.get_mut() {
            // Where the owner has stopped, the next opening removes it.
            let _ = self.recovery.send(Request::Remove(self.number));
        }
    }
}

impl Recovery {
    /// Hands a database to a thread of its own.
    pub(super) fn serve(
        database: Database,
        lock: Arc<FolderLock>,
    ) -> Result<Recovery, ReplicaError> {
        let (requests, receiver) = mpsc::sync_channel(REQUESTS_MAX);
        let thread = database.serve(receiver)?;
        Ok(Recovery {
            owner: Owner::Thread(Arc::new(OwnerThread {
                requests: Some(requests),
                thread: Some(thread),
                _lock: lock,
            })),
        })
    }

    /// Keeps them elsewhere than in a folder.
    #[must_use]
    pub fn elsewhere(generations: Arc<Mutex<dyn Generations>>) -> Recovery {
        Recovery {
            owner: Owner::Elsewhere(generations),
        }
    }

    fn send(&self, request: Request) -> Result<(), ReplicaError> {
        match &self.owner {
            Owner::Thread(thread) => thread
                .requests
                .as_ref()
                .and_then(|requests| requests.send(request).ok())
                .ok_or(ReplicaError::Stopped),
            Owner::Elsewhere(generations) => {
                let mut generations = generations.lock().unwrap_or_else(PoisonError::into_inner);
                request.do_with(&mut *generations);
                Ok(())
            }
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, ReplicaError> {
        let (answer, answered) = oneshot::channel();
        self.send(request(answer))?;
        answered.await.unwrap_or(Err(ReplicaError::Stopped))
    }

    fn generation(&self, number: u64, superseded: bool) -> Arc<Generation> {
        Arc::new(Generation {
            number,
            superseded: AtomicBool::new(superseded),
            recovery: self.clone(),
        })
    }

    /// The snapshot that was found at opening.
    pub(crate) fn reader(&self, generation: u64, manifest: &Manifest) -> SnapshotReader {
        SnapshotReader {
            generation: self.generation(generation, false),
            bytes: manifest.bytes,
            checksum: manifest.checksum,
        }
    }

    /// Begins a generation, to be filled by a walk of the pool or from a peer. Dropped before it
    /// is finished, it is removed.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn begin(&self) -> Result<SnapshotWriter, ReplicaError> {
        let number = self.ask(Request::Begin).await?;
        Ok(SnapshotWriter {
            generation: self.generation(number, true),
            pending: Vec::new(),
            chunks: 0,
            bytes: 0,
            checksum: crc32fast::Hasher::new(),
        })
    }
}

/// Takes the stream of a snapshot, in pieces of any length.
#[derive(Debug)]
pub struct SnapshotWriter {
    generation: Arc<Generation>,
    pending: Vec<u8>,
    chunks: u64,
    bytes: u64,
    checksum: crc32fast::Hasher,
}

impl SnapshotWriter {
    /// Adds the next piece of the stream; at most a chunk of it is held back.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), ReplicaError> {
        self.bytes += piece.len() as u64;
        self.checksum.update(piece);
        self.pending.extend_from_slice(piece);
        let whole = self.pending.len() - self.pending.len() % CHUNK_BYTES;
        if whole == 0 {
            return Ok(());
        }
        let rest = self.pending.split_off(whole);
        let stream = std::mem::replace(&mut self.pending, rest);
        self.store(stream).await
    }

    async fn store(&mut self, stream: Vec<u8>) -> Result<(), ReplicaError> {
        let first = self.chunks;
        let generation = self.generation.number;
        self.chunks += stream.len().div_ceil(CHUNK_BYTES) as u64;
        let write = |answer| Request::Write {
            generation,
            first,
            stream,
            answer,
        };
        self.generation.recovery.ask(write).await
    }

    /// Ends the stream. What is read from then on is no snapshot before its manifest is there.
    ///
    /// # Errors
    /// The disk failed.
    pub async fn finish(mut self) -> Result<SnapshotReader, ReplicaError> {
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.store(rest).await?;
        }
        Ok(SnapshotReader {
            generation: self.generation,
            bytes: self.bytes,
            checksum: self.checksum.finalize(),
        })
    }
}

/// A snapshot's stream, readable from any place; what openraft passes around as its data.
#[derive(Clone, Debug)]
pub struct SnapshotReader {
    generation: Arc<Generation>,
    bytes: u64,
    checksum: u32,
}

impl PartialEq for SnapshotReader {
    fn eq(&self, other: &Self) -> bool {
        self.generation.number == other.generation.number
    }
}

impl SnapshotReader {
    /// Length of the stream.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// crc32 of the stream.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// What the stream holds from `offset` on: at most `bytes_max` and [`READ_BYTES_MAX`], and
    /// nothing only at its end.
    ///
    /// # Errors
    /// The disk failed, or a chunk is damaged.
    pub async fn read(&self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, ReplicaError> {
        let left = self.bytes.saturating_sub(offset);
        let bytes_max = bytes_max
            .min(READ_BYTES_MAX)
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        if bytes_max == 0 {
            return Ok(Vec::new());
        }
        let generation = self.generation.number;
        let read = |answer| Request::Read {
            generation,
            offset,
            bytes_max,
            answer,
        };
        self.generation.recovery.ask(read).await
    }

    /// Makes the generation a snapshot: durable with its manifest, before this returns.
    pub(crate) async fn complete(&self, manifest: Manifest) -> Result<(), ReplicaError> {
        let complete = |answer| Request::Complete {
            generation: self.generation.number,
            manifest: Box::new(manifest),
            answer,
        };
        self.generation.recovery.ask(complete).await?;
        self.generation.superseded.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// A newer one is durable: this one goes when its last reader is done.
    pub(crate) fn supersede(&self) {
        self.generation.superseded.store(true, Ordering::Relaxed);
    }
}

/// Makes a pool of a stream that comes in pieces, and checks that it is the whole of it.
#[derive(Debug, Default)]
pub(crate) struct RowRestore {
    reader: RowReader,
    restore: Restore,
    checksum: crc32fast::Hasher,
    pub(crate) rows: u64,
    bytes: u64,
}

impl RowRestore {
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), String> {
        self.bytes += piece.len() as u64;
        self.checksum.update(piece);
        self.reader.push(piece);
        while let Some(row) = self.reader.next_row().map_err(|why| why.to_string())? {
            self.rows += 1;
            self.restore.push(row).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    pub(crate) fn finish(self, manifest: &Manifest) -> Result<Pool, String> {
        let found = (self.rows, self.bytes, self.checksum.finalize());
        let wanted = (manifest.rows, manifest.bytes, manifest.checksum);
        if found != wanted || !self.reader.is_empty() {
            return Err(format!(
                "rows, bytes and checksum are {found:?}, but {wanted:?} were written"
            ));
        }
        self.restore.finish().map_err(|why| why.to_string())
    }
}
