//! Clients of a pool with a rate alone, each of whose operations is recorded with its answer: what
//! the audit searches for an order of. A launch whose answer was lost counts once (F06), and a leader
//! that was cut off shows no old count (F27).

use crate::clock::true_us;
use crate::edge::{Answer, Question};
use crate::users::User;
use fermata_audit::{Answer as Told, Answered, Ask, Operation, Ration, Record};
use fermata_pool::command::{Command, Executor, Launch};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, Style};
use fermata_pool::outcome::{Outcome, Reason, Refusal, Standing};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use tokio::time::sleep;

/// The event whose jobs make up the pool.
pub(crate) const RATIONED: &str = "rationed";
const RATE: u64 = 6;
/// Longer than any run: what a window counts stays until a reset.
const WINDOW_S: u64 = 604_800;
/// A caller that is never silent for too long.
const LEASE_S: u64 = 86_400;
/// How often a job that was put back meanwhile is looked at, to confirm its new attempt.
const LOOKS_MAX: u32 = 5;

fn pool() -> String {
    format!("cap:{RATIONED}")
}

/// What the pool must keep.
pub(crate) fn ration() -> Record {
    Record::Ration(Ration {
        pool: pool(),
        rate: RATE,
    })
}

/// The limits of its event.
pub(crate) fn limits() -> Vec<Limit> {
    let job = JobLimit {
        cap_key: Some(RATIONED.into()),
        rate: RATE,
        window: Some(WINDOW_S),
        style: Some(Style::Sliding),
        ..JobLimit::default()
    };
    vec![Limit {
        enabled: true,
        kind: LimitKind::Job(job),
    }]
}

impl User {
    /// Launches, confirms, cancels, resets and counts while things go wrong, and a little longer.
    pub(crate) async fn ration(self) -> turmoil::Result {
        let mut random = StdRng::seed_from_u64(self.seed);
        sleep(Duration::from_secs(3)).await;
        let mut number = 0;
        while turmoil::sim_elapsed().unwrap_or_default() < self.healed {
            sleep(Duration::from_millis(random.random_range(100..2_000))).await;
            match random.random_range(0..8) {
                0 => {
                    let reset = Command::Reset {
                        scope: pool().into(),
                    };
                    self.operate(Ask::Reset, &Question::Propose(reset), done)
                        .await;
                }
                1..=3 => {
                    let count = Question::Count(pool());
                    self.operate(Ask::Count, &count, counted).await;
                }
                _ => {
                    number += 1;
                    let job = format!("{RATIONED}-{}-{number}", self.name);
                    self.launch_one(&job, random.random_bool(0.3)).await;
                }
            }
        }
        Ok(())
    }

    /// Launches a job, then cancels it or has it run.
    async fn launch_one(&self, job: &str, is_cancelled: bool) {
        let launch = Launch {
            id: job.into(),
            event: Some(RATIONED.into()),
            executor: Some(Executor::Caller),
            lease_s: Some(LEASE_S),
            ..Launch::default()
        };
        let question = Question::Propose(Command::Launch(Box::new(launch)));
        let asked = Ask::Launch(job.to_owned());
        if self.operate(asked, &question, launched).await != Some(Told::Started) {
            return;
        }
        if is_cancelled {
            let cancel = Question::Propose(Command::Cancel { job: job.into() });
            self.operate(Ask::Cancel(job.to_owned()), &cancel, done)
                .await;
        } else {
            self.confirm_one(job).await;
        }
    }

    /// Confirms whatever attempt a job is at, and ends it.
    async fn confirm_one(&self, job: &str) {
        let sent_us = true_us();
        let mut confirmed = None;
        for _ in 0..LOOKS_MAX {
            let shown = self.ask(Question::Show(job.to_owned())).await;
            let Answer::Job(Some(shown)) = shown else {
                break;
            };
            let attempt = shown.attempt;
            let started = Command::Started {
                job: job.into(),
                attempt,
                from: None,
            };
            match self.ask(Question::Propose(started)).await {
                Answer::Done(_) => confirmed = Some(attempt),
                // It was put back in between.
                Answer::Refused(Refusal::StaleAttempt) => continue,
                _ => {}
            }
            break;
        }
        let told = confirmed.map(|_| Told::Done);
        self.record(Ask::Confirm(job.to_owned()), sent_us, told);
        if let Some(attempt) = confirmed {
            self.complete(job, attempt).await;
        }
    }

    /// Asks, and records the question with what was told.
    async fn operate(
        &self,
        ask: Ask,
        question: &Question,
        told: impl Fn(&Answer) -> Option<Told>,
    ) -> Option<Told> {
        let sent_us = true_us();
        let answer = told(&self.ask(question.clone()).await);
        self.record(ask, sent_us, answer);
        answer
    }

    fn record(&self, ask: Ask, sent_us: i64, told: Option<Told>) {
        self.seen.record(Record::Operation(Operation {
            pool: pool(),
            ask,
            sent_us,
            answer: told.map(|answer| Answered {
                at_us: true_us(),
                answer,
                index: None,
            }),
        }));
    }
}

fn launched(answer: &Answer) -> Option<Told> {
    let Answer::Done(Outcome::Job(job)) = answer else {
        return None;
    };
    match job.standing {
        // Without a queue limit only what was started and put back is queued.
        Standing::Starting { .. } | Standing::Queued => Some(Told::Started),
        Standing::Aborted {
            reason: Reason::RateLimited,
        } => Some(Told::Aborted),
        _ => None,
    }
}

fn done(answer: &Answer) -> Option<Told> {
    match answer {
        // A cancel that was sent again finds its own work done.
        Answer::Done(_) | Answer::Refused(Refusal::Final) => Some(Told::Done),
        _ => None,
    }
}

fn counted(answer: &Answer) -> Option<Told> {
    match answer {
        Answer::Count(count) => Some(Told::Count(*count)),
        _ => None,
    }
}
