//! The disk of a node that stands alone: whatever becomes of it, what was answered is there, or the
//! node says which file is wrong and what to do (F23, F24).
//!
//! What lies within the files is spoilt byte by byte in `crates/replica/tests/store`; here the
//! binary is killed, and its file system and its system calls fail.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fermata_api::jobs::LaunchRequest;
use fermata_client::{Client, ClientOptions};
use fermata_e2e::disk::{DiskFault, FaultyDisk, SmallDisk};
use fermata_e2e::{Cluster, ClusterOptions, DEADLINE, Process, binary, copy_folder, wait_for};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::process::Command;

/// Sets a run's random choices; a failure prints the one that it had.
const SEED_VARIABLE: &str = "FERMATA_SEED";
const KILLS: u32 = 8;
/// Clients that launch at once.
const LAUNCHERS: u64 = 4;
/// What a node takes to come up, and a little.
const DISK_BYTES: u64 = 24 << 20;

fn waiting(id: String) -> LaunchRequest {
    let request = json!({"event": "hold", "executor": "caller", "lease_s": 3_600});
    LaunchRequest {
        id: Some(id),
        ..serde_json::from_value(request).expect("a launch")
    }
}

async fn define(cluster: &Cluster) {
    let limits = json!([{"type": "job", "amount": 1}, {"type": "queue", "amount": 1_000_000}]);
    cluster
        .define_event("hold", json!({"limits": limits}))
        .await;
}

/// A client that does not wait for a node that is gone.
fn impatient(cluster: &Cluster) -> Client {
    cluster.client_with(ClientOptions {
        deadline: Duration::from_secs(1),
        answer_timeout: Duration::from_secs(1),
        ..ClientOptions::default()
    })
}

