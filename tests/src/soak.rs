//! Many jobs over some workers, while workers are killed, paused past their lease and started again
//! under their ids, and leaders are killed: what must hold after all of that.
//!
//! The short form is a test; `scripts/bench/soak` runs the long one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fermata_api::jobs::{JobView, LaunchRequest};
use fermata_api::params::Params;
use fermata_api::settings::Settings;
use fermata_audit::{Disturbed, Expectation, Record, Report};
use fermata_client::Client;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{Cluster, DEADLINE, Recorder, Worker, WorkerOptions, now_us, wait_for};

/// Tasks that launch jobs, one after the other each.
const LAUNCHERS: usize = 8;
/// The event and its pool.
const EVENT: &str = "soak";
const POOL: &str = "event:soak";
/// The variable by which a worker's commands, and whatever they start, are known.
const MARK: &str = "FERMATA_SERVER";
/// How long a job of the following run runs: longer than it takes.
const ENDLESS_S: &str = "600";
/// Between two disturbances so many jobs must have ended, at most.
const CALM_JOBS: u64 = 25;
/// How long all jobs of a run may take to end.
const RUN_MAX: Duration = Duration::from_secs(1_800);

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct SoakOptions {
    /// Jobs in all.
    pub jobs: usize,
    /// Workers.
    pub workers: usize,
    /// Capacity of each worker.
    pub max_jobs: u64,
    /// Most jobs at once, less than the workers' capacity: the slots are what is scarce.
    pub amount: u64,
    /// What the random choices come from.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct SoakReport {
    /// The audit.
    pub audit: Report,
    /// Workers that were killed and started again.
    pub worker_kills: usize,
    /// Workers that stood still until they were offline.
    pub short_pauses: usize,
    /// Workers that stood still until their leases were over.
    pub long_pauses: usize,
    /// Leaders that were killed and started again.
    pub leader_kills: usize,
    /// Jobs that ended with code 0.
    pub succeeded: u64,
    /// Jobs that ended with their worker.
    pub lost: u64,
    /// Processes that were left behind: their ids and command lines.
    pub left_behind: Vec<String>,
    /// Jobs of the following run that ran at once.
    pub following: u64,
}

impl fmt::Display for SoakReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.audit)?;
        writeln!(
            formatter,
            "workers killed {}, paused until offline {}, paused past their lease {}; leaders killed {}",
            self.worker_kills, self.short_pauses, self.long_pauses, self.leader_kills
        )?;
        write!(
            formatter,
            "jobs ended with code 0: {}, lost with their workers: {}; ran at once afterwards: {}; \
             processes left behind: {}",
            self.succeeded,
            self.lost,
            self.following,
            self.left_behind.len()
        )
    }
}

/// One life of a worker's process.
struct Life {
    server: String,
    from_us: i64,
    killed_us: Option<i64>,
    was_paused: bool,
}

struct Soak {
    cluster: Cluster,
    client: Client,
    workers: BTreeMap<String, Worker>,
    lives: Vec<Life>,
    options: SoakOptions,
    random: StdRng,
    counts: [usize; 4],
}

/// Runs it whole.
///
/// # Panics
/// Something does not come to pass in time.
pub async fn soak(options: SoakOptions) -> SoakReport {
    let mut soak = Soak::start(options).await;
    let expectation = Expectation {
        pool: POOL.to_owned(),
        amount: Some(options.amount),
        rate: None,
    };
    let recorder = Arc::new(Recorder::new(soak.cluster.client(), expectation));
    let launchers = launch_all(&recorder, options);
    soak.disturb(u64::try_from(options.jobs).unwrap_or(u64::MAX))
        .await;
    launchers.join_all().await;
    let ended = recorder.read_ends(RUN_MAX).await;
    let succeeded = count(&ended, |job| job.code == Some(0));
    let lost = count(&ended, |job| job.reason.is_some());
    let following = soak.follow(&recorder).await;
    soak.finish(&recorder, succeeded, lost, following).await
}

fn count(jobs: &BTreeMap<String, JobView>, is_it: impl Fn(&JobView) -> bool) -> u64 {
    jobs.values().filter(|job| is_it(job)).count() as u64
}

