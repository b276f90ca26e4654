//! From the start of a job to its process: one at a time on an idle cluster, and a released window
//! of 1,000 jobs over four workers.
//!
//! `scripts/bench/start` builds what this needs, says what it measures and what its caveats are, and
//! runs it. With the argument `stamp` it is the command of the jobs, which tells when it was there.

#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot go on says where"
)]

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use fermata_api::jobs::{JobView, JobsQuery, LaunchRequest};
use fermata_client::Client;
use fermata_e2e::{
    Cluster, ClusterOptions, DEADLINE, Worker, WorkerOptions, load, now_us, wait_for,
};
use serde_json::json;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

/// Jobs of the released window.
const WINDOW_JOBS: usize = 1_000;
/// Its length in seconds: the jobs of the window before have ended by then.
const WINDOW_S: i64 = 20;
const WORKERS: usize = 4;
/// Longest word of a command.
const WORD_BYTES_MAX: usize = 256;

/// When a job's process was there, and when its start was stamped.
struct Spawned {
    job: String,
    start_us: i64,
    at_us: i64,
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, socket] = arguments.as_slice()
        && word == "stamp"
    {
        return stamp(socket);
    }
    let rounds = arguments.get(1).map_or(Ok(200), |text| text.parse());
    let rounds = rounds.expect("a number of jobs");
    println!("load before: {}", load());
    let cluster = Cluster::start_with(ClusterOptions {
        flags: ["--profile", "fast"].map(str::to_owned).to_vec(),
        ..ClusterOptions::default()
    })
    .await;
    let socket = cluster.folder().join("stamps");
    let stamps = UnixDatagram::bind(&socket).expect("a socket");
    let workers: Vec<Worker> = (1..=WORKERS)
        .map(|number| worker(&cluster, number, &socket))
        .collect();
    let client = cluster.client();
    wait_for("the workers are online", DEADLINE, async || {
        let servers = client.servers(&Default::default()).await.ok()?.items;
        (servers.iter().filter(|server| server.online).count() == WORKERS).then_some(())
    })
    .await;
    one_by_one(&client, &stamps, rounds).await;
    window(&cluster, &client, &stamps).await;
    println!("load after: {}", load());
    for worker in workers {
        worker.stop(DEADLINE).await;
    }
}

/// Tells that it is there: by the shortest way, for it is measured.
fn stamp(socket: &str) {
    let at_us = now_us();
    let variable = |name| std::env::var(name).unwrap_or_default();
    let word = format!(
        "{} {} {at_us}",
        variable("FERMATA_JOB"),
        variable("FERMATA_START_AT_US")
    );
    let teller = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    teller
        .send_to(word.as_bytes(), socket)
        .expect("it is heard");
}

fn worker(cluster: &Cluster, number: usize, socket: &Path) -> Worker {
    let program = std::env::current_exe().expect("this program");
    let words = [program.as_path(), Path::new("stamp"), socket];
    let options = WorkerOptions {
        max_jobs: WINDOW_JOBS as u64,
        command: words.map(|word| word.display().to_string()).to_vec(),
        has_journal: false,
        ..WorkerOptions::sleeping(&format!("w{number}"), cluster.urls())
    };
    Worker::start(options, cluster.folder())
}

async fn next(stamps: &UnixDatagram) -> Spawned {
    let mut word = [0; WORD_BYTES_MAX];
    let length = timeout(DEADLINE, stamps.recv(&mut word)).await;
    let length = length.expect("a process in time").expect("a word");
    let word = String::from_utf8_lossy(&word[..length]);
    let mut parts = word.split(' ');
    let mut part = || parts.next().expect("three parts");
    Spawned {
        job: part().to_owned(),
        start_us: part().parse().expect("microseconds"),
        at_us: part().parse().expect("microseconds"),
    }
}

