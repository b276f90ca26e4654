//! A cluster of any size, and the operations whose cost must not grow with it.
//!
//! In it, jobs wait in one pool behind the one that runs; as many pools as asked have a window each,
//! with one start in it; the heads of as many other pools wait for one bucket; and servers have
//! room, each in one of ten groups. What is done to it is
//! done to one job, window or server of many, and leaves the cluster as large as it was.

use fermata_pool::Pool;
use fermata_pool::command::{
    Claim, Command, Entry, Event, Executor, Holder, Launch, ServerDefinition, Settings,
};
use fermata_pool::limits::{Align, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit};
use fermata_pool::outcome::{Applied, Outcome, Standing};
use fermata_pool::query::JobFilter;
use fermata_pool::time::{Boundaries, Instant, Stamp};
use fermata_pool::why::{GateView, SHOWN_MAX, What, Why};

/// Commands of one entry while a cluster is made.
const BATCH: usize = 500;
/// The length of the windows that stay open, in seconds.
const WEEK_S: u32 = 604_800;
/// Rows of a page of a list.
const PAGE: usize = 20;

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Jobs that wait in one pool.
    pub(crate) jobs: usize,
    /// Other pools, with a window each.
    pub(crate) pools: usize,
    /// Servers.
    pub(crate) servers: usize,
}

/// A small cluster.
pub(crate) const SMALL: Size = Size {
    jobs: 1_000,
    pools: 1_000,
    servers: 1_000,
};
/// A large one.
pub(crate) const LARGE: Size = Size {
    jobs: 1_000_000,
    pools: 100_000,
    servers: 10_000,
};

/// Something that is done to a cluster, or asked of it.
pub(crate) struct Operation {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Brings about what it needs; not measured. Gives the step of the story.
    pub(crate) prepare: fn(&mut Cluster) -> Vec<Command>,
    /// What is measured: the entry that was prepared, or a question.
    pub(crate) ask: Option<fn(&Cluster)>,
    /// Puts back what was changed; not measured.
    pub(crate) restore: fn(&mut Cluster, &Applied),
}

/// A pool of some size.
pub(crate) struct Cluster {
    pool: Pool,
    size: Size,
    index: u64,
    now: Instant,
    /// Counts the jobs that were launched to measure something.
    launched: usize,
    /// The first of the jobs that wait: the one that runs is before it.
    head: usize,
    /// The last of them.
    last: usize,
    /// How many were cancelled, one after the other from the middle on.
    cancelled: usize,
}

fn limits(job: JobLimit, queue: u64) -> Vec<Limit> {
    let queue = LimitKind::Queue(QueueLimit { amount: queue });
    let enabled = |kind| Limit {
        enabled: true,
        kind,
    };
    vec![enabled(LimitKind::Job(job)), enabled(queue)]
}

fn event(id: &str, job: JobLimit) -> Command {
    Command::PutEvent {
        event: Box::new(Event {
            id: id.into(),
            enabled: true,
            limits: limits(job, 10_000_000),
            ..Event::default()
        }),
        if_revision: None,
    }
}

fn launch(id: &str, event: &str) -> Command {
    Command::Launch(Box::new(Launch {
        id: id.into(),
        event: Some(event.into()),
        ..Launch::default()
    }))
}

/// The id of a job that waits in the one pool.
fn waiting(job: usize) -> String {
    format!("01890a5d-ac96-774b-bcce-{job:012}")
}

/// The key of a pool with a window.
fn key(pool: usize) -> String {
    format!("customer {pool:09} of a cluster with many of them")
}

/// A launch by a caller into the pool of a key: 5 starts in a window, in a queue above that.
fn keyed(id: &str, key: &str, window: u64) -> Command {
    let job = JobLimit {
        rate: 5,
        window: Some(window),
        align: Some(Align::Utc),
        cap_key: Some(key.into()),
        mode: Some(Mode::Wait),
        ..JobLimit::default()
    };
    Command::Launch(Box::new(Launch {
        id: id.into(),
        limits: limits(job, 100),
        executor: Some(Executor::Caller),
        ..Launch::default()
    }))
}

/// A launch by a caller into a pool of its own, for one bucket that lets one start a week.
fn crowded(id: &str) -> Command {
    let job = JobLimit {
        cap_key: Some(id.into()),
        ..JobLimit::default()
    };
    let bucket = LimitKind::Rate(RateLimit {
        key: "crowd".into(),
        count: 1,
        per_seconds: u64::from(WEEK_S),
        style: None,
        burst: None,
        mode: Some(Mode::Wait),
    });
    let mut limits = limits(job, 100);
    limits.push(Limit {
        enabled: true,
        kind: bucket,
    });
    Command::Launch(Box::new(Launch {
        id: id.into(),
        limits,
        executor: Some(Executor::Caller),
        ..Launch::default()
    }))
}

/// The id of a job that waits for that bucket, but the first, which started.
fn in_crowd(job: usize) -> String {
    format!("crowd-{job:09}")
}

fn started(job: &str) -> Command {
    Command::Started {
        job: job.into(),
        attempt: 1,
        from: None,
    }
}

