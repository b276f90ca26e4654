//! Whether a snapshot stops the world: the longest gap between two applied entries while a large
//! one is built.
//!
//! `cargo run --release -p fermata-replica --example snapshot [JOBS [MEMBERS]]` fills a cluster of
//! so many members in this process (default 1) with so many waiting jobs (default 1,000,000), then
//! launches on without a pause while *every* member builds a snapshot at the same time. It prints
//! the gaps before, during and after, what the snapshot took, and fails if the longest gap during
//! it is above [`GAP_MS_MAX`].
//!
//! # Caveats
//!
//! - An entry counts as applied when a thread that waits for it wakes up: on a machine that has
//!   other work the gaps are longer than those of the member. The line `before` says how long they
//!   are without a snapshot.
//! - Several members share this machine's processors and disk, which real ones do not.

use fermata_calendar::Zone;
use fermata_pool::command::{Command, Event, Launch};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, QueueLimit};
use fermata_replica::{
    Config, FORMAT_LATEST, Leadership, ProposeError, Replica, SnapshotTaken, Start, Timing,
};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The longest gap that is allowed between two applied entries.
const GAP_MS_MAX: u128 = 20;
/// Who launches, one job after the other, while the snapshot is built.
const PROPOSERS: u64 = 64;
/// Jobs that are launched at a time while the cluster is filled.
const JOBS_PER_CALL: u64 = 1_000;
/// How long the gaps are looked at before the snapshot, and after it.
const AROUND: Duration = Duration::from_secs(4);

type Fallible<T> = Result<T, Box<dyn Error>>;

/// An event whose jobs wait behind one that never ends.
fn event() -> Command {
    let limits = [
        LimitKind::Job(JobLimit {
            amount: 1,
            ..JobLimit::default()
        }),
        LimitKind::Queue(QueueLimit { amount: 10_000_000 }),
    ];
    let limits = limits.map(|kind| Limit {
        enabled: true,
        kind,
    });
    Command::PutEvent {
        event: Box::new(Event {
            id: "held".into(),
            enabled: true,
            limits: limits.into(),
            ..Event::default()
        }),
        if_revision: None,
    }
}

/// Ids are as long as those that a node gives.
fn launch(number: u64) -> Command {
    Command::Launch(Box::new(Launch {
        id: format!("01890a5d-ac96-774b-bcce-{number:012}").into(),
        event: Some("held".into()),
        ..Launch::default()
    }))
}