/// One job after the other, each when the one before has ended.
async fn one_by_one(client: &Client, stamps: &UnixDatagram, rounds: usize) {
    let (mut from_stamp, mut from_answer) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let job = client.launch(LaunchRequest::default()).await;
        let answered_us = now_us();
        let job = job.expect("a launch");
        let spawned = next(stamps).await;
        assert_eq!(spawned.job, job.id);
        from_stamp.push(spawned.at_us - spawned.start_us);
        from_answer.push(spawned.at_us - answered_us);
        client
            .job_and_wait(&job.id, fermata_api::jobs::Wait::End, DEADLINE)
            .await
            .expect("an end");
    }
    tell(
        "stamp of the start → process (the commit is in it)",
        from_stamp,
    );
    tell("launch answered, so committed → process", from_answer);
}

/// A window of 1,000 starts opens for 1,000 jobs that wait for it.
async fn window(cluster: &Cluster, client: &Client, stamps: &UnixDatagram) {
    let limits = json!([
        {"type": "job", "rate": WINDOW_JOBS, "window": WINDOW_S, "align": "utc"},
        {"type": "queue", "amount": WINDOW_JOBS},
    ]);
    cluster
        .define_event("burst", json!({"limits": limits}))
        .await;
    let window_us = WINDOW_S * 1_000_000;
    // Early in a window, so that the first half has ended before it is over.
    wait_for("the begin of a window", DEADLINE, async || {
        (now_us() % window_us < window_us / 4).then_some(())
    })
    .await;
    for half in ["first", "second"] {
        let jobs = (0..WINDOW_JOBS).map(|number| LaunchRequest {
            id: Some(format!("{half}-{number}")),
            event: Some("burst".to_owned()),
            ..LaunchRequest::default()
        });
        client.launch_batch(jobs.collect()).await.expect("a batch");
    }
    let mut spawned = HashMap::new();
    while spawned.len() < 2 * WINDOW_JOBS {
        let process = next(stamps).await;
        spawned.insert(process.job.clone(), process);
    }
    let second = |job: &str| job.starts_with("second-");
    let ends = spawned.values().filter(|it| second(&it.job));
    let ends: Vec<&Spawned> = ends.collect();
    let opened_us = ends.iter().map(|it| it.start_us).min().expect("some");
    println!(
        "window of {WINDOW_JOBS} over {WORKERS} workers, from its boundary: first start {} ms",
        (opened_us - opened_us / window_us * window_us) / 1_000
    );
    let spawned_ms = |at: usize| {
        let mut times: Vec<i64> = ends.iter().map(|it| it.at_us - opened_us).collect();
        times.sort_unstable();
        times[at * (times.len() - 1) / 100] / 1_000
    };
    println!(
        "from the first start: half spawned {} ms, all spawned {} ms",
        spawned_ms(50),
        spawned_ms(100)
    );
    let confirmed = confirmed(client).await;
    let mut handed: Vec<i64> = confirmed
        .iter()
        .filter(|job| second(&job.id))
        .filter_map(|job| Some(job.active_at?.unix_us() - opened_us))
        .collect();
    handed.sort_unstable();
    println!(
        "all handed out and confirmed by {} ms (half by {} ms): an upper bound of the hand-out",
        handed[handed.len() - 1] / 1_000,
        handed[handed.len() / 2] / 1_000
    );
}

/// All jobs of the event.
async fn confirmed(client: &Client) -> Vec<JobView> {
    let mut jobs = Vec::new();
    let mut after = None;
    loop {
        let query = JobsQuery {
            event: Some("burst".to_owned()),
            after: after.take(),
            ..JobsQuery::default()
        };
        let page = client.jobs(&query).await.expect("a page");
        jobs.extend(page.items);
        after = page.after;
        if after.is_none() {
            return jobs;
        }
    }
}

fn tell(what: &str, mut times_us: Vec<i64>) {
    times_us.sort_unstable();
    let at = |percent: usize| {
        let us = times_us[percent * (times_us.len() - 1) / 100];
        Duration::from_micros(u64::try_from(us).unwrap_or(0)).as_secs_f64() * 1_000.0
    };
    println!(
        "{what}: median {:.2} ms, 99% {:.2} ms, worst {:.2} ms of {}",
        at(50),
        at(99),
        at(100),
        times_us.len()
    );
}