fn completed(job: &str) -> Command {
    Command::Completed {
        job: job.into(),
        attempt: 1,
        code: 0,
        description: "".into(),
        from: None,
    }
}

impl Cluster {
    /// Makes a cluster.
    pub(crate) fn new(size: Size) -> Cluster {
        let mut cluster = Cluster {
            pool: Pool::new(),
            size,
            index: 0,
            // A week of UTC begins: its windows last for the whole of what is measured.
            now: Instant::from_ms(2_943 * i64::from(WEEK_S) * 1_000),
            launched: 0,
            head: 1,
            last: size.jobs,
            cancelled: 0,
        };
        cluster.define();
        cluster.open_windows();
        cluster.in_batches(0..size.pools, |pool| vec![crowded(&in_crowd(pool))]);
        let first = in_crowd(0);
        cluster.apply(vec![started(&first), completed(&first)]);
        // The first of them starts, the others wait.
        cluster.in_batches(0..size.jobs + 1, |job| vec![launch(&waiting(job), "one")]);
        cluster.apply(vec![started(&waiting(0))]);
        cluster
    }

    fn define(&mut self) {
        let settings = Settings {
            finished_max: 1_000,
            ..Settings::default()
        };
        let one = JobLimit {
            amount: 1,
            ..JobLimit::default()
        };
        let free = JobLimit {
            amount: 1_000_000,
            rate: 1_000_000,
            window: Some(u64::from(WEEK_S)),
            align: Some(Align::Utc),
            ..JobLimit::default()
        };
        self.apply(vec![
            Command::Takeover,
            Command::PutSettings {
                settings: Box::new(settings),
                if_revision: None,
            },
            event("one", one),
            event("free", free),
        ]);
        self.in_batches(0..self.size.servers, |server| {
            let id = format!("server-{server:06}");
            let holder = Holder {
                server: id.as_str().into(),
                incarnation: "1".into(),
            };
            let definition = ServerDefinition {
                id: id.into(),
                groups: vec![format!("group-{}", server % 10).into()],
                max_jobs: Some(4),
                enabled: true,
            };
            vec![Command::PutServer(definition), Command::ServerSeen(holder)]
        });
    }

    /// One job of each pool with a window starts in it and ends.
    fn open_windows(&mut self) {
        self.in_batches(0..self.size.pools, |pool| {
            let id = format!("first-{pool}");
            vec![
                keyed(&id, &key(pool), u64::from(WEEK_S)),
                started(&id),
                completed(&id),
            ]
        });
    }

    fn in_batches(
        &mut self,
        numbers: core::ops::Range<usize>,
        commands: impl Fn(usize) -> Vec<Command>,
    ) {
        let (mut from, until) = (numbers.start, numbers.end);
        while from < until {
            let to = until.min(from + BATCH);
            self.apply((from..to).flat_map(&commands).collect());
            from = to;
        }
    }

    /// Applies an entry at the instant of the cluster.
    pub(crate) fn apply(&mut self, commands: Vec<Command>) -> Applied {
        self.index += 1;
        let entry = Entry {
            claim: Claim(1),
            stamp: Stamp::utc(self.now),
            commands,
        };
        let applied = self.pool.apply(self.index, &entry);
        let outcomes = applied.outcomes.as_deref().unwrap_or_default();
        let refused = outcomes
            .iter()
            .find(|outcome| matches!(outcome, Outcome::Refused(_)));
        assert!(applied.outcomes.is_ok() && refused.is_none(), "{refused:?}");
        applied
    }

    fn next_id(&mut self) -> String {
        self.launched += 1;
        format!("measured-{}", self.launched)
    }

    /// One more job waits in the one pool, behind all others.
    fn let_another_wait(&mut self) {
        self.last += 1;
        self.apply(vec![launch(&waiting(self.last), "one")]);
    }

    /// Confirms and completes every job that an entry started.
    fn end_started(&mut self, applied: &Applied) {
        for it in &applied.moves {
            if matches!(it.standing, Standing::Starting { .. }) {
                self.apply(vec![started(&it.job), completed(&it.job)]);
            }
        }
    }
}

