//! Snapshots: of the state as it was when they were begun, whole or not at all, and there again
//! after a restart.

use super::{append, copy_folder, id, open, run};
use fermata_pool::command::{Claim, Command, Entry, Launch};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, QueueLimit};
use fermata_pool::time::{Instant, Stamp};
use fermata_replica::ReplicaError;
use fermata_replica::raft::{LogEntry, Proposal, SnapshotMeta, StoredMembership, TypeConfig};
use fermata_replica::state_machine::{Growth, StateMachine};
use fermata_replica::store::{SnapshotReader, Store};
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine, StorageHelper};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

/// Entry `index` of a log that takes over and then launches: jobs of one pool, of which one
/// starts never and all wait.
pub(super) fn launching(index: u64, jobs: usize, params_bytes: usize) -> LogEntry {
    let limit = |kind| Limit {
        enabled: true,
        kind,
    };
    let limits = vec![
        limit(LimitKind::Job(JobLimit {
            amount: 1,
            cap_key: Some("pool".into()),
            ..JobLimit::default()
        })),
        limit(LimitKind::Queue(QueueLimit { amount: 5_000_000 })),
    ];
    let launch = |job: usize| {
        Command::Launch(Box::new(Launch {
            id: format!("job-{index}-{job}").into(),
            params: Some(
                format!("\"{}\"", "x".repeat(params_bytes))
                    .into_bytes()
                    .into(),
            ),
            limits: limits.clone(),
            ..Launch::default()
        }))
    };
    let commands = match index {
        0 => vec![Command::Takeover],
        _ => (0..jobs).map(launch).collect(),
    };
    let proposal = Proposal::new(Entry {
        claim: Claim(1),
        stamp: Stamp::utc(Instant::from_us(1_780_000_000_000_000 + index as i64)),
        commands,
    })
    .expect("it is within bounds");
    LogEntry::new(id(1, index), EntryPayload::Normal(proposal))
}

pub(super) fn apply(machine: &mut StateMachine, entries: Vec<LogEntry>) {
    let entries = entries.into_iter().map(|entry| Ok((entry, None)));
    run(machine.apply(futures_util::stream::iter(entries))).expect("it is applied");
}

pub(super) fn digest(machine: &StateMachine) -> u64 {
    machine.shared().read(fermata_pool::Pool::digest)
}

pub(super) fn build(machine: &mut StateMachine) -> (SnapshotMeta, SnapshotReader) {
    run(async {
        let mut builder = machine
            .try_create_snapshot_builder(false)
            .await
            .expect("no other is being built");
        let snapshot = builder.build_snapshot().await.expect("it is built");
        (snapshot.meta, snapshot.snapshot)
    })
}

fn current(machine: &mut StateMachine) -> Option<(SnapshotMeta, SnapshotReader)> {
    run(machine.get_current_snapshot())
        .expect("a handle")
        .map(|snapshot| (snapshot.meta, snapshot.snapshot))
}

/// What openraft does first.
pub(super) fn start(store: &mut Store) {
    let mut helper =
        StorageHelper::<TypeConfig, _, _>::new(&mut store.log, &mut store.machine).with_id(1);
    run(helper.get_initial_state()).expect("the state is whole");
}

