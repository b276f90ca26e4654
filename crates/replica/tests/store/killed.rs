//! Killed at any moment, again and again: what was acknowledged is there.
//!
//! A process of its own appends, votes, takes snapshots and purges, and writes down each
//! acknowledgement; it is killed with SIGKILL after a random number of them. Then the folder is
//! opened here, compared, and the next process goes on from there.

use super::snapshots::{apply, build, digest, launching, start};
use super::{append, id, open, run};
use fermata_replica::ReplicaError;
use fermata_replica::raft::Vote;
use fermata_replica::store::Store;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftStateMachine};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const CHILD: &str = "FERMATA_KILLED_CHILD";
const TEST: &str = "killed::whatever_moment_it_is_killed_at_nothing_acknowledged_is_lost";
/// What the child's lines begin with, among those of the test harness.
const MARK: &str = "ACKNOWLEDGED ";
const JOBS: usize = 20;
const PARAMS_BYTES: usize = 500;

/// Goes on from what is there, for ever.
fn child(folder: &Path) {
    let mut store = open(&folder.join("data"));
    start(&mut store);
    let next = |store: &mut Store| {
        run(store.log.get_log_state())
            .unwrap()
            .last_log_id
            .map_or(0, |last| last.index + 1)
    };
    let say = |what: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{MARK}{what}").unwrap();
        out.flush().unwrap();
    };
    let mut term = run(store.log.read_vote())
        .unwrap()
        .map_or(0, |vote| vote.leader_id.term);
    loop {
        term += 1;
        run(store.log.save_vote(&Vote::new(term, 1))).unwrap();
        say(format!("vote {term}"));
        for _ in 0..3 {
            let index = next(&mut store);
            let entry = launching(index, JOBS, PARAMS_BYTES);
            append(&mut store.log, vec![entry.clone()]);
            say(format!("entry {index}"));
            apply(&mut store.machine, vec![entry]);
            run(store.log.save_committed(Some(id(1, index)))).unwrap();
        }
        let last = id(1, next(&mut store) - 1);
        build(&mut store.machine);
        say(format!("snapshot {}", last.index));
        run(store.log.purge(last)).unwrap();
    }
}

#[derive(Debug, Default)]
struct Acknowledged {
    vote: u64,
    entry: Option<u64>,
    snapshot: Option<u64>,
}

impl Acknowledged {
    fn note(&mut self, line: &str) {
        let (what, number) = line.split_once(' ').unwrap();
        let number: u64 = number.trim().parse().unwrap();
        match what {
            "vote" => self.vote = number,
            "entry" => self.entry = Some(number),
            "snapshot" => self.snapshot = Some(number),
            other => panic!("{other}"),
        }
    }
}

/// Starts the test again as a process of its own, which does what the environment says.
fn spawn(test: &str, variable: &str, folder: &Path) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads", "1", "--nocapture"])
        .env(variable, folder)
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .expect("the test starts itself");
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .filter_map(|line| line.unwrap().strip_prefix(MARK).map(str::to_owned));
    (child, lines)
}

const UNFINISHED_CHILD: &str = "FERMATA_UNFINISHED_CHILD";
const UNFINISHED_TEST: &str = "killed::a_snapshot_without_its_manifest_never_was";

/// Writes all of a snapshot but its manifest, says so, and waits for its end.
fn unfinished_child(folder: &Path) {
    let store = open(&folder.join("data"));
    run(async {
        let mut writer = store.machine.recovery().begin().await.unwrap();
        for piece in 0..64_u8 {
            writer.write(&[piece; 64 << 10]).await.unwrap();
        }
        let _unfinished = writer.finish().await.unwrap();
        println!("\n{MARK}chunks");
        let _ = std::io::stdin().read(&mut [0]);
    });
}

#[test]
fn a_snapshot_without_its_manifest_never_was() {
    if let Some(folder) = std::env::var_os(UNFINISHED_CHILD) {
        return unfinished_child(Path::new(&folder));
    }
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let truth = {
        let mut store = open(&data);
        apply(
            &mut store.machine,
            (0..4)
                .map(|index| launching(index, JOBS, PARAMS_BYTES))
                .collect(),
        );
        build(&mut store.machine);
        digest(&store.machine)
    };
    for _ in 0..16 {
        let (mut child, mut lines) = spawn(UNFINISHED_TEST, UNFINISHED_CHILD, folder.path());
        assert_eq!(lines.next().as_deref(), Some("chunks"));
        assert!(matches!(
            Store::open(&data, super::OWNER),
            Err(ReplicaError::InUse { .. })
        ));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut store = open(&data);
        assert_eq!(digest(&store.machine), truth);
        let kept = run(store.machine.get_current_snapshot()).unwrap().unwrap();
        assert_eq!(kept.meta.last_log_id, Some(id(1, 3)));
        // The next one begins when nothing is left of those before.
        run(store.machine.recovery().begin()).unwrap();
    }
    let bytes = std::fs::metadata(data.join("state/db")).unwrap().len();
    assert!(
        bytes < 10 * (4 << 20),
        "sixteen of 4 MiB were begun, and {bytes} bytes are left"
    );
}

#[test]
fn whatever_moment_it_is_killed_at_nothing_acknowledged_is_lost() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return child(Path::new(&folder));
    }
    let seed: u64 = std::env::var("FERMATA_SEED").map_or_else(
        |_| rand::random(),
        |seed| seed.parse().expect("FERMATA_SEED is a number"),
    );
    println!(
        "REPRODUCE WITH: FERMATA_SEED={seed} cargo test -p fermata-replica --test store killed"
    );
    let mut random = StdRng::seed_from_u64(seed);
    let folder = TempDir::new().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..12 {
        let (mut child, lines) = spawn(TEST, CHILD, folder.path());
        let mut left = random.random_range(1..40);
        // What it said before it died was acknowledged too.
        for what in lines {
            acknowledged.note(&what);
            left -= 1;
            if left == 0 {
                child.kill().unwrap();
            }
        }
        let status = child.wait().unwrap();
        assert!(
            left <= 0,
            "round {round}: the child ended by itself: {status}"
        );
        check(folder.path(), &acknowledged, round);
    }
}

fn check(folder: &Path, acknowledged: &Acknowledged, round: u32) {
    let mut store = open(&folder.join("data"));
    let vote = run(store.log.read_vote()).unwrap().unwrap();
    assert!(
        vote.leader_id.term >= acknowledged.vote,
        "round {round}: {vote}, {acknowledged:?}"
    );
    let covered = run(store.machine.get_current_snapshot()).unwrap();
    let covered = covered.and_then(|snapshot| snapshot.meta.last_log_id);
    assert!(
        covered.map(|last| last.index) >= acknowledged.snapshot,
        "round {round}: {covered:?}, {acknowledged:?}"
    );
    let state = run(store.log.get_log_state()).unwrap();
    let last = state.last_log_id.max(covered).map(|last| last.index);
    assert!(
        last >= acknowledged.entry,
        "round {round}: {last:?}, {acknowledged:?}"
    );

    // Snapshot and log together give the state of all entries.
    run(store.log.save_committed(state.last_log_id)).unwrap();
    start(&mut store);
    let other = TempDir::new().unwrap();
    let mut naive = open(other.path());
    // Killed before its first entry, it has none.
    let entries = last.map_or(0, |last| last + 1);
    let all = (0..entries).map(|index| launching(index, JOBS, PARAMS_BYTES));
    apply(&mut naive.machine, all.collect());
    assert_eq!(
        digest(&store.machine),
        digest(&naive.machine),
        "round {round}"
    );
}
