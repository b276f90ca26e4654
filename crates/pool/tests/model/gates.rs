//! Considering jobs (S12, S16–S21): which gate is shut, who is at the head, who goes first.

use crate::history::{Fact, Gate, Job, Model, Number, Phase, Plan, Scope, Start, override_change};
use crate::terms;
use crate::windows::Opening;
use fermata_pool::command::{Algo, Command, Executor};
use fermata_pool::limits::Mode;
use fermata_pool::outcome::Reason;
use fermata_pool::time::Instant;

/// A shut gate, and what becomes of a job that finds it shut.
pub(crate) struct Shut {
    pub(crate) gate: Gate,
    pub(crate) mode: Option<Mode>,
}

impl Shut {
    pub(crate) fn reason(&self) -> Reason {
        match self.gate {
            Gate::Slot => Reason::ConcurrencyLimited,
            Gate::Rate(_) => Reason::RateLimited,
            Gate::Server => Reason::NoServer,
        }
    }
}

/// The members of a pool among these jobs.
fn members<'a>(jobs: &'a [Job<'a>], pool: &'a str) -> impl Iterator<Item = &'a Job<'a>> {
    jobs.iter()
        .filter(move |job| job.limits.is_some() && *terms::pool_of(job) == *pool)
}

/// True where a head of this pool that waits for a gate is considered at once, though the gate may
/// still be shut (S32, S33).
fn wakes(fact: &Fact, gate: &Gate, pool: &str) -> bool {
    let changed = match fact {
        Fact::Reset(scope) => Some(&**scope).filter(|_| *gate != Gate::Slot),
        other => override_change(other).map(|(scope, _)| scope),
    };
    changed.is_some_and(|scope| match gate {
        Gate::Rate(rate) => **rate == *scope,
        Gate::Slot => *pool == *scope,
        Gate::Server => false,
    })
}

impl Model {
    pub(crate) fn running(&self, pool: &str) -> usize {
        members(&self.jobs(), pool)
            .filter(|job| job.is_running())
            .count()
    }

    /// The jobs that wait in a pool, in the queue's order.
    pub(crate) fn queue(&self, pool: &str) -> Vec<Number> {
        let jobs = self.jobs();
        let mut waiting: Vec<&Job<'_>> = members(&jobs, pool)
            .filter(|job| job.phase == Phase::Queued)
            .collect();
        waiting.sort_by_key(|job| job.order());
        waiting.iter().map(|job| job.number).collect()
    }

    /// The concurrency in force for a job; none: no limit.
    pub(crate) fn amount_in_force(&self, job: &Job<'_>) -> Option<u32> {
        let sizes = self.override_of(&terms::pool_of(job));
        let own = terms::amount(job.limits.expect("resolved"));
        sizes
            .and_then(|sizes| sizes.amount)
            .or(Some(own).filter(|own| *own > 0))
    }

    fn slot_is_open(&self, job: &Job<'_>) -> bool {
        let running = self.running(&terms::pool_of(job));
        self.amount_in_force(job)
            .is_none_or(|amount| running < amount as usize)
    }

    /// The servers that could take a job now, by id (S18).
    fn eligible(&self, job: &Job<'_>) -> Vec<Box<str>> {
        let weight = u64::from(terms::weight(job.limits.expect("resolved")));
        let jobs = self.jobs();
        let room = |id: &str, max_jobs: Option<u32>| {
            let used: u64 = jobs
                .iter()
                .filter(|other| other.server() == Some(id))
                .map(|other| u64::from(terms::weight(other.limits.expect("resolved"))))
                .sum();
            max_jobs.is_none_or(|max_jobs| used + weight <= u64::from(max_jobs))
        };
        let named = |id: &str, groups: &[Box<str>]| {
            let targets = &job.plan.targets;
            targets.is_empty()
                || targets
                    .iter()
                    .any(|target| **target == *id || groups.contains(target))
        };
        self.servers()
            .iter()
            .filter(|server| server.online && !server.draining && server.definition.enabled)
            .map(|server| server.definition)
            .filter(|it| named(&it.id, &it.groups) && room(&it.id, it.max_jobs))
            .map(|it| Box::from(&*it.id))
            .collect()
    }

    fn has_server(&self, job: &Job<'_>) -> bool {
        job.plan.executor == Executor::Caller || !self.eligible(job).is_empty()
    }

    /// Which start of its entry the next one is.
    fn ordinal(&self) -> u64 {
        let of_entry = self
            .facts
            .iter()
            .rev()
            .take_while(|fact| !matches!(fact, Fact::Entry { .. }));
        of_entry
            .filter(|fact| matches!(fact, Fact::Started(_)))
            .count() as u64
    }

