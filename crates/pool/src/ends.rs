//! Ends: putting back, ending, trying again, and what is kept of it (S15, S31, S46–S49).
//!
//! Every way out of `starting` and `active` goes through [`Pool::release`], which frees the slot,
//! the server and, for an attempt that never became active, the starts that it took. Whatever is
//! freed is offered to those who wait for it.

use crate::apply::{Answer, cut};
use crate::command::CODE_NOT_BEGUN;
use crate::digest::hash_of;
use crate::job::{Attempt, End, JobNumber, LastAttempt, Note, PutBackCause, ScopeNumber, State};
use crate::members::Interned;
use crate::outcome::{Reason, Refusal};
use crate::rates::SWEPT_PER_ENTRY_MAX;
use crate::state::{Pool, Turn};
use crate::terms::Retry;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;

impl Pool {
    /// Takes a starting or active job off its pool and server. What an attempt took from rates is
    /// given back if it never became active (S31).
    fn release(&mut self, number: JobNumber) -> Option<Box<Attempt>> {
        let released = self.jobs.change(&number, |job| {
            let was_active = matches!(job.state, State::Active(_));
            match core::mem::replace(&mut job.state, State::Queued) {
                State::Starting(attempt) | State::Active(attempt) => {
                    Some((attempt, was_active, job.pool?))
                }
                other => {
                    job.state = other;
                    None
                }
            }
        });
        let (attempt, was_active, pool) = released.flatten()?;
        if let Some(deadline) = attempt.deadline {
            let by_deadline = if was_active {
                &mut self.index.aging
            } else {
                &mut self.index.starting
            };
            by_deadline.remove(&(deadline, number));
        }
        self.scopes.change(&pool, |scope| {
            scope.running = scope.running.saturating_sub(1);
        });
        self.note_running(pool, number, false);
        self.offer_slot(pool);
        if let Some(server) = attempt.server {
            self.index.held.remove(&(server, number));
            self.change_server(server, |server| {
                server.jobs = server.jobs.saturating_sub(1);
                server.used = server.used.saturating_sub(attempt.weight);
            });
            self.offer_server(server);
        }
        if !was_active {
            for ticket in attempt.taken.as_slice() {
                self.give_back_start(*ticket, attempt.at);
            }
        }
        Some(attempt)
    }

    /// Ends the current attempt without ending the job: it goes back to its place in the queue.
    pub(crate) fn put_back(&mut self, number: JobNumber, cause: PutBackCause, turn: &mut Turn) {
        let Some(attempt) = self.release(number) else {
            return;
        };
        let now = self.now();
        self.header.stats.put_back += 1;
        let pool = self.jobs.change(&number, |job| {
            job.put_back = true;
            job.say(
                now,
                Note::PutBack {
                    attempt: job.attempt,
                    cause,
                },
            );
            job.pool
        });
        self.moved_from(number, attempt.server, turn);
        if let Some(pool) = pool.flatten() {
            self.enqueue(number, pool);
        }
    }

