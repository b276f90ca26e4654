//! Heads of a kind: those that find the same gate shut, whichever of them is looked at (S20).
//!
//! What buckets and servers say to a head depends on little: its buckets in their order, whether
//! `skip` applies at them, its targets and its weight. Heads that are equal in these are of one
//! kind, as long as nothing of their own stands in their way: the slot and the window of their
//! pool are open, and their event is there. Then one of them answers for all. Where 100,000 heads
//! wait for a bucket and a scarce server, none of them is visited but the first of each kind, and
//! what it finds moves all that wait with it.
//!
//! The heads of a kind stand in S19's order. Which gate each of them waits for is kept in
//! stretches: a stretch begins with a head and reaches to the next stretch, and all heads in it
//! wait for one gate. Stretches are rows of the state, because they tell what no head's own row
//! does. At a gate the first head of each kind is registered in the place of all
//! ([`Pool::enlist`]), so that rates and servers know one waiter of each kind.
//!
//! A kind whose gate was reset or overridden is due as a whole ([`Pool::wake_rate_waiters`]): its first
//! head is considered for all, in its turn, before the entry ends.
//!
//! Invariant: the own gates of a head that waits in a kind are open and its event is there.
//! Whatever can break this says so: a start in the pool and an override of it
//! ([`Pool::recheck_own_gates`]), the deletion of an event ([`Pool::part_with_event`]). Such a head
//! waits alone from then on, for the same gate, until it is considered again.
//!
//! Caveat: heads of a kind with two or more buckets can stand in as many stretches as there are
//! heads, and such a stretch is moved by itself. With one bucket and servers there are two gates,
//! so that moving the heads of one to the other leaves fewer stretches than before. The deletion
//! of an event visits each head of it that waits in a kind, once.

use crate::command::Executor;
use crate::job::{JobNumber, KindNumber, ScopeNumber};
use crate::limits::Mode;
use crate::members::Interned;
use crate::queue::{job_of, order_of};
use crate::ranked::Ranked;
use crate::scope::{Gate, Head, Waits};
use crate::sorted::{SortedMap, SortedSet};
use crate::state::Pool;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

/// What makes the kind of a head: all that a shared gate asks of it, and nothing else of its terms.
#[derive(Clone, Debug)]
pub(crate) struct Likeness {
    pub(crate) interned: Arc<Interned>,
    put_back: bool,
}

impl Likeness {
    /// Its buckets, and whether it is aborted where it finds them shut.
    fn buckets(&self) -> impl Iterator<Item = (&str, bool)> {
        let skips = |mode| mode == Mode::Skip && !self.put_back;
        let buckets = self.interned.rules.buckets.iter();
        buckets.map(move |bucket| (&*bucket.name, skips(bucket.mode)))
    }

    /// What it asks of a server; none: its caller executes it.
    fn room(&self) -> Option<(u32, &[Box<str>])> {
        let Interned { terms, rules, .. } = &*self.interned;
        (terms.executor == Executor::Server).then_some((rules.weight, &*terms.targets))
    }
}

impl Ord for Likeness {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_room = self.room().cmp(&other.room());
        by_room.then_with(|| self.buckets().cmp(other.buckets()))
    }
}

impl PartialOrd for Likeness {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Likeness {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Likeness {}

/// The heads of one kind.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) likeness: Likeness,
    /// Their orders.
    pub(crate) heads: Ranked,
}

/// What is known of kinds beside their stretches.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    numbers: SortedMap<Likeness, KindNumber>,
    pub(crate) kinds: SortedMap<KindNumber, Kind>,
    /// Where stretches begin, by the gate.
    pub(crate) begins: SortedSet<(Gate, KindNumber, u64)>,
    /// Who is registered at each gate in the place of a kind: its order and its pool.
    pub(crate) enlisted: SortedMap<(KindNumber, Gate), (u64, ScopeNumber)>,
    /// Pools whose heads wait in a kind, by the event of the head.
    of_events: SortedMap<Box<str>, SortedSet<ScopeNumber>>,
}

impl Kinds {
    pub(crate) fn get(&self, kind: KindNumber) -> Option<&Kind> {
        self.kinds.get(&kind)
    }

