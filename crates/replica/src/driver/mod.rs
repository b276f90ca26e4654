//! What only the leader does: takes over, gathers commands into entries, lets time pass.
//!
//! Once this member is elected, its first entry is a takeover under the claim of its term (S39).
//! When that is applied it is open: commands that arrive while an entry is on its way are
//! gathered into the next one, stamped by the one clock (S36), and proposed for this term only, so
//! that openraft appends them under this leadership or not at all. When the pool's next deadline
//! falls due an entry goes out too, empty if nothing waits; an idle cluster writes nothing.
//!
//! A claim ends when another leader is seen or this one is no longer the leader. Then everybody
//! who waits is answered at once: what was not proposed was certainly not done, what was proposed
//! may yet happen. While no majority answers, the same holds, but the claim may go on: it opens
//! again when a majority is back.
//!
//! Invariants: entries go out one after another ([`Open::in_flight`]), in the order in which their
//! commands were left. No stamp is less than one before it. Nothing is proposed before the
//! takeover was applied.
//!
//! Caveat: being leader says nothing by itself (`state == Leader` may be long out of date); it is
//! the pool that decides by the claim whether an entry does anything.

mod duties;
mod queue;

pub(crate) use queue::{Gatherer, Queue, Waiting};
pub use queue::{QUEUED_BYTES_MAX, QUEUED_COMMANDS_MAX};

