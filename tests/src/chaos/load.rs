//! What the cluster is used for meanwhile: launches, cancellations and resets by some clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fermata_api::jobs::{JobState, LaunchRequest};
use fermata_api::params::Params;
use fermata_audit::Expectation;
use fermata_client::Client;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ration::{self, RATIONED, Rationer};
use crate::wait::{DEADLINE, wait_for};
use crate::{Cluster, Rated, Recorder};

/// An event whose pool is judged by its amount and its rate.
pub(super) const RATED: &str = "rated";
pub(super) const RATED_POOL: &str = "cap:crm";
/// An event whose pool is judged by its amount; its windows are reset again and again.
pub(super) const RESET: &str = "reset";
pub(super) const RESET_POOL: &str = "event:reset";

/// The sizes of both.
pub(super) const SIZES: Rated = Rated {
    amount: 6,
    // Less than there is room and work for: the rate is what is scarce.
    starts_per_window: 24,
    window_s: 2,
};
/// Clients, each of which launches one job after the other.
const LAUNCHERS: u64 = 5;
/// Clients of the pool whose answers are searched for an order.
const RATIONERS: u64 = 3;
/// Jobs of one client that have not ended.
const OUTSTANDING_MAX: usize = 4;
/// One in so many jobs is cancelled once it was launched.
const CANCELLED_ONE_IN: u32 = 12;
/// A window is reset after so many further launches.
const RESET_EVERY: u32 = 25;
/// Longer than a story may take: whoever runs such a job is stopped.
const ENDLESS_S: &str = "36000";
/// How long a job may take to end, whatever happens.
const END_DEADLINE: Duration = Duration::from_secs(120);

/// Clients at work.
pub(super) struct Load {
    pub(super) recorder: Arc<Recorder>,
    counts: Arc<Counts>,
    answers: watch::Receiver<Instant>,
    users: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    is_over: AtomicBool,
    cancels: AtomicU64,
    resets: AtomicU64,
}

impl Load {
    /// Defines the events, and begins.
    pub(super) async fn begin(cluster: &Cluster, client: &Client, seed: u64) -> Self {
        cluster.define_event(RATED, SIZES.event(Some("crm"))).await;
        cluster.define_event(RESET, SIZES.event(None)).await;
        let recorder = Recorder::new(client.clone(), SIZES.expectation(RATED_POOL));
        let reset_again = Expectation {
            rate: None,
            ..SIZES.expectation(RESET_POOL)
        };
        let recorder = Arc::new(recorder.with_event(RESET, reset_again));
        let (told, answers) = watch::channel(Instant::now());
        let counts = Arc::new(Counts::default());
        let mut users = JoinSet::new();
        for launcher in 0..LAUNCHERS {
            let launcher = Launcher {
                recorder: Arc::clone(&recorder),
                client: client.clone(),
                counts: Arc::clone(&counts),
                random: StdRng::seed_from_u64(seed.wrapping_add(launcher)),
                told: told.clone(),
            };
            users.spawn(launcher.launch());
        }
        drop(told);
        cluster.define_event(RATIONED, ration::definition()).await;
        recorder.record(ration::ration());
        for rationer in 0..RATIONERS {
            let counts = Arc::clone(&counts);
            let rationer = Rationer {
                name: format!("r{rationer}"),
                client: client.clone(),
                recorder: Arc::clone(&recorder),
                random: StdRng::seed_from_u64(seed.wrapping_add(LAUNCHERS + rationer)),
            };
            let is_over = move || counts.is_over.load(Ordering::Relaxed);
            users.spawn(rationer.work(is_over));
        }
        let resetting = reset(client.clone(), Arc::clone(&counts), answers.clone());
        users.spawn(resetting);
        Self {
            recorder,
            counts,
            answers,
            users,
        }
    }

    /// Waits until so many launches were answered, each sent after the one before was.
    pub(super) async fn goes_on(&mut self, launches: u32) {
        for _ in 0..launches {
            let begun = Instant::now();
            let later = self.answers.wait_for(|sent| *sent > begun);
            let later = tokio::time::timeout(2 * DEADLINE, later).await;
            later.expect("launches go on").expect("a client lives");
        }
    }

    /// Launches a job that does not end by itself, for that server, and waits until it runs there.
    /// Answers its id.
    pub(super) async fn hold(&self, client: &Client, server: &str) -> String {
        let request = LaunchRequest {
            targets: vec![server.to_owned()],
            ..job(RATED, ENDLESS_S)
        };
        let held = self.recorder.launch(request).await.expect("a launch").id;
        wait_for(&format!("{server} runs {held}"), DEADLINE, async || {
            let held = client.job(&held).await.ok()?;
            (held.state == JobState::Active).then_some(())
        })
        .await;
        held
    }

    /// Ends it, and waits until every job has ended. Answers how many jobs were told to be
    /// cancelled, and how many windows reset.
    pub(super) async fn end(&mut self) -> (u64, u64) {
        self.counts.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.users.join_next().await {
            ended.expect("a client that works");
        }
        self.recorder.read_ends(END_DEADLINE).await;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (count(&self.counts.cancels), count(&self.counts.resets))
    }
}

struct Launcher {
    recorder: Arc<Recorder>,
    client: Client,
    counts: Arc<Counts>,
    random: StdRng,
    told: watch::Sender<Instant>,
}

impl Launcher {
    async fn launch(mut self) {
        let mut outstanding = VecDeque::new();
        while !self.counts.is_over.load(Ordering::Relaxed) {
            let sent = Instant::now();
            let request = self.request();
            // What was not answered is recorded, and audited, too.
            let Ok(job) = self.recorder.launch(request).await else {
                continue;
            };
            self.told.send_if_modified(|last| {
                let is_later = sent > *last;
                *last = sent.max(*last);
                is_later
            });
            if self.random.random_ratio(1, CANCELLED_ONE_IN) {
                self.counts.cancels.fetch_add(1, Ordering::Relaxed);
                // It may have ended, and whether it was cancelled the job will say.
                let _ = self.client.cancel(&job.id).await;
            }
            outstanding.push_back(job.id);
            if outstanding.len() >= OUTSTANDING_MAX
                && let Some(oldest) = outstanding.pop_front()
            {
                self.recorder.read_end(&oldest, END_DEADLINE).await;
            }
        }
    }

    /// A job that sleeps for 20 to 200 ms.
    fn request(&mut self) -> LaunchRequest {
        let event = if self.random.random_ratio(1, 3) {
            RESET
        } else {
            RATED
        };
        let ms = self.random.random_range(20..=200_u32);
        job(event, &format!("0.{ms:03}"))
    }
}

fn job(event: &str, seconds: &str) -> LaunchRequest {
    LaunchRequest {
        event: Some(event.to_owned()),
        params: Some(Params::from_json(seconds).expect("a number")),
        ..LaunchRequest::default()
    }
}

/// Resets a window whenever the load has come a little further, until nobody launches any more.
async fn reset(client: Client, counts: Arc<Counts>, mut answers: watch::Receiver<Instant>) {
    let mut seen = 0;
    while answers.changed().await.is_ok() {
        seen += 1;
        // What was not answered may have been done, and then the cluster's own list says so.
        if seen % RESET_EVERY == 0 && client.reset_window(RESET_POOL).await.is_ok() {
            counts.resets.fetch_add(1, Ordering::Relaxed);
        }
    }
}
