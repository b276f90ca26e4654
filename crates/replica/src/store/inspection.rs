//! What lies in the folder of a member that does not run, without changing a byte of it.
//!
//! Neither half of a folder can be opened without being written to: the log cuts off a torn tail,
//! and sled writes when it opens and when it closes. So the folder is copied, with its lock held,
//! and the copy is opened as a member would open its folder: whatever stops a member stops the
//! inspection, with the same words and the name of the original file. What a member would repair in
//! silence is told. Then the state is made as a member makes it, from the newest whole snapshot and
//! the entries that are known to be committed, and the pool's invariants are checked.
//!
//! Caveats: the copy takes as much room as the folder. Entries beyond the committed index that this
//! disk knows are counted, and not applied: whether they count is for a leader to say. A member that
//! is started meanwhile finds its folder in use.

use super::folder::{Owner, Store};
use super::recovery::{self, Database};
use crate::ReplicaError;
use crate::format::log::{LogId, MembershipRecord, Vote};
use crate::format::snapshot::{Identity, Manifest};
use crate::raft::LogEntry;
use crate::state_machine::StateMachine;
use fermata_pool::Pool;
use fermata_pool::query::JobCounts;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftStateMachine};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Whose folder it is.
    pub identity: Identity,
    /// The last vote; none was given.
    pub vote: Option<Vote>,
    /// The log.
    pub log: LogFound,
    /// The snapshots, the newest first. A member keeps one, and two while it makes one.
    pub snapshots: Vec<SnapshotFound>,
    /// The members, as the state has them.
    pub members: MembershipRecord,
    /// The state.
    pub state: StateFound,
    /// What is damaged, and would not stop the member: of several snapshots one is not whole.
    pub flaw: Option<ReplicaError>,
}

/// The log, as it was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFound {
    /// The last entry that was purged; those before it are gone too.
    pub purged: Option<LogId>,
    /// The last entry.
    pub last: Option<LogId>,
    /// The last entry that is known to be committed.
    pub committed: Option<LogId>,
    /// Entries that are there, and were read.
    pub entries: u64,
    /// Its files.
    pub files: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes at its end that a crash left of a record: a member cuts them off when it starts.
    pub torn_bytes: u64,
}

/// A snapshot, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotFound {
    /// The last entry that it covers.
    pub last: Option<LogId>,
    /// Rows in it.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// The state, as a member would have it when it has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFound {
    /// The last entry that was applied.
    pub applied: Option<LogId>,
    /// The digest: equal on all members that have applied the same entries (S37).
    pub digest: u64,
    /// Jobs by state.
    pub jobs: JobCounts,
    /// Pools.
    pub pools: u64,
    /// Open windows, of pools and buckets.
    pub windows: u64,
    /// Overrides in force.
    pub overrides: u64,
    /// Servers.
    pub servers: u64,
    /// Events.
    pub events: u64,
}

/// Looks at a member's folder, by a copy in `scratch`, an empty folder that the caller removes.
///
/// # Errors
/// There is no member in it, or one that runs; it is not whole, or damaged; it cannot be read, or
/// `scratch` not be written to.
pub async fn inspect(folder: &Path, scratch: &Path) -> Result<Inspection, ReplicaError> {
    if !folder.is_dir() {
        return Err(ReplicaError::Invalid {
            why: format!(
                "data: {} is no folder; allowed: the folder of a node that does not run",
                folder.display()
            ),
        });
    }
    let _lock = lock(folder)?;
    copy(folder, scratch)?;
    let found = inspect_copy(folder, scratch).await;
    found.map_err(|error| of_original(error, folder, scratch))
}

