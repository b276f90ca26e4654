//! The state as rows: how it leaves a pool, and how a pool is made of it again.
//!
//! A walk shows all tables as they were when it began, while entries go on being applied (see
//! `table`). Only the header and the tables are written; indexes are made again from them, and a
//! restored pool is checked against the digest that the snapshot names.
//!
//! Caveat: what was left to be considered when an entry's bound was reached is not written either.
//! It follows from the rows: heads that are due say so, and a gate that is open while somebody
//! waits for it exists only then.

use crate::audit::AuditRecord;
use crate::job::{
    Job, JobNumber, KindNumber, Params, ScopeNumber, ServerNumber, State, TermsNumber,
};
use crate::queue::order_of;
use crate::scope::{Gate, Head, Scope, Waits};
use crate::server::Server;
use crate::state::{Header, Pool, StoredCategory, StoredEvent};
use crate::terms::Terms;
use crate::time::Instant;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// One row of a snapshot: the header, then the tables in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Row<'a> {
    /// The first: what there is one of, and the digest of the whole state.
    Header(Box<Header>, u64),
    /// An event.
    Event(Cow<'a, StoredEvent>),
    /// A category.
    Category(Cow<'a, StoredCategory>),
    /// A server.
    Server(ServerNumber, Cow<'a, Server>),
    /// Interned terms.
    Terms(TermsNumber, Cow<'a, Terms>),
    /// A pool or bucket.
    Scope(ScopeNumber, Cow<'a, Scope>),
    /// A job.
    Job(JobNumber, Cow<'a, Job>),
    /// The parameters of a job.
    Params(JobNumber, Cow<'a, Params>),
    /// Starts of a sliding window, by the window's number, at one instant.
    Run(u64, Instant, u32),
    /// Which gate the heads of a kind wait for, from the head of this order to the next stretch.
    Stretch(KindNumber, u64, Gate),
    /// A change by an operator, by its number.
    Audit(u64, Cow<'a, AuditRecord>),
}

/// A walk is under way already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkUnderWay;

impl fmt::Display for WalkUnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a walk of the state is under way already")
    }
}

impl core::error::Error for WalkUnderWay {}

/// Why rows do not make a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreError {
    /// A row came out of its place, or refers to one that is not there.
    Inconsistent(&'static str),
    /// The rows are not those that were written.
    Digest,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Inconsistent(what) => write!(f, "the rows contradict each other: {what}"),
            RestoreError::Digest => f.write_str("the rows have another digest than the snapshot"),
        }
    }
}

impl core::error::Error for RestoreError {}

/// How far a walk has come.
#[derive(Debug)]
pub(crate) struct WalkState {
    /// The header as it was, until it was handed out.
    header: Option<(Box<Header>, u64)>,
    /// The table that is walked now.
    table: u8,
}

impl Pool {
    /// The sum of the digests of all tables.
    pub(crate) fn digest_of_tables(&self) -> u64 {
        [
            self.events.digest(),
            self.categories.digest(),
            self.servers.digest(),
            self.terms.digest(),
            self.scopes.digest(),
            self.jobs.digest(),
            self.params.digest(),
            self.runs.digest(),
            self.stretches.digest(),
            self.audit.digest(),
        ]
        .into_iter()
        .fold(0, u64::wrapping_add)
    }

    /// Brings the digests of all tables up to date.
    pub(crate) fn seal(&mut self) {
        self.events.seal();
        self.categories.seal();
        self.servers.seal();
        self.terms.seal();
        self.scopes.seal();
        self.jobs.seal();
        self.params.seal();
        self.runs.seal();
        self.stretches.seal();
        self.audit.seal();
    }

    /// Begins to walk the state as it is now, while later entries are applied.
    ///
    /// # Errors
    /// Another walk is under way.
    pub fn begin_walk(&mut self) -> Result<(), WalkUnderWay> {
        if self.walk.is_some() {
            return Err(WalkUnderWay);
        }
        let header = Some((Box::new(self.header.clone()), self.digest()));
        self.walk = Some(WalkState { header, table: 0 });
        self.events.begin_walk();
        self.categories.begin_walk();
        self.servers.begin_walk();
        self.terms.begin_walk();
        self.scopes.begin_walk();
        self.jobs.begin_walk();
        self.params.begin_walk();
        self.runs.begin_walk();
        self.stretches.begin_walk();
        self.audit.begin_walk();
        Ok(())
    }

    /// Hands out up to `rows_max` further rows, at least 1, in the order of [`Row`]; false when
    /// that was all, or when no walk is under way.
    pub fn walk(&mut self, rows_max: usize, hand_out: &mut dyn FnMut(&Row<'_>)) -> bool {
        let mut left = rows_max.max(1);
        while left > 0 {
            let Some(walk) = &mut self.walk else {
                return false;
            };
            if let Some((header, digest)) = walk.header.take() {
                hand_out(&Row::Header(header, digest));
                left -= 1;
                continue;
            }
            let table = walk.table;
            let given = self.walk_one(table, left, hand_out);
            if given < left
                && let Some(walk) = &mut self.walk
            {
                walk.table += 1;
                if table == LAST_TABLE {
                    self.walk = None;
                }
            }
            left -= given;
        }
        true
    }

    fn walk_one(
        &mut self,
        table: u8,
        rows_max: usize,
        hand_out: &mut dyn FnMut(&Row<'_>),
    ) -> usize {
        match table {
            0 => self
                .events
                .walk(rows_max, |_, it| hand_out(&Row::Event(Cow::Borrowed(it)))),
            1 => self.categories.walk(rows_max, |_, it| {
                hand_out(&Row::Category(Cow::Borrowed(it)));
            }),
            2 => self.servers.walk(rows_max, |key, it| {
                hand_out(&Row::Server(*key, Cow::Borrowed(it)));
            }),
            3 => self.terms.walk(rows_max, |key, it| {
                hand_out(&Row::Terms(*key, Cow::Borrowed(it)));
            }),
            4 => self.scopes.walk(rows_max, |key, it| {
                hand_out(&Row::Scope(*key, Cow::Borrowed(it)));
            }),
            5 => self.jobs.walk(rows_max, |key, it| {
                hand_out(&Row::Job(*key, Cow::Borrowed(it)));
            }),
            6 => self.params.walk(rows_max, |key, it| {
                hand_out(&Row::Params(*key, Cow::Borrowed(it)));
            }),
            7 => self.runs.walk(rows_max, |(window, at), starts| {
                hand_out(&Row::Run(*window, *at, *starts));
            }),
            8 => self.stretches.walk(rows_max, |(kind, begin), gate| {
                hand_out(&Row::Stretch(*kind, *begin, *gate));
            }),
            _ => self.audit.walk(rows_max, |number, it| {
                hand_out(&Row::Audit(*number, Cow::Borrowed(it)));
            }),
        }
    }

    /// Gives up the walk under way, if any.
    pub fn end_walk(&mut self) {
        self.walk = None;
        self.events.end_walk();
        self.categories.end_walk();
        self.servers.end_walk();
        self.terms.end_walk();
        self.scopes.end_walk();
        self.jobs.end_walk();
        self.params.end_walk();
        self.runs.end_walk();
        self.stretches.end_walk();
        self.audit.end_walk();
    }
}

/// The number of the table that is walked last.
const LAST_TABLE: u8 = 9;

/// Makes a pool of a snapshot's rows, in the order in which they were handed out.
#[derive(Debug, Default)]
pub struct Restore {
    pool: Pool,
    digest: Option<u64>,
}

impl Restore {
    /// Takes the next row.
    ///
    /// # Errors
    /// The row contradicts those before it.
    pub fn push(&mut self, row: Row<'_>) -> Result<(), RestoreError> {
        let pool = &mut self.pool;
        if self.digest.is_none() != matches!(row, Row::Header(..)) {
            return Err(RestoreError::Inconsistent(
                "the header is not the first row",
            ));
        }
        match row {
            Row::Header(header, digest) => {
                pool.header = *header;
                self.digest = Some(digest);
            }
            Row::Event(event) => {
                let event = event.into_owned();
                pool.events.insert(event.event.id.clone(), Box::new(event));
            }
            Row::Category(category) => {
                let category = category.into_owned();
                pool.categories
                    .insert(category.category.id.clone(), Box::new(category));
            }
            Row::Server(number, server) => {
                pool.index
                    .fleet
                    .place(&server.definition.id, number, Some(&server));
                pool.index
                    .fleet
                    .define(number, &[], &server.definition.groups);
                pool.servers.insert(number, Box::new(server.into_owned()));
            }
            Row::Terms(number, terms) => {
                let terms = Arc::new(terms.into_owned());
                pool.terms.insert(number, Arc::clone(&terms));
                pool.index.interner.insert(number, terms);
            }
            Row::Scope(number, scope) => pool.restore_scope(number, scope.into_owned()),
            Row::Job(number, job) => pool.restore_job(number, job.into_owned())?,
            Row::Params(number, params) => {
                pool.params.insert(number, params.into_owned());
            }
            Row::Run(window, at, starts) => pool.runs.insert((window, at), starts),
            Row::Stretch(kind, begin, gate) => pool.stretches.insert((kind, begin), gate),
            Row::Audit(number, record) => {
                pool.audit.insert(number, Box::new(record.into_owned()));
            }
        }
        Ok(())
    }

    /// The pool, with its indexes made and its digest checked.
    ///
    /// # Errors
    /// The rows contradict each other, or have another digest than the header says.
    pub fn finish(mut self) -> Result<Pool, RestoreError> {
        self.pool.seal();
        if self.digest != Some(self.pool.digest()) {
            return Err(RestoreError::Digest);
        }
        if self.pool.index.interner.unused() {
            return Err(RestoreError::Inconsistent("terms that no job refers to"));
        }
        self.pool.restore_waiting();
        Ok(self.pool)
    }
}

impl Pool {
    fn restore_scope(&mut self, number: ScopeNumber, scope: Scope) {
        self.index
            .scope_names
            .insert(Arc::from(&*scope.name), number);
        self.index.scopes.insert(number, Box::default());
        if let Some(sizes) = &scope.sizes {
            self.index.overrides.insert(number);
            self.index
                .override_ends
                .extend(sizes.expires_at.map(|at| (at, number)));
        }
        self.scopes.insert(number, Box::new(scope));
    }

    fn restore_job(&mut self, number: JobNumber, job: Job) -> Result<(), RestoreError> {
        let interned = self.index.interner.refer(job.terms);
        let interned = interned.ok_or(RestoreError::Inconsistent("a job without its terms"))?;
        let hash = crate::digest::hash_of(&*job.id);
        self.index.job_ids.insert(hash, number);
        if job.lease.is_some() {
            self.index.leased.insert(number);
        }
        if let Some(pool) = job.pool {
            let known = self.index.scopes.get_mut(&pool);
            let known = known.ok_or(RestoreError::Inconsistent("a job without its pool"))?;
            match &job.state {
                State::Queued => {
                    let order = order_of(number, &job);
                    known.queue.insert(order);
                    self.index.wanted.note(true, &interned, (order, pool));
                }
                State::Delayed { .. } => known.delayed += 1,
                _ => {}
            }
            self.index
                .members
                .join(pool, job.terms, &interned.rules, number);
        }
        match &job.state {
            State::Queued => {}
            State::Delayed { due } => {
                self.index.delayed.insert((*due, number));
            }
            State::Starting(attempt) | State::Active(attempt) => {
                self.note_running(job.pool.unwrap_or_default(), number, true);
                self.index
                    .held
                    .extend(attempt.server.map(|server| (server, number)));
                let by_deadline = match &job.state {
                    State::Starting(_) => &mut self.index.starting,
                    _ => &mut self.index.aging,
                };
                by_deadline.extend(attempt.deadline.map(|deadline| (deadline, number)));
            }
            State::Ended(end) => {
                self.index.finished.insert((end.at, number));
            }
        }
        self.jobs.insert(number, Box::new(job));
        Ok(())
    }

    /// Registers heads under their gates, and finds what waits although its gate is open.
    fn restore_waiting(&mut self) {
        let mut windows = alloc::collections::BTreeSet::new();
        let scopes: Vec<(ScopeNumber, Option<Head>)> = self
            .scopes
            .iter()
            .map(|(number, scope)| (*number, scope.head))
            .collect();
        for (_, scope) in self.scopes.iter() {
            windows.extend(scope.window.as_ref().map(|window| window.number));
        }
        for (pool, head) in &scopes {
            match head.map(|head| (head, head.waits)) {
                Some((head, Waits::Alone(_))) => self.register(*pool, head, true),
                Some((head, Waits::InKind(kind))) => self.restore_in_kind(kind, *pool, head),
                None => {}
            }
        }
        self.restore_stretches();
        for (scope, _) in &scopes {
            self.settle_rate(*scope);
        }
        let servers: Vec<ServerNumber> = self.servers.iter().map(|(number, _)| *number).collect();
        for server in servers {
            self.offer_server(server);
        }
        let mut dead = crate::sorted::SortedSet::default();
        let mut last = None;
        for ((window, _), _) in self.runs.iter() {
            if last != Some(*window) && !windows.contains(window) {
                dead.insert(*window);
            }
            last = Some(*window);
        }
        self.index.dead_runs = dead;
    }
}
