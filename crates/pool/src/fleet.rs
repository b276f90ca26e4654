//! Which server: the index from targets to servers with room, and from servers to heads that wait
//! for them (S18, S20).
//!
//! A target is the id of a server or the name of a group; the empty word stands for every server.
//! Under each target, servers with room are ordered by a class of their room (its binary
//! logarithm), then by their jobs, then by id; for the id stands a [`Label`], so that numbers are
//! compared and not words. The least loaded server with room for a weight is
//! the least of the first ones of each higher class, and of those in the weight's own class that
//! have room. Heads that wait for a server stand under each of their targets by weight, then by
//! order; of heads of a kind only the first is here (see `kinds`).
//!
//! Caveats: within a weight's own class servers with too little room are passed over one by one.
//! `round_robin` passes over full servers one by one, and `random` counts the eligible ones.

use crate::command::Algo;
use crate::job::{ScopeNumber, ServerNumber};
use crate::server::Server;
use crate::sorted::{SortedMap, SortedSet};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

/// The target that every server answers to.
const EVERY: &str = "";

/// Stands for an id: labels of servers have the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Label(u64);

/// The label of the first server; others are given out to both sides of it.
const LABEL_FIRST: u64 = 1 << 63;
/// How far the label of a new first or last server is from its neighbour's: room for those that
/// come between, and for every server that there may be on either side.
const LABEL_STEP: u64 = 1 << 44;

/// A server with room under one target: its class, its jobs, its label.
type Place = (u32, u32, Label);

#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// Every server by its id.
    numbers: SortedMap<Arc<str>, (ServerNumber, Label)>,
    labels: SortedMap<Label, ServerNumber>,
    /// Every server under each of its groups.
    in_group: SortedSet<(Box<str>, ServerNumber)>,
    /// Where each server with room stands.
    placed: SortedMap<ServerNumber, Placed>,
    /// Servers with room, under each group and under [`EVERY`].
    groups: SortedMap<Arc<str>, Group>,
    /// Heads that wait for a server: by target, then weight and order.
    waiting: SortedMap<Box<str>, SortedSet<(u32, u64, ScopeNumber)>>,
}

#[derive(Debug, Default)]
struct Group {
    by_load: SortedSet<Place>,
    /// With the room that each has.
    by_id: SortedMap<Label, u32>,
}

#[derive(Debug)]
struct Placed {
    label: Label,
    class: u32,
    jobs: u32,
    room: u32,
    groups: Vec<Arc<str>>,
}

/// What a job asks of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) targets: &'a [Box<str>],
    pub(crate) weight: u32,
    pub(crate) algo: Algo,
    /// The last pick of the event, for `round_robin`.
    pub(crate) last_pick: Option<&'a str>,
    /// The place of the start in the log, for `random`.
    pub(crate) place: u64,
}

impl Fleet {
    pub(crate) fn number(&self, id: &str) -> Option<ServerNumber> {
        self.numbers.get(id).map(|(number, _)| *number)
    }

    /// Servers by id, after one.
    pub(crate) fn after(&self, id: &str) -> impl Iterator<Item = ServerNumber> {
        let after = (Excluded(id), Unbounded);
        self.numbers
            .range::<str, _>(after)
            .map(|(_, (number, _))| *number)
    }

    /// Puts a server under the groups of its definition, and takes it off those of an older one.
    pub(crate) fn define(&mut self, number: ServerNumber, old: &[Box<str>], new: &[Box<str>]) {
        for group in old {
            self.in_group.remove(&(group.clone(), number));
        }
        self.in_group
            .extend(new.iter().map(|group| (group.clone(), number)));
    }

