//! What time alone will bring: when the gates of a job open if nothing else happens, and what
//! becomes of the job then.
//!
//! Time changes a gate in two ways. It gives to rates: windows end, starts leave, tokens come; what
//! it has opened stays open. And it takes overrides away, at an instant that is known; that can
//! open a gate or shut it. So a gate is open in at most two stretches of time ([`Opens`]): from
//! some instant until its override goes, and from some instant after that. The second is found by
//! letting the window go on without the override, on a copy, just as the entry of that instant
//! will.
//!
//! A job is followed through its gates as S20 has it ([`Outlook::fate`]): it waits for one, is
//! considered when that opens, and starts, is aborted, or waits for the next. Each step goes to a
//! later stretch of one gate, so there are few.
//!
//! Caveats: where an override of a sliding window goes by itself, the starts that count after that
//! are gone through, at most its rate. Nobody else is followed: who starts, ends, falls due or is
//! put back in the meantime may change what was foretold, in either direction;
//! [`crate::wanted`] knows those who wait already and want the same.

use crate::admission::Shut;
use crate::command::{Executor, Override};
use crate::job::ScopeNumber;
use crate::limits::Mode;
use crate::members::Interned;
use crate::outcome::Reason;
use crate::scope::{Gate, Scope};
use crate::state::Pool;
use crate::time::{Calendar, Instant, Stamp};
use crate::window::{Opening, Window};
use alloc::vec::Vec;

/// When a gate is open, as far as time alone decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opens {
    /// From when on it is open as things stand; none: not by time alone.
    first: Option<Instant>,
    /// When its override goes, if it goes by itself, and from when on the gate is open after that.
    then: Option<(Instant, Option<Instant>)>,
}

impl Opens {
    /// Open for good from an instant on, or never.
    fn always(first: Option<Instant>) -> Opens {
        Opens { first, then: None }
    }

    /// The first instant from `from` on at which it is open.
    pub(crate) fn next(&self, from: Instant) -> Option<Instant> {
        let first = self.first.map(|at| at.max(from));
        let Some((ends, after)) = self.then else {
            return first;
        };
        let first = first.filter(|at| *at < ends);
        first.or_else(|| after.map(|at| at.max(from)))
    }

    /// The instants at which it may open or shut.
    fn changes(&self) -> impl Iterator<Item = Instant> + use<> {
        let then = self.then.map(|(ends, after)| [Some(ends), after]);
        self.first
            .into_iter()
            .chain(then.into_iter().flatten().flatten())
    }

    /// True where it is open then.
    pub(crate) fn is_open(&self, at: Instant) -> bool {
        self.next(at) == Some(at)
    }
}

/// The gates of one job in their order (S12), over time.
#[derive(Clone, Debug)]
pub(crate) struct Outlook {
    gates: Vec<(Shut, Opens)>,
    /// It is aborted when it is next considered: its event is gone (S10).
    event_is_missing: bool,
}

/// What becomes of a job if nothing but time happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It starts.
    Starts(Instant),
    /// It is aborted.
    Aborted(Instant, Reason),
    /// It waits until something else happens.
    Waits,
}

impl Outlook {
    /// The first gate that is shut at an instant.
    pub(crate) fn first_shut(&self, at: Instant) -> Option<Shut> {
        let shut = self.gates.iter().find(|(_, opens)| !opens.is_open(at));
        shut.map(|(gate, _)| *gate)
    }

    /// True where the job's event is gone.
    pub(crate) fn event_is_missing(&self) -> bool {
        self.event_is_missing
    }

    /// When a gate is open; one that is none of the job's holds it up no longer.
    pub(crate) fn opens(&self, gate: Gate) -> Opens {
        let found = self.gates.iter().find(|(shut, _)| shut.gate == gate);
        found.map_or(Opens::always(Some(Instant::EPOCH)), |(_, opens)| *opens)
    }