/// What is measured.
pub(crate) const OPERATIONS: [Operation; 11] = [
    Operation {
        name: "launch that starts on a server",
        prepare: |cluster| vec![launch(&cluster.next_id(), "free")],
        ask: None,
        restore: Cluster::end_started,
    },
    Operation {
        name: "launch that waits behind all others",
        prepare: |cluster| vec![launch(&cluster.next_id(), "one")],
        ask: None,
        restore: |cluster, _| {
            let job = format!("measured-{}", cluster.launched).into();
            cluster.apply(vec![Command::Cancel { job }]);
        },
    },
    Operation {
        name: "launch into one of the pools with a window",
        prepare: |cluster| {
            let key = key(cluster.size.pools / 2);
            vec![keyed(&cluster.next_id(), &key, u64::from(WEEK_S))]
        },
        ask: None,
        restore: |cluster, applied| {
            cluster.end_started(applied);
            let scope = format!("cap:{}", key(cluster.size.pools / 2)).into();
            cluster.apply(vec![Command::Reset { scope }]);
        },
    },
    Operation {
        name: "completion that releases the next",
        prepare: |cluster| vec![completed(&waiting(cluster.head - 1))],
        ask: None,
        restore: |cluster, applied| {
            let next = waiting(cluster.head);
            let released = applied.moves.iter().any(|it| *it.job == *next);
            assert!(released, "the head is released");
            cluster.head += 1;
            cluster.apply(vec![started(&next)]);
            cluster.let_another_wait();
        },
    },
    Operation {
        name: "release by a window that ends",
        prepare: |cluster| {
            let ids: Vec<String> = (0..6).map(|_| cluster.next_id()).collect();
            for id in &ids {
                cluster.apply(vec![keyed(id, "quick", 1)]);
            }
            for id in &ids[..5] {
                cluster.apply(vec![started(id), completed(id)]);
            }
            cluster.now = cluster.now.plus_s(1);
            Vec::new()
        },
        ask: None,
        restore: |cluster, applied| {
            assert_eq!(applied.moves.len(), 1, "one was above the rate");
            cluster.end_started(applied);
            let scope = "cap:quick".into();
            cluster.apply(vec![Command::Reset { scope }]);
        },
    },
    Operation {
        name: "cancellation in the middle of the queue",
        prepare: |cluster| {
            let middle = cluster.head + cluster.size.jobs / 2;
            let job = waiting(middle + cluster.cancelled).into();
            cluster.cancelled += 1;
            vec![Command::Cancel { job }]
        },
        ask: None,
        restore: |cluster, _| cluster.let_another_wait(),
    },
    Operation {
        name: "why a job in the middle of the queue waits",
        prepare: |_| Vec::new(),
        ask: Some(|cluster| {
            let middle = waiting(cluster.head + cluster.size.jobs / 4);
            let why = cluster.pool.why(&middle, cluster.now, &Boundaries::utc);
            let position = why.and_then(|why| why.position);
            assert!(position.is_some_and(|it| it as usize > cluster.size.jobs / 8));
        }),
        restore: |_, _| {},
    },
    Operation {
        name: "why the head of a pool waits for a crowded bucket",
        prepare: |_| Vec::new(),
        ask: Some(|cluster| {
            let middle = in_crowd(cluster.size.pools / 2);
            let why = cluster.pool.why(&middle, cluster.now, &Boundaries::utc);
            let is_named = |gate: &GateView<'_>| match &gate.what {
                What::Rate { ahead, .. } => ahead.len() == SHOWN_MAX && !ahead.contains(&&*middle),
                _ => false,
            };
            let names = |why: Why<'_>| why.gates.iter().any(is_named) && !why.is_exact;
            assert!(why.is_some_and(names));
        }),
        restore: |_, _| {},
    },
    Operation {
        name: "what would become of a launch",
        prepare: |_| Vec::new(),
        ask: Some(|cluster| {
            if let Command::Launch(launch) = launch("asked", "free") {
                assert!(
                    cluster
                        .pool
                        .would(&launch, cluster.now, &Boundaries::utc)
                        .is_ok()
                );
            }
        }),
        restore: |_, _| {},
    },
    Operation {
        name: "a page of pools and one of windows",
        prepare: |_| Vec::new(),
        ask: Some(|cluster| {
            let middle = format!("cap:{}", key(cluster.size.pools / 2));
            let pools = cluster.pool.pools(&middle, cluster.now).take(PAGE);
            assert_eq!(pools.count(), PAGE);
            let windows = cluster.pool.windows(&middle, cluster.now).take(PAGE);
            assert_eq!(windows.count(), PAGE);
        }),
        restore: |_, _| {},
    },
    Operation {
        name: "a page of jobs and one of servers",
        prepare: |_| Vec::new(),
        ask: Some(|cluster| {
            let middle = waiting(cluster.head + cluster.size.jobs / 4);
            let after = cluster.pool.job(&middle).map(|job| job.number);
            let page = cluster
                .pool
                .jobs(&JobFilter::default(), after, PAGE, 10 * PAGE);
            assert_eq!(page.jobs.len(), PAGE);
            let middle = format!("server-{:06}", cluster.size.servers / 2);
            assert_eq!(cluster.pool.servers(&middle).take(PAGE).count(), PAGE);
        }),
        restore: |_, _| {},
    },
];

impl Operation {
    /// Runs it once; `measure` is called around what it costs.
    pub(crate) fn run<T>(
        &self,
        cluster: &mut Cluster,
        measure: impl FnOnce(&mut dyn FnMut()) -> T,
    ) -> T {
        let mut commands = Some((self.prepare)(cluster));
        let mut applied = None;
        let cost = match self.ask {
            Some(ask) => measure(&mut || ask(cluster)),
            None => measure(&mut || applied = commands.take().map(|it| cluster.apply(it))),
        };
        if let Some(applied) = applied {
            (self.restore)(cluster, &applied);
        }
        cost
    }
}
