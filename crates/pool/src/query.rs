//! Looking into the pool: borrowed views, nothing computed that is not asked for.
//!
//! Views are cheap: they borrow rows. Lists go in the order of their keys and take where to go on
//! from, so that no answer needs more than a page.

use crate::command::{Category, Claim, Event, Override, Settings};
use crate::digest::hash_of;
use crate::job::{Job, JobNumber, ScopeNumber, State};
use crate::outcome::Standing;
use crate::queue::{job_of, order_of};
use crate::scope::Gate;
use crate::server::Server;
use crate::state::Pool;
use crate::terms::{RateSettings, Terms};
use crate::time::{Instant, Stamp};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

/// A job with what it refers to.
#[derive(Clone, Copy, Debug)]
pub struct JobView<'a> {
    /// Its place in launch order.
    pub number: JobNumber,
    /// The job.
    pub job: &'a Job,
    /// What it was launched with.
    pub terms: &'a Terms,
    /// Its parameters, as the bytes that came, or its event's.
    pub params: Option<&'a [u8]>,
    /// Where it is starting or active.
    pub server: Option<&'a str>,
}

/// Which jobs to list; all that are given must hold.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// `delayed`, `queued`, `starting`, `active`, `complete` or `aborted`.
    pub state: Option<StateKind>,
    /// The name of the pool.
    pub pool: Option<Box<str>>,
    /// The event.
    pub event: Option<Box<str>>,
    /// The server where it is starting or active, or where its last attempt was.
    pub server: Option<Box<str>>,
}

/// The states by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the states of SEMANTICS, by their own names")]
pub enum StateKind {
    Delayed,
    Queued,
    Starting,
    Active,
    Complete,
    Aborted,
}

/// A page of jobs.
#[derive(Debug)]
pub struct JobsPage<'a> {
    /// In launch order.
    pub jobs: Vec<JobView<'a>>,
    /// Where the next page begins after; none: there is nothing more.
    pub next: Option<JobNumber>,
}

/// A pool as it is shown.
#[derive(Clone, Debug)]
pub struct PoolView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Jobs in `starting` and `active`.
    pub running: u32,
    /// Jobs in `queued`.
    pub waiting: u64,
    /// Jobs in `delayed`.
    pub delayed: u64,
    /// The job at the head of the queue, and what it waits for.
    pub head: Option<(&'a str, Gate)>,
    /// The concurrency in force for the head, or else for a member; none: no limit.
    pub amount: Option<u32>,
    /// The override in force, if any.
    pub sizes: Option<&'a Override>,
    /// The open window, if any.
    pub window: Option<WindowView<'a>>,
}

/// A window as it is shown (S30).
#[derive(Clone, Debug)]
pub struct WindowView<'a> {
    /// The pool's or bucket's name.
    pub name: &'a str,
    /// Which opening this is.
    pub number: u64,
    /// Starts that count; for a token bucket: whole tokens.
    pub count: u32,
    /// The rate in force; for a token bucket: the burst.
    pub max: u32,
    /// The settings in force.
    pub settings: RateSettings,
    /// When it is gone if nothing more starts; none: not while it is overridden.
    pub expires_at: Option<Instant>,
    /// The override in force, if any.
    pub sizes: Option<&'a Override>,
    /// True where a member of the pool carries other settings than the window's own.
    pub settings_differ: bool,
}

/// A definition and how often it was edited.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a, T> {
    /// The definition.
    pub definition: &'a T,
    /// Counts the edits, from 1.
    pub revision: u64,
}

/// A caller's lease, for the leader's table (S41).
#[derive(Clone, Debug)]
pub struct LeaseView<'a> {
    /// The job.
    pub job: &'a str,
    /// How long its caller may be silent, in seconds.
    pub lease_s: u32,
    /// Where its silence counts from.
    pub heard_at: Instant,
    /// True if the caller was seen under the claim in force.
    pub seen: bool,
}

/// How many jobs there are, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the states of SEMANTICS, by their own names")]
pub struct JobCounts {
    pub delayed: u64,
    pub queued: u64,
    pub starting: u64,
    pub active: u64,
    /// Complete or aborted, and kept yet (S47).
    pub finished: u64,
}

