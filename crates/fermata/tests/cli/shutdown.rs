//! How conductors and workers end: on a signal, on a second one, and when they are asked to; and
//! how commands are stopped for it.

use std::path::Path;

use fermata_api::settings::Settings;
use fermata_client::Client;
use rustix::process::Signal;

use crate::harness::{Cluster, Node, line_of, lives, wait_for};

/// A command that tells its process, and runs until the file `go` is there.
fn until_go(pids: &Path, go: &Path) -> String {
    format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.05; done",
        pids.display(),
        go.display()
    )
}

fn dies(pid: &str) {
    wait_for("the end of the command", || (!lives(pid)).then_some(()));
}

#[test]
fn a_conductor_that_cannot_end_in_order_ends_at_a_second_signal() {
    let mut cluster = Cluster::start();
    let join = ["--join", &cluster.node.peer];
    let second = Node::start(cluster.folder.path(), 2, &join);
    let third = Node::start(cluster.folder.path(), 3, &join);
    wait_for("three voters", || {
        let status = cluster.json(&["cluster", "status"]);
        let nodes = status["nodes"].as_array().expect("nodes");
        (nodes.iter().filter(|node| node["voter"] == true).count() == 3).then_some(())
    });
    // Nobody is there to whom leadership could be handed over.
    second.running.signal(Signal::STOP);
    third.running.signal(Signal::STOP);
    cluster.node.running.signal(Signal::TERM);
    cluster.node.running.logs("another signal ends at once");
    cluster.node.running.signal(Signal::TERM);
    cluster.node.running.ends(1);
    assert!(cluster.node.running.log().contains("by a second signal"));
}

#[test]
fn a_drained_worker_ends_what_it_has_and_what_it_has_not_starts_elsewhere() {
    let cluster = Cluster::start();
    let (pids, go) = (cluster.path("pids"), cluster.path("go"));
    let script = until_go(&pids, &go);
    let mut worker = cluster.worker("w1", &["--max-jobs", "1"], &script);
    let limits = r#"[{"type": "job", "amount": 9}, {"type": "queue", "amount": 9}]"#;
    let submit = |id| cluster.run(&["job", "submit", "--id", id, "--limits", limits]);
    submit("j").ends(0, "j");
    line_of(&pids);
    worker.signal(Signal::INT);
    worker.logs("draining");
    wait_for("the cluster knows", || {
        let server = &cluster.json(&["server", "list"])["items"][0];
        (server["draining"] == true).then_some(())
    });
    submit("k").ends(0, "k");
    let _other = cluster.worker("w2", &[], "true");
    cluster.run(&["job", "watch", "k"]).ends(0, "code 0");
    assert_eq!(cluster.json(&["job", "show", "k"])["server"], "w2");
    std::fs::write(&go, "").expect("a file");
    worker.ends(0);
    worker.logs("left");
    cluster.run(&["job", "watch", "j"]).ends(0, "code 0");
    // It said so: nobody had to wait until it was missed.
    let server = &cluster.json(&["server", "list"])["items"][0];
    assert_eq!(
        (&server["id"], &server["online"]),
        (&"w1".into(), &false.into())
    );
}

