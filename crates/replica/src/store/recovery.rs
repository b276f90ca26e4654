//! Snapshots and identity, in sled; the only file that names it.
//!
//! A snapshot is a generation: its chunks first, then, once they are durable, the manifest that
//! makes it whole. The generation before stays until then, so at any moment one of them is whole
//! or none was ever promised. Opening takes the newest that verifies, from its first chunk to the
//! pool's digest, and removes what is left of others.
//!
//! One thread owns the database; everyone else asks it and awaits its answer, so that neither the
//! Raft core nor the state machine ever waits inside a call of sled. Removals go in small steps,
//! while nothing else is asked.
//!
//! **Durable before acknowledged**: sled's `flush` hands its pages to the kernel and asks for
//! `sync_file_range`, which neither waits for the disk's cache nor writes the file's length. So
//! [`Database::sync`] follows each flush with an `fdatasync` of its file, through a handle that is
//! kept open. Values stay below [`STORED_CHUNK_BYTES_MAX`], as larger ones are put into files of
//! their own that nobody syncs.
//!
//! Caveats: sled's own file only grows into space that it has freed before, so the folder is as
//! large as the two largest generations that it ever held. Its error reports are passed on as they
//! are.

use crate::ReplicaError;
use crate::format::record::{Kind, open, seal};
use crate::format::snapshot::{CHUNK_BYTES, Identity, Manifest, RowReader, STORED_CHUNK_BYTES_MAX};
use fermata_pool::Pool;
use fermata_pool::snapshot::Restore;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// Bytes of pages that sled keeps in memory.
const CACHE_BYTES: u64 = 64 << 20;
/// How often sled writes what nobody waits for; it also drives its collection of freed space.
const FLUSH_EVERY_MS: u64 = 500;
/// Chunks that are removed before the next request is looked for.
const REMOVE_CHUNKS_MAX: usize = 64;
/// Most bytes that one read gives.
pub const READ_BYTES_MAX: usize = 1 << 20;

const KEY_BEGUN: &[u8] = b"begun";
const KEY_IDENTITY: &[u8] = b"identity";

type Answer<T> = oneshot::Sender<Result<T, ReplicaError>>;

/// What the owner is asked.
#[derive(Debug)]
pub(crate) enum Request {
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

/// The handle with which snapshots are written and read.
#[derive(Clone, Debug)]
pub struct Recovery {
    requests: mpsc::Sender<Request>,
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
            let _ = self.recovery.requests.send(Request::Remove(self.number));
        }
    }
}

impl Recovery {
    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, ReplicaError> {
        let (answer, answered) = oneshot::channel();
        self.requests
            .send(request(answer))
            .map_err(|_| ReplicaError::Stopped)?;
        answered.await.unwrap_or(Err(ReplicaError::Stopped))
    }

