//! The commands over HTTP: what they show, and the exit codes that scripts go by.

use std::io::Write;
use std::process::Stdio;

use crate::harness::{Cluster, run};

const QUEUED: &str = r#"[{"type": "job", "amount": 1}, {"type": "queue", "amount": 9}]"#;

#[test]
fn exit_codes_say_what_became_of_it() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1", &["--max-jobs", "2"], "exit $(cat)");

    let submit = |more: &[&str]| cluster.run(&[&["job", "submit"], more].concat());
    submit(&["--params", "0", "--wait", "end"]).ends(0, "complete  code 0");
    submit(&["--params", "3", "--wait", "end"]).ends(1, "ended with code 3");
    submit(&["--params", "{"]).ends(2, "--params");
    submit(&["--params", "@/nowhere"]).ends(2, "/nowhere");
    submit(&["--limits", r#"[{"type": "job", "amount": -1}]"#]).ends(2, "limits[0].amount");
    submit(&["nothing"]).ends(3, "event_missing");
    cluster
        .run(&["job", "show", "nothing"])
        .ends(3, "unknown_job");
    cluster
        .run(&["job", "watch", "nothing"])
        .ends(3, "unknown_job");
    cluster
        .run(&["job", "cancel", "nothing"])
        .ends(3, "unknown_job");
    cluster
        .run(&["pool", "show", "event:no"])
        .ends(3, "unknown_pool");
    cluster
        .run(&["server", "enable", "no"])
        .ends(3, "unknown_server");
    submit(&["--id", "a b"]).ends(4, "field   id");
    submit(&["--target", "nobody"]).ends(4, "no_server");
    submit(&["--limits", r#"[{"type": "job", "rate": 1}]"#]).ends(4, "limits[0].window");
    submit(&["--id", "once", "--params", "0"]).ends(0, "once");
    submit(&["--id", "once", "--params", "0"]).ends(0, "once");
    submit(&["--id", "once", "--params", "1"]).ends(4, "id_conflict");
    let unserved = ["--id", "later", "--target", "nobody", "--limits", QUEUED];
    let timeout = ["--wait", "start", "--timeout", "1"];
    submit(&[&unserved[..], &timeout].concat()).ends(7, "later is queued after 1 s");
    cluster
        .run(&["job", "watch", "later", "--timeout", "1"])
        .ends(7, "later is queued");
    cluster.run(&["job", "cancel", "later"]).ends(0, "aborted");
    cluster
        .run(&["job", "watch", "later"])
        .ends(1, "was aborted: cancelled");
    cluster.run(&["job", "cancel", "later"]).ends(4, "final");
    let nobody = [
        "job",
        "list",
        "--url",
        "http://127.0.0.1:9",
        "--deadline-s",
        "1",
    ];
    run(&nobody).ends(5, "nothing was done");
    run(&["job", "list", "--url", "https://h"]).ends(2, "http://HOST:PORT");
}

#[test]
fn json_is_for_scripts_on_both_streams() {
    let cluster = Cluster::start();
    let submit = [
        "job",
        "submit",
        "--id",
        "j",
        "--params",
        "{\"a\": 1}",
        "--limits",
        QUEUED,
    ];
    let job = cluster.json(&[&submit[..], &["--target", "nobody", "--priority", "-5"]].concat());
    assert_eq!(job["state"], "queued");
    assert_eq!(job["priority"], -5);
    let shown = cluster.json(&["job", "show", "j"]);
    assert_eq!(shown["params"]["a"], 1);
    let said = cluster.run(&["job", "show", "no", "--output", "json"]);
    assert_eq!(said.out, "");
    let error: serde_json::Value = serde_json::from_str(&said.err).expect("JSON");
    assert_eq!(error["error"]["exit_code"], 3);
    assert_eq!(error["error"]["problem"]["code"], "unknown_job");
}

#[test]
fn lists_go_on_where_they_ended() {
    let cluster = Cluster::start();
    let submit = [
        "job", "submit", "--target", "nobody", "--limits", QUEUED, "--count", "5",
    ];
    let said = cluster.run(&submit).ends(0, "next of its pool");
    assert_eq!(said.out.lines().count(), 5, "{said:?}");

    let all = cluster.json(&["job", "list", "--state", "queued"]);
    let all = all["items"].as_array().expect("items");
    assert_eq!(all.len(), 5);
    let first = cluster.json(&["job", "list", "--limit", "3"]);
    let after = first["after"].as_str().expect("more");
    cluster
        .run(&["job", "list", "--limit", "3"])
        .ends(0, &format!("--after {after}"));
    let rest = cluster.json(&["job", "list", "--limit", "3", "--after", after]);
    let ids = |page: &serde_json::Value| {
        let items = page["items"].as_array().expect("items");
        let ids = items.iter().map(|job| job["id"].to_string());
        ids.collect::<Vec<_>>()
    };
    let whole = serde_json::json!({ "items": all });
    assert_eq!([ids(&first), ids(&rest)].concat(), ids(&whole));
    cluster
        .run(&["job", "list", "--state", "active"])
        .ends(0, "JOB");
}

#[test]
fn many_launches_tell_which_were_refused() {
    let cluster = Cluster::start();
    let limits =
        r#"[{"type": "job", "amount": 1, "cap_key": "k"}, {"type": "queue", "amount": 2}]"#;
    let submit = [
        "job", "submit", "--target", "nobody", "--limits", limits, "--count", "3",
    ];
    let said = cluster.run(&submit).ends(4, "1 of 3 were refused");
    assert_eq!(said.out.matches("queued").count(), 2, "{said:?}");
    assert_eq!(
        said.out.matches("refused  queue_full").count(),
        1,
        "{said:?}"
    );
}

#[test]
fn events_come_from_files() {
    let cluster = Cluster::start();
    let json = cluster.file(
        "one.json",
        r#"{"id": "one", "limits": [{"type": "job", "amount": 5}]}"#,
    );
    let toml = cluster.file(
        "two.toml",
        "[[events]]\nid = \"two\"\ntargets = [\"main\"]\n[[events.limits]]\ntype = \"job\"\nrate = 30\nwindow = 10\nalign = \"utc\"\n\n[[events]]\nid = \"three\"\nenabled = false\n",
    );
    let said = cluster
        .run(&["event", "apply", "-f", &json, "-f", &toml])
        .ends(0, "one applied");
    assert_eq!(said.out.lines().count(), 3, "{said:?}");
    cluster.run(&["event", "list"]).ends(0, "30 per 10 s (utc)");
    cluster
        .run(&["event", "show", "three"])
        .ends(0, "enabled         no");
    cluster
        .run(&["job", "submit", "three"])
        .ends(4, "event_disabled");

    let mut piped = cluster.client();
    piped.args(["event", "apply", "-f", "-"]);
    piped.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("the binary runs");
    let list = br#"[{"id": "four"}, {"id": "five"}]"#;
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(list)
        .expect("it reads");
    assert!(child.wait_with_output().expect("it ends").status.success());
    cluster
        .run(&["event", "delete", "four", "five"])
        .ends(0, "five deleted");
    cluster
        .run(&["event", "show", "five"])
        .ends(3, "event_missing");

    let old = cluster.file("old.json", r#"{"id": "one", "revision": 77}"#);
    cluster
        .run(&["event", "apply", "-f", &old])
        .ends(4, "revision_conflict");
}

#[test]
fn a_file_with_a_fault_changes_nothing() {
    let cluster = Cluster::start();
    let good = cluster.file("good.json", r#"{"id": "good"}"#);
    let faults = [
        ("a.json", r#"{"id": "a", "limit": []}"#, "limit"),
        ("b.json", r#"{"title": "no id"}"#, "id"),
        (
            "c.json",
            r#"[{"id": "c"}, {"id": "d", "priority": 200}]"#,
            "event 2",
        ),
        ("d.json", "{", "invalid_json"),
        ("e.json", "[1]", "an event: an object"),
        ("f.toml", "id = ", "line 1"),
        (
            "g.toml",
            "id = \"g\"\n[[limits]]\ntype = \"job\"\namount = \"5\"\n",
            "limits[0].amount",
        ),
        ("h.toml", "[[events]]\nid = 4\n", "id"),
    ];
    for (name, text, names) in faults {
        let bad = cluster.file(name, text);
        let said = cluster.run(&["event", "apply", "-f", &good, "-f", &bad]);
        said.ends(2, name).ends(2, names);
    }
    let events = cluster.json(&["event", "list"]);
    assert_eq!(events["items"].as_array().map(Vec::len), Some(0));
}

#[test]
fn pools_and_servers_are_shown_and_changed() {
    let cluster = Cluster::start();
    let event = r#"{"id": "e", "limits": [{"type": "job", "rate": 2, "window": 604800, "align": "utc"},
                                          {"type": "queue", "amount": 10}]}"#;
    let event = cluster.file("e.json", event);
    cluster
        .run(&["event", "apply", "-f", &event])
        .ends(0, "applied");
    let mut worker = cluster.worker("w1", &["--group", "main", "--max-jobs", "3"], "true");
    for id in ["a", "b"] {
        let submit = ["job", "submit", "e", "--id", id, "--wait", "end"];
        cluster.run(&submit).ends(0, "code 0");
    }
    cluster
        .run(&["job", "submit", "e", "--id", "c"])
        .ends(0, "queued");
    cluster
        .run(&["pool", "list"])
        .ends(0, "2/2")
        .ends(0, "its rate");
    cluster
        .run(&["pool", "show", "event:e"])
        .ends(0, "2 per 604800 s (fixed, utc)");
    cluster
        .run(&["pool", "reset", "event:e"])
        .ends(0, "event:e reset");
    cluster.run(&["job", "watch", "c"]).ends(0, "code 0");
    cluster
        .run(&["pool", "reset", "--all"])
        .ends(0, "all windows reset");

    cluster
        .run(&["server", "list"])
        .ends(0, "main")
        .ends(0, "0/3");
    cluster
        .run(&["server", "disable", "w1"])
        .ends(0, "w1 disabled");
    cluster
        .run(&["job", "submit", "e", "--id", "d"])
        .ends(0, "queued");
    // A worker that comes back does not enable what somebody disabled.
    worker.signal(rustix::process::Signal::TERM);
    worker.ends(0);
    let again = cluster.worker("w1", &[], "true");
    again.logs("the server is disabled");
    cluster.run(&["job", "show", "d"]).ends(0, "queued");
    cluster
        .run(&["server", "enable", "w1"])
        .ends(0, "w1 enabled");
    cluster.run(&["job", "watch", "d"]).ends(0, "code 0");
}

#[test]
fn what_jobs_say_cannot_move_the_cursor() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1", &[], r"printf '\033[2Jred\nline\n'");
    let submit = ["job", "submit", "--id", "j", "--wait", "end"];
    cluster.run(&submit).ends(0, "code 0");
    let said = cluster
        .run(&["job", "show", "j"])
        .ends(0, "\u{fffd}[2Jred\n  line");
    assert!(!said.out.contains('\u{1b}'), "{said:?}");
}
