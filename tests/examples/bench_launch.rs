//! Launches per second through HTTP on three nodes, and puts into etcd beside them.
//!
//! `scripts/bench/launch` builds what this needs, says what it measures and what its caveats are,
//! and runs it; the argument is the length of each measurement in seconds.
//!
//! Both clusters run all the time, and are asked in turn, by the same client code: each connection
//! sends one request after the other to the leader, with the same bytes of payload an item.

#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot go on says where"
)]

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use fermata_e2e::http::Http;
use fermata_e2e::{Cluster, ClusterOptions, DEADLINE, Process, load, wait_for};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinSet;

/// Connections, and items in each request.
const WAYS: [(u64, u64); 6] = [(1, 1), (64, 1), (256, 1), (1, 100), (64, 100), (256, 100)];
/// The ways with jobs that start at once.
const STARTING_WAYS: [(u64, u64); 2] = [(64, 1), (64, 100)];
/// Bytes of a job's parameters and of a value of etcd.
const PAYLOAD_BYTES: usize = 200;
/// Waiting jobs that the memory is told for.
const MEMORY_JOBS: u64 = 100_000;
/// Waiting jobs for which it is measured: enough that what is taken once does not count for much.
const MEASURED_JOBS: u64 = 500_000;
/// More jobs than are launched.
const JOBS_MAX: u64 = 10_000_000;
/// How many members etcd has.
const ETCD_MEMBERS: usize = 3;

/// Who is asked, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Launches of jobs that wait.
    Waiting,
    /// Launches of jobs that start in the same entry.
    Starting,
    /// Puts into etcd.
    Puts,
}

impl Work {
    /// The body of a request for so many items; `number` is not used again.
    fn body(self, items: u64, number: u64) -> Value {
        let payload = "x".repeat(PAYLOAD_BYTES);
        let item = |item: u64| match self {
            Work::Waiting => json!({"event": "waiting", "params": payload}),
            Work::Starting => json!({
                "event": "starting", "params": payload, "executor": "caller", "lease_s": 3_600
            }),
            // In base64: sixteen digits stand for some twelve bytes.
            Work::Puts => json!({
                "key": format!("{:016}", number * items + item),
                "value": "eHh4".repeat(PAYLOAD_BYTES / 3),
            }),
        };
        match self {
            _ if items == 1 => item(0),
            Work::Waiting | Work::Starting => {
                json!({"jobs": (0..items).map(item).collect::<Vec<_>>()})
            }
            Work::Puts => {
                let puts = (0..items).map(|number| json!({"requestPut": item(number)}));
                json!({"success": puts.collect::<Vec<_>>()})
            }
        }
    }

    fn path(self, items: u64) -> &'static str {
        match self {
            Work::Waiting | Work::Starting => "/v1/jobs",
            Work::Puts if items == 1 => "/v3/kv/put",
            Work::Puts => "/v3/kv/txn",
        }
    }
}

/// What one way came to.
struct Measured {
    items_per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Requests that were answered with a refusal.
    refused: usize,
}

impl Measured {
    fn cells(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
        format!(
            "{:>9.0} {:>8.2} {:>8.2}",
            self.items_per_second,
            ms(self.p50),
            ms(self.p99)
        )
    }
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse());
    let time = Duration::from_secs(seconds.expect("a number of seconds"));
    println!("load before: {}", load());
    let etcd = Etcd::start().await;
    let cluster = Cluster::start_with(ClusterOptions {
        flags: ["--profile", "fast"].map(str::to_owned).to_vec(),
        ..ClusterOptions::default()
    })
    .await;
    define(&cluster).await;
    let leader = cluster.leader().await;
    measure_memory(&cluster, leader).await;
    println!();
    println!(
        "connections  a request  launches/s   p50 ms   p99 ms    puts/s   p50 ms   p99 ms  ratio"
    );
    for (connections, items) in WAYS {
        let url = cluster.url(cluster.leader().await, "");
        let launches = measure(time, connections, items, &url, Work::Waiting).await;
        let beside = match &etcd {
            Some(etcd) => {
                let puts = measure(time, connections, items, &etcd.leader, Work::Puts).await;
                tell_refused("etcd", &puts);
                let ratio = launches.items_per_second / puts.items_per_second;
                format!("{} {ratio:>6.2}", puts.cells())
            }
            None => String::new(),
        };
        println!(
            "{connections:>11} {items:>10}   {} {beside}",
            launches.cells()
        );
        tell_refused("fermata", &launches);
    }
    println!("\nthe same, of jobs that start at once:");
    for (connections, items) in STARTING_WAYS {
        let url = cluster.url(cluster.leader().await, "");
        let starts = measure(time, connections, items, &url, Work::Starting).await;
        println!("{connections:>11} {items:>10}   {}", starts.cells());
        tell_refused("fermata", &starts);
    }
    if cluster.leader().await != leader {
        println!("the leader changed meanwhile: the machine has too much to do to be measured");
    }
    println!("load after: {}", load());
}

async fn define(cluster: &Cluster) {
    let client = cluster.client();
    let mut settings = client.settings().await.expect("settings");
    settings.unfinished_max = JOBS_MAX;
    client.put_settings(&settings).await.expect("new settings");
    let queue = json!({"type": "queue", "amount": JOBS_MAX});
    let waiting = json!([{"type": "job", "amount": 1}, queue]);
    cluster
        .define_event("waiting", json!({"limits": waiting}))
        .await;
    let starting = json!([{"type": "job", "amount": 10_000_000}]);
    cluster
        .define_event("starting", json!({"limits": starting}))
        .await;
}

