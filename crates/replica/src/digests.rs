//! Whether all members have the same state: they must, as they apply the same entries (S37).
//!
//! Every member keeps the digest of its state after each of the last entries ([`Trail`]). Whoever
//! is asked how it stands tells the last entry that it applied, and the digest then; whoever asked
//! looks at its own trail. Where the two differ somebody's state is wrong: its memory, its disk or
//! its program did what it should not.
//!
//! Then each of them asks all others for their digest at one entry, and judges itself alone: it goes
//! on if a majority of the voters has its digest, and stops if a majority has another, or if there is
//! none ([`verdict`]). A leader that differs stops as well, and the others elect one that does not.
//! Nobody is told by another to stop: who cannot be believed cannot stop others either.
//!
//! Caveats: a difference that goes away again before anybody looks is not seen; there is a look every
//! two seconds. What a member decided by a wrong state before it was found stays as it is.

use crate::core::Core;
use crate::format::wire::Answer;
use crate::{NodeId, ReplicaError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Entries whose digests are kept: well over a second of the fastest cluster.
const TRAIL_ENTRIES_MAX: usize = 4_096;
/// How long the others are asked before no majority is taken to be there.
const INQUIRY_MAX: Duration = Duration::from_secs(10);
/// How long they are asked about one entry, before a later one is asked about.
const ENTRY_MAX: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two times of asking.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// The digests of the state after each of the last entries that were applied.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// The first entry that is kept.
    first: u64,
    digests: VecDeque<u64>,
}

impl Trail {
    /// Notes what the digest is after an entry, which follows the last one.
    pub(crate) fn note(&mut self, index: u64, digest: u64) {
        if self.digests.is_empty() {
            self.first = index;
        }
        if self.digests.len() == TRAIL_ENTRIES_MAX {
            self.digests.pop_front();
            self.first += 1;
        }
        self.digests.push_back(digest);
    }

    /// The digest after an entry; none: it is not kept.
    pub(crate) fn at(&self, index: u64) -> Option<u64> {
        let place = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.digests.get(place).copied()
    }

    /// The last entry, and the digest after it.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        let digest = *self.digests.back()?;
        Some((self.first + self.digests.len() as u64 - 1, digest))
    }
}

/// What a member concludes about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A majority of the voters has its digest.
    Alike,
    /// A majority of the voters has this one.
    Differs(u64),
    /// No digest has a majority, and none can get one from those who have not answered.
    NoMajority,
    /// It depends on those who have not answered.
    Open,
}

/// Judges by what the voters say, itself among them if it votes; none: no answer.
fn verdict(own: u64, voters: &[Option<u64>]) -> Verdict {
    let needed = voters.len() / 2 + 1;
    let mut counts = BTreeMap::new();
    for digest in voters.iter().flatten() {
        *counts.entry(*digest).or_insert(0) += 1;
    }
    let (most, count) = counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .unwrap_or((own, 0));
    let silent = voters.iter().filter(|digest| digest.is_none()).count();
    if count >= needed {
        match most == own {
            true => Verdict::Alike,
            false => Verdict::Differs(most),
        }
    } else if count + silent >= needed {
        Verdict::Open
    } else {
        Verdict::NoMajority
    }
}

/// Compares what a member said of its state with this member's own. Where they differ, both look
/// into it.
pub(crate) async fn compare(core: &Core, node: NodeId, index: u64, digest: u64) {
    let own = look_into(core, index, digest);
    if let Some(own) = own.filter(|own| *own != digest) {
        // It is asked about an entry that it knows; what it answers is known.
        let _ = ask(core, node, index, own).await;
    }
}

/// What is said to a member that asks for a digest.
pub(crate) fn asked(core: &Core, index: u64, digest: u64) -> Answer {
    Answer::Digested {
        digest: look_into(core, index, digest),
    }
}

/// This member's digest after an entry, if it knows. That it is another than a member's is looked into.
fn look_into(core: &Core, index: u64, digest: u64) -> Option<u64> {
    let own = core.state.digest_at(index);
    if own.is_some_and(|own| own != digest) {
        core.differs.notify_one();
    }
    own
}

/// Looks into every difference that was found, and stops this member if it must not go on.
pub(crate) async fn keep_inquiring(core: Arc<Core>) {
    loop {
        core.differs.notified().await;
        if let Some(cause) = inquire(&core).await {
            core.state.halt(cause);
            // It says nothing but that it is over.
            let _ = core.raft.shutdown().await;
            return;
        }
    }
}

