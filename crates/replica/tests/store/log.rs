//! The log against a naive model, reopened after every operation.

use super::{append, entries, entry, id, membership, open, run, save_vote};
use fermata_replica::raft::{LogEntry, LogId, Vote};
use fermata_replica::store::{LogStore, Store, log};
use openraft::storage::{LogState, RaftLogReader, RaftLogStorage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

/// What the log must be like.
#[derive(Default)]
struct Model {
    vote: Option<Vote>,
    entries: Vec<LogEntry>,
    purged: Option<LogId>,
    committed: Option<LogId>,
}

impl Model {
    fn last(&self) -> Option<LogId> {
        self.entries
            .last()
            .map(|entry| entry.log_id)
            .or(self.purged)
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |last| last.index + 1)
    }

    fn term(&self) -> u64 {
        self.last().map_or(1, |last| *last.leader_id)
    }

    fn check(&self, log: &mut LogStore) {
        assert_eq!(run(log.read_vote()).unwrap(), self.vote);
        assert_eq!(run(log.read_committed()).unwrap(), self.committed);
        let state = LogState {
            last_purged_log_id: self.purged,
            last_log_id: self.last(),
        };
        assert_eq!(run(log.get_log_state()).unwrap(), state);
        assert_eq!(entries(log), self.entries);
    }

    /// One thing that a Raft core may do now.
    fn step(&mut self, store: &mut Store, random: &mut StdRng) {
        let log = &mut store.log;
        match random.random_range(0..10) {
            0 => {
                let term = self.vote.map_or(1, |vote| vote.leader_id.term + 1);
                let vote = Vote::new(term, random.random_range(1..4));
                save_vote(log, vote);
                self.vote = Some(vote);
            }
            1 => {
                let Some(vote) = self.vote else { return };
                let vote = Vote::new_committed(vote.leader_id.term, vote.leader_id.voted_for);
                save_vote(log, vote);
                self.vote = Some(vote);
            }
            2 if !self.entries.is_empty() => {
                let first = self.entries[0].log_id.index;
                let from = self.committed.map_or(first, |id| (id.index + 1).max(first));
                let keep = random.random_range(from..=self.next_index()) - first;
                self.entries.truncate(keep as usize);
                run(log.truncate_after(self.last())).unwrap();
            }
            3 if !self.entries.is_empty() => {
                let at = random.random_range(0..self.entries.len());
                let id = self.entries[at].log_id;
                run(log.save_committed(Some(id))).unwrap();
                self.committed = self.committed.max(Some(id));
            }
            4 => {
                let Some(upto) = self.committed.filter(|&id| Some(id) > self.purged) else {
                    return;
                };
                // A log is purged only where a snapshot covers it.
                super::snapshots::start(store);
                super::snapshots::build(&mut store.machine);
                run(store.log.purge(upto)).unwrap();
                self.entries.retain(|entry| entry.log_id > upto);
                self.purged = Some(upto);
            }
            kind => {
                let term = self.term() + u64::from(random.random_bool(0.2));
                let first = self.next_index();
                let new: Vec<LogEntry> = (first..first + random.random_range(1..5))
                    .map(|index| match kind {
                        5 => membership(term, index, &[1, 2, index + 3]),
                        _ => entry(term, index),
                    })
                    .collect();
                append(log, new.clone());
                self.entries.extend(new);
            }
        }
    }
}

#[test]
fn reopened_after_every_operation_it_is_as_it_was() {
    let seed: u64 = std::env::var("FERMATA_SEED").map_or_else(
        |_| rand::random(),
        |seed| seed.parse().expect("FERMATA_SEED is a number"),
    );
    println!(
        "REPRODUCE WITH: FERMATA_SEED={seed} cargo test -p fermata-replica --test store \
         reopened_after_every_operation"
    );
    let mut random = StdRng::seed_from_u64(seed);
    let folder = TempDir::new().unwrap();
    let mut model = Model::default();
    for _ in 0..120 {
        let mut store = open(folder.path());
        model.check(&mut store.log);
        model.step(&mut store, &mut random);
        model.check(&mut store.log);
    }
}

