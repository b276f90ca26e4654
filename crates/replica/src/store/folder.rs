//! The folder of one member: its lock, whose it is, and the opening of both halves of it.

use super::log::{self, LogStore};
use super::recovery::{self, Database};
use super::snapshot::Recovery;
use crate::format::snapshot::Identity;
use crate::state_machine::StateMachine;
use crate::{NodeId, ReplicaError};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The log's folder.
pub(super) const LOG: &str = "log";
/// Held while a process works in the folder.
pub(super) const LOCK: &str = "LOCK";
/// Whose folder it is.
pub(super) const IDENTITY: &str = "IDENTITY";

/// Whose folder it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster: chosen at random when it was made.
    pub cluster: u128,
    /// The member.
    pub node: NodeId,
}

/// What one member keeps on its disk, opened.
#[derive(Debug)]
pub struct Store {
    /// Whose it is.
    pub identity: Identity,
    /// The log, for openraft.
    pub log: LogStore,
    /// The state machine as the newest snapshot has it; openraft applies to it what the log holds
    /// beyond.
    pub machine: StateMachine,
}

/// A folder that nobody else may open while this is held: by the log and by the snapshots, until
/// the last of them is closed.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    fn take(folder: &Path) -> Result<FolderLock, ReplicaError> {
        let path = folder.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(ReplicaError::io("opening", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(FolderLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(ReplicaError::InUse {
                folder: folder.to_path_buf(),
            }),
            Err(TryLockError::Error(cause)) => Err(ReplicaError::io("locking", &path)(cause)),
        }
    }
}

impl Store {
    /// Whose folder it is, without opening it: nobody's where it is empty, absent, or its making
    /// was cut off.
    ///
    /// # Errors
    /// The file that says so is damaged, or cannot be read.
    pub fn identity(folder: &Path) -> Result<Option<Identity>, ReplicaError> {
        must_be_folder(folder)?;
        let path = folder.join(LOG).join(IDENTITY);
        match fs::read(&path) {
            Ok(bytes) => match Identity::from_bytes(&bytes) {
                Ok(identity) => Ok(Some(identity)),
                Err(why) => Err(ReplicaError::Damaged {
                    file: path,
                    why: why.to_string(),
                }),
            },
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(ReplicaError::io("reading", &path)(cause)),
        }
    }

    /// Opens a member's folder, or makes it where it is empty or absent.
    ///
    /// # Errors
    /// It is in use, belongs to another, is not whole, or is damaged: then nothing was changed.
    pub fn open(folder: &Path, owner: Owner) -> Result<Store, ReplicaError> {
        must_be_folder(folder)?;
        let halves = Halves::in_folder(folder);
        for folder in [folder, halves.log.as_path()] {
            fs::create_dir_all(folder).map_err(ReplicaError::io("making", folder))?;
        }
        let lock = Arc::new(FolderLock::take(folder)?);
        let ours = halves.check(owner)?;
        let log = match ours {
            Some(_) => Some(LogStore::open(&halves.log, &lock)?),
            None => None,
        };
        let database = Database::open(&halves.state)?;
        let (identity, log) = match (database.identity()?, ours.zip(log)) {
            (Some((theirs, finished)), Some((ours, log))) if theirs == ours => {
                if !finished {
                    database.set_identity(&ours, true)?;
                }
                (ours, log)
            }
            (None | Some((_, false)), None) => halves.make(&database, owner, &lock)?,
            (theirs, ours) => {
                return Err(
                    halves.mismatch(theirs.map(|(theirs, _)| theirs), ours.map(|(ours, _)| ours))
                );
            }
        };
        let recovered = database.recover()?;
        let covered = recovered.as_ref().and_then(|found| found.manifest.last);
        if let Some(purged) = log.purged()
            && covered.is_none_or(|last| last.index < purged.index)
        {
            return Err(ReplicaError::NotWhole {
                file: halves.state,
                why: format!(
                    "the log begins after entry {}, but no snapshot reaches that far",
                    purged.index
                ),
            });
        }
        let machine = StateMachine::new(Recovery::serve(database, lock)?, recovered)?;
        Ok(Store {
            identity,
            log,
            machine,
        })
    }
}

/// The two halves of a folder.
struct Halves {
    log: PathBuf,
    state: PathBuf,
}

impl Halves {
    fn in_folder(folder: &Path) -> Halves {
        Halves {
            log: folder.join(LOG),
            state: folder.join(recovery::FOLDER),
        }
    }

