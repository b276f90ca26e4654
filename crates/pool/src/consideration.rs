//! A job that falls due is considered: it starts, waits, or is aborted (S15–S17).
//!
//! What becomes of it is decided without changing anything, so that a question (`dry_run`) gets
//! the answer that a launch would get.

use crate::admission::Shut;
use crate::job::{JobNumber, Note, ScopeNumber, ServerNumber};
use crate::limits::Mode;
use crate::members::Interned;
use crate::outcome::{RateOutcome, Reason};
use crate::queue::{job_of, order_of};
use crate::state::{Pool, Turn};
use crate::time::Instant;

/// What becomes of a job that is considered for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It starts: on a server, or at its caller.
    Start(Option<ServerNumber>),
    /// It is queued, at the gate that is shut or behind others.
    Queue(Option<Shut>),
    /// It is aborted.
    Abort(Reason),
}

/// A job that is considered.
#[derive(Debug)]
pub(crate) struct Considered<'a> {
    pub(crate) number: JobNumber,
    pub(crate) pool: ScopeNumber,
    pub(crate) interned: &'a Interned,
    /// Its place in the queue.
    pub(crate) order: u64,
    /// Whether it was put back (S15).
    pub(crate) put_back: bool,
}

impl Pool {
    /// Decides about a job of this order in its pool's queue; `pool` need not exist yet. One that
    /// was put back waits wherever it may not start (S15).
    pub(crate) fn verdict(
        &self,
        pool: ScopeNumber,
        interned: &Interned,
        order: u64,
        put_back: bool,
        place: u64,
        at: Instant,
    ) -> Verdict {
        let found = self.look_at_gates(pool, interned, place, at);
        self.judge(pool, interned, order, put_back, found, |head| {
            self.look_at_gates(pool, head, place, at).err()
        })
    }

    /// The same, where it is known what its gates say; `shut_to` tells the first gate that is shut
    /// to the head of the queue, for the reason of those behind it (S16).
    pub(crate) fn judge(
        &self,
        pool: ScopeNumber,
        interned: &Interned,
        order: u64,
        put_back: bool,
        found: Result<Option<ServerNumber>, Shut>,
        shut_to: impl FnOnce(&Interned) -> Option<Shut>,
    ) -> Verdict {
        let queue = self.index.scopes.get(&pool).map(|known| &known.queue);
        let ahead = queue
            .and_then(|queue| queue.first())
            .filter(|first| *first < order);
        let waiting = queue.map_or(0, |queue| queue.len() as u64);
        let shut = match found {
            Ok(server) if ahead.is_none() => return Verdict::Start(server),
            found if put_back => return Verdict::Queue(found.err()),
            Err(shut) if shut.mode == Some(Mode::Skip) => {
                return Verdict::Abort(Reason::RateLimited);
            }
            found => found.err(),
        };
        match (interned.rules.queue, shut) {
            (Some(amount), _) if waiting < u64::from(amount) => Verdict::Queue(shut),
            (Some(_), _) => Verdict::Abort(Reason::QueueFull),
            (
                None,
                Some(Shut {
                    mode: Some(Mode::Wait),
                    ..
                }),
            ) => Verdict::Queue(shut),
            (None, Some(shut)) => Verdict::Abort(shut.reason()),
            (None, None) => {
                let head = ahead.and_then(|head| self.jobs.get(&job_of(head)));
                let shut = head.and_then(|head| shut_to(&self.interned(head)));
                Verdict::Abort(shut.map_or(Reason::ConcurrencyLimited, Shut::reason))
            }
        }
    }

    /// Considers a job that falls due, for the first time or again (S49).
    pub(crate) fn consider(&mut self, number: JobNumber, turn: &mut Turn) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let Some(pool) = job.pool else { return };
        let considered = Considered {
            number,
            pool,
            interned: &self.interned(job),
            order: order_of(number, job),
            put_back: job.put_back,
        };
        self.consider_now(&considered, turn);
    }

    pub(crate) fn consider_now(&mut self, it: &Considered<'_>, turn: &mut Turn) {
        let &Considered {
            number,
            pool,
            interned,
            order,
            put_back,
        } = it;
        match self.verdict(pool, interned, order, put_back, turn.place(), self.now()) {
            Verdict::Start(server) => self.start(number, pool, interned, server, turn),
            Verdict::Abort(reason) => {
                let skipped = reason == Reason::RateLimited;
                self.header.stats.skipped += u64::from(skipped);
                if skipped && self.records_rate_checks {
                    self.tell_skipped(pool, interned, turn);
                }
                self.end(number, Err(reason), "".into(), turn);
            }
            Verdict::Queue(shut) => {
                if let Some(shut) = shut {
                    self.tell_shut(shut, interned, RateOutcome::Throttled, turn);
                }
                self.let_wait(number, pool, order, shut, turn);
            }
        }
    }

    /// Tells of the rate for which a job is aborted: one of its own, or, where it is held only by
    /// those ahead of it, the head's (S16).
    fn tell_skipped(&self, pool: ScopeNumber, interned: &Interned, turn: &mut Turn) {
        let (place, at) = (turn.place(), self.now());
        if let Err(shut) = self.look_at_gates(pool, interned, place, at) {
            self.tell_shut(shut, interned, RateOutcome::Skipped, turn);
            return;
        }
        let head = self.scopes.get(&pool).and_then(|scope| scope.head);
        let Some(head) = head.and_then(|head| self.jobs.get(&head.job)) else {
            return;
        };
        let interned = self.interned(head);
        if let Err(shut) = self.look_at_gates(pool, &interned, place, at) {
            self.tell_shut(shut, &interned, RateOutcome::Skipped, turn);
        }
    }

    fn let_wait(
        &mut self,
        number: JobNumber,
        pool: ScopeNumber,
        order: u64,
        shut: Option<Shut>,
        turn: &mut Turn,
    ) {
        let now = self.now();
        let by_rate = shut.is_some_and(|shut| shut.reason() == Reason::RateLimited);
        self.header.stats.queued_by_rate += u64::from(by_rate);
        self.header.stats.throttled += u64::from(by_rate);
        let note = shut.map_or(Note::QueuedBehind, |shut| Note::Queued(shut.reason()));
        self.jobs.change(&number, |job| job.say(now, note));
        self.moved(number, turn);
        self.enqueue(number, pool);
        let first = self
            .index
            .scopes
            .get(&pool)
            .and_then(|known| known.queue.first());
        if let Some(shut) = shut.filter(|_| first == Some(order)) {
            // It was looked at just now: the gate is the one that it found.
            self.set_gate(pool, shut.gate);
        }
    }
}
