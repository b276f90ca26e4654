//! `fermata inspect`: it tells what a node would find, refuses what a node would refuse, and leaves
//! the folder as it was.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::path::{Path, PathBuf};

use fermata_api::bounds::PARAMS_BYTES_MAX;
use fermata_api::jobs::LaunchRequest;
use fermata_api::params::Params;
use fermata_api::settings::Settings;
use fermata_e2e::{Cluster, DEADLINE, binary, contents, copy_folder, wait_for};
use serde_json::{Value, json};
use tokio::process::Command;

/// Jobs in one request.
const BATCH_JOBS: usize = 50;

struct Said {
    code: Option<i32>,
    answer: Value,
    error: String,
}

/// Inspects a folder, and sees that nothing of it was changed.
async fn inspect(data: &Path) -> Said {
    let before = data.is_dir().then(|| contents(data));
    let mut command = Command::new(binary());
    command.arg("inspect").arg(data).args(["--output", "json"]);
    let output = command.output().await.expect("the binary runs");
    if let Some(before) = before {
        assert!(contents(data) == before, "{} was changed", data.display());
    }
    Said {
        code: output.status.code(),
        answer: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// It is refused, with the file and what to do.
async fn refused(data: &Path, file: &Path, remedy: &str) {
    let said = inspect(data).await;
    let error = &said.error;
    assert_eq!(said.code, Some(1), "{error}");
    let file = data.join(file).display().to_string();
    assert!(error.contains(&file), "{file} is not in {error}");
    assert!(error.contains(remedy), "{remedy} is not in {error}");
    assert_eq!(said.answer, Value::Null);
}

const DAMAGED: &str = "restore the folder from a backup";
const NOT_WHOLE: &str = "with an empty folder under a new node id";

/// A node that has held a job and launched some.
async fn used() -> Cluster {
    let cluster = Cluster::of(1).await;
    let limits = json!([{"type": "job", "amount": 1}, {"type": "queue", "amount": 100}]);
    cluster
        .define_event("hold", json!({"limits": limits}))
        .await;
    for number in 0..10 {
        launch(&cluster, number).await;
    }
    cluster
}

async fn launch(cluster: &Cluster, number: u64) {
    let request = json!({"id": format!("job-{number}"), "event": "hold", "executor": "caller",
        "lease_s": 3_600});
    let request = serde_json::from_value(request).expect("a launch");
    cluster.client().launch(request).await.expect("a launch");
}

fn wal_files(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("log")).expect("the log");
    let paths = entries.map(|entry| entry.expect("listed").path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "wal"))
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_stopped_or_killed_node_is_told_and_a_running_one_refused() {
    let mut cluster = used().await;
    let data = cluster.node(1).data.clone();

    let running = Command::new(binary())
        .arg("inspect")
        .arg(&data)
        .output()
        .await;
    let running = running.expect("the binary runs");
    let error = String::from_utf8_lossy(&running.stderr);
    assert_eq!(running.status.code(), Some(2), "{error}");
    assert!(
        error.contains("in use by another process: stop it"),
        "{error}"
    );

    let cluster_id = cluster.view(1).await.expect("it runs").cluster_id;
    cluster.stop(1).await;
    let stopped = inspect(&data).await;
    assert_eq!(stopped.code, Some(0), "{}", stopped.error);
    let answer = &stopped.answer;
    assert_eq!(answer["identity"]["cluster_id"], json!(cluster_id));
    assert_eq!(answer["identity"]["node"], json!(1));
    assert_eq!(answer["members"]["voters"], json!([[1]]));
    assert_eq!(answer["log"]["torn_bytes"], json!(0));
    assert_eq!(answer["state"]["pools"], json!(1));
    assert_eq!(answer["flaw"], Value::Null);
    // The last entry is committed, and only the next one would have said so.
    let jobs = &answer["state"]["jobs"];
    assert_eq!(jobs["starting"], json!(1), "{answer}");
    assert!(jobs["queued"].as_u64() >= Some(8), "{answer}");
    assert_eq!(inspect(&data).await.answer, stopped.answer);
    let mut within = Command::new(binary());
    within.arg("inspect").arg(&data).arg("--scratch").arg(&data);
    let within = within.output().await.expect("the binary runs");
    assert_eq!(within.status.code(), Some(2));

    cluster.start_node(1).await;
    cluster.leader().await;
    launch(&cluster, 10).await;
    cluster.kill(1).await;
    let killed = inspect(&data).await;
    assert_eq!(killed.code, Some(0), "{}", killed.error);
    assert_ne!(killed.answer["state"]["digest"], answer["state"]["digest"]);
    cluster.start_node(1).await;
    cluster.leader().await;
}

#[tokio::test]
async fn what_is_damaged_is_named_with_what_to_do() {
    let mut cluster = used().await;
    let mut other = used().await;
    cluster.stop(1).await;
    other.stop(1).await;
    let (origin, theirs) = (&cluster.node(1).data, &other.node(1).data);
    let log = wal_files(origin).remove(0);
    let log = log.strip_prefix(origin).expect("within");
    let bytes = fs::read(origin.join(log)).expect("the log");
    let spoilt = |name: &str, spoil: &dyn Fn(&Path)| {
        let data = cluster.folder().join(name);
        copy_folder(origin, &data);
        spoil(&data);
        data
    };

    let torn = spoilt("torn", &|data| {
        fs::write(data.join(log), &bytes[..bytes.len() - 3]).expect("a file");
    });
    let said = inspect(&torn).await;
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.answer["log"]["torn_bytes"].as_u64() > Some(0));

    let flipped = spoilt("flipped", &|data| {
        let mut bytes = bytes.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        fs::write(data.join(log), bytes).expect("a file");
    });
    refused(&flipped, log, DAMAGED).await;

    let no_log = spoilt("no-log", &|data| {
        fs::remove_file(data.join(log)).expect("a file");
    });
    refused(&no_log, Path::new("log"), NOT_WHOLE).await;

    let identity = Path::new("log/IDENTITY");
    let nameless = spoilt("nameless", &|data| {
        fs::remove_file(data.join(identity)).expect("a file");
    });
    refused(&nameless, identity, NOT_WHOLE).await;

    let no_state = spoilt("no-state", &|data| {
        fs::remove_dir_all(data.join("state")).expect("a folder");
    });
    refused(&no_state, Path::new("state"), NOT_WHOLE).await;

    let mixed = spoilt("mixed", &|data| {
        fs::remove_dir_all(data.join("state")).expect("a folder");
        copy_folder(&theirs.join("state"), &data.join("state"));
    });
    refused(&mixed, identity, NOT_WHOLE).await;

    for nothing in ["absent", "empty"] {
        let data = cluster.folder().join(nothing);
        if nothing == "empty" {
            fs::create_dir(&data).expect("a folder");
        }
        let said = inspect(&data).await;
        assert_eq!(said.code, Some(2), "{}", said.error);
        assert!(
            said.error.contains(&data.display().to_string()),
            "{}",
            said.error
        );
    }
    assert!(!cluster.folder().join("absent").exists());
}