    /// What becomes of the head of a queue that waits for a gate, or is considered at `from` where
    /// that is none ([`Gate::Due`]).
    pub(crate) fn fate(&self, from: Instant, mut gate: Gate, put_back: bool) -> Fate {
        let mut at = from;
        loop {
            match self.opens(gate).next(at) {
                Some(opens_at) => at = opens_at,
                None => return Fate::Waits,
            }
            if self.event_is_missing {
                return Fate::Aborted(at, Reason::EventMissing);
            }
            match self.first_shut(at) {
                None => return Fate::Starts(at),
                Some(shut) if shut.mode == Some(Mode::Skip) && !put_back => {
                    return Fate::Aborted(at, Reason::RateLimited);
                }
                Some(shut) => gate = shut.gate,
            }
        }
    }

    /// The first instant from `from` on at which every gate is open.
    pub(crate) fn all_open(&self, from: Instant) -> Option<Instant> {
        match self.fate(from, Gate::Due, true) {
            Fate::Starts(at) => Some(at),
            Fate::Aborted(..) | Fate::Waits => None,
        }
    }

    /// The first instant from `from` on at which a new job is not aborted when it is considered,
    /// where nobody waits in its pool: it starts, or there is a queue that it may wait in (S16).
    /// That may come because a gate shuts too: one before the gate that it would be aborted at,
    /// for which it may wait.
    pub(crate) fn admits_from(&self, from: Instant, has_queue: bool) -> Option<Instant> {
        if self.event_is_missing {
            return None;
        }
        let changes = self.gates.iter().flat_map(|(_, opens)| opens.changes());
        let mut changes: Vec<Instant> = changes.filter(|at| *at > from).collect();
        changes.push(from);
        changes.sort_unstable();
        changes.into_iter().find(|at| {
            self.first_shut(*at).is_none_or(|shut| match shut.mode {
                Some(Mode::Skip) => false,
                Some(Mode::Wait) => true,
                None => has_queue,
            })
        })
    }
}

impl Pool {
    /// The gates of a job over time, from `at` on; `starts` jobs of its pool start before it.
    pub(crate) fn outlook(
        &self,
        pool: ScopeNumber,
        interned: &Interned,
        starts: u32,
        at: Instant,
        calendar: Calendar<'_>,
    ) -> Outlook {
        let rules = &interned.rules;
        let mut gates = Vec::with_capacity(rules.buckets.len() + 3);
        let slot = self.slot_opens(pool, rules.amount, starts, at);
        gates.push((
            Shut {
                gate: Gate::Slot,
                mode: None,
            },
            slot,
        ));
        let own = rules.rate.map(|_| (pool, rules.mode));
        let buckets = rules.buckets.iter().filter_map(|bucket| {
            // Where nobody ever was, no window is open.
            let number = self.index.scope_names.get(&*bucket.name)?;
            Some((*number, Some(bucket.mode)))
        });
        for (number, mode) in own.into_iter().chain(buckets) {
            let gate = Gate::Rate(number);
            gates.push((Shut { gate, mode }, self.rate_opens(number, at, calendar)));
        }
        if interned.terms.executor == Executor::Server {
            let first = self.server_for(interned).map(|_| at);
            gates.push((
                Shut {
                    gate: Gate::Server,
                    mode: None,
                },
                Opens::always(first),
            ));
        }
        Outlook {
            gates,
            event_is_missing: self.event_is_missing(interned),
        }
    }

    /// When a pool has a slot for a job whose own concurrency is `amount`, 0: no limit.
    fn slot_opens(&self, pool: ScopeNumber, amount: u32, starts: u32, at: Instant) -> Opens {
        let Some(scope) = self.scopes.get(&pool) else {
            return Opens::always(Some(at));
        };
        let running = scope.running.saturating_add(starts);
        let has_room = |amount: Option<u32>| amount.is_none_or(|amount| running < amount);
        let own = Some(amount).filter(|amount| *amount > 0);
        let ends = scope.sizes.as_ref().and_then(|sizes| sizes.expires_at);
        let ends = ends.map(|ends| ends.max(at));
        Opens {
            first: has_room(scope.amount_in_force(amount)).then_some(at),
            then: ends.map(|ends| (ends, has_room(own).then_some(ends))),
        }
    }

