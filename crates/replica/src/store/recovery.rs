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
//! Caveats: sled gives the space of what was removed to what is written next, but does not give it
//! back: the folder stays at about two and a half times its largest snapshot. Its error reports
//! are passed on as they are.

use super::folder;
use super::snapshot::{Request, RowRestore};
use crate::ReplicaError;
use crate::format::record::{Kind, open, seal};
use crate::format::snapshot::{CHUNK_BYTES, Identity, Manifest, STORED_CHUNK_BYTES_MAX};
use fermata_pool::Pool;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of pages that sled keeps in memory.
const CACHE_BYTES: u64 = 64 << 20;
/// How often sled writes what nobody waits for; it also drives its collection of freed space.
const FLUSH_EVERY_MS: u64 = 500;
/// Bytes of a snapshot after which what was written is made durable. The log is on the same disk,
/// and an entry's `fdatasync` waits behind everything that was handed to it before: a whole
/// snapshot handed over at once holds entries up for hundreds of milliseconds.
const SYNC_EVERY_BYTES: usize = 256 << 10;
/// Chunks that are removed before the next request is looked for.
const REMOVE_CHUNKS_MAX: usize = 64;

const KEY_BEGUN: &[u8] = b"begun";
const KEY_IDENTITY: &[u8] = b"identity";

/// What was found at opening.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The snapshot's manifest.
    pub(crate) manifest: Manifest,
    /// Which generation it is.
    pub(crate) generation: u64,
    /// The pool that it holds.
    pub(crate) pool: Pool,
}

/// Sled's database, before and inside the thread that owns it.
#[derive(Debug)]
pub(super) struct Database {
    folder: PathBuf,
    db: sled::Db,
    chunks: sled::Tree,
    manifests: sled::Tree,
    /// The file that `db` is in, kept open to be synced.
    file: File,
    next: u64,
    /// Bytes of snapshots that were written since the last sync.
    unsynced_bytes: usize,
}

/// The folder of sled beside the log's.
pub(super) const FOLDER: &str = "state";

/// True where there is a database.
pub(super) fn exists(folder: &Path) -> bool {
    folder.join("db").exists()
}

impl Database {
    pub(super) fn open(folder: &Path) -> Result<Database, ReplicaError> {
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
            unsynced_bytes: 0,
        };
        database.sync()?;
        sync_tree(folder)?;
        Ok(database)
    }

    /// The identity, and whether the folder's making was finished under it.
    pub(super) fn identity(&self) -> Result<Option<(Identity, bool)>, ReplicaError> {
        for (key, finished) in [(KEY_IDENTITY, true), (KEY_BEGUN, false)] {
            if let Some(bytes) = self.db.get(key).map_err(|cause| self.failed(cause))? {
                let identity = Identity::from_bytes(&bytes)
                    .map_err(|why| self.damaged(format!("whose it is: {why}")))?;
                return Ok(Some((identity, finished)));
            }
        }
        Ok(None)
    }

    /// Notes whose folder is being made, or has been made; durable before this returns.
    pub(super) fn set_identity(
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
    pub(super) fn recover(&self) -> Result<Option<Recovered>, ReplicaError> {
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
                    found = Some(Recovered {
                        manifest,
                        generation,
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

    /// Every snapshot that was promised, read whole and held against its manifest; nothing is
    /// removed.
    pub(super) fn verified(&self) -> Result<Vec<Result<Manifest, ReplicaError>>, ReplicaError> {
        let mut found = Vec::new();
        for entry in &self.manifests {
            let (key, record) = entry.map_err(|cause| self.failed(cause))?;
            let generation = key_number(&key);
            let manifest = Manifest::from_bytes(&key, &record)
                .map_err(|why| self.damaged(format!("snapshot {generation}: {why}")));
            found.push(manifest.and_then(|manifest| {
                self.restore(generation, &manifest)?;
                Ok(manifest)
            }));
        }
        Ok(found)
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

    /// The number of a new generation. What is left of old ones goes first, so that they never
    /// pile up.
    fn begin(&mut self, removals: &mut Vec<u64>) -> Result<u64, ReplicaError> {
        while let Some(&generation) = removals.last() {
            while self.remove_chunks(generation)? {}
            removals.pop();
        }
        let generation = self.next;
        self.next += 1;
        Ok(generation)
    }

    fn write(&mut self, generation: u64, first: u64, stream: &[u8]) -> Result<(), ReplicaError> {
        for (chunk, body) in (first..).zip(stream.chunks(CHUNK_BYTES)) {
            let place = chunk_key(generation, chunk);
            let record = seal(Kind::Chunk, &place, body);
            debug_assert!(record.len() <= STORED_CHUNK_BYTES_MAX);
            self.chunks
                .insert(place, record)
                .map_err(|cause| self.failed(cause))?;
        }
        self.unsynced_bytes += stream.len();
        if self.unsynced_bytes >= SYNC_EVERY_BYTES {
            self.sync()?;
            self.unsynced_bytes = 0;
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

    /// As [`Database::remove_chunks`], with what was removed made durable, so that the disk is
    /// never given much at a time.
    fn remove_step(&self, generation: u64) -> Result<bool, ReplicaError> {
        let more = self.remove_chunks(generation)?;
        self.sync()?;
        Ok(more)
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

    /// Hands the database to a thread of its own, which ends when nobody can ask it any more.
    pub(super) fn serve(
        self,
        requests: mpsc::Receiver<Request>,
    ) -> Result<JoinHandle<()>, ReplicaError> {
        let folder = self.folder.clone();
        let removals = self.leftovers()?;
        std::thread::Builder::new()
            .name("snapshots".to_owned())
            .spawn(move || self.run(&requests, removals))
            .map_err(ReplicaError::io("starting the thread that owns", &folder))
    }

    fn run(mut self, requests: &mpsc::Receiver<Request>, mut removals: Vec<u64>) {
        // As long as the last step of a removal took: the disk is the log's, too.
        let mut pause = Duration::ZERO;
        loop {
            let request = if let Some(&generation) = removals.last() {
                match requests.recv_timeout(pause) {
                    Ok(request) => request,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        let begun = Instant::now();
                        match self.remove_step(generation) {
                            Ok(true) => {}
                            Ok(false) => drop(removals.pop()),
                            Err(error) => {
                                tracing::error!(%error, "cannot remove an old snapshot");
                                return;
                            }
                        }
                        pause = begun.elapsed();
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
                let _ = answer.send(self.begin(removals));
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

    fn damaged(&self, why: impl Into<String>) -> ReplicaError {
        ReplicaError::Damaged {
            file: self.folder.clone(),
            why: why.into(),
        }
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
fn sync_tree(path: &Path) -> Result<(), ReplicaError> {
    let entries = fs::read_dir(path).map_err(ReplicaError::io("reading", path))?;
    for entry in entries {
        let inner = entry.map_err(ReplicaError::io("reading", path))?.path();
        if inner.is_dir() {
            sync_tree(&inner)?;
        } else {
            folder::sync(&inner)?;
        }
    }
    folder::sync(path)
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