    /// True where heads of any kind wait for a gate.
    pub(crate) fn wait_for(&self, gate: Gate) -> bool {
        let all = (gate, KindNumber(0), 0)..=(gate, KindNumber(u64::MAX), u64::MAX);
        self.begins.range(all).next().is_some()
    }

    /// The kinds whose heads wait for a gate.
    pub(crate) fn waiting_for(&self, gate: Gate) -> Vec<KindNumber> {
        let all = (gate, KindNumber(0), 0)..=(gate, KindNumber(u64::MAX), u64::MAX);
        let kinds = self.begins.range(all).map(|(_, kind, _)| *kind);
        let mut kinds: Vec<KindNumber> = kinds.collect();
        kinds.dedup();
        kinds
    }

    /// The first head of a kind that waits for a gate.
    pub(crate) fn first_at(&self, kind: KindNumber, gate: Gate) -> Option<u64> {
        let all = (gate, kind, 0)..=(gate, kind, u64::MAX);
        self.begins.range(all).next().map(|(_, _, order)| *order)
    }

    fn first_from(&self, kind: KindNumber, order: u64) -> Option<u64> {
        self.kinds.get(&kind)?.heads.first_from(order)
    }

    /// How many heads stand from one order up to another, or to the end.
    fn count(&self, kind: KindNumber, from: u64, until: Option<u64>) -> u64 {
        let count = self.kinds.get(&kind).map_or(0, |kind| {
            let until = until.map_or(kind.heads.len(), |until| kind.heads.rank(until));
            until.saturating_sub(kind.heads.rank(from))
        });
        count as u64
    }
}

impl Pool {
    /// The gate that a head waits for.
    pub(crate) fn gate_of(&self, head: Head) -> Gate {
        match head.waits {
            Waits::Alone(gate) => gate,
            Waits::InKind(kind) => {
                let job = self.jobs.get(&head.job);
                let order = job.map(|job| order_of(head.job, job));
                let stretch = order.and_then(|order| self.stretch_of(kind, order));
                stretch.map_or(Gate::Due, |(_, gate)| gate)
            }
        }
    }

    /// The stretch of a kind that holds an order: where it begins, and its gate.
    fn stretch_of(&self, kind: KindNumber, order: u64) -> Option<(u64, Gate)> {
        let before = self.stretches.range((kind, 0)..=(kind, order)).next_back();
        before.map(|((_, begin), gate)| (*begin, *gate))
    }

    /// The stretch of a kind that begins next after an order.
    fn stretch_after(&self, kind: KindNumber, order: u64) -> Option<(u64, Gate)> {
        let from = Bound::Excluded((kind, order));
        let rest = (from, Bound::Included((kind, u64::MAX)));
        let next = self.stretches.range(rest).next();
        next.map(|((_, begin), gate)| (*begin, *gate))
    }

    fn set_stretch(&mut self, kind: KindNumber, begin: u64, gate: Gate) {
        self.drop_stretch(kind, begin);
        self.stretches.insert((kind, begin), gate);
        self.index.kinds.begins.insert((gate, kind, begin));
    }

    fn drop_stretch(&mut self, kind: KindNumber, begin: u64) {
        if let Some(gate) = self.stretches.remove(&(kind, begin)) {
            self.index.kinds.begins.remove(&(gate, kind, begin));
        }
    }

    /// Lets the head of a pool wait in its kind, for a shared gate that it found shut just now.
    pub(crate) fn join_kind(
        &mut self,
        pool: ScopeNumber,
        number: JobNumber,
        gate: Gate,
    ) -> Option<KindNumber> {
        let job = self.jobs.get(&number)?;
        let order = order_of(number, job);
        let likeness = Likeness {
            interned: self.interned(job),
            put_back: job.put_back,
        };
        let kind = match self.index.kinds.numbers.get(&likeness) {
            Some(kind) => *kind,
            None => {
                self.header.last.kind += 1;
                KindNumber(self.header.last.kind)
            }
        };
        self.note_in_kind(kind, likeness, pool, order);
        self.place_in_stretch(kind, order, gate);
        self.enlist(kind, gate);
        Some(kind)
    }

