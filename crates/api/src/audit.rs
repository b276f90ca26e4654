//! Who changed what: `GET /v1/audit`.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A change by an operator. Lists of them begin with the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Counts the changes, from 1; no number is left out.
    pub number: u64,
    /// When it was done.
    pub at: Timestamp,
    /// The index of its entry in the log.
    pub index: u64,
    /// Who: `anonymous@ADDRESS`, as long as there are no keys. Absent where the command did not
    /// come over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// What was done.
    pub action: AuditAction,
    /// To what: the id of a definition or server, a pool or bucket, a node. Absent where there is
    /// one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The definition's revision since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// What changed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// An event was defined or edited.
    PutEvent,
    /// An event was deleted.
    DeleteEvent,
    /// A category was defined or edited.
    PutCategory,
    /// A category was deleted.
    DeleteCategory,
    /// The settings were edited.
    PutSettings,
    /// A server was defined or edited.
    PutServer,
    /// A server was deleted.
    DeleteServer,
    /// A server was told to end what it runs and to take nothing new.
    DrainServer,
    /// An override was set.
    PutOverride,
    /// An override was cleared.
    DeleteOverride,
    /// A window was reset.
    ResetWindow,
    /// All windows were reset.
    ResetWindows,
    /// The counters were set to zero.
    ResetStats,
    /// A node was added.
    AddMember,
    /// A node was removed.
    RemoveMember,
    /// A leader was told to hand over.
    Transfer,
}

impl AuditAction {
    /// The action in a few words, for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::PutEvent => "event put",
            Self::DeleteEvent => "event deleted",
            Self::PutCategory => "category put",
            Self::DeleteCategory => "category deleted",
            Self::PutSettings => "settings put",
            Self::PutServer => "server put",
            Self::DeleteServer => "server deleted",
            Self::DrainServer => "server drained",
            Self::PutOverride => "override set",
            Self::DeleteOverride => "override cleared",
            Self::ResetWindow => "window reset",
            Self::ResetWindows => "all windows reset",
            Self::ResetStats => "stats reset",
            Self::AddMember => "node added",
            Self::RemoveMember => "node removed",
            Self::Transfer => "leadership handed over",
        }
    }
}
