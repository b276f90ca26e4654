//! Who wants what is shared: the queued jobs that name a bucket or need a server, whatever gate
//! the heads of their queues wait for.
//!
//! A head waits for one gate (S20). When that opens it takes from all of its gates at once, so that
//! who waits at another gate may take from a bucket first. What is foretold of a job therefore asks
//! here who else wants the same ([`crate::outlook`]); nothing is decided by it.
//!
//! Caveat: how much each of them would leave is not reckoned. One who wants a start of a bucket
//! that has a thousand left counts like one who wants the last.

use crate::command::Executor;
use crate::job::ScopeNumber;
use crate::limits::Mode;
use crate::members::Interned;
use crate::outlook::Outlook;
use crate::queue::job_of;
use crate::scope::Gate;
use crate::sorted::{SortedMap, SortedSet};
use crate::state::Pool;
use crate::time::Instant;
use crate::why::SHOWN_MAX;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Most jobs that are gone through to find the heads of their queues.
const SEEN_MAX: usize = 4 * SHOWN_MAX;

/// How many queued jobs of each pool want one thing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pools(SortedMap<ScopeNumber, u64>);

impl Pools {
    fn note(&mut self, waits: bool, pool: ScopeNumber) {
        if waits {
            *self.0.entry(pool).or_default() += 1;
        } else if let Some(count) = self.0.get_mut(&pool) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&pool);
            }
        }
    }

    /// True where another pool is among them.
    fn others(&self, pool: ScopeNumber) -> bool {
        self.0.iter().take(2).any(|(other, _)| *other != pool)
    }
}

/// Queued jobs that name one bucket.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanting {
    /// Their orders, and their pools.
    orders: SortedSet<(u64, ScopeNumber)>,
    pools: Pools,
}

impl Wanting {
    fn note(&mut self, waits: bool, order: u64, pool: ScopeNumber) {
        if waits {
            self.orders.insert((order, pool));
        } else {
            self.orders.remove(&(order, pool));
        }
        self.pools.note(waits, pool);
    }

    /// True where a job of another pool comes before the first of its own queue.
    fn others_before(&self, pool: ScopeNumber, order: u64) -> bool {
        let first = self.orders.iter().next();
        first.is_some_and(|(other, of)| *other < order && *of != pool)
    }
}

/// All of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    buckets: SortedMap<Box<str>, Wanting>,
    /// Those that need a server.
    servers: Pools,
}

impl Wanted {
    /// Notes that a job is queued, or no longer is.
    pub(crate) fn note(
        &mut self,
        waits: bool,
        interned: &Interned,
        (order, pool): (u64, ScopeNumber),
    ) {
        for bucket in &interned.rules.buckets {
            let Some(wanting) = self.buckets.get_mut(&*bucket.name) else {
                let mut wanting = Wanting::default();
                wanting.note(waits, order, pool);
                self.buckets.insert(bucket.name.clone(), wanting);
                continue;
            };
            wanting.note(waits, order, pool);
            if wanting.orders.is_empty() {
                self.buckets.remove(&*bucket.name);
            }
        }
        if interned.terms.executor == Executor::Server {
            self.servers.note(waits, pool);
        }
    }
}

/// A job that wants what others may want too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants<'a> {
    pub(crate) pool: ScopeNumber,
    pub(crate) interned: &'a Interned,
    pub(crate) order: u64,
    /// When it falls due, if it is delayed: it is considered after all who wait.
    pub(crate) due: Option<Instant>,
}

impl Pool {
    /// True where jobs of other pools wait who want what a job does: a bucket of it, or room on a
    /// server that has an end.
    pub(crate) fn is_wanted_by_others(&self, pool: ScopeNumber, interned: &Interned) -> bool {
        let mut buckets = interned.rules.buckets.iter();
        buckets.any(|bucket| self.bucket_is_wanted(pool, &bucket.name))
            || self.servers_are_contested(pool, interned)
    }

