//! Sorted sets of numbers that know the rank of each: queues, and the members of pools.
//!
//! A set is a tree whose leaves are short sorted lists and whose other nodes know how many numbers
//! lie under each of their branches. So the place of one among a million is found by looking into
//! three nodes. Numbers mostly come in order, and a node that is full when the next comes at its
//! end is left full.
//!
//! Caveat: nodes that lose numbers are not joined; each goes when it is empty. The depth is that of
//! the numbers that came, until the root is left with one branch.

use crate::steps::count;
use alloc::vec::Vec;

/// Most numbers of a leaf.
const LEAF_MAX: usize = 256;
/// Most branches of a node.
const BRANCHES_MAX: usize = 64;

/// A sorted set of numbers.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    root: Node,
    len: usize,
}

#[derive(Debug)]
enum Node {
    Leaf(Vec<u64>),
    Inner(Vec<Branch>),
}

#[derive(Debug)]
struct Branch {
    /// At most the least number under it.
    first: u64,
    /// How many numbers are under it.
    len: usize,
    node: Node,
}

/// What came of putting a number under a node.
enum Inserted {
    /// It was there.
    Known,
    Done,
    /// The node was full: this one comes after it.
    Split(Branch),
}

impl Default for Node {
    fn default() -> Self {
        Node::Leaf(Vec::new())
    }
}

/// The branch that holds a number, or would; there is at least one.
fn branch_of(branches: &[Branch], number: u64) -> usize {
    let later = branches.partition_point(|branch| branch.first <= number);
    later.saturating_sub(1)
}

impl Node {
    fn first(&self) -> Option<u64> {
        let mut node = self;
        loop {
            count(1);
            match node {
                Node::Leaf(numbers) => return numbers.first().copied(),
                Node::Inner(branches) => node = &branches.first()?.node,
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(numbers) => numbers.len(),
            Node::Inner(branches) => branches.iter().map(|branch| branch.len).sum(),
        }
    }

    fn insert(&mut self, number: u64) -> Inserted {
        count(1);
        match self {
            Node::Leaf(numbers) => insert_into_leaf(numbers, number),
            Node::Inner(branches) => insert_under(branches, number),
        }
    }

    fn remove(&mut self, number: u64) -> bool {
        count(1);
        match self {
            Node::Leaf(numbers) => {
                let place = numbers.binary_search(&number);
                place.map(|place| numbers.remove(place)).is_ok()
            }
            Node::Inner(branches) => {
                let at = branch_of(branches, number);
                let Some(branch) = branches.get_mut(at) else {
                    return false;
                };
                let removed = branch.node.remove(number);
                branch.len -= usize::from(removed);
                if branch.len == 0 {
                    branches.remove(at);
                }
                removed
            }
        }
    }
}

fn insert_into_leaf(numbers: &mut Vec<u64>, number: u64) -> Inserted {
    let Err(place) = numbers.binary_search(&number) else {
        return Inserted::Known;
    };
    if numbers.len() < LEAF_MAX {
        numbers.insert(place, number);
        return Inserted::Done;
    }
    let mut rest = Vec::new();
    if place == numbers.len() {
        // The usual case: a set that grows at its end leaves full leaves behind.
        rest.push(number);
    } else {
        rest = numbers.split_off(LEAF_MAX / 2);
        let (half, place) = match place.checked_sub(numbers.len()) {
            Some(place) => (&mut rest, place),
            None => (numbers, place),
        };
        half.insert(place, number);
    }
    Inserted::Split(Branch {
        first: rest[0],
        len: rest.len(),
        node: Node::Leaf(rest),
    })
}

fn insert_under(branches: &mut Vec<Branch>, number: u64) -> Inserted {
    let at = branch_of(branches, number);
    let Some(branch) = branches.get_mut(at) else {
        return Inserted::Known;
    };
    let split = match branch.node.insert(number) {
        Inserted::Known => return Inserted::Known,
        Inserted::Done => None,
        Inserted::Split(after) => Some(after),
    };
    branch.first = branch.first.min(number);
    branch.len += 1;
    let Some(after) = split else {
        return Inserted::Done;
    };
    branch.len -= after.len;
    branches.insert(at + 1, after);
    if branches.len() <= BRANCHES_MAX {
        return Inserted::Done;
    }
    let grew_at_end = at + 2 == branches.len();
    let kept = if grew_at_end {
        BRANCHES_MAX
    } else {
        BRANCHES_MAX / 2
    };
    let rest = branches.split_off(kept);
    let first = rest[0].first;
    let node = Node::Inner(rest);
    Inserted::Split(Branch {
        first,
        len: node.len(),
        node,
    })
}

impl Ranked {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The least number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.root.first()
    }

