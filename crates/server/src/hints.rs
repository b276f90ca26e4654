//! Who waits for what, and waking them: one task a node reads what was applied and wakes those
//! whom it concerns.
//!
//! A hint says "look again", never what there is to see: the state is the truth. So a hint may be
//! given twice, or for nothing, and where some were missed (the reader was slow, the leader
//! changed) everybody looks again.
//!
//! A thousand idle polls cost nothing this way: a move wakes the polls of its server alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fermata_pool::outcome::{Applied, Standing};
use fermata_replica::Replica;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::futures::Notified;

/// All who wait on this node.
#[derive(Clone, Default)]
pub(crate) struct Hints {
    /// For a job to move.
    pub(crate) jobs: Waiters,
    /// For something to do on a server.
    pub(crate) servers: Waiters,
}

/// Those who wait, by the name of what they wait for. Holds no name for which nobody waits.
#[derive(Clone, Default)]
pub(crate) struct Waiters(Arc<Mutex<HashMap<Box<str>, Arc<Notify>>>>);

/// One who waits; not any more when it is dropped.
pub(crate) struct Listener {
    waiters: Waiters,
    name: Box<str>,
    bell: Arc<Notify>,
}

impl Waiters {
    /// Listens for hints about `name` from now on.
    pub(crate) fn listen(&self, name: &str) -> Listener {
        let bell = Arc::clone(self.lock().entry(name.into()).or_default());
        Listener {
            waiters: self.clone(),
            name: name.into(),
            bell,
        }
    }

    /// Those who wait for `name` look again.
    pub(crate) fn wake(&self, name: &str) {
        if let Some(bell) = self.lock().get(name) {
            bell.notify_waiters();
        }
    }

    fn wake_each<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let waiters = self.lock();
        if waiters.is_empty() {
            return;
        }
        for bell in names.filter_map(|name| waiters.get(name)) {
            bell.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for bell in self.lock().values() {
            bell.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Notify>>> {
        // Every change is one insertion or removal, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// The next hint. It counts from this call on, polled or not: make it, look at the state, and
    /// await it only if there was nothing to see.
    pub(crate) fn next(&self) -> Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        // The table's and this one's: nobody else listens, and none can begin under the lock.
        if Arc::strong_count(&self.bell) == 2 {
            waiters.remove(&self.name);
        }
    }
}

impl Hints {
    /// Wakes whom each entry concerns, until the replica is gone.
    pub(crate) async fn follow(self, replica: Replica) {
        let mut events = replica.events();
        loop {
            match events.recv().await {
                Ok(applied) => self.tell(&applied),
                Err(RecvError::Lagged(_)) => {
                    self.jobs.wake_all();
                    self.servers.wake_all();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn tell(&self, applied: &Applied) {
        let moves = &applied.moves;
        self.jobs.wake_each(moves.iter().map(|moved| &*moved.job));
        // A worker has work when an attempt starts, and when one that it holds is told to stop or
        // is no longer its own.
        self.servers.wake_each(moves.iter().flat_map(|moved| {
            let holds = match &moved.standing {
                Standing::Starting { server, .. } | Standing::Active { server, .. } => {
                    server.as_deref()
                }
                Standing::Delayed
                | Standing::Queued
                | Standing::Complete { .. }
                | Standing::Aborted { .. } => None,
            };
            holds.into_iter().chain(moved.left.as_deref())
        }));
    }
}

#[cfg(test)]
mod tests {
    use fermata_pool::outcome::Move;
    use fermata_pool::time::Instant;

    use super::*;

    fn applied(moves: &[(&str, Standing)]) -> Applied {
        Applied {
            index: 1,
            at: Instant::EPOCH,
            outcomes: Ok(Vec::new()),
            checks: Vec::new(),
            moves: moves
                .iter()
                .map(|(job, standing)| Move {
                    job: (*job).into(),
                    standing: standing.clone(),
                    left: None,
                })
                .collect(),
        }
    }

    fn starting(server: &str) -> Standing {
        Standing::Starting {
            attempt: 1,
            server: Some(server.into()),
        }
    }

    #[test]
    fn a_move_wakes_its_job_and_its_server_alone() {
        let hints = Hints::default();
        let (job, other) = (hints.jobs.listen("j"), hints.jobs.listen("k"));
        let (server, idle) = (hints.servers.listen("s"), hints.servers.listen("t"));
        let mut job = std::pin::pin!(job.next());
        let mut other = std::pin::pin!(other.next());
        let mut server = std::pin::pin!(server.next());
        let mut idle = std::pin::pin!(idle.next());
        hints.tell(&applied(&[("j", starting("s"))]));
        assert!(job.as_mut().enable(), "the job moved");
        assert!(server.as_mut().enable(), "the server has work");
        assert!(!other.as_mut().enable(), "another job did not move");
        assert!(!idle.as_mut().enable(), "another server has nothing");
    }

    #[test]
    fn a_hint_between_looking_and_waiting_is_not_lost() {
        let waiters = Waiters::default();
        let listener = waiters.listen("j");
        let next = listener.next();
        waiters.wake("j");
        let mut next = std::pin::pin!(next);
        assert!(next.as_mut().enable());
    }

    #[test]
    fn names_are_kept_as_long_as_somebody_waits() {
        let waiters = Waiters::default();
        let (one, two) = (waiters.listen("j"), waiters.listen("j"));
        drop(one);
        assert_eq!(waiters.lock().len(), 1);
        drop(two);
        assert!(waiters.lock().is_empty());
    }
}