/// Has so many jobs wait, and tells how far the leader's memory grew.
async fn measure_memory(cluster: &Cluster, leader: u64) {
    const ITEMS: u64 = 1_000;
    let resident = || resident_kib(cluster.node(leader).process().id());
    let before_kib = resident();
    let url = cluster.url(leader, Work::Waiting.path(ITEMS));
    let body = Work::Waiting.body(ITEMS, 0).to_string().into_bytes();
    for number in 1..=MEASURED_JOBS / ITEMS {
        wait_for("a batch is launched", DEADLINE, async || {
            let asking = cluster.http().ask(Method::POST, &url).bytes(body.clone());
            asking.send().await.status.is_success().then_some(())
        })
        .await;
        if number * ITEMS == MEMORY_JOBS || number * ITEMS == MEASURED_JOBS {
            let took_kib = resident().saturating_sub(before_kib);
            let jobs = number * ITEMS;
            println!(
                "{jobs} jobs wait: the leader's memory grew by {:.1} MiB for each {MEMORY_JOBS} of \
                 them, {} bytes a job beside its parameters of {PAYLOAD_BYTES}",
                took_kib as f64 / 1_024.0 * MEMORY_JOBS as f64 / jobs as f64,
                (took_kib * 1_024 / jobs).saturating_sub(PAYLOAD_BYTES as u64),
            );
        }
    }
}

/// Sends requests on so many connections.
async fn measure(time: Duration, connections: u64, items: u64, base: &str, work: Work) -> Measured {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for connection in 0..connections {
        let url = format!("{base}{}", work.path(items));
        tasks.spawn(async move {
            // Its own connection.
            let http = Http::default();
            let (mut answered, mut refused) = (Vec::new(), 0);
            let mut number = connection;
            while begun.elapsed() < time {
                let body = work.body(items, number).to_string().into_bytes();
                number += connections;
                let sent = Instant::now();
                let reply = http.ask(Method::POST, &url).bytes(body).send().await;
                if reply.status.is_success() {
                    answered.push(sent.elapsed());
                } else {
                    refused += 1;
                }
            }
            (answered, refused)
        });
    }
    let mut latencies = Vec::new();
    let mut refused = 0;
    for (answered, refusals) in tasks.join_all().await {
        latencies.extend(answered);
        refused += refusals;
    }
    assert!(!latencies.is_empty(), "nothing was answered at {base}");
    latencies.sort_unstable();
    Measured {
        items_per_second: (latencies.len() as u64 * items) as f64 / begun.elapsed().as_secs_f64(),
        p50: latencies[latencies.len() / 2],
        p99: latencies[latencies.len() * 99 / 100],
        refused,
    }
}

fn tell_refused(who: &str, measured: &Measured) {
    if measured.refused > 0 {
        println!("            ({who} refused {} requests)", measured.refused);
    }
}

/// Three members of etcd.
struct Etcd {
    /// The leader's URL.
    leader: String,
    /// They end with this.
    _members: Vec<Process>,
    _folder: TempDir,
}

impl Etcd {
    /// Nothing where etcd is not installed.
    async fn start() -> Option<Self> {
        let version = Command::new("etcd").arg("--version").output().await;
        let Ok(version) = version else {
            println!("etcd is not installed: nothing to compare with");
            return None;
        };
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        println!("{}", version.lines().next().unwrap_or_default());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [clients, peers] = [free_urls(), free_urls()];
        let members = (0..ETCD_MEMBERS)
            .map(|member| etcd_member(member, &clients, &peers, folder.path()))
            .collect();
        Some(Self {
            leader: etcd_leader(&clients).await,
            _members: members,
            _folder: folder,
        })
    }
}

/// A URL for each member, at ports that were free just now: etcd cannot choose its own.
fn free_urls() -> Vec<String> {
    let listeners: Vec<TcpListener> = (0..ETCD_MEMBERS)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let urls = listeners.iter().map(|listener| {
        let address = listener.local_addr().expect("an address");
        format!("http://{address}")
    });
    urls.collect()
}

fn etcd_member(member: usize, clients: &[String], peers: &[String], folder: &Path) -> Process {
    let name = |member: usize| format!("etcd-{member}");
    let all = (0..ETCD_MEMBERS).map(|other| format!("{}={}", name(other), peers[other]));
    let mut command = Command::new("etcd");
    command.args(["--name", &name(member)]);
    command.arg("--data-dir").arg(folder.join(name(member)));
    command.args(["--listen-client-urls", &clients[member]]);
    command.args(["--advertise-client-urls", &clients[member]]);
    command.args(["--listen-peer-urls", &peers[member]]);
    command.args(["--initial-advertise-peer-urls", &peers[member]]);
    command.args(["--initial-cluster", &all.collect::<Vec<_>>().join(",")]);
    Process::start(&name(member), command, folder)
}

async fn etcd_leader(clients: &[String]) -> String {
    let http = Http::default();
    wait_for("etcd has a leader", DEADLINE, async || {
        for url in clients {
            let status = format!("{url}/v3/maintenance/status");
            let reply = http.ask(Method::POST, &status).json(&json!({}));
            let reply = reply.try_send().await?;
            let leads = !reply.json["leader"].is_null()
                && reply.json["leader"] == reply.json["header"]["member_id"];
            if leads {
                return Some(url.clone());
            }
        }
        None
    })
    .await
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse().ok())
        .expect("Linux tells it")
}
