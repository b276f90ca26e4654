//! A table: ordered rows that can be walked while they change, and that keep their own digest.
//!
//! Every row of the pool's state lies in a table. A snapshot must show all tables as they were at
//! one entry, without stopping those that come after it. So a walk copies nothing at its
//! beginning; while it is under way, a row that it has not reached yet is kept as it was, once,
//! before its first change. The walk then takes the kept rows instead of the live ones. Memory
//! grows with what changed during the walk, never with what there is.
//!
//! Rows are boxed where they are large: a `BTreeMap` that grows at its end leaves its nodes half
//! empty.
//!
//! Caveat: one walk at a time.

use crate::digest::hash_of;
use crate::steps::{count, descend};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Bound, RangeBounds};
use serde::Serialize;

#[derive(Debug)]
pub(crate) struct Table<K, V> {
    rows: BTreeMap<K, Slot<V>>,
    digest: u64,
    /// Keys of rows that changed since the digest was brought up to date.
    changed: Vec<K>,
    walk: Option<Walk<K, V>>,
}

/// A row and its part in the digest; [`UNHASHED`] after a change.
#[derive(Debug)]
struct Slot<V> {
    row: V,
    hash: u64,
}

/// Stands for the hash of a row that changed; no row is given it.
const UNHASHED: u64 = 0;

#[derive(Debug)]
struct Walk<K, V> {
    /// The last key that was passed.
    reached: Option<K>,
    /// The last key of all when the walk began: what comes after it is none of the walk's.
    last: K,
    /// Rows between the two as they were when the walk began; `None`: absent then.
    before: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table {
            rows: BTreeMap::new(),
            digest: 0,
            changed: Vec::new(),
            walk: None,
        }
    }
}

