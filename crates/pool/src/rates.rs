//! Rates: taking and giving back starts, and knowing who waits for which rate to open.
//!
//! Whatever happens to a scope's window or override ends in [`Pool::settle_rate`]: there, and only
//! there, the deadlines of its expiry and of its opening are brought up to date, and the heads
//! that wait for it are offered if it is open.

use crate::command::Override;
use crate::job::{JobNumber, ScopeNumber, Ticket};
use crate::members::Interned;
use crate::outcome::{RATE_CHECKS_PER_ENTRY_MAX, RateCheck, RateOutcome};
use crate::scope::Scope;
use crate::state::{Pool, Source, Turn};
use crate::terms::RateSettings;
use crate::time::Instant;
use crate::window::{Opening, Window};

/// Most expired windows, rows of closed ones, or finished jobs that one entry sweeps.
pub(crate) const SWEPT_PER_ENTRY_MAX: usize = 10_000;

impl Pool {
    /// The window of a scope, unless it has expired (S30).
    pub(crate) fn live_window<'a>(&'a self, scope: &'a Scope, at: Instant) -> Option<&'a Window> {
        let sizes = scope.sizes.as_ref();
        scope
            .window
            .as_ref()
            .filter(|window| !window.is_expired(sizes, at, &self.runs))
    }

    /// When one more start is allowed by the rate of a scope. Without a window the rate is that of
    /// the job that asks: at least 1, unless an override says 0.
    pub(crate) fn rate_opening(&self, scope: ScopeNumber, at: Instant) -> Opening {
        let Some(scope) = self.scopes.get(&scope) else {
            return Opening::Open;
        };
        match self.live_window(scope, at) {
            Some(window) => window.opening(scope.sizes.as_ref(), at, &self.runs),
            None if scope
                .sizes
                .as_ref()
                .is_some_and(|sizes| sizes.count == Some(0)) =>
            {
                Opening::Never
            }
            None => Opening::Open,
        }
    }

    /// Takes one start from the rate of a scope, opening its window if none is open.
    pub(crate) fn take_start(
        &mut self,
        number: ScopeNumber,
        settings: RateSettings,
        job: JobNumber,
    ) -> Ticket {
        let now = self.now();
        let expired = self
            .scopes
            .get(&number)
            .is_some_and(|scope| scope.window.is_some() && self.live_window(scope, now).is_none());
        if expired {
            self.close_window(number);
        }
        let stamp = self.header.stamp;
        let opening = self.header.last.window + 1;
        let runs = &mut self.runs;
        let window = self.scopes.change(&number, |scope| {
            let sizes = scope.sizes.as_ref();
            let window = scope
                .window
                .get_or_insert_with(|| Window::open(opening, job, settings, sizes, &stamp));
            window.take(job, settings, sizes, &stamp, runs);
            window.number
        });
        let window = window.unwrap_or_default();
        self.header.last.window = self.header.last.window.max(window);
        self.settle_rate(number);
        Ticket {
            scope: number,
            window,
        }
    }

    /// Tells, if anybody asked, what a rate decided about a start of a job with these limits (S44).
    pub(crate) fn tell_check(
        &self,
        number: ScopeNumber,
        interned: &Interned,
        outcome: RateOutcome,
        turn: &mut Turn,
    ) {
        if !self.records_rate_checks || turn.checks.len() >= RATE_CHECKS_PER_ENTRY_MAX {
            return;
        }
        let Some(scope) = self.scopes.get(&number) else {
            return;
        };
        let rules = &interned.rules;
        let own = || {
            let bucket = rules.buckets.iter().find(|it| it.name == scope.name);
            bucket.map(|bucket| bucket.settings).or(rules.rate)
        };
        let window = self.live_window(scope, self.now());
        let Some(settings) = window.map(|window| window.settings).or_else(own) else {
            return;
        };
        let settings = settings.under(scope.sizes.as_ref());
        turn.checks.push(RateCheck {
            key: scope.name.clone(),
            count: settings.rate,
            window_s: settings.window_s,
            style: settings.style,
            outcome,
        });
    }

    /// Gives back a start to the window that it was taken from, if that is still open (S31).
    pub(crate) fn give_back_start(&mut self, ticket: Ticket, taken_at: Instant) {
        let now = self.now();
        let Some(scope) = self.scopes.get(&ticket.scope) else {
            return;
        };
        if self
            .live_window(scope, now)
            .is_none_or(|window| window.number != ticket.window)
        {
            return;
        }
        let runs = &mut self.runs;
        self.scopes.change(&ticket.scope, |scope| {
            if let Some(window) = &mut scope.window {
                window.give_back(taken_at, scope.sizes.as_ref(), now, runs);
            }
        });
        self.settle_rate(ticket.scope);
    }

    /// Removes the window of a scope with its count.
    pub(crate) fn close_window(&mut self, number: ScopeNumber) {
        let closed = self.scopes.change(&number, |scope| scope.window.take());
        if let Some(window) = closed.flatten() {
            self.index.dead_runs.insert(window.number);
        }
    }

