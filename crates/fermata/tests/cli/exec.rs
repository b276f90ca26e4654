//! `fermata exec`: exit codes, signals, what a command gets, and what becomes of it.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Cluster, Running, Said, fermata, line_of, lives, run, wait_for};

/// The arguments of one at once under the key `k`.
const ONE: [&str; 5] = ["exec", "--key", "k", "--max", "1"];

/// Runs a shell script as the only one under its key.
fn exec(cluster: &Cluster, more: &[&str], script: &str) -> Said {
    cluster.run(&[&ONE[..], more, &["--", "sh", "-c", script]].concat())
}

/// Starts it, and waits until the script has called `ready`, which writes its process id.
fn start(cluster: &Cluster, name: &str, more: &[&str], script: &str) -> (Running, String) {
    let pids = cluster.path(&format!("{name}.pid"));
    let script = format!("ready() {{ echo $$ > {}; }}; {script}", pids.display());
    let mut command = cluster.client();
    command
        .args(ONE)
        .args(more)
        .args(["--", "sh", "-c", &script]);
    let running = Running::start(&mut command, cluster.path(&format!("{name}.log")));
    (running, line_of(&pids))
}

fn is_free(cluster: &Cluster) {
    wait_for("a free pool", || {
        let pools = cluster.json(&["pool", "list"]);
        let mut pools = pools["items"].as_array().into_iter().flatten();
        let is_taken = pools.any(|pool| pool["id"] == "cap:k" && pool["running"] != 0);
        (!is_taken).then_some(())
    });
}

fn is_gone(pid: &str) {
    wait_for("the end of a command", || (!lives(pid)).then_some(()));
}

#[test]
fn the_command_is_as_without_the_prefix() {
    let cluster = Cluster::start();
    let mut command = cluster.client();
    command.args(ONE).args(["--", "sh", "-c"]);
    command.arg("cat; echo \"$FERMATA_PERMIT $FERMATA_PERMIT_INDEX\" >&2; exit 42");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"as it came\n").expect("it is read");
    drop(input);
    let said = Said::from(child.wait_with_output().expect("it ends")).ends(42, "as it came");
    assert_eq!(said.out, "as it came\n");
    let (job, index) = said.err.trim_end().split_once(' ').expect("two words");
    let shown = cluster.json(&["job", "show", job]);
    assert_eq!(
        (&shown["state"], &shown["code"]),
        (&"complete".into(), &42.into())
    );
    assert_eq!(
        (&shown["pool"], &shown["executor"]),
        (&"cap:k".into(), &"caller".into())
    );
    assert_eq!(shown["params"]["program"], "sh");
    let place = &shown["start_index"];
    assert_eq!(index, format!("{}.{}", place["index"], place["ordinal"]));
}

#[test]
fn exit_codes_are_those_of_its_help() {
    let cluster = Cluster::start();
    let file = cluster.file("plain", "no program");
    exec(&cluster, &[], "true").ends(0, "");
    exec(&cluster, &[], "kill -9 $$").ends(137, "");
    let of = |argv: &[&str]| cluster.run(&[&ONE[..], &["--"], argv].concat());
    of(&["/nowhere/program"]).ends(127, "/nowhere/program");
    of(&[&file]).ends(126, "plain");
    let refused = ["exec", "--key", "k", "--rate", "5/7", "--align", "local"];
    let said = cluster.run(&[&refused[..], &["--", "echo", "ran"]].concat());
    let said = said.ends(125, "limits[0].window is 7");
    assert_eq!(said.out, "");
    run(&["exec", "--key", "k", "--", "true"]).ends(2, "--max");
    run(&["exec", "--max", "1", "--", "true"]).ends(2, "--key");
    run(&[&ONE[..], &["--skip", "--wait", "1m", "--", "true"]].concat()).ends(2, "--wait");
    run(&[&ONE[..], &["--style", "sliding", "--", "true"]].concat()).ends(2, "--rate");
    run(&["exec", "--key", "k", "--rate", "5", "--", "true"]).ends(2, "100/60");
}

#[test]
fn what_this_program_gives_itself_is_nobody_elses() {
    for words in [
        &["become-command"][..],
        &["become-command", "1"],
        &["become-command", "one", "--at-once", "true"],
        &["become-command", "1", "--later", "true"],
        &["watch-commands", "2"],
    ] {
        run(words).ends(2, words[0]);
    }
    run(&["become-command", "1", "--at-once", "true"]).ends(126, "is gone");
}

