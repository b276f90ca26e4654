//! Durable means synced: seen from outside, in the system calls of a process of its own.
//!
//! The test starts itself again under `strace`; the child does one thing after the other and
//! marks each acknowledgement by a write to a file of its own.

use super::snapshots::{apply, build, launching};
use super::{append, entry, open, save_vote};
use fermata_replica::raft::Vote;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const CHILD: &str = "FERMATA_DURABLE_CHILD";
const TEST: &str = "durable::what_is_acknowledged_was_synced";

fn child(folder: &Path) {
    let mut marks = std::fs::File::create(folder.join("marks")).unwrap();
    let mut mark = |what: &str| marks.write_all(what.as_bytes()).unwrap();
    let mut store = open(&folder.join("data"));
    mark("MADE");
    apply(
        &mut store.machine,
        (0..4).map(|index| launching(index, 20, 500)).collect(),
    );
    mark("BEGIN");
    build(&mut store.machine);
    mark("SNAPSHOT");
    let log = &mut store.log;
    save_vote(log, Vote::new(1, 1));
    mark("VOTED");
    for index in 0..5 {
        append(log, vec![entry(1, index)]);
        mark("APPENDED");
    }
}

/// A system call that has ended, with the file that it was about.
#[derive(Debug)]
struct Call {
    name: String,
    file: String,
    text: String,
}

/// Reads strace's output: a call counts where it ended.
fn calls(trace: &str) -> Vec<Call> {
    let mut begun: HashMap<&str, String> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((pid, text)) = line.split_once(' ') else {
            continue;
        };
        let text = text.trim_start();
        let text = if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, start.to_owned());
            continue;
        } else if text.starts_with("<... ") {
            let start = begun.remove(pid).unwrap_or_default();
            format!("{start} {text}")
        } else {
            text.to_owned()
        };
        let Some((name, rest)) = text.split_once('(') else {
            continue;
        };
        let file = match name {
            // strace -y shows a descriptor as 5</its/path>.
            "write" | "writev" | "pwrite64" | "fsync" | "fdatasync" => rest
                .split_once('<')
                .and_then(|(_, rest)| rest.split_once('>'))
                .map(|(file, _)| file.to_owned()),
            _ => Some(rest.to_owned()),
        };
        calls.push(Call {
            name: name.to_owned(),
            file: file.unwrap_or_default(),
            text,
        });
    }
    calls
}

#[test]
fn what_is_acknowledged_was_synced() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return child(Path::new(&folder));
    }
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let status = Command::new("strace")
        .args(["-f", "-y", "-s", "16", "-o"])
        .arg(&trace)
        .args([
            "-e",
            "trace=write,writev,pwrite64,fsync,fdatasync,rename,renameat,renameat2",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--test-threads", "1"])
        .env(CHILD, folder.path())
        .status()
        .expect("this test needs strace: install the package of that name");
    assert!(status.success(), "the child failed: {status}");
    let calls = calls(&std::fs::read_to_string(&trace).unwrap());

    log_is_synced_before_each_mark(&calls);
    in_order(
        &calls,
        "the identity: partial file, synced, renamed, its folder synced, then handed out",
        &[
            &|call| call.name == "write" && call.file.ends_with("IDENTITY.partial"),
            &|call| call.name == "fsync" && call.file.ends_with("IDENTITY.partial"),
            &|call| call.name.starts_with("rename") && call.text.contains("IDENTITY.partial"),
            &|call| call.name == "fsync" && call.file.ends_with("/log"),
            &|call| call.text.contains("\"MADE\""),
        ],
    );
    let written = |call: &Call| call.name == "pwrite64" && call.file.ends_with("/state/db");
    let synced = |call: &Call| {
        call.name == "fdatasync" && call.file.ends_with("/state/db") && call.text.ends_with("= 0")
    };
    in_order(
        &calls,
        "a snapshot: chunks, synced, manifest, synced, then acknowledged",
        &[
            &|call| call.text.contains("\"BEGIN\""),
            &written,
            &synced,
            &written,
            &synced,
            &|call| call.text.contains("\"SNAPSHOT\""),
        ],
    );
}

fn log_is_synced_before_each_mark(calls: &[Call]) {
    let mut unsynced = 0;
    let mut written = 0;
    let mut marks = Vec::new();
    for call in calls {
        match call.name.as_str() {
            "write" | "writev" if call.file.ends_with(".wal") => {
                unsynced += 1;
                written += 1;
            }
            "fdatasync" if call.file.ends_with(".wal") => {
                assert!(call.text.ends_with("= 0"), "{}", call.text);
                unsynced = 0;
            }
            "write" if call.file.ends_with("/marks") => {
                let mark = call.text.split('"').nth(1).unwrap().to_owned();
                if mark == "VOTED" || mark == "APPENDED" {
                    assert!(written > 0, "{mark} without a write to the log");
                }
                assert_eq!(unsynced, 0, "{mark} before the log was synced");
                written = 0;
                marks.push(mark);
            }
            _ => {}
        }
    }
    let mut expected = vec!["MADE", "BEGIN", "SNAPSHOT", "VOTED"];
    expected.extend(["APPENDED"; 5]);
    assert_eq!(marks, expected);
}

/// Each of these calls comes after the one before it.
fn in_order(calls: &[Call], what: &str, steps: &[&dyn Fn(&Call) -> bool]) {
    let mut calls = calls.iter();
    for (number, step) in steps.iter().enumerate() {
        assert!(calls.any(step), "{what}: step {number} is missing or late");
    }
}