    /// Every server that targets name, with room or without.
    pub(crate) fn targeted<'a>(
        &'a self,
        targets: &'a [Box<str>],
    ) -> impl Iterator<Item = ServerNumber> + 'a {
        let every = targets.is_empty().then(|| self.numbers.values());
        let every = every.into_iter().flatten().map(|(number, _)| *number);
        let named = targets.iter().flat_map(|target| {
            let first = (target.clone(), ServerNumber(0));
            let last = (target.clone(), ServerNumber(u32::MAX));
            let members = self.in_group.range(first..=last).map(|(_, number)| *number);
            self.number(target).into_iter().chain(members)
        });
        every.chain(named)
    }

    /// Puts a server where its row says that it stands; none: it is gone.
    pub(crate) fn place(&mut self, id: &str, number: ServerNumber, server: Option<&Server>) {
        if server.is_some_and(|server| self.move_within_groups(number, server)) {
            return;
        }
        if let Some(old) = self.placed.remove(&number) {
            for name in &old.groups {
                self.leave(name, &old);
            }
        }
        let Some(server) = server else {
            if let Some((_, label)) = self.numbers.remove(id) {
                self.labels.remove(&label);
            }
            return;
        };
        let label = match self.numbers.get(id) {
            Some((_, label)) => *label,
            None => self.introduce(id, number),
        };
        let room = server.room();
        if room == 0 {
            return;
        }
        let named = server.definition.groups.iter().map(|group| &**group);
        let groups: Vec<Arc<str>> = core::iter::once(EVERY)
            .chain(named)
            .map(|name| self.group_name(name))
            .collect();
        let placed = Placed {
            label,
            class: room.ilog2(),
            jobs: server.jobs,
            room,
            groups,
        };
        self.enter(&placed);
        self.placed.insert(number, placed);
    }

    /// Gives a new server its label.
    fn introduce(&mut self, id: &str, number: ServerNumber) -> Label {
        let label = match self.free_label(id) {
            Some(label) => label,
            None => {
                self.label_anew();
                self.free_label(id).unwrap_or(Label(LABEL_FIRST))
            }
        };
        self.numbers.insert(Arc::from(id), (number, label));
        self.labels.insert(label, number);
        label
    }

    /// A label between those of the neighbours of an id, if there is one left.
    fn free_label(&self, id: &str) -> Option<Label> {
        let label = |(_, (_, label)): (&Arc<str>, &(ServerNumber, Label))| label.0;
        let until = (Unbounded, Excluded(id));
        let before = self.numbers.range::<str, _>(until).next_back().map(label);
        let from = (Excluded(id), Unbounded);
        let after = self.numbers.range::<str, _>(from).next().map(label);
        let free = match (before, after) {
            (None, None) => LABEL_FIRST,
            (Some(before), None) => before.checked_add(LABEL_STEP)?,
            (None, Some(after)) => after.checked_sub(LABEL_STEP)?,
            (Some(before), Some(after)) => before + (after - before) / 2,
        };
        Some(Label(free)).filter(|free| before != Some(free.0))
    }

    /// Gives all servers new labels, far enough from each other. That is rare: the room between
    /// two of them is halved forty times before it is used up.
    fn label_anew(&mut self) {
        let mut placed = core::mem::take(&mut self.placed);
        (self.groups, self.labels) = (SortedMap::default(), SortedMap::default());
        let mut numbers = core::mem::take(&mut self.numbers);
        let count = numbers.values().count() as u64;
        let mut next = LABEL_FIRST - count / 2 * LABEL_STEP;
        for (number, label) in numbers.values_mut() {
            *label = Label(next);
            next += LABEL_STEP;
            self.labels.insert(*label, *number);
            if let Some(mut placed) = placed.remove(number) {
                placed.label = *label;
                self.enter(&placed);
                self.placed.insert(*number, placed);
            }
        }
        self.numbers = numbers;
    }

    /// Puts a server with room under its groups.
    fn enter(&mut self, placed: &Placed) {
        for name in &placed.groups {
            let group = self.groups.entry(Arc::clone(name)).or_default();
            group
                .by_load
                .insert((placed.class, placed.jobs, placed.label));
            group.by_id.insert(placed.label, placed.room);
        }
    }

    /// The usual case: a server that took or lost a job stays in its groups, at another place.
    /// False where it is not this case.
    fn move_within_groups(&mut self, number: ServerNumber, server: &Server) -> bool {
        let room = server.room();
        let Some(placed) = self.placed.get_mut(&number).filter(|_| room > 0) else {
            return false;
        };
        let same = placed.groups.iter().skip(1).map(|name| &**name);
        if !same.eq(server.definition.groups.iter().map(|name| &**name)) {
            return false;
        }
        let class = room.ilog2();
        for name in &placed.groups {
            let Some(group) = self.groups.get_mut(name) else {
                continue;
            };
            group
                .by_load
                .remove(&(placed.class, placed.jobs, placed.label));
            group.by_load.insert((class, server.jobs, placed.label));
            if placed.room != room
                && let Some(known) = group.by_id.get_mut(&placed.label)
            {
                *known = room;
            }
        }
        (placed.class, placed.jobs, placed.room) = (class, server.jobs, room);
        true
    }

    fn group_name(&self, name: &str) -> Arc<str> {
        self.groups
            .get_key_value(name)
            .map_or_else(|| Arc::from(name), |(it, _)| Arc::clone(it))
    }

    fn leave(&mut self, name: &Arc<str>, old: &Placed) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        group.by_load.remove(&(old.class, old.jobs, old.label));
        group.by_id.remove(&old.label);
        if group.by_id.is_empty() {
            self.groups.remove(name);
        }
    }

    /// The groups and single servers that targets name, as far as they have room for something.
    fn named<'a>(&'a self, targets: &'a [Box<str>]) -> impl Iterator<Item = Named<'a>> {
        let every = targets.is_empty().then(|| self.groups.get(EVERY)).flatten();
        let groups = targets.iter().filter_map(|name| self.groups.get(&**name));
        let single = targets
            .iter()
            .filter_map(|name| self.placed.get(&self.number(name)?));
        every
            .into_iter()
            .chain(groups)
            .map(Named::Group)
            .chain(single.map(Named::Single))
    }

    /// The server that takes a job, if any has room for it (S18).
    pub(crate) fn pick(&self, wanted: &Wanted<'_>) -> Option<ServerNumber> {
        let named = self.named(wanted.targets);
        let weight = wanted.weight;
        let label = match wanted.algo {
            Algo::FewestJobs => named.filter_map(|it| it.least_loaded(weight)).min()?.1,
            Algo::PreferFirst => named.filter_map(|it| it.first_from(None, weight)).min()?,
            Algo::PreferLast => named.filter_map(|it| it.last(weight)).max()?,
            Algo::RoundRobin => {
                let next = wanted.last_pick.and_then(|last| {
                    let from = self.label_after(last)?;
                    let eligible = self.named(wanted.targets);
                    eligible
                        .filter_map(|it| it.first_from(Some(from), weight))
                        .min()
                });
                match next {
                    Some(next) => next,
                    None => named.filter_map(|it| it.first_from(None, weight)).min()?,
                }
            }
            Algo::Random => {
                let eligible = named.flat_map(|it| it.eligible_from(None, weight));
                let eligible: BTreeSet<Label> = eligible.collect();
                let count = eligible.len() as u64;
                let chosen = wanted.place.checked_rem(count)?;
                eligible.into_iter().nth(usize::try_from(chosen).ok()?)?
            }
        };
        self.labels.get(&label).copied()
    }

    /// The label of the first server after an id.
    fn label_after(&self, id: &str) -> Option<Label> {
        let after = (Excluded(id), Unbounded);
        let next = self.numbers.range::<str, _>(after).next();
        next.map(|(_, (_, label))| *label)
    }

    /// Registers a head under each of its targets, or takes it off again.
    pub(crate) fn register(
        &mut self,
        waits: bool,
        targets: &[Box<str>],
        head: (u32, u64, ScopeNumber),
    ) {
        let every: Box<str> = EVERY.into();
        let targets = if targets.is_empty() {
            core::slice::from_ref(&every)
        } else {
            targets
        };
        for target in targets {
            if waits {
                self.waiting.entry(target.clone()).or_default().insert(head);
            } else if let Some(heads) = self.waiting.get_mut(target) {
                heads.remove(&head);
                if heads.is_empty() {
                    self.waiting.remove(target);
                }
            }
        }
    }

    /// The first head, by order, that waits for a server and that this one has room for.
    pub(crate) fn best_fit(&self, server: &Server) -> Option<(u64, ScopeNumber)> {
        let room = server.room();
        if room == 0 || self.waiting.is_empty() {
            return None;
        }
        let own = [EVERY, &server.definition.id];
        let groups = server.definition.groups.iter().map(|group| &**group);
        own.into_iter()
            .chain(groups)
            .filter_map(|target| best_within(self.waiting.get(target)?, room))
            .min()
    }
}

