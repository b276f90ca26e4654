//! Why a replica cannot go on.

/// A fault: the node stops.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplicaError {
    /// The replica was told to stop, or has stopped.
    #[error("the replica has stopped")]
    Stopped,
}