    /// The server that was picked last for the event in turn.
    fn last_pick(&self, event: Option<&str>) -> Option<Box<str>> {
        let jobs = self.jobs();
        let in_turn = |plan: &Plan| {
            plan.algo == Algo::RoundRobin
                && plan.executor == Executor::Server
                && plan.event.as_deref() == event
        };
        // What is defined anew after it was deleted is another event.
        let is_gone = |fact: &Fact| match fact {
            Fact::Told(Command::DeleteEvent { event: gone, .. }) => event == Some(&**gone),
            _ => false,
        };
        let mut since = self.facts.iter().rev().take_while(|fact| !is_gone(fact));
        since.find_map(|fact| match fact {
            Fact::Started(start) if in_turn(jobs[start.job].plan) => start.server.clone(),
            _ => None,
        })
    }

    fn pick(&self, job: &Job<'_>) -> Option<Box<str>> {
        if job.plan.executor == Executor::Caller {
            return None;
        }
        let eligible = self.eligible(job);
        let jobs = self.jobs();
        let load = |id: &str| jobs.iter().filter(|job| job.server() == Some(id)).count();
        match job.plan.algo {
            Algo::FewestJobs => eligible.iter().min_by_key(|id| (load(id), *id)).cloned(),
            Algo::PreferFirst => eligible.first().cloned(),
            Algo::PreferLast => eligible.last().cloned(),
            Algo::RoundRobin => {
                let last = self.last_pick(job.plan.event.as_deref());
                let next = eligible
                    .iter()
                    .find(|id| last.as_ref().is_none_or(|it| it < *id));
                next.or(eligible.first()).cloned()
            }
            Algo::Random => {
                let place = (self.entry().0 + self.ordinal()) % eligible.len().max(1) as u64;
                eligible.get(place as usize).cloned()
            }
        }
    }

    /// The first of a job's gates that is shut now (S12).
    pub(crate) fn first_shut(&self, number: Number) -> Option<Shut> {
        let job = self.job(number);
        if !self.slot_is_open(&job) {
            return Some(Shut {
                gate: Gate::Slot,
                mode: None,
            });
        }
        for (scope, settings, mode) in terms::rates(&job) {
            if self.opening(&scope, &settings) != Opening::Open {
                let gate = Gate::Rate(scope);
                return Some(Shut { gate, mode });
            }
        }
        if self.has_server(&job) {
            return None;
        }
        Some(Shut {
            gate: Gate::Server,
            mode: None,
        })
    }

    /// The gate that the head of a queue found shut since it became the head; none: it is to be
    /// considered at once (S20, S32, S33).
    pub(crate) fn waits_for(&self, number: Number) -> Option<Gate> {
        let jobs = self.jobs();
        let job = &jobs[number];
        let pool = terms::pool_of(job);
        let displaces = |other: &Number| {
            let other = &jobs[*other];
            other.order() < job.order() && terms::pool_of(other) == pool
        };
        let mut gate: Option<&Gate> = None;
        for fact in &self.facts {
            match fact {
                Fact::Shut { job, gate: shut } if *job == number => gate = Some(shut),
                Fact::Started(start) if start.job == number => gate = None,
                Fact::Queued(other) | Fact::PutBack { job: other, .. } if displaces(other) => {
                    gate = None;
                }
                other if gate.is_some_and(|it| wakes(other, it, &pool)) => gate = None,
                _ => {}
            }
        }
        gate.cloned()
    }

    fn is_open(&self, number: Number, gate: &Gate) -> bool {
        let job = self.job(number);
        match gate {
            Gate::Slot => self.slot_is_open(&job),
            Gate::Server => self.has_server(&job),
            Gate::Rate(scope) => {
                let settings = terms::rates(&job)
                    .into_iter()
                    .find(|(it, _, _)| it == scope)
                    .map(|(_, settings, _)| settings)
                    .expect("it waits for a rate of its own");
                self.opening(scope, &settings) == Opening::Open
            }
        }
    }

