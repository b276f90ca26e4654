//! Who belongs to a pool, with what terms: interning, and the differences between members (S35).
//!
//! Jobs launched alike share one number for all that they carry; what it stands for goes with the
//! last job that refers to it. Within a pool, members are grouped by their terms, and the distinct
//! values of the three settings that should agree are kept in order, so that one look at the first
//! and the last of them finds a member that differs.

use crate::job::{Difference, JobNumber, ScopeNumber, TermsNumber};
use crate::ranked::Ranked;
use crate::sorted::{SortedMap, SortedSet};
use crate::terms::{RateSettings, Rules, Terms};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Terms with what they come to.
#[derive(Debug)]
pub(crate) struct Interned {
    pub(crate) terms: Arc<Terms>,
    pub(crate) rules: Rules,
    /// `cap:KEY` or `event:ID`: the name of the pool (S9) of a job that is not launched from a
    /// workflow's node without a key; none where each job has its own.
    pub(crate) pool_name: Option<Box<str>>,
}

impl Interned {
    pub(crate) fn of(terms: Arc<Terms>) -> Interned {
        let rules = Rules::of(&terms.limits);
        let pool_name = match (&rules.cap_key, &terms.event) {
            (Some(key), _) => Some(format!("cap:{key}").into_boxed_str()),
            (None, Some(event)) => Some(format!("event:{event}").into_boxed_str()),
            (None, None) => None,
        };
        Interned {
            terms,
            rules,
            pool_name,
        }
    }
}

/// The index of interned terms.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    by_terms: SortedMap<Arc<Terms>, TermsNumber>,
    by_number: SortedMap<TermsNumber, (Arc<Interned>, u64)>,
}

impl Interner {
    pub(crate) fn get(&self, number: TermsNumber) -> Option<&Arc<Interned>> {
        self.by_number.get(&number).map(|(interned, _)| interned)
    }

    pub(crate) fn find(&self, terms: &Terms) -> Option<TermsNumber> {
        self.by_terms.get(terms).copied()
    }

    /// Makes terms known under a number that nothing refers to yet.
    pub(crate) fn insert(&mut self, number: TermsNumber, terms: Arc<Terms>) {
        let interned = Arc::new(Interned::of(Arc::clone(&terms)));
        self.by_terms.insert(terms, number);
        self.by_number.insert(number, (interned, 0));
    }

    /// One more job refers to them; none where they are unknown.
    pub(crate) fn refer(&mut self, number: TermsNumber) -> Option<Arc<Interned>> {
        let (interned, uses) = self.by_number.get_mut(&number)?;
        *uses += 1;
        Some(Arc::clone(interned))
    }

    /// One job fewer refers to them; true where that was the last, and they are forgotten.
    pub(crate) fn release(&mut self, number: TermsNumber) -> bool {
        let Some((interned, uses)) = self.by_number.get_mut(&number) else {
            return false;
        };
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return false;
        }
        let terms = Arc::clone(&interned.terms);
        self.by_number.remove(&number);
        self.by_terms.remove(&terms);
        true
    }

    /// Numbers that nothing refers to: there are none in a state that is whole.
    pub(crate) fn unused(&self) -> bool {
        self.by_number.values().any(|(_, uses)| *uses == 0)
    }
}

/// What of a job's rules should be the same for all members of a pool.
fn conduct(rules: &Rules) -> (u32, Option<RateSettings>, Option<u32>) {
    (rules.amount, rules.rate, rules.queue)
}

/// The members of all pools, by their terms.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Numbers of jobs.
    jobs: SortedMap<(ScopeNumber, TermsNumber), Ranked>,
    amounts: SortedSet<(ScopeNumber, u32, TermsNumber)>,
    rates: SortedSet<(ScopeNumber, Option<RateSettings>, TermsNumber)>,
    queues: SortedSet<(ScopeNumber, u32, TermsNumber)>,
}

const TERMS_MIN: TermsNumber = TermsNumber(0);
const TERMS_MAX: TermsNumber = TermsNumber(u64::MAX);

impl Members {
    fn any(&self, pool: ScopeNumber, terms: TermsNumber) -> Option<JobNumber> {
        let jobs = self.jobs.get(&(pool, terms))?;
        jobs.first().map(JobNumber)
    }

    /// The newest member of a pool.
    pub(crate) fn terms_of(&self, pool: ScopeNumber) -> Option<TermsNumber> {
        let all = (pool, TERMS_MIN)..=(pool, TERMS_MAX);
        let newest = self.jobs.range(all).next_back();
        newest.map(|((_, terms), _)| *terms)
    }

    /// None: the pool has no members. Else the terms that all of them have, if they are one.
    fn only_terms(&self, pool: ScopeNumber) -> Option<Option<TermsNumber>> {
        let all = (pool, TERMS_MIN)..=(pool, TERMS_MAX);
        let mut terms = self.jobs.range(all).map(|((_, terms), _)| *terms);
        let first = terms.next()?;
        Some(Some(first).filter(|_| terms.next().is_none()))
    }

