//! Nodes as processes: how they start, what they refuse, how they end.

use rustix::process::Signal;

use crate::harness::{Cluster, Node, fermata, run, say, wait_for};

#[test]
fn what_was_answered_is_there_after_a_restart() {
    let mut cluster = Cluster::start();
    let event = cluster.file("event.json", r#"{"id": "kept", "title": "Kept"}"#);
    cluster
        .run(&["event", "apply", "-f", &event])
        .ends(0, "revision 1");
    cluster.run(&["audit"]).ends(0, "anonymous@127.0.0.1");
    cluster.node.running.signal(Signal::TERM);
    cluster.node.running.ends(0);
    cluster.node.running.logs("stopped");
    assert!(!cluster.path("ready-1").exists());

    // It goes on with what its folder knows, whatever else it is told.
    cluster.node = Node::start(cluster.folder.path(), 1, &[]);
    cluster.run(&["event", "list"]).ends(0, "Kept");
    let audit = cluster.json(&["audit"]);
    assert_eq!(audit["items"][0]["action"], "put_event", "{audit}");
    assert_eq!(audit["items"][0]["target"], "kept", "{audit}");
    cluster.node.running.signal(Signal::KILL);
    cluster.node.running.ended();
    cluster.node = Node::start(cluster.folder.path(), 1, &["--bootstrap"]);
    cluster.run(&["event", "list"]).ends(0, "Kept");
}

#[test]
fn what_is_anothers_is_left_alone() {
    let mut cluster = Cluster::start();
    let folder = cluster.path("node-1").display().to_string();
    let other = cluster.path("other").display().to_string();
    let (address, peer) = (cluster.node.address.clone(), cluster.node.peer.clone());
    let serve = |id: &str, data: &str, listen: &str, peer: &str, start: &[&str]| {
        let places = ["--listen", listen, "--peer-listen", peer];
        run(&[&["serve", "--id", id, "--data", data][..], &places, start].concat())
    };
    let any = "127.0.0.1:0";
    serve("1", &folder, any, any, &[]).ends(2, "in use by another process");
    serve("2", &other, &address, any, &["--bootstrap"]).ends(2, &address);
    serve("2", &other, any, &peer, &["--bootstrap"]).ends(2, &peer);
    serve("2", &other, any, any, &[]).ends(2, "--bootstrap founds");
    let file = cluster.file("a-file", "");
    serve("2", &file, any, any, &["--bootstrap"]).ends(2, "is no folder");
    assert!(!cluster.path("other").exists());

    cluster.node.running.signal(Signal::TERM);
    cluster.node.running.ends(0);
    serve("2", &folder, any, any, &["--bootstrap"]).ends(2, "node");
    cluster.node = Node::start(cluster.folder.path(), 1, &[]);
}

/// What every node tells of itself.
const TOLD: [&str; 7] = [
    "time_zone",
    "tzdb",
    "term",
    "applied",
    "last_index",
    "clock_skew_ms",
    "version",
];

#[test]
fn a_leader_that_is_told_to_end_hands_over() {
    let mut cluster = Cluster::start();
    let join = ["--join", &cluster.node.peer];
    let second = Node::start(cluster.folder.path(), 2, &join);
    let third = Node::start(cluster.folder.path(), 3, &join);
    wait_for("three voters", || {
        let said = cluster.run(&["--output", "json", "cluster", "status"]);
        let status = (said.code == Some(0)).then(|| said.json())?;
        let nodes = status["nodes"].as_array().expect("nodes");
        (nodes.iter().filter(|node| node["voter"] == true).count() == 3).then_some(())
    });
    let status = wait_for("every node's word", || {
        let said = cluster.run(&["--output", "json", "cluster", "status"]);
        let status = (said.code == Some(0)).then(|| said.json())?;
        let nodes = status["nodes"].as_array().expect("nodes");
        // What a node said just before it had applied anything is told for a moment.
        let says_all = |node: &serde_json::Value| TOLD.iter().all(|field| !node[field].is_null());
        let all_say = nodes.iter().all(says_all);
        all_say.then_some(status)
    });
    assert_eq!(
        status["warnings"],
        serde_json::json!([]),
        "one machine, one zone"
    );
    cluster.run(&["cluster", "status"]).ends(0, "TZDB");
    for node in ["2", "1"] {
        // Repeated until the cluster does it: on a busy machine there may be elections meanwhile.
        let said = wait_for("a transfer", || {
            let said = cluster.run(&["cluster", "transfer", "--to", node]);
            (said.code == Some(0)).then_some(said)
        });
        said.ends(0, &format!("node {node} leads"));
    }
    cluster
        .run(&["cluster", "transfer", "--to", "9"])
        .ends(3, "unknown_member");

    cluster.node.running.signal(Signal::TERM);
    cluster.node.running.ends(0);
    cluster.node.running.logs("leadership was handed over");
    let urls = format!("{},{},{}", cluster.node.url, second.url, third.url);
    let limit = r#"[{"type": "job", "amount": 1}, {"type": "queue", "amount": 1}]"#;
    let mut submit = fermata();
    submit.args(["job", "submit", "--url", &urls, "--limits", limit]);
    say(&mut submit).ends(0, "queued");
    let mut remove = fermata();
    remove.args(["cluster", "remove", "1", "--url", &urls]);
    let said = say(&mut remove).ends(0, "leads");
    assert!(!said.out.contains(&cluster.node.url), "{said:?}");
}

#[test]
fn dev_is_a_whole_system() {
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    let mut command = fermata();
    command
        .args([
            "dev",
            "--listen",
            "127.0.0.1:0",
            "--peer-listen",
            "127.0.0.1:0",
        ])
        .arg("--ready-file")
        .arg(&ready);
    let mut dev = crate::harness::Running::start(&mut command, folder.path().join("log"));
    dev.logs("working");
    let addresses = std::fs::read_to_string(&ready).expect("a ready file");
    let addresses: serde_json::Value = serde_json::from_str(&addresses).expect("JSON");
    let url = addresses["client_url"].as_str().expect("a URL");
    let submit = [
        "job", "submit", "--url", url, "--id", "echo", "--params", "[1, 2]",
    ];
    run(&[&submit[..], &["--wait", "end"]].concat()).ends(0, "code 0");
    run(&["job", "show", "echo", "--url", url]).ends(0, "description\n  [1, 2]\n");
    dev.signal(Signal::INT);
    dev.ends(0);
}