    /// Every pool's first waiting job.
    pub(crate) fn heads(&self) -> Vec<Number> {
        let jobs = self.jobs();
        let mut heads: Vec<(Scope, &Job<'_>)> = Vec::new();
        for job in jobs.iter().filter(|job| job.phase == Phase::Queued) {
            if job.limits.is_none() {
                continue;
            }
            let pool = terms::pool_of(job);
            match heads.iter_mut().find(|(it, _)| *it == pool) {
                Some((_, head)) if head.order() < job.order() => {}
                Some((_, head)) => *head = job,
                None => heads.push((pool, job)),
            }
        }
        heads.sort_by_key(|(_, job)| job.order());
        heads.iter().map(|(_, job)| job.number).collect()
    }

    /// Considers heads until none can be considered (S20).
    pub(crate) fn examine_queues(&mut self) {
        loop {
            let due = self.heads().into_iter().find(|head| {
                let gate = self.waits_for(*head);
                gate.is_none_or(|gate| self.is_open(*head, &gate))
            });
            match due {
                Some(head) => self.consider_head(head),
                None => return,
            }
        }
    }

    fn event_is_missing(&self, number: Number) -> bool {
        let job = self.job(number);
        let event = job.plan.event.as_deref();
        event.is_some_and(|event| self.event(event).is_none())
    }

    fn consider_head(&mut self, number: Number) {
        if self.event_is_missing(number) {
            return self.end(number, Err(Reason::EventMissing));
        }
        match self.first_shut(number) {
            None => self.start(number),
            Some(shut) if shut.mode == Some(Mode::Skip) && !self.job(number).put_back => {
                self.end(number, Err(Reason::RateLimited));
            }
            Some(shut) => {
                self.throttle(Some(&shut));
                self.push(Fact::Shut {
                    job: number,
                    gate: shut.gate,
                });
            }
        }
    }

    fn throttle(&mut self, shut: Option<&Shut>) {
        if shut.is_some_and(|shut| matches!(shut.gate, Gate::Rate(_))) {
            self.push(Fact::Throttled);
        }
    }

    /// Considers a job that was launched or falls due (S16, S17).
    pub(crate) fn consider_new(&mut self, number: Number) {
        if self.event_is_missing(number) {
            return self.end(number, Err(Reason::EventMissing));
        }
        if self.job(number).limits.is_none() {
            self.fix_limits(number);
        }
        let shut = self.first_shut(number);
        let job = self.job(number);
        let pool = terms::pool_of(&job);
        let jobs = self.jobs();
        let ahead: Vec<Number> = self
            .queue(&pool)
            .into_iter()
            .filter(|other| *other != number && jobs[*other].order() < job.order())
            .collect();
        if job.put_back {
            return match shut {
                None if ahead.is_empty() => self.start(number),
                shut => self.enqueue(number, ahead.is_empty(), shut),
            };
        }
        let skipped = shut.as_ref().is_some_and(|it| it.mode == Some(Mode::Skip));
        if skipped {
            return self.end(number, Err(Reason::RateLimited));
        }
        if shut.is_none() && ahead.is_empty() {
            return self.start(number);
        }
        let waiting = self.queue(&pool);
        let waiting = waiting.iter().filter(|other| **other != number).count();
        match terms::queue(job.limits.expect("resolved")) {
            Some(most) if waiting < most as usize => self.enqueue(number, ahead.is_empty(), shut),
            Some(_) => self.end(number, Err(Reason::QueueFull)),
            None => match shut {
                Some(shut) if shut.mode == Some(Mode::Wait) => {
                    self.enqueue(number, ahead.is_empty(), Some(shut));
                }
                Some(shut) => self.end(number, Err(shut.reason())),
                None => {
                    let head = self.first_shut(ahead[0]).expect("the head cannot start");
                    self.end(number, Err(head.reason()));
                }
            },
        }
    }

    fn enqueue(&mut self, number: Number, is_head: bool, shut: Option<Shut>) {
        self.push(Fact::Queued(number));
        self.throttle(shut.as_ref());
        if let Some(shut) = shut.filter(|_| is_head) {
            self.push(Fact::Shut {
                job: number,
                gate: shut.gate,
            });
        }
    }

    /// Starts a job whose gates are all open, and takes everything at once (S12).
    pub(crate) fn start(&mut self, number: Number) {
        let job = self.job(number);
        let server = self.pick(&job);
        let attempt = job.attempt + 1;
        let rates = terms::rates(&job);
        let mut taken = Vec::new();
        for (scope, settings, _) in rates {
            match self.window(&scope) {
                None => {
                    self.push(Fact::Opened {
                        scope: scope.clone(),
                        settings,
                    });
                    taken.push((scope, self.openings()));
                }
                Some(window) => {
                    if window.takes_settings_of(number, settings) {
                        self.push(Fact::Settled {
                            scope: scope.clone(),
                            settings,
                        });
                    }
                    taken.push((scope, window.number));
                }
            }
        }
        let at = self.now();
        let deadline = at.plus_s(u64::from(self.settings().start_timeout_s));
        self.push(Fact::Started(Start {
            job: number,
            attempt,
            server,
            taken,
            deadline,
        }));
    }

    /// The next instant at which time alone changes something.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let mut instants: Vec<Instant> = Vec::new();
        for job in self.jobs() {
            match job.phase {
                Phase::Delayed(due) => instants.push(due),
                Phase::Starting => instants.extend(job.start.map(|start| start.deadline)),
                Phase::Active if job.stop.is_none() => instants.extend(self.too_old_at(&job)),
                Phase::Active | Phase::Queued | Phase::Ended(_) => {}
            }
        }
        for scope in self.scopes() {
            instants.extend(self.override_of(&scope).and_then(|sizes| sizes.expires_at));
        }
        for head in self.heads() {
            if let Some(Gate::Rate(scope)) = self.waits_for(head)
                && let Some(window) = self.window(&scope)
                && let Opening::At(at) = window.opening()
            {
                instants.push(at);
            }
        }
        instants.into_iter().min()
    }

    /// When an active job is told to stop for its age (S50).
    pub(crate) fn too_old_at(&self, job: &Job<'_>) -> Option<Instant> {
        let duration_s = terms::time_limit_s(job.limits?)?;
        Some(job.confirmed_at.plus_s(duration_s))
    }

    /// True where a command is one that changes a definition, as it says itself.
    pub(crate) fn tell(&mut self, command: &Command) {
        self.push(Fact::Told(command.clone()));
    }
}
