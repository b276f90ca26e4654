//! `fermata demo`: the two-minute proof.
//!
//! Three conductors run as processes of this binary on loopback, with durable state in a temporary
//! folder, and two workers, whose jobs are processes too. Two events share the key `salesforce`: at
//! most so many jobs at once, and so many starts in each window. While the jobs are worked off, the
//! leader is killed in the middle of a window, started again, and leadership is handed over.
//!
//! What is shown while it happens, and what is judged at the end, is what the workers and the
//! clients recorded for themselves: no counter of the cluster is believed.
//!
//! ```text
//! mod.rs     what happens when (the plot)
//! stage.rs   the processes and their folder
//! load.rs    the clients that launch jobs, and their record
//! journal.rs what the workers recorded so far
//! show.rs    how it is told
//! ```
//!
//! # Caveats
//!
//! - Windows go by the wall clock of this machine: if it is set while the demo runs, the demo's own
//!   plot is confused, though the cluster is not.
//! - Killed with SIGKILL itself, the demo leaves its processes behind.

mod journal;
mod load;
mod show;
mod stage;

use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fermata_audit::{History, HistoryError, Report, check};
use fermata_client::ClientError;
use tokio::time::{Instant, sleep, timeout};

use crate::error::CommandError;
use crate::screen::Screen;
use journal::Journals;
use load::Load;
use show::{Happening, Line, Show};
use stage::Stage;

/// The pool in which every job of the demo is.
const POOL: &str = "cap:salesforce";
/// Most jobs at once.
const AMOUNT: u64 = 5;
/// Most starts per window.
const RATE: u64 = 30;
/// The length of a window in seconds, aligned to UTC.
const WINDOW_S: u32 = 10;
const WINDOW_US: i64 = WINDOW_S as i64 * 1_000_000;
/// How many jobs are launched in all.
const JOBS: usize = 200;
/// How long everything may take, in seconds: twice what it does.
const DEMO_S_MAX: u64 = 240;
/// Between two looks at what happens, in milliseconds.
const LOOK_MS: u64 = 100;
/// How long after its end a window's line is final: begins are recorded after their start.
const LINE_FINAL_US: i64 = 500_000;
/// How long anything on the stage may take, in seconds.
const STEP_S_MAX: u64 = 30;

/// Three nodes and two workers on this machine, a killed leader, and an audit of every start.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Repeat a run's random choices; each run prints its seed
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Keep the folder with the nodes' state, their logs and the workers' journals
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Why the demo did not show what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// Something on this machine.
    #[error("cannot {doing}")]
    System {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A process ended that should not.
    #[error("{name} ended by itself; the end of its log:\n{log}")]
    Ended {
        /// Which.
        name: String,
        /// The end of its log.
        log: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s")]
    TooSlow {
        /// What.
        what: String,
        /// The deadline.
        seconds: u64,
    },
    /// The cluster refused what it should not.
    #[error("the cluster did not do what it should")]
    Client(#[from] ClientError),
    /// A journal is not what it should be.
    #[error("{} is not understood", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// Why.
        source: HistoryError,
    },
    /// The audit found that a promise was broken.
    #[error("the audit does not hold")]
    Broken,
    /// The user ended it.
    #[error("ended by a signal; everything was taken down")]
    Interrupted,
}

/// Runs the demo to its end; takes everything down whatever happens.
pub(crate) fn run(args: &DemoArgs, screen: Screen) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| CommandError::System {
            doing: "start the runtime",
            source,
        })?;
    let seed = args
        .seed
        .unwrap_or_else(|| u64::from(std::process::id()) ^ now_us().unsigned_abs());
    let mut show = Show::new(screen);
    let mut stage = Stage::new().map_err(demo_failed)?;
    let ended = runtime.block_on(async {
        let plot = timeout(
            Duration::from_secs(DEMO_S_MAX),
            play(&mut stage, &mut show, seed),
        );
        let ended = tokio::select! {
            ended = plot => ended.unwrap_or_else(|_| Err(too_slow("the whole demo", DEMO_S_MAX))),
            ended = interrupted() => ended,
        };
        stage.close().await;
        ended
    });
    let was_interrupted = matches!(ended, Err(DemoError::Interrupted));
    if args.keep || (ended.is_err() && !was_interrupted) {
        let folder = stage.keep();
        show.tell(&Happening::Kept { folder: &folder })?;
    }
    ended.map_err(demo_failed)
}

