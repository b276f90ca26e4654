//! What must hold, one file each, and what was seen of the run to judge it by.
//!
//! Members are watched from inside: every entry that each applies, the digest of its state, who
//! leads under which claim. Users and workers record what they themselves saw; those records are
//! judged by the project's one checker of histories ([`history`]).

mod formats;
mod history;
mod one_leader;
mod rolling;
mod same_state;
mod settled;
mod stamps;

use crate::clock;
use fermata_audit::{History, Record};
use fermata_pool::outcome::{Applied, Standing};
use fermata_replica::Leadership;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most violations that are told of one run.
const VIOLATIONS_MAX: usize = 20;

/// What was seen; a clone is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<All>>);

#[derive(Debug, Default)]
pub(crate) struct All {
    /// The digest of the state after an entry, and who showed it first.
    digests: BTreeMap<u64, (u64, u64)>,
    /// What came of each entry, and who applied it first.
    entries: BTreeMap<u64, (u64, Arc<Applied>)>,
    /// Stamps, with the true time at which they were first seen.
    stamps: BTreeMap<u64, (i64, i64)>,
    /// Who led under a claim.
    claims: BTreeMap<u64, u64>,
    /// Jobs that were launched, and whether the launch was answered.
    launched: BTreeMap<String, bool>,
    /// Jobs of which a client read the end.
    ended: BTreeSet<String>,
    /// The newest format that a state was seen to have.
    format: u32,
    history: History,
    stopped: Vec<u64>,
    violations: Vec<String>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member's state after an entry.
    pub(crate) fn state(&self, node: u64, index: u64, digest: u64, stamp_us: i64) {
        let mut all = self.lock();
        same_state::digest(&mut all, node, index, digest);
        stamps::seen(&mut all, index, stamp_us, clock::true_us());
    }

    /// The format of a member's state, and the newest one that its program knows.
    pub(crate) fn format(&self, node: u64, format: u32, format_max: u32) {
        formats::seen(&mut self.lock(), node, format, format_max);
    }

    /// What came of an entry on a member.
    pub(crate) fn entry(&self, node: u64, entry: &Arc<Applied>) {
        same_state::entry(&mut self.lock(), node, entry);
    }

    /// Who leads, as a member says.
    pub(crate) fn leads(&self, node: u64, leadership: &Leadership) {
        if let Leadership::Leader { claim } = leadership {
            one_leader::claimed(&mut self.lock(), node, claim.0);
        }
    }

    /// A member has stopped by itself: only a disk that fails may do that.
    pub(crate) fn stopped(&self, node: u64, why: &str) {
        let mut all = self.lock();
        all.stopped.push(node);
        if !why.contains("simulated disk fails") {
            all.violate(format!("member {node} stopped: {why}"));
        }
    }

    /// The members that have stopped since this was asked last: their processes are over.
    pub(crate) fn take_stopped(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().stopped)
    }

    /// A launch was sent, and perhaps answered.
    pub(crate) fn launched(&self, job: &str, is_answered: bool) {
        let mut all = self.lock();
        let answered = all.launched.entry(job.to_owned()).or_default();
        *answered |= is_answered;
    }

    /// A record of a user or worker.
    pub(crate) fn record(&self, mut record: Record) {
        let mut all = self.lock();
        if let Record::Lost(lost) = &mut record {
            lost.at_us = all.true_us_of(lost.at_us);
        }
        if let Record::Ended(ended) = &record {
            all.ended.insert(ended.job.clone());
        }
        if let Err(contradiction) = all.history.add(record) {
            all.violate(format!("a record: {contradiction}"));
        }
    }

    /// Something that no user may see.
    pub(crate) fn violate(&self, what: String) {
        self.lock().violate(what);
    }

    /// Everything that does not hold; judged at the end of a run, in which every node's program knew
    /// this format at last.
    pub(crate) fn judge(&self, format_known_to_all: u32) -> Vec<String> {
        let mut all = self.lock();
        formats::judge(&mut all, format_known_to_all);
        rolling::judge(&mut all);
        settled::judge(&mut all);
        history::judge(&mut all);
        all.violations.clone()
    }

    /// Commands with an outcome, over all entries.
    pub(crate) fn operations(&self) -> u64 {
        let all = self.lock();
        let outcomes = all.entries.values().map(|(_, applied)| &applied.outcomes);
        outcomes
            .map(|it| it.as_ref().map_or(0, Vec::len) as u64)
            .sum()
    }
}

impl All {
    fn violate(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    /// The true time at which the entry of a stamp was applied first.
    fn true_us_of(&self, stamp_us: i64) -> i64 {
        let seen = self.stamps.values().find(|(stamp, _)| *stamp >= stamp_us);
        seen.map_or(stamp_us, |(_, true_us)| *true_us)
    }

    /// The committed starts of a pool's jobs that were confirmed, in microseconds, in order. Jobs
    /// are named after their pool.
    fn confirmed_starts(&self, pool: &str) -> Vec<i64> {
        let mut starts = BTreeMap::new();
        let mut confirmed = Vec::new();
        for (_, applied) in self.entries.values() {
            for moved in applied
                .moves
                .iter()
                .filter(|moved| moved.job.starts_with(pool))
            {
                match moved.standing {
                    Standing::Starting { attempt, .. } => {
                        starts.insert((&moved.job, attempt), applied.at.us());
                    }
                    Standing::Active { attempt, .. } => {
                        confirmed.extend(starts.remove(&(&moved.job, attempt)));
                    }
                    _ => {}
                }
            }
        }
        confirmed.sort_unstable();
        confirmed
    }
}