/// Launches the jobs, each of 20 to 250 ms.
fn launch_all(recorder: &Arc<Recorder>, options: SoakOptions) -> JoinSet<()> {
    let mut launchers = JoinSet::new();
    for launcher in 0..LAUNCHERS {
        let recorder = Arc::clone(recorder);
        let mut random = StdRng::seed_from_u64(options.seed ^ launcher as u64);
        let jobs = options.jobs / LAUNCHERS + usize::from(launcher < options.jobs % LAUNCHERS);
        launchers.spawn(async move {
            for _ in 0..jobs {
                let ms = random.random_range(20..=250_u32);
                // One whose outcome stays unknown is audited too.
                let _ = recorder.launch(job(&format!("0.{ms:03}"))).await;
            }
        });
    }
    launchers
}

fn job(seconds: &str) -> LaunchRequest {
    LaunchRequest {
        event: Some(EVENT.to_owned()),
        params: Some(Params::from_json(seconds).expect("a number")),
        ..LaunchRequest::default()
    }
}

impl Soak {
    async fn start(options: SoakOptions) -> Self {
        let cluster = Cluster::start().await;
        let client = cluster.client();
        let settings = Settings {
            server_timeout_s: 1,
            job_timeout_s: 2,
            ..Settings::default()
        };
        client.put_settings(&settings).await.expect("settings");
        let limits = json!([{"type": "job", "amount": options.amount},
            {"type": "queue", "amount": 1_000_000}]);
        cluster.define_event(EVENT, json!({"limits": limits})).await;
        let mut soak = Self {
            cluster,
            client,
            workers: BTreeMap::new(),
            lives: Vec::new(),
            options,
            random: StdRng::seed_from_u64(options.seed),
            counts: [0; 4],
        };
        for number in 1..=options.workers {
            // No other run has these.
            soak.start_worker(&format!("w{number}-{}", std::process::id()));
        }
        for server in soak.workers.keys() {
            // One that was never seen cannot be missed.
            let what = format!("{server} is online");
            wait_for(&what, DEADLINE, async || {
                let view = soak.client.server(server).await.ok()?;
                view.online.then_some(())
            })
            .await;
        }
        soak
    }

    fn start_worker(&mut self, server: &str) {
        let options = WorkerOptions {
            max_jobs: self.options.max_jobs,
            ..WorkerOptions::sleeping(server, self.cluster.urls())
        };
        self.lives.push(Life {
            server: server.to_owned(),
            from_us: now_us(),
            killed_us: None,
            was_paused: false,
        });
        let worker = Worker::start(options, self.cluster.folder());
        self.workers.insert(server.to_owned(), worker);
    }

    fn life(&mut self, server: &str) -> &mut Life {
        let life = self.lives.iter_mut().rev().find(|it| it.server == server);
        life.expect("a worker that was started")
    }

    /// Disturbs, and lets some jobs end, until all have.
    async fn disturb(&mut self, jobs: u64) {
        loop {
            let ended = self.ended().await;
            if ended >= jobs {
                return;
            }
            let server = self.workers.keys().choose(&mut self.random);
            let server = server.expect("a worker").clone();
            match self.random.random_range(0..10) {
                0..4 => self.kill_worker(&server).await,
                4..6 => self.pause_worker(&server, false).await,
                6..8 => self.pause_worker(&server, true).await,
                _ => self.kill_leader().await,
            }
            let wanted = (ended + self.random.random_range(1..=CALM_JOBS)).min(jobs);
            wait_for("some jobs have ended", RUN_MAX, async || {
                (self.ended().await >= wanted).then_some(())
            })
            .await;
        }
    }

    /// Jobs that have ended, whichever way. They are all kept.
    async fn ended(&self) -> u64 {
        wait_for("the counters are told", DEADLINE, async || {
            let stats = self.client.stats().await.ok()?;
            Some(stats.jobs.finished)
        })
        .await
    }

    async fn kill_worker(&mut self, server: &str) {
        self.counts[0] += 1;
        let worker = self.workers.remove(server).expect("it runs");
        worker.kill().await;
        self.life(server).killed_us = Some(now_us());
        self.start_worker(server);
    }

