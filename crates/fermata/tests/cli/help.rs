//! Help, completions, and what is said about a wrong command line.

use std::process::Stdio;

use crate::harness::{fermata, run};

/// The widest line of help, in characters, on a terminal of any width.
const WIDTH_MAX: usize = 110;

#[test]
fn every_command_explains_itself() {
    let commands: &[(&[&str], &str)] = &[
        (&[], "Exit codes:"),
        (&["demo"], "--seed"),
        (&["dev"], "fermata dev --data"),
        (&["serve"], "fermata serve --id 1"),
        (&["worker"], "fermata worker --server w1 -- ./handle-job"),
        (&["exec"], "fermata exec --key salesforce --max 5"),
        (&["audit"], "newest come first"),
        (&["event"], "apply"),
        (
            &["event", "apply"],
            "fermata event apply -f salesforce.json",
        ),
        (&["event", "list"], "--limit"),
        (&["event", "show"], "<ID>"),
        (&["event", "delete"], "<ID>"),
        (&["job"], "watch"),
        (&["job", "submit"], "--wait end --timeout 60"),
        (&["job", "list"], "--state"),
        (&["job", "show"], "<ID>"),
        (&["job", "why"], "fermata job why"),
        (&["job", "watch"], "--timeout"),
        (&["job", "cancel"], "<ID>"),
        (&["pool"], "cap:KEY"),
        (&["pool", "reset"], "--all"),
        (&["override"], "--amount 0 --until 14:00"),
        (&["override", "set"], "--for"),
        (&["override", "clear"], "<ID>"),
        (&["override", "list"], "--limit"),
        (&["server"], "disable"),
        (&["cluster"], "transfer"),
        (&["cluster", "add"], "--client-url"),
        (&["inspect"], "fermata inspect node-1 --output json"),
        (&["completions"], "fish"),
    ];
    for (command, text) in commands {
        let said = run(&[command, &["--help"][..]].concat()).ends(0, text);
        assert_eq!(said.err, "", "{command:?}");
        for line in said.out.lines() {
            assert!(line.chars().count() <= WIDTH_MAX, "{command:?}: {line}");
        }
    }
}

#[test]
fn a_wrong_command_line_is_told_what_is_allowed() {
    run(&[]).ends(2, "Usage");
    run(&["jobs"]).ends(2, "job");
    run(&["job", "submit", "--prio", "1"]).ends(2, "--priority");
    run(&["job", "submit", "--priority", "101"]).ends(2, "from -100 to 100");
    run(&["job", "submit", "--wait", "forever"]).ends(2, "start, end");
    run(&["job", "submit", "--count", "0"]).ends(2, "--count");
    run(&["job", "list", "--limit", "0"]).ends(2, "1..=1000000");
    run(&["worker", "--server", "w1"]).ends(2, "COMMAND");
    run(&["pool", "reset"]).ends(2, "--all");
    run(&["job", "submit", "--dry-run", "--count", "2"]).ends(2, "--count");
    run(&["job", "submit", "--dry-run", "--wait", "end"]).ends(2, "--wait");
    let set = |more: &[&str]| run(&[&["override", "set"], more].concat());
    set(&["cap:k"]).ends(2, "--count");
    set(&["cap:k", "--until", "14:00"]).ends(2, "--amount");
    set(&["cap:k", "--amount", "x"]).ends(2, "--amount");
    set(&["cap:k", "--amount", "0", "--until", "tomorrow"]).ends(2, "as in 14:00");
    set(&["cap:k", "--amount", "0", "--for", "2"]).ends(2, "as in 90s");
    set(&["cap:k", "--amount", "0", "--for", "2h", "--until", "14:00"]).ends(2, "--until");
    run(&["override", "clear"]).ends(2, "<ID>");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let said = run(&["completions", shell]).ends(0, "submit");
        assert!(said.out.contains("if-unreachable"), "{shell}");
    }
}

#[test]
fn a_reader_that_left_is_no_failure() {
    let mut command = fermata();
    command.args(["completions", "bash"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
