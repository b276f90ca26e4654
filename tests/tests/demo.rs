//! `fermata demo`: it shows what it says, and leaves nothing behind.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::path::Path;
use std::time::Duration;

use fermata_e2e::{DEADLINE, Process, binary, wait_for};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::Command;

/// The two minutes that it says.
const DEMO_DEADLINE: Duration = Duration::from_secs(120);

fn start(folder: &Path) -> Process {
    let mut command = Command::new(binary());
    command.args(["demo", "--output", "json"]);
    command.env("TMPDIR", folder);
    Process::start("demo", command, folder)
}

/// What was told under this name; nothing yet if it was not.
fn told(output: &str, what: &str) -> Option<Value> {
    let lines = output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines.into_iter().find(|line: &Value| line["what"] == *what)
}

/// Every folder that the demo made; it is to be gone when the demo is.
fn folders(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()))
        .count()
}

#[tokio::test]
async fn the_demo_holds_what_it_promises() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let exit = start(folder.path()).ended(DEMO_DEADLINE).await;
    println!("{}", exit.output);
    assert!(exit.status.success(), "{}: {}", exit.status, exit.output);
    for what in ["killed", "new_leader", "restarted", "handed_over", "done"] {
        assert!(
            told(&exit.output, what).is_some(),
            "{what}: {}",
            exit.output
        );
    }
    let audit = told(&exit.output, "audit").expect("an audit");
    let report = &audit["report"];
    assert_eq!(report["holds"], true, "{report}");
    assert_eq!(report["ends"], report["accepted"], "{report}");
    assert_eq!(report["in_window_max"], 30, "the rate was reached");
    assert_eq!(report["at_once_max"], 5, "the amount was reached");
    assert_eq!(folders(folder.path()), 0);
}

#[tokio::test]
async fn a_demo_that_is_ended_takes_everything_down() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let demo = start(folder.path());
    let stage = wait_for("everything is on stage", DEADLINE, async || {
        told(&demo.output(), "on_stage")
    })
    .await;
    assert_eq!(folders(folder.path()), 1);
    let exit = demo.stop(DEADLINE).await;
    assert_eq!(exit.status.code(), Some(1), "{}", exit.output);
    assert_eq!(folders(folder.path()), 0);
    for url in stage["nodes"].as_array().expect("the nodes") {
        let address = url.as_str().and_then(|url| url.strip_prefix("http://"));
        let connection = TcpStream::connect(address.expect("an address")).await;
        assert!(connection.is_err(), "{url} still listens");
    }
}