    /// Has a worker stand still until the cluster takes it for offline, or its jobs for lost.
    async fn pause_worker(&mut self, server: &str, is_long: bool) {
        self.counts[1 + usize::from(is_long)] += 1;
        self.life(server).was_paused = true;
        self.workers[server].process().pause();
        let what = format!("{server} is missed");
        wait_for(&what, DEADLINE, async || {
            let view = self.client.server(server).await.ok()?;
            let is_missed = !view.online && (!is_long || view.active == 0);
            is_missed.then_some(())
        })
        .await;
        self.workers[server].process().resume();
    }

    async fn kill_leader(&mut self) {
        self.counts[3] += 1;
        let leader = self.cluster.leader().await;
        self.cluster.kill(leader).await;
        self.cluster.start_node(leader).await;
    }

    /// A following run finds every slot free: it uses the full amount.
    async fn follow(&mut self, recorder: &Recorder) -> u64 {
        let mut jobs = Vec::new();
        for _ in 0..self.options.amount + 5 {
            let launched = recorder.launch(job(ENDLESS_S)).await.expect("a launch");
            jobs.push(launched.id);
        }
        let running = wait_for("the following run uses every slot", DEADLINE, async || {
            let stats = self.client.stats().await.ok()?;
            let is_full = stats.jobs.active >= self.options.amount;
            is_full.then_some(stats.jobs.active)
        })
        .await;
        // Those that wait first, or they would start.
        for id in jobs.iter().rev() {
            self.client.cancel(id).await.expect("a cancellation");
        }
        recorder.read_ends(DEADLINE).await;
        running
    }

    async fn finish(
        self,
        recorder: &Recorder,
        succeeded: u64,
        lost: u64,
        following: u64,
    ) -> SoakReport {
        let journals: Vec<PathBuf> = self
            .workers
            .values()
            .map(|worker| worker.journal().to_owned())
            .collect();
        let servers: Vec<String> = self.workers.keys().cloned().collect();
        for (server, worker) in self.workers {
            let exit = worker.stop(DEADLINE).await;
            assert!(exit.status.success(), "{server}: {}", exit.status);
        }
        let left_behind = left_behind(&servers);
        for disturbed in disturbances(&journals, &self.lives) {
            recorder.disturbed(disturbed);
        }
        let [worker_kills, short_pauses, long_pauses, leader_kills] = self.counts;
        SoakReport {
            audit: recorder.audit(journals.iter().map(PathBuf::as_path)),
            worker_kills,
            short_pauses,
            long_pauses,
            leader_kills,
            succeeded,
            lost,
            left_behind,
            following,
        }
    }
}

/// Which incarnations were killed or paused: an incarnation is the instant at which its worker
/// began.
fn disturbances(journals: &[PathBuf], lives: &[Life]) -> Vec<Disturbed> {
    let mut found = BTreeMap::new();
    for path in journals {
        let text = std::fs::read_to_string(path).expect("the worker has a journal");
        for line in text.lines() {
            let Ok(Record::Begin(begin)) = serde_json::from_str(line) else {
                continue;
            };
            let began_us = i64::try_from(begin.incarnation).unwrap_or(i64::MAX);
            let mut of_it = lives.iter().filter(|life| life.server == begin.worker);
            let life = of_it.rfind(|life| life.from_us <= began_us);
            let life = life.expect("an incarnation has a life");
            if life.was_paused || life.killed_us.is_some() {
                found.insert((begin.worker, begin.incarnation), life.killed_us);
            }
        }
    }
    let found = found.into_iter();
    let disturbed = found.map(|((worker, incarnation), killed_us)| Disturbed {
        worker,
        incarnation,
        killed_us,
    });
    disturbed.collect()
}

/// Processes of this machine that belong to the commands of these servers.
fn left_behind(servers: &[String]) -> Vec<String> {
    let marks: Vec<String> = servers.iter().map(|it| format!("{MARK}={it}")).collect();
    let processes = std::fs::read_dir("/proc").expect("Linux has it");
    let mut left = Vec::new();
    for process in processes.filter_map(Result::ok) {
        let of = |name: &str| std::fs::read(Path::new(&process.path()).join(name));
        // A process may end while it is looked at.
        let Ok(environment) = of("environ") else {
            continue;
        };
        let mut variables = environment.split(|byte| *byte == 0);
        if variables.any(|variable| marks.iter().any(|mark| mark.as_bytes() == variable)) {
            let command = of("cmdline").unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            left.push(format!("{}: {command}", process.path().display()));
        }
    }
    left
}
