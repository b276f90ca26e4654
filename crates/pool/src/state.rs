//! What the pool holds: tables, and the indexes made of them.
//!
//! Everything that a snapshot writes lies in the header or in a table. Everything else is an index:
//! made again from the tables, and never asked for something that the tables do not say.

use crate::audit::AuditRecord;
use crate::command::{Category, Claim, Event, Settings};
use crate::digest::hash_of;
use crate::fleet::Fleet;
use crate::ids::JobIds;
use crate::job::{
    Job, JobNumber, KindNumber, Params, ScopeNumber, ServerNumber, State, TermsNumber,
};
use crate::kinds::Kinds;
use crate::members::{Interned, Interner, Members};
use crate::outcome::{Move, RateCheck, Standing};
use crate::query::Stats;
use crate::ranked::Ranked;
use crate::scope::{Gate, Scope};
use crate::server::Server;
use crate::sorted::{SortedMap, SortedSet};
use crate::table::Table;
use crate::terms::Terms;
use crate::time::{Instant, Stamp};
use crate::wanted::Wanted;
use crate::window::Runs;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The format that a new cluster begins with.
pub const FORMAT_FIRST: u32 = 1;
/// The newest format of the state and its rules that this program knows. Rules branch on the one
/// that the state has ([`Pool::format`]), never on this: members of one cluster may run different
/// programs for a while.
pub const FORMAT_LATEST: u32 = 1;

/// What there is one of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format of the state and of its rules, from [`FORMAT_FIRST`]; it only rises.
    pub format: u32,
    /// The claim in force (S39).
    pub claim: Claim,
    /// How many takeovers there were.
    pub takeovers: u64,
    /// The latest stamp.
    pub stamp: Stamp,
    /// Numbers that were given out last: jobs, terms, scopes, servers, windows, kinds, audit
    /// records.
    pub last: LastNumbers,
    /// The last pick of `round_robin` for launches without an event (S18).
    pub last_pick: Option<Arc<str>>,
    /// Unfinished jobs.
    pub unfinished: u64,
    /// The settings.
    pub settings: Settings,
    /// Counts the edits of the settings.
    pub settings_revision: u64,
    /// The counters.
    pub stats: Stats,
}

/// Numbers that were given out last; none is ever used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after what they number")]
pub struct LastNumbers {
    pub job: u64,
    pub terms: u64,
    pub scope: u64,
    pub server: u32,
    pub window: u64,
    pub kind: u64,
    pub audit: u64,
}

/// An event as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// The definition.
    pub event: Event,
    /// Counts its edits, from 1.
    pub revision: u64,
    /// The last pick of `round_robin` (S18).
    pub last_pick: Option<Arc<str>>,
}

/// A category as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCategory {
    /// The definition.
    pub category: Category,
    /// Counts its edits, from 1.
    pub revision: u64,
}

/// The state of all pools, and the only thing that changes it.
#[derive(Debug, Default)]
pub struct Pool {
    pub(crate) header: Header,
    pub(crate) events: Table<Box<str>, Box<StoredEvent>>,
    pub(crate) categories: Table<Box<str>, Box<StoredCategory>>,
    pub(crate) servers: Table<ServerNumber, Box<Server>>,
    pub(crate) terms: Table<TermsNumber, Arc<Terms>>,
    pub(crate) scopes: Table<ScopeNumber, Box<Scope>>,
    pub(crate) jobs: Table<JobNumber, Box<Job>>,
    pub(crate) params: Table<JobNumber, Params>,
    pub(crate) runs: Runs,
    /// Which gate the heads of a kind wait for: by the kind, and the order of the first of them.
    pub(crate) stretches: Table<(KindNumber, u64), Gate>,
    pub(crate) audit: Table<u64, Box<AuditRecord>>,
    pub(crate) index: Index,
    pub(crate) walk: Option<crate::snapshot::WalkState>,
    pub(crate) records_rate_checks: bool,
}

/// Who makes a head be considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// It is due by itself: new at the head, or its own pool has a slot.
    Due,
    /// A rate opened.
    Rate(ScopeNumber),
    /// A server has room.
    Server(ServerNumber),
}

/// What is made from the tables.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) job_ids: JobIds,
    /// Scopes by name.
    pub(crate) scope_names: SortedMap<Arc<str>, ScopeNumber>,
    /// What is known of a scope beside its row.
    pub(crate) scopes: SortedMap<ScopeNumber, Box<ScopeIndex>>,
    pub(crate) interner: Interner,
    /// Terms of plain launches of an event, while no definition changes.
    pub(crate) plain: SortedMap<Box<str>, TermsNumber>,
    pub(crate) members: Members,
    pub(crate) fleet: Fleet,
    /// Attempts by the server that holds them.
    pub(crate) held: SortedSet<(ServerNumber, JobNumber)>,
    /// How many jobs are starting or active.
    pub(crate) running: u64,
    /// Delayed jobs by when they are due.
    pub(crate) delayed: SortedSet<(Instant, JobNumber)>,
    /// Jobs in `starting` by when they are given up.
    pub(crate) starting: SortedSet<(Instant, JobNumber)>,
    /// Active jobs by when they are told to stop for their age (S50).
    pub(crate) aging: SortedSet<(Instant, JobNumber)>,
    /// Finished jobs by their end.
    pub(crate) finished: SortedSet<(Instant, JobNumber)>,
    /// Unfinished jobs that their callers keep.
    pub(crate) leased: SortedSet<JobNumber>,
    /// Open windows by when they are gone.
    pub(crate) expiries: SortedSet<(Instant, ScopeNumber)>,
    /// Rates that heads wait for, by when they open.
    pub(crate) openings: SortedSet<(Instant, ScopeNumber)>,
    /// Overrides by when they go.
    pub(crate) override_ends: SortedSet<(Instant, ScopeNumber)>,
    /// Scopes with an override.
    pub(crate) overrides: SortedSet<ScopeNumber>,
    /// Queued jobs by the buckets that they name, and those that need a server.
    pub(crate) wanted: Wanted,
    pub(crate) kinds: Kinds,
    /// How often a head was looked at, or a stretch of them moved.
    pub(crate) visited: u64,
    /// Heads that wait for a rate: whose, their order, their pool. One stands for all of its kind.
    pub(crate) rate_waiters: SortedSet<(ScopeNumber, u64, ScopeNumber)>,
    /// Heads to be considered, in S19's order across pools.
    pub(crate) candidates: SortedSet<(u64, ScopeNumber, Source)>,
    /// Windows that are closed and whose runs are still there.
    pub(crate) dead_runs: SortedSet<u64>,
}

