//! A full disk: the append that fails is told so, once, nothing after it is taken, and a plain
//! restart on a disk with space has everything that was acknowledged.
//!
//! The disk is made small by a limit on the size of files, in a process of its own.

use super::{entries, id, open};
use fermata_pool::command::{Claim, Command as PoolCommand, Entry};
use fermata_pool::time::Stamp;
use fermata_replica::raft::{LogEntry, Proposal, TypeConfig};
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const CHILD: &str = "FERMATA_FULL_DISK_CHILD";
const TEST: &str = "full_disk::a_failed_write_stops_the_log_and_loses_nothing_acknowledged";
/// Beyond what the database takes, below a file of the log. In KiB.
const LIMIT_KIB: usize = 8 << 10;

fn large(index: u64) -> LogEntry {
    let proposal = Proposal::new(Entry {
        claim: Claim(1),
        stamp: Stamp::default(),
        commands: vec![PoolCommand::Cancel {
            job: "x".repeat(256 << 10).into(),
        }],
    })
    .unwrap();
    LogEntry::new(id(1, index), EntryPayload::Normal(proposal))
}

async fn child(folder: &Path) {
    let mut log = open(&folder.join("data")).log;
    let mut acknowledged = 0_u64;
    let failed = loop {
        let (sender, told) = TypeConfig::oneshot();
        let appended = log
            .append([large(acknowledged)], IOFlushed::signal(sender))
            .await;
        appended.expect("the first failure is the callback's");
        match told.await.expect("the callback is called") {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1_000, "the limit is never reached");
    };
    assert!(failed.to_string().contains("File too large"), "{failed}");

    // Where the first failure was, nothing goes on: not a vote, not an entry. An append may still
    // be taken while the writer is on its way out, but is never acknowledged.
    let (sender, told) = TypeConfig::oneshot();
    let _ = log
        .append([large(acknowledged + 1)], IOFlushed::signal(sender))
        .await;
    assert!(told.await.expect("the callback is called").is_err());
    let vote = fermata_replica::raft::Vote::new(5, 1);
    assert!(log.save_vote(&vote).await.is_err());
    std::fs::write(folder.join("acknowledged"), acknowledged.to_string()).unwrap();
}

#[test]
fn a_failed_write_stops_the_log_and_loses_nothing_acknowledged() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return super::run(child(Path::new(&folder)));
    }
    let folder = TempDir::new().unwrap();
    let script = format!("trap '' XFSZ; ulimit -f {LIMIT_KIB}; exec \"$@\"");
    let output = Command::new("bash")
        .args(["-c", &script, "bash"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--test-threads", "1"])
        .env(CHILD, folder.path())
        .output()
        .expect("bash");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let acknowledged: u64 = std::fs::read_to_string(folder.path().join("acknowledged"))
        .unwrap()
        .parse()
        .unwrap();
    assert!(acknowledged > 0);
    let mut log = open(&folder.path().join("data")).log;
    let found = entries(&mut log);
    assert!(
        found.len() as u64 >= acknowledged,
        "{} entries",
        found.len()
    );
    for (index, found) in found.iter().enumerate() {
        assert!(*found == large(index as u64), "entry {index} is another");
    }
}
