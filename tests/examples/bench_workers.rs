//! What idle workers cost the leader.
//!
//! `scripts/bench/workers` builds what this needs, says what it measures and what its caveats are,
//! and runs it.

#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot go on says where"
)]

use std::time::{Duration, Instant};

use fermata_api::servers::ServerBody;
use fermata_client::worker::{Ending, Run, WorkerOptions};
use fermata_client::{Client, ClientOptions};
use fermata_e2e::{Cluster, DEADLINE, load, wait_for};
use tokio::task::JoinSet;

/// Kernel ticks of processor time in a second (`USER_HZ`, the same on all Linux).
const TICKS_PER_S: f64 = 100.0;
/// How long all workers may take to be there.
const ARRIVE_MAX: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() {
    let mut counts = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let workers = counts.next().unwrap_or(Ok(2_000)).expect("a number");
    let seconds = counts.next().unwrap_or(Ok(60)).expect("seconds");
    println!("load before: {}", load());
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let pid = cluster.node(leader).process().id();
    let idle = cpu_over(pid, seconds / 2).await;
    let rss_before = rss_kib(pid);

    let client = cluster.client();
    let mut polling = JoinSet::new();
    for number in 0..workers {
        let server = format!("w{number}");
        let body = ServerBody {
            groups: Vec::new(),
            max_jobs: Some(1),
            enabled: true,
        };
        client.put_server(&server, &body).await.expect("a server");
        // As separate processes would be: each with connections of its own.
        let own = ClientOptions {
            connections_max: 2,
            ..ClientOptions::default()
        };
        let own = Client::connect_with(cluster.urls(), own).expect("URLs");
        let execute = |_: Run| async { Ending::default() };
        let options = WorkerOptions::new(server);
        polling.spawn(async move { own.worker(options, execute, std::future::pending()).await });
    }
    let held = format!("\nfermata_edge_held {workers}\n");
    let metrics = cluster.url(leader, "/metrics");
    wait_for("all workers are held", ARRIVE_MAX, async || {
        is_held(&metrics, &held).await.then_some(())
    })
    .await;
    let busy = cpu_over(pid, seconds).await;
    let rss_after = rss_kib(pid);
    assert_eq!(
        cluster.leader().await,
        leader,
        "the leader of the measurement"
    );
    println!(
        "leader without workers: {:.2}% of a core; with {workers} idle workers: {:.2}%; \
         for them: {:.2}%",
        idle * 100.0,
        busy * 100.0,
        (busy - idle) * 100.0
    );
    println!(
        "resident: {:.1} MB before, {:.1} MB with them; for them: {:.1} MB",
        rss_before / 1_024.0,
        rss_after / 1_024.0,
        (rss_after - rss_before) / 1_024.0
    );
    println!("load after: {}", load());
    polling.shutdown().await;
}

/// The part of a core that a process used, over so many seconds.
async fn cpu_over(pid: u32, seconds: u64) -> f64 {
    let (begun, ticks) = (Instant::now(), cpu_ticks(pid));
    wait_for("the measurement's time", DEADLINE * 100, async || {
        (begun.elapsed() >= Duration::from_secs(seconds)).then_some(())
    })
    .await;
    (cpu_ticks(pid) - ticks) / TICKS_PER_S / begun.elapsed().as_secs_f64()
}

/// User and system time of a process, in ticks.
fn cpu_ticks(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    // The name in brackets may hold spaces.
    let (_, numbers) = stat.rsplit_once(')').expect("a name");
    let ticks = numbers.split_whitespace().skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().expect("a number"))
        .sum()
}

/// The resident set of a process.
fn rss_kib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.expect("a size").parse().expect("a number")
}

/// Whether the node's metrics have this line.
async fn is_held(url: &str, line: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (address, path) = url
        .trim_start_matches("http://")
        .split_once('/')
        .expect("a path");
    let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else {
        return false;
    };
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes()).await;
    asked.is_ok() && stream.read_to_string(&mut answer).await.is_ok() && answer.contains(line)
}