/// What is known of a scope beside its row.
#[derive(Debug, Default)]
pub(crate) struct ScopeIndex {
    /// The orders of the jobs that wait.
    pub(crate) queue: Ranked,
    /// The numbers of those that are starting or active.
    pub(crate) running: Ranked,
    pub(crate) delayed: u64,
    pub(crate) expiry: Option<Instant>,
    pub(crate) opening: Option<Instant>,
}

/// What is known while one entry is applied.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The entry's index in the log.
    pub(crate) index: u64,
    /// Starts so far.
    pub(crate) starts: u32,
    /// Heads and due jobs that may still be considered.
    pub(crate) budget: usize,
    pub(crate) moves: Vec<Move>,
    pub(crate) checks: Vec<RateCheck>,
}

impl Turn {
    /// The place of the next start in the log, for `random` (S18).
    pub(crate) fn place(&self) -> u64 {
        self.index.wrapping_add(u64::from(self.starts))
    }
}

impl Pool {
    pub(crate) fn now(&self) -> Instant {
        self.header.stamp.at
    }

    pub(crate) fn number_of_job(&self, id: &str) -> Option<JobNumber> {
        let is_it = |number| self.jobs.get(&number).is_some_and(|job| &*job.id == id);
        self.index.job_ids.find(hash_of(id), is_it)
    }

    pub(crate) fn interned(&self, job: &Job) -> Arc<Interned> {
        match self.index.interner.get(job.terms) {
            Some(interned) => Arc::clone(interned),
            // Every job's terms are interned for as long as it is there; see `check_invariants`.
            None => unreachable!("a job refers to terms that are not there"),
        }
    }

    /// How a job stands.
    pub(crate) fn standing_of(&self, job: &Job) -> Standing {
        let server_id = |number: Option<ServerNumber>| {
            number
                .and_then(|it| self.servers.get(&it))
                .map(|server| Arc::clone(&server.definition.id))
        };
        match &job.state {
            State::Delayed { .. } => Standing::Delayed,
            State::Queued => Standing::Queued,
            State::Starting(attempt) => Standing::Starting {
                attempt: job.attempt,
                server: server_id(attempt.server),
            },
            State::Active(attempt) => Standing::Active {
                attempt: job.attempt,
                server: server_id(attempt.server),
            },
            State::Ended(end) => match end.result {
                Ok(code) => Standing::Complete { code },
                Err(reason) => Standing::Aborted { reason },
            },
        }
    }

    /// Notes that a job stands otherwise than before.
    pub(crate) fn moved(&self, number: JobNumber, turn: &mut Turn) {
        self.moved_from(number, None, turn);
    }

    /// The same, where an attempt ended with it: its server is told too.
    pub(crate) fn moved_from(
        &self,
        number: JobNumber,
        server: Option<ServerNumber>,
        turn: &mut Turn,
    ) {
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let left = server.and_then(|server| self.servers.get(&server));
        turn.moves.push(Move {
            job: Arc::clone(&job.id),
            standing: self.standing_of(job),
            left: left.map(|server| Arc::clone(&server.definition.id)),
        });
    }

    /// The scope of a name, made if it is not there.
    pub(crate) fn scope_of(&mut self, name: &str) -> ScopeNumber {
        if let Some(number) = self.index.scope_names.get(name) {
            return *number;
        }
        self.header.last.scope += 1;
        let number = ScopeNumber(self.header.last.scope);
        let scope = Scope {
            name: name.into(),
            ..Scope::default()
        };
        self.scopes.insert(number, Box::new(scope));
        self.index.scope_names.insert(Arc::from(name), number);
        self.index.scopes.insert(number, Box::default());
        number
    }

    /// Lets a scope go if nothing needs it any more.
    pub(crate) fn drop_unused_scope(&mut self, number: ScopeNumber) {
        let Some(scope) = self.scopes.get(&number) else {
            return;
        };
        let needed = scope.members > 0
            || scope.window.is_some()
            || scope.sizes.is_some()
            || self.has_rate_waiters(number);
        if !needed {
            self.index.scope_names.remove(&*scope.name);
            self.index.scopes.remove(&number);
            self.scopes.remove(&number);
        }
    }
}