fn demo_failed(error: DemoError) -> CommandError {
    CommandError::Demo(Box::new(error))
}

fn too_slow(what: &str, seconds: u64) -> DemoError {
    DemoError::TooSlow {
        what: what.to_owned(),
        seconds,
    }
}

/// Ready with an error when the user or the system asks for the end.
async fn interrupted() -> Result<(), DemoError> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| {
        signal(kind).map_err(|source| DemoError::System {
            doing: "listen for signals".to_owned(),
            source,
        })
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Err(DemoError::Interrupted)
}

/// What happens to the cluster, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    KillLeader,
    Restart,
    HandOver,
}

/// The turns, by the instant after the first full window began, in microseconds: in the middle of
/// a window each, where neither its rate nor its backlog is used up.
const TURNS: [(i64, Turn); 3] = [
    (2_000_000, Turn::KillLeader),
    (WINDOW_US + 2_000_000, Turn::Restart),
    (2 * WINDOW_US + 2_000_000, Turn::HandOver),
];

async fn play(stage: &mut Stage, show: &mut Show, seed: u64) -> Result<(), DemoError> {
    let begun = Instant::now();
    show.tell_or_ignore(&Happening::Opening { seed });
    stage.start_nodes().await?;
    let load = Arc::new(Load::new(stage.client()?, seed));
    load.define().await?;
    stage.start_workers().await?;
    show.tell_or_ignore(&Happening::OnStage {
        folder: stage.folder(),
        nodes: stage.urls(),
        workers: stage.workers(),
    });
    let launching = tokio::spawn(Arc::clone(&load).launch_all());
    let watched = watch(stage, show, &load).await;
    launching.abort();
    watched?;
    let memory_kib = stage.resident_kib_max();
    load.read_ends().await?;
    stage.stop().await;
    show.tell_or_ignore(&Happening::Done {
        jobs: JOBS,
        seconds: begun.elapsed().as_secs(),
        memory_mib: memory_kib.map(|kib| kib / 1_024),
    });
    let report = audit(stage, &load)?;
    show.tell_or_ignore(&Happening::Audit { report: &report });
    let is_whole = report.counts.accepted == u64::try_from(JOBS).unwrap_or(u64::MAX);
    if report.holds() && is_whole {
        Ok(())
    } else {
        Err(DemoError::Broken)
    }
}

/// Looks until every job has ended, tells what it sees, and takes the turns when they are due.
async fn watch(stage: &mut Stage, show: &mut Show, load: &Load) -> Result<(), DemoError> {
    let mut journals = Journals::new(stage.journals());
    let mut window_us = now_us().div_euclid(WINDOW_US) * WINDOW_US;
    let first_us = window_us + WINDOW_US;
    let mut turns = TURNS.iter().copied().peekable();
    let mut killed = None;
    show.heading();
    loop {
        journals.read_on()?;
        stage.check()?;
        load.check()?;
        stage.measure();
        let now_us = now_us();
        let leader = stage.leader().await;
        let line = |from_us| line(&journals, load, from_us, leader);
        if now_us >= window_us + WINDOW_US + LINE_FINAL_US {
            show.tell_or_ignore(&Happening::Window(&line(window_us)));
            window_us += WINDOW_US;
        }
        let ended = journals.ended();
        if ended >= JOBS && load.accepted() >= JOBS {
            show.tell_or_ignore(&Happening::Window(&line(window_us)));
            return Ok(());
        }
        show.live(&line(now_us.div_euclid(WINDOW_US) * WINDOW_US));
        if let Some((_, turn)) = turns.next_if(|(at_us, _)| now_us >= first_us + at_us) {
            match turn {
                Turn::KillLeader => killed = Some(kill_leader(stage, show, load).await?),
                Turn::Restart => restart(stage, show, killed).await?,
                Turn::HandOver => hand_over(stage, show).await?,
            }
        }
        sleep(Duration::from_millis(LOOK_MS)).await;
    }
}