#[test]
fn a_restart_has_the_snapshot_and_what_the_log_holds_beyond() {
    let folder = TempDir::new().unwrap();
    let log: Vec<LogEntry> = (0..8).map(|index| launching(index, 50, 200)).collect();
    let membership = super::membership(1, 8, &[1, 2]);
    let (digest_then, growth);
    {
        let mut store = open(folder.path());
        append(&mut store.log, log.clone());
        append(&mut store.log, vec![membership.clone()]);
        apply(&mut store.machine, log[..5].to_vec());
        let (meta, reader) = build(&mut store.machine);
        assert_eq!(meta.last_log_id, Some(id(1, 4)));
        apply(&mut store.machine, log[5..].to_vec());
        apply(&mut store.machine, vec![membership.clone()]);
        run(store.log.save_committed(Some(id(1, 8)))).unwrap();
        run(store.log.purge(id(1, 4))).unwrap();
        digest_then = digest(&store.machine);
        growth = store.machine.shared().growth();
        assert_eq!(growth.snapshot_bytes, reader.bytes());
        assert!(growth.log_bytes > 3 * 50 * 200);
    }
    let mut store = open(folder.path());
    let (meta, _) = current(&mut store.machine).expect("the snapshot");
    assert_eq!(meta.last_log_id, Some(id(1, 4)));
    assert_eq!(*store.machine.shared().applied().borrow(), 4);
    start(&mut store);
    assert_eq!(digest(&store.machine), digest_then);
    assert_eq!(store.machine.shared().growth(), growth);
    assert_eq!(*store.machine.shared().applied().borrow(), 8);
    let (applied, stored) = run(store.machine.applied_state()).unwrap();
    assert_eq!(applied, Some(id(1, 8)));
    let EntryPayload::Membership(membership) = membership.payload else {
        unreachable!()
    };
    assert_eq!(stored, StoredMembership::new(Some(id(1, 8)), membership));
}