async fn open(node: u64, folder: &TempDir, start: Start) -> Fallible<Replica> {
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

/// Waits for something that a member comes to by itself.
async fn until(mut there: impl FnMut() -> bool) {
    while !there() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn leads(replica: &Replica) -> bool {
    matches!(*replica.leadership().borrow(), Leadership::Leader { .. })
}

/// The members, the leader first.
async fn cluster(folders: &[TempDir]) -> Fallible<Vec<Replica>> {
    let mut replicas = Vec::new();
    for (node, folder) in (1..).zip(folders) {
        let start = match replicas.first() {
            None => Start::Bootstrap,
            Some(first) => Start::Join {
                peers: vec![Replica::peer_address(first).to_string()],
            },
        };
        replicas.push(open(node, folder, start).await?);
        let all_vote = |replica: &Replica| {
            let status = replica.status();
            let voters = status.members.iter().filter(|member| member.voter);
            voters.count() as u64 == node && !status.changing
        };
        until(|| replicas.iter().all(all_vote) && leads(&replicas[0])).await;
    }
    Ok(replicas)
}

/// When each entry was applied, as seen by a thread that does nothing else.
struct Watch {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Vec<Instant>>,
}

impl Watch {
    fn begin(replica: &Replica) -> Fallible<Watch> {
        let mut applied = replica.applied();
        let (stop, mut stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let looking = async move {
            let mut seen = Vec::new();
            loop {
                tokio::select! {
                    _ = applied.changed() => seen.push(Instant::now()),
                    _ = stopped.changed() => return seen,
                }
            }
        };
        let thread = std::thread::spawn(move || runtime.block_on(looking));
        Ok(Watch { stop, thread })
    }

    fn end(self) -> Vec<Instant> {
        self.stop.send_replace(true);
        self.thread.join().unwrap_or_default()
    }
}

/// The gaps that end within a span, in order of length.
fn gaps(applied: &[Instant], from: Instant, to: Instant) -> Vec<Duration> {
    let pairs = applied.windows(2);
    let ends_within = pairs.filter(|pair| from < pair[1] && pair[0] < to);
    let mut gaps: Vec<Duration> = ends_within.map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    gaps
}

/// Prints a line about a span, and answers its longest gap.
fn tell(span: &str, applied: &[Instant], from: Instant, to: Instant) -> Duration {
    let gaps = gaps(applied, from, to);
    let longest = gaps.last().copied().unwrap_or_default();
    let mut pairs = applied.windows(2);
    let at = pairs.rfind(|pair| pair[1] - pair[0] == longest);
    let began = at.map_or(Duration::ZERO, |pair| {
        pair[0].saturating_duration_since(from)
    });
    let typical = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
    let rare = gaps.get(gaps.len() * 999 / 1_000).copied();
    println!(
        "{span:<24} {:>7.1} s {:>9} {:>9.2} {:>9.2} {:>9.2} {:>7.1} s",
        (to - from).as_secs_f64(),
        gaps.len(),
        ms(typical),
        ms(rare.unwrap_or_default()),
        ms(longest),
        began.as_secs_f64(),
    );
    longest
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Launches until told to stop; answers how many were.
fn launch_on(leader: &Replica, from: u64, stop: &Arc<AtomicBool>) -> JoinSet<Launched<u64>> {
    let mut working = JoinSet::new();
    for proposer in 0..PROPOSERS {
        let (leader, stop) = (leader.clone(), Arc::clone(stop));
        working.spawn(async move {
            let mut number = from + proposer;
            while !stop.load(Ordering::Relaxed) {
                leader.propose(launch(number)).await?;
                number += PROPOSERS;
            }
            Ok((number - from) / PROPOSERS)
        });
    }
    working
}

type Launched<T> = Result<T, ProposeError>;

async fn fill(leader: &Replica, jobs: u64) -> Fallible<()> {
    let begun = Instant::now();
    leader.propose(event()).await?;
    for from in (0..jobs).step_by(JOBS_PER_CALL as usize) {
        let numbers = from..jobs.min(from + JOBS_PER_CALL);
        leader.propose_all(numbers.map(launch).collect()).await?;
    }
    let per_second = jobs as f64 / begun.elapsed().as_secs_f64();
    println!("{jobs} jobs wait; they were launched at {per_second:.0} per second");
    Ok(())
}

/// All members take a snapshot at once; answers the leader's.
async fn take_snapshots(replicas: &[Replica]) -> Fallible<SnapshotTaken> {
    let mut taking = JoinSet::new();
    for replica in replicas.iter().skip(1) {
        let replica = replica.clone();
        taking.spawn(async move { replica.take_snapshot().await });
    }
    let taken = replicas[0].take_snapshot().await?;
    while let Some(others) = taking.join_next().await {
        others??;
    }
    Ok(taken)
}

async fn run(jobs: u64, members: usize) -> Fallible<Duration> {
    let folders = (0..members).map(|_| TempDir::new());
    let folders = folders.collect::<Result<Vec<TempDir>, _>>()?;
    let replicas = cluster(&folders).await?;
    let leader = &replicas[0];
    fill(leader, jobs).await?;
    // What was begun by itself meanwhile is not what is measured.
    take_snapshots(&replicas).await?;

    let watch = Watch::begin(leader)?;
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let mut launching = launch_on(leader, jobs, &stop);
    tokio::time::sleep(AROUND).await;
    let before = Instant::now();
    let taken = take_snapshots(&replicas).await?;
    let after = Instant::now();
    tokio::time::sleep(AROUND).await;
    let ended = Instant::now();
    let applied = watch.end();
    stop.store(true, Ordering::Relaxed);
    let mut launched = 0;
    while let Some(one) = launching.join_next().await {
        launched += one??;
    }

    println!("{launched} more were launched meanwhile, by {PROPOSERS} at a time");
    println!(
        "{:<24} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "gaps between entries", "time", "entries", "p50 ms", "p99.9 ms", "most ms", "began at"
    );
    tell("before", &applied, begun, before);
    let longest = tell("while it was built", &applied, before, after);
    tell("after", &applied, after, ended);
    println!(
        "the snapshot: {:.1} MiB in {:.2} s, {} bytes for each waiting job",
        taken.bytes as f64 / f64::from(1 << 20),
        (after - before).as_secs_f64(),
        taken.bytes / jobs
    );
    for replica in replicas.iter().rev() {
        replica.shutdown().await?;
    }
    Ok(longest)
}

#[tokio::main]
async fn main() -> Fallible<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let jobs = arguments.next().map_or(Ok(1_000_000), |it| it.parse())?;
    let members = arguments.next().map_or(Ok(1), |it| it.parse())?;
    let longest = run(jobs, members).await?;
    let holds = longest.as_millis() < GAP_MS_MAX;
    let word = if holds { "holds" } else { "DOES NOT HOLD" };
    println!(
        "longest gap {:.2} ms, at most {GAP_MS_MAX} allowed: {word}",
        ms(longest)
    );
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