#[test]
fn a_log_without_entries_goes_on_after_what_was_purged() {
    let folder = TempDir::new().unwrap();
    let mut log = open(folder.path()).log;
    append(&mut log, vec![entry(1, 0)]);
    run(log.purge(id(3, 100))).unwrap();
    assert_eq!(
        run(log.get_log_state()).unwrap().last_log_id,
        Some(id(3, 100))
    );
    append(&mut log, vec![entry(3, 101)]);
    assert_eq!(entries(&mut log), vec![entry(3, 101)]);
}

#[test]
fn a_committed_index_beyond_the_log_is_left_out() {
    let folder = TempDir::new().unwrap();
    let mut log = open(folder.path()).log;
    append(&mut log, vec![entry(1, 0)]);
    run(log.save_committed(Some(id(1, 7)))).unwrap();
    assert_eq!(run(log.read_committed()).unwrap(), None);
}

#[test]
fn one_read_for_a_follower_is_bounded_and_never_empty() {
    let folder = TempDir::new().unwrap();
    let mut log = open(folder.path()).log;
    let large = |index, bytes: usize| {
        use fermata_pool::command::{Claim, Command, Entry};
        let proposal = fermata_replica::raft::Proposal::new(Entry {
            claim: Claim(1),
            stamp: fermata_pool::time::Stamp::default(),
            commands: vec![Command::Cancel {
                job: "x".repeat(bytes).into(),
            }],
        })
        .unwrap();
        <LogEntry as openraft::entry::RaftEntry>::new(
            id(1, index),
            openraft::EntryPayload::Normal(proposal),
        )
    };
    let most = log::READ_BYTES_MAX as usize;
    append(
        &mut log,
        vec![
            large(0, most / 3),
            large(1, most / 3),
            large(2, most / 3),
            large(3, most + 10),
            large(4, 10),
        ],
    );
    let mut read = |from, to| -> Vec<u64> {
        run(log.limited_get_log_entries(from, to))
            .unwrap()
            .iter()
            .map(|entry| entry.log_id.index)
            .collect()
    };
    assert_eq!(read(0, 5), [0, 1], "a third would be beyond the bound");
    assert_eq!(read(2, 5), [2]);
    assert_eq!(read(3, 5), [3], "an entry beyond the bound comes alone");
    assert_eq!(read(4, 5), [4]);
    assert_eq!(read(0, 1), [0]);
}

#[test]
fn a_purge_gives_space_back_file_by_file() {
    let folder = TempDir::new().unwrap();
    let mut log = open(folder.path()).log;
    let per_entry = 64 << 10;
    let count = 3 * log::CHUNK_BYTES / per_entry;
    for index in 0..count as u64 {
        use fermata_pool::command::{Claim, Command, Entry};
        let proposal = fermata_replica::raft::Proposal::new(Entry {
            claim: Claim(1),
            stamp: fermata_pool::time::Stamp::default(),
            commands: vec![Command::Cancel {
                job: "x".repeat(per_entry).into(),
            }],
        })
        .unwrap();
        let payload = openraft::EntryPayload::Normal(proposal);
        append(
            &mut log,
            vec![<LogEntry as openraft::entry::RaftEntry>::new(
                id(1, index),
                payload,
            )],
        );
    }
    let before = log.bytes_on_disk();
    assert!(before > 3 * log::CHUNK_BYTES as u64);
    // What left the cache is read from its file.
    let first = run(log.try_get_log_entries(0..1)).unwrap();
    assert_eq!(first.len(), 1);
    run(log.purge(id(1, count as u64 - 1))).unwrap();
    run(log.flush()).unwrap();
    assert!(log.bytes_on_disk() <= log::CHUNK_BYTES as u64);
    drop(log);
    let bytes: u64 = std::fs::read_dir(folder.path().join("log"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes <= log::CHUNK_BYTES as u64, "{bytes} bytes are left");
}
