//! Workers: what a command gets, what is kept of it, and how it is stopped.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Cluster, line_of, lives, wait_for};

/// Launches a job, waits for its end and shows it.
fn job(cluster: &Cluster, id: &str, more: &[&str]) -> Value {
    let submit = ["job", "submit", "--id", id, "--wait", "end"];
    let said = cluster.run(&[&submit[..], more].concat());
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    cluster.json(&["job", "show", id])
}

#[test]
fn a_command_knows_its_job() {
    let cluster = Cluster::start();
    let event = cluster.file("e.json", r#"{"id": "e", "priority": 7}"#);
    cluster
        .run(&["event", "apply", "-f", &event])
        .ends(0, "applied");
    let script = r#"cat; echo; echo "$FERMATA_JOB $FERMATA_ATTEMPT $FERMATA_EVENT $FERMATA_POOL \
$FERMATA_PRIORITY $FERMATA_SERVER $FERMATA_START_AT_US" >&2; echo "$FERMATA_PARAMS"; exit 4"#;
    let _worker = cluster.worker("w1", &[], script);
    let shown = job(&cluster, "j", &["e", "--params", r#"{"a":  [1]}"#]);
    assert_eq!(shown["code"], 4);
    let description = shown["description"].as_str().expect("a description");
    let lines: Vec<&str> = description.lines().collect();
    assert_eq!(lines[0], r#"{"a":  [1]}"#, "the bytes that came");
    assert!(lines[1].starts_with("j 1 e event:e 7 w1 "), "{lines:?}");
    assert_eq!(lines[2], lines[0]);
    let plain = job(&cluster, "k", &[]);
    let description = plain["description"].as_str().expect("a description");
    assert!(
        description.starts_with("\nk 1  job:k 0 w1"),
        "{description:?}"
    );
}

#[test]
fn the_tail_of_the_output_is_kept() {
    let cluster = Cluster::start();
    let script = "seq 1 20000; printf '\\377é'";
    let _worker = cluster.worker("w1", &[], script);
    let shown = job(&cluster, "j", &[]);
    let description = shown["description"].as_str().expect("a description");
    assert!(description.len() <= 4_096, "{}", description.len());
    assert!(description.len() > 4_000, "{}", description.len());
    assert!(
        description.ends_with("19999\n20000\n\u{fffd}é"),
        "{description}"
    );
}

#[test]
fn codes_are_those_of_a_shell() {
    let cluster = Cluster::start();
    let file = cluster.file("plain", "no program");
    for (server, argv, code) in [
        ("missing", &["/nowhere/program"][..], 127),
        ("plain", &[file.as_str()], 126),
        ("killed", &["sh", "-c", "kill -9 $$"], 137),
        ("deaf", &["true"], 0),
    ] {
        let _worker = cluster.worker_of(server, &[], argv);
        // More than a pipe holds: a command that does not read is not waited for.
        let params = format!("\"{}\"", "x".repeat(16_000));
        let shown = job(&cluster, server, &["--target", server, "--params", &params]);
        assert_eq!(shown["code"], code, "{shown}");
    }
    let shown = cluster.json(&["job", "show", "missing"]);
    let description = shown["description"].as_str().expect("a description");
    assert!(description.contains("/nowhere/program"), "{description}");
}

#[test]
fn a_cancelled_command_may_end_in_order() {
    let cluster = Cluster::start();
    let pids = cluster.path("pids");
    let script = format!(
        "trap 'echo bye; exit 9' TERM; sleep 600 & echo $! > {}; wait",
        pids.display()
    );
    let _worker = cluster.worker("w1", &[], &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    let child = line_of(&pids);
    cluster.job_is("j", "active");
    cluster.run(&["job", "cancel", "j"]).ends(0, "told to stop");
    let shown = cluster.job_is("j", "aborted");
    assert_eq!(shown["reason"], "cancelled");
    assert_eq!(shown["description"], "bye");
    wait_for("the end of what the command left", || {
        (!lives(&child)).then_some(())
    });
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let cluster = Cluster::start();
    let pids = cluster.path("pids");
    let script = format!("sleep 600 & echo $! > {}; echo done", pids.display());
    let _worker = cluster.worker("w1", &[], &script);
    let shown = job(&cluster, "j", &[]);
    assert_eq!(
        (&shown["code"], &shown["description"]),
        (&0.into(), &"done".into())
    );
    let left = line_of(&pids);
    wait_for("the end of what was left", || (!lives(&left)).then_some(()));
}

#[test]
fn a_stubborn_command_is_killed_after_its_grace() {
    let cluster = Cluster::start();
    let pids = cluster.path("pids");
    let script = format!(
        "trap '' TERM; echo $$ > {}; while :; do sleep 1; done",
        pids.display()
    );
    let _worker = cluster.worker("w1", &["--grace-s", "1"], &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    let command = line_of(&pids);
    cluster.job_is("j", "active");
    cluster.run(&["job", "cancel", "j"]).ends(0, "told to stop");
    cluster.job_is("j", "aborted");
    assert!(!lives(&command));
}

#[test]
fn a_killed_worker_takes_its_command_along_and_what_that_has_started() {
    let cluster = Cluster::start();
    let pids = cluster.path("pids");
    let script = format!("sleep 600 & echo $$ $! > {}; wait", pids.display());
    let mut worker = cluster.worker("w1", &[], &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    let both = line_of(&pids);
    let (command, child) = both.split_once(' ').expect("two processes");
    worker.signal(Signal::KILL);
    worker.ended();
    for pid in [command, child] {
        wait_for("the end of all of it", || (!lives(pid)).then_some(()));
    }
}

#[test]
fn a_newer_worker_takes_over() {
    let cluster = Cluster::start();
    let pids = cluster.path("pids");
    let script = format!("echo $$ > {}; exec sleep 600", pids.display());
    let mut worker = cluster.worker("w1", &[], &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    let command = line_of(&pids);
    cluster.job_is("j", "active");
    let _newer = cluster.worker("w1", &[], "true");
    worker.ends(4);
    assert!(worker.log().contains("superseded"), "{}", worker.log());
    assert!(!lives(&command));
    let shown = cluster.job_is("j", "aborted");
    assert_eq!(shown["reason"], "server_lost");
}

#[test]
fn executions_are_in_the_journal() {
    let cluster = Cluster::start();
    let journal = cluster.path("journal").display().to_string();
    let _worker = cluster.worker("w1", &["--journal", &journal], "exit $(cat)");
    job(&cluster, "a", &["--params", "0"]);
    job(&cluster, "b", &["--params", "5"]);
    let text = std::fs::read_to_string(&journal).expect("a journal");
    let records = text
        .lines()
        .map(serde_json::from_str::<fermata_audit::Record>);
    let records: Vec<_> = records.map(|record| record.expect("a record")).collect();
    let [
        fermata_audit::Record::Begin(begin),
        fermata_audit::Record::End(end),
        fermata_audit::Record::Begin(_),
        fermata_audit::Record::End(failed),
    ] = &records[..]
    else {
        panic!("{records:?}");
    };
    let shown = cluster.json(&["job", "show", "a"]);
    assert_eq!((begin.job.as_str(), begin.attempt), ("a", 1));
    assert_eq!(
        (begin.pool.as_str(), begin.worker.as_str()),
        ("job:a", "w1")
    );
    assert_eq!(shown["start_index"]["index"], begin.start_index.index);
    assert!(begin.start_us <= begin.at_us && begin.at_us <= end.at_us);
    assert_eq!((end.code, failed.code, failed.job.as_str()), (0, 5, "b"));
    assert_eq!(begin.incarnation, end.incarnation);
}

#[test]
fn without_its_journal_nothing_is_executed() {
    let cluster = Cluster::start();
    let ran = cluster.path("ran");
    let script = format!("touch {}", ran.display());
    let _worker = cluster.worker("w1", &["--journal", "/dev/full"], &script);
    let shown = job(&cluster, "j", &[]);
    assert_eq!(shown["code"], 125, "{shown}");
    assert!(!ran.exists());
    cluster
        .run(&[
            "worker",
            "--server",
            "w2",
            "--journal",
            "/nowhere/j",
            "--",
            "true",
        ])
        .ends(1, "/nowhere/j");
}
