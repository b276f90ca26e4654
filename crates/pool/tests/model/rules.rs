//! Entries and their commands, as the text has them: time passes (S36), commands happen, and after
//! each of them queues are examined.

use crate::history::{Fact, Job, Model, Number, Phase, Plan};
use crate::terms;
use fermata_pool::command::{
    Algo, Claim, Command, Entry, EventKind, Executor, Holder, Launch, Override, ResolveLimits,
};
use fermata_pool::limits::DURATION_S_MAX;
use fermata_pool::outcome::{Reason, Standing};
use fermata_pool::time::{Instant, Stamp};

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Stored(u64),
    Job {
        job: Box<str>,
        standing: Standing,
        repeated: bool,
    },
    Refused(&'static str),
}

/// A command that concerned a job: which, and whether it had been carried out before.
type Concerned = Result<(Number, bool), &'static str>;

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

    fn unfinished(&self) -> Vec<Number> {
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
    fn forget(&mut self) {
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

    fn put_back(&mut self, number: Number, timeout: bool) {
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
        let due = terms_retry(&job, self.now()).filter(|_| retries);
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

    fn command(&mut self, command: &Command) -> Answer {
        let concerned = match command {
            Command::Launch(launch) => self.launch(launch),
            Command::Started { job, attempt, from } => self.started(job, *attempt, from.as_ref()),
            Command::Completed {
                job,
                attempt,
                code,
                from,
                ..
            } => self.completed(job, *attempt, *code, from.as_ref()),
            Command::Cancel { job } => self.cancel(job),
            Command::AttemptMissing { job, attempt, from } => {
                self.attempt_missing(job, *attempt, from)
            }
            Command::LeaseExpired { job } => self.lease_expired(job),
            Command::CallerSeen { job } => self.caller_seen(job),
            _ => return self.command_about_no_job(command),
        };
        self.examine_queues();
        match concerned {
            Err(code) => Answer::Refused(code),
            Ok((number, repeated)) => Answer::Job {
                job: self.job(number).id().into(),
                standing: self.standing(number),
                repeated,
            },
        }
    }

    fn known(&self, id: &str) -> Result<Job<'_>, &'static str> {
        self.job_named(id).ok_or("unknown_job")
    }

    fn launch(&mut self, launch: &Launch) -> Concerned {
        if !is_valid(launch) {
            return Err("invalid_request");
        }
        if let Some(job) = self.job_named(&launch.id) {
            let same = job.request == launch;
            return if same {
                Ok((job.number, true))
            } else {
                Err("id_conflict")
            };
        }
        if self.unfinished().len() >= self.settings().unfinished_max as usize {
            return Err("cluster_full");
        }
        let plan = self.plan(launch)?;
        let limits = self.resolve(launch, &plan);
        let queue_alone =
            terms::non_zero_queue(&limits).is_some() && terms::queue(&limits).is_none();
        if queue_alone && !plan.first_start {
            return Err("invalid_request");
        }
        let number = self.jobs().len();
        let resolves_now = !plan.first_start;
        self.push(Fact::Launched {
            job: number,
            request: Box::new(launch.clone()),
            plan: Box::new(plan),
        });
        if resolves_now {
            self.fix_limits(number);
        }
        match launch.delay_s.unwrap_or(0) {
            0 => self.consider_new(number),
            delay_s => {
                let due = self.now().plus_s(delay_s);
                self.push(Fact::Delayed { job: number, due });
            }
        }
        Ok((number, false))
    }

    /// The snapshot of a launch's definition (S9, S10).
    fn plan(&self, launch: &Launch) -> Result<Plan, &'static str> {
        let mut node_event = None;
        let mut node_limits = Vec::new();
        if let Some(parent) = &launch.parent {
            let job = self.job_named(&parent.job);
            let job = job.filter(|job| !job.is_final()).ok_or("unknown_parent")?;
            let nodes = &job.plan.nodes;
            let node = nodes.iter().find(|node| node.id == parent.node);
            let node = node.ok_or("unknown_node")?;
            node_event.clone_from(&node.event);
            node_limits.clone_from(&node.limits);
        }
        let name = launch.event.clone().or(node_event);
        let event = match &name {
            None => None,
            Some(id) => Some(self.event(id).ok_or("event_missing")?.0),
        };
        if event.is_some_and(|event| !event.enabled) {
            return Err("event_disabled");
        }
        let workflow = event.is_some_and(|event| event.kind == EventKind::Workflow);
        let executor = if workflow {
            Executor::Caller
        } else {
            launch.executor.unwrap_or(Executor::Server)
        };
        let targets = launch.targets.clone().filter(|targets| !targets.is_empty());
        let lease_s = launch.lease_s.and_then(|it| u32::try_from(it).ok());
        Ok(Plan {
            priority: launch
                .priority
                .unwrap_or(event.map_or(0, |event| event.priority)),
            targets: targets
                .unwrap_or_else(|| event.map_or(Vec::new(), |event| event.targets.clone())),
            algo: event.map_or(Algo::FewestJobs, |event| event.algo),
            executor,
            nodes: event.map_or(Vec::new(), |event| event.nodes.clone()),
            node_limits,
            first_start: event.is_some_and(|event| event.resolve == ResolveLimits::FirstStart),
            workflow,
            lease_s: lease_s.unwrap_or(self.settings().lease_s),
            event: name,
        })
    }

    /// Refuses a sender that is not the holder of the job's attempt.
    fn check_sender(&self, job: &Job<'_>, from: Option<&Holder>) -> Result<(), &'static str> {
        let Some(from) = from else { return Ok(()) };
        let server = self.server(&from.server).ok_or("unknown_server")?;
        if server.incarnations.last() != Some(&&*from.incarnation) {
            return Err("superseded");
        }
        if job.is_running() && job.server() != Some(&*from.server) {
            return Err("stale_attempt");
        }
        Ok(())
    }

    fn started(&mut self, id: &str, attempt: u32, from: Option<&Holder>) -> Concerned {
        let job = self.known(id)?;
        self.check_sender(&job, from)?;
        let number = job.number;
        if attempt != job.attempt {
            return Err("stale_attempt");
        }
        match job.phase {
            Phase::Ended(_) => Err("final"),
            Phase::Delayed(_) | Phase::Queued => Err("stale_attempt"),
            Phase::Active => Ok((number, true)),
            Phase::Starting => {
                self.push(Fact::Confirmed(number));
                Ok((number, false))
            }
        }
    }

    fn completed(&mut self, id: &str, attempt: u32, code: i32, from: Option<&Holder>) -> Concerned {
        let job = self.known(id)?;
        self.check_sender(&job, from)?;
        let number = job.number;
        if attempt != job.attempt {
            return Err("stale_attempt");
        }
        match job.phase {
            Phase::Ended(_) => Ok((number, true)),
            Phase::Delayed(_) | Phase::Queued => Err("stale_attempt"),
            Phase::Starting => Err("not_active"),
            Phase::Active => {
                self.end(number, Ok(code));
                Ok((number, false))
            }
        }
    }

    fn cancel(&mut self, id: &str) -> Concerned {
        let job = self.known(id)?;
        let number = job.number;
        match job.phase {
            Phase::Ended(_) => return Err("final"),
            Phase::Active => {
                let repeated = job.stop == Some(Reason::Cancelled);
                if !repeated {
                    self.push(Fact::ToldToStop {
                        job: number,
                        reason: Reason::Cancelled,
                    });
                }
                return Ok((number, repeated));
            }
            Phase::Delayed(_) | Phase::Queued | Phase::Starting => {}
        }
        self.end(number, Err(Reason::Cancelled));
        Ok((number, false))
    }

    fn attempt_missing(&mut self, id: &str, attempt: u32, from: &Holder) -> Concerned {
        let job = self.known(id)?;
        self.check_sender(&job, Some(from))?;
        let number = job.number;
        if attempt != job.attempt {
            return Err("stale_attempt");
        }
        if job.is_final() {
            return Err("final");
        }
        if job.server().is_none() {
            return Err("stale_attempt");
        }
        if job.phase == Phase::Starting {
            return Err("not_active");
        }
        self.end(number, Err(Reason::ServerLost));
        Ok((number, false))
    }

    /// A job that a caller holds.
    fn held_by_caller(&self, id: &str) -> Result<Job<'_>, &'static str> {
        let job = self.known(id)?;
        if job.is_final() {
            return Err("final");
        }
        Some(job)
            .filter(|job| job.plan.executor == Executor::Caller)
            .ok_or("unknown_job")
    }

    fn lease_expired(&mut self, id: &str) -> Concerned {
        let job = self.held_by_caller(id)?;
        let number = job.number;
        self.end(number, Err(Reason::LeaseExpired));
        Ok((number, false))
    }

    fn caller_seen(&mut self, id: &str) -> Concerned {
        let job = self.held_by_caller(id)?;
        let number = job.number;
        Ok((number, false))
    }

    fn command_about_no_job(&mut self, command: &Command) -> Answer {
        let answer = match command {
            Command::PutEvent { event, if_revision } => {
                let category = event.category.as_deref();
                if category.is_some_and(|id| self.category(id).is_none()) {
                    return Answer::Refused("invalid_request");
                }
                let revision = self.event(&event.id).map_or(0, |(_, revision)| revision);
                self.store(command, *if_revision, revision)
            }
            Command::DeleteEvent { event, if_revision } => match self.event(event) {
                None => Answer::Refused("event_missing"),
                Some((_, revision)) if if_revision.is_some_and(|it| it != revision) => {
                    Answer::Refused("revision_conflict")
                }
                Some(_) => self.told(command),
            },
            Command::PutCategory {
                category,
                if_revision,
            } => {
                let revision = self.category(&category.id).map_or(0, |(_, it)| it);
                self.store(command, *if_revision, revision)
            }
            Command::DeleteCategory {
                category,
                if_revision,
            } => match self.category(category) {
                None => Answer::Refused("unknown_category"),
                Some((_, revision)) if if_revision.is_some_and(|it| it != revision) => {
                    Answer::Refused("revision_conflict")
                }
                Some(_) => self.told(command),
            },
            Command::PutServer(server) => {
                let revision = self.server_definition(&server.id).map_or(0, |(_, it)| it);
                self.store(command, None, revision)
            }
            Command::PutSettings { if_revision, .. } => {
                let (_, revision) = self.stored_settings();
                let answer = self.store(command, *if_revision, revision);
                self.forget();
                answer
            }
            Command::DeleteServer { server } => {
                if self.server(server).is_none() {
                    return Answer::Refused("unknown_server");
                }
                self.lose(server, true);
                self.told(command)
            }
            Command::ServerSeen(holder) => self.about_server(holder, true, Model::seen),
            Command::ServerOffline(holder) => self.about_server(holder, false, |model, holder| {
                model.lose(&holder.server, false);
                model.push(Fact::Offline(holder.server.clone()));
            }),
            Command::ServerLost(holder) => self.about_server(holder, false, |model, holder| {
                model.lose(&holder.server, true);
                model.push(Fact::Offline(holder.server.clone()));
            }),
            Command::Reset { scope } => self.reset(|name| *name == **scope),
            Command::ResetAll => self.reset(|_| true),
            Command::PutOverride { scope, sizes } => {
                if is_valid_override(scope, sizes) {
                    self.told(command)
                } else {
                    Answer::Refused("invalid_request")
                }
            }
            Command::DeleteOverride { .. } => self.told(command),
            _ => Answer::Done,
        };
        self.examine_queues();
        answer
    }

    /// Removes the open windows among these; where none is open, nobody waits for it (S32).
    fn reset(&mut self, meant: impl Fn(&str) -> bool) -> Answer {
        for scope in self.scopes() {
            if meant(&scope) && self.window(&scope).is_some() {
                self.push(Fact::Reset(scope));
            }
        }
        Answer::Done
    }

    fn told(&mut self, command: &Command) -> Answer {
        self.tell(command);
        Answer::Done
    }

    fn store(&mut self, command: &Command, asked: Option<u64>, revision: u64) -> Answer {
        if asked.is_some_and(|it| it != revision) {
            return Answer::Refused("revision_conflict");
        }
        self.tell(command);
        Answer::Stored(revision + 1)
    }

    /// Does something to a server, unless the word is of another life of it than the last; of a
    /// new one, if it is `seen`.
    fn about_server(
        &mut self,
        holder: &Holder,
        seen: bool,
        then: impl FnOnce(&mut Model, &Holder),
    ) -> Answer {
        let Some(server) = self.server(&holder.server) else {
            return Answer::Refused("unknown_server");
        };
        let lives = &server.incarnations;
        let is_new = !lives.contains(&&*holder.incarnation);
        if lives.last() != Some(&&*holder.incarnation) && !(seen && is_new) {
            return Answer::Refused("superseded");
        }
        then(self, holder);
        Answer::Done
    }

    fn seen(&mut self, holder: &Holder) {
        let last = self.server(&holder.server);
        let last = last.and_then(|server| server.incarnations.last().map(|it| (*it).to_string()));
        if last.is_some_and(|last| *last != *holder.incarnation) {
            self.lose(&holder.server, true);
        }
        self.push(Fact::Seen {
            server: holder.server.clone(),
            incarnation: holder.incarnation.clone(),
        });
    }

    /// What a server held in `starting` is put back; what it held `active` ends, if it is `lost`.
    fn lose(&mut self, server: &str, lost: bool) {
        for number in self.unfinished() {
            let job = self.job(number);
            if job.server() != Some(server) {
                continue;
            }
            match job.phase {
                Phase::Starting => self.put_back(number, false),
                Phase::Active if lost => self.end(number, Err(Reason::ServerLost)),
                _ => {}
            }
        }
    }
}

/// When a job that would end is tried again, if it has retries left (S49).
fn terms_retry(job: &Job<'_>, now: Instant) -> Option<Instant> {
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

fn is_valid(launch: &Launch) -> bool {
    let priority = launch.priority.unwrap_or(0);
    (-100..=100).contains(&priority)
        && launch.delay_s.unwrap_or(0) <= DURATION_S_MAX
        && fermata_pool::limits::validate("limits", &launch.limits).is_ok()
}

fn is_valid_override(scope: &str, sizes: &Override) -> bool {
    let some = sizes.count.is_some() || sizes.window_s.is_some() || sizes.amount.is_some();
    let bounded = sizes.count.is_none_or(|count| count <= 1_000_000)
        && sizes.window_s.is_none_or(|it| (1..=604_800).contains(&it))
        && sizes.amount.is_none_or(|amount| amount <= 10_000_000);
    some && bounded && (sizes.amount.is_none() || !scope.starts_with("rate:"))
}
