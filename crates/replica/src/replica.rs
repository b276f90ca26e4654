//! One member, as the edge uses it.
//!
//! A replica has threads of its own for Raft, its peers and its driver, so that no flood of
//! requests costs a leader its leadership. Its methods may be called from any runtime; whatever
//! they wait for is made there.
//!
//! Waiting is the caller's to bound: dropping a future stops waiting and nothing else. What was
//! proposed goes on.
//!
//! Caveats: [`Replica::read`] looks into this member's own copy, which on a follower, or a leader
//! that was cut off, is old; who must see what was committed asks [`Replica::confirm`] first.
//! After [`Replica::shutdown`] the folder is let go of once the last clone is dropped.

use crate::confirm::Hurry;
use crate::core::Core;
use crate::environment::Environment;
use crate::leases::Renewal;
use crate::open::{Flush, Opened, Threads, open};
use crate::standing;
use crate::store::{Disk, Folder};
use crate::{
    Config, ForwardError, HeardError, Leadership, Member, MembershipError, NodeId, ProposeError,
    ReplicaError, Status, membership,
};
use fermata_pool::Pool;
use fermata_pool::command::{COMMANDS_PER_ENTRY_MAX, Command, Holder};
use fermata_pool::outcome::{Applied, Outcome, Refusal};
use fermata_pool::time::{Boundaries, Instant};
use openraft::async_runtime::WatchReceiver;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime;
use tokio::sync::{broadcast, watch};

/// Several commands that were applied in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The entry that held the last of them.
    pub index: u64,
    /// An outcome per command.
    pub outcomes: Vec<Outcome>,
}

/// A server's lease, from when its worker *sent* what renewed it (S42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLease {
    /// Silent for so long, the server is offline.
    pub server_timeout: Duration,
    /// Silent for so long after that, its active jobs are lost.
    pub job_timeout: Duration,
}

impl ServerLease {
    fn of(pool: &Pool) -> ServerLease {
        let settings = pool.settings();
        ServerLease {
            server_timeout: Duration::from_secs(u64::from(settings.server_timeout_s)),
            job_timeout: Duration::from_secs(u64::from(settings.job_timeout_s)),
        }
    }

    /// The whole lease: when it is over, the worker has stopped what it runs.
    #[must_use]
    pub fn whole(&self) -> Duration {
        self.server_timeout + self.job_timeout
    }
}

/// A snapshot that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// The last entry that it covers.
    pub index: u64,
    /// Its length.
    pub bytes: u64,
}

/// Answers what another member forwarded: opaque bytes in, opaque bytes out.
pub type ForwardedHandler =
    Arc<dyn Fn(Vec<u8>) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send>> + Send + Sync>;

/// One member; a clone is the same one.
#[derive(Clone)]
pub struct Replica {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    peer_address: SocketAddr,
    flush: Flush,
    runtime: runtime::Handle,
    /// Dropped, they end; none where it lives on a runtime of others.
    _threads: Option<Threads>,
}

impl Replica {
    /// Opens the folder, and founds, joins or goes on with its cluster.
    ///
    /// # Errors
    /// The folder is another's, damaged or in use; the address is taken; no peer lets it in.
    pub async fn open(config: Config) -> Result<Replica, ReplicaError> {
        let (threads, runtime) = Threads::start()?;
        let folder = Folder(config.data.clone());
        let opening = runtime.spawn(open(config, Environment::machine(), folder));
        let opened = opening.await.map_err(|_| ReplicaError::Stopped)??;
        Ok(Replica::of(opened, runtime, Some(threads)))
    }

    /// The same in another environment and over another disk, on the runtime that this is called
    /// on: what a simulation opens. The folder that is configured is not looked at.
    ///
    /// # Errors
    /// As [`Replica::open`].
    pub async fn open_in(
        config: Config,
        environment: Environment,
        disk: impl Disk,
    ) -> Result<Replica, ReplicaError> {
        let opened = open(config, environment, disk).await?;
        Ok(Replica::of(opened, runtime::Handle::current(), None))
    }

    fn of(opened: Opened, runtime: runtime::Handle, threads: Option<Threads>) -> Replica {
        Replica {
            inner: Arc::new(Inner {
                core: opened.core,
                peer_address: opened.peer_address,
                flush: opened.flush,
                runtime,
                _threads: threads,
            }),
        }
    }

