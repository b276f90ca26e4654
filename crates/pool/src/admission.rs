//! Admission: looking at a job's gates, starting it, and who is considered next (S12, S20).
//!
//! The first job of each queue, its head, is registered under exactly one gate: the one that it
//! found shut when it was considered last. When a gate may have opened, its first waiter becomes a
//! candidate; [`Pool::examine`] considers candidates in S19's order across pools until there are
//! none, and whoever is considered either leaves its queue or registers under the gate that is shut
//! now. So no command visits heads that have nothing to gain.
//!
//! Invariant: after [`Pool::examine`] with budget left, no head that could start is waiting.
//!
//! Caveat: a head that waits for one of two scarce things is considered each time that the other
//! one is free, and moves over. The budget bounds how many do so within one entry.

use crate::command::{Algo, Executor};
use crate::fleet::Wanted;
use crate::job::{Attempt, JobNumber, Note, ScopeNumber, ServerNumber, State, Tickets};
use crate::limits::Mode;
use crate::members::Interned;
use crate::outcome::{Move, Reason, Standing};
use crate::queue::{job_of, order_of};
use crate::scope::{Gate, Head};
use crate::state::{Pool, Source, Turn};
use crate::time::Instant;
use crate::window::Opening;
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The first gate that a job found shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shut {
    pub(crate) gate: Gate,
    /// For a rate: what its limit says becomes of the job.
    pub(crate) mode: Option<Mode>,
}

impl Shut {
    /// The reason with which a job is aborted at this gate (S16).
    pub(crate) fn reason(self) -> Reason {
        match self.gate {
            Gate::Due | Gate::Slot => Reason::ConcurrencyLimited,
            Gate::Rate(_) => Reason::RateLimited,
            Gate::Server => Reason::NoServer,
        }
    }
}

impl Pool {
    /// Looks at a job's gates in their order (S12): the server that takes it (none for a caller),
    /// or the first gate that is shut.
    pub(crate) fn look_at_gates(
        &self,
        pool: ScopeNumber,
        interned: &Interned,
        place: u64,
        at: Instant,
    ) -> Result<Option<ServerNumber>, Shut> {
        let rules = &interned.rules;
        if let Some(scope) = self.scopes.get(&pool)
            && scope
                .amount_in_force(rules.amount)
                .is_some_and(|amount| scope.running >= amount)
        {
            return Err(Shut {
                gate: Gate::Slot,
                mode: None,
            });
        }
        if rules.rate.is_some() && self.rate_opening(pool, at) != Opening::Open {
            return Err(Shut {
                gate: Gate::Rate(pool),
                mode: rules.mode,
            });
        }
        for bucket in &rules.buckets {
            if let Some(number) = self.index.scope_names.get(&*bucket.name)
                && self.rate_opening(*number, at) != Opening::Open
            {
                return Err(Shut {
                    gate: Gate::Rate(*number),
                    mode: Some(bucket.mode),
                });
            }
        }
        if interned.terms.executor == Executor::Caller {
            return Ok(None);
        }
        let wanted = Wanted {
            targets: &interned.terms.targets,
            weight: rules.weight,
            algo: interned.terms.algo,
            last_pick: self.last_pick(interned),
            place,
        };
        match self.index.fleet.pick(&wanted) {
            Some(server) => Ok(Some(server)),
            None => Err(Shut {
                gate: Gate::Server,
                mode: None,
            }),
        }
    }

    fn last_pick(&self, interned: &Interned) -> Option<&str> {
        if interned.terms.algo != Algo::RoundRobin {
            return None;
        }
        match &interned.terms.event {
            Some(event) => self
                .events
                .get(event)
                .and_then(|event| event.last_pick.as_deref()),
            None => self.header.last_pick.as_deref(),
        }
    }

    fn note_pick(&mut self, interned: &Interned, server: ServerNumber) {
        if interned.terms.algo != Algo::RoundRobin {
            return;
        }
        let Some(server) = self.servers.get(&server) else {
            return;
        };
        let pick = Some(server.definition.id.clone());
        match &interned.terms.event {
            Some(event) => {
                self.events.change(event, |event| event.last_pick = pick);
            }
            None => self.header.last_pick = pick,
        }
    }

    /// Starts a job whose gates are all open, and takes everything at once (S12, S13).
    pub(crate) fn start(
        &mut self,
        number: JobNumber,
        pool: ScopeNumber,
        interned: &Interned,
        server: Option<ServerNumber>,
        turn: &mut Turn,
    ) {
        let rules = &interned.rules;
        let mut taken = Tickets::default();
        if let Some(settings) = rules.rate {
            taken.push(self.take_start(pool, settings, number));
        }
        for bucket in &rules.buckets {
            let scope = self.scope_of(&bucket.name);
            taken.push(self.take_start(scope, bucket.settings, number));
        }
        self.header.stats.acquired += taken.as_slice().len() as u64;
        self.scopes.change(&pool, |scope| scope.running += 1);
        self.note_running(pool, number, true);
        let server_id = server.and_then(|server| {
            self.note_pick(interned, server);
            self.index.held.insert((server, number));
            self.change_server(server, |server| {
                server.jobs += 1;
                server.used = server.used.saturating_add(rules.weight);
                Arc::clone(&server.definition.id)
            })
        });
        let now = self.now();
        let deadline = now.plus_s(u64::from(self.header.settings.start_timeout_s));
        let attempt = Attempt {
            at: now,
            index: turn.index,
            ordinal: turn.starts,
            server,
            weight: rules.weight,
            deadline: Some(deadline),
            confirmed_at: None,
            stop: None,
            taken,
        };
        turn.starts += 1;
        self.header.stats.started += 1;
        self.index.starting.insert((deadline, number));
        let started = self.jobs.change(&number, |job| {
            job.attempt += 1;
            job.state = State::Starting(Box::new(attempt));
            let attempt = job.attempt;
            let server = server_id.clone();
            job.say(now, Note::Started { attempt, server });
            (Arc::clone(&job.id), attempt)
        });
        turn.moves.extend(started.map(|(job, attempt)| Move {
            job,
            standing: Standing::Starting {
                attempt,
                server: server_id,
            },
            left: None,
        }));
    }

