//! Whose folder it is: another's is refused, half a folder too, and nothing is changed by it.

use super::{OWNER, append, copy_folder, entries, entry, open};
use fermata_replica::ReplicaError;
use fermata_replica::store::{Owner, Store};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn error(folder: &Path, owner: Owner) -> ReplicaError {
    match Store::open(folder, owner) {
        Err(error) => error,
        Ok(_) => panic!("the folder opens"),
    }
}

/// Every file of a folder, with its bytes.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

/// A folder that was used and closed.
fn used() -> TempDir {
    let folder = TempDir::new().unwrap();
    append(&mut open(folder.path()).log, vec![entry(1, 0)]);
    folder
}

#[test]
fn a_folder_knows_whose_it_is() {
    let folder = TempDir::new().unwrap();
    assert_eq!(Store::identity(folder.path()).unwrap(), None);
    let identity = open(folder.path()).identity;
    assert_eq!(
        (identity.cluster, identity.node),
        (OWNER.cluster, OWNER.node)
    );
    assert_eq!(Store::identity(folder.path()).unwrap(), Some(identity));
    assert_eq!(open(folder.path()).identity, identity);
    assert_ne!(open(used().path()).identity.store, identity.store);
}

#[test]
fn a_second_opening_is_refused_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let mut first = open(folder.path());
    append(&mut first.log, vec![entry(1, 0)]);
    let refusal = error(folder.path(), OWNER);
    assert!(matches!(&refusal, ReplicaError::InUse { folder: named } if named == folder.path()));
    assert!(refusal.to_string().contains("is in use by another process"));
    append(&mut first.log, vec![entry(1, 1)]);
    drop(first);
    assert_eq!(
        entries(&mut open(folder.path()).log),
        [entry(1, 0), entry(1, 1)]
    );
}

#[test]
fn a_folder_of_another_cluster_or_node_is_refused_and_not_changed() {
    let folder = used();
    let before = contents(folder.path());
    let cluster = Owner {
        cluster: 7,
        ..OWNER
    };
    let node = Owner { node: 2, ..OWNER };
    for (owner, what) in [(cluster, "cluster"), (node, "node")] {
        let refusal = error(folder.path(), owner);
        let named = folder.path().join("log/IDENTITY");
        assert!(
            matches!(&refusal, ReplicaError::Foreign { file, what: which, .. }
                if *file == named && *which == what),
            "{refusal}"
        );
    }
    assert!(contents(folder.path()) == before, "the folder was changed");
}

#[test]
fn half_a_folder_is_refused() {
    let used = used();
    let other = self::used();
    /// What was done, how, and which file the refusal names.
    type Case<'a> = (&'a str, &'a dyn Fn(&Path), &'a str);
    let cases: [Case<'_>; 6] = [
        (
            "no snapshots",
            &|at| std::fs::remove_dir_all(at.join("state")).unwrap(),
            "state",
        ),
        (
            "no log",
            &|at| std::fs::remove_dir_all(at.join("log")).unwrap(),
            "log/IDENTITY",
        ),
        (
            "no identity",
            &|at| std::fs::remove_file(at.join("log/IDENTITY")).unwrap(),
            "log/IDENTITY",
        ),
        (
            "no log files",
            &|at| std::fs::remove_file(super::wal_file(at)).unwrap(),
            "log",
        ),
        (
            "snapshots of another",
            &|at| {
                std::fs::remove_dir_all(at.join("state")).unwrap();
                copy_folder(&other.path().join("state"), &at.join("state"));
            },
            "log/IDENTITY",
        ),
        (
            "no snapshots and no identity",
            &|at| {
                std::fs::remove_dir_all(at.join("state")).unwrap();
                std::fs::remove_file(at.join("log/IDENTITY")).unwrap();
            },
            "log/IDENTITY",
        ),
    ];
    for (what, spoil, named) in cases {
        let folder = TempDir::new().unwrap();
        copy_folder(used.path(), folder.path());
        spoil(folder.path());
        for _ in 0..2 {
            let refusal = error(folder.path(), OWNER);
            let ReplicaError::NotWhole { file, .. } = &refusal else {
                panic!("{what}: {refusal}");
            };
            assert_eq!(*file, folder.path().join(named), "{what}: {refusal}");
            assert!(
                refusal.to_string().contains("under a new node id"),
                "{refusal}"
            );
        }
    }
}

#[test]
fn a_making_that_was_cut_off_is_begun_again() {
    // All that is there when the identity is not: the lock, the database, and an empty log.
    let folder = TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("log")).unwrap();
    std::fs::write(folder.path().join("LOCK"), b"").unwrap();
    std::fs::write(folder.path().join("log/IDENTITY.partial"), b"half").unwrap();
    let identity = open(folder.path()).identity;
    assert_eq!(open(folder.path()).identity, identity);
}