/// A log that is so long that the node takes a snapshot and purges it, though nothing is kept of
/// what it says.
async fn with_a_snapshot() -> Cluster {
    let cluster = Cluster::of(1).await;
    let client = cluster.client();
    let settings = Settings {
        params_bytes_max: PARAMS_BYTES_MAX as u64,
        finished_max: 1,
        ..Settings::default()
    };
    client.put_settings(&settings).await.expect("settings");
    cluster.define_event("gone", json!({})).await;
    let params = format!("\"{}\"", "x".repeat(PARAMS_BYTES_MAX - 2));
    let params = Params::from_json(&params).expect("a string");
    let data = cluster.node(1).data.clone();
    let first = wal_files(&data).remove(0);
    wait_for("the log's beginning was purged", 4 * DEADLINE, async || {
        let launch = LaunchRequest {
            event: Some("gone".to_owned()),
            params: Some(params.clone()),
            ..LaunchRequest::default()
        };
        // There is no server: each is aborted at once, and forgotten with the next one.
        let launched = client.launch_batch(vec![launch; BATCH_JOBS]).await;
        launched.expect("a batch");
        (!first.exists()).then_some(())
    })
    .await;
    cluster
}

#[tokio::test]
async fn a_snapshot_that_is_damaged_is_named_with_what_to_do() {
    let mut cluster = with_a_snapshot().await;
    cluster.stop(1).await;
    let data = cluster.node(1).data.clone();
    let whole = inspect(&data).await;
    assert_eq!(whole.code, Some(0), "{}", whole.error);
    let answer = &whole.answer;
    let snapshots = answer["snapshots"].as_array().expect("a list");
    assert_eq!(snapshots.len(), 1, "{answer}");
    let index = |place: &Value| place["index"].as_u64();
    assert!(
        index(&snapshots[0]["last"]) >= index(&answer["log"]["purged"]),
        "{answer}"
    );

    // In every row of every chunk there is a word of the definition.
    let file = data.join("state/db");
    let mut bytes = fs::read(&file).expect("the database");
    let places: Vec<usize> = (0..bytes.len() - 4)
        .filter(|at| bytes[*at..].starts_with(b"gone"))
        .collect();
    assert!(!places.is_empty(), "no chunk lies there as it is");
    for at in places {
        bytes[at] ^= 0x20;
    }
    fs::write(&file, bytes).expect("the database");
    refused(&data, Path::new("state"), "new node id").await;
}
