//! Admission: looking at a job's gates, and starting it (S12).
//!
//! Gates are looked at in one order. The first two are the job's own: the slot and the window of
//! its pool. The others are shared with jobs of other pools: buckets and servers. What the shared
//! ones say is the same for all heads of a kind (see `kinds`).

use crate::command::{Algo, Executor};
use crate::fleet::Wanted;
use crate::job::{Attempt, JobNumber, Note, ScopeNumber, ServerNumber, State, Tickets};
use crate::limits::Mode;
use crate::members::Interned;
use crate::outcome::{Move, RateOutcome, Reason, Standing};
use crate::scope::Gate;
use crate::state::{Pool, Turn};
use crate::terms::Rules;
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
        self.look_at_own_gates(pool, &interned.rules, at)?;
        self.look_at_shared_gates(interned, place, at)
    }

    /// The slot and the window of its pool: the first that is shut.
    pub(crate) fn look_at_own_gates(
        &self,
        pool: ScopeNumber,
        rules: &Rules,
        at: Instant,
    ) -> Result<(), Shut> {
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
        Ok(())
    }

    /// Its buckets, and a server: the one that takes it (none for a caller), or the first that is
    /// shut.
    pub(crate) fn look_at_shared_gates(
        &self,
        interned: &Interned,
        place: u64,
        at: Instant,
    ) -> Result<Option<ServerNumber>, Shut> {
        let rules = &interned.rules;
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
        match self.pick(interned, place) {
            Some(server) => Ok(Some(server)),
            None => Err(Shut {
                gate: Gate::Server,
                mode: None,
            }),
        }
    }

    /// The server that takes a job, if any has room for it (S18).
    pub(crate) fn pick(&self, interned: &Interned, place: u64) -> Option<ServerNumber> {
        self.index.fleet.pick(&Wanted {
            targets: &interned.terms.targets,
            weight: interned.rules.weight,
            algo: interned.terms.algo,
            last_pick: self.last_pick(interned),
            place,
        })
    }

    /// A server with room for a job, if there is one.
    pub(crate) fn server_for(&self, interned: &Interned) -> Option<ServerNumber> {
        self.index.fleet.pick(&Wanted {
            targets: &interned.terms.targets,
            weight: interned.rules.weight,
            algo: crate::command::Algo::FewestJobs,
            last_pick: None,
            place: 0,
        })
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
        for ticket in taken.as_slice() {
            self.tell_check(ticket.scope, interned, RateOutcome::Acquired, turn);
        }
        let head = self.scopes.change(&pool, |scope| {
            scope.running += 1;
            scope.head
        });
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
        if head.flatten().is_some() {
            // It started ahead of the head, for whom less is left.
            self.recheck_own_gates(pool);
        }
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

    /// Tells of the rate that was shut, if it was one.
    pub(crate) fn tell_shut(
        &self,
        shut: Shut,
        interned: &Interned,
        outcome: RateOutcome,
        turn: &mut Turn,
    ) {
        if let Gate::Rate(scope) = shut.gate {
            self.tell_check(scope, interned, outcome, turn);
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
