//! What must hold after every command, checked by looking at everything.
//!
//! In builds with debug assertions small states are checked after each command, so that every
//! test of the pool is a test of these as well.

use crate::job::{Job, JobNumber, KindNumber, ScopeNumber, State};
use crate::queue::{job_of, order_of};
use crate::scope::{Gate, Waits};
use crate::state::Pool;
use crate::wanted::Wanted;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

impl Pool {
    /// Says which invariant does not hold, if one does not. Takes time in proportion to the state.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut running: BTreeMap<ScopeNumber, u32> = BTreeMap::new();
        let mut members: BTreeMap<ScopeNumber, u32> = BTreeMap::new();
        let mut unfinished = 0;
        let mut wanted = Wanted::default();
        for (number, job) in self.jobs.iter() {
            if self.terms.get(&job.terms).is_none() || self.index.interner.get(job.terms).is_none()
            {
                return Err(format!("{} has no terms", job.id));
            }
            if self.number_of_job(&job.id) != Some(*number) {
                return Err(format!("{} is not found by its id", job.id));
            }
            if let (State::Queued, Some(pool)) = (&job.state, job.pool) {
                let order = order_of(*number, job);
                wanted.note(true, &self.interned(job), (order, pool));
            }
            unfinished += u64::from(!matches!(job.state, State::Ended(_)));
            if let Some(pool) = job.pool {
                *members.entry(pool).or_default() += 1;
                *running.entry(pool).or_default() += u32::from(job.current().is_some());
            }
            self.check_job(*number)?;
        }
        if wanted != self.index.wanted {
            return Err("who wants which bucket or a server is noted wrong".into());
        }
        if unfinished != self.header.unfinished {
            return Err(format!(
                "{unfinished} unfinished, {} counted",
                self.header.unfinished
            ));
        }
        for (number, scope) in self.scopes.iter() {
            let name = &scope.name;
            let (running, members) = (running.remove(number), members.remove(number));
            if (running.unwrap_or(0), members.unwrap_or(0)) != (scope.running, scope.members) {
                return Err(format!(
                    "{name}: {running:?} of {members:?} run, {} of {} counted",
                    scope.running, scope.members
                ));
            }
            self.check_head(*number)?;
        }
        self.check_kinds()?;
        self.check_servers()
    }

    fn check_job(&self, number: JobNumber) -> Result<(), String> {
        let Some(job) = self.jobs.get(&number) else {
            return Ok(());
        };
        let queued = job
            .pool
            .and_then(|pool| self.index.scopes.get(&pool))
            .is_some_and(|known| known.queue.iter().any(|order| job_of(order) == number));
        let found = match &job.state {
            State::Delayed { due } => !queued && self.index.delayed.contains(&(*due, number)),
            State::Queued => queued,
            State::Starting(attempt) => {
                let deadline = attempt.deadline.map(|at| (at, number));
                !queued && deadline.is_some_and(|it| self.index.starting.contains(&it))
            }
            State::Active(_) => !queued,
            State::Ended(end) => {
                !queued && job.pool.is_none() && self.index.finished.contains(&(end.at, number))
            }
        };
        if found {
            Ok(())
        } else {
            Err(format!("{} stands in the wrong place: {job:?}", job.id))
        }
    }

    fn check_head(&self, pool: ScopeNumber) -> Result<(), String> {
        let Some(scope) = self.scopes.get(&pool) else {
            return Ok(());
        };
        let first = self
            .index
            .scopes
            .get(&pool)
            .and_then(|known| known.queue.first());
        if scope.head.map(|head| head.job) != first.map(job_of) {
            return Err(format!(
                "{}: the head is not the first of the queue",
                scope.name
            ));
        }
        let Some(head) = scope.head else {
            return Ok(());
        };
        let Some(job) = self.jobs.get(&head.job) else {
            return Err(format!("{}: the head is no job", scope.name));
        };
        if let Waits::InKind(kind) = head.waits {
            self.check_in_kind(pool, job, kind, order_of(head.job, job))?;
        }
        if self.gate_of(head) == Gate::Due || !self.index.candidates.is_empty() {
            // Something was left for the next entry.
            return Ok(());
        }
        match self.look_at_gates(pool, &self.interned(job), 0, self.now()) {
            Ok(_) => Err(format!("{} could start and waits", job.id)),
            Err(_) => Ok(()),
        }
    }

    /// Nothing of its own stands in the way of a head that waits in a kind (see `kinds`).
    fn check_in_kind(
        &self,
        pool: ScopeNumber,
        job: &Job,
        kind: KindNumber,
        order: u64,
    ) -> Result<(), String> {
        let interned = self.interned(job);
        let known = self.index.kinds.get(kind);
        if known.is_none_or(|kind| kind.heads.first_from(order) != Some(order)) {
            return Err(format!("{} is not among those of its kind", job.id));
        }
        let own = self.look_at_own_gates(pool, &interned.rules, self.now());
        if own.is_err() || self.event_is_missing(&interned) {
            return Err(format!("{} waits in a kind, and should alone", job.id));
        }
        Ok(())
    }

    /// Stretches begin with their first heads, neighbours wait for different gates, and the first
    /// of each kind at each gate is registered there.
    fn check_kinds(&self) -> Result<(), String> {
        let kinds = &self.index.kinds;
        let alike = kinds.kinds.values().map(|kind| kind.heads.len());
        let heads = self.scopes.iter().filter_map(|(_, scope)| scope.head);
        let in_kinds = heads.filter(|head| matches!(head.waits, Waits::InKind(_)));
        if alike.sum::<usize>() != in_kinds.count() {
            return Err("a kind holds what is no head of it".into());
        }
        let mut last = None;
        let mut firsts = BTreeMap::new();
        for ((kind, begin), gate) in self.stretches.iter() {
            let known = kinds.get(*kind);
            let begins = known.is_some_and(|it| it.heads.first_from(*begin) == Some(*begin));
            let may_be = *gate == Gate::Due || gate.is_shared_by(ScopeNumber::default());
            if !begins || !may_be || last == Some((*kind, *gate)) {
                return Err(format!("no stretch for {gate:?} begins at {begin}"));
            }
            last = Some((*kind, *gate));
            firsts.entry((*kind, *gate)).or_insert(*begin);
        }
        for (number, kind) in kinds.kinds.iter() {
            let begin = self.stretches.range((*number, 0)..).next();
            let begin = begin.map(|((kind, begin), _)| (*kind, *begin));
            if begin != kind.heads.first().map(|first| (*number, first)) {
                return Err(format!("{number:?} has a head in no stretch"));
            }
        }
        let enlisted = kinds
            .enlisted
            .iter()
            .map(|(key, (order, _))| (*key, *order));
        if kinds.begins.len() != self.stretches.len() || !firsts.into_iter().eq(enlisted) {
            return Err("another than the first of a kind is registered".into());
        }
        Ok(())
    }

    fn check_servers(&self) -> Result<(), String> {
        for (number, server) in self.servers.iter() {
            let held = (*number, JobNumber(0))..=(*number, JobNumber(u64::MAX));
            let (mut jobs, mut used) = (0, 0);
            for (_, job) in self.index.held.range(held) {
                let attempt = self.jobs.get(job).and_then(|job| job.current());
                let Some(attempt) = attempt.filter(|it| it.server == Some(*number)) else {
                    return Err(format!("{} holds what it does not", server.definition.id));
                };
                jobs += 1;
                used += attempt.weight;
            }
            if (jobs, used) != (server.jobs, server.used) {
                return Err(format!("{} is counted wrong", server.definition.id));
            }
        }
        Ok(())
    }

    /// Checks the invariants where that is quick and nothing was left over.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_invariants_if_small(&self, turn: &crate::state::Turn) {
        const JOBS_MAX: usize = 64;
        if self.jobs.len() <= JOBS_MAX && turn.budget > 0 {
            let holds = self.check_invariants();
            assert!(holds.is_ok(), "{holds:?}");
        }
    }
}
