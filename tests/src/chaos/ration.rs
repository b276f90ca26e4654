//! Clients of a pool with a rate alone, each of whose operations is recorded with its answer: what the
//! audit searches for an order of.

use std::sync::Arc;
use std::time::Duration;

use fermata_api::jobs::{CompletedRequest, Executor, JobState, LaunchRequest};
use fermata_api::problem::ErrorCode;
use fermata_api::query::PageQuery;
use fermata_audit::{Answer, Answered, Ask, Operation, Ration, Record};
use fermata_client::{Client, ClientError};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{Recorder, now_us};

/// The event whose jobs make up the pool.
pub(super) const RATIONED: &str = "rationed";
const POOL: &str = "cap:ration";
const RATE: u64 = 6;
/// Longer than any run: what the window counts stays until a reset.
const WINDOW_S: u64 = 604_800;
/// A caller that is never silent for too long.
const LEASE_S: u64 = 86_400;
/// A client begins an operation this often at most, so that the search stays short.
const TURN: Duration = Duration::from_millis(150);
/// How often a job that was put back meanwhile is looked at, to confirm its new attempt.
const LOOKS_MAX: u32 = 5;

/// The event.
pub(super) fn definition() -> Value {
    json!({"limits": [{"type": "job", "rate": RATE, "window": WINDOW_S, "style": "sliding",
        "cap_key": "ration"}]})
}

/// What the pool must keep.
pub(super) fn ration() -> Record {
    Record::Ration(Ration {
        pool: POOL.to_owned(),
        rate: RATE,
    })
}

/// One client.
pub(super) struct Rationer {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) recorder: Arc<Recorder>,
    pub(super) random: StdRng,
}

impl Rationer {
    /// Launches, confirms, cancels, resets and counts until all is over.
    pub(super) async fn work(mut self, is_over: impl Fn() -> bool) {
        let mut number = 0;
        let mut turns = interval(TURN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !is_over() {
            turns.tick().await;
            let sent_us = now_us();
            match self.random.random_range(0..8) {
                0 => {
                    let reset = self.client.reset_window(POOL).await;
                    self.record(Ask::Reset, sent_us, reset.ok().map(|()| Answer::Done));
                }
                1..=3 => {
                    let count = self.count().await.map(Answer::Count);
                    self.record(Ask::Count, sent_us, count);
                }
                _ => {
                    number += 1;
                    let job = format!("{RATIONED}-{}-{number}", self.name);
                    self.launch(job).await;
                }
            }
        }
    }

    /// How many starts the window counts.
    async fn count(&self) -> Option<u64> {
        let page = self.client.windows(&PageQuery::default()).await.ok()?;
        let window = page.items.iter().find(|window| window.id == POOL);
        Some(window.map_or(0, |window| window.count))
    }

    /// Launches a job, then cancels it or has it run.
    async fn launch(&mut self, job: String) {
        let request = LaunchRequest {
            id: Some(job.clone()),
            event: Some(RATIONED.to_owned()),
            executor: Some(Executor::Caller),
            lease_s: Some(LEASE_S),
            ..LaunchRequest::default()
        };
        let sent_us = now_us();
        let answer = match self.client.launch(request).await {
            // Without a queue limit only what was started and put back is queued.
            Ok(job) if matches!(job.state, JobState::Starting | JobState::Queued) => {
                Some(Answer::Started)
            }
            Err(ClientError::Refused(problem)) if problem.code == ErrorCode::RateLimited => {
                Some(Answer::Aborted)
            }
            _ => None,
        };
        self.record(Ask::Launch(job.clone()), sent_us, answer);
        if answer != Some(Answer::Started) {
            return;
        }
        if self.random.random_bool(0.3) {
            let sent_us = now_us();
            let answer = match self.client.cancel(&job).await {
                Ok(_) => Some(Answer::Done),
                // One that was sent again finds its own work done.
                Err(ClientError::Refused(problem)) if problem.code == ErrorCode::Final => {
                    Some(Answer::Done)
                }
                Err(_) => None,
            };
            self.record(Ask::Cancel(job), sent_us, answer);
        } else {
            self.confirm(job).await;
        }
    }

    /// Confirms whatever attempt a job is at, and ends it.
    async fn confirm(&self, job: String) {
        let sent_us = now_us();
        let mut confirmed = None;
        for _ in 0..LOOKS_MAX {
            let Ok(view) = self.client.job(&job).await else {
                break;
            };
            match self.client.started(&job, view.attempt).await {
                Ok(_) => confirmed = Some(view.attempt),
                // It was put back in between.
                Err(ClientError::Refused(problem)) if problem.code == ErrorCode::StaleAttempt => {
                    continue;
                }
                Err(_) => {}
            }
            break;
        }
        let answer = confirmed.map(|_| Answer::Done);
        self.record(Ask::Confirm(job.clone()), sent_us, answer);
        if let Some(attempt) = confirmed {
            // Its end moves nothing.
            let ended = CompletedRequest {
                attempt,
                code: 0,
                description: None,
            };
            let _ = self.client.completed(&job, &ended).await;
        }
    }

    fn record(&self, ask: Ask, sent_us: i64, answer: Option<Answer>) {
        self.recorder.record(Record::Operation(Operation {
            pool: POOL.to_owned(),
            ask,
            sent_us,
            answer: answer.map(|answer| Answered {
                at_us: now_us(),
                answer,
                index: None,
            }),
        }));
    }
}