    /// Notes that a job of a pool is starting or active, or is so no longer.
    pub(crate) fn note_running(&mut self, pool: ScopeNumber, number: JobNumber, runs: bool) {
        let Some(known) = self.index.scopes.get_mut(&pool) else {
            return;
        };
        if runs {
            known.running.insert(number.0);
            self.index.running += 1;
        } else {
            known.running.remove(number.0);
            self.index.running = self.index.running.saturating_sub(1);
        }
    }

    /// Changes a server's row, keeps its place among the others, and gives what the change gives.
    pub(crate) fn change_server<R>(
        &mut self,
        number: ServerNumber,
        change: impl FnOnce(&mut crate::server::Server) -> R,
    ) -> Option<R> {
        let fleet = &mut self.index.fleet;
        self.servers.change(&number, |server| {
            let given = change(server);
            fleet.place(&server.definition.id, number, Some(server));
            given
        })
    }

    /// Puts a job into its queue; it may become the head.
    pub(crate) fn enqueue(&mut self, number: JobNumber, pool: ScopeNumber) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let order = order_of(number, job);
        if let Some(known) = self.index.scopes.get_mut(&pool) {
            known.queue.insert(order);
        }
        self.refresh_head(pool);
    }

    /// Takes a job out of its queue; another may become the head.
    pub(crate) fn dequeue(&mut self, number: JobNumber, pool: ScopeNumber) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let order = order_of(number, job);
        if let Some(known) = self.index.scopes.get_mut(&pool) {
            known.queue.remove(order);
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
            gate: Gate::Due,
        });
        self.scopes.change(&pool, |scope| scope.head = head);
        if let Some(head) = head {
            self.register(pool, head, true);
        }
    }

    /// Lets the head of a pool wait for another gate.
    pub(crate) fn set_gate(&mut self, pool: ScopeNumber, gate: Gate) {
        let Some(head) = self.scopes.get(&pool).and_then(|scope| scope.head) else {
            return;
        };
        if head.gate == gate {
            return;
        }
        self.register(pool, head, false);
        let head = Head { gate, ..head };
        self.scopes.change(&pool, |scope| scope.head = Some(head));
        self.register(pool, head, true);
    }

    /// Registers a head under its gate, or takes it off.
    pub(crate) fn register(&mut self, pool: ScopeNumber, head: Head, waits: bool) {
        let Some(job) = self.jobs.get(&head.job) else {
            return;
        };
        let order = order_of(head.job, job);
        match head.gate {
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
                if !waits {
                    self.drop_unused_scope(scope);
                }
            }
            Gate::Server => {
                let interned = self.interned(job);
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
        let Some(head) = scope.head.filter(|head| head.gate == Gate::Slot) else {
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
        while turn.budget > 0 {
            let Some(candidate) = self.index.candidates.pop_first() else {
                break;
            };
            let (order, pool, source) = candidate;
            if self.is_first_at(source, order, pool) {
                turn.budget -= 1;
                self.consider_head(pool, job_of(order), turn);
            }
            match source {
                Source::Due => {}
                Source::Rate(scope) => self.settle_rate(scope),
                Source::Server(server) => self.offer_server(server),
            }
        }
    }

    /// True unless a candidate was overtaken by what happened since it was offered.
    fn is_first_at(&self, source: Source, order: u64, pool: ScopeNumber) -> bool {
        let first = match source {
            Source::Due => {
                let head = Some(Head {
                    job: job_of(order),
                    gate: Gate::Due,
                });
                return self.scopes.get(&pool).and_then(|scope| scope.head) == head;
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

    fn consider_head(&mut self, pool: ScopeNumber, number: JobNumber, turn: &mut Turn) {
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
            Err(Shut {
                mode: Some(Mode::Skip),
                ..
            }) if !put_back => {
                self.header.stats.skipped += 1;
                self.end(number, Err(Reason::RateLimited), "".into(), turn);
            }
            Err(shut) => {
                if shut.reason() == Reason::RateLimited {
                    self.header.stats.throttled += 1;
                }
                self.set_gate(pool, shut.gate);
            }
        }
    }

    /// True where a job's event was deleted (S10).
    pub(crate) fn event_is_missing(&self, interned: &Interned) -> bool {
        interned
            .terms
            .event
            .as_ref()
            .is_some_and(|event| self.events.get(event).is_none())
    }
}