    /// The first of this number and later ones.
    pub(crate) fn first_from(&self, number: u64) -> Option<u64> {
        let mut node = &self.root;
        // What comes after it, where the leaf that would hold it has only lesser ones.
        let mut next = None;
        loop {
            count(1);
            match node {
                Node::Leaf(numbers) => {
                    let place = numbers.partition_point(|it| *it < number);
                    let after = || next.and_then(Node::first);
                    return numbers.get(place).copied().or_else(after);
                }
                Node::Inner(branches) => {
                    let at = branch_of(branches, number);
                    next = branches.get(at + 1).map(|branch| &branch.node).or(next);
                    node = &branches.get(at)?.node;
                }
            }
        }
    }

    /// The numbers in their order.
    pub(crate) fn iter(&self) -> Iter<'_> {
        let mut iter = Iter::default();
        iter.enter(&self.root);
        iter
    }

    /// False where it was there already.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        match self.root.insert(number) {
            Inserted::Known => return false,
            Inserted::Done => {}
            Inserted::Split(after) => {
                let before = core::mem::take(&mut self.root);
                let before = Branch {
                    first: 0,
                    len: before.len(),
                    node: before,
                };
                self.root = Node::Inner(Vec::from([before, after]));
            }
        }
        self.len += 1;
        true
    }

    /// False where it was not there.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let removed = self.root.remove(number);
        self.len -= usize::from(removed);
        while let Node::Inner(branches) = &mut self.root
            && branches.len() <= 1
        {
            self.root = branches.pop().map(|only| only.node).unwrap_or_default();
        }
        removed
    }

    /// How many come before a number.
    pub(crate) fn rank(&self, number: u64) -> usize {
        let (mut node, mut before) = (&self.root, 0);
        loop {
            count(1);
            match node {
                Node::Leaf(numbers) => {
                    return before + numbers.partition_point(|it| *it < number);
                }
                Node::Inner(branches) => {
                    let at = branch_of(branches, number);
                    before += branches.iter().take(at).map(|it| it.len).sum::<usize>();
                    let Some(branch) = branches.get(at) else {
                        return before;
                    };
                    node = &branch.node;
                }
            }
        }
    }
}

/// The numbers of a set in their order.
#[derive(Debug, Default)]
pub(crate) struct Iter<'a> {
    leaf: core::slice::Iter<'a, u64>,
    /// What is left of the nodes above the leaf, the root's first.
    above: Vec<core::slice::Iter<'a, Branch>>,
}

impl<'a> Iter<'a> {
    fn enter(&mut self, node: &'a Node) {
        count(1);
        match node {
            Node::Leaf(numbers) => self.leaf = numbers.iter(),
            Node::Inner(branches) => self.above.push(branches.iter()),
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            if let Some(number) = self.leaf.next() {
                count(1);
                return Some(*number);
            }
            match self.above.last_mut()?.next() {
                Some(branch) => self.enter(&branch.node),
                None => {
                    self.above.pop();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_rank_through_any_insertion() {
        let mut set = Ranked::default();
        let count = 50_000_u64;
        // A permutation: 19,991 has no factor in common with 50,000.
        for step in 0..count {
            set.insert(step * 19_991 % count);
        }
        set.insert(7);
        assert_eq!(set.len(), 50_000);
        assert!(set.iter().eq(0..count));
        assert!((0..count).all(|number| set.rank(number) as u64 == number));
        (0..count)
            .filter(|number| number % 3 != 0)
            .for_each(|number| {
                set.remove(number);
            });
        set.remove(1);
        assert!(set.iter().eq((0..count).filter(|number| number % 3 == 0)));
        assert_eq!(set.rank(30_000), 10_000);
        for number in 0..count {
            let next = number.div_ceil(3) * 3;
            let expected = Some(next).filter(|next| *next < count);
            assert_eq!(set.first_from(number), expected, "from {number}");
        }
        assert_eq!(set.rank(u64::MAX), set.len());
        assert_eq!(set.first(), Some(0));
        (0..count).rev().for_each(|number| {
            set.remove(number);
        });
        assert!(set.is_empty() && set.iter().next().is_none());
        assert!(
            matches!(&set.root, Node::Leaf(_)),
            "an empty set is shallow"
        );
    }

    #[test]
    fn numbers_that_come_in_order_fill_their_nodes() {
        let mut set = Ranked::default();
        (0..200_000).for_each(|number| {
            set.insert(number);
        });
        let (mut node, mut depth) = (&set.root, 1);
        while let Node::Inner(branches) = node {
            assert_eq!(branches[0].len % LEAF_MAX, 0, "the first is full");
            (node, depth) = (&branches[0].node, depth + 1);
        }
        assert_eq!(depth, 3);
        // A queue: first in, first out.
        for number in 0..200_000 {
            assert_eq!(set.first(), Some(number));
            set.remove(number);
        }
        assert_eq!(set.first(), None);
    }
}
