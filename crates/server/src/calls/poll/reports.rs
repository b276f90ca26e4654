//! What a poll brings: that its worker takes nothing new, confirmations, and ends.
//!
//! All of it is one proposal, in this order, and renews the lease as well: what is committed for a
//! worker confirms the leader. Repeating it is harmless (S40), so a poll that fails midway is sent
//! again whole.

use fermata_api::jobs::JobState;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::servers::{AttemptRef, AttemptResult, Completion};
use fermata_pool::command::Command;
use fermata_pool::outcome::Outcome;
use fermata_replica::ServerLease;
use tokio::time::timeout_at;

use super::{Poll, named};
use crate::admission::Deadline;
use crate::calls::attempts::description;
use crate::convert::{inward, outward, refusals};
use crate::edge::{Edge, unexpected};
use crate::refused::Refused;

/// Confirmations and ends, as they came and as commands.
pub(super) struct Reports {
    started: Vec<(AttemptRef, Command)>,
    completed: Vec<(AttemptRef, Command)>,
}

/// A poll that was heard: the lease that it renewed, and a result for each report, in order.
pub(super) struct Heard {
    pub(super) lease: ServerLease,
    pub(super) started: Vec<AttemptResult>,
    pub(super) completed: Vec<AttemptResult>,
}

impl Heard {
    /// Of a poll that brought nothing.
    pub(super) fn without_reports(lease: ServerLease) -> Self {
        Self {
            lease,
            started: Vec::new(),
            completed: Vec::new(),
        }
    }
}

impl Reports {
    /// Checks what came with a poll.
    pub(super) fn read(
        poll: &Poll,
        started: Vec<AttemptRef>,
        completed: Vec<Completion>,
    ) -> Result<Self, Problem> {
        let mut reports = Self {
            started: Vec::with_capacity(started.len()),
            completed: Vec::with_capacity(completed.len()),
        };
        for (position, confirmed) in started.into_iter().enumerate() {
            let command = Command::Started {
                job: inward::id(&format!("started[{position}].job"), &confirmed.job)?,
                attempt: confirmed.attempt,
                from: Some(poll.holder.clone()),
            };
            reports.started.push((confirmed, command));
        }
        for (position, ended) in completed.into_iter().enumerate() {
            let field = format!("completed[{position}]");
            let named = named(&ended);
            let command = Command::Completed {
                job: inward::id(&format!("{field}.job"), &ended.job)?,
                attempt: ended.attempt,
                code: ended.code,
                description: description(&format!("{field}.description"), ended.description)?,
                from: Some(poll.holder.clone()),
            };
            reports.completed.push((named, command));
        }
        Ok(reports)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.started.is_empty() && self.completed.is_empty()
    }
}

impl Edge {
    /// Brings reports into the log, and renews the lease with them (S41). Confirmations of attempts
    /// whose start action is not over are answered so, and wait.
    pub(super) async fn reported(
        &self,
        deadline: Deadline,
        poll: &Poll,
        reports: Reports,
    ) -> Result<Heard, Refused> {
        let is_pending: Vec<bool> = self.replica.read(|pool| {
            let confirmed = reports.started.iter().map(|(named, _)| named);
            let pending = confirmed.map(|named| {
                pool.job(&named.job)
                    .filter(|view| view.job.attempt == named.attempt)
                    .is_some_and(|view| self.start_actions.is_pending(poll.claim, &view))
            });
            pending.collect()
        });
        let draining = self
            .starts_to_drain(poll)
            .then(|| Command::ServerDraining(poll.holder.clone()));
        let says_drain = draining.is_some();
        let (started, confirmations): (Vec<_>, Vec<_>) = reports.started.into_iter().unzip();
        let (completed, ends): (Vec<_>, Vec<_>) = reports.completed.into_iter().unzip();
        let ready = confirmations.into_iter().zip(&is_pending);
        let ready = ready.filter_map(|(command, is_pending)| (!is_pending).then_some(command));
        let commands: Vec<Command> = draining.into_iter().chain(ready).chain(ends).collect();
        let late = match commands.is_empty() {
            true => || Refused::unled("no majority confirmed the leader in time"),
            false => Refused::unknown,
        };
        let reporting = self.replica.server_reported(poll.holder.clone(), commands);
        let (lease, outcomes) = timeout_at(deadline.at, reporting)
            .await
            .map_err(|_| late())??;
        let mut outcomes = outcomes.into_iter();
        if says_drain && let Some(Outcome::Refused(refusal)) = outcomes.next() {
            return Err(refusals::refusal(refusal).into());
        }
        let mut result = |named: AttemptRef| match outcomes.next() {
            Some(outcome) => self.result(named, outcome),
            None => Err(Refused::unknown()),
        };
        let confirmed = started.into_iter().zip(is_pending);
        let confirmed = confirmed.map(|(named, is_pending)| match is_pending {
            true => Ok(pending(named)),
            false => result(named),
        });
        Ok(Heard {
            lease,
            started: confirmed.collect::<Result<_, _>>()?,
            completed: completed
                .into_iter()
                .map(result)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Whether it is news that the worker takes nothing new.
    fn starts_to_drain(&self, poll: &Poll) -> bool {
        poll.draining
            && self.replica.read(|pool| {
                let server = pool.server(&poll.server);
                server.is_some_and(|server| !server.draining)
            })
    }

    fn result(&self, named: AttemptRef, outcome: Outcome) -> Result<AttemptResult, Refused> {
        let (state, error) = match outcome {
            Outcome::Job(outcome) => (Some(outward::standing(&outcome.standing)), None),
            Outcome::Refused(refusal) => {
                let standing = self.replica.read(|pool| pool.standing(&named.job));
                let state = standing.as_ref().map(outward::standing);
                (state, Some(refusals::code(&refusal)))
            }
            outcome @ (Outcome::Done | Outcome::Stored { .. }) => return Err(unexpected(&outcome)),
        };
        Ok(AttemptResult {
            job: named.job,
            attempt: named.attempt,
            state,
            error,
        })
    }
}

/// The result of a confirmation that came before the attempt's start action was over.
fn pending(named: AttemptRef) -> AttemptResult {
    AttemptResult {
        job: named.job,
        attempt: named.attempt,
        state: Some(JobState::Starting),
        error: Some(ErrorCode::StartActionPending),
    }
}