    /// Notes a head among those of its kind.
    fn note_in_kind(
        &mut self,
        number: KindNumber,
        likeness: Likeness,
        pool: ScopeNumber,
        order: u64,
    ) {
        let kinds = &mut self.index.kinds;
        if let Some(event) = &likeness.interned.terms.event {
            match kinds.of_events.get_mut(event) {
                Some(pools) => {
                    pools.insert(pool);
                }
                None => {
                    let pools = SortedSet::from_iter([pool]);
                    kinds.of_events.insert(event.clone(), pools);
                }
            }
        }
        let kind = kinds.kinds.entry(number).or_insert_with(|| {
            kinds.numbers.insert(likeness.clone(), number);
            Kind {
                likeness,
                heads: Ranked::default(),
            }
        });
        kind.heads.insert(order);
    }

    /// Registers again a head that waits in a kind: its stretch is there (see `snapshot`).
    pub(crate) fn restore_in_kind(&mut self, kind: KindNumber, pool: ScopeNumber, head: Head) {
        let Some(job) = self.jobs.get(&head.job) else {
            return;
        };
        let order = order_of(head.job, job);
        let likeness = Likeness {
            interned: self.interned(job),
            put_back: job.put_back,
        };
        self.note_in_kind(kind, likeness, pool, order);
    }

    /// Finds where stretches begin, and registers the first of each kind at each gate.
    pub(crate) fn restore_stretches(&mut self) {
        let rows = self.stretches.iter();
        self.index.kinds.begins = rows
            .map(|((kind, begin), gate)| (*gate, *kind, *begin))
            .collect();
        let begins = self.index.kinds.begins.iter();
        let mut waiting: SortedSet<_> = begins.map(|(gate, kind, _)| (*gate, *kind)).collect();
        while let Some((gate, kind)) = waiting.pop_first() {
            self.enlist(kind, gate);
        }
    }

    /// Gives a head that was added to its kind its place among the stretches.
    fn place_in_stretch(&mut self, kind: KindNumber, order: u64, gate: Gate) {
        let after = self.stretch_after(kind, order);
        match self.stretch_of(kind, order) {
            Some((_, around)) if around == gate => return,
            Some((_, around)) => {
                let rest = self.index.kinds.first_from(kind, order + 1);
                if let Some(rest) = rest.filter(|it| after.is_none_or(|(begin, _)| *it < begin)) {
                    self.set_stretch(kind, rest, around);
                    self.set_stretch(kind, order, gate);
                    return;
                }
            }
            None => {}
        }
        if let Some((begin, _)) = after.filter(|after| after.1 == gate) {
            self.drop_stretch(kind, begin);
        }
        self.set_stretch(kind, order, gate);
    }

    /// Takes a head out of its kind; gives the gate that it waited for. What nobody waits for any
    /// more is left to the caller to drop.
    pub(crate) fn leave_kind(
        &mut self,
        number: KindNumber,
        pool: ScopeNumber,
        order: u64,
        interned: &Interned,
    ) -> Option<Gate> {
        let (_, gate) = self.stretch_of(number, order)?;
        let kinds = &mut self.index.kinds;
        if let Some(event) = &interned.terms.event
            && let Some(pools) = kinds.of_events.get_mut(event)
        {
            pools.remove(&pool);
            if pools.is_empty() {
                kinds.of_events.remove(event);
            }
        }
        if let Some(kind) = kinds.kinds.get_mut(&number) {
            kind.heads.remove(order);
        }
        self.take_from_stretch(number, order);
        self.enlist(number, gate);
        let kinds = &mut self.index.kinds;
        if kinds.get(number).is_some_and(|kind| kind.heads.is_empty())
            && let Some(kind) = kinds.kinds.remove(&number)
        {
            kinds.numbers.remove(&kind.likeness);
        }
        Some(gate)
    }

    /// Lets a stretch begin with its next head where its first one left; neighbours of one that
    /// is empty become one if they wait for the same gate.
    fn take_from_stretch(&mut self, kind: KindNumber, order: u64) {
        let Some(gate) = self.stretches.get(&(kind, order)).copied() else {
            return;
        };
        self.drop_stretch(kind, order);
        let after = self.stretch_after(kind, order);
        let rest = self.index.kinds.first_from(kind, order);
        if let Some(rest) = rest.filter(|it| after.is_none_or(|(begin, _)| *it < begin)) {
            self.set_stretch(kind, rest, gate);
        } else if let (Some((_, before)), Some((begin, after))) =
            (self.stretch_of(kind, order), after)
            && before == after
        {
            self.drop_stretch(kind, begin);
        }
    }

