//! What each member has acknowledged to this leader, so that one that has lost it is found out.
//!
//! A member whose folder was put back to an earlier state lacks entries that it had on its disk, and
//! that the leader counts on: with it a majority would be none. Raft knows no such member, and
//! openraft takes its answer for a fault of its own. So the answer does not come that far: the member
//! counts as unreachable to this leader, and the log says what is to be done with it.
//!
//! Caveat: only the leader that heard the acknowledgements knows of them. The next one brings such a
//! member up to date as it does anyone who is behind.

use super::connection::PeerError;
use crate::NodeId;
use crate::raft::{LogId, Vote};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by all that ask the members for one leader.
#[derive(Clone, Debug, Default)]
pub(super) struct Acknowledged(Arc<Mutex<BTreeMap<NodeId, Known>>>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Under which term this was leader.
    term: u64,
    /// The index of the last entry.
    last: u64,
    /// Whether the log said that it has lost it.
    is_told: bool,
}

impl Acknowledged {
    /// A member has everything up to an entry.
    pub(super) fn note(&self, node: NodeId, vote: &Vote, last: Option<LogId>) {
        let Some(last) = last else { return };
        let term = vote.leader_id.term;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(node).or_default();
        if known.term != term {
            *known = Known {
                term,
                ..Known::default()
            };
        }
        known.last = known.last.max(last.index);
    }

    /// A member says that it lacks an entry: an error if it had it.
    pub(super) fn must_lack(
        &self,
        node: NodeId,
        vote: &Vote,
        lacks: Option<LogId>,
    ) -> Result<(), PeerError> {
        let Some(lacks) = lacks else { return Ok(()) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = known.get_mut(&node) else {
            return Ok(());
        };
        if known.term != vote.leader_id.term || known.last < lacks.index {
            return Ok(());
        }
        let error = PeerError::PutBack {
            node,
            acknowledged: known.last,
            lacks: lacks.index,
        };
        if !std::mem::replace(&mut known.is_told, true) {
            tracing::error!(%error, "a member is not counted any more");
        }
        Err(error)
    }

    /// Forgets those who are no members.
    pub(super) fn retain(&self, is_member: impl Fn(NodeId) -> bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|node, _| is_member(*node));
    }
}