    fn generation(&self, number: u64, superseded: bool) -> Arc<Generation> {
        Arc::new(Generation {
            number,
            superseded: AtomicBool::new(superseded),
            recovery: self.clone(),
        })
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

/// What was found at opening.
#[derive(Debug)]
pub struct Recovered {
    /// The snapshot's manifest.
    pub manifest: Manifest,
    /// Its stream.
    pub reader: SnapshotReader,
    /// The pool that it holds.
    pub pool: Pool,
}

/// Sled's database, before and inside the thread that owns it.
#[derive(Debug)]
pub(crate) struct Database {
    folder: PathBuf,
    db: sled::Db,
    chunks: sled::Tree,
    manifests: sled::Tree,
    /// The file that `db` is in, kept open to be synced.
    file: File,
    next: u64,
}

/// The folder of sled beside the log's.
pub(crate) const FOLDER: &str = "state";

/// True where there is a database.
pub(crate) fn exists(folder: &Path) -> bool {
    folder.join("db").exists()
}

impl Database {
    pub(crate) fn open(folder: &Path) -> Result<Database, ReplicaError> {
        let failed = |cause| sled_error(folder, cause);
        let db = sled::Config::new()
            .path(folder)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(Some(FLUSH_EVERY_MS))
            .open()
            .map_err(failed)?;
        let chunks = db.open_tree(b"chunks").map_err(failed)?;
        let manifests = db.open_tree(b"manifests").map_err(failed)?;
        let path = folder.join("db");
        let file = File::open(&path).map_err(ReplicaError::io("opening", &path))?;
        let mut next = 0;
        for tree in [&chunks, &manifests] {
            if let Some((key, _)) = tree.last().map_err(failed)? {
                next = next.max(key_number(&key) + 1);
            }
        }
        let database = Database {
            folder: folder.to_path_buf(),
            db,
            chunks,
            manifests,
            file,
            next,
        };
        database.sync()?;
        sync_tree(folder)?;
        Ok(database)
    }

    /// The identity, and whether the folder's making was finished under it.
    pub(crate) fn identity(&self) -> Result<Option<(Identity, bool)>, ReplicaError> {
        for (key, finished) in [(KEY_IDENTITY, true), (KEY_BEGUN, false)] {
            if let Some(bytes) = self.db.get(key).map_err(|cause| self.failed(cause))? {
                let identity = Identity::from_bytes(&bytes).map_err(|why| self.damaged(why))?;
                return Ok(Some((identity, finished)));
            }
        }
        Ok(None)
    }

    /// Notes whose folder is being made, or has been made; durable before this returns.
    pub(crate) fn set_identity(
        &self,
        identity: &Identity,
        finished: bool,
    ) -> Result<(), ReplicaError> {
        let key = if finished { KEY_IDENTITY } else { KEY_BEGUN };
        self.db
            .insert(key, identity.to_bytes()?)
            .map_err(|cause| self.failed(cause))?;
        self.sync()
    }

    /// The newest snapshot that is whole; none where none was ever made. Removes the others.
    ///
    /// # Errors
    /// There are snapshots, but none of them is whole.
    pub(crate) fn recover(&self, recovery: &Recovery) -> Result<Option<Recovered>, ReplicaError> {
        let mut fault = None;
        let mut manifests = Vec::new();
        for entry in &self.manifests {
            let (key, record) = entry.map_err(|cause| self.failed(cause))?;
            let generation = key_number(&key);
            match Manifest::from_bytes(&key, &record) {
                Ok(manifest) => manifests.push((manifest, generation)),
                Err(why) => fault = Some(self.damaged(format!("snapshot {generation}: {why}"))),
            }
        }
        // Not by generation: one that came from a peer may have been begun before, and finished
        // after, one that was made here.
        manifests.sort_by_key(|(manifest, generation)| (manifest.last, *generation));
        let mut found = None;
        while let Some((manifest, generation)) = manifests.pop() {
            match self.restore(generation, &manifest) {
                Ok(pool) => {
                    let reader = SnapshotReader {
                        generation: recovery.generation(generation, false),
                        bytes: manifest.bytes,
                        checksum: manifest.checksum,
                    };
                    found = Some(Recovered {
                        manifest,
                        reader,
                        pool,
                    });
                    break;
                }
                Err(error) => fault = Some(error),
            }
        }
        match (found, fault) {
            (None, Some(fault)) => Err(fault),
            (None, None) => Ok(None),
            (Some(found), fault) => {
                if let Some(error) = fault {
                    tracing::error!(%error, "a snapshot is not whole; the one before is used");
                }
                for (_, generation) in manifests {
                    self.remove_manifest(generation)?;
                }
                Ok(Some(found))
            }
        }
    }

    fn restore(&self, generation: u64, manifest: &Manifest) -> Result<Pool, ReplicaError> {
        let fault = |why| self.damaged(format!("snapshot {generation}: {why}"));
        let mut rows = RowRestore::default();
        for chunk in 0..manifest.chunks() {
            rows.push(&self.chunk(generation, chunk)?).map_err(fault)?;
        }
        rows.finish(manifest).map_err(fault)
    }

    fn chunk(&self, generation: u64, chunk: u64) -> Result<Vec<u8>, ReplicaError> {
        let place = chunk_key(generation, chunk);
        let record = self
            .chunks
            .get(place)
            .map_err(|cause| self.failed(cause))?
            .ok_or_else(|| {
                self.damaged(format!("chunk {chunk} of snapshot {generation} is missing"))
            })?;
        let (_version, body) = open(Kind::Chunk, &place, &record).map_err(|why| {
            self.damaged(format!("chunk {chunk} of snapshot {generation}: {why}"))
        })?;
        Ok(body.to_vec())
    }

    fn write(&self, generation: u64, first: u64, stream: &[u8]) -> Result<(), ReplicaError> {
        for (chunk, body) in (first..).zip(stream.chunks(CHUNK_BYTES)) {
            let place = chunk_key(generation, chunk);
            let record = seal(Kind::Chunk, &place, body);
            debug_assert!(record.len() <= STORED_CHUNK_BYTES_MAX);
            self.chunks
                .insert(place, record)
                .map_err(|cause| self.failed(cause))?;
        }
        Ok(())
    }

    fn complete(&self, generation: u64, manifest: &Manifest) -> Result<(), ReplicaError> {
        let place = generation.to_be_bytes();
        let record = manifest.to_bytes(&place)?;
        self.sync()?;
        self.manifests
            .insert(place, record)
            .map_err(|cause| self.failed(cause))?;
        self.sync()
    }

    fn read(&self, generation: u64, offset: u64, bytes: usize) -> Result<Vec<u8>, ReplicaError> {
        let chunk_bytes = CHUNK_BYTES as u64;
        let mut stream = Vec::with_capacity(bytes + 2 * CHUNK_BYTES);
        let skipped = (offset % chunk_bytes) as usize;
        for chunk in offset / chunk_bytes.. {
            if stream.len() >= skipped + bytes {
                break;
            }
            stream.extend_from_slice(&self.chunk(generation, chunk)?);
        }
        stream.truncate(skipped + bytes);
        stream.drain(..skipped);
        Ok(stream)
    }

    fn remove_manifest(&self, generation: u64) -> Result<(), ReplicaError> {
        self.manifests
            .remove(generation.to_be_bytes())
            .map_err(|cause| self.failed(cause))?;
        Ok(())
    }

    /// Removes some chunks of generations that are gone; false when none is left.
    fn remove_chunks(&self, generation: u64) -> Result<bool, ReplicaError> {
        let range = generation.to_be_bytes().to_vec()..(generation + 1).to_be_bytes().to_vec();
        let mut removed = 0;
        for key in self.chunks.range(range).keys().take(REMOVE_CHUNKS_MAX) {
            let key = key.map_err(|cause| self.failed(cause))?;
            self.chunks
                .remove(key)
                .map_err(|cause| self.failed(cause))?;
            removed += 1;
        }
        Ok(removed == REMOVE_CHUNKS_MAX)
    }

    /// Generations of which there are chunks but no manifest.
    fn leftovers(&self) -> Result<Vec<u64>, ReplicaError> {
        let mut found = Vec::new();
        let mut from = 0_u64;
        while let Some(key) = self
            .chunks
            .range(from.to_be_bytes().to_vec()..)
            .keys()
            .next()
        {
            let generation = key_number(&key.map_err(|cause| self.failed(cause))?);
            let whole = self
                .manifests
                .contains_key(generation.to_be_bytes())
                .map_err(|cause| self.failed(cause))?;
            if !whole {
                found.push(generation);
            }
            from = generation + 1;
        }
        Ok(found)
    }

    /// Makes everything durable that was inserted or removed before.
    fn sync(&self) -> Result<(), ReplicaError> {
        self.db.flush().map_err(|cause| self.failed(cause))?;
        self.file
            .sync_data()
            .map_err(ReplicaError::io("syncing", &self.folder.join("db")))?;
        let blobs = self.folder.join("blobs");
        if fs::read_dir(&blobs).is_ok_and(|mut files| files.next().is_some()) {
            sync_tree(&blobs)?;
        }
        Ok(())
    }

    /// Hands the database to a thread of its own.
    pub(crate) fn serve(self, requests: mpsc::Receiver<Request>) -> Result<(), ReplicaError> {
        let folder = self.folder.clone();
        let removals = self.leftovers()?;
        std::thread::Builder::new()
            .name("snapshots".to_owned())
            .spawn(move || self.run(&requests, removals))
            .map_err(ReplicaError::io("starting the thread that owns", &folder))?;
        Ok(())
    }

    fn run(mut self, requests: &mpsc::Receiver<Request>, mut removals: Vec<u64>) {
        loop {
            let request = if let Some(&generation) = removals.last() {
                match requests.try_recv() {
                    Ok(request) => request,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                    Err(mpsc::TryRecvError::Empty) => {
                        match self.remove_chunks(generation) {
                            Ok(true) => {}
                            Ok(false) => drop(removals.pop()),
                            Err(error) => {
                                tracing::error!(%error, "cannot remove an old snapshot");
                                return;
                            }
                        }
                        continue;
                    }
                }
            } else {
                match requests.recv() {
                    Ok(request) => request,
                    Err(mpsc::RecvError) => return,
                }
            };
            self.handle(request, &mut removals);
        }
    }

    fn handle(&mut self, request: Request, removals: &mut Vec<u64>) {
        // Who no longer waits for an answer has stopped.
        match request {
            Request::Begin(answer) => {
                let generation = self.next;
                self.next += 1;
                let _ = answer.send(Ok(generation));
            }
            Request::Write {
                generation,
                first,
                stream,
                answer,
            } => {
                let _ = answer.send(self.write(generation, first, &stream));
            }
            Request::Complete {
                generation,
                manifest,
                answer,
            } => {
                let _ = answer.send(self.complete(generation, &manifest));
            }
            Request::Read {
                generation,
                offset,
                bytes_max,
                answer,
            } => {
                let _ = answer.send(self.read(generation, offset, bytes_max));
            }
            Request::Remove(generation) => match self.remove_manifest(generation) {
                Ok(()) => removals.push(generation),
                Err(error) => tracing::error!(%error, "cannot remove an old snapshot"),
            },
        }
    }

    fn failed(&self, cause: sled::Error) -> ReplicaError {
        sled_error(&self.folder, cause)
    }

    fn damaged(&self, why: impl ToString) -> ReplicaError {
        ReplicaError::Damaged {
            file: self.folder.clone(),
            why: why.to_string(),
        }
    }
}

/// The handle to a database that is about to be served, and its end of the queue.
pub(crate) fn queue() -> (Recovery, mpsc::Receiver<Request>) {
    let (requests, receiver) = mpsc::channel();
    (Recovery { requests }, receiver)
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

fn chunk_key(generation: u64, chunk: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&generation.to_be_bytes());
    key[8..].copy_from_slice(&chunk.to_be_bytes());
    key
}

fn key_number(key: &[u8]) -> u64 {
    key.first_chunk::<8>()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Syncs every file and folder under one.
fn sync_tree(folder: &Path) -> Result<(), ReplicaError> {
    let entries = fs::read_dir(folder).map_err(ReplicaError::io("reading", folder))?;
    for entry in entries {
        let path = entry.map_err(ReplicaError::io("reading", folder))?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            super::folder::sync(&path)?;
        }
    }
    super::folder::sync(folder)
}

fn sled_error(folder: &Path, cause: sled::Error) -> ReplicaError {
    match cause {
        sled::Error::Corruption { .. } | sled::Error::ReportableBug(_) => ReplicaError::Damaged {
            file: folder.to_path_buf(),
            why: cause.to_string(),
        },
        other => ReplicaError::Sled {
            folder: folder.to_path_buf(),
            cause: Arc::new(other.into()),
        },
    }
}