/// Asks all voters, again and again, until it is clear whether this member may go on; the cause, if
/// it must not.
async fn inquire(core: &Arc<Core>) -> Option<ReplicaError> {
    let until = Instant::now() + INQUIRY_MAX;
    loop {
        let (index, own) = core.state.last_digest()?;
        let later = Instant::now() + ENTRY_MAX;
        while Instant::now() < later {
            let voters = ask_voters(core, index, own).await;
            let digests: Vec<Option<u64>> = voters.values().copied().collect();
            match verdict(own, &digests) {
                Verdict::Alike => {
                    let others = voters
                        .iter()
                        .filter(|(_, it)| it.is_some_and(|it| it != own));
                    let nodes: Vec<NodeId> = others.map(|(&node, _)| node).collect();
                    tracing::error!(index, ?nodes, "members have another state than a majority");
                    return None;
                }
                Verdict::Differs(majority) => {
                    return Some(ReplicaError::Diverged {
                        index,
                        own,
                        majority,
                    });
                }
                Verdict::NoMajority => return Some(ReplicaError::NoMajorityState { index, own }),
                Verdict::Open if Instant::now() >= until => {
                    return Some(ReplicaError::NoMajorityState { index, own });
                }
                Verdict::Open => tokio::time::sleep(ASKED_EVERY).await,
            }
        }
    }
}

/// The digest of each voter after an entry, as far as it answers; this member's own is `own`.
async fn ask_voters(core: &Arc<Core>, index: u64, own: u64) -> BTreeMap<NodeId, Option<u64>> {
    let members = core.members();
    let mut digests: BTreeMap<NodeId, Option<u64>> =
        members.voter_ids().map(|node| (node, None)).collect();
    let mut asked = JoinSet::new();
    for &node in digests.keys() {
        let core = Arc::clone(core);
        asked.spawn(async move {
            let digest = match node == core.node {
                true => Some(own),
                false => ask(&core, node, index, own).await,
            };
            (node, digest)
        });
    }
    while let Some(answered) = asked.join_next().await {
        if let Ok((node, digest)) = answered {
            digests.insert(node, digest);
        }
    }
    digests
}

/// The digest of a member after an entry, as it says; none: it does not.
async fn ask(core: &Core, node: NodeId, index: u64, own: u64) -> Option<u64> {
    let at = core.member(node)?.to_node();
    let asking = core.network.digest(node, &at, index, own);
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, asking).await;
    answered.ok()?.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_judges_itself_by_a_majority() {
        let (a, b, c) = (Some(1), Some(2), Some(3));
        let none = None;
        for (own, voters, expected) in [
            (1, vec![a], Verdict::Alike),
            (1, vec![a, a, b], Verdict::Alike),
            (1, vec![a, a, none], Verdict::Alike),
            (2, vec![b, a, a], Verdict::Differs(1)),
            (1, vec![a, b, none], Verdict::Open),
            (1, vec![a, none, none], Verdict::Open),
            (1, vec![a, b, c], Verdict::NoMajority),
            (1, vec![a, b], Verdict::NoMajority),
            (1, vec![a, none], Verdict::Open),
            (1, vec![a, a, b, b, c], Verdict::NoMajority),
            (1, vec![a, a, b, b, none], Verdict::Open),
            (2, vec![a, a, a, b, b], Verdict::Differs(1)),
            // A learner's own digest does not count.
            (9, vec![a, a, none], Verdict::Differs(1)),
            (9, vec![a, none, none], Verdict::Open),
        ] {
            assert_eq!(verdict(own, &voters), expected, "{own} among {voters:?}");
        }
    }

    #[test]
    fn a_trail_keeps_the_last_entries() {
        let mut trail = Trail::default();
        assert_eq!((trail.at(0), trail.last()), (None, None));
        let last = 7 + TRAIL_ENTRIES_MAX as u64;
        for index in 7..=last {
            trail.note(index, index * 10);
        }
        assert_eq!(trail.digests.len(), TRAIL_ENTRIES_MAX);
        assert_eq!(trail.last(), Some((last, last * 10)));
        assert_eq!(
            (trail.at(6), trail.at(7), trail.at(8)),
            (None, None, Some(80))
        );
        assert_eq!(
            (trail.at(last), trail.at(last + 1)),
            (Some(last * 10), None)
        );
    }
}