#[test]
fn a_log_that_was_purged_beyond_every_snapshot_is_refused() {
    let folder = TempDir::new().unwrap();
    {
        let mut store = open(folder.path());
        append(
            &mut store.log,
            (0..4).map(|index| launching(index, 1, 1)).collect(),
        );
        apply(
            &mut store.machine,
            vec![launching(0, 1, 1), launching(1, 1, 1)],
        );
        build(&mut store.machine);
        run(store.log.purge(id(1, 2))).unwrap();
    }
    let Err(ReplicaError::NotWhole { file, why }) = Store::open(folder.path(), super::OWNER) else {
        panic!("it opens");
    };
    assert_eq!(file, folder.path().join("state"));
    assert!(why.contains("begins after entry 2"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_the_state_when_it_was_begun_while_entries_go_on() {
    let folder = TempDir::new().unwrap();
    let Store { mut machine, .. } = open(folder.path());
    let mut index = 0;
    let mut apply_next = async |machine: &mut StateMachine| {
        let entry = launching(index, 300, 100);
        index += 1;
        machine
            .apply(futures_util::stream::iter([Ok((entry, None))]))
            .await
            .unwrap();
    };
    for _ in 0..20 {
        apply_next(&mut machine).await;
    }
    let begun = digest(&machine);
    let mut builder = machine.try_create_snapshot_builder(false).await.unwrap();
    assert!(
        machine.try_create_snapshot_builder(false).await.is_none(),
        "one at a time"
    );
    let building = tokio::spawn(async move { builder.build_snapshot().await });
    let mut meanwhile = 0;
    while !building.is_finished() {
        apply_next(&mut machine).await;
        meanwhile += 1;
    }
    let snapshot = building.await.unwrap().unwrap();
    assert!(meanwhile > 1, "nothing was applied while it was built");
    assert_eq!(snapshot.meta.last_log_id, Some(id(1, 19)));

    let other = TempDir::new().unwrap();
    let mut receiver = open(other.path());
    let received = transfer(&snapshot.snapshot, &receiver.machine, 10_007).await;
    receiver
        .machine
        .install_snapshot(&snapshot.meta, received)
        .await
        .unwrap();
    assert_eq!(digest(&receiver.machine), begun);
    assert_ne!(digest(&machine), begun);
}

/// What a peer does: read here in pieces, write there.
async fn transfer(from: &SnapshotReader, to: &StateMachine, piece_bytes: usize) -> SnapshotReader {
    let mut writer = to.recovery().begin().await.unwrap();
    let mut offset = 0;
    loop {
        let piece = from.read(offset, piece_bytes).await.unwrap();
        if piece.is_empty() {
            break;
        }
        assert!(piece.len() <= piece_bytes);
        offset += piece.len() as u64;
        writer.write(&piece).await.unwrap();
    }
    assert_eq!(offset, from.bytes());
    let received = writer.finish().await.unwrap();
    assert_eq!(received.bytes(), from.bytes());
    assert_eq!(received.checksum(), from.checksum());
    received
}

#[test]
fn an_installed_snapshot_is_durable_and_installing_it_again_changes_nothing() {
    let (sender, receiver) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut leader = open(sender.path());
    // Rows are larger than a chunk, and chunks larger than a row.
    apply(
        &mut leader.machine,
        (0..4).map(|index| launching(index, 30, 9_000)).collect(),
    );
    apply(
        &mut leader.machine,
        vec![super::membership(1, 4, &[1, 2, 3])],
    );
    let (meta, reader) = build(&mut leader.machine);
    apply(&mut leader.machine, vec![launching(5, 10, 10)]);
    let (newer_meta, newer) = build(&mut leader.machine);
    let whole = run(reader.read(0, usize::MAX)).expect("an old one is there while it is held");
    assert!(!whole.is_empty());

    let mut follower = open(receiver.path());
    for piece_bytes in [1_000, 4_090, 1 << 20] {
        let received = run(transfer(&reader, &follower.machine, piece_bytes));
        run(follower.machine.install_snapshot(&meta, received)).unwrap();
        assert_eq!(*follower.machine.shared().applied().borrow(), 4);
    }
    let at_first = digest(&follower.machine);
    assert_ne!(at_first, digest(&leader.machine));
    let blobs = std::fs::read_dir(receiver.path().join("state/blobs")).unwrap();
    assert_eq!(blobs.count(), 0, "values left the file that is synced");
    drop(follower);

    let mut follower = open(receiver.path());
    let (found, handle) = current(&mut follower.machine).expect("it was durable");
    assert_eq!(found, meta);
    assert_eq!(digest(&follower.machine), at_first);
    assert_eq!(run(handle.read(0, usize::MAX)).unwrap(), whole);
    run(follower.machine.install_snapshot(&meta, handle)).unwrap();
    assert_eq!(digest(&follower.machine), at_first);

    let received = run(transfer(&newer, &follower.machine, 1 << 16));
    run(follower.machine.install_snapshot(&newer_meta, received)).unwrap();
    let received = run(transfer(&reader, &follower.machine, 1 << 16));
    run(follower.machine.install_snapshot(&meta, received)).unwrap();
    assert_eq!(
        digest(&follower.machine),
        digest(&leader.machine),
        "an older one changes nothing"
    );
    assert_eq!(current(&mut follower.machine).unwrap().0, newer_meta);
}

#[test]
fn a_damaged_stream_installs_nothing() {
    let (sender, receiver) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut leader = open(sender.path());
    apply(
        &mut leader.machine,
        (0..4).map(|index| launching(index, 30, 100)).collect(),
    );
    let (meta, reader) = build(&mut leader.machine);
    let whole = run(reader.read(0, usize::MAX)).unwrap();
    let mut follower = open(receiver.path());
    let before = digest(&follower.machine);
    let mut random = StdRng::seed_from_u64(1);
    for round in 0..40 {
        let mut bytes = whole.clone();
        match round {
            0 => bytes.clear(),
            1 => bytes.push(0),
            2 => bytes.truncate(whole.len() - 1),
            _ => {
                let at = random.random_range(0..bytes.len());
                bytes[at] ^= 1 << random.random_range(0..8);
            }
        }
        let spoilt = run(async {
            let mut writer = follower.machine.recovery().begin().await.unwrap();
            writer.write(&bytes).await.unwrap();
            writer.finish().await.unwrap()
        });
        let installed = run(follower.machine.install_snapshot(&meta, spoilt));
        assert!(installed.is_err(), "round {round}");
        assert_eq!(digest(&follower.machine), before);
        assert!(current(&mut follower.machine).is_none());
    }
    drop(follower);
    let mut follower = open(receiver.path());
    assert!(
        current(&mut follower.machine).is_none(),
        "nothing of it was kept"
    );
}

#[test]
fn a_walk_ends_with_its_builder_and_with_an_installation() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut ahead = open(first.path());
    apply(
        &mut ahead.machine,
        (0..6).map(|index| launching(index, 20, 10)).collect(),
    );
    let (meta, reader) = build(&mut ahead.machine);

    let mut behind = open(second.path());
    apply(
        &mut behind.machine,
        (0..3).map(|index| launching(index, 20, 10)).collect(),
    );
    let begin = |machine: &mut StateMachine| run(machine.try_create_snapshot_builder(false));
    drop(begin(&mut behind.machine).expect("none is being built"));
    let mut builder = begin(&mut behind.machine).expect("the walk ended with its builder");
    let received = run(transfer(&reader, &behind.machine, 1 << 16));
    run(behind.machine.install_snapshot(&meta, received)).unwrap();
    let given = run(builder.build_snapshot()).expect("the installed one, which covers more");
    assert_eq!(given.meta, meta);
    let mut next = begin(&mut behind.machine).expect("the walk ended with its pool");
    drop(builder);
    let built = run(next.build_snapshot()).unwrap();
    assert_eq!(built.snapshot.bytes(), reader.bytes());
    assert_eq!(built.snapshot.checksum(), reader.checksum());
}

#[test]
fn what_is_applied_is_told() {
    let folder = TempDir::new().unwrap();
    let mut store = open(folder.path());
    let shared = store.machine.shared();
    let mut events = shared.events();
    let applied = shared.applied();
    assert_eq!(*applied.borrow(), 0);
    assert_eq!(shared.growth(), Growth::default());
    apply(&mut store.machine, vec![launching(0, 0, 0)]);
    apply(
        &mut store.machine,
        vec![LogEntry::new(id(1, 1), EntryPayload::Blank)],
    );
    apply(&mut store.machine, vec![launching(2, 3, 5)]);
    assert_eq!(*applied.borrow(), 2);
    assert_eq!(events.try_recv().unwrap().index, 0);
    let told = events.try_recv().unwrap();
    assert_eq!(told.index, 2);
    assert_eq!(told.outcomes.as_ref().unwrap().len(), 3);
    assert!(
        events.try_recv().is_err(),
        "a blank entry is openraft's own"
    );
}

/// A flipped byte anywhere in the database: refused, or harmless; never another state.
#[test]
fn a_flipped_byte_among_the_snapshots_never_gives_another_state() {
    let origin = TempDir::new().unwrap();
    let truth = {
        let mut store = open(origin.path());
        append(
            &mut store.log,
            (0..4).map(|index| launching(index, 1, 1)).collect(),
        );
        apply(
            &mut store.machine,
            (0..4).map(|index| launching(index, 40, 900)).collect(),
        );
        build(&mut store.machine);
        run(store.log.purge(id(1, 3))).unwrap();
        digest(&store.machine)
    };
    let file = origin.path().join("state/db");
    let bytes = std::fs::read(&file).unwrap();
    let used: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    let mut refused = 0;
    for part in 0..60 {
        let at = used[part * used.len() / 60];
        let folder = TempDir::new().unwrap();
        copy_folder(origin.path(), folder.path());
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        std::fs::write(folder.path().join("state/db"), bytes).unwrap();
        let opened = std::panic::catch_unwind(|| Store::open(folder.path(), super::OWNER));
        match opened {
            Ok(Ok(store)) => assert_eq!(digest(&store.machine), truth, "byte {at}"),
            Ok(Err(error)) => {
                let text = error.to_string();
                assert!(text.contains("state"), "byte {at}: {text}");
                refused += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 20,
        "only {refused} of 60 were refused: does this flip what is used?"
    );
}
