//! Heads: who is considered next (S20).
//!
//! The first job of each queue, its head, waits for exactly one gate: the one that it found shut
//! when it was considered last. Where that is a gate of its pool, it waits alone; where it is a
//! bucket or a server, it waits with those of its kind, and the first of them is registered for all
//! (see `kinds`). When a gate may have opened, its first waiter becomes a candidate;
//! [`Pool::examine`] considers candidates in S19's order across pools until there are none. Whoever
//! is considered leaves its queue, or waits for the gate that is shut now; and all of its kind that
//! would have been considered after it, and found the same, go with it.
//!
//! Which are these? While queues are examined, gates only shut, and only when a job starts. So a
//! kind whose first head found a gate shut stands aside while the others are considered. When one
//! of these starts and what the kind found no longer holds, its heads up to that one have found it
//! and move, and its later heads are considered anew; at the end all of them have. The gate that
//! each head waits for is thus the one that it would have found by itself, in its turn.
//!
//! Invariant: after [`Pool::examine`] with budget left, no head that could start is waiting.
//!
//! What is visited: each candidate, each kind that stands aside once more when a start may concern
//! it, and each stretch that moves. All of these count towards the entry's bound but the last,
//! which are moved whatever the bound, so that no head is left where it need not be.
//!
//! Caveats: a reset or an override of a bucket has every head that waits there considered (S32,
//! S33); those of a kind go together, but those that wait alone are touched one by one. Kinds that
//! stand aside at servers, and weigh more than is left on the server that took a
//! start, are asked again at each such start for as long as another server has room for them.

use crate::admission::Shut;
use crate::job::{JobNumber, KindNumber, ScopeNumber, ServerNumber};
use crate::limits::Mode;
use crate::members::Interned;
use crate::outcome::{RateOutcome, Reason};
use crate::queue::{job_of, order_of};
use crate::scope::{Gate, Head, Waits};
use crate::state::{Pool, Source, Turn};
use crate::window::Opening;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A kind whose first head at a gate that is open found another one shut.
#[derive(Clone, Copy, Debug)]
struct Aside {
    kind: KindNumber,
    open: Gate,
    shut: Gate,
}

/// What a start may have changed for others.
struct Change {
    /// A bucket has become shut.
    shut_bucket: bool,
    /// The server that has less room, and how much is left.
    room: u32,
}