/// What was counted since the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stats {
    /// Since when.
    pub since: Instant,
    /// Jobs launched.
    pub launched: u64,
    /// Attempts begun.
    pub started: u64,
    /// Attempts confirmed.
    pub confirmed: u64,
    /// Jobs that ended with code 0.
    pub succeeded: u64,
    /// Jobs that ended with another code.
    pub failed: u64,
    /// Jobs aborted, by [`Reason::ALL`].
    pub aborted: [u64; 10],
    /// Jobs queued because a rate was shut.
    pub queued_by_rate: u64,
    /// Attempts put back.
    pub put_back: u64,
    /// Starts taken from a rate.
    pub acquired: u64,
    /// Jobs aborted at a shut rate.
    pub skipped: u64,
    /// How often a job found a rate shut, and waited. Each head counts that would have found it in its
    /// turn, also where one was looked at for all of its kind.
    pub throttled: u64,
}

/// Where a range of names begins after one.
fn after(name: &str) -> (Bound<&str>, Bound<&str>) {
    (Bound::Excluded(name), Bound::Unbounded)
}

impl Pool {
    /// The claim in force: entries of another change nothing (S39).
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.header.claim
    }

    /// How many takeovers there were: [`Server::seen_under`] refers to it.
    #[must_use]
    pub fn takeovers(&self) -> u64 {
        self.header.takeovers
    }

    /// The latest stamp that was seen; a leader stamps nothing earlier (S36).
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.header.stamp
    }

    /// When a tick is owed next: a delay, a start timeout, the end of an override, the opening of
    /// a rate that a head waits for, an age limit; the present instant where an entry's bound left
    /// work. None: never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.index.candidates.is_empty() {
            return Some(self.now());
        }
        let index = &self.index;
        let jobs = [&index.delayed, &index.starting, &index.aging];
        let scopes = [&index.override_ends, &index.openings];
        let jobs = jobs
            .into_iter()
            .filter_map(|set| set.first())
            .map(|(at, _)| *at);
        let scopes = scopes
            .into_iter()
            .filter_map(|set| set.first())
            .map(|(at, _)| *at);
        jobs.chain(scopes).min()
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.header.settings
    }

    /// The settings in force, and how often they were edited: 0 is never.
    #[must_use]
    pub fn stored_settings(&self) -> Stored<'_, Settings> {
        Stored {
            definition: &self.header.settings,
            revision: self.header.settings_revision,
        }
    }

    /// The format of the state and of its rules: from
    /// [`FORMAT_FIRST`](crate::state::FORMAT_FIRST), and never lower than it was.
    #[must_use]
    pub fn format(&self) -> u32 {
        self.header.format
    }

    /// A number that is equal on all replicas that applied the same entries (S37).
    #[must_use]
    pub fn digest(&self) -> u64 {
        hash_of(&self.header).wrapping_add(self.digest_of_tables())
    }

    /// How many jobs there are now, by state.
    #[must_use]
    pub fn job_counts(&self) -> JobCounts {
        let count = |jobs: usize| jobs as u64;
        let delayed = count(self.index.delayed.len());
        let starting = count(self.index.starting.len());
        let running = self.index.running;
        JobCounts {
            delayed,
            queued: self.header.unfinished.saturating_sub(delayed + running),
            starting,
            active: running.saturating_sub(starting),
            finished: count(self.index.finished.len()),
        }
    }

    /// The name of a pool or bucket.
    #[must_use]
    pub fn scope_name(&self, number: ScopeNumber) -> Option<&str> {
        self.scopes.get(&number).map(|scope| &*scope.name)
    }

    fn view_of(&self, number: JobNumber) -> Option<JobView<'_>> {
        let job = self.jobs.get(&number)?;
        let terms = self.terms.get(&job.terms)?;
        let params = self.params.get(&number).map(|params| &*params.0);
        let server = job
            .current()
            .and_then(|attempt| self.servers.get(&attempt.server?));
        let server = server.map(|server| &*server.definition.id);
        Some(JobView {
            number,
            job,
            terms,
            params,
            server,
        })
    }

    /// A job by its id.
    #[must_use]
    pub fn job(&self, id: &str) -> Option<JobView<'_>> {
        self.view_of(self.number_of_job(id)?)
    }

    /// How a job stands.
    #[must_use]
    pub fn standing(&self, id: &str) -> Option<Standing> {
        let job = self.jobs.get(&self.number_of_job(id)?)?;
        Some(self.standing_of(job))
    }

    /// The name of a job's pool; none before its limits are fixed (S8).
    #[must_use]
    pub fn pool_name(&self, view: &JobView<'_>) -> Option<String> {
        if view.job.unresolved.is_some() {
            return None;
        }
        let interned = self.interned(view.job);
        Some(Pool::pool_name_of(view.job, &interned).into_owned())
    }

    /// A waiting job's place in its queue, from 1.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<u64> {
        let number = self.number_of_job(id)?;
        let job = self
            .jobs
            .get(&number)
            .filter(|job| matches!(job.state, State::Queued))?;
        let known = self.index.scopes.get(&job.pool?)?;
        Some(known.queue.rank(order_of(number, job)) as u64 + 1)
    }

    /// Jobs in launch order after `after`: at most `jobs_max`, having looked at no more than
    /// `rows_max`.
    #[must_use]
    pub fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<JobNumber>,
        jobs_max: usize,
        rows_max: usize,
    ) -> JobsPage<'_> {
        let mut page = JobsPage {
            jobs: Vec::new(),
            next: None,
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (looked_at, (number, _)) in self.jobs.range((from, Bound::Unbounded)).enumerate() {
            if page.jobs.len() == jobs_max || looked_at == rows_max {
                return page;
            }
            page.next = Some(*number);
            page.jobs.extend(
                self.view_of(*number)
                    .filter(|view| self.passes(view, filter)),
            );
        }
        page.next = None;
        page
    }

    fn passes(&self, view: &JobView<'_>, filter: &JobFilter) -> bool {
        let last_server = match &view.job.state {
            State::Ended(end) => end.last.as_ref().and_then(|last| last.server.as_deref()),
            _ => view.server,
        };
        let asked = |asked: &Option<Box<str>>, is: Option<&str>| {
            asked.as_deref().is_none_or(|asked| Some(asked) == is)
        };
        filter
            .state
            .is_none_or(|state| state == StateKind::of(&view.job.state))
            && asked(&filter.event, view.terms.event.as_deref())
            && asked(&filter.server, last_server)
            && (filter.pool.is_none() || asked(&filter.pool, self.pool_name(view).as_deref()))
    }

    /// The attempts that a server holds, `starting` and `active`, in launch order.
    pub fn held_by(&self, server: &str) -> impl Iterator<Item = JobView<'_>> {
        let number = self.index.fleet.number(server);
        let all = number.map(|it| (it, JobNumber(0))..=(it, JobNumber(u64::MAX)));
        let held = all
            .map(|all| self.index.held.range(all))
            .into_iter()
            .flatten();
        held.filter_map(|(_, number)| self.view_of(*number))
    }

    /// Every attempt in `starting`, in the order in which they are given up.
    pub fn starting(&self) -> impl Iterator<Item = JobView<'_>> {
        let starting = self.index.starting.iter();
        starting.filter_map(|(_, number)| self.view_of(*number))
    }

    /// An event by its id.
    #[must_use]
    pub fn event(&self, id: &str) -> Option<Stored<'_, Event>> {
        let stored = self.events.get(&id.into())?;
        Some(Stored {
            definition: &stored.event,
            revision: stored.revision,
        })
    }

    /// Events by id after `after`.
    pub fn events(&self, after: &str) -> impl Iterator<Item = Stored<'_, Event>> {
        let from = (Bound::Excluded(Box::from(after)), Bound::Unbounded);
        self.events.range(from).map(|(_, it)| Stored {
            definition: &it.event,
            revision: it.revision,
        })
    }

    /// A category by its id.
    #[must_use]
    pub fn category(&self, id: &str) -> Option<Stored<'_, Category>> {
        let stored = self.categories.get(&id.into())?;
        Some(Stored {
            definition: &stored.category,
            revision: stored.revision,
        })
    }

    /// Categories by id after `after`.
    pub fn categories(&self, after: &str) -> impl Iterator<Item = Stored<'_, Category>> {
        let from = (Bound::Excluded(Box::from(after)), Bound::Unbounded);
        self.categories.range(from).map(|(_, it)| Stored {
            definition: &it.category,
            revision: it.revision,
        })
    }

    /// A server by its id.
    #[must_use]
    pub fn server(&self, id: &str) -> Option<&Server> {
        self.servers
            .get(&self.index.fleet.number(id)?)
            .map(|server| &**server)
    }

    /// Servers by id after `after`.
    pub fn servers(&self, after: &str) -> impl Iterator<Item = &Server> {
        self.index
            .fleet
            .after(after)
            .filter_map(|number| self.servers.get(&number))
            .map(|it| &**it)
    }

    fn pool_view(&self, number: ScopeNumber, at: Instant) -> Option<PoolView<'_>> {
        let scope = self.scopes.get(&number)?;
        let known = self.index.scopes.get(&number)?;
        if scope.name.starts_with("rate:") {
            return None;
        }
        let head = scope
            .head
            .and_then(|head| Some((self.jobs.get(&head.job)?, self.gate_of(head))));
        let rules = match head {
            Some((job, _)) => Some(self.interned(job)),
            None => self
                .index
                .members
                .terms_of(number)
                .and_then(|terms| self.index.interner.get(terms).cloned()),
        };
        let own = rules.map_or(0, |interned| interned.rules.amount);
        Some(PoolView {
            name: &scope.name,
            running: scope.running,
            waiting: known.queue.len() as u64,
            delayed: known.delayed,
            head: head.map(|(job, gate)| (&*job.id, gate)),
            amount: scope.amount_in_force(own),
            sizes: scope.sizes.as_ref(),
            window: self.window_view(number, at),
        })
    }

    /// A pool by its name; none where it has no jobs, no window and no override.
    #[must_use]
    pub fn pool(&self, name: &str, at: Instant) -> Option<PoolView<'_>> {
        self.pool_view(*self.index.scope_names.get(name)?, at)
    }

    /// Pools by name after `after`.
    pub fn pools(&self, name: &str, at: Instant) -> impl Iterator<Item = PoolView<'_>> {
        let names = self.index.scope_names.range::<str, _>(after(name));
        names.filter_map(move |(_, number)| self.pool_view(*number, at))
    }

    fn window_view(&self, number: ScopeNumber, at: Instant) -> Option<WindowView<'_>> {
        let at = at.max(self.now());
        let scope = self.scopes.get(&number)?;
        let sizes = scope.sizes.as_ref();
        let window = self.live_window(scope, at)?;
        let shown = window.shown(sizes, at, &self.runs)?;
        Some(WindowView {
            name: &scope.name,
            number: window.number,
            count: shown.count,
            max: shown.max,
            settings: window.settings.under(sizes),
            expires_at: shown.expires_at,
            sizes,
            settings_differ: self.index.members.rates_differ(number, window.settings),
        })
    }

    /// The open window of a pool or bucket, as it is at `at` (or at the pool's own latest instant,
    /// if that is later).
    #[must_use]
    pub fn window(&self, name: &str, at: Instant) -> Option<WindowView<'_>> {
        self.window_view(*self.index.scope_names.get(name)?, at)
    }

    /// The open windows by name after `after`.
    pub fn windows(&self, name: &str, at: Instant) -> impl Iterator<Item = WindowView<'_>> {
        let names = self.index.scope_names.range::<str, _>(after(name));
        names.filter_map(move |(_, number)| self.window_view(*number, at))
    }

    /// The override of a pool or bucket.
    #[must_use]
    pub fn override_of(&self, name: &str) -> Option<&Override> {
        self.scopes
            .get(self.index.scope_names.get(name)?)?
            .sizes
            .as_ref()
    }

    /// Overrides by name after `after`.
    pub fn overrides(&self, name: &str) -> impl Iterator<Item = (&str, &Override)> {
        let names = self.index.scope_names.range::<str, _>(after(name));
        names.filter_map(|(_, number)| {
            let scope = self.scopes.get(number)?;
            Some((&*scope.name, scope.sizes.as_ref()?))
        })
    }

    /// The ids of the jobs that wait in a pool, in the queue's order.
    pub fn queue(&self, name: &str) -> impl Iterator<Item = &str> {
        let number = self.index.scope_names.get(name);
        let known = number.and_then(|number| self.index.scopes.get(number));
        let orders = known.map(|known| known.queue.iter()).into_iter().flatten();
        orders
            .filter_map(|order| self.jobs.get(&job_of(order)))
            .map(|job| &*job.id)
    }

    /// Every lease of a caller, in launch order of its job.
    pub fn leases(&self) -> impl Iterator<Item = LeaseView<'_>> {
        self.index.leased.iter().filter_map(|number| {
            let job = self.jobs.get(number)?;
            let lease = job.lease.as_deref()?;
            Some(LeaseView {
                job: &job.id,
                lease_s: lease.lease_s,
                heard_at: lease.heard_at,
                seen: lease.seen_under == self.header.takeovers,
            })
        })
    }

    /// How many heads of queues were looked at since this pool was made or restored, with every
    /// stretch of heads of a kind that was moved as one. A measure of the work that waiting costs;
    /// no part of the state.
    #[must_use]
    pub fn heads_visited(&self) -> u64 {
        self.index.visited
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.header.stats
    }
}

impl StateKind {
    /// The kind of a state.
    #[must_use]
    pub fn of(state: &State) -> StateKind {
        match state {
            State::Delayed { .. } => StateKind::Delayed,
            State::Queued => StateKind::Queued,
            State::Starting(_) => StateKind::Starting,
            State::Active(_) => StateKind::Active,
            State::Ended(end) if end.result.is_ok() => StateKind::Complete,
            State::Ended(_) => StateKind::Aborted,
        }
    }
}