async fn inspect_copy(folder: &Path, scratch: &Path) -> Result<Inspection, ReplicaError> {
    let files = log_files(scratch)?;
    let state = scratch.join(recovery::FOLDER);
    let Some(identity) = Store::identity(scratch)? else {
        return Err(without_identity(folder, scratch, files.is_empty())?);
    };
    let (snapshots, mut flaw) = match recovery::exists(&state) {
        true => snapshots(&Database::open(&state)?)?,
        // Opening says what that means.
        false => (Vec::new(), None),
    };
    let owner = Owner {
        cluster: identity.cluster,
        node: identity.node,
    };
    let mut store = Store::open(scratch, owner)?;
    let read = store.log.read_vote().await;
    let vote = read.map_err(ReplicaError::io("reading the log in", scratch))?;
    let mut log = LogFound {
        torn_bytes: torn_bytes(&files)?,
        files: files.len() as u64,
        bytes: files.values().sum(),
        ..LogFound::default()
    };
    replay(&mut store, &mut log)
        .await
        .map_err(ReplicaError::io("reading the log in", scratch))?;
    let (applied, membership) = store
        .machine
        .applied_state()
        .await
        .map_err(ReplicaError::io("reading the state in", scratch))?;
    let shared = store.machine.shared();
    let broken = shared.read(Pool::check_invariants);
    if let Err(why) = broken {
        return Err(ReplicaError::Damaged {
            file: scratch.to_path_buf(),
            why: format!("the state that its snapshot and log give contradicts itself: {why}"),
        });
    }
    if let Some(error) = flaw.take() {
        flaw = Some(of_original(error, folder, scratch));
    }
    Ok(Inspection {
        identity,
        vote: vote.as_ref().map(Into::into),
        log,
        snapshots,
        members: MembershipRecord::from(membership.membership()),
        state: shared.read(|pool| counted(pool, applied.map(Into::into))),
        flaw,
    })
}

/// Takes the folder's lock for as long as the file is held; without making it where it is not.
fn lock(folder: &Path) -> Result<Option<File>, ReplicaError> {
    let path = folder.join(super::folder::LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(ReplicaError::io("opening", &path)(cause)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(ReplicaError::InUse {
            folder: folder.to_path_buf(),
        }),
        Err(TryLockError::Error(cause)) => Err(ReplicaError::io("locking", &path)(cause)),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), ReplicaError> {
    fs::create_dir_all(to).map_err(ReplicaError::io("making", to))?;
    let entries = fs::read_dir(from).map_err(ReplicaError::io("reading", from))?;
    for entry in entries {
        let path = entry.map_err(ReplicaError::io("reading", from))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            copy_file(&path, &target)?;
        }
    }
    Ok(())
}

/// Only the bytes: a folder that may not be written to has a copy that may.
fn copy_file(from: &Path, to: &Path) -> Result<(), ReplicaError> {
    let mut original = File::open(from).map_err(ReplicaError::io("reading", from))?;
    let mut copy = File::create(to).map_err(ReplicaError::io("making", to))?;
    io::copy(&mut original, &mut copy).map_err(ReplicaError::io("copying", from))?;
    Ok(())
}

/// The log's files, with their lengths.
fn log_files(folder: &Path) -> Result<BTreeMap<PathBuf, u64>, ReplicaError> {
    let folder = folder.join(super::folder::LOG);
    let mut files = BTreeMap::new();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(files),
        Err(cause) => return Err(ReplicaError::io("reading", &folder)(cause)),
    };
    for entry in entries {
        let entry = entry.map_err(ReplicaError::io("reading", &folder))?;
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "wal") {
            let length = length(&path)?.unwrap_or(0);
            files.insert(path, length);
        }
    }
    Ok(files)
}

fn length(file: &Path) -> Result<Option<u64>, ReplicaError> {
    match fs::metadata(file) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(ReplicaError::io("reading", file)(cause)),
    }
}

/// By how much the log's files became shorter when it was opened.
fn torn_bytes(before: &BTreeMap<PathBuf, u64>) -> Result<u64, ReplicaError> {
    let mut torn = 0;
    for (file, bytes) in before {
        torn += bytes.saturating_sub(length(file)?.unwrap_or(0));
    }
    Ok(torn)
}

