//! What a crash leaves is repaired; anything else is refused, and the file is named.

use super::{
    OWNER, append, copy_folder, entries, entry, membership, open, run, save_vote, wal_file,
};
use fermata_replica::ReplicaError;
use fermata_replica::raft::{LogEntry, Vote};
use fermata_replica::store::Store;
use openraft::storage::RaftLogReader;
use std::path::Path;
use tempfile::TempDir;

/// What had been acknowledged when the file had a length.
pub(super) struct Acknowledged {
    length: usize,
    pub(super) entries: Vec<LogEntry>,
    pub(super) vote: Option<Vote>,
}

/// A small log of everything there is, and what was acknowledged when.
pub(super) fn small_log(folder: &Path) -> Vec<Acknowledged> {
    let mut log = open(folder).log;
    let mut acknowledged = Vec::new();
    let mut note = |log: &mut _| {
        acknowledged.push(Acknowledged {
            length: std::fs::metadata(wal_file(folder)).unwrap().len() as usize,
            entries: entries(log),
            vote: run(log.read_vote()).unwrap(),
        });
    };
    note(&mut log);
    save_vote(&mut log, Vote::new(1, 1));
    note(&mut log);
    append(&mut log, vec![membership(1, 0, &[1, 2, 3])]);
    note(&mut log);
    append(&mut log, vec![entry(1, 1), entry(1, 2)]);
    note(&mut log);
    run(openraft::storage::RaftLogStorage::save_committed(
        &mut log,
        Some(super::id(1, 1)),
    ))
    .unwrap();
    run(openraft::storage::RaftLogStorage::truncate_after(
        &mut log,
        Some(super::id(1, 1)),
    ))
    .unwrap();
    append(&mut log, vec![entry(2, 2)]);
    note(&mut log);
    save_vote(&mut log, Vote::new_committed(3, 2));
    note(&mut log);
    acknowledged
}

#[test]
fn a_torn_tail_costs_nothing_that_was_acknowledged() {
    let origin = TempDir::new().unwrap();
    let acknowledged = small_log(origin.path());
    let file = wal_file(origin.path());
    let bytes = std::fs::read(&file).unwrap();
    let begun = acknowledged[0].length;
    let place = file.strip_prefix(origin.path()).unwrap();
    for length in (begun..=bytes.len()).rev() {
        let folder = TempDir::new().unwrap();
        copy_folder(origin.path(), folder.path());
        std::fs::write(folder.path().join(place), &bytes[..length]).unwrap();
        let mut log = Store::open(folder.path(), OWNER)
            .unwrap_or_else(|error| panic!("cut to {length} bytes: {error}"))
            .log;
        let due = acknowledged
            .iter()
            .rev()
            .find(|state| state.length <= length)
            .unwrap();
        let next = acknowledged.iter().find(|state| state.length > length);
        let found = entries(&mut log);
        let allowed = |state: &Acknowledged| found.starts_with(&state.entries);
        // Between two acknowledged states, the records of the later one may be there in part: an
        // entry more, or a truncation without what follows it.
        assert!(
            allowed(due) || next.is_some_and(|next| next.entries.starts_with(&found)),
            "cut to {length} bytes: {found:?}"
        );
        let vote = run(log.read_vote()).unwrap();
        assert!(
            vote == due.vote || next.is_some_and(|next| vote == next.vote),
            "cut to {length} bytes: {vote:?}"
        );
        // And it goes on from there.
        let index = found.last().map_or(0, |entry| entry.log_id.index + 1);
        append(&mut log, vec![entry(9, index)]);
    }
}

/// Opens a copy of a folder in which one file holds other bytes; gives the error.
fn refused(origin: &Path, file: &Path, bytes: &[u8], what: &str) -> ReplicaError {
    let folder = TempDir::new().unwrap();
    copy_folder(origin, folder.path());
    let place = folder.path().join(file.strip_prefix(origin).unwrap());
    std::fs::write(&place, bytes).unwrap();
    let error = match Store::open(folder.path(), OWNER) {
        Err(error) => error,
        Ok(_) => panic!("{what}: the folder opens"),
    };
    assert_eq!(
        std::fs::read(&place).unwrap(),
        bytes,
        "{what}: a refused file was changed"
    );
    let file = match &error {
        ReplicaError::Damaged { file, .. } | ReplicaError::NotWhole { file, .. } => file.clone(),
        other => panic!("{what}: {other}"),
    };
    assert_eq!(file, place, "{what}: {error}");
    error
}

#[test]
fn a_flipped_byte_anywhere_in_the_log_is_refused() {
    let origin = TempDir::new().unwrap();
    small_log(origin.path());
    let file = wal_file(origin.path());
    let bytes = std::fs::read(&file).unwrap();
    for at in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= mask;
            refused(origin.path(), &file, &bytes, &format!("byte {at} ^ {mask}"));
        }
    }
}

#[test]
fn a_log_cut_before_its_beginning_is_refused() {
    let origin = TempDir::new().unwrap();
    let acknowledged = small_log(origin.path());
    let file = wal_file(origin.path());
    let bytes = std::fs::read(&file).unwrap();
    for length in 0..acknowledged[0].length {
        refused(
            origin.path(),
            &file,
            &bytes[..length],
            &format!("cut to {length} bytes"),
        );
    }
}

#[test]
fn a_flipped_byte_in_the_identity_is_refused() {
    let origin = TempDir::new().unwrap();
    drop(open(origin.path()));
    let file = origin.path().join("log/IDENTITY");
    let bytes = std::fs::read(&file).unwrap();
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        refused(origin.path(), &file, &bytes, &format!("byte {at}"));
    }
}

#[test]
fn a_tail_of_zeros_is_taken_for_what_a_crash_left() {
    let origin = TempDir::new().unwrap();
    let acknowledged = small_log(origin.path());
    let file = wal_file(origin.path());
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.extend([0; 5_000]);
    std::fs::write(&file, &bytes).unwrap();
    let mut log = open(origin.path()).log;
    assert_eq!(entries(&mut log), acknowledged.last().unwrap().entries);

    // But not where something follows it.
    bytes.push(1);
    let other = TempDir::new().unwrap();
    copy_folder(origin.path(), other.path());
    std::fs::write(
        other.path().join("log").join(file.file_name().unwrap()),
        &bytes,
    )
    .unwrap();
    assert!(Store::open(other.path(), OWNER).is_err());
}
