//! What one member keeps on its disk: is it a correct Raft store, and what does a crash leave?
//!
//! One binary for all, as the database takes long to link.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that finds something missing fails"
)]

mod damage;
mod durable;
mod folder;
mod formats;
mod full_disk;
mod inspection;
mod killed;
mod log;
mod snapshots;
mod suite;

use fermata_pool::command::{Claim, Command, Entry};
use fermata_pool::time::{Instant, Stamp};
use fermata_replica::raft::{LogEntry, LogId, Node, Proposal, Vote};
use fermata_replica::store::{LogStore, Owner, Store};
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const OWNER: Owner = Owner {
    cluster: 0x00c1_0573,
    node: 1,
};

fn open(folder: &Path) -> Store {
    Store::open(folder, OWNER).expect("the folder opens")
}

/// A blocking look at an async store.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(future)
}

fn id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

/// An entry whose bytes say where it belongs.
fn entry(term: u64, index: u64) -> LogEntry {
    let job = format!("job-{term}-{index}").into();
    let proposal = Proposal::new(Entry {
        claim: Claim(term),
        stamp: Stamp::utc(Instant::from_us(1_000_000 + index as i64)),
        commands: vec![Command::Cancel { job }],
    })
    .expect("a small entry");
    LogEntry::new(id(term, index), EntryPayload::Normal(proposal))
}

fn membership(term: u64, index: u64, nodes: &[u64]) -> LogEntry {
    let members: BTreeMap<u64, Node> = nodes
        .iter()
        .map(|&node| {
            let peer = format!("peer-{node}:7000");
            let client_url = format!("http://client-{node}:8000");
            (node, Node { peer, client_url })
        })
        .collect();
    let voters = vec![nodes.iter().copied().collect()];
    let membership = openraft::Membership::new(voters, members).expect("every voter is a member");
    LogEntry::new(id(term, index), EntryPayload::Membership(membership))
}

fn append(log: &mut LogStore, entries: Vec<LogEntry>) {
    run(log.blocking_append(entries)).expect("the append is durable");
}

fn save_vote(log: &mut LogStore, vote: Vote) {
    run(log.save_vote(&vote)).expect("the vote is durable");
}

fn entries(log: &mut LogStore) -> Vec<LogEntry> {
    run(log.try_get_log_entries(..)).expect("the log is readable")
}

/// The only file of a small log.
fn wal_file(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("log"))
        .expect("the log's folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "wal"))
        .collect();
    assert_eq!(files.len(), 1, "a small log has one file: {files:?}");
    files.remove(0)
}

/// Copies a member's folder, as a crash leaves it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
