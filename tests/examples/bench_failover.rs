//! How long launches stand still when the leader is killed, and when it hands over.
//!
//! `scripts/bench/failover` builds what this needs, says what it measures and what its caveats are,
//! and runs it; the arguments are the numbers of kills and of hand-overs.

#![expect(
    clippy::expect_used,
    reason = "a measurement that cannot go on says where"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fermata_api::jobs::LaunchRequest;
use fermata_e2e::{Cluster, ClusterOptions, DEADLINE, load, wait_for};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Clients that launch one job after the other.
const LAUNCHERS: usize = 16;
/// Launches that must be answered before the next disturbance: the cluster is as it was.
const CALM_LAUNCHES: usize = 500;
/// Entries that a node may be behind to count as caught up: those on their way.
const LAG_MAX: u64 = 16;

/// Answers that nobody has looked at yet: more than come while a node starts.
const ANSWERS_MAX: usize = 1_000_000;

/// A launch that was answered.
#[derive(Clone, Copy, Debug)]
struct Answered {
    sent: Instant,
    at: Instant,
}

type Answers = mpsc::Receiver<Answered>;

#[tokio::main]
async fn main() {
    let mut counts = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let kills = counts.next().unwrap_or(Ok(20)).expect("a number of kills");
    let transfers = counts
        .next()
        .unwrap_or(Ok(10))
        .expect("a number of hand-overs");
    println!("load before: {}", load());
    let mut cluster = Cluster::start_with(ClusterOptions {
        flags: ["--profile", "fast"].map(str::to_owned).to_vec(),
        ..ClusterOptions::default()
    })
    .await;
    let limits = json!([{"type": "job", "amount": 1}, {"type": "queue", "amount": 10_000_000}]);
    cluster
        .define_event("waiting", json!({"limits": limits}))
        .await;

    let stop = Arc::new(AtomicBool::new(false));
    let (answers, mut answered) = mpsc::channel(ANSWERS_MAX);
    let mut launchers = JoinSet::new();
    for _ in 0..LAUNCHERS {
        launchers.spawn(launch_on(
            cluster.client(),
            Arc::clone(&stop),
            answers.clone(),
        ));
    }
    drop(answers);

    let mut still = Vec::new();
    for kill in 1..=kills {
        still.push(after_kill(&mut cluster, &mut answered).await);
        println!(
            "kill {kill:>2}: {:>6} ms",
            still[still.len() - 1].as_millis()
        );
    }
    let mut gaps = Vec::new();
    for transfer in 1..=transfers {
        gaps.push(around_transfer(&cluster, &mut answered).await);
        println!(
            "hand-over {transfer:>2}: {:>6} ms",
            gaps[gaps.len() - 1].as_millis()
        );
    }
    tell("leader killed, to the next answered launch", still);
    tell(
        "leadership handed over, longest time without an answer",
        gaps,
    );
    println!("load after: {}", load());
    stop.store(true, Ordering::Relaxed);
    launchers.join_all().await;
}

/// Launches one job after the other, until it is told to stop.
async fn launch_on(
    client: fermata_client::Client,
    stop: Arc<AtomicBool>,
    answers: mpsc::Sender<Answered>,
) {
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let launch = LaunchRequest {
            event: Some("waiting".to_owned()),
            ..LaunchRequest::default()
        };
        client.launch(launch).await.expect("an answer in the end");
        let at = Instant::now();
        if answers.send(Answered { sent, at }).await.is_err() {
            return;
        }
    }
}

/// Kills the leader; answers how long it took until a launch was answered that was sent later.
/// Then has the node back.
async fn after_kill(cluster: &mut Cluster, answers: &mut Answers) -> Duration {
    let leader = calm(cluster, answers).await;
    let killed = Instant::now();
    cluster.kill(leader).await;
    let next = loop {
        let answer = next_answer(answers).await;
        if answer.sent > killed {
            break answer;
        }
    };
    cluster.start_node(leader).await;
    next.at - killed
}

/// Has leadership handed over; answers the longest time between two answers from the call on until
/// one to a launch that was sent after it.
async fn around_transfer(cluster: &Cluster, answers: &mut Answers) -> Duration {
    let before = calm(cluster, answers).await;
    let mut last = Instant::now();
    let client = cluster.client();
    let view = client.transfer(None).await.expect("a hand-over");
    assert_ne!(view.leader, Some(before), "another one leads");
    let done = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        let answer = next_answer(answers).await;
        longest = longest.max(answer.at.saturating_duration_since(last));
        last = answer.at.max(last);
        if answer.sent > done {
            return longest;
        }
    }
}

/// Waits until all nodes follow and launches are answered; answers who leads.
async fn calm(cluster: &Cluster, answers: &mut Answers) -> u64 {
    let leader = cluster.leader().await;
    wait_for("all nodes have caught up", DEADLINE, async || {
        let view = cluster.view(leader).await?;
        let there =
            |node: &fermata_api::cluster::NodeView| node.lag.is_some_and(|lag| lag <= LAG_MAX);
        view.nodes.iter().all(there).then_some(())
    })
    .await;
    while answers.try_recv().is_ok() {}
    for _ in 0..CALM_LAUNCHES {
        next_answer(answers).await;
    }
    leader
}

async fn next_answer(answers: &mut Answers) -> Answered {
    let answer = tokio::time::timeout(DEADLINE, answers.recv()).await;
    answer
        .expect("launches are answered")
        .expect("launchers launch on")
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (Some(median), Some(worst)) = (times.get(times.len() / 2), times.last()) else {
        return;
    };
    println!(
        "{what}: median {} ms, worst {} ms of {}",
        median.as_millis(),
        worst.as_millis(),
        times.len()
    );
}