    /// Where it listens for peers.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.inner.peer_address
    }

    /// Leader only: has a command committed and applied here.
    ///
    /// Gathered with what else arrives into one entry. Dropping the future never takes the
    /// command back.
    ///
    /// # Errors
    /// See [`ProposeError`] for which of them leave the outcome open.
    pub async fn propose(&self, command: Command) -> Result<Outcome, ProposeError> {
        let mut proposed = self.propose_all(vec![command]).await?;
        proposed.outcomes.pop().ok_or(ProposeError::Unknown)
    }

    /// The same for several commands, kept in order and in one entry, as far as its bounds allow.
    ///
    /// # Errors
    /// As [`Replica::propose`].
    pub async fn propose_all(&self, commands: Vec<Command>) -> Result<Proposed, ProposeError> {
        let core = &self.inner.core;
        self.must_lead()?;
        let mut proposed = Proposed {
            index: *core.state.applied().borrow(),
            outcomes: Vec::with_capacity(commands.len()),
        };
        let mut refused = None;
        for answer in core.queue.leave(commands)? {
            // An answer that never comes: the core has stopped on the way.
            match answer.await.unwrap_or(Err(ProposeError::Unknown)) {
                Ok(part) => {
                    proposed.index = part.index;
                    proposed.outcomes.extend(part.outcomes);
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            None => Ok(proposed),
            Some(error) if proposed.outcomes.is_empty() => Err(error),
            // Some of it was done.
            Some(_) => Err(ProposeError::Unknown),
        }
    }

    /// Returns once a majority confirmed this leader after the call arrived, and all that was
    /// committed by then is applied here: what is read then is linearizable.
    ///
    /// # Errors
    /// This member does not lead, or no majority confirmed it.
    pub async fn confirm(&self) -> Result<(), ProposeError> {
        self.confirmed(Hurry::AtOnce).await
    }

    async fn confirmed(&self, hurry: Hurry) -> Result<(), ProposeError> {
        self.must_lead()?;
        self.inner.core.confirmations.ask(hurry).await?;
        self.must_lead()
    }

    /// Looks into this member's own copy, under a lock that applying waits for: be short.
    pub fn read<R>(&self, look: impl FnOnce(&Pool) -> R) -> R {
        self.inner.core.state.read(look)
    }

    /// The instant that this member's clock would stamp now.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.core.now()
    }

    /// The local boundaries after an instant in this member's zone (S24): what the leader will stamp
    /// then, where the members' zones are the same.
    #[must_use]
    pub fn boundaries_after(&self, at: Instant) -> Boundaries {
        crate::clock::stamp(&self.inner.core.zone, at.us()).boundaries
    }

    /// The index of the last entry applied here.
    #[must_use]
    pub fn applied(&self) -> watch::Receiver<u64> {
        self.inner.core.state.applied()
    }

    /// What was applied: hints, of which a slow reader misses some; the state is the truth.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Arc<Applied>> {
        self.inner.core.state.events()
    }

    /// Who leads.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.core.leadership.subscribe()
    }

    /// A server's worker was heard. Returns once that renewed its lease (S41, S42): a majority
    /// confirmed this leader after the call arrived, and a new incarnation or the first renewal
    /// under this claim is committed.
    ///
    /// # Errors
    /// See [`HeardError`]; nothing was renewed.
    pub async fn server_heard(&self, holder: Holder) -> Result<ServerLease, HeardError> {
        self.server_renewed(holder, Hurry::AtOnce).await
    }

    /// The same where nobody waits for the answer: it may take 50 ms longer, so that it shares the
    /// question to the majority with others. A worker that would have to be committed is heard at
    /// once.
    ///
    /// # Errors
    /// As [`Replica::server_heard`].
    pub async fn server_heard_unhurried(&self, holder: Holder) -> Result<ServerLease, HeardError> {
        let hurry = if self.has_online(&holder) {
            Hurry::None
        } else {
            Hurry::AtOnce
        };
        self.server_renewed(holder, hurry).await
    }

    /// A server's worker was heard, with commands that it brings: an outcome for each, in order. What
    /// is committed for a worker that is known confirms this leader as well as a question to the
    /// majority would, so that it costs one round trip and not two. Without commands it is
    /// [`Replica::server_heard`].
    ///
    /// # Errors
    /// See [`HeardError`]; nothing was renewed, but some of the commands may have been carried out.
    pub async fn server_reported(
        &self,
        holder: Holder,
        commands: Vec<Command>,
    ) -> Result<(ServerLease, Vec<Outcome>), HeardError> {
        if commands.is_empty() {
            return Ok((self.server_heard(holder).await?, Vec::new()));
        }
        // What a worker brings that is not known, or not any more, must not go before it.
        if !self.has_online(&holder) {
            self.server_heard(holder.clone()).await?;
        }
        let arrived_us = self.inner.core.time.monotonic_us();
        let mut outcomes = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let some = commands.by_ref().take(COMMANDS_PER_ENTRY_MAX).collect();
            outcomes.extend(self.propose_all(some).await?.outcomes);
        }
        let lease = self.server_confirmed(holder, arrived_us).await?;
        Ok((lease, outcomes))
    }

    /// Whether a renewal of this very worker was committed under this claim, and it is online.
    fn has_online(&self, holder: &Holder) -> bool {
        let leases = self.inner.core.leases();
        let is_seen = leases
            .as_ref()
            .is_some_and(|leases| leases.has_online(holder));
        drop(leases);
        is_seen && self.read(|pool| stands(pool, holder))
    }

    async fn server_renewed(
        &self,
        holder: Holder,
        hurry: Hurry,
    ) -> Result<ServerLease, HeardError> {
        let arrived_us = self.inner.core.time.monotonic_us();
        self.confirmed(hurry).await?;
        self.server_confirmed(holder, arrived_us).await
    }

    /// Notes a worker's renewal that arrived then, and after which a majority confirmed this leader.
    async fn server_confirmed(
        &self,
        holder: Holder,
        arrived_us: i64,
    ) -> Result<ServerLease, HeardError> {
        let (lease, stands) = self.read(|pool| (ServerLease::of(pool), stands(pool, &holder)));
        let renewal = match self.inner.core.leases().as_mut() {
            Some(leases) => leases.hear_server(&holder, arrived_us, stands),
            None => return Err(self.not_leader().into()),
        };
        if renewal == Renewal::Commit {
            commit(self.propose(Command::ServerSeen(holder)).await?)?;
        }
        Ok(lease)
    }

    /// The caller of a job was heard; as [`Replica::server_heard`] (S46).
    ///
    /// # Errors
    /// See [`HeardError`]; nothing was renewed.
    pub async fn caller_heard(&self, job: &str) -> Result<(), HeardError> {
        let core = &self.inner.core;
        let arrived_us = core.time.monotonic_us();
        self.confirm().await?;
        let renewal = match core.leases().as_mut() {
            Some(leases) => leases.hear_caller(job, arrived_us),
            None => return Err(self.not_leader().into()),
        };
        let ended = self.read(|pool| match pool.standing(job) {
            None => Some(Refusal::UnknownJob),
            Some(standing) => standing.is_final().then_some(Refusal::Final),
        });
        if let Some(refusal) = ended {
            return Err(HeardError::Refused(refusal));
        }
        if renewal == Renewal::Commit {
            let seen = Command::CallerSeen { job: job.into() };
            commit(self.propose(seen).await?)?;
        }
        Ok(())
    }

    /// Has the leader's edge answer a request.
    ///
    /// # Errors
    /// See [`ForwardError`] for which of them leave open whether it was answered.
    pub async fn forward(
        &self,
        request: Vec<u8>,
        deadline: Duration,
    ) -> Result<Vec<u8>, ForwardError> {
        let core = &self.inner.core;
        let Some(leader) = core.leader() else {
            return Err(ForwardError::NoLeader);
        };
        if leader.node == core.node {
            return Err(ForwardError::Here);
        }
        core.forwards.ask(&leader, request, deadline).await
    }

    /// Sets who answers what others forward; once, by the edge. Until then they are told that
    /// this member cannot be reached.
    pub fn answer_forwarded(&self, answer: ForwardedHandler) {
        if self.inner.core.forwarded.set(answer).is_err() {
            tracing::warn!("who answers forwarded requests was set before, and stays");
        }
    }

    /// How this member stands.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.inner.core)
    }

    /// How this member stands, after it has asked the others how they do: each has answered, or
    /// is late.
    pub async fn survey(&self) -> Status {
        let core = Arc::clone(&self.inner.core);
        let asking = self
            .inner
            .runtime
            .spawn(async move { standing::ask_all(&core).await });
        if asking.await.is_err() {
            tracing::error!("the question how the members stand was broken off");
        }
        self.status()
    }

    /// Takes a snapshot, as happens by itself whenever the log has grown enough. Returns once one is
    /// durable that covers all that was applied here when this was called.
    ///
    /// # Errors
    /// The core has stopped.
    pub async fn take_snapshot(&self) -> Result<SnapshotTaken, ReplicaError> {
        let core = &self.inner.core;
        let wanted = *core.state.applied().borrow();
        let mut metrics = core.raft.metrics();
        loop {
            let taken = metrics.borrow_watched().snapshot.map(|id| id.index);
            if let Some(index) = taken.filter(|index| *index >= wanted) {
                let bytes = core.state.growth().snapshot_bytes;
                return Ok(SnapshotTaken { index, bytes });
            }
            // Ignored while an earlier one is being built, and then asked for again.
            let asked = core.raft.trigger().snapshot().await;
            asked.map_err(|cause| ReplicaError::Core {
                cause: Box::new(cause),
            })?;
            while metrics.borrow_watched().snapshot.map(|id| id.index) == taken {
                metrics.changed().await.map_err(|_| ReplicaError::Stopped)?;
            }
        }
    }

    /// Hands leadership to the named member, or to the one that is least behind; says to whom.
    ///
    /// # Errors
    /// This member does not lead, or no other can.
    pub async fn transfer(&self, to: Option<NodeId>) -> Result<NodeId, MembershipError> {
        self.on_own_threads(async move |core| membership::transfer(&core, to).await)
            .await
    }

    /// Leader only: lets a member in, as a learner until it has caught up, then as a voter.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn add_member(&self, member: Member) -> Result<(), MembershipError> {
        self.on_own_threads(async move |core| membership::add(&core, &member).await)
            .await
    }

    /// Leader only: takes a member out, dead or alive.
    ///
    /// # Errors
    /// See [`MembershipError`].
    pub async fn remove_member(&self, node: NodeId) -> Result<(), MembershipError> {
        self.on_own_threads(async move |core| membership::remove(&core, node).await)
            .await
    }

    /// Hands leadership over if this member has it, then stops, with its state on disk (S43).
    ///
    /// # Errors
    /// Something could not be written.
    pub async fn shutdown(&self) -> Result<(), ReplicaError> {
        let core = Arc::clone(&self.inner.core);
        core.stopping.store(true, Ordering::Relaxed);
        if core.members().voter_ids().nth(1).is_some()
            && let Err(error) = self.transfer(None).await
        {
            tracing::debug!(%error, "leadership was not handed over");
        }
        let flushed = (self.inner.flush)();
        let stopping = self.inner.runtime.spawn(async move {
            // It says nothing but that it is over.
            let _ = core.raft.shutdown().await;
            flushed.await
        });
        let flushed = stopping.await.map_err(|_| ReplicaError::Stopped)?;
        flushed.map_err(|cause| ReplicaError::Flush {
            cause: Arc::new(cause),
        })
    }

    /// Returns when the member has stopped by itself, with the cause; never otherwise.
    pub async fn failed(&self) -> ReplicaError {
        let mut metrics = self.inner.core.raft.metrics();
        let mut halted = self.inner.core.state.halted();
        loop {
            if let Some(cause) = halted.borrow_and_update().clone() {
                return cause;
            }
            let running = metrics.borrow_watched().running_state.clone();
            let stopping = self.inner.core.stopping.load(Ordering::Relaxed);
            match running {
                _ if stopping => return std::future::pending().await,
                Err(cause) => {
                    return ReplicaError::Core {
                        cause: Box::new(cause),
                    };
                }
                Ok(()) => {}
            }
            let ended = tokio::select! {
                // A cause of our own is told rather than what openraft makes of it.
                biased;
                halted = halted.changed() => halted.is_err(),
                running = metrics.changed() => running.is_err(),
            };
            if ended {
                let cause = halted.borrow().clone();
                return cause.unwrap_or(ReplicaError::Stopped);
            }
        }
    }

    fn not_leader(&self) -> ProposeError {
        ProposeError::NotLeader {
            leader: self.inner.core.other_leader(),
        }
    }

    fn must_lead(&self) -> Result<(), ProposeError> {
        let core = &self.inner.core;
        if core.stopping.load(Ordering::Relaxed) {
            return Err(ProposeError::Stopping);
        }
        match *core.leadership.borrow() {
            Leadership::Leader { .. } => Ok(()),
            Leadership::Follower { .. } | Leadership::Unknown => Err(self.not_leader()),
        }
    }

    /// What waits with timers needs this member's own runtime, wherever it is called from.
    async fn on_own_threads<T: Send + 'static, F>(
        &self,
        act: impl FnOnce(Arc<Core>) -> F,
    ) -> Result<T, MembershipError>
    where
        F: Future<Output = Result<T, MembershipError>> + Send + 'static,
    {
        let act = act(Arc::clone(&self.inner.core));
        let acted = self.inner.runtime.spawn(act).await;
        acted.unwrap_or(Err(MembershipError::Unknown))
    }
}

/// Whether the pool has this very incarnation of a worker, online.
fn stands(pool: &Pool, holder: &Holder) -> bool {
    pool.server(&holder.server)
        .is_some_and(|row| row.online && row.incarnation.as_ref() == Some(&holder.incarnation))
}

/// What was proposed must have been done.
fn commit(outcome: Outcome) -> Result<(), HeardError> {
    match outcome {
        Outcome::Refused(refusal) => Err(HeardError::Refused(refusal)),
        Outcome::Done | Outcome::Job(_) | Outcome::Stored { .. } => Ok(()),
    }
}
