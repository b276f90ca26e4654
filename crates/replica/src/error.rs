//! Why a replica cannot go on.

use crate::format::FormatError;
use crate::raft::TypeConfig;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A fault: the node stops, or does not start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplicaError {
    /// The replica was told to stop, or has stopped.
    #[error("the replica has stopped")]
    Stopped,
    /// Another process works in the folder.
    #[error("{} is in use by another process: stop it, or give this node a folder of its own", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder belongs to another member.
    #[error("{} belongs to {what} {found}, not {wanted}: give this node a folder of its own, or start it as what the folder says", file.display())]
    Foreign {
        /// The file that says so.
        file: PathBuf,
        /// What differs: the cluster or the node.
        what: &'static str,
        /// What the folder says.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// The log and the snapshots do not belong together, or one of them is gone.
    #[error("{}: {why}. A member whose disk is not whole must not vote: remove it from the cluster, and let it join again with an empty folder under a new node id", file.display())]
    NotWhole {
        /// What is missing or differs.
        file: PathBuf,
        /// In what way.
        why: String,
    },
    /// What a crash cannot have done.
    #[error("{} is damaged: {why}. The node does not guess: restore the folder from a backup, or remove the node from the cluster and let it join again with an empty folder under a new node id", file.display())]
    Damaged {
        /// The file or folder.
        file: PathBuf,
        /// What was found.
        why: String,
    },
    /// A file could not be read or written.
    #[error("{doing} {}: {cause}", file.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        file: PathBuf,
        /// Why it failed.
        #[source]
        cause: Arc<io::Error>,
    },
    /// Sled could not.
    #[error("the snapshots in {}: {cause}", folder.display())]
    Sled {
        /// Its folder.
        folder: PathBuf,
        /// Why.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The address for peers cannot be listened on.
    #[error("cannot listen for peers on {address}: {cause}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The threads of the replica cannot be started.
    #[error("cannot start the replica's threads: {cause}")]
    Threads {
        /// Why not.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The folder holds nothing, and nothing was said about where the cluster comes from.
    #[error("{} holds no member: found a new cluster, or name peers of the one to join", folder.display())]
    NothingThere {
        /// The folder.
        folder: PathBuf,
    },
    /// What was said about this member cannot be.
    #[error("{why}")]
    Invalid {
        /// The field, what was given and what is allowed.
        why: String,
    },
    /// No member of the cluster let this one in.
    #[error("cannot join the cluster: {why}")]
    NotJoined {
        /// What the last of them said.
        why: String,
    },
    /// What was written last may not be on the disk.
    #[error("the log cannot be made durable: {cause}")]
    Flush {
        /// Why not.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The state is of a format that a newer program made.
    #[error(
        "the cluster's state has the format {format}, and this program knows formats up to {most}: start this node with a program that knows it"
    )]
    TooNew {
        /// The state's.
        format: u32,
        /// The newest that this program knows.
        most: u32,
    },
    /// This member's state is not what a majority has.
    #[error(
        "the state of this node has the digest {own:016x} at entry {index}, and that of a majority {majority:016x}: it stops before anything is decided by it. Keep the folder for whoever looks into it, remove the node from the cluster, and let it join again with an empty folder under a new node id"
    )]
    Diverged {
        /// The entry after which they were compared.
        index: u64,
        /// This member's digest.
        own: u64,
        /// The majority's.
        majority: u64,
    },
    /// Members' states differ, and no majority has one and the same.
    #[error(
        "the state of this node has the digest {own:016x} at entry {index}, others differ, and no majority of the voters was found to have the same one: nobody can tell which is right, so all stop. Keep the folders, and found the cluster anew from a backup"
    )]
    NoMajorityState {
        /// The entry after which they were compared.
        index: u64,
        /// This member's digest.
        own: u64,
    },
    /// Raft has stopped by itself.
    #[error("Raft has stopped: {cause}")]
    Core {
        /// Why.
        #[source]
        cause: Box<openraft::error::Fatal<TypeConfig>>,
    },
    /// Bytes that do not fit their format.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl ReplicaError {
    /// For `map_err`: what was tried with which file.
    pub(crate) fn io(doing: &'static str, file: &Path) -> impl FnOnce(io::Error) -> ReplicaError {
        move |cause| ReplicaError::Io {
            doing,
            file: file.to_path_buf(),
            cause: Arc::new(cause),
        }
    }
}

impl From<ReplicaError> for io::Error {
    fn from(error: ReplicaError) -> Self {
        io::Error::other(error)
    }
}
