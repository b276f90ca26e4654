//! Those who use the cluster: an admin who defines things, users who launch and wait for ends, and
//! callers who execute their jobs themselves.

use crate::clock::true_us;
use crate::edge::{Answer, Question, Shown, ask};
use crate::invariants::Seen;
use crate::network::Network;
use crate::ration::{self, RATIONED};
use crate::trace::Kind;
use fermata_audit::{
    End, Ended, Expectation, Launch as LaunchRecord, LaunchPlace, Lost, LostReason, Rate, Record,
    Windows,
};
use fermata_pool::command::{
    Command, Event, Executor, Launch, Override, ServerDefinition, Settings,
};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, Style};
use fermata_pool::outcome::{Outcome, Reason, Refusal, Standing};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// A pool with an amount and fixed windows aligned to UTC.
pub(crate) const STEADY: &str = "steady";
const STEADY_AMOUNT: u64 = 3;
const STEADY_RATE: u64 = 6;
const STEADY_WINDOW_S: u32 = 2;
/// A pool with a sliding window.
pub(crate) const ROLLING: &str = "rolling";
pub(crate) const ROLLING_RATE: u64 = 5;
pub(crate) const ROLLING_WINDOW_S: u32 = 2;
/// A pool with a token bucket.
pub(crate) const PACED: &str = "paced";
pub(crate) const PACED_RATE: u64 = 3;
pub(crate) const PACED_WINDOW_S: u32 = 1;
pub(crate) const PACED_BURST: u64 = 4;
/// A pool that shares a bucket, and has its window reset now and then.
pub(crate) const SHARED: &str = "shared";
/// A pool of callers.
pub(crate) const CALLED: &str = "called";
const CALLED_AMOUNT: u64 = 2;
/// How long a caller may be silent, in seconds.
const CALLER_LEASE_S: u64 = 3;
/// Silent for so long, a server is offline; and for so long again, its jobs are lost.
const SERVER_TIMEOUT_S: u32 = 2;

/// How long a user tries to get an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Jobs that one user launches.
const JOBS_PER_USER: u32 = 40;
/// Jobs that one caller launches.
const JOBS_PER_CALLER: u32 = 8;

/// One who uses the cluster.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) network: Network,
    pub(crate) seen: Seen,
    pub(crate) seed: u64,
    /// When nothing goes wrong any more, and when all must be over.
    pub(crate) healed: Duration,
    pub(crate) over: Duration,
}

/// The limits of the event whose jobs make up a pool.
fn limits_of(pool: &str) -> Vec<Limit> {
    if pool == RATIONED {
        return ration::limits();
    }
    let job = JobLimit {
        cap_key: Some(pool.into()),
        ..JobLimit::default()
    };
    let job = match pool {
        STEADY => JobLimit {
            amount: STEADY_AMOUNT,
            rate: STEADY_RATE,
            window: Some(u64::from(STEADY_WINDOW_S)),
            align: Some(fermata_pool::limits::Align::Utc),
            ..job
        },
        ROLLING => JobLimit {
            rate: ROLLING_RATE,
            window: Some(u64::from(ROLLING_WINDOW_S)),
            style: Some(Style::Sliding),
            ..job
        },
        PACED => JobLimit {
            rate: PACED_RATE,
            window: Some(u64::from(PACED_WINDOW_S)),
            style: Some(Style::TokenBucket),
            burst: Some(PACED_BURST),
            ..job
        },
        CALLED => JobLimit {
            amount: CALLED_AMOUNT,
            ..job
        },
        _ => JobLimit { amount: 4, ..job },
    };
    let mut kinds = vec![
        LimitKind::Job(job),
        LimitKind::Queue(QueueLimit { amount: 10_000 }),
    ];
    if pool == SHARED {
        kinds.push(LimitKind::Rate(RateLimit {
            key: "vendor".into(),
            count: 6,
            per_seconds: 2,
            style: Some(Style::Fixed),
            burst: None,
            mode: Some(Mode::Wait),
        }));
    }
    kinds
        .into_iter()
        .map(|kind| Limit {
            enabled: true,
            kind,
        })
        .collect()
}

impl User {
    pub(crate) async fn ask(&self, question: Question) -> Answer {
        let first = self.seed % crate::NODES + 1;
        let answer = ask(&self.network, first, &question, PATIENCE).await;
        let told = format!("{question:?} {answer:?}");
        self.network
            .trace
            .note(Kind::Outcome, &self.name, told.as_bytes());
        answer
    }