    pub(crate) fn join(
        &mut self,
        pool: ScopeNumber,
        terms: TermsNumber,
        rules: &Rules,
        job: JobNumber,
    ) {
        let jobs = self.jobs.entry((pool, terms)).or_default();
        jobs.insert(job.0);
        if jobs.len() == 1 {
            let (amount, rate, queue) = conduct(rules);
            self.amounts.insert((pool, amount, terms));
            self.rates.insert((pool, rate, terms));
            self.queues.extend(queue.map(|queue| (pool, queue, terms)));
        }
    }

    pub(crate) fn leave(
        &mut self,
        pool: ScopeNumber,
        terms: TermsNumber,
        rules: &Rules,
        job: JobNumber,
    ) {
        let Some(jobs) = self.jobs.get_mut(&(pool, terms)) else {
            return;
        };
        jobs.remove(job.0);
        if jobs.is_empty() {
            self.jobs.remove(&(pool, terms));
            let (amount, rate, queue) = conduct(rules);
            self.amounts.remove(&(pool, amount, terms));
            self.rates.remove(&(pool, rate, terms));
            if let Some(queue) = queue {
                self.queues.remove(&(pool, queue, terms));
            }
        }
    }

    /// True where a member carries another rate than this.
    pub(crate) fn rates_differ(&self, pool: ScopeNumber, rate: RateSettings) -> bool {
        self.differing_rate(pool, Some(rate)).is_some()
    }

    fn differing_rate(
        &self,
        pool: ScopeNumber,
        ours: Option<RateSettings>,
    ) -> Option<(Option<RateSettings>, TermsNumber)> {
        let all = (pool, None, TERMS_MIN)..=(pool, Some(RATE_MAX), TERMS_MAX);
        let mut ends = self.rates.range(all);
        let found = [ends.next(), ends.next_back()];
        let found = found
            .into_iter()
            .flatten()
            .find(|(_, theirs, _)| *theirs != ours);
        found.map(|(_, theirs, terms)| (*theirs, *terms))
    }

    /// A warning for each of amount, rate and queue in which a member differs from a job that is
    /// about to join (S35), with the number of that member.
    pub(crate) fn differences(
        &self,
        pool: ScopeNumber,
        terms: TermsNumber,
        rules: &Rules,
    ) -> Vec<(JobNumber, Difference)> {
        let mut found = Vec::new();
        if self.only_terms(pool).is_none_or(|only| only == Some(terms)) {
            return found;
        }
        let (amount, rate, queue) = conduct(rules);
        let mut say = |what: &str, ours: String, theirs: String, terms: TermsNumber| {
            if let Some(job) = self.any(pool, terms) {
                let difference = Difference {
                    what: what.into(),
                    ours,
                    theirs,
                    job: "".into(),
                };
                found.push((job, difference));
            }
        };
        if let Some((theirs, terms)) = differing(&self.amounts, pool, amount) {
            say("amount", amount.to_string(), theirs.to_string(), terms);
        }
        if let Some((theirs, terms)) = self.differing_rate(pool, rate) {
            say("rate", shown(rate), shown(theirs), terms);
        }
        if let Some(ours) = queue
            && let Some((theirs, terms)) = differing(&self.queues, pool, ours)
        {
            say("queue amount", ours.to_string(), theirs.to_string(), terms);
        }
        found
    }
}

/// No settings come after these.
const RATE_MAX: RateSettings = RateSettings {
    rate: u32::MAX,
    window_s: u32::MAX,
    style: crate::limits::Style::TokenBucket,
    align: crate::limits::Align::Utc,
    burst: u32::MAX,
};

/// The least or the greatest value in a pool, if it is another than ours.
fn differing(
    values: &SortedSet<(ScopeNumber, u32, TermsNumber)>,
    pool: ScopeNumber,
    ours: u32,
) -> Option<(u32, TermsNumber)> {
    let mut ends = values.range((pool, 0, TERMS_MIN)..=(pool, u32::MAX, TERMS_MAX));
    let found = [ends.next(), ends.next_back()];
    found
        .into_iter()
        .flatten()
        .find(|(_, it, _)| *it != ours)
        .map(|(_, it, terms)| (*it, *terms))
}

/// A rate in words.
fn shown(rate: Option<RateSettings>) -> String {
    use crate::limits::{Align, Style};
    let Some(rate) = rate else {
        return "none".to_string();
    };
    let size = format!("{} per {} s", rate.rate, rate.window_s);
    match (rate.style, rate.align) {
        (Style::Fixed, Align::Local) => format!("{size}, fixed, local"),
        (Style::Fixed, Align::Utc) => format!("{size}, fixed, utc"),
        (Style::Sliding, _) => format!("{size}, sliding"),
        (Style::TokenBucket, _) => format!("{size}, token bucket of {}", rate.burst),
    }
}
