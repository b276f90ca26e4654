//! Looking into the pool: borrowed views, nothing computed that is not asked for.
//!
//! Views are cheap: they borrow rows. Lists go in the order of their keys and take where to go on
//! from, so that no answer needs more than a page.

use crate::Pool;
use crate::command::{Category, Event, Override};
use crate::job::{Job, JobNumber};
use crate::outcome::{Reason, Standing};
use crate::server::Server;
use crate::terms::{RateSettings, Terms};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

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
    pub head: Option<(&'a str, Reason)>,
    /// The concurrency in force for the head, or for the newest member; 0: no limit.
    pub amount: u32,
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
    /// When one more start is allowed; none: not before something changes.
    pub next_at: Option<Instant>,
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
    /// Jobs that found a rate shut and waited.
    pub throttled: u64,
}

impl Pool {
    /// A job by its id.
    #[must_use]
    pub fn job(&self, id: &str) -> Option<JobView<'_>> {
        todo!("{id}")
    }

    /// How a job stands.
    #[must_use]
    pub fn standing(&self, id: &str) -> Option<Standing> {
        todo!("{id}")
    }

    /// The name of a job's pool; none before its limits are fixed (S8).
    #[must_use]
    pub fn pool_name(&self, view: &JobView<'_>) -> Option<String> {
        todo!("{view:?}")
    }

    /// A waiting job's place in its queue, from 1.
    #[must_use]
    pub fn position(&self, id: &str) -> Option<u64> {
        todo!("{id}")
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
        todo!("{filter:?}{after:?}{jobs_max}{rows_max}")
    }

    /// The attempts that a server holds, `starting` and `active`, in launch order.
    pub fn held_by(&self, server: &str) -> impl Iterator<Item = JobView<'_>> {
        let _ = server;
        core::iter::empty()
    }

    /// An event by its id.
    #[must_use]
    pub fn event(&self, id: &str) -> Option<Stored<'_, Event>> {
        todo!("{id}")
    }

    /// Events by id after `after`.
    pub fn events(&self, after: &str) -> impl Iterator<Item = Stored<'_, Event>> {
        let _ = after;
        core::iter::empty()
    }

    /// A category by its id.
    #[must_use]
    pub fn category(&self, id: &str) -> Option<Stored<'_, Category>> {
        todo!("{id}")
    }

    /// Categories by id after `after`.
    pub fn categories(&self, after: &str) -> impl Iterator<Item = Stored<'_, Category>> {
        let _ = after;
        core::iter::empty()
    }

    /// A server by its id.
    #[must_use]
    pub fn server(&self, id: &str) -> Option<&Server> {
        todo!("{id}")
    }

    /// Servers by id after `after`.
    pub fn servers(&self, after: &str) -> impl Iterator<Item = &Server> {
        let _ = after;
        core::iter::empty()
    }

    /// A pool by its name; none where it has no jobs, no window and no override.
    #[must_use]
    pub fn pool(&self, name: &str, at: Instant) -> Option<PoolView<'_>> {
        todo!("{name}{at}")
    }

    /// Pools by name after `after`.
    pub fn pools(&self, after: &str, at: Instant) -> impl Iterator<Item = PoolView<'_>> {
        let _ = (after, at);
        core::iter::empty()
    }

    /// The open windows by name after `after`, as they are at `at` (or at the pool's own latest
    /// instant, if that is later).
    pub fn windows(&self, after: &str, at: Instant) -> impl Iterator<Item = WindowView<'_>> {
        let _ = (after, at);
        core::iter::empty()
    }

    /// The override of a pool or bucket.
    #[must_use]
    pub fn override_of(&self, name: &str) -> Option<&Override> {
        todo!("{name}")
    }

    /// Overrides by name after `after`.
    pub fn overrides(&self, after: &str) -> impl Iterator<Item = (&str, &Override)> {
        let _ = after;
        core::iter::empty()
    }

    /// The names of the jobs that wait in a pool, in the queue's order, after the given job.
    pub fn queue(&self, name: &str) -> impl Iterator<Item = &str> {
        let _ = name;
        core::iter::empty()
    }

    /// Every lease of a caller, in launch order of its job.
    pub fn leases(&self) -> impl Iterator<Item = LeaseView<'_>> {
        core::iter::empty()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        todo!()
    }
}
