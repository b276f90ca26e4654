//! What every call shares: the replica, who waits, how much is taken on.

use std::ops::Deref;
use std::sync::Arc;

use fermata_api::headers::{AGE_MS, APPLIED_INDEX};
use fermata_api::problem::{ErrorCode, Problem};
use fermata_pool::command::Command;
use fermata_pool::outcome::Outcome;
use fermata_pool::time::{Boundaries, Instant};
use fermata_replica::{Proposed, Replica};
use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::Config;
use crate::actor::Actor;
use crate::admission::{Admission, Deadline};
use crate::calls::poll::Polls;
use crate::convert::refusals;
use crate::hints::Hints;
use crate::refused::Refused;
use crate::start_actions::StartActions;

/// The edge of one node; a clone is the same one.
#[derive(Clone)]
pub(crate) struct Edge(Arc<Shared>);

/// What the clones share.
pub(crate) struct Shared {
    pub(crate) replica: Replica,
    pub(crate) hints: Hints,
    pub(crate) admission: Admission,
    /// What the leader remembers of the workers' polls.
    pub(crate) polls: Polls,
    /// What the leader knows of start actions.
    pub(crate) start_actions: StartActions,
    /// True once the node is being shut down: what is held ends.
    pub(crate) closing: watch::Receiver<bool>,
}

impl Deref for Edge {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Edge {
    pub(crate) fn new(replica: Replica, config: &Config, closing: watch::Receiver<bool>) -> Self {
        Self(Arc::new(Shared {
            replica,
            hints: Hints::default(),
            admission: Admission::new(config),
            polls: Polls::new(),
            start_actions: StartActions::default(),
            closing,
        }))
    }

    /// Where local boundaries lie, to look ahead by.
    pub(crate) fn calendar(&self) -> impl Fn(Instant) -> Boundaries + '_ {
        |at| self.replica.boundaries_after(at)
    }

    /// Has a command committed and applied; a refusal of the pool is the call's.
    pub(crate) async fn propose(
        &self,
        deadline: Deadline,
        command: Command,
    ) -> Result<Outcome, Refused> {
        let proposal = timeout_at(deadline.at, self.replica.propose(command));
        match proposal.await.map_err(|_| Refused::unknown())?? {
            Outcome::Refused(refusal) => Err(refusals::refusal(refusal).into()),
            outcome => Ok(outcome),
        }
    }

    /// As [`Edge::propose`] for a change by an operator, of which a record is kept.
    pub(crate) async fn propose_by(
        &self,
        actor: Actor,
        deadline: Deadline,
        command: Command,
    ) -> Result<Outcome, Refused> {
        let command = Command::By {
            actor: actor.into_name(),
            command: Box::new(command),
        };
        self.propose(deadline, command).await
    }

    /// Has commands committed and applied, in order; each has its outcome.
    pub(crate) async fn propose_all(
        &self,
        deadline: Deadline,
        commands: Vec<Command>,
    ) -> Result<Vec<Outcome>, Refused> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let proposal = timeout_at(deadline.at, self.replica.propose_all(commands));
        let Proposed { outcomes, .. } = proposal.await.map_err(|_| Refused::unknown())??;
        Ok(outcomes)
    }

    /// Like [`Edge::propose`] for what an attempt's executor says: a refusal shows the job as it
    /// is, so that the sender need not ask.
    pub(crate) async fn propose_about(
        &self,
        deadline: Deadline,
        job: &str,
        command: Command,
    ) -> Result<(), Refused> {
        let mut refused = match self.propose(deadline, command).await {
            Ok(_) => return Ok(()),
            Err(refused) => refused,
        };
        let concerns_attempt = matches!(
            refused.problem.code,
            ErrorCode::StaleAttempt | ErrorCode::NotActive | ErrorCode::Final
        );
        if concerns_attempt {
            refused.problem.job = self.job(job).ok().map(Box::new);
        }
        Err(refused)
    }

    /// Shows which entry an answer reflects.
    pub(crate) fn show_applied(&self, headers: &mut HeaderMap) {
        let applied = *self.replica.applied().borrow();
        headers.insert(APPLIED_INDEX, HeaderValue::from(applied));
    }

    /// Shows how old this node's own copy may be.
    pub(crate) fn show_age(&self, headers: &mut HeaderMap) {
        self.show_applied(headers);
        let stamp = self.replica.read(|pool| pool.stamp().at);
        let age_us = self.replica.now().since_us(stamp);
        headers.insert(AGE_MS, HeaderValue::from(age_us.div_euclid(1_000)));
    }
}

/// An outcome that the command cannot have: a fault of this program.
pub(crate) fn unexpected(outcome: &Outcome) -> Refused {
    tracing::error!(?outcome, "a command had an outcome of another kind");
    Problem::new(ErrorCode::Internal, "see the log of the node").into()
}