/// Nobody's folder: it is empty, its making was cut off before anything was acknowledged, or the
/// file that says whose it is has gone.
fn without_identity(
    folder: &Path,
    scratch: &Path,
    has_no_log: bool,
) -> Result<ReplicaError, ReplicaError> {
    let state = scratch.join(recovery::FOLDER);
    let is_unfinished = match recovery::exists(&state) {
        true => !matches!(Database::open(&state)?.identity()?, Some((_, true))),
        false => has_no_log,
    };
    if is_unfinished {
        return Ok(ReplicaError::NothingThere {
            folder: folder.to_path_buf(),
        });
    }
    let file = scratch
        .join(super::folder::LOG)
        .join(super::folder::IDENTITY);
    Ok(ReplicaError::NotWhole {
        file,
        why: "it is missing, though the folder was in use".to_owned(),
    })
}

/// The whole snapshots, the newest first, and what is wrong with another.
fn snapshots(
    database: &Database,
) -> Result<(Vec<SnapshotFound>, Option<ReplicaError>), ReplicaError> {
    let (mut found, mut flaw) = (Vec::new(), None);
    for snapshot in database.verified()? {
        match snapshot {
            Ok(Manifest {
                last, rows, bytes, ..
            }) => found.push(SnapshotFound { last, rows, bytes }),
            Err(error) => flaw = Some(error),
        }
    }
    found.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.last));
    Ok((found, flaw))
}

/// Reads every entry, and applies those that are committed and not yet in the snapshot.
async fn replay(store: &mut Store, found: &mut LogFound) -> io::Result<()> {
    let state = store.log.get_log_state().await?;
    let committed = store.log.read_committed().await?;
    let (applied, _) = store.machine.applied_state().await?;
    found.purged = state.last_purged_log_id.map(Into::into);
    found.last = state.last_log_id.map(Into::into);
    found.committed = committed.map(Into::into);
    let mut next = state.last_purged_log_id.map_or(0, |id| id.index + 1);
    let end = state.last_log_id.map_or(0, |id| id.index + 1);
    while next < end {
        let entries = store.log.limited_get_log_entries(next, end).await?;
        let Some(last) = entries.last() else {
            return Err(io::Error::other(format!("entry {next} is missing")));
        };
        next = last.log_id.index + 1;
        found.entries += entries.len() as u64;
        let due = entries
            .into_iter()
            .filter(|entry| Some(entry.log_id) > applied && Some(entry.log_id) <= committed);
        apply(&mut store.machine, due.collect()).await?;
    }
    Ok(())
}

async fn apply(machine: &mut StateMachine, entries: Vec<LogEntry>) -> io::Result<()> {
    let entries = entries.into_iter().map(|entry| Ok((entry, None)));
    machine.apply(futures_util::stream::iter(entries)).await
}

fn counted(pool: &Pool, applied: Option<LogId>) -> StateFound {
    let now = pool.stamp().at;
    let count = |count: usize| count as u64;
    StateFound {
        applied,
        digest: pool.digest(),
        jobs: pool.job_counts(),
        pools: count(pool.pools("", now).count()),
        windows: count(pool.windows("", now).count()),
        overrides: count(pool.overrides("").count()),
        servers: count(pool.servers("").count()),
        events: count(pool.events("").count()),
    }
}

/// The same error, about the file of which a copy was looked at.
fn of_original(error: ReplicaError, folder: &Path, scratch: &Path) -> ReplicaError {
    let original = |path: PathBuf| match path.strip_prefix(scratch) {
        Ok(rest) if rest.as_os_str().is_empty() => folder.to_path_buf(),
        Ok(rest) => folder.join(rest),
        Err(_) => path,
    };
    match error {
        ReplicaError::NotWhole { file, why } => ReplicaError::NotWhole {
            file: original(file),
            why,
        },
        ReplicaError::Damaged { file, why } => ReplicaError::Damaged {
            file: original(file),
            why,
        },
        ReplicaError::Io { doing, file, cause } => ReplicaError::Io {
            doing,
            file: original(file),
            cause,
        },
        ReplicaError::Sled { folder, cause } => ReplicaError::Sled {
            folder: original(folder),
            cause,
        },
        other => other,
    }
}
