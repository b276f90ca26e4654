//! What happened: one list, and what it says of jobs and definitions when it is read from the
//! start. There is no other state: every question scans the list.

use fermata_pool::command::{
    Algo, Category, Claim, Command, Event, Executor, Launch, Node, Override, ServerDefinition,
    Settings,
};
use fermata_pool::limits::Limit;
use fermata_pool::outcome::Reason;
use fermata_pool::terms::RateSettings;
use fermata_pool::time::{Boundaries, Instant};
use std::rc::Rc;

/// A job's place in launch order.
pub(crate) type Number = usize;
/// The name of a pool or bucket.
pub(crate) type Scope = Rc<str>;

/// What a job that waits at the head of its queue waits for (S20).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Slot,
    Rate(Scope),
    Server,
}

/// A job's snapshot of its definition, without its limits.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) event: Option<Box<str>>,
    pub(crate) priority: i8,
    pub(crate) targets: Vec<Box<str>>,
    pub(crate) algo: Algo,
    pub(crate) executor: Executor,
    pub(crate) nodes: Vec<Node>,
    pub(crate) node_limits: Vec<Limit>,
    pub(crate) first_start: bool,
    pub(crate) workflow: bool,
    pub(crate) lease_s: u32,
}

/// One start, with the windows that it took from.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) job: Number,
    pub(crate) attempt: u32,
    pub(crate) server: Option<Box<str>>,
    pub(crate) taken: Vec<(Scope, usize)>,
    pub(crate) deadline: Instant,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// An entry let time pass to this instant.
    Entry {
        index: u64,
        at: Instant,
        boundaries: Boundaries,
    },
    Takeover(Claim),
    /// A definition, setting or override was changed, as the command says.
    Told(Command),
    /// An override ran out.
    OverrideRanOut(Scope),
    /// A server's worker was seen in this incarnation.
    Seen {
        server: Box<str>,
        incarnation: Box<str>,
    },
    Offline(Box<str>),
    Draining(Box<str>),
    CallerSeen(Number),
    Launched {
        job: Number,
        request: Box<Launch>,
        plan: Box<Plan>,
    },
    Resolved {
        job: Number,
        limits: Vec<Limit>,
    },
    Warned {
        job: Number,
        what: &'static str,
        differing: Vec<Number>,
    },
    Delayed {
        job: Number,
        due: Instant,
    },
    Queued(Number),
    /// The head of a queue found this gate shut.
    Shut {
        job: Number,
        gate: Gate,
    },
    /// A job was considered, found a rate shut, and waits (S44).
    Throttled,
    /// A window was opened; its number is its place among all openings.
    Opened {
        scope: Scope,
        settings: RateSettings,
    },
    /// A window's settings became those of a later job (S26).
    Settled {
        scope: Scope,
        settings: RateSettings,
    },
    Started(Start),
    Confirmed(Number),
    /// A start was given back to the window that it was taken from.
    Refunded {
        job: Number,
        attempt: u32,
        scope: Scope,
    },
    PutBack {
        job: Number,
        timeout: bool,
    },
    ToldToStop {
        job: Number,
        reason: Reason,
    },
    Retried {
        job: Number,
        due: Instant,
    },
    Ended {
        job: Number,
        result: Result<i32, Reason>,
    },
    Forgotten(Number),
    /// A window was removed.
    Reset(Scope),
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Delayed(Instant),
    Queued,
    Starting,
    Active,
    Ended(Result<i32, Reason>),
}

/// What the list says of one job.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) number: Number,
    pub(crate) request: &'a Launch,
    pub(crate) plan: &'a Plan,
    pub(crate) limits: Option<&'a [Limit]>,
    pub(crate) phase: Phase,
    /// True once it was put back or retried: queue limits and `skip` no longer apply.
    pub(crate) put_back: bool,
    pub(crate) attempt: u32,
    pub(crate) timeouts: u32,
    pub(crate) retries: u32,
    /// The attempt that is starting or active, or the last.
    pub(crate) start: Option<&'a Start>,
    pub(crate) confirmed_at: Instant,
    pub(crate) ended_at: Instant,
    pub(crate) stop: Option<Reason>,
    pub(crate) forgotten: bool,
    pub(crate) warnings: Vec<(&'static str, &'a [Number])>,
    pub(crate) lease: Lease,
}

/// From when someone's silence counts, and under which takeover it was seen last (S41).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) heard_at: Instant,
    pub(crate) seen_under: usize,
}

impl Lease {
    /// What was heard and committed counts; what was heard besides lives in the leader alone.
    fn hear(&mut self, now: Instant, takeovers: usize) {
        *self = Lease {
            heard_at: now,
            seen_under: takeovers,
        };
    }

    /// A takeover gives a full lease anew to those seen since the takeover before.
    fn take_over(&mut self, now: Instant, takeovers: usize) {
        if self.seen_under == takeovers - 1 {
            self.heard_at = now;
        }
    }
}

