//! Many jobs over some workers, while workers are killed, paused past their lease and started again
//! under their ids, and leaders are killed: what must hold after all of that.
//!
//! The short form is a test; `scripts/bench/soak` runs the long one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fermata_api::jobs::{JobView, LaunchRequest};
use fermata_api::params::Params;
use fermata_api::settings::Settings;
use fermata_audit::{Expectation, Report};
use fermata_client::Client;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::task::JoinSet;

use crate::fleet::Fleet;
use crate::{Cluster, DEADLINE, Recorder, WorkerOptions, wait_for};

/// Tasks that launch jobs, one after the other each.
const LAUNCHERS: usize = 8;
/// The event and its pool.
const EVENT: &str = "soak";
const POOL: &str = "event:soak";
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

struct Soak {
    cluster: Cluster,
    client: Client,
    fleet: Fleet,
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
        let mut fleet = Fleet::new(cluster.folder());
        for number in 1..=options.workers {
            // No other run has these.
            let server = format!("w{number}-{}", std::process::id());
            fleet.start(WorkerOptions {
                max_jobs: options.max_jobs,
                ..WorkerOptions::sleeping(&server, cluster.urls())
            });
        }
        fleet.online(&client).await;
        Self {
            cluster,
            client,
            fleet,
            options,
            random: StdRng::seed_from_u64(options.seed),
            counts: [0; 4],
        }
    }

    /// Disturbs, and lets some jobs end, until all have.
    async fn disturb(&mut self, jobs: u64) {
        loop {
            let ended = self.ended().await;
            if ended >= jobs {
                return;
            }
            let server = self.fleet.servers().choose(&mut self.random);
            let server = server.expect("a worker").to_owned();
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
        self.fleet.kill(server).await;
    }

    async fn pause_worker(&mut self, server: &str, is_long: bool) {
        self.counts[1 + usize::from(is_long)] += 1;
        let missed = self.fleet.pause_until_missed(&self.client, server, is_long);
        missed.await;
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
        let workers = self.fleet.stop(DEADLINE).await;
        for disturbed in workers.disturbed {
            recorder.disturbed(disturbed);
        }
        let [worker_kills, short_pauses, long_pauses, leader_kills] = self.counts;
        SoakReport {
            audit: recorder.audit(workers.journals.iter().map(PathBuf::as_path)),
            worker_kills,
            short_pauses,
            long_pauses,
            leader_kills,
            succeeded,
            lost,
            left_behind: workers.left_behind,
            following,
        }
    }
}