    /// Ends a job, wherever it is, unless it is to be tried again (S49).
    pub(crate) fn end(
        &mut self,
        number: JobNumber,
        result: Result<i32, Reason>,
        description: Box<str>,
        turn: &mut Turn,
    ) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let interned = self.interned(job);
        let pool = job.pool;
        match &job.state {
            State::Ended(_) => return,
            State::Delayed { due } => {
                let due = *due;
                self.index.delayed.remove(&(due, number));
                self.change_delayed(pool, -1);
            }
            State::Queued => {
                if let Some(pool) = pool {
                    self.dequeue(number, pool);
                }
            }
            State::Starting(_) | State::Active(_) => {}
        }
        let attempt = self.release(number);
        let stop = attempt.as_ref().and_then(|attempt| attempt.stop);
        let result = stop.map_or(result, Err);
        let retry = interned.rules.retry.and_then(|retry| {
            let job = self.jobs.get(&number)?;
            retry_of(job.retries, retry, result)
        });
        if let Some((retry, delay_s)) = retry {
            let server = attempt.and_then(|attempt| attempt.server);
            self.delay_retry(number, pool, retry, delay_s);
            self.moved_from(number, server, turn);
        } else {
            self.finish(number, &interned, result, description, attempt, turn);
        }
    }

    fn delay_retry(
        &mut self,
        number: JobNumber,
        pool: Option<ScopeNumber>,
        retry: u32,
        delay_s: u64,
    ) {
        let now = self.now();
        let due = now.plus_s(delay_s);
        self.index.delayed.insert((due, number));
        self.change_delayed(pool, 1);
        self.jobs.change(&number, |job| {
            job.retries = retry;
            job.timeouts = 0;
            job.put_back = true;
            job.state = State::Delayed { due };
            job.say(now, Note::Retry { retry, due });
        });
    }

    fn finish(
        &mut self,
        number: JobNumber,
        interned: &Interned,
        result: Result<i32, Reason>,
        description: Box<str>,
        attempt: Option<Box<Attempt>>,
        turn: &mut Turn,
    ) {
        let now = self.now();
        let server = attempt.as_ref().and_then(|attempt| attempt.server);
        let last = attempt.map(|attempt| LastAttempt {
            at: attempt.at,
            index: attempt.index,
            ordinal: attempt.ordinal,
            server: attempt
                .server
                .and_then(|server| self.servers.get(&server))
                .map(|server| Arc::clone(&server.definition.id)),
            confirmed_at: attempt.confirmed_at,
        });
        let end = Box::new(End {
            at: now,
            result,
            description,
            last,
        });
        let left = self.jobs.change(&number, |job| {
            job.state = State::Ended(end);
            job.lease = None;
            job.unresolved = None;
            job.say(now, Note::Ended);
            (job.pool.take(), job.terms)
        });
        let Some((pool, terms)) = left else { return };
        if let Some(pool) = pool {
            self.index
                .members
                .leave(pool, terms, &interned.rules, number);
            self.scopes.change(&pool, |scope| {
                scope.members = scope.members.saturating_sub(1);
            });
            self.drop_unused_scope(pool);
        }
        self.index.leased.remove(&number);
        self.index.finished.insert((now, number));
        self.header.unfinished = self.header.unfinished.saturating_sub(1);
        let stats = &mut self.header.stats;
        match result {
            Ok(0) => stats.succeeded += 1,
            Ok(_) => stats.failed += 1,
            Err(reason) => {
                let place = Reason::ALL.iter().position(|it| *it == reason);
                if let Some(count) = place.and_then(|place| stats.aborted.get_mut(place)) {
                    *count += 1;
                }
            }
        }
        self.moved_from(number, server, turn);
    }

    /// The start action of an attempt failed before it was handed out: the job must not run. Its
    /// start is given back, for it never became active (S31).
    pub(crate) fn start_action_failed(
        &mut self,
        job: &str,
        attempt: u32,
        description: &str,
        turn: &mut Turn,
    ) -> Result<Answer, Refusal> {
        let number = self.attempt_of(job, attempt, None)?;
        match self.jobs.get(&number).map(|job| &job.state) {
            Some(State::Starting(_)) => {
                self.end(number, Ok(CODE_NOT_BEGUN), cut(description), turn);
                Ok(Answer::first(number))
            }
            Some(State::Ended(_)) => Err(Refusal::Final),
            _ => Err(Refusal::StaleAttempt),
        }
    }

    /// Counts the delayed members of a pool.
    pub(crate) fn change_delayed(&mut self, pool: Option<ScopeNumber>, by: i64) {
        if let Some(known) = pool.and_then(|pool| self.index.scopes.get_mut(&pool)) {
            known.delayed = known.delayed.saturating_add_signed(by);
        }
    }

    /// Lets finished jobs go that are older than the retention or more than may be kept (S47).
    pub(crate) fn forget_finished(&mut self) {
        let kept_us = i64::from(self.header.settings.retention_s) * crate::time::SECOND_US;
        let horizon = self.now().plus_us(-kept_us);
        let finished_max = usize::try_from(self.header.settings.finished_max).unwrap_or(usize::MAX);
        let mut swept = 0;
        while let Some((at, number)) = self.index.finished.first().copied() {
            let too_old = at <= horizon && at > Instant::EPOCH && swept < SWEPT_PER_ENTRY_MAX;
            if !too_old && self.index.finished.len() <= finished_max {
                break;
            }
            swept += 1;
            self.index.finished.remove(&(at, number));
            self.params.remove(&number);
            let Some(job) = self.jobs.remove(&number) else {
                continue;
            };
            self.index.job_ids.remove(hash_of(&*job.id), number);
            self.release_terms(job.terms);
        }
    }

    /// One job fewer refers to terms; they go with the last.
    pub(crate) fn release_terms(&mut self, terms: crate::job::TermsNumber) {
        if self.index.interner.release(terms) {
            self.terms.remove(&terms);
        }
    }
}

/// Which retry comes next and after how many seconds, if this end is one that is tried again and
/// retries are left; `retries` were had (S49).
pub(crate) fn retry_of(
    retries: u32,
    retry: Retry,
    result: Result<i32, Reason>,
) -> Option<(u32, u64)> {
    let Retry {
        amount,
        delay_s,
        backoff,
    } = retry;
    let again = match result {
        Ok(code) => code != 0,
        Err(reason) => matches!(
            reason,
            Reason::ServerLost | Reason::NoServer | Reason::LeaseExpired | Reason::TimeLimit
        ),
    };
    if !again || retries >= amount {
        return None;
    }
    let factor = backoff.saturating_pow(retries);
    let grown = delay_s.saturating_mul(factor);
    let most = crate::limits::RETRY_DELAY_S_MAX.max(delay_s);
    Some((retries + 1, grown.min(most)))
}