#[test]
fn who_may_not_run_does_not() {
    let cluster = Cluster::start();
    let (mut holder, _) = start(&cluster, "holder", &[], "ready; sleep 600");
    let ran = cluster.path("ran");
    let script = format!("touch {}", ran.display());
    exec(&cluster, &["--skip"], &script).ends(75, "concurrency_limited");
    exec(&cluster, &["--wait", "1s"], &script).ends(75, "not permitted within 1s");
    let mut full = cluster.client();
    full.args(ONE).args(["--queue", "1", "--", "true"]);
    let mut waiting = Running::start(&mut full, cluster.path("waiting.log"));
    wait_for("one in the queue", || {
        let pool = cluster.json(&["pool", "list"]);
        (pool["items"][0]["waiting"] == 1).then_some(())
    });
    exec(&cluster, &["--queue", "1"], &script).ends(75, "queue_full");
    assert!(!ran.exists());
    let list = cluster.json(&["job", "list", "--state", "queued"]);
    let id = list["items"][0]["id"].as_str().expect("the one that waits");
    cluster.run(&["job", "cancel", id]).ends(0, "");
    waiting.ends(75);
    assert!(waiting.log().contains("cancelled"), "{}", waiting.log());
    holder.signal(Signal::TERM);
    holder.ends(143);
    exec(&cluster, &["--skip"], &script).ends(0, "");
    assert!(ran.exists());
}

#[test]
fn a_rate_is_kept_by_who_skips_and_by_who_waits() {
    let cluster = Cluster::start();
    let exec = |more: &[&str]| {
        let limits = [
            "exec", "--key", "r", "--rate", "2/604800", "--style", "sliding",
        ];
        cluster.run(&[&limits[..], more, &["--", "true"]].concat())
    };
    exec(&[]).ends(0, "");
    exec(&["--skip"]).ends(0, "");
    exec(&["--skip"]).ends(75, "rate_limited");
    exec(&["--wait", "1s"]).ends(75, "not permitted within");
}

#[test]
fn signals_reach_the_command_and_a_second_one_kills() {
    let cluster = Cluster::start();
    for (signal, name, code) in [
        (Signal::TERM, "TERM", 3),
        (Signal::INT, "INT", 4),
        (Signal::HUP, "HUP", 5),
    ] {
        let script = format!("trap 'exit {code}' {name}; ready; while :; do sleep 0.05; done");
        let (mut exec, _) = start(&cluster, name, &[], &script);
        exec.signal(signal);
        exec.ends(code);
    }
    let script = "trap '' TERM; ready; while :; do sleep 0.05; done";
    let (mut exec, command) = start(&cluster, "deaf", &["--log", "info"], script);
    exec.signal(Signal::TERM);
    exec.logs("passing a signal on");
    assert!(lives(&command));
    exec.signal(Signal::TERM);
    exec.ends(137);
    is_free(&cluster);
    // What was ignored before stays ignored: `nohup fermata exec …` is a `nohup`.
    let pids = cluster.path("nohup.pid");
    let script = format!(
        "echo $$ > {}; while [ ! -e {0}.go ]; do sleep 0.05; done",
        pids.display()
    );
    let mut command = Command::new("sh");
    command.env("FERMATA_URL", &cluster.node.url);
    command.args([
        "-c",
        "trap '' HUP; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_fermata"),
    ]);
    command.args(ONE).args(["--", "sh", "-c", &script]);
    let mut exec = Running::start(&mut command, cluster.path("nohup.log"));
    let command = line_of(&pids);
    exec.signal(Signal::HUP);
    assert!(lives(&command));
    std::fs::write(cluster.path("nohup.pid.go"), "").expect("a file");
    exec.ends(0);
}

/// Ctrl-C reaches a command at a terminal and its prefix in one moment: the slot is free all the same.
#[test]
fn who_is_interrupted_at_the_end_tells_it() {
    let cluster = Cluster::start();
    let go = cluster.path("go");
    let script = format!(
        "ready; while [ ! -e {} ]; do sleep 0.05; done; exit 6",
        go.display()
    );
    let (mut exec, command) = start(&cluster, "ends", &["--log", "info"], &script);
    cluster.node.running.signal(Signal::STOP);
    std::fs::write(&go, "").expect("a file");
    is_gone(&command);
    exec.signal(Signal::TERM);
    cluster.node.running.signal(Signal::CONT);
    exec.ends(6);
    assert!(!exec.log().contains("interrupted"), "{}", exec.log());
    is_free(&cluster);
}