    /// Defines everything, again until it is there; then changes limits now and then.
    pub(crate) async fn administer(self) -> turmoil::Result {
        let mut random = StdRng::seed_from_u64(self.seed);
        let settings = Settings {
            start_timeout_s: 2,
            max_start_attempts: 1_000,
            server_timeout_s: SERVER_TIMEOUT_S,
            job_timeout_s: SERVER_TIMEOUT_S,
            ..Settings::default()
        };
        self.have(Command::PutSettings {
            settings: Box::new(settings),
            if_revision: None,
        })
        .await;
        for server in 1..=crate::WORKERS {
            self.have(Command::PutServer(ServerDefinition {
                id: format!("w{server}").into(),
                max_jobs: Some(10),
                enabled: true,
                ..ServerDefinition::default()
            }))
            .await;
        }
        for pool in [STEADY, ROLLING, PACED, SHARED, CALLED, RATIONED] {
            self.have(Command::PutEvent {
                event: Box::new(Event {
                    id: pool.into(),
                    enabled: true,
                    limits: limits_of(pool),
                    ..Event::default()
                }),
                if_revision: None,
            })
            .await;
        }
        while turmoil::sim_elapsed().unwrap_or_default() < self.healed {
            sleep(Duration::from_millis(random.random_range(500..4_000))).await;
            let scope = format!("cap:{STEADY}").into();
            let command = match random.random_range(0..4) {
                0 => Command::Reset {
                    scope: format!("cap:{SHARED}").into(),
                },
                1 | 2 => Command::PutOverride {
                    scope,
                    sizes: Override {
                        amount: Some(random.random_range(0..STEADY_AMOUNT as u32)),
                        count: random.random_bool(0.5).then_some(STEADY_RATE as u32 / 2),
                        note: "lowered".into(),
                        ..Override::default()
                    },
                },
                _ => Command::DeleteOverride { scope },
            };
            self.ask(Question::Propose(command)).await;
        }
        self.have(Command::DeleteOverride {
            scope: format!("cap:{STEADY}").into(),
        })
        .await;
        Ok(())
    }

    /// Has a command committed, however long it takes.
    async fn have(&self, command: Command) {
        while let Answer::Unknown = self.ask(Question::Propose(command.clone())).await {}
    }

    /// Launches jobs over the time in which things go wrong, then waits for all of them to end.
    pub(crate) async fn launch(self) -> turmoil::Result {
        let mut random = StdRng::seed_from_u64(self.seed);
        sleep(Duration::from_secs(3)).await;
        let mut launched = Vec::new();
        let pause_ms = self.healed.as_millis() as u64 / u64::from(JOBS_PER_USER);
        for number in 1..=JOBS_PER_USER {
            sleep(Duration::from_millis(random.random_range(1..pause_ms * 2))).await;
            let pool = [STEADY, STEADY, ROLLING, PACED, SHARED][random.random_range(0..5)];
            let launch = Launch {
                id: format!("{pool}-{}-{number}", self.name).into(),
                event: Some(pool.into()),
                priority: random.random_bool(0.2).then_some(1),
                ..Launch::default()
            };
            let sent_us = true_us();
            self.seen.launched(&launch.id, false);
            let answer = self.ask_launch(&launch).await;
            launched.push((launch.clone(), sent_us, answer));
            if random.random_bool(0.05) {
                self.ask(Question::Propose(Command::Cancel { job: launch.id }))
                    .await;
            }
        }
        for (launch, sent_us, answered_us) in launched {
            self.wait_for_end(&launch, sent_us, answered_us).await;
        }
        Ok(())
    }

    /// When the launch was answered, if it was. It is sent again under its id until that is known.
    async fn ask_launch(&self, launch: &Launch) -> Option<i64> {
        let command = Command::Launch(Box::new(launch.clone()));
        let answer = self.ask(Question::Propose(command)).await;
        match answer {
            Answer::Done(Outcome::Job(_)) => {
                self.seen.launched(&launch.id, true);
                Some(true_us())
            }
            Answer::Unknown | Answer::Refused(Refusal::EventMissing) => None,
            other => {
                self.seen
                    .violate(format!("launch of {} was answered {other:?}", launch.id));
                None
            }
        }
    }

    /// Reads a job until it has ended, and records what was read.
    async fn wait_for_end(&self, launch: &Launch, sent_us: i64, answered_us: Option<i64>) {
        let job = launch.id.to_string();
        let shown = loop {
            if turmoil::sim_elapsed().unwrap_or_default() > self.over {
                return;
            }
            match self.ask(Question::Show(job.clone())).await {
                Answer::Job(Some(shown)) if shown.standing.is_final() => break shown,
                Answer::Job(None) if answered_us.is_none() => return,
                Answer::Job(None) => {
                    return self.seen.violate(format!("{job} was launched and is gone"));
                }
                _ => sleep(Duration::from_millis(500)).await,
            }
        };
        let pool = launch.event.as_deref().unwrap_or_default();
        self.seen.record(Record::Launch(LaunchRecord {
            job: job.clone(),
            pool: format!("cap:{pool}"),
            priority: launch.priority.unwrap_or(0),
            sent_us,
            answered_us,
            was_aborted: false,
            place: Some(LaunchPlace {
                number: shown.number,
                at_us: shown.launched_us,
            }),
            due_us: None,
            retries: 0,
        }));
        self.record_end(&job, &shown);
    }

