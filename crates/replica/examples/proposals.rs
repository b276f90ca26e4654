//! How many commands a cluster of three members in this process commits per second.
//!
//! `cargo run --release -p fermata-replica --example proposals [SECONDS]` prints a line per number
//! of proposers that wait for their outcome one after another, with the latency that they see,
//! and then how long it takes until another member leads and has accepted a command when the
//! leader is let go of.

use fermata_calendar::Zone;
use fermata_pool::command::{Command, Launch};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, QueueLimit};
use fermata_replica::{Config, FORMAT_LATEST, Leadership, Replica, Start, Timing};
use std::error::Error;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinSet;

fn launch(id: String) -> Command {
    let limits = [
        LimitKind::Job(JobLimit {
            amount: 1,
            cap_key: Some("bench".into()),
            ..JobLimit::default()
        }),
        LimitKind::Queue(QueueLimit { amount: 10_000_000 }),
    ];
    let limits = limits.map(|kind| Limit {
        enabled: true,
        kind,
    });
    Command::Launch(Box::new(Launch {
        id: id.into(),
        limits: limits.into(),
        ..Launch::default()
    }))
}

async fn open(node: u64, folder: &TempDir, start: Start) -> Result<Replica, Box<dyn Error>> {
    let config = Config {
        node,
        data: folder.path().to_path_buf(),
        peer_listen: "127.0.0.1:0".parse()?,
        peer_advertise: "127.0.0.1:0".to_owned(),
        client_url: String::new(),
        time_zone: Zone::built_in("UTC")?,
        timing: Timing::Fast,
        start,
        format_max: FORMAT_LATEST,
    };
    Ok(Replica::open(config).await?)
}

fn leads(replica: &Replica) -> bool {
    matches!(*replica.leadership().borrow(), Leadership::Leader { .. })
}

async fn leader(replicas: &[Replica]) -> Replica {
    loop {
        if let Some(leader) = replicas.iter().find(|replica| leads(replica)) {
            return leader.clone();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn measure(leader: &Replica, proposers: usize, time: Duration) -> Result<(), Box<dyn Error>> {
    let until = Instant::now() + time;
    let mut working = JoinSet::new();
    for proposer in 0..proposers {
        let leader = leader.clone();
        working.spawn(async move {
            let mut waited = Vec::new();
            while Instant::now() < until {
                let began = Instant::now();
                let id = format!("{proposers}-{proposer}-{}", waited.len());
                leader.propose(launch(id)).await?;
                waited.push(began.elapsed());
            }
            Ok::<_, fermata_replica::ProposeError>(waited)
        });
    }
    let entries_before = leader.status().last_log.unwrap_or(0);
    let mut waited = Vec::new();
    while let Some(done) = working.join_next().await {
        waited.extend(done??);
    }
    waited.sort_unstable();
    let per_second = waited.len() as u128 * 1_000 / time.as_millis();
    let entries = leader.status().last_log.unwrap_or(0) - entries_before;
    println!(
        "{proposers:>4} proposers: {per_second:>7} per second, p50 {:?}, p99 {:?}, {entries} entries",
        waited[waited.len() / 2],
        waited[waited.len() * 99 / 100],
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(5), |given| given.parse())?;
    let folders = [TempDir::new()?, TempDir::new()?, TempDir::new()?];
    let mut replicas = vec![open(1, &folders[0], Start::Bootstrap).await?];
    for (node, folder) in [(2, &folders[1]), (3, &folders[2])] {
        let peers = vec![replicas[0].peer_address().to_string()];
        replicas.push(open(node, folder, Start::Join { peers }).await?);
    }
    let all_vote = |replica: &Replica| {
        let status = replica.status();
        status.members.iter().filter(|member| member.voter).count() == 3 && !status.changing
    };
    while !replicas.iter().all(all_vote) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for proposers in [1, 16, 64, 256, 1_024] {
        let leader = leader(&replicas).await;
        measure(&leader, proposers, Duration::from_secs(seconds)).await?;
    }

    let at = replicas.iter().position(leads).unwrap_or(0);
    let gone = replicas.remove(at);
    let began = Instant::now();
    drop(gone);
    loop {
        let next = leader(&replicas).await;
        if next.propose(launch("after".to_owned())).await.is_ok() {
            break;
        }
    }
    println!(
        "leader gone to first accepted command: {:?}",
        began.elapsed()
    );
    Ok(())
}
