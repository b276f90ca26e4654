//! Why a job waits, what would happen, and what is done about it in an incident.

use crate::harness::{Cluster, say};

/// One at once, by a key.
const ONE: &str =
    r#"[{"type": "job", "amount": 1, "cap_key": "salesforce"}, {"type": "queue", "amount": 2}]"#;

/// A caller's job under these limits.
fn submit<'a>(id: &'a str, limits: &'a str) -> [&'a str; 8] {
    [
        "job",
        "submit",
        "--executor",
        "caller",
        "--id",
        id,
        "--limits",
        limits,
    ]
}

#[test]
fn a_job_says_why_it_waits() {
    let cluster = Cluster::start();
    cluster.run(&submit("a", ONE)).ends(0, "starting");
    cluster.run(&submit("b", ONE)).ends(0, "queued");
    cluster.run(&submit("c", ONE)).ends(0, "queued");
    let why = |id: &str| cluster.run(&["job", "why", id]);
    why("a").ends(0, "a  starting  attempt 1 on its caller  of cap:salesforce");
    why("b")
        .ends(0, "b  queued  next of its pool  of cap:salesforce")
        .ends(0, "slot  shut, waited for  -         1 of 1 run: a")
        .ends(0, "earliest start  not known");
    why("c").ends(0, "1 ahead, the first is b");
    why("nothing").ends(3, "unknown_job");
    let json = cluster.json(&["job", "why", "b"]);
    assert_eq!(json["gates"][0]["holders"][0], "a");

    let rate = r#"[{"type": "rate", "key": "mail", "count": 1, "per_seconds": 600, "style": "sliding", "mode": "wait"}]"#;
    cluster.run(&submit("d", rate)).ends(0, "starting");
    cluster.run(&submit("e", rate)).ends(0, "queued");
    let said = why("e")
        .ends(0, "rate rate:mail")
        .ends(0, "1 of 1 starts in 600 s (sliding)");
    let told = cluster.json(&["job", "why", "e"]);
    let earliest = told["earliest_at"].as_str().expect("an instant");
    let line = format!("earliest start  {earliest}");
    assert!(said.out.contains(&line), "{line:?} is not in {said:?}");
    cluster.run(&submit("g", rate)).ends(0, "queued");
    why("g")
        .ends(0, "; first e")
        .ends(0, &format!("earliest start  not before {earliest}"));
    let skip = r#"[{"type": "rate", "key": "mail", "count": 1, "per_seconds": 600, "style": "sliding", "mode": "skip"}]"#;
    let later = [&submit("h", skip)[..], &["--delay-s", "60"]].concat();
    cluster.run(&later).ends(0, "delayed");
    why("h").ends(0, "earliest start  never: it will be aborted at ");

    let nobody =
        r#"[{"type": "job", "amount": 9, "cap_key": "n"}, {"type": "queue", "amount": 2}]"#;
    let submit = ["job", "submit", "--id", "f", "--limits", nobody];
    cluster.run(&submit).ends(0, "queued");
    why("f").ends(0, "there is no server that its targets name");
}

#[test]
fn a_dry_run_says_what_would_happen_and_does_nothing() {
    let cluster = Cluster::start();
    let dry = |id: &str| cluster.run(&[&submit(id, ONE)[..], &["--dry-run"]].concat());
    dry("a").ends(0, "a  starting  attempt 1 on its caller");
    cluster.run(&["job", "show", "a"]).ends(3, "unknown_job");
    for id in ["a", "b", "c"] {
        dry(id).ends(0, "open");
    }
    cluster.run(&submit("a", ONE)).ends(0, "starting");
    dry("b").ends(0, "b  queued  next of its pool");
    cluster.run(&submit("b", ONE)).ends(0, "queued");
    cluster.run(&submit("c", ONE)).ends(0, "queued");
    dry("d")
        .ends(4, "d  aborted  queue_full")
        .ends(4, "the job would be aborted: queue_full");
    dry("a").ends(0, "a  starting");
    let other = ["job", "submit", "--id", "a", "--dry-run"];
    cluster.run(&other).ends(4, "id_conflict");
    let missing = ["job", "submit", "nothing", "--dry-run"];
    cluster.run(&missing).ends(3, "event_missing");
}

#[test]
fn a_key_is_closed_by_one_command() {
    let cluster = Cluster::start();
    let mut close = cluster.client();
    close
        .env("TZ", "Asia/Kolkata")
        .args(["override", "set", "cap:salesforce", "--amount", "0"])
        .args(["--until", "14:00", "--note", "incident 7"]);
    say(&mut close)
        .ends(0, "cap:salesforce overridden: amount 0, until 2")
        .ends(0, "T08:30:00.000Z, (incident 7)");
    cluster.run(&submit("a", ONE)).ends(0, "queued");
    cluster
        .run(&["job", "why", "a"])
        .ends(0, "0 of 0 run; overridden until 2")
        .ends(0, "T08:30:00.000Z");
    cluster
        .run(&["override", "list"])
        .ends(0, "cap:salesforce")
        .ends(0, "incident 7");
    cluster
        .run(&["pool", "show", "cap:salesforce"])
        .ends(0, "amount 0, until 2");
    cluster
        .run(&["override", "clear", "cap:salesforce", "cap:other"])
        .ends(0, "cap:other cleared");
    cluster.run(&["job", "show", "a"]).ends(0, "starting");
    let left = cluster.json(&["override", "list"]);
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0));

    let set = |more: &[&str]| cluster.run(&[&["override", "set"], more].concat());
    set(&["rate:mail", "--count", "3", "--window-s", "60"])
        .ends(0, "count 3, window 60 s, until it is cleared");
    let until = "2999-01-01T00:00:00+01:00";
    set(&["cap:k", "--amount", "7", "--until", until]).ends(0, "until 2998-12-31T23:00:00.000Z");
    set(&["cap:k", "--amount", "7", "--for", "2h"]).ends(0, "amount 7, until 2");
    set(&["rate:mail", "--amount", "1"]).ends(4, "field   amount");
    set(&["salesforce", "--amount", "0"]).ends(4, "field   id");
    set(&["cap:k", "--amount", "0", "--until", "2001-01-01T00:00:00Z"])
        .ends(4, "field   expires_at");
}

#[test]
fn a_job_that_differs_from_its_pool_is_warned() {
    let cluster = Cluster::start();
    let two = r#"[{"type": "job", "amount": 2, "rate": 9, "window": 604800, "align": "utc", "cap_key": "salesforce"}, {"type": "queue", "amount": 5}]"#;
    cluster.run(&submit("a", ONE)).ends(0, "starting");
    cluster.run(&submit("b", two)).ends(0, "starting");
    cluster
        .run(&["job", "show", "b"])
        .ends(
            0,
            "2 at once, 9 per 604800 s (utc), key salesforce (launch)",
        )
        .ends(0, "warning: amount is 2 here and 1 in job a")
        .ends(0, "warning: rate is ")
        .ends(0, "warning: queue amount is 5 here and 2 in job a")
        .ends(0, "attempt 1 started at its caller");
}