    /// What the log's half says, checked before anything is opened.
    fn check(&self, owner: Owner) -> Result<Option<Identity>, ReplicaError> {
        let file = self.log.join(IDENTITY);
        let folder = self.log.parent().unwrap_or(&self.log);
        let identity = Store::identity(folder)?;
        if let Some(identity) = identity {
            let differs = if identity.cluster != owner.cluster {
                Some(("cluster", hex(identity.cluster), hex(owner.cluster)))
            } else if identity.node != owner.node {
                Some(("node", identity.node.to_string(), owner.node.to_string()))
            } else {
                None
            };
            if let Some((what, found, wanted)) = differs {
                return Err(ReplicaError::Foreign {
                    file,
                    what,
                    found,
                    wanted,
                });
            }
            if !recovery::exists(&self.state) {
                return Err(ReplicaError::NotWhole {
                    file: self.state.clone(),
                    why: "the log is there, but the snapshots are missing".to_owned(),
                });
            }
            match self.first_log_file()? {
                None => {
                    return Err(ReplicaError::NotWhole {
                        file: self.log.clone(),
                        why: "its files (r-*.wal) are missing".to_owned(),
                    });
                }
                Some(first) => log::check_beginning(&first)?,
            }
        }
        Ok(identity)
    }

    fn first_log_file(&self) -> Result<Option<PathBuf>, ReplicaError> {
        let failed = |cause| ReplicaError::io("reading", &self.log)(cause);
        let mut first = None;
        for entry in fs::read_dir(&self.log).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|end| end == "wal")
                && first.as_ref().is_none_or(|first| path < *first)
            {
                first = Some(path);
            }
        }
        Ok(first)
    }

    /// The halves are not of one making.
    fn mismatch(&self, theirs: Option<Identity>, ours: Option<Identity>) -> ReplicaError {
        let (file, why) = match (theirs, ours) {
            (Some(theirs), Some(ours)) => (
                self.log.join(IDENTITY),
                format!(
                    "it says that the log is of store {}, but the snapshots are of store {}",
                    hex(ours.store),
                    hex(theirs.store)
                ),
            ),
            (Some(_), None) => (
                self.log.join(IDENTITY),
                "it is missing, though the snapshots of this folder were made with a log"
                    .to_owned(),
            ),
            (None, _) => (
                self.state.clone(),
                "it is not the folder that was made together with the log".to_owned(),
            ),
        };
        ReplicaError::NotWhole { file, why }
    }

    /// Makes a folder, or goes on where making it was cut off: the log's identity last, as before
    /// nothing can have been acknowledged.
    fn make(
        &self,
        database: &Database,
        owner: Owner,
        lock: &Arc<FolderLock>,
    ) -> Result<(Identity, LogStore), ReplicaError> {
        if database.identity()?.is_none() && self.first_log_file()?.is_some() {
            return Err(ReplicaError::NotWhole {
                file: self.log.join(IDENTITY),
                why: "it is missing, though there is a log".to_owned(),
            });
        }
        let identity = Identity {
            cluster: owner.cluster,
            node: owner.node,
            store: crate::runtime::random(),
        };
        database.set_identity(&identity, false)?;
        let log = LogStore::open(&self.log, lock)?;
        write_durably(&self.log, IDENTITY, &identity.to_bytes()?)?;
        if let Some(folder) = self.log.parent() {
            sync(folder)?;
        }
        database.set_identity(&identity, true)?;
        Ok((identity, log))
    }
}

/// A file where a folder is expected is a slip of whoever named it, and no fault of the disk.
fn must_be_folder(path: &Path) -> Result<(), ReplicaError> {
    if path.exists() && !path.is_dir() {
        return Err(ReplicaError::Invalid {
            why: format!(
                "data: {} is no folder; allowed: a folder, or none yet",
                path.display()
            ),
        });
    }
    Ok(())
}

fn hex(id: u128) -> String {
    format!("{id:032x}")
}

/// Writes a file so that after a crash it is there whole, or not at all.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that writes durable files: the file is synced before, the folder after"
)]
fn write_durably(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), ReplicaError> {
    let partial = folder.join(format!("{name}.partial"));
    let path = folder.join(name);
    let mut file = File::create(&partial).map_err(ReplicaError::io("making", &partial))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(ReplicaError::io("writing", &partial))?;
    fs::rename(&partial, &path).map_err(ReplicaError::io("renaming", &partial))?;
    sync(folder)
}

/// Syncs a file, or a folder's list of files.
pub(super) fn sync(path: &Path) -> Result<(), ReplicaError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(ReplicaError::io("syncing", path))
}