/// The first by order among heads of at most this weight: the least of each weight's first.
fn best_within(
    heads: &SortedSet<(u32, u64, ScopeNumber)>,
    room: u32,
) -> Option<(u64, ScopeNumber)> {
    let mut best = None;
    let mut next = heads.first();
    while let Some((weight, order, pool)) = next.filter(|(weight, ..)| *weight <= room) {
        if best.is_none_or(|best| (*order, *pool) < best) {
            best = Some((*order, *pool));
        }
        next = heads.range((weight + 1, 0, ScopeNumber(0))..).next();
    }
    best
}

/// A group or one server, as named by a target.
enum Named<'a> {
    Group(&'a Group),
    Single(&'a Placed),
}

impl<'a> Named<'a> {
    /// The least loaded, by jobs and then by id.
    fn least_loaded(&self, weight: u32) -> Option<(u32, Label)> {
        let group = match self {
            Named::Single(server) => {
                return (server.room >= weight).then_some((server.jobs, server.label));
            }
            Named::Group(group) => group,
        };
        let own = weight.ilog2();
        let mut best: Option<(u32, Label)> = None;
        let mut next = own;
        if !weight.is_power_of_two() {
            // Of the weight's own class some have too little room.
            let fits = |label| group.by_id.get(&label).is_some_and(|room| *room >= weight);
            best = group
                .by_load
                .range((own, 0, Label(0))..(own + 1, 0, Label(0)))
                .find(|(_, _, label)| fits(*label))
                .map(|(_, jobs, label)| (*jobs, *label));
            next = own + 1;
        }
        let highest = group.by_load.last()?.0;
        while next <= highest {
            let (class, jobs, label) = group.by_load.range((next, 0, Label(0))..).next()?;
            if best.is_none_or(|best| (*jobs, *label) < best) {
                best = Some((*jobs, *label));
            }
            next = class + 1;
        }
        best
    }

    /// The first by id, from a label on if there is one.
    fn first_from(&self, from: Option<Label>, weight: u32) -> Option<Label> {
        self.eligible_from(from, weight).next()
    }

    fn last(&self, weight: u32) -> Option<Label> {
        self.eligible_from(None, weight).next_back()
    }

    fn eligible_from(
        &self,
        from: Option<Label>,
        weight: u32,
    ) -> impl DoubleEndedIterator<Item = Label> + use<'a> {
        let from = from.unwrap_or(Label(0));
        let (group, single) = match self {
            Named::Group(group) => (Some(*group), None),
            Named::Single(server) => (None, Some(*server)),
        };
        let single = single
            .filter(|server| server.room >= weight && server.label >= from)
            .map(|server| server.label);
        let members = group.map(|group| group.by_id.range(from..));
        let members = members.into_iter().flatten();
        let members = members
            .filter(move |(_, room)| **room >= weight)
            .map(|(label, _)| *label);
        members.chain(single)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn labels_keep_the_order_of_ids_when_there_is_no_room_left_between_two() {
        let mut fleet = Fleet::default();
        let mut server = Server {
            online: true,
            ..Server::default()
        };
        server.definition.enabled = true;
        server.definition.groups = Vec::from(["g".into()]);
        // Each id stands between the last one and "b", so each halves what room is left there.
        let ids = (0..300).map(|step| format!("a{step:04}"));
        for (number, id) in ["b".into()].into_iter().chain(ids).enumerate() {
            let number = ServerNumber(u32::try_from(number).unwrap_or(u32::MAX));
            fleet.place(&id, number, Some(&server));
            let labels: Vec<Label> = fleet.numbers.values().map(|(_, label)| *label).collect();
            assert!(labels.is_sorted_by(|one, two| one < two), "after {id}");
        }
        let group = fleet.groups.get("g").map(|group| group.by_load.iter());
        let found = group.into_iter().flatten().map(|(_, _, label)| label);
        assert!(found.eq(fleet.numbers.values().map(|(_, label)| label)));
        assert_eq!(fleet.labels.values().count(), 301);
    }
}