    /// Sets or removes the override of a scope, and fits its window and its heads to it (S33).
    pub(crate) fn change_override(&mut self, number: ScopeNumber, sizes: Option<Override>) {
        let now = self.now();
        let expired = self
            .scopes
            .get(&number)
            .is_some_and(|scope| self.live_window(scope, now).is_none());
        if expired {
            self.close_window(number);
        }
        let stamp = self.header.stamp;
        let runs = &mut self.runs;
        let ends_at = sizes.as_ref().and_then(|sizes| sizes.expires_at);
        let is_set = sizes.is_some();
        let before = self.scopes.change(&number, |scope| {
            let before = core::mem::replace(&mut scope.sizes, sizes);
            if let Some(window) = &mut scope.window {
                let settings = window.settings;
                window.refit(
                    settings,
                    before.as_ref(),
                    scope.sizes.as_ref(),
                    &stamp,
                    runs,
                );
            }
            before
        });
        if let Some(ended_at) = before.flatten().and_then(|sizes| sizes.expires_at) {
            self.index.override_ends.remove(&(ended_at, number));
        }
        if let Some(ends_at) = ends_at {
            self.index.override_ends.insert((ends_at, number));
        }
        if is_set {
            self.index.overrides.insert(number);
        } else {
            self.index.overrides.remove(&number);
        }
        self.settle_rate(number);
        self.recheck_own_gates(number);
        self.wake_all_waiters(number);
    }

    pub(crate) fn has_rate_waiters(&self, scope: ScopeNumber) -> bool {
        // A kind that stands aside waits without being registered.
        self.first_rate_waiter(scope).is_some()
            || self.index.kinds.wait_for(crate::scope::Gate::Rate(scope))
    }

    /// The first head, by order, that waits for a rate, with its pool.
    pub(crate) fn first_rate_waiter(&self, scope: ScopeNumber) -> Option<(u64, ScopeNumber)> {
        let all = (scope, 0, ScopeNumber(0))..=(scope, u64::MAX, ScopeNumber(u64::MAX));
        let mut waiters = self.index.rate_waiters.range(all);
        waiters.next().map(|(_, order, pool)| (*order, *pool))
    }

    /// Brings the deadlines of a scope's rate up to date, and offers its first waiter if it is
    /// open.
    pub(crate) fn settle_rate(&mut self, number: ScopeNumber) {
        let Some(scope) = self.scopes.get(&number) else {
            return;
        };
        let sizes = scope.sizes.as_ref();
        let expiry = scope
            .window
            .as_ref()
            .and_then(|window| window.expires_at(sizes, &self.runs));
        let waiter = self.first_rate_waiter(number);
        let opening = waiter.map(|_| self.rate_opening(number, self.now()));
        if let (Some((order, pool)), Some(Opening::Open)) = (waiter, opening) {
            self.index
                .candidates
                .insert((order, pool, Source::Rate(number)));
        }
        let opening = match opening {
            Some(Opening::At(at)) => Some(at),
            _ => None,
        };
        let Some(known) = self.index.scopes.get_mut(&number) else {
            return;
        };
        let before = core::mem::replace(&mut known.expiry, expiry);
        if before != expiry {
            before.map(|at| self.index.expiries.remove(&(at, number)));
            self.index.expiries.extend(expiry.map(|at| (at, number)));
        }
        let before = core::mem::replace(&mut known.opening, opening);
        if before != opening {
            before.map(|at| self.index.openings.remove(&(at, number)));
            self.index.openings.extend(opening.map(|at| (at, number)));
        }
    }

    /// Removes windows that have expired, and what closed ones left, a bounded number at a time.
    pub(crate) fn sweep_windows(&mut self) {
        let now = self.now();
        for _ in 0..SWEPT_PER_ENTRY_MAX {
            let first = self.index.expiries.first().copied();
            let Some((_, number)) = first.filter(|(at, _)| *at <= now) else {
                break;
            };
            self.close_window(number);
            self.settle_rate(number);
            self.drop_unused_scope(number);
        }
        for _ in 0..SWEPT_PER_ENTRY_MAX {
            let Some(window) = self.index.dead_runs.first().copied() else {
                break;
            };
            let rest = (window, Instant::EPOCH)..=(window, Instant::from_us(i64::MAX));
            let Some(key) = self.runs.range(rest).next().map(|(key, _)| *key) else {
                self.index.dead_runs.remove(&window);
                continue;
            };
            self.runs.remove(&key);
        }
    }

    /// Heads whose rate has opened by now are to be considered.
    pub(crate) fn offer_opened_rates(&mut self) {
        let now = self.now();
        while let Some((at, number)) = self
            .index
            .openings
            .first()
            .copied()
            .filter(|it| it.0 <= now)
        {
            self.index.openings.remove(&(at, number));
            if let Some(known) = self.index.scopes.get_mut(&number) {
                known.opening = None;
            }
            self.settle_rate(number);
        }
    }
}
