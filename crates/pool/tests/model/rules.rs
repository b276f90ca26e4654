//! Entries and their commands, as the text has them: time passes (S36), commands happen, and after
//! each of them queues are examined.

use crate::commands::Answer;
use crate::history::{Fact, Job, Model, Number, Phase};
use crate::terms;
use fermata_pool::command::{Claim, Command, Entry};
use fermata_pool::outcome::{Reason, Standing};
use fermata_pool::time::{Instant, Stamp};

impl Model {
    /// Applies an entry; refused as a whole if it is of another claim (S39).
    pub(crate) fn apply(&mut self, index: u64, entry: &Entry) -> Result<Vec<Answer>, Claim> {
        let takes_over =
            entry.commands.first() == Some(&Command::Takeover) && entry.claim > self.claim();
        if entry.claim != self.claim() && !takes_over {
            return Err(self.claim());
        }
        self.let_time_pass(index, entry.stamp);
        let mut answers = Vec::new();
        for command in &entry.commands {
            let answer = if *command == Command::Takeover {
                self.take_over(entry.claim);
                self.examine_queues();
                Answer::Done
            } else {
                self.command(command)
            };
            answers.push(answer);
        }
        self.forget();
        Ok(answers)
    }

    fn let_time_pass(&mut self, index: u64, stamp: Stamp) {
        let (_, now, boundaries) = self.entry();
        let (at, boundaries) = if stamp.at < now {
            (now, boundaries)
        } else {
            (stamp.at, stamp.boundaries)
        };
        self.push(Fact::Entry {
            index,
            at,
            boundaries,
        });
        self.forget();
        for scope in self.scopes() {
            let ends = self.override_of(&scope).and_then(|sizes| sizes.expires_at);
            if ends.is_some_and(|ends| ends <= at) {
                self.push(Fact::OverrideRanOut(scope));
            }
        }
        for number in self.unfinished() {
            let job = self.job(number);
            let deadline = job.start.map(|start| start.deadline);
            if job.phase == Phase::Starting && deadline.is_some_and(|it| it <= at) {
                self.time_out(number);
            }
        }
        self.stop_the_old();
        self.examine_queues();
        self.consider_due();
        self.examine_queues();
    }

    pub(crate) fn unfinished(&self) -> Vec<Number> {
        let jobs = self.jobs();
        let unfinished = jobs.iter().filter(|job| !job.is_final());
        unfinished.map(|job| job.number).collect()
    }

    fn time_out(&mut self, number: Number) {
        let timeouts = self.job(number).timeouts + 1;
        if timeouts >= self.settings().max_start_attempts {
            self.end(number, Err(Reason::StartTimeout));
        } else {
            self.put_back(number, true);
        }
    }

    fn stop_the_old(&mut self) {
        for number in self.unfinished() {
            let job = self.job(number);
            let too_old = self.too_old_at(&job).is_some_and(|it| it <= self.now());
            if job.phase == Phase::Active && job.stop.is_none() && too_old {
                self.push(Fact::ToldToStop {
                    job: number,
                    reason: Reason::TimeLimit,
                });
            }
        }
    }

    fn consider_due(&mut self) {
        let now = self.now();
        for number in self.unfinished() {
            if matches!(self.job(number).phase, Phase::Delayed(due) if due <= now) {
                self.consider_new(number);
            }
        }
    }

    /// The oldest finished jobs go (S47).
    pub(crate) fn forget(&mut self) {
        let settings = self.settings();
        let mut kept: Vec<(Instant, Number)> = self
            .jobs()
            .iter()
            .filter(|job| job.is_final() && !job.forgotten)
            .map(|job| (job.ended_at, job.number))
            .collect();
        kept.sort();
        let too_many = kept.len().saturating_sub(settings.finished_max as usize);
        for (nth, (ended_at, number)) in kept.into_iter().enumerate() {
            let until = ended_at.plus_s(u64::from(settings.retention_s));
            if nth < too_many || until <= self.now() {
                self.push(Fact::Forgotten(number));
            }
        }
    }

    /// Gives back what a start took that did not become active: only to the windows it was taken
    /// from (S31).
    fn refund(&mut self, number: Number) {
        let job = self.job(number);
        let start = job.start.expect("a starting job").clone();
        for (scope, window) in start.taken {
            if self.window(&scope).is_some_and(|it| it.number == window) {
                self.push(Fact::Refunded {
                    job: number,
                    attempt: start.attempt,
                    scope,
                });
            }
        }
    }

    pub(crate) fn put_back(&mut self, number: Number, timeout: bool) {
        self.refund(number);
        self.push(Fact::PutBack {
            job: number,
            timeout,
        });
    }

    /// Ends a job, unless it is tried again (S49).
    pub(crate) fn end(&mut self, number: Number, result: Result<i32, Reason>) {
        let job = self.job(number);
        let starting = job.phase == Phase::Starting;
        let result = match job.stop.filter(|_| job.phase == Phase::Active) {
            Some(reason) => Err(reason),
            None => result,
        };
        let retries = matches!(
            result,
            Ok(1..)
                | Ok(..=-1)
                | Err(Reason::ServerLost
                    | Reason::NoServer
                    | Reason::LeaseExpired
                    | Reason::TimeLimit)
        );
        let due = retried_at(&job, self.now()).filter(|_| retries);
        if starting {
            self.refund(number);
        }
        match due {
            Some(due) => self.push(Fact::Retried { job: number, due }),
            None => self.push(Fact::Ended {
                job: number,
                result,
            }),
        }
    }

    pub(crate) fn fix_limits(&mut self, number: Number) {
        let job = self.job(number);
        let limits = self.resolve(job.request, job.plan);
        self.push(Fact::Resolved {
            job: number,
            limits,
        });
        for (what, differing) in self.warnings_for(number) {
            self.push(Fact::Warned {
                job: number,
                what,
                differing,
            });
        }
    }

    fn take_over(&mut self, claim: Claim) {
        for number in self.unfinished() {
            if self.job(number).phase == Phase::Starting {
                self.put_back(number, false);
            }
        }
        self.push(Fact::Takeover(claim));
    }

    pub(crate) fn standing(&self, number: Number) -> Standing {
        let job = self.job(number);
        let attempt = job.attempt;
        let server = job.server().map(Into::into);
        match job.phase {
            Phase::Delayed(_) => Standing::Delayed,
            Phase::Queued => Standing::Queued,
            Phase::Starting => Standing::Starting { attempt, server },
            Phase::Active => Standing::Active { attempt, server },
            Phase::Ended(Ok(code)) => Standing::Complete { code },
            Phase::Ended(Err(reason)) => Standing::Aborted { reason },
        }
    }
}

/// When a job that would end is tried again, if it has retries left (S49).
fn retried_at(job: &Job<'_>, now: Instant) -> Option<Instant> {
    const DAY_S: u64 = 86_400;
    let retry = terms::retry(job.limits?)?;
    if u64::from(job.retries) >= retry.amount {
        return None;
    }
    let delay_s = match retry.backoff {
        None | Some(1) => retry.duration,
        Some(factor) => {
            let grown = (0..job.retries).fold(retry.duration, |delay, _| {
                delay.saturating_mul(factor).min(DAY_S)
            });
            grown.min(DAY_S)
        }
    };
    Some(now.plus_s(delay_s))
}