impl<K: Ord + Clone + Serialize, V: Clone + Serialize> Table<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        descend(self.rows.len());
        self.rows.get(key).map(|slot| &slot.row)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        descend(self.rows.len());
        self.rows.iter().map(|(key, slot)| {
            count(1);
            (key, &slot.row)
        })
    }

    pub(crate) fn range(
        &self,
        keys: impl RangeBounds<K>,
    ) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        descend(self.rows.len());
        self.rows.range(keys).map(|(key, slot)| {
            count(1);
            (key, &slot.row)
        })
    }

    /// The wrapping sum of the rows' hashes, as of the last [`Table::seal`].
    pub(crate) fn digest(&self) -> u64 {
        debug_assert!(
            self.changed.is_empty(),
            "the digest is asked for in mid-entry"
        );
        self.digest
    }

    /// Brings the digest up to date: each row that changed is hashed once, however often it did.
    pub(crate) fn seal(&mut self) {
        for key in self.changed.drain(..) {
            descend(self.rows.len());
            let Some(slot) = self.rows.get_mut(&key) else {
                continue;
            };
            if slot.hash == UNHASHED {
                slot.hash = hash_of(&(&key, &slot.row)).max(UNHASHED + 1);
                self.digest = self.digest.wrapping_add(slot.hash);
            }
        }
    }

    pub(crate) fn insert(&mut self, key: K, row: V) {
        descend(self.rows.len());
        self.keep_before(&key);
        self.changed.push(key.clone());
        let slot = Slot {
            row,
            hash: UNHASHED,
        };
        if let Some(old) = self.rows.insert(key, slot) {
            self.digest = self.digest.wrapping_sub(old.hash);
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        descend(self.rows.len());
        self.keep_before(key);
        let old = self.rows.remove(key)?;
        self.digest = self.digest.wrapping_sub(old.hash);
        Some(old.row)
    }

    /// Changes a row in place and gives what the change gives; `None` where there is no such row.
    pub(crate) fn change<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        descend(self.rows.len());
        self.keep_before(key);
        let slot = self.rows.get_mut(key)?;
        if slot.hash != UNHASHED {
            self.digest = self.digest.wrapping_sub(slot.hash);
            slot.hash = UNHASHED;
            self.changed.push(key.clone());
        }
        Some(change(&mut slot.row))
    }

    fn keep_before(&mut self, key: &K) {
        let Some(walk) = &mut self.walk else { return };
        let ahead = walk.reached.as_ref().is_none_or(|reached| key > reached) && *key <= walk.last;
        if ahead && !walk.before.contains_key(key) {
            descend(walk.before.len());
            let row = self.rows.get(key).map(|slot| slot.row.clone());
            walk.before.insert(key.clone(), row);
        }
    }

    /// Begins a walk of the rows as they are now.
    pub(crate) fn begin_walk(&mut self) {
        self.walk = self.rows.last_key_value().map(|(last, _)| Walk {
            reached: None,
            last: last.clone(),
            before: BTreeMap::new(),
        });
    }

    /// Passes up to `rows_max` further rows of the walk, in the order of their keys: hands out
    /// those that were there when it began. Says how many it passed; fewer than `rows_max`: the
    /// walk is over.
    pub(crate) fn walk(&mut self, rows_max: usize, mut hand_out: impl FnMut(&K, &V)) -> usize {
        let Some(walk) = &mut self.walk else { return 0 };
        let mut passed = 0;
        while passed < rows_max {
            let from = match &walk.reached {
                Some(reached) if *reached >= walk.last => break,
                Some(reached) => Bound::Excluded(reached.clone()),
                None => Bound::Unbounded,
            };
            // A run of live rows up to the next kept one, then the kept one.
            let kept = walk.before.pop_first();
            let until = match &kept {
                Some((key, _)) => Bound::Excluded(key),
                None => Bound::Included(&walk.last),
            };
            let live = self.rows.range((from.as_ref(), until));
            for (key, slot) in live.take(rows_max - passed) {
                hand_out(key, &slot.row);
                passed += 1;
                walk.reached = Some(key.clone());
            }
            let Some((key, before)) = kept else { break };
            if passed == rows_max {
                walk.before.insert(key, before);
                break;
            }
            if let Some(row) = &before {
                hand_out(&key, row);
            }
            passed += 1;
            walk.reached = Some(key);
        }
        if passed < rows_max {
            self.walk = None;
        }
        passed
    }

    /// Gives up the walk under way, if any.
    pub(crate) fn end_walk(&mut self) {
        self.walk = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: &mut Table<u32, u32>, rows_max: usize) -> Vec<(u32, u32)> {
        let mut seen = Vec::new();
        table.walk(rows_max, |key, row| seen.push((*key, *row)));
        seen
    }

    #[test]
    fn a_walk_shows_the_rows_as_they_were_when_it_began() {
        let mut table = Table::default();
        for key in [1, 3, 5, 7] {
            table.insert(key, key * 10);
        }
        table.begin_walk();
        assert_eq!(rows(&mut table, 1), [(1, 10)]);
        table.change(&1, |row| *row = 11);
        table.change(&5, |row| *row = 51);
        table.change(&5, |row| *row = 52);
        table.insert(2, 20);
        table.insert(9, 90);
        table.remove(&7);
        table.insert(7, 71);
        // The row that was not there when the walk began is passed in silence.
        assert_eq!(rows(&mut table, 3), [(3, 30), (5, 50)]);
        table.remove(&3);
        assert_eq!(rows(&mut table, 9), [(7, 70)]);
        assert_eq!(rows(&mut table, 9), []);
        assert_eq!(
            table.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
            [1, 2, 5, 7, 9]
        );
    }

    #[test]
    fn a_walk_keeps_nothing_of_what_it_has_passed() {
        let mut table: Table<u32, u32> = Table::default();
        (0..100).for_each(|key| table.insert(key, 0));
        table.begin_walk();
        assert_eq!(rows(&mut table, 50).len(), 50);
        (0..50).for_each(|key| table.insert(key, 1));
        assert!(
            table
                .walk
                .as_ref()
                .is_some_and(|walk| walk.before.is_empty())
        );
        assert_eq!(rows(&mut table, 60).len(), 50);
        assert!(table.walk.is_none());
    }

    #[test]
    fn a_walk_passes_no_more_at_a_time_whatever_came_meanwhile() {
        let mut table: Table<u32, u32> = Table::default();
        table.insert(0, 0);
        table.insert(10_000, 1);
        table.begin_walk();
        (1..20_000).for_each(|key| table.insert(key, 2));
        let kept = table.walk.as_ref().map_or(0, |walk| walk.before.len());
        assert_eq!(kept, 10_000, "what comes after the last row is not kept");
        let (mut seen, mut steps) = (Vec::new(), 0);
        while table.walk(100, |key, row| seen.push((*key, *row))) == 100 {
            steps += 1;
        }
        assert_eq!(seen, [(0, 0), (10_000, 1)]);
        assert_eq!(steps, 100);
    }

    #[test]
    fn the_digest_is_that_of_the_rows_however_they_came_about() {
        let mut one: Table<u32, u32> = Table::default();
        let mut two: Table<u32, u32> = Table::default();
        for key in 0..50 {
            one.insert(key, key);
            two.insert(49 - key, 0);
        }
        for key in 0..50 {
            two.change(&key, |row| *row = key);
        }
        two.insert(99, 1);
        one.seal();
        two.seal();
        assert_ne!(one.digest(), two.digest());
        two.change(&7, |row| *row = 8);
        two.remove(&99);
        two.insert(7, 7);
        two.seal();
        assert_eq!(one.digest(), two.digest());
    }
}