    fn record_end(&self, job: &str, shown: &Shown) {
        let (code, aborted) = match shown.standing {
            Standing::Complete { code } => (Some(code), None),
            Standing::Aborted { reason } => (None, Some(reason)),
            _ => return,
        };
        let lost = match aborted {
            Some(Reason::ServerLost) => Some(LostReason::ServerLost),
            Some(Reason::LeaseExpired) => Some(LostReason::LeaseExpired),
            _ => None,
        };
        if let (Some(reason), Some(at_us)) = (lost, shown.ended_us) {
            self.seen.record(Record::Lost(Lost {
                job: job.to_owned(),
                attempt: shown.attempt,
                reason,
                at_us,
            }));
        }
        self.seen.record(Record::Ended(Ended {
            job: job.to_owned(),
            attempt: shown.attempt,
            code,
            aborted: aborted.map(|reason| reason.code().to_owned()),
        }));
    }

    /// Launches permits one after the other, keeps each by renewing its lease, and gives it back.
    pub(crate) async fn call(self) -> turmoil::Result {
        let mut random = StdRng::seed_from_u64(self.seed);
        sleep(Duration::from_secs(3)).await;
        for number in 1..=JOBS_PER_CALLER {
            sleep(Duration::from_millis(random.random_range(100..3_000))).await;
            let launch = Launch {
                id: format!("{CALLED}-{}-{number}", self.name).into(),
                event: Some(CALLED.into()),
                executor: Some(Executor::Caller),
                lease_s: Some(CALLER_LEASE_S),
                ..Launch::default()
            };
            let sent_us = true_us();
            self.seen.launched(&launch.id, false);
            if let Some(answered_us) = self.ask_launch(&launch).await {
                self.hold(
                    &launch.id,
                    Duration::from_millis(random.random_range(100..1_500)),
                )
                .await;
                self.wait_for_end(&launch, sent_us, Some(answered_us)).await;
            }
        }
        Ok(())
    }

    /// Waits for the start of a permit, uses it for a while, gives it back.
    async fn hold(&self, job: &str, length: Duration) {
        let lease = Duration::from_secs(CALLER_LEASE_S);
        let mut kept_until = Instant::now() + lease;
        let mut using: Option<(u32, Instant)> = None;
        loop {
            let sent = Instant::now();
            let beat = Question::Heartbeat(job.to_owned());
            let answer = ask(
                &self.network,
                self.seed % crate::NODES + 1,
                &beat,
                lease / 4,
            )
            .await;
            match answer {
                Answer::Job(Some(shown)) if !shown.standing.is_final() => {
                    kept_until = sent + lease;
                    if using.is_none() && self.begin(job, &shown, kept_until).await {
                        using = Some((shown.attempt, Instant::now() + length));
                    }
                }
                Answer::Refused(_) => kept_until = Instant::now(),
                _ => {}
            }
            let now = Instant::now();
            if let Some((attempt, ends)) = using
                && (now >= ends || now >= kept_until)
            {
                self.end(job, attempt);
                self.complete(job, attempt).await;
                return;
            }
            if now >= kept_until {
                return;
            }
            let next = now + lease / 10;
            let ends = using.map_or(next, |(_, ends)| ends);
            sleep_until(next.min(ends).min(kept_until)).await;
        }
    }

    /// Confirms a start, and begins only what was confirmed while the lease still stands.
    async fn begin(&self, job: &str, shown: &Shown, kept_until: Instant) -> bool {
        let (Standing::Starting { attempt, .. }, Some(offer)) = (&shown.standing, &shown.offer)
        else {
            return false;
        };
        let started = Question::Propose(Command::Started {
            job: job.into(),
            attempt: *attempt,
            from: None,
        });
        let left = kept_until.saturating_duration_since(Instant::now());
        let answer = ask(&self.network, 1, &started, left).await;
        if !matches!(answer, Answer::Done(_)) || Instant::now() >= kept_until {
            return false;
        }
        self.seen.record(offer.begun(&self.name, 0));
        true
    }

    fn end(&self, job: &str, attempt: u32) {
        self.seen.record(Record::End(End {
            job: job.to_owned(),
            attempt,
            worker: self.name.clone(),
            incarnation: 0,
            at_us: true_us(),
            code: 0,
        }));
    }

    pub(crate) async fn complete(&self, job: &str, attempt: u32) {
        self.ask(Question::Propose(Command::Completed {
            job: job.into(),
            attempt,
            code: 0,
            description: "".into(),
            from: None,
        }))
        .await;
    }
}

/// What the pools must keep, as recorded by whoever set the stage.
pub(crate) fn expectations() -> [Expectation; 2] {
    [
        Expectation {
            pool: format!("cap:{STEADY}"),
            amount: Some(STEADY_AMOUNT),
            rate: Some(Rate {
                count: STEADY_RATE,
                windows: Windows::UtcS(STEADY_WINDOW_S),
            }),
        },
        Expectation {
            pool: format!("cap:{CALLED}"),
            amount: Some(CALLED_AMOUNT),
            rate: None,
        },
    ]
}