use self::duties::Renewals;
use crate::clock;
use crate::core::Core;
use crate::raft::{Proposal, Response, TypeConfig};
use crate::{Leadership, NodeId, ProposeError, Proposed, membership, standing};
use fermata_pool::command::{Claim, Command, Entry};
use fermata_pool::outcome::{Applied, Outcome};
use openraft::async_runtime::WatchReceiver;
use openraft::error::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use openraft::type_config::alias::{OneshotReceiverOf, WatchReceiverOf};
use openraft::{Instant as _, ReadPolicy, ServerState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

/// The clock is looked at again after this time, however far the next deadline is: the wall
/// clock may have moved.
const CLOCK_LOOK_EVERY: Duration = Duration::from_secs(1);

type ServerMetrics = WatchReceiverOf<TypeConfig, openraft::metrics::RaftServerMetrics<TypeConfig>>;
type Written = OneshotReceiverOf<TypeConfig, ClientWriteResult<TypeConfig>>;

/// A wish to give leadership to another member.
pub(crate) struct HandOver {
    /// To whom.
    pub(crate) to: NodeId,
    /// Told when it was tried: true if this member no longer leads.
    pub(crate) tried: oneshot::Sender<bool>,
}

/// Drives this member while it leads.
pub(crate) struct Driver {
    core: Arc<Core>,
    metrics: ServerMetrics,
    gatherer: Gatherer,
    wishes: mpsc::Receiver<HandOver>,
    /// The core has stopped: nothing will be proposed any more.
    stopped: bool,
}

/// An entry on its way.
struct InFlight {
    written: Written,
    /// Whose commands it holds; empty once they were answered.
    waiting: Vec<Waiting>,
    /// The first renewals among its commands, which count whoever waits for them.
    renewals: Renewals,
}

impl Driver {
    pub(crate) fn new(
        core: Arc<Core>,
        gatherer: Gatherer,
        wishes: mpsc::Receiver<HandOver>,
    ) -> Driver {
        Driver {
            metrics: core.raft.server_metrics(),
            core,
            gatherer,
            wishes,
            stopped: false,
        }
    }

    /// Drives for as long as it is polled, or until the core stops.
    pub(crate) async fn run(mut self) {
        while !self.stopped {
            match self.elected() {
                Some(term) => self.lead(term).await,
                None => self.follow().await,
            }
        }
        self.publish(Leadership::Unknown);
        self.refuse_all();
    }

    async fn follow(&mut self) {
        self.publish_other_leader();
        self.refuse_all();
        tokio::select! {
            changed = self.metrics.changed() => self.stopped = changed.is_err(),
            ready = self.gatherer.ready() => self.stopped = ready.is_none(),
            // A leader that falls silent changes nothing by itself.
            () = tokio::time::sleep(self.core.timing.lease()) => {}
            Some(wish) = self.wishes.recv() => {
                // Whoever wished may have gone.
                let _ = wish.tried.send(false);
            }
        }
    }

    /// The term in which this member leads, as far as it knows.
    fn elected(&self) -> Option<u64> {
        let metrics = self.metrics.borrow_watched();
        let vote = &metrics.vote;
        let leads = metrics.state == ServerState::Leader
            && vote.committed
            && vote.leader_id.voted_for == self.core.node;
        leads.then_some(vote.leader_id.term)
    }

    fn publish_other_leader(&self) {
        let leadership = match self.core.other_leader() {
            Some(leader) => Leadership::Follower { leader },
            None => Leadership::Unknown,
        };
        self.publish(leadership);
    }

    fn publish(&self, leadership: Leadership) {
        self.core.leadership.send_if_modified(|published| {
            let changes = *published != leadership;
            *published = leadership;
            changes
        });
    }

    /// Answers those who wait to be proposed: they certainly were not.
    fn refuse_all(&mut self) {
        loop {
            let refused = self.gatherer.gather();
            if refused.is_empty() {
                return;
            }
            refuse(refused, &self.not_leader());
        }
    }

    fn not_leader(&self) -> ProposeError {
        ProposeError::NotLeader {
            leader: self.core.other_leader(),
        }
    }

    /// Leads a term, from the takeover until the claim is lost.
    async fn lead(&mut self, term: u64) {
        let claim = Claim(term);
        if !self.take_over(claim).await {
            return;
        }
        tracing::info!(node = self.core.node, term, "this member leads");
        self.publish(Leadership::Leader { claim });
        let core = Arc::clone(&self.core);
        let mut open = Open {
            claim,
            in_flight: None,
            closed: false,
        };
        tokio::select! {
            () = self.drive(&mut open) => {}
            () = duties::keep_leases(&core) => {}
            () = standing::keep_asking(&core) => {}
            () = membership::finish_changes(&core) => {}
        }
        self.publish_other_leader();
        open.abandon();
        *core.leases() = None;
    }

    /// Proposes the takeover until it is applied; false once this member leads no longer.
    async fn take_over(&mut self, claim: Claim) -> bool {
        let pause = self.core.timing.heartbeat() / 4;
        while !self.stopped && self.elected() == Some(claim.0) {
            // What the leader before left behind is applied first: its last stamp is known then.
            let confirmed = self.core.raft.ensure_linearizable(ReadPolicy::ReadIndex);
            if confirmed.await.is_ok() {
                self.core.resume_clock();
                let takeover = vec![Command::Takeover];
                if let Some(written) = self.write(claim, takeover).await
                    && let Ok(Ok(response)) = written.await
                    && let Response(Some(applied)) = response.data
                    && applied.outcomes.is_ok()
                {
                    duties::take_leases(&self.core, applied.at);
                    return true;
                }
            }
            if let Ok(changed) = tokio::time::timeout(pause, self.metrics.changed()).await {
                self.stopped = changed.is_err();
            }
        }
        false
    }

    /// Hands an entry to openraft, for this term only; none: the core has stopped.
    async fn write(&self, claim: Claim, commands: Vec<Command>) -> Option<Written> {
        let entry = Entry {
            claim,
            stamp: self.core.stamp(),
            commands,
        };
        let proposal = Proposal::new(entry)
            .inspect_err(|error| tracing::error!(%error, "an entry could not be made"))
            .ok()?;
        let (responder, written) = ProgressResponder::complete_only();
        let request = self.core.raft.write(proposal);
        let request = request.with_leader(claim.0).responder(responder);
        request.await.ok()?;
        Some(written)
    }

    async fn drive(&mut self, open: &mut Open) {
        let mut look = tokio::time::interval(self.core.timing.heartbeat());
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.stopped && self.elected() == Some(open.claim.0) {
            let may_propose = open.in_flight.is_none();
            // Whatever is on its way lets time pass itself, and without a majority none passes.
            let due = self.due_in().filter(|_| may_propose && !open.closed);
            tokio::select! {
                changed = self.metrics.changed() => self.stopped = changed.is_err(),
                written = open.written() => self.written(open, written),
                ready = self.gatherer.ready(), if may_propose => match ready {
                    Some(()) if open.closed => self.refuse_all(),
                    Some(()) => self.propose(open).await,
                    None => self.stopped = true,
                },
                () = at(due) => if self.due_in() == Some(Duration::ZERO) {
                    self.propose(open).await;
                },
                Some(wish) = self.wishes.recv(), if may_propose => {
                    let gone = self.hand_over(open.claim, wish.to).await;
                    // Whoever wished may have gone.
                    let _ = wish.tried.send(gone);
                }
                _ = look.tick() => self.look_for_majority(open),
            }
        }
    }

    /// How long until time must pass; zero: now. None: not before something happens.
    fn due_in(&self) -> Option<Duration> {
        let due = self.core.state.read(fermata_pool::Pool::next_deadline)?;
        let left_us = due.us() - self.core.clock_us();
        Some(clock::from_us(left_us).min(CLOCK_LOOK_EVERY))
    }

    /// Proposes what waits, or only that time passes.
    async fn propose(&mut self, open: &mut Open) {
        let mut waiting = self.gatherer.gather();
        let commands: Vec<Command> = waiting.iter_mut().flat_map(Waiting::take).collect();
        let renewals = Renewals::among(&commands, self.core.time.monotonic_us());
        match self.write(open.claim, commands).await {
            Some(written) => {
                open.in_flight = Some(InFlight {
                    written,
                    waiting,
                    renewals,
                });
            }
            None => refuse(waiting, &ProposeError::Unknown),
        }
    }

    /// Answers whose commands an entry held.
    fn written(&self, open: &mut Open, written: Option<ClientWriteResult<TypeConfig>>) {
        let Some(entry) = open.in_flight.take() else {
            return;
        };
        match written {
            Some(Ok(response)) => match response.data {
                Response(Some(applied)) => self.applied(&applied, entry),
                Response(None) => refuse(entry.waiting, &ProposeError::Unknown),
            },
            // It was not appended, and never will be.
            Some(Err(ClientWriteError::ForwardToLeader(_))) => {
                refuse(entry.waiting, &self.not_leader());
            }
            // It may have been appended elsewhere before it was discarded here.
            Some(Err(_)) | None => refuse(entry.waiting, &ProposeError::Unknown),
        }
    }

    fn applied(&self, applied: &Applied, entry: InFlight) {
        let Ok(outcomes) = &applied.outcomes else {
            return refuse(entry.waiting, &self.not_leader());
        };
        duties::note_callers(&self.core, outcomes);
        entry.renewals.note(&self.core, outcomes);
        let mut outcomes = outcomes.iter().cloned();
        for one in entry.waiting {
            let own: Vec<Outcome> = outcomes.by_ref().take(one.count()).collect();
            one.answer(Ok(Proposed {
                index: applied.index,
                outcomes: own,
            }));
        }
    }

    /// While no majority answers, nobody is kept waiting; when it is back, it goes on.
    fn look_for_majority(&mut self, open: &mut Open) {
        let gone = !self.majority_is_there();
        if gone == open.closed {
            return;
        }
        open.closed = gone;
        if !gone {
            tracing::info!(node = self.core.node, "a majority answers again");
            self.publish(Leadership::Leader { claim: open.claim });
        } else {
            tracing::warn!(node = self.core.node, "no majority answers");
            self.publish(Leadership::Unknown);
            open.abandon();
            self.refuse_all();
        }
    }

    /// Whether a majority answered within the lease after which openraft takes nothing more.
    fn majority_is_there(&self) -> bool {
        if self.core.members().voter_ids().nth(1).is_none() {
            return true;
        }
        let metrics = self.core.raft.data_metrics();
        let acked = metrics.borrow_watched().last_quorum_acked;
        acked.is_some_and(|at| at.elapsed() < self.core.timing.lease())
    }

    /// Gives leadership away, with nothing on its way; true once this member leads no longer.
    async fn hand_over(&mut self, claim: Claim, to: NodeId) -> bool {
        let wait = self.core.timing.lease() * 2;
        if tokio::time::timeout(wait, self.has_everything(to))
            .await
            .is_err()
        {
            return false;
        }
        if self.core.raft.trigger().transfer_leader(to).await.is_err() {
            return false;
        }
        let gone = async {
            while self.elected() == Some(claim.0) {
                if self.metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(wait, gone).await.is_ok()
    }

    /// Returns once a member has all of this member's log.
    async fn has_everything(&self, to: NodeId) {
        let mut metrics = self.core.raft.data_metrics();
        loop {
            let there = {
                let metrics = metrics.borrow_watched();
                let matched = metrics.replication.as_ref().and_then(|all| all.get(&to));
                matched.copied().flatten() >= metrics.last_log
            };
            if there || metrics.changed().await.is_err() {
                return;
            }
        }
    }
}

/// What is on its way under a claim.
struct Open {
    claim: Claim,
    /// The entry on its way, if any: one at a time.
    in_flight: Option<InFlight>,
    /// No majority answers: nothing is taken.
    closed: bool,
}

impl Open {
    /// What became of the entry on its way; never, if there is none.
    async fn written(&mut self) -> Option<ClientWriteResult<TypeConfig>> {
        match &mut self.in_flight {
            Some(entry) => (&mut entry.written).await.ok(),
            None => std::future::pending().await,
        }
    }

    /// Answers all whose commands are on their way: they may yet happen.
    fn abandon(&mut self) {
        if let Some(entry) = &mut self.in_flight {
            refuse(std::mem::take(&mut entry.waiting), &ProposeError::Unknown);
        }
    }
}

fn refuse(waiting: Vec<Waiting>, error: &ProposeError) {
    for one in waiting {
        one.answer(Err(error.clone()));
    }
}

/// After a time; never, if there is none.
async fn at(due: Option<Duration>) {
    match due {
        Some(due) => tokio::time::sleep(due).await,
        None => std::future::pending().await,
    }
}