    /// Lets the heads of a kind that wait for one gate, and come before an order if one is given,
    /// wait for another gate. Says how many they are.
    pub(crate) fn move_alike(
        &mut self,
        kind: KindNumber,
        from: Gate,
        to: Gate,
        before: Option<u64>,
    ) -> u64 {
        let all = (from, kind, 0)..(from, kind, before.unwrap_or(u64::MAX));
        let begins = self.index.kinds.begins.range(all);
        let begins: Vec<u64> = begins.map(|(_, _, begin)| *begin).collect();
        let mut moved = 0;
        for begin in begins {
            self.index.visited += 1;
            let after = self.stretch_after(kind, begin);
            let rest = before.and_then(|before| self.index.kinds.first_from(kind, before));
            let rest = rest.filter(|it| after.is_none_or(|(end, _)| *it < end));
            let end = rest.or(after.map(|(end, _)| end));
            moved += self.index.kinds.count(kind, begin, end);
            match (rest, after) {
                (Some(rest), _) => self.set_stretch(kind, rest, from),
                (None, Some((end, gate))) if gate == to => self.drop_stretch(kind, end),
                _ => {}
            }
            self.drop_stretch(kind, begin);
            if self.stretch_of(kind, begin).is_none_or(|it| it.1 != to) {
                self.set_stretch(kind, begin, to);
            }
        }
        moved
    }

    /// Registers the first of a kind that waits for a gate in the place of all that do.
    pub(crate) fn enlist(&mut self, kind: KindNumber, gate: Gate) {
        let first = self.index.kinds.first_at(kind, gate);
        self.enlist_as(kind, gate, first);
    }

    /// Registers nobody of a kind at a gate.
    pub(crate) fn delist(&mut self, kind: KindNumber, gate: Gate) {
        self.enlist_as(kind, gate, None);
    }

    fn enlist_as(&mut self, number: KindNumber, gate: Gate, first: Option<u64>) {
        let job = |order: u64| self.jobs.get(&job_of(order));
        let first = first.and_then(|order| Some((order, job(order)?.pool?)));
        let before = self.index.kinds.enlisted.get(&(number, gate)).copied();
        if first == before {
            return;
        }
        let Some(kind) = self.index.kinds.get(number) else {
            return;
        };
        let interned = Arc::clone(&kind.likeness.interned);
        if let Some(waiter) = before {
            self.index.kinds.enlisted.remove(&(number, gate));
            self.post(false, gate, waiter, &interned);
        }
        if let Some(waiter) = first {
            self.index.kinds.enlisted.insert((number, gate), waiter);
            self.post(true, gate, waiter, &interned);
        }
    }

    /// The head of a pool waits alone if a gate of its own is shut.
    pub(crate) fn recheck_own_gates(&mut self, pool: ScopeNumber) {
        let head = self.scopes.get(&pool).and_then(|scope| scope.head);
        let Some(head) = head.filter(|head| matches!(head.waits, Waits::InKind(_))) else {
            return;
        };
        let Some(job) = self.jobs.get(&head.job) else {
            return;
        };
        let interned = self.interned(job);
        if self
            .look_at_own_gates(pool, &interned.rules, self.now())
            .is_err()
        {
            self.part(pool);
        }
    }

    /// Heads whose event is gone wait alone.
    pub(crate) fn part_with_event(&mut self, event: &str) {
        while let Some(pool) = self
            .index
            .kinds
            .of_events
            .get(event)
            .and_then(|pools| pools.first().copied())
        {
            self.part(pool);
        }
    }

    /// Lets the head of a pool wait alone, for the gate that it waits for.
    fn part(&mut self, pool: ScopeNumber) {
        let head = self.scopes.get(&pool).and_then(|scope| scope.head);
        let Some(head) = head else { return };
        let Waits::InKind(kind) = head.waits else {
            return;
        };
        let Some(job) = self.jobs.get(&head.job) else {
            return;
        };
        let order = order_of(head.job, job);
        let interned = self.interned(job);
        let gate = self.leave_kind(kind, pool, order, &interned);
        let waits = Waits::Alone(gate.unwrap_or(Gate::Due));
        let head = Head { waits, ..head };
        self.scopes.change(&pool, |scope| scope.head = Some(head));
        self.register(pool, head, true);
    }
}