    /// When a rate allows one more start.
    pub(crate) fn rate_opens(
        &self,
        number: ScopeNumber,
        at: Instant,
        calendar: Calendar<'_>,
    ) -> Opens {
        let Some(scope) = self.scopes.get(&number) else {
            return Opens::always(Some(at));
        };
        let first = match self.rate_opening(number, at) {
            Opening::Open => Some(at),
            Opening::At(opens_at) => Some(opens_at),
            Opening::Never => None,
        };
        let then = self.override_ends(scope, at).map(|ends| {
            let opens = match self.window_without_override(scope, ends, calendar) {
                None => Some(ends),
                Some(window) => match window.opening(None, ends, &self.runs) {
                    Opening::Open => Some(ends),
                    Opening::At(opens_at) => Some(opens_at),
                    Opening::Never => None,
                },
            };
            (ends, opens)
        });
        Opens { first, then }
    }

    /// When the override of a scope goes by itself, seen from `at`.
    fn override_ends(&self, scope: &Scope, at: Instant) -> Option<Instant> {
        let sizes = scope.sizes.as_ref()?;
        Some(sizes.expires_at?.max(at))
    }

    /// The window of a scope as it is at the instant at which its override goes (S33, S36); none:
    /// it is gone by then, or is then.
    fn window_without_override(
        &self,
        scope: &Scope,
        ends: Instant,
        calendar: Calendar<'_>,
    ) -> Option<Window> {
        let stamp = Stamp {
            at: ends,
            boundaries: calendar(ends),
        };
        let mut window = self.live_window(scope, ends)?.clone();
        let settings = window.settings;
        window.refit(settings, scope.sizes.as_ref(), None, &stamp, &self.runs);
        (!window.is_expired(None, ends, &self.runs)).then_some(window)
    }

    /// When one more start is allowed by the rate of a pool or bucket, from `at` on, if nothing
    /// else happens; an override that goes by itself is taken into account. None: that is not
    /// known, because an override closes the rate and does not go by itself.
    #[must_use]
    pub fn rate_opens_at(
        &self,
        name: &str,
        at: Instant,
        calendar: Calendar<'_>,
    ) -> Option<Instant> {
        let at = at.max(self.now());
        match self.index.scope_names.get(name) {
            Some(number) => self.rate_opens(*number, at, calendar).next(at),
            None => Some(at),
        }
    }

    /// When the whole of the rate of a pool or bucket is there again, if nothing else happens: its
    /// window ends, its last start leaves, its bucket is full. None: it is there, or that is not
    /// known.
    #[must_use]
    pub fn rate_resets_at(
        &self,
        name: &str,
        at: Instant,
        calendar: Calendar<'_>,
    ) -> Option<Instant> {
        let at = at.max(self.now());
        let scope = self.scopes.get(self.index.scope_names.get(name)?)?;
        let is_closed = |sizes: &Override| sizes.count == Some(0);
        let closed = scope.sizes.as_ref().is_some_and(is_closed);
        let window = self.live_window(scope, at);
        if window.is_none() && !closed {
            return None;
        }
        let sizes = scope.sizes.as_ref();
        let whole = window.filter(|_| !closed);
        let whole = whole.and_then(|window| window.whole_at(sizes, &self.runs));
        let Some(ends) = self.override_ends(scope, at) else {
            return whole;
        };
        whole.filter(|whole| *whole <= ends).or_else(|| {
            match self.window_without_override(scope, ends, calendar) {
                None => Some(ends),
                Some(window) => window.whole_at(None, &self.runs),
            }
        })
    }
}
