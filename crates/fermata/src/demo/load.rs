//! The clients: they launch jobs, and record what they asked and what was answered.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fermata_api::events::Event;
use fermata_api::jobs::{JobState, JobView, LaunchRequest, Priority, Wait};
use fermata_api::limits::{Align, JobLimit, Limit, QueueLimit};
use fermata_api::params::Params;
use fermata_audit::{Ended, Expectation, Launch, LaunchPlace, Rate, Record, Windows};
use fermata_client::{Client, ClientError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{AMOUNT, DemoError, JOBS, POOL, RATE, STEP_S_MAX, WINDOW_S, now_us, until};

/// The events that share the allowance.
const EVENTS: [&str; 2] = ["sync-contacts", "push-orders"];
/// The most that may wait.
const QUEUE: u64 = 1_000;
/// Jobs that are launched at once, in the beginning.
const RUSH: usize = 100;
/// Between two launches after that, in milliseconds.
const TRICKLE_MS: u64 = 350;
/// How long a job takes, in milliseconds.
const JOB_MS: std::ops::RangeInclusive<u32> = 200..=1_200;
/// One of so many jobs goes before the others.
const URGENT_ONE_OF: u32 = 10;
/// The priority of those.
const URGENT: i64 = 10;

/// What is launched, and what became of it.
pub(super) struct Load {
    client: Client,
    jobs: Vec<LaunchRequest>,
    record: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    launches: BTreeMap<String, Launch>,
    ends: Vec<Ended>,
    /// Of the answered launches, the last one's: when it was sent, and when it was answered.
    last_answered: Option<(Instant, Instant)>,
    accepted: usize,
    refused: Option<ClientError>,
}

impl Load {
    pub(super) fn new(client: Client, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        Self {
            client,
            jobs: (1..=JOBS).map(|number| job(number, &mut random)).collect(),
            record: Mutex::default(),
        }
    }

    /// Defines the events.
    pub(super) async fn define(&self) -> Result<(), DemoError> {
        for id in EVENTS {
            self.client.put_event(id, &event()).await?;
        }
        Ok(())
    }

    /// Launches all jobs: many at once, then one after the other.
    pub(super) async fn launch_all(self: Arc<Self>) {
        let mut launches = JoinSet::new();
        for number in 0..self.jobs.len() {
            if number >= RUSH {
                sleep(Duration::from_millis(TRICKLE_MS)).await;
            }
            launches.spawn(Arc::clone(&self).launch(number));
        }
        while launches.join_next().await.is_some() {}
    }

    /// Launches one job. Its id makes every repetition harmless, so it goes on until the answer is
    /// definite.
    async fn launch(self: Arc<Self>, number: usize) {
        let request = self.jobs[number].clone();
        let mut launch = Launch {
            job: request.id.clone().unwrap_or_default(),
            pool: POOL.to_owned(),
            priority: request.priority.unwrap_or_default().get(),
            sent_us: now_us(),
            answered_us: None,
            was_aborted: false,
            place: None,
            due_us: None,
            retries: 0,
        };
        let sent = Instant::now();
        self.ledger()
            .launches
            .insert(launch.job.clone(), launch.clone());
        let answer = loop {
            match self.client.launch(request.clone()).await {
                Err(ClientError::Unavailable { .. } | ClientError::Unknown { .. }) => {}
                answer => break answer,
            }
        };
        launch.answered_us = Some(now_us());
        let mut ledger = self.ledger();
        match answer {
            Ok(job) => {
                launch.place = Some(LaunchPlace {
                    number: job.launch_number,
                    at_us: job.launched_at.unix_us(),
                });
                ledger.accepted += 1;
                ledger.last_answered = ledger.last_answered.max(Some((sent, Instant::now())));
            }
            Err(error) => {
                launch.was_aborted = true;
                ledger.refused = Some(error);
            }
        }
        ledger.launches.insert(launch.job.clone(), launch);
    }

    /// Launches that were accepted.
    pub(super) fn accepted(&self) -> usize {
        self.ledger().accepted
    }

    /// The queue has room for all: a launch that was refused is the end of the demo.
    pub(super) fn check(&self) -> Result<(), DemoError> {
        self.ledger()
            .refused
            .take()
            .map_or(Ok(()), |error| Err(error.into()))
    }

    /// How long after `begun` a launch was answered that was sent after it; nothing yet if none.
    pub(super) fn answered_since(&self, begun: Instant) -> Option<Duration> {
        let (sent, answered) = self.ledger().last_answered?;
        (sent > begun).then(|| answered - begun)
    }

    /// Reads how each job ended.
    pub(super) async fn read_ends(&self) -> Result<(), DemoError> {
        let jobs: Vec<String> = self.ledger().launches.keys().cloned().collect();
        for id in jobs {
            let hold = Duration::from_secs(STEP_S_MAX);
            let job = until("every job has ended", async || {
                let job = self.client.job_and_wait(&id, Wait::End, hold).await.ok()?;
                job.state.is_final().then_some(job)
            })
            .await?;
            self.ledger().ends.push(ended(&job));
        }
        Ok(())
    }

    /// Writes everything down for the audit.
    pub(super) fn write(&self, path: &Path) -> Result<(), DemoError> {
        let ledger = self.ledger();
        let launches = ledger.launches.values().cloned().map(Record::Launch);
        let ends = ledger.ends.iter().cloned().map(Record::Ended);
        let records = [Record::Expect(expectation())].into_iter();
        let mut text = String::new();
        for record in records.chain(launches).chain(ends) {
            let line = record
                .to_line()
                .map_err(|error| unwritten(path, error.into()))?;
            text.push_str(&line);
        }
        let mut file = std::fs::File::create(path).map_err(|error| unwritten(path, error))?;
        let written = file.write_all(text.as_bytes());
        written.map_err(|error| unwritten(path, error))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Every change leaves it whole.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unwritten(path: &Path, source: std::io::Error) -> DemoError {
    DemoError::System {
        doing: format!("write {}", path.display()),
        source,
    }
}

fn ended(job: &JobView) -> Ended {
    let is_aborted = job.state == JobState::Aborted;
    Ended {
        job: job.id.clone(),
        attempt: job.attempt,
        code: job.code,
        aborted: is_aborted.then(|| format!("{:?}", job.reason)),
    }
}

/// What the pool must keep.
fn expectation() -> Expectation {
    Expectation {
        pool: POOL.to_owned(),
        amount: Some(AMOUNT),
        rate: Some(Rate {
            count: RATE,
            windows: Windows::UtcS(WINDOW_S),
        }),
    }
}

fn event() -> Event {
    let job = JobLimit {
        enabled: true,
        amount: AMOUNT,
        rate: RATE,
        window: Some(u64::from(WINDOW_S)),
        cap_key: Some("salesforce".to_owned()),
        style: None,
        align: Some(Align::Utc),
        burst: None,
        mode: None,
        weight: None,
    };
    let queue = QueueLimit {
        enabled: true,
        amount: QUEUE,
    };
    Event {
        enabled: true,
        limits: vec![Limit::Job(job), Limit::Queue(queue)],
        ..Event::default()
    }
}

fn job(number: usize, random: &mut StdRng) -> LaunchRequest {
    let ms = random.random_range(JOB_MS);
    let is_urgent = random.random_ratio(1, URGENT_ONE_OF);
    LaunchRequest {
        id: Some(format!("job-{number:03}")),
        event: Some(EVENTS[number % EVENTS.len()].to_owned()),
        priority: is_urgent.then(|| Priority::new(URGENT)).flatten(),
        params: Params::from_json(&format!("{}.{:03}", ms / 1_000, ms % 1_000)).ok(),
        ..LaunchRequest::default()
    }
}
