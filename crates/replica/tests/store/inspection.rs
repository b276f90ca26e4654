//! What an inspection finds: what a member would, without touching the folder.

use super::snapshots::{apply, build, digest, launching};
use super::{append, copy_folder, id, open, run, save_vote, wal_file};
use fermata_replica::ReplicaError;
use fermata_replica::format::log::LogId;
use fermata_replica::raft::Vote;
use fermata_replica::store::{Inspection, inspect};
use openraft::storage::RaftLogStorage;
use std::path::Path;
use tempfile::TempDir;

const JOBS: usize = 20;
const PARAMS_BYTES: usize = 500;

fn look(folder: &Path) -> Result<Inspection, ReplicaError> {
    let scratch = TempDir::new().unwrap();
    run(inspect(folder, scratch.path()))
}

/// A folder with a snapshot up to entry 3, whose log begins behind it, and ends with entries that
/// nobody knows to be committed. Answers the digest of what is committed.
fn used(folder: &Path) -> u64 {
    let mut store = open(folder);
    save_vote(&mut store.log, Vote::new_committed(1, 1));
    for index in 0..8 {
        let entry = launching(index, JOBS, PARAMS_BYTES);
        append(&mut store.log, vec![entry.clone()]);
        if index <= 5 {
            apply(&mut store.machine, vec![entry]);
            run(store.log.save_committed(Some(id(1, index)))).unwrap();
        }
        if index == 3 {
            build(&mut store.machine);
            run(store.log.purge(id(1, index))).unwrap();
        }
    }
    run(store.log.flush()).unwrap();
    digest(&store.machine)
}

#[test]
fn a_healthy_folder_is_told_as_a_member_would_have_it() {
    let folder = TempDir::new().unwrap();
    let digest = used(folder.path());
    let found = look(folder.path()).unwrap();
    let at = |index| Some(LogId { term: 1, index });
    assert_eq!(
        (found.identity.cluster, found.identity.node),
        (0x00c1_0573, 1)
    );
    let vote = found.vote.unwrap();
    assert_eq!((vote.term, vote.node, vote.committed), (1, 1, true));
    let log = found.log;
    assert_eq!(
        (
            log.purged,
            log.committed,
            log.last,
            log.entries,
            log.torn_bytes
        ),
        (at(3), at(5), at(7), 4, 0)
    );
    let snapshots: Vec<_> = found.snapshots.iter().map(|it| it.last).collect();
    assert_eq!(snapshots, [at(3)]);
    assert_eq!((found.state.applied, found.state.digest), (at(5), digest));
    let jobs = found.state.jobs;
    let jobs = jobs.delayed + jobs.queued + jobs.starting + jobs.active + jobs.finished;
    // The first entry is the takeover.
    assert_eq!(jobs, 5 * JOBS as u64);
    assert!(found.flaw.is_none());
}

#[test]
fn a_torn_tail_is_told_and_left() {
    let folder = TempDir::new().unwrap();
    used(folder.path());
    let file = wal_file(folder.path());
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let found = look(folder.path()).unwrap();
    assert!(found.log.torn_bytes > 0, "{:?}", found.log);
    assert_eq!(found.log.last.map(|last| last.index), Some(6));
    assert_eq!(std::fs::read(&file).unwrap(), bytes[..bytes.len() - 5]);
}

#[test]
fn whatever_byte_of_the_snapshots_is_flipped_it_is_refused_or_does_not_matter() {
    let folder = TempDir::new().unwrap();
    let digest = used(folder.path());
    let place = Path::new("state/db");
    let bytes = std::fs::read(folder.path().join(place)).unwrap();
    let mut refused = 0;
    let used_bytes = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for at in (0..used_bytes).step_by(used_bytes / 60) {
        let other = TempDir::new().unwrap();
        copy_folder(folder.path(), other.path());
        let mut bytes = bytes.clone();
        bytes[at] ^= 0xff;
        std::fs::write(other.path().join(place), &bytes).unwrap();
        match look(other.path()) {
            Ok(found) => assert_eq!(found.state.digest, digest, "byte {at}"),
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.contains(&other.path().display().to_string()), "{text}");
                assert!(
                    text.contains("new node id") || text.contains("sled"),
                    "byte {at}: {text}"
                );
            }
        }
        assert_eq!(std::fs::read(other.path().join(place)).unwrap(), bytes);
    }
    assert!(refused > 0, "no byte of {used_bytes} matters");
}