fn line(journals: &Journals, load: &Load, from_us: i64, leader: Option<u64>) -> Line {
    let to_us = from_us + WINDOW_US;
    Line {
        from_us,
        starts: journals.starts_within(from_us, to_us),
        running: journals.running(),
        at_once_max: journals.at_once_max(from_us, to_us),
        waiting: load.accepted().saturating_sub(journals.begun()),
        ended: journals.ended(),
        leader,
    }
}

/// SIGKILL for the leader; until somebody else leads and a launch is answered again.
async fn kill_leader(stage: &mut Stage, show: &mut Show, load: &Load) -> Result<u64, DemoError> {
    let leader = until("a leader is known", async || stage.leader().await).await?;
    let begun = Instant::now();
    stage.kill(leader).await?;
    show.tell_or_ignore(&Happening::Killed { node: leader });
    let next = until("another node leads", async || {
        stage.leader().await.filter(|next| *next != leader)
    })
    .await?;
    let leads_after = begun.elapsed();
    let what = "a launch after the kill was answered";
    let answered = until(what, async || load.answered_since(begun)).await?;
    show.tell_or_ignore(&Happening::NewLeader {
        node: next,
        after_ms: leads_after.as_millis(),
        launch_after_ms: answered.as_millis(),
    });
    Ok(leader)
}

/// The killed node comes back with what its disk has, and catches up.
async fn restart(stage: &mut Stage, show: &mut Show, node: Option<u64>) -> Result<(), DemoError> {
    let Some(node) = node else {
        return Ok(());
    };
    let begun = Instant::now();
    stage.restart(node)?;
    let entries = until("the node has caught up", async || {
        stage.caught_up(node).await
    })
    .await?;
    show.tell_or_ignore(&Happening::Restarted {
        node,
        after_ms: begun.elapsed().as_millis(),
        entries,
    });
    Ok(())
}

/// A graceful hand-over, as before maintenance.
async fn hand_over(stage: &Stage, show: &mut Show) -> Result<(), DemoError> {
    let from = until("a leader is known", async || stage.leader().await).await?;
    let begun = Instant::now();
    stage.client()?.transfer(None).await?;
    let to = until("another node leads", async || {
        stage.leader().await.filter(|next| *next != from)
    })
    .await?;
    show.tell_or_ignore(&Happening::HandedOver {
        from,
        to,
        after_ms: begun.elapsed().as_millis(),
    });
    Ok(())
}

/// Holds what clients and workers recorded against every invariant.
fn audit(stage: &Stage, load: &Load) -> Result<Report, DemoError> {
    let record = stage.folder().join("clients.journal");
    load.write(&record)?;
    let mut history = History::default();
    for path in stage.journals().into_iter().chain([record]) {
        let file = std::fs::File::open(&path).map_err(|source| DemoError::System {
            doing: format!("read {}", path.display()),
            source,
        })?;
        let read = history.read(BufReader::new(file));
        read.map_err(|source| DemoError::Journal { path, source })?;
    }
    Ok(check(&history))
}

/// Looks until there is something to see.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> Result<T, DemoError> {
    let ends = Instant::now() + Duration::from_secs(STEP_S_MAX);
    while Instant::now() < ends {
        if let Some(seen) = look().await {
            return Ok(seen);
        }
        sleep(Duration::from_millis(LOOK_MS / 10)).await;
    }
    Err(too_slow(what, STEP_S_MAX))
}

/// The wall clock in microseconds of Unix time: windows go by it, and records carry it.
#[expect(
    clippy::disallowed_methods,
    reason = "the demo's plot and records go by the wall clock; the cluster decides nothing by it"
)]
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}
