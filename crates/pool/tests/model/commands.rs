//! Commands that concern a job, and what is answered.

use crate::history::{Fact, Job, Model, Number, Phase, Plan};
use crate::terms;
use fermata_pool::command::{Algo, Command, EventKind, Executor, Holder, Launch, ResolveLimits};
use fermata_pool::limits::DURATION_S_MAX;
use fermata_pool::outcome::{Reason, Standing};

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
    pub(crate) fn command(&mut self, command: &Command) -> Answer {
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
            Command::StartActionFailed { job, attempt, .. } => {
                self.start_action_failed(job, *attempt)
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
        if let Some(job) = self.job_named(&launch.id) {
            let same = job.request == launch;
            return if same {
                Ok((job.number, true))
            } else {
                Err("id_conflict")
            };
        }
        if !is_valid(launch) {
            return Err("invalid_request");
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
        if workflow && launch.executor == Some(Executor::Server) {
            return Err("invalid_request");
        }
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

    fn start_action_failed(&mut self, id: &str, attempt: u32) -> Concerned {
        let job = self.known(id)?;
        let number = job.number;
        if attempt != job.attempt {
            return Err("stale_attempt");
        }
        match job.phase {
            Phase::Ended(_) => Err("final"),
            Phase::Delayed(_) | Phase::Queued | Phase::Active => Err("stale_attempt"),
            Phase::Starting => {
                self.end(number, Ok(125));
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
        let number = self.held_by_caller(id)?.number;
        self.push(Fact::CallerSeen(number));
        Ok((number, false))
    }
}

fn is_valid(launch: &Launch) -> bool {
    let priority = launch.priority.unwrap_or(0);
    (-100..=100).contains(&priority)
        && launch.delay_s.unwrap_or(0) <= DURATION_S_MAX
        && fermata_pool::limits::validate("limits", &launch.limits).is_ok()
}
