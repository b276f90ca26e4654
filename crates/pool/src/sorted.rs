//! Ordered sets and maps that count what is asked of them (see [`crate::steps`]); else they are
//! the library's own.

use crate::steps::{count, descend};
use alloc::collections::{BTreeMap, BTreeSet, btree_map, btree_set};
use core::borrow::Borrow;
use core::ops::RangeBounds;

/// Rows that are counted as they are passed.
#[derive(Debug)]
pub(crate) struct Passed<I>(I);

impl<I: Iterator> Iterator for Passed<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let next = self.0.next();
        count(usize::from(next.is_some()));
        next
    }
}

impl<I: DoubleEndedIterator> DoubleEndedIterator for Passed<I> {
    fn next_back(&mut self) -> Option<I::Item> {
        let next = self.0.next_back();
        count(usize::from(next.is_some()));
        next
    }
}

/// An ordered set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SortedSet<T>(BTreeSet<T>);

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        SortedSet(BTreeSet::new())
    }
}

impl<T: Ord> SortedSet<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, value: &T) -> bool {
        descend(self.0.len());
        self.0.contains(value)
    }

    pub(crate) fn first(&self) -> Option<&T> {
        descend(self.0.len());
        self.0.first()
    }

    pub(crate) fn last(&self) -> Option<&T> {
        descend(self.0.len());
        self.0.last()
    }

    pub(crate) fn pop_first(&mut self) -> Option<T> {
        descend(self.0.len());
        self.0.pop_first()
    }

    pub(crate) fn insert(&mut self, value: T) -> bool {
        descend(self.0.len());
        self.0.insert(value)
    }

    pub(crate) fn remove(&mut self, value: &T) -> bool {
        descend(self.0.len());
        self.0.remove(value)
    }

    pub(crate) fn iter(&self) -> Passed<btree_set::Iter<'_, T>> {
        descend(self.0.len());
        Passed(self.0.iter())
    }

    pub(crate) fn range(&self, values: impl RangeBounds<T>) -> Passed<btree_set::Range<'_, T>> {
        descend(self.0.len());
        Passed(self.0.range(values))
    }
}

impl<T: Ord> Extend<T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        for value in values {
            self.insert(value);
        }
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        SortedSet(values.into_iter().inspect(|_| count(1)).collect())
    }
}

/// An ordered map.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SortedMap<K, V>(BTreeMap<K, V>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap(BTreeMap::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        descend(self.0.len());
        self.0.get(key)
    }

    pub(crate) fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        descend(self.0.len());
        self.0.get_key_value(key)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        descend(self.0.len());
        self.0.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        descend(self.0.len());
        self.0.insert(key, value)
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        descend(self.0.len());
        self.0.remove(key)
    }

    pub(crate) fn entry(&mut self, key: K) -> btree_map::Entry<'_, K, V> {
        descend(self.0.len());
        self.0.entry(key)
    }

    pub(crate) fn iter(&self) -> Passed<btree_map::Iter<'_, K, V>> {
        descend(self.0.len());
        Passed(self.0.iter())
    }

    pub(crate) fn values(&self) -> Passed<btree_map::Values<'_, K, V>> {
        descend(self.0.len());
        Passed(self.0.values())
    }

    pub(crate) fn values_mut(&mut self) -> Passed<btree_map::ValuesMut<'_, K, V>> {
        descend(self.0.len());
        Passed(self.0.values_mut())
    }

    pub(crate) fn range<Q: Ord + ?Sized, R: RangeBounds<Q>>(
        &self,
        keys: R,
    ) -> Passed<btree_map::Range<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        descend(self.0.len());
        Passed(self.0.range(keys))
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, rows: I) {
        for (key, value) in rows {
            self.insert(key, value);
        }
    }
}