impl<'a> Job<'a> {
    fn launched(number: Number, request: &'a Launch, plan: &'a Plan, lease: Lease) -> Job<'a> {
        Job {
            number,
            request,
            plan,
            limits: None,
            phase: Phase::Queued,
            put_back: false,
            attempt: 0,
            timeouts: 0,
            retries: 0,
            start: None,
            confirmed_at: lease.heard_at,
            ended_at: lease.heard_at,
            stop: None,
            forgotten: false,
            warnings: Vec::new(),
            lease,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.request.id
    }

    pub(crate) fn is_final(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Active)
    }

    /// The server of the attempt that is starting or active.
    pub(crate) fn server(&self) -> Option<&str> {
        let start = self.start.filter(|_| self.is_running())?;
        start.server.as_deref()
    }

    /// The queue's order: what comes first is less (S19).
    pub(crate) fn order(&self) -> (i16, Number) {
        (-i16::from(self.plan.priority), self.number)
    }
}

/// What the list says of a server.
#[derive(Clone, Debug)]
pub(crate) struct Server<'a> {
    pub(crate) definition: &'a ServerDefinition,
    pub(crate) online: bool,
    pub(crate) draining: bool,
    pub(crate) incarnations: Vec<&'a str>,
    pub(crate) lease: Lease,
}

/// The naive implementation: a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) facts: Vec<Fact>,
}

impl Model {
    pub(crate) fn push(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// The index of the entry that is applied, its instant and its boundaries.
    pub(crate) fn entry(&self) -> (u64, Instant, Boundaries) {
        let last = self.facts.iter().rev().find_map(|fact| match fact {
            Fact::Entry {
                index,
                at,
                boundaries,
            } => Some((*index, *at, *boundaries)),
            _ => None,
        });
        last.unwrap_or_default()
    }

    pub(crate) fn now(&self) -> Instant {
        self.entry().1
    }

    pub(crate) fn claim(&self) -> Claim {
        let last = self.facts.iter().rev().find_map(|fact| match fact {
            Fact::Takeover(claim) => Some(*claim),
            _ => None,
        });
        last.unwrap_or_default()
    }

    pub(crate) fn takeovers(&self) -> usize {
        let takeovers = |fact: &&Fact| matches!(fact, Fact::Takeover(_));
        self.facts.iter().filter(takeovers).count()
    }

    /// Every job that was ever launched, in launch order.
    pub(crate) fn jobs(&self) -> Vec<Job<'_>> {
        let mut jobs: Vec<Job<'_>> = Vec::new();
        let mut now = Instant::EPOCH;
        let mut takeovers = 0;
        for fact in &self.facts {
            match fact {
                Fact::Entry { at, .. } => now = *at,
                Fact::Takeover(_) => {
                    takeovers += 1;
                    for job in &mut jobs {
                        job.lease.take_over(now, takeovers);
                    }
                }
                Fact::CallerSeen(job) => jobs[*job].lease.hear(now, takeovers),
                Fact::Launched { job, request, plan } => {
                    let heard = Lease {
                        heard_at: now,
                        seen_under: takeovers,
                    };
                    jobs.push(Job::launched(*job, request, plan, heard));
                }
                Fact::Resolved { job, limits } => jobs[*job].limits = Some(limits),
                Fact::Warned {
                    job,
                    what,
                    differing,
                } => jobs[*job].warnings.push((what, differing)),
                Fact::Delayed { job, due } => jobs[*job].phase = Phase::Delayed(*due),
                Fact::Queued(job) => jobs[*job].phase = Phase::Queued,
                Fact::Started(start) => {
                    let job = &mut jobs[start.job];
                    job.phase = Phase::Starting;
                    job.attempt = start.attempt;
                    job.start = Some(start);
                    job.stop = None;
                }
                Fact::Confirmed(job) => {
                    jobs[*job].phase = Phase::Active;
                    jobs[*job].confirmed_at = now;
                }
                Fact::PutBack { job, timeout } => {
                    let job = &mut jobs[*job];
                    job.phase = Phase::Queued;
                    job.put_back = true;
                    job.timeouts += u32::from(*timeout);
                }
                Fact::ToldToStop { job, reason } => jobs[*job].stop = Some(*reason),
                Fact::Retried { job, due } => {
                    let job = &mut jobs[*job];
                    job.phase = Phase::Delayed(*due);
                    job.put_back = true;
                    job.retries += 1;
                    job.timeouts = 0;
                    job.stop = None;
                }
                Fact::Ended { job, result } => {
                    jobs[*job].phase = Phase::Ended(*result);
                    jobs[*job].ended_at = now;
                }
                Fact::Forgotten(job) => jobs[*job].forgotten = true,
                _ => {}
            }
        }
        jobs
    }