    fn bucket_is_wanted(&self, pool: ScopeNumber, bucket: &str) -> bool {
        let wanting = self.index.wanted.buckets.get(bucket);
        wanting.is_some_and(|wanting| wanting.pools.others(pool))
    }

    /// True where others may take from a bucket of this job before `until`, when it starts or is
    /// aborted: they come before it, or the bucket opens earlier.
    pub(crate) fn is_contested(
        &self,
        it: Wants<'_>,
        outlook: &Outlook,
        at: Instant,
        until: Instant,
    ) -> bool {
        let buckets = it.interned.rules.buckets.iter();
        let mut wanted = buckets.filter_map(|bucket| {
            let wanting = self.index.wanted.buckets.get(&*bucket.name)?;
            Some((self.bucket_opens(outlook, &bucket.name, at)?, wanting))
        });
        wanted.any(|(opens_at, wanting)| {
            let comes_last = opens_at < until || it.due == Some(until);
            opens_at <= until
                && (wanting.others_before(it.pool, it.order)
                    || comes_last && wanting.pools.others(it.pool))
        })
    }

    /// True where a job may find one of its buckets shut whose mode is `skip`, because others take
    /// from it.
    pub(crate) fn may_be_skipped(&self, pool: ScopeNumber, interned: &Interned) -> bool {
        let mut skips = interned.rules.buckets.iter();
        skips.any(|bucket| bucket.mode == Mode::Skip && self.bucket_is_wanted(pool, &bucket.name))
    }

    /// True where jobs of other pools that need a server wait, and none of those that this job may
    /// use, as far as they are looked at ([`SHOWN_MAX`]), has room without end.
    pub(crate) fn servers_are_contested(&self, pool: ScopeNumber, interned: &Interned) -> bool {
        if interned.terms.executor != Executor::Server || !self.index.wanted.servers.others(pool) {
            return false;
        }
        let targeted = self.index.fleet.targeted(&interned.terms.targets);
        let mut servers = targeted.take(SHOWN_MAX);
        !servers.any(|number| {
            let server = self.servers.get(&number);
            server.is_some_and(|server| server.room() == u32::MAX)
        })
    }

    fn bucket_opens(&self, outlook: &Outlook, bucket: &str, at: Instant) -> Option<Instant> {
        match self.index.scope_names.get(bucket) {
            Some(number) => outlook.opens(Gate::Rate(*number)).next(at),
            None => Some(at),
        }
    }

    /// The heads of other queues in which somebody names a bucket and comes before a job, or may
    /// take from the bucket before it could start: at most [`SHOWN_MAX`], in S19's order among
    /// those that were looked at. That are the queues of the first [`SEEN_MAX`] such jobs, and as
    /// many of the others.
    pub(crate) fn ahead_at(
        &self,
        it: Wants<'_>,
        bucket: &str,
        outlook: &Outlook,
        at: Instant,
    ) -> Vec<&str> {
        let Some(wanting) = self.index.wanted.buckets.get(bucket) else {
            return Vec::new();
        };
        let before = wanting.orders.range(..(it.order, ScopeNumber(0)));
        let mut pools: BTreeSet<ScopeNumber> =
            before.take(SEEN_MAX).map(|(_, pool)| *pool).collect();
        let starts = outlook.all_open(it.due.map_or(at, |due| due.max(at)));
        let opens = self.bucket_opens(outlook, bucket, at);
        if opens < starts || (starts.is_some() && starts == it.due) {
            pools.extend(wanting.pools.0.iter().take(SEEN_MAX).map(|(pool, _)| *pool));
        }
        pools.remove(&it.pool);
        let heads = pools.into_iter().filter_map(|pool| {
            let queue = &self.index.scopes.get(&pool)?.queue;
            queue.first()
        });
        let heads: BTreeSet<u64> = heads.collect();
        let heads = heads.into_iter().take(SHOWN_MAX);
        heads
            .filter_map(|order| self.jobs.get(&job_of(order)))
            .map(|job| &*job.id)
            .collect()
    }
}