#[test]
fn who_is_interrupted_while_it_waits_leaves_the_queue() {
    let cluster = Cluster::start();
    let (_holder, _) = start(&cluster, "holder", &[], "ready; exec sleep 600");
    let waiting = |count: u64| {
        wait_for("the queue", || {
            let pools = cluster.json(&["pool", "list"]);
            (pools["items"][0]["waiting"] == count).then_some(())
        });
    };
    let mut command = cluster.client();
    command.args(ONE).args(["--", "true"]);
    let mut exec = Running::start(&mut command, cluster.path("waits.log"));
    waiting(1);
    exec.signal(Signal::TERM);
    exec.ends(143);
    let pools = cluster.json(&["pool", "list"]);
    assert_eq!(pools["items"][0]["waiting"], 0, "when it ended, not later");
}

#[test]
fn what_a_command_left_behind_ends_with_it() {
    let cluster = Cluster::start();
    let left = cluster.path("left");
    let script = format!("sleep 600 & echo $! > {}", left.display());
    exec(&cluster, &[], &script).ends(0, "");
    is_gone(&line_of(&left));
}

#[test]
fn a_cancelled_command_is_stopped() {
    let cluster = Cluster::start();
    let script = "trap 'exit 9' TERM; ready; while :; do sleep 0.05; done";
    let (mut exec, _) = start(&cluster, "c", &["--lease-s", "3"], script);
    let list = cluster.json(&["job", "list", "--state", "active"]);
    let id = list["items"][0]["id"].as_str().expect("the one that runs");
    cluster.run(&["job", "cancel", id]).ends(0, "told to stop");
    exec.ends(9);
    assert_eq!(cluster.job_is(id, "aborted")["reason"], "cancelled");
}

/// All of it, with nobody left to do it in order.
#[test]
fn a_killed_exec_takes_its_command_along() {
    let cluster = Cluster::start();
    let left = cluster.path("left");
    let script = format!("sleep 600 & echo $! > {}; ready; wait", left.display());
    let (mut exec, command) = start(&cluster, "k", &["--lease-s", "3"], &script);
    let left = line_of(&left);
    exec.signal(Signal::KILL);
    exec.ended();
    is_gone(&command);
    is_gone(&left);
    is_free(&cluster);
    let list = cluster.json(&["job", "list", "--state", "aborted"]);
    assert_eq!(list["items"][0]["reason"], "lease_expired");
}

#[test]
fn a_dead_cluster_is_what_the_option_says() {
    let dead = |more: &[&str]| {
        let mut command = fermata();
        command.env("FERMATA_URL", "http://127.0.0.1:1");
        command.env("FERMATA_DEADLINE_S", "1");
        command.args(ONE).args(more).args(["--", "echo", "ran"]);
        crate::harness::say(&mut command)
    };
    for refused in [
        &["--wait", "2s"][..],
        &["--skip"],
        &["--if-unreachable", "refuse"],
    ] {
        let said = dead(refused).ends(69, "could not be reached");
        assert_eq!(said.out, "", "{refused:?}");
    }
    for allowed in [
        &["--if-unreachable", "run"][..],
        &["--skip", "--if-unreachable", "run"],
    ] {
        let said = dead(allowed).ends(0, "running without a permit");
        assert_eq!(said.out, "ran\n", "{allowed:?}");
    }
}

/// A terminal's own group: else a command that reads from it would be stopped for ever.
#[test]
fn at_a_terminal_the_command_reads_and_is_interrupted_as_ever() {
    let cluster = Cluster::start();
    let exec = format!(
        "exec {} exec --key k --max 1 -- sh -c 'echo ready; read line < /dev/tty; \
         trap \"exit 7\" INT; echo got $line; while :; do sleep 0.05; done'",
        env!("CARGO_BIN_EXE_fermata")
    );
    let log = cluster.path("terminal");
    let command = cluster.client();
    // `script` gives its command a terminal, and types there what it reads. It goes through a shell,
    // which the keyboard reaches as well: one that stayed would be interrupted itself, and its end
    // be taken for the command's.
    let mut script = Command::new("script");
    script.env("SHELL", "/bin/sh");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.args(["-qefc", &exec]).arg(&log);
    script.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut script = script.spawn().expect("the package bsdutils or util-linux");
    let mut keyboard = script.stdin.take().expect("a pipe");
    let shows = |text: &str| {
        wait_for(text, || {
            let shown = std::fs::read_to_string(&log).unwrap_or_default();
            shown.contains(text).then_some(())
        });
    };
    shows("ready");
    keyboard.write_all(b"hello\n").expect("typed");
    shows("got hello");
    keyboard.write_all(b"\x03").expect("typed");
    let ended = wait_for("its end", || script.try_wait().expect("a child"));
    assert_eq!(ended.code(), Some(7));
    is_free(&cluster);
}