    pub(crate) fn job(&self, number: Number) -> Job<'_> {
        self.jobs().swap_remove(number)
    }

    /// The job with an id, unless it was forgotten (S47).
    pub(crate) fn job_named(&self, id: &str) -> Option<Job<'_>> {
        let mut jobs = self.jobs();
        jobs.retain(|job| !job.forgotten && job.id() == id);
        jobs.pop()
    }

    /// An event and the number of its edits.
    pub(crate) fn event(&self, id: &str) -> Option<(&Event, u64)> {
        self.last_told(|command| match command {
            Command::PutEvent { event, .. } if *event.id == *id => Some(Some(&**event)),
            Command::DeleteEvent { event, .. } if **event == *id => Some(None),
            _ => None,
        })
    }

    pub(crate) fn category(&self, id: &str) -> Option<(&Category, u64)> {
        self.last_told(|command| match command {
            Command::PutCategory { category, .. } if *category.id == *id => Some(Some(&**category)),
            Command::DeleteCategory { category, .. } if **category == *id => Some(None),
            _ => None,
        })
    }

    pub(crate) fn server_definition(&self, id: &str) -> Option<(&ServerDefinition, u64)> {
        self.last_told(|command| match command {
            Command::PutServer(server) if *server.id == *id => Some(Some(server)),
            Command::DeleteServer { server } if **server == *id => Some(None),
            _ => None,
        })
    }

    pub(crate) fn override_of(&self, name: &str) -> Option<&Override> {
        let mut found = None;
        for fact in &self.facts {
            if let Some((scope, sizes)) = override_change(fact)
                && *scope == *name
            {
                found = sizes;
            }
        }
        found
    }

    pub(crate) fn settings(&self) -> Settings {
        let (settings, _) = self.stored_settings();
        settings.cloned().unwrap_or_default()
    }

    /// The settings, if they were ever set, and the number of their edits.
    pub(crate) fn stored_settings(&self) -> (Option<&Settings>, u64) {
        let told = self.last_told(|command| match command {
            Command::PutSettings { settings, .. } => Some(Some(&**settings)),
            _ => None,
        });
        told.map_or((None, 0), |(settings, edits)| (Some(settings), edits))
    }

    /// What was told last of something, and how often since it was not there.
    fn last_told<'a, T>(
        &'a self,
        said: impl Fn(&'a Command) -> Option<Option<&'a T>>,
    ) -> Option<(&'a T, u64)> {
        let mut last = None;
        let mut edits = 0;
        for fact in &self.facts {
            let Fact::Told(command) = fact else { continue };
            if let Some(told) = said(command) {
                edits = if told.is_some() { edits + 1 } else { 0 };
                last = told;
            }
        }
        last.map(|told| (told, edits))
    }

    /// Every server that is defined, by id.
    pub(crate) fn servers(&self) -> Vec<Server<'_>> {
        let mut servers: Vec<Server<'_>> = Vec::new();
        let mut now = Instant::EPOCH;
        let mut takeovers = 0;
        for fact in &self.facts {
            match fact {
                Fact::Entry { at, .. } => now = *at,
                Fact::Takeover(_) => {
                    takeovers += 1;
                    for server in servers.iter_mut().filter(|it| it.online) {
                        server.lease.take_over(now, takeovers);
                    }
                }
                Fact::Told(Command::PutServer(definition)) => {
                    match named(&mut servers, &definition.id) {
                        Some(server) => {
                            server.definition = definition;
                            server.draining &= !definition.enabled;
                        }
                        None => servers.push(Server {
                            definition,
                            online: false,
                            draining: false,
                            incarnations: Vec::new(),
                            lease: Lease::default(),
                        }),
                    }
                }
                Fact::Told(Command::DeleteServer { server }) => {
                    servers.retain(|it| *it.definition.id != **server);
                }
                Fact::Seen {
                    server,
                    incarnation,
                } => {
                    if let Some(server) = named(&mut servers, server) {
                        if server.incarnations.last() != Some(&&**incarnation) {
                            server.incarnations.push(incarnation);
                            server.lease = Lease::default();
                            server.draining = false;
                        }
                        server.online = true;
                        server.lease.hear(now, takeovers);
                    }
                }
                Fact::Draining(server) => {
                    if let Some(server) = named(&mut servers, server) {
                        server.draining = true;
                    }
                }
                Fact::Offline(server) => {
                    if let Some(server) = named(&mut servers, server) {
                        server.online = false;
                    }
                }
                _ => {}
            }
        }
        servers.sort_by(|one, two| one.definition.id.cmp(&two.definition.id));
        servers
    }

    pub(crate) fn server(&self, id: &str) -> Option<Server<'_>> {
        let mut servers = self.servers();
        servers.retain(|server| *server.definition.id == *id);
        servers.pop()
    }
}

fn named<'a, 'b>(servers: &'a mut [Server<'b>], id: &str) -> Option<&'a mut Server<'b>> {
    servers.iter_mut().find(|it| *it.definition.id == *id)
}

/// The override that a fact sets or removes.
pub(crate) fn override_change(fact: &Fact) -> Option<(&str, Option<&Override>)> {
    match fact {
        Fact::Told(Command::PutOverride { scope, sizes }) => Some((scope, Some(sizes))),
        Fact::Told(Command::DeleteOverride { scope }) => Some((scope, None)),
        Fact::OverrideRanOut(scope) => Some((scope, None)),
        _ => None,
    }
}