#[test]
fn a_second_signal_kills_what_runs_and_reports_it() {
    let cluster = Cluster::start();
    let (pids, go) = (cluster.path("pids"), cluster.path("go"));
    let script = format!("trap '' TERM; {}", until_go(&pids, &go));
    let mut worker = cluster.worker("w1", &["--max-jobs", "1"], &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    let command = line_of(&pids);
    cluster.job_is("j", "active");
    worker.signal(Signal::TERM);
    worker.logs("draining");
    assert!(lives(&command));
    worker.signal(Signal::TERM);
    worker.ends(1);
    worker.logs("1 jobs were stopped, 0 ends were not reported");
    dies(&command);
    let shown = cluster.json(&["job", "show", "j"]);
    assert_eq!(
        (&shown["state"], &shown["code"]),
        (&"complete".into(), &137.into())
    );
}

#[test]
fn a_drain_is_bounded() {
    let cluster = Cluster::start();
    let (pids, go) = (cluster.path("pids"), cluster.path("go"));
    let script = format!("trap 'echo bye; exit 9' TERM; {}", until_go(&pids, &go));
    let options = ["--max-jobs", "1", "--drain-timeout-s", "1"];
    let mut worker = cluster.worker("w1", &options, &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    line_of(&pids);
    cluster.job_is("j", "active");
    worker.signal(Signal::TERM);
    worker.ends(1);
    worker.logs("the drain timeout is over");
    let shown = cluster.json(&["job", "show", "j"]);
    assert_eq!(
        (&shown["state"], &shown["code"]),
        (&"complete".into(), &9.into())
    );
    // Its shell may tell of what it waited for, too.
    let said = shown["description"].as_str().expect("a description");
    assert!(said.ends_with("bye"), "{said}");
}

#[test]
fn a_worker_leaves_also_where_nobody_hears_it() {
    let mut cluster = Cluster::start();
    let (pids, go) = (cluster.path("pids"), cluster.path("go"));
    let mut worker = cluster.worker("w1", &["--max-jobs", "1"], &until_go(&pids, &go));
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    let command = line_of(&pids);
    cluster.job_is("j", "active");
    cluster.node.running.signal(Signal::KILL);
    cluster.node.running.ended();
    for _ in 0..2 {
        worker.signal(Signal::TERM);
        worker.logs("draining");
    }
    worker.ends(1);
    worker.logs("1 jobs were stopped, 1 ends were not reported");
    assert!(!lives(&command));
}

#[test]
fn a_server_is_drained_from_anywhere() {
    let cluster = Cluster::start();
    let (pids, go) = (cluster.path("pids"), cluster.path("go"));
    let script = until_go(&pids, &go);
    let mut worker = cluster.worker("w1", &["--max-jobs", "1"], &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    line_of(&pids);
    cluster
        .run(&["server", "drain", "w1"])
        .ends(0, "w1 drains: 1 jobs to finish");
    worker.logs("the cluster asks this worker to drain");
    cluster
        .run(&["server", "drain", "w1", "--wait", "--timeout", "1"])
        .ends(7, "server w1 has 1 jobs and its worker is there after 1 s");
    cluster.run(&["server", "list"]).ends(0, "draining");
    std::fs::write(&go, "").expect("a file");
    cluster
        .run(&["server", "drain", "w1", "--wait"])
        .ends(0, "w1 drained");
    worker.ends(0);
    cluster.run(&["job", "watch", "j"]).ends(0, "code 0");

    // Started again, it gets nothing until its server is enabled.
    let again = cluster.worker("w1", &["--max-jobs", "1"], &script);
    again.logs("the server is disabled");
    let limits = r#"[{"type": "job", "amount": 9}, {"type": "queue", "amount": 9}]"#;
    cluster
        .run(&["job", "submit", "--id", "k", "--limits", limits])
        .ends(0, "queued");
    cluster
        .run(&["server", "enable", "w1"])
        .ends(0, "w1 enabled");
    cluster.run(&["job", "watch", "k"]).ends(0, "code 0");
    cluster
        .run(&["server", "drain", "w9"])
        .ends(3, "unknown_server");
}

/// S50: the whole group is stopped.
#[test]
fn a_command_that_runs_for_too_long_is_stopped() {
    let cluster = Cluster::start();
    let pids = cluster.path("pids");
    let script = format!(
        "trap 'echo late; exit 9' TERM; sleep 600 & echo $! > {}; wait",
        pids.display()
    );
    let _worker = cluster.worker("w1", &[], &script);
    let limits = r#"[{"type": "time", "duration": 1}]"#;
    cluster
        .run(&["job", "submit", "--id", "j", "--limits", limits])
        .ends(0, "j");
    let child = line_of(&pids);
    let shown = cluster.job_is("j", "aborted");
    assert_eq!(shown["reason"], "time_limit");
    let said = shown["description"].as_str().expect("a description");
    assert!(said.ends_with("late"), "{said}");
    dies(&child);
}

/// S41: what runs has stopped before the cluster may give its slot to others, and the worker goes on
/// when there is a cluster again.
#[test]
fn a_worker_that_loses_its_lease_kills_what_it_runs() {
    let cluster = Cluster::start();
    let settings = Settings {
        server_timeout_s: 1,
        job_timeout_s: 1,
        ..Settings::default()
    };
    let client = Client::connect([&cluster.node.url]).expect("a URL");
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime
        .block_on(client.put_settings(&settings))
        .expect("settings");
    let (pids, go) = (cluster.path("pids"), cluster.path("go"));
    let script = format!("trap '' TERM; {}", until_go(&pids, &go));
    let worker = cluster.worker("w1", &["--max-jobs", "1"], &script);
    cluster.run(&["job", "submit", "--id", "j"]).ends(0, "j");
    let command = line_of(&pids);
    cluster.job_is("j", "active");
    cluster.node.running.signal(Signal::STOP);
    worker.logs("the lease ends: killing what runs");
    dies(&command);
    std::fs::write(&go, "").expect("a file");
    cluster.node.running.signal(Signal::CONT);
    wait_for("the job has ended", || {
        let shown = cluster.json(&["job", "show", "j"]);
        let is_over = shown["reason"] == "server_lost" || shown["code"] == 137;
        is_over.then_some(())
    });
    wait_for("the worker is back", || {
        let server = &cluster.json(&["server", "list"])["items"][0];
        (server["online"] == true).then_some(())
    });
    cluster
        .run(&["job", "submit", "--id", "k", "--wait", "end"])
        .ends(0, "code 0");
}
