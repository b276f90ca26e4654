//! Jobs by their ids.
//!
//! Ids come in no order and are looked up with nearly every command, so they lie in a hash table:
//! one place in memory to look at, however many jobs there are. It is parted by the first bits of
//! the hash, so that a part which grows moves a few thousand entries, not millions, within one
//! command.
//!
//! Caveats: the parts are never gone through, for their order is none of the rules'. The hash is
//! the digest's, which is no defence against somebody who looks for ids that collide; whoever may
//! launch jobs is trusted with that.

use crate::job::JobNumber;
use crate::steps::count;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Parts of the table: each holds a few thousand ids where there are a million.
const PARTS: usize = 256;

#[derive(Debug)]
pub(crate) struct JobIds {
    /// Hashes of ids with the jobs that they belong to.
    parts: Vec<HashTable<(u64, JobNumber)>>,
}

impl Default for JobIds {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| HashTable::new()).collect();
        JobIds { parts }
    }
}

/// The middle bits: the table itself goes by the first and by the last ones.
fn part_of(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}

impl JobIds {
    /// The job of this hash for which `is_it` says so.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(JobNumber) -> bool) -> Option<JobNumber> {
        let same = |known: &(u64, JobNumber)| {
            count(1);
            known.0 == hash && is_it(known.1)
        };
        count(1);
        let part = self.parts.get(part_of(hash))?;
        part.find(hash, same).map(|(_, number)| *number)
    }

    pub(crate) fn insert(&mut self, hash: u64, number: JobNumber) {
        count(1);
        if let Some(part) = self.parts.get_mut(part_of(hash)) {
            part.insert_unique(hash, (hash, number), |(hash, _)| *hash);
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, number: JobNumber) {
        count(1);
        let found = self
            .parts
            .get_mut(part_of(hash))
            .and_then(|part| part.find_entry(hash, |known| *known == (hash, number)).ok());
        if let Some(found) = found {
            found.remove();
        }
    }
}
