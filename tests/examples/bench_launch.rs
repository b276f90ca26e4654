//! Launches per second through HTTP on three nodes, and puts into etcd beside them.
//!
//! `scripts/bench/launch` builds what this needs and runs it; the argument is the length of each
//! measurement in seconds. Each connection sends one request after the other to the leader. The
//! jobs queue behind one that runs, so what is measured is the way of a launch to a majority of
//! disks and back, and what a waiting job takes.
//!
//! # Caveats
//!
//! - Load and nodes share the machine's processors.
//! - etcd is asked through its JSON gateway, because that is the same work for the client; its gRPC
//!   is faster.

#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot go on says where"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use fermata_e2e::http::Http;
use fermata_e2e::{Cluster, DEADLINE, Process, wait_for};
use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinSet;

/// Connections, and items in each request.
const WAYS: [(u64, u64); 6] = [(1, 1), (64, 1), (256, 1), (1, 100), (16, 100), (64, 100)];
/// Bytes of a job's parameters and of a value of etcd.
const PAYLOAD_BYTES: usize = 200;
/// Waiting jobs that the memory is told for.
const MEMORY_JOBS: u64 = 100_000;
/// Client and peer ports of etcd's members, which cannot be the kernel's choice.
const ETCD_PORTS: [(u16, u16); 3] = [(23_790, 23_800), (23_791, 23_801), (23_792, 23_802)];

/// What one way came to.
struct Measured {
    per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Requests that were not done: a leader that is asked too much may lose its majority.
    refused: usize,
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse());
    let time = Duration::from_secs(seconds.expect("a number of seconds"));
    let etcd = measure_etcd(time).await;
    let cluster = Cluster::start().await;
    let limits = json!([{"type": "job", "amount": 1}, {"type": "queue", "amount": 10_000_000}]);
    cluster
        .define_event("bench", json!({"limits": limits}))
        .await;
    let leader = cluster.leader().await;
    let url = cluster.url(leader, "/v1/jobs");
    let resident = || resident_kib(cluster.node(leader).process().id());
    let before_kib = resident();
    println!("connections  a request  launches/s   p50 ms   p99 ms  etcd puts/s   ratio");
    let mut launched = 0.0;
    for (place, (connections, items)) in WAYS.into_iter().enumerate() {
        let measured = measure(time, connections, &url, &launch(items)).await;
        let per_second = measured.per_second * items as f64;
        launched += per_second * time.as_secs_f64();
        let beside = match etcd.get(place) {
            Some(etcd) if items == 1 => {
                let ratio = per_second / etcd.per_second;
                format!("{:>12.0} {ratio:>7.2}", etcd.per_second)
            }
            _ => String::new(),
        };
        println!(
            "{connections:>11} {items:>10} {per_second:>11.0} {:>8.2} {:>8.2} {beside}",
            ms(measured.p50),
            ms(measured.p99)
        );
        if measured.refused > 0 {
            println!("            {} requests were not done", measured.refused);
        }
    }
    let took_kib = resident().saturating_sub(before_kib) as f64;
    println!(
        "{launched:.0} jobs wait; the leader took {:.1} MiB for {MEMORY_JOBS} of them, with {PAYLOAD_BYTES} bytes of \
         parameters each",
        took_kib / 1_024.0 * MEMORY_JOBS as f64 / launched
    );
}

fn launch(items: u64) -> Value {
    let job = json!({"event": "bench", "params": "x".repeat(PAYLOAD_BYTES)});
    if items == 1 {
        job
    } else {
        json!({"jobs": (0..items).map(|_| job.clone()).collect::<Vec<_>>()})
    }
}

/// Sends the request again and again on so many connections.
async fn measure(time: Duration, connections: u64, url: &str, body: &Value) -> Measured {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (url, body) = (url.to_owned(), body.to_string().into_bytes());
        tasks.spawn(async move {
            // Its own connection.
            let http = Http::default();
            let (mut latencies, mut refused) = (Vec::new(), 0_usize);
            while begun.elapsed() < time {
                let sent = Instant::now();
                let asking = http.ask(Method::POST, &url).bytes(body.clone());
                let reply = asking.try_send().await;
                if reply.is_some_and(|reply| reply.status.is_success()) {
                    latencies.push(sent.elapsed());
                } else {
                    refused += 1;
                }
            }
            (latencies, refused)
        });
    }
    let (mut latencies, mut refused) = (Vec::new(), 0);
    for (of_one, refused_of_one) in tasks.join_all().await {
        latencies.extend(of_one);
        refused += refused_of_one;
    }
    latencies.sort_unstable();
    let at = |hundredths| {
        let place = latencies.len() * hundredths / 100;
        latencies.get(place).copied().unwrap_or_default()
    };
    Measured {
        per_second: latencies.len() as f64 / begun.elapsed().as_secs_f64(),
        p50: at(50),
        p99: at(99),
        refused,
    }
}

/// The ways with single items, with etcd; nothing where it is not installed.
async fn measure_etcd(time: Duration) -> Vec<Measured> {
    let is_there = Command::new("etcd").arg("--version").output().await;
    if is_there.is_err() {
        println!("etcd is not installed: nothing to compare with");
        return Vec::new();
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let _members: Vec<Process> = (0..ETCD_PORTS.len())
        .map(|member| etcd_member(member, folder.path()))
        .collect();
    let url =
        |member: usize, path: &str| format!("http://127.0.0.1:{}{path}", ETCD_PORTS[member].0);
    let http = Http::default();
    let leader = wait_for("etcd has a leader", DEADLINE, async || {
        for member in 0..ETCD_PORTS.len() {
            let asking = http.ask(Method::POST, &url(member, "/v3/maintenance/status"));
            let reply = asking.json(&json!({})).try_send().await?;
            let leads = !reply.json["leader"].is_null()
                && reply.json["leader"] == reply.json["header"]["member_id"];
            if leads {
                return Some(member);
            }
        }
        None
    })
    .await;
    // Base64 of some key and of so many bytes.
    let value = "eHh4".repeat(PAYLOAD_BYTES / 3);
    let body = json!({"key": "a2V5", "value": value});
    let mut measured = Vec::new();
    for (connections, _) in WAYS.into_iter().filter(|(_, items)| *items == 1) {
        measured.push(measure(time, connections, &url(leader, "/v3/kv/put"), &body).await);
    }
    measured
}

fn etcd_member(member: usize, folder: &Path) -> Process {
    let (client, peer) = ETCD_PORTS[member];
    let name = |member: usize| format!("etcd-{member}");
    let peers = (0..ETCD_PORTS.len())
        .map(|other| format!("{}=http://127.0.0.1:{}", name(other), ETCD_PORTS[other].1));
    let peers: Vec<String> = peers.collect();
    let client = format!("http://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let mut command = Command::new("etcd");
    command.args(["--name", &name(member)]);
    command.arg("--data-dir").arg(folder.join(name(member)));
    command.args(["--listen-client-urls", &client]);
    command.args(["--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer]);
    command.args(["--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &peers.join(",")]);
    Process::start(&name(member), command, folder)
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse().ok())
        .expect("Linux tells it")
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}