/// Launches until one is not answered; answers how many were.
async fn launch_until_it_fails(client: &Client, name: &str, answered: &AtomicU64) -> u64 {
    for number in 0.. {
        let launched = client.launch(waiting(format!("{name}-{number}"))).await;
        if launched.is_err() {
            return number;
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("one fails")
}

/// Every job that was answered is there.
async fn must_have(cluster: &Cluster, name: &str, jobs: u64) {
    let client = cluster.client();
    for number in 0..jobs {
        let id = format!("{name}-{number}");
        let job = client.job(&id).await;
        job.unwrap_or_else(|error| panic!("{id} was answered, and then: {error}"));
    }
}

/// What `fermata inspect` says of its folder: it is whole.
async fn must_be_whole(cluster: &Cluster) {
    let mut command = Command::new(binary());
    command.arg("inspect").arg(&cluster.node(1).data);
    let output = command.output().await.expect("the binary runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_it_keeps_what_it_answered() {
    let given = std::env::var(SEED_VARIABLE).ok();
    let given = given.and_then(|text| text.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    println!("REPRODUCE WITH: {SEED_VARIABLE}={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::of(1).await;
    define(&cluster).await;
    for kill in 0..KILLS {
        let answered = Arc::new(AtomicU64::new(0));
        let launchers: Vec<_> = (0..LAUNCHERS)
            .map(|launcher| {
                let (client, answered) = (impatient(&cluster), Arc::clone(&answered));
                let name = format!("k{kill}-{launcher}");
                tokio::spawn(async move { launch_until_it_fails(&client, &name, &answered).await })
            })
            .collect();
        let wanted = random.random_range(1..60);
        wait_for("some launches are answered", DEADLINE, async || {
            (answered.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
        cluster.kill(1).await;
        let mut counts = Vec::new();
        for launcher in launchers {
            counts.push(launcher.await.expect("a launcher"));
        }
        must_be_whole(&cluster).await;
        cluster.start_node(1).await;
        cluster.leader().await;
        for (launcher, jobs) in counts.into_iter().enumerate() {
            must_have(&cluster, &format!("k{kill}-{launcher}"), jobs).await;
        }
    }
}

/// A node on a disk of its own.
async fn on_a_small_disk() -> (Cluster, SmallDisk) {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = SmallDisk::mount(&folder.path().join("node-1"), DISK_BYTES);
    let options = ClusterOptions {
        nodes: 1,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start_in(folder, options).await;
    define(&cluster).await;
    (cluster, disk)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_it_and_costs_nothing_that_was_answered() {
    let (mut cluster, disk) = on_a_small_disk().await;
    let answered = AtomicU64::new(0);
    disk.fill();
    let jobs = launch_until_it_fails(&impatient(&cluster), "full", &answered).await;
    let exit = cluster.ended(1).await;
    assert!(!exit.status.success(), "{}", exit.status);
    assert!(
        exit.output.contains("No space left on device"),
        "{}",
        exit.output
    );

    // As long as it is full, it says so and stays away, or it comes up with everything.
    disk.widen();
    must_be_whole(&cluster).await;
    cluster.start_node(1).await;
    cluster.leader().await;
    must_have(&cluster, "full", jobs).await;
    launch_one(&cluster, "after").await;
    cluster.stop(1).await;
    drop(disk);
}

async fn launch_one(cluster: &Cluster, id: &str) {
    let launched = cluster.client().launch(waiting(id.to_owned())).await;
    launched.expect("a launch");
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_to_is_refused() {
    let (mut cluster, disk) = on_a_small_disk().await;
    launch_one(&cluster, "kept-0").await;
    cluster.stop(1).await;
    disk.protect();
    let command = cluster.serve_command(1);
    let exit = Process::start("protected", command, cluster.folder());
    let exit = exit.ended(DEADLINE).await;
    assert!(!exit.status.success(), "{}", exit.output);
    let data = cluster.node(1).data.display().to_string();
    assert!(exit.output.contains(&data), "{}", exit.output);
    assert!(
        exit.output.contains("Read-only file system"),
        "{}",
        exit.output
    );
    // To look at it nothing need be written there.
    must_be_whole(&cluster).await;

    disk.unprotect();
    cluster.start_node(1).await;
    cluster.leader().await;
    must_have(&cluster, "kept", 1).await;
    cluster.stop(1).await;
    drop(disk);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_is_not_answered_and_ends_it() {
    let mut cluster = Cluster::of(1).await;
    define(&cluster).await;
    let answered = AtomicU64::new(0);
    launch_one(&cluster, "before-0").await;
    let process = cluster.node(1).process().id();
    let disk = FaultyDisk::under(process, DiskFault::Failing).await;
    let jobs = launch_until_it_fails(&impatient(&cluster), "failing", &answered).await;
    assert_eq!(jobs, 0, "what was not synced was answered");
    let exit = cluster.ended(1).await;
    drop(disk);
    assert!(!exit.status.success(), "{}", exit.status);
    assert!(
        exit.output.contains("Input/output error"),
        "{}",
        exit.output
    );

    must_be_whole(&cluster).await;
    cluster.start_node(1).await;
    cluster.leader().await;
    must_have(&cluster, "before", 1).await;
    launch_one(&cluster, "after").await;
}

/// Durable before answered, seen from outside.
#[tokio::test]
async fn no_launch_is_answered_before_its_sync_has_ended() {
    const DELAY: Duration = Duration::from_millis(400);
    let cluster = Cluster::of(1).await;
    define(&cluster).await;
    let process = cluster.node(1).process().id();
    let disk = FaultyDisk::under(process, DiskFault::Slow(DELAY)).await;
    for number in 0..3 {
        let sent = Instant::now();
        launch_one(&cluster, &format!("slow-{number}")).await;
        assert!(
            sent.elapsed() >= DELAY,
            "answered after {:?}",
            sent.elapsed()
        );
    }
    disk.mend().await;
    launch_one(&cluster, "quick").await;
}

/// A follower whose folder is put back to what it was some entries ago lacks what it had
/// acknowledged. It is not counted again, the leader says so, and goes on with the others.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_backup_of_a_follower_is_refused_and_costs_nothing_that_was_answered() {
    let mut cluster = Cluster::start().await;
    define(&cluster).await;
    launch_one(&cluster, "before-0").await;
    let follower = cluster.follower().await;
    let data = cluster.node(follower).data.clone();
    let backup = cluster.folder().join("backup");
    cluster.stop(follower).await;
    copy_folder(&data, &backup);
    cluster.start_node(follower).await;
    let leader = cluster.leader().await;
    for number in 0..20 {
        launch_one(&cluster, &format!("meanwhile-{number}")).await;
    }
    cluster.stop(follower).await;
    fs::remove_dir_all(&data).expect("its folder");
    copy_folder(&backup, &data);
    cluster.start_node(follower).await;

    let told = format!("node {follower} lacks entry");
    wait_for("the leader says so", DEADLINE, async || {
        let said = cluster.node(leader).process().output();
        said.contains(&told).then_some(())
    })
    .await;
    let said = cluster.node(leader).process().output();
    assert!(
        said.contains("with an empty folder under a new node id"),
        "{said}"
    );
    launch_one(&cluster, "after-0").await;
    let view = cluster.view(leader).await.expect("the leader goes on");
    assert_eq!(view.leader, Some(leader), "{view:?}");
    must_have(&cluster, "before", 1).await;
    must_have(&cluster, "meanwhile", 20).await;
    must_have(&cluster, "after", 1).await;
}
