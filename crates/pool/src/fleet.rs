//! Which server: the index from targets to servers with room, and from servers to heads that wait
//! for them (S18, S20).
//!
//! A target is the id of a server or the name of a group; the empty word stands for every server.
//! Under each target, servers with room are ordered by a class of their room (its binary
//! logarithm), then by their jobs, then by id. The least loaded server with room for a weight is
//! the least of the first ones of each higher class, and of those in the weight's own class that
//! have room. Heads that wait for a server stand under each of their targets by weight, then by
//! order.
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

/// The target that every server answers to.
const EVERY: &str = "";

/// A server with room under one target: its class, its jobs, its id.
type Place = (u32, u32, Arc<str>);

#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// Every server by its id.
    numbers: SortedMap<Arc<str>, ServerNumber>,
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
    by_id: SortedMap<Arc<str>, u32>,
}

#[derive(Debug)]
struct Placed {
    id: Arc<str>,
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
        self.numbers.get(id).copied()
    }

    /// Servers by id, after one.
    pub(crate) fn after(&self, id: &str) -> impl Iterator<Item = ServerNumber> {
        let after = (core::ops::Bound::Excluded(id), core::ops::Bound::Unbounded);
        self.numbers
            .range::<str, _>(after)
            .map(|(_, number)| *number)
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
        let every = targets.is_empty().then(|| self.numbers.values().copied());
        let named = targets.iter().flat_map(|target| {
            let first = (target.clone(), ServerNumber(0));
            let last = (target.clone(), ServerNumber(u32::MAX));
            let members = self.in_group.range(first..=last).map(|(_, number)| *number);
            self.numbers
                .get(&**target)
                .copied()
                .into_iter()
                .chain(members)
        });
        every.into_iter().flatten().chain(named)
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
            self.numbers.remove(id);
            return;
        };
        let id: Arc<str> = match self.numbers.get_key_value(id) {
            Some((id, _)) => Arc::clone(id),
            None => {
                let id: Arc<str> = Arc::from(id);
                self.numbers.insert(Arc::clone(&id), number);
                id
            }
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
            id,
            class: room.ilog2(),
            jobs: server.jobs,
            room,
            groups,
        };
        for name in &placed.groups {
            let group = self.groups.entry(Arc::clone(name)).or_default();
            group
                .by_load
                .insert((placed.class, placed.jobs, Arc::clone(&placed.id)));
            group.by_id.insert(Arc::clone(&placed.id), room);
        }
        self.placed.insert(number, placed);
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
            let mut place = (placed.class, placed.jobs, Arc::clone(&placed.id));
            group.by_load.remove(&place);
            (place.0, place.1) = (class, server.jobs);
            group.by_load.insert(place);
            if placed.room != room
                && let Some(known) = group.by_id.get_mut(&placed.id)
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
        group
            .by_load
            .remove(&(old.class, old.jobs, Arc::clone(&old.id)));
        group.by_id.remove(&old.id);
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
            .filter_map(|name| self.placed.get(self.numbers.get(&**name)?));
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
        let id = match wanted.algo {
            Algo::FewestJobs => named.filter_map(|it| it.least_loaded(weight)).min()?.1,
            Algo::PreferFirst => named.filter_map(|it| it.first_after(None, weight)).min()?,
            Algo::PreferLast => named.filter_map(|it| it.last(weight)).max()?,
            Algo::RoundRobin => {
                let next = named
                    .filter_map(|it| it.first_after(wanted.last_pick, weight))
                    .min();
                let named = self.named(wanted.targets);
                next.or_else(|| named.filter_map(|it| it.first_after(None, weight)).min())?
            }
            Algo::Random => {
                let eligible: BTreeSet<&str> = named.flat_map(|it| it.eligible(weight)).collect();
                let count = eligible.len() as u64;
                let chosen = wanted.place.checked_rem(count)?;
                eligible.into_iter().nth(usize::try_from(chosen).ok()?)?
            }
        };
        self.number(id)
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
    fn least_loaded(&self, weight: u32) -> Option<(u32, &'a str)> {
        let group = match self {
            Named::Single(server) => {
                return (server.room >= weight).then_some((server.jobs, &*server.id));
            }
            Named::Group(group) => group,
        };
        let fits = |id: &Arc<str>| group.by_id.get(id).is_some_and(|room| *room >= weight);
        let empty: Arc<str> = Arc::default();
        let own = weight.ilog2();
        let class_of = |class: u32| (class, 0, Arc::clone(&empty));
        let mut best: Option<(u32, &str)> = group
            .by_load
            .range(class_of(own)..class_of(own + 1))
            .find(|(_, _, id)| fits(id))
            .map(|(_, jobs, id)| (*jobs, &**id));
        let mut next = group.by_load.range(class_of(own + 1)..).next();
        while let Some((class, jobs, id)) = next {
            if best.is_none_or(|best| (*jobs, &**id) < best) {
                best = Some((*jobs, id));
            }
            next = group.by_load.range(class_of(class + 1)..).next();
        }
        best
    }

    /// The first by id, after one if it is named.
    fn first_after(&self, after: Option<&str>, weight: u32) -> Option<&'a str> {
        self.eligible_after(after, weight).next()
    }

    fn last(&self, weight: u32) -> Option<&'a str> {
        self.eligible_after(None, weight).next_back()
    }

    fn eligible(self, weight: u32) -> impl DoubleEndedIterator<Item = &'a str> {
        self.eligible_after(None, weight)
    }

    fn eligible_after(
        &self,
        after: Option<&str>,
        weight: u32,
    ) -> impl DoubleEndedIterator<Item = &'a str> + use<'a> {
        use core::ops::Bound::{Excluded, Unbounded};
        let (group, single) = match self {
            Named::Group(group) => (Some(*group), None),
            Named::Single(server) => (None, Some(*server)),
        };
        let single = single
            .filter(|server| server.room >= weight && after.is_none_or(|id| *server.id > *id))
            .map(|server| &*server.id);
        let from = after.map_or(Unbounded, Excluded);
        let members = group.map(|group| group.by_id.range::<str, _>((from, Unbounded)));
        let members = members.into_iter().flatten();
        let members = members
            .filter(move |(_, room)| **room >= weight)
            .map(|(id, _)| &**id);
        members.chain(single)
    }
}