impl Pool {
    /// Puts a job into its queue; it may become the head.
    pub(crate) fn enqueue(&mut self, number: JobNumber, pool: ScopeNumber) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let order = order_of(number, job);
        let interned = self.interned(job);
        let known = self.index.scopes.get_mut(&pool);
        if known.is_some_and(|known| known.queue.insert(order)) {
            self.index.wanted.note(true, &interned, (order, pool));
        }
        self.refresh_head(pool);
    }

    /// Takes a job out of its queue; another may become the head.
    pub(crate) fn dequeue(&mut self, number: JobNumber, pool: ScopeNumber) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let order = order_of(number, job);
        let interned = self.interned(job);
        let known = self.index.scopes.get_mut(&pool);
        if known.is_some_and(|known| known.queue.remove(order)) {
            self.index.wanted.note(false, &interned, (order, pool));
        }
        self.refresh_head(pool);
    }

    /// Makes the first of the queue the head; a new head is due.
    fn refresh_head(&mut self, pool: ScopeNumber) {
        let first = self
            .index
            .scopes
            .get(&pool)
            .and_then(|known| known.queue.first());
        let head = self.scopes.get(&pool).and_then(|scope| scope.head);
        if head.map(|head| head.job) == first.map(job_of) {
            return;
        }
        if let Some(head) = head {
            self.register(pool, head, false);
        }
        let head = first.map(|order| Head {
            job: job_of(order),
            waits: Waits::Alone(Gate::Due),
        });
        self.scopes.change(&pool, |scope| scope.head = head);
        if let Some(head) = head {
            self.register(pool, head, true);
        }
    }

    /// Lets the head of a pool wait for another gate; for a bucket or a server only where it found
    /// that one shut just now, so that the gates before it are open.
    pub(crate) fn set_gate(&mut self, pool: ScopeNumber, gate: Gate) {
        let Some(head) = self.scopes.get(&pool).and_then(|scope| scope.head) else {
            return;
        };
        if self.gate_of(head) == gate {
            return;
        }
        self.register(pool, head, false);
        let kind = if gate.is_shared_by(pool) {
            self.join_kind(pool, head.job, gate)
        } else {
            None
        };
        let waits = kind.map_or(Waits::Alone(gate), Waits::InKind);
        let head = Head { waits, ..head };
        self.scopes.change(&pool, |scope| scope.head = Some(head));
        if kind.is_none() {
            self.register(pool, head, true);
        }
    }

    /// Registers a head that waits alone under its gate; or takes a head off its gate, and out of
    /// its kind.
    pub(crate) fn register(&mut self, pool: ScopeNumber, head: Head, waits: bool) {
        let Some(job) = self.jobs.get(&head.job) else {
            return;
        };
        let order = order_of(head.job, job);
        let interned = self.interned(job);
        let gate = match head.waits {
            Waits::Alone(gate) => {
                self.post(waits, gate, (order, pool), &interned);
                Some(gate)
            }
            Waits::InKind(kind) => self.leave_kind(kind, pool, order, &interned),
        };
        if let Some(Gate::Rate(scope)) = gate.filter(|_| !waits) {
            self.drop_unused_scope(scope);
        }
    }

    /// Notes at a gate that a head waits for it, or no longer does.
    pub(crate) fn post(
        &mut self,
        waits: bool,
        gate: Gate,
        (order, pool): (u64, ScopeNumber),
        interned: &Interned,
    ) {
        match gate {
            Gate::Slot => {}
            Gate::Due if waits => {
                self.index.candidates.insert((order, pool, Source::Due));
            }
            Gate::Due => {
                self.index.candidates.remove(&(order, pool, Source::Due));
            }
            Gate::Rate(scope) => {
                if waits {
                    self.index.rate_waiters.insert((scope, order, pool));
                } else {
                    self.index.rate_waiters.remove(&(scope, order, pool));
                }
                self.settle_rate(scope);
            }
            Gate::Server => {
                let waiter = (interned.rules.weight, order, pool);
                self.index
                    .fleet
                    .register(waits, &interned.terms.targets, waiter);
            }
        }
    }

    /// The head of a pool is to be considered if it waits for a slot and there is one.
    pub(crate) fn offer_slot(&mut self, pool: ScopeNumber) {
        let Some(scope) = self.scopes.get(&pool) else {
            return;
        };
        let Some(head) = scope
            .head
            .filter(|head| head.waits == Waits::Alone(Gate::Slot))
        else {
            return;
        };
        let Some(job) = self.jobs.get(&head.job) else {
            return;
        };
        let amount = scope.amount_in_force(self.interned(job).rules.amount);
        if amount.is_none_or(|amount| scope.running < amount) {
            self.set_gate(pool, Gate::Due);
        }
    }

    /// Heads that wait for the rate of a scope are to be considered at once, also where it is still
    /// shut: its window was reset (S32).
    pub(crate) fn wake_rate_waiters(&mut self, scope: ScopeNumber) {
        let gate = Gate::Rate(scope);
        for kind in self.index.kinds.waiting_for(gate) {
            self.move_alike(kind, gate, Gate::Due, None);
            self.enlist(kind, gate);
            self.enlist(kind, Gate::Due);
        }
        let all = (scope, 0, ScopeNumber(0))..=(scope, u64::MAX, ScopeNumber(u64::MAX));
        let alone = self.index.rate_waiters.range(all);
        let alone: Vec<ScopeNumber> = alone.map(|(_, _, pool)| *pool).collect();
        for pool in alone {
            self.set_gate(pool, Gate::Due);
        }
    }

    /// The same for its rate and its slots: its override has changed (S33).
    pub(crate) fn wake_all_waiters(&mut self, scope: ScopeNumber) {
        self.wake_rate_waiters(scope);
        let head = self.scopes.get(&scope).and_then(|scope| scope.head);
        if head.is_some_and(|head| head.waits == Waits::Alone(Gate::Slot)) {
            self.set_gate(scope, Gate::Due);
        }
    }

    /// The first head that a server has room for is to be considered.
    pub(crate) fn offer_server(&mut self, number: ServerNumber) {
        let Some(server) = self.servers.get(&number) else {
            return;
        };
        if let Some((order, pool)) = self.index.fleet.best_fit(server) {
            self.index
                .candidates
                .insert((order, pool, Source::Server(number)));
        }
    }

    /// Considers heads until none is left that could move, or the entry's bound is reached (S20).
    pub(crate) fn examine(&mut self, turn: &mut Turn) {
        let mut asides = Vec::new();
        while turn.budget > 0 {
            let Some(candidate) = self.index.candidates.pop_first() else {
                break;
            };
            let (order, pool, source) = candidate;
            if self.is_first_at(source, order, pool) {
                self.visit(turn);
                let starts = turn.starts;
                self.consider_head(pool, job_of(order), turn, &mut asides);
                if turn.starts > starts && !asides.is_empty() {
                    self.recheck_asides(&mut asides, order, turn);
                }
            }
            match source {
                Source::Due => {}
                Source::Rate(scope) => self.settle_rate(scope),
                Source::Server(server) => self.offer_server(server),
            }
        }
        for aside in asides {
            self.move_aside(aside, None);
        }
    }

    fn visit(&mut self, turn: &mut Turn) {
        turn.budget = turn.budget.saturating_sub(1);
        self.index.visited += 1;
    }

    /// True unless a candidate was overtaken by what happened since it was offered.
    fn is_first_at(&self, source: Source, order: u64, pool: ScopeNumber) -> bool {
        let first = match source {
            Source::Due => {
                let head = self.scopes.get(&pool).and_then(|scope| scope.head);
                let head = head.filter(|head| head.job == job_of(order));
                return head.is_some_and(|head| self.gate_of(head) == Gate::Due);
            }
            Source::Rate(scope) if self.rate_opening(scope, self.now()) != Opening::Open => None,
            Source::Rate(scope) => self.first_rate_waiter(scope),
            Source::Server(server) => self
                .servers
                .get(&server)
                .and_then(|server| self.index.fleet.best_fit(server)),
        };
        first == Some((order, pool))
    }

    fn consider_head(
        &mut self,
        pool: ScopeNumber,
        number: JobNumber,
        turn: &mut Turn,
        asides: &mut Vec<Aside>,
    ) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let interned = self.interned(job);
        if self.event_is_missing(&interned) {
            self.end(number, Err(Reason::EventMissing), "".into(), turn);
            return;
        }
        let put_back = job.put_back;
        match self.look_at_gates(pool, &interned, turn.place(), self.now()) {
            Ok(server) => {
                self.dequeue(number, pool);
                self.start(number, pool, &interned, server, turn);
            }
            Err(
                shut @ Shut {
                    mode: Some(Mode::Skip),
                    ..
                },
            ) if !put_back => {
                self.header.stats.skipped += 1;
                self.tell_shut(shut, &interned, RateOutcome::Skipped, turn);
                self.end(number, Err(Reason::RateLimited), "".into(), turn);
            }
            Err(shut) => {
                self.tell_shut(shut, &interned, RateOutcome::Throttled, turn);
                asides.extend(self.let_wait_for(pool, shut));
            }
        }
    }

    /// Lets a head wait for a gate that it found shut; those of its kind stand aside.
    fn let_wait_for(&mut self, pool: ScopeNumber, shut: Shut) -> Option<Aside> {
        let head = self.scopes.get(&pool)?.head?;
        let Waits::InKind(kind) = head.waits else {
            self.count_throttled(shut.gate, 1);
            self.set_gate(pool, shut.gate);
            return None;
        };
        let open = self.gate_of(head);
        self.delist(kind, open);
        Some(Aside {
            kind,
            open,
            shut: shut.gate,
        })
    }

    fn count_throttled(&mut self, gate: Gate, heads: u64) {
        if matches!(gate, Gate::Rate(_)) {
            self.header.stats.throttled += heads;
        }
    }

    /// After a start by a job of this order: kinds for which it changed what they found are no
    /// longer aside.
    fn recheck_asides(&mut self, asides: &mut Vec<Aside>, order: u64, turn: &mut Turn) {
        let Some(change) = self.change_by(job_of(order)) else {
            return;
        };
        let mut kept = Vec::with_capacity(asides.len());
        for aside in asides.drain(..) {
            if self.still_finds(aside, &change, turn) {
                kept.push(aside);
            } else {
                self.move_aside(aside, Some(order));
            }
        }
        *asides = kept;
    }

    /// What the start of a job may have changed for heads of other pools.
    fn change_by(&self, number: JobNumber) -> Option<Change> {
        let job = self.jobs.get(&number)?;
        let attempt = job.current()?;
        let buckets = attempt
            .taken
            .as_slice()
            .iter()
            .filter(|ticket| Some(ticket.scope) != job.pool);
        let shut = |scope| self.rate_opening(scope, self.now()) != Opening::Open;
        let server = attempt.server.and_then(|server| self.servers.get(&server));
        Some(Change {
            shut_bucket: buckets.into_iter().any(|ticket| shut(ticket.scope)),
            room: server.map_or(u32::MAX, |server| server.room()),
        })
    }

    /// True where a kind that stands aside would find the same after a start as before it. Only a
    /// bucket that shut, or a server that lost room for its weight, can make a difference.
    fn still_finds(&mut self, aside: Aside, change: &Change, turn: &mut Turn) -> bool {
        let Some(kind) = self.index.kinds.get(aside.kind) else {
            return false;
        };
        let interned = Arc::clone(&kind.likeness.interned);
        let fits = aside.open != Gate::Server || interned.rules.weight <= change.room;
        if fits && !change.shut_bucket {
            return true;
        }
        self.visit(turn);
        let found = self.look_at_shared_gates(&interned, 0, self.now());
        found.err().map(|shut| shut.gate) == Some(aside.shut)
            && self.is_open_to(aside.open, &interned)
    }

    /// True where a shared gate lets a job through now.
    fn is_open_to(&self, gate: Gate, interned: &Interned) -> bool {
        match gate {
            Gate::Due | Gate::Slot => true,
            Gate::Rate(scope) => self.rate_opening(scope, self.now()) == Opening::Open,
            Gate::Server => self.server_for(interned).is_some(),
        }
    }

    /// The heads of a kind that stands aside, up to an order, wait for what its first one found
    /// shut; those after it are to be considered if their gate is still open.
    fn move_aside(&mut self, aside: Aside, before: Option<u64>) {
        let Aside { kind, open, shut } = aside;
        let moved = self.move_alike(kind, open, shut, before);
        self.count_throttled(shut, moved);
        self.enlist(kind, shut);
        self.enlist(kind, open);
        match open {
            Gate::Due | Gate::Slot => {}
            Gate::Rate(scope) => {
                self.settle_rate(scope);
                self.drop_unused_scope(scope);
            }
            Gate::Server => {
                let kind = self.index.kinds.get(kind);
                let interned = kind.map(|kind| Arc::clone(&kind.likeness.interned));
                let server = interned.and_then(|interned| self.server_for(&interned));
                if let Some(server) = server.filter(|_| before.is_some()) {
                    self.offer_server(server);
                }
            }
        }
    }
}
