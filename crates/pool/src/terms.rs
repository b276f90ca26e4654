//! What a job carries: its definition, its limits with their sources, and the rules they come to.
//!
//! Precedence (S7) is settled once, when a job's limits are fixed (S8). The result is interned:
//! jobs launched alike share one [`Terms`], so that a waiting job costs a number, and an edit of
//! the event changes future jobs only.

use crate::command::{Algo, Executor, Node, StartAction};
use crate::id::bucket_name;
use crate::limits::{Align, JobLimit, Limit, LimitKind, Mode, RateLimit, Style};
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Where a limit was found (S7), in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// On the launch request.
    Launch,
    /// On the event.
    Event,
    /// On the workflow node.
    Node,
    /// On the event's category.
    Category,
    /// In the cluster's universal settings.
    Universal,
}

/// A limit and where it was found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourcedLimit {
    /// The limit.
    pub limit: Limit,
    /// Where it was found.
    pub source: Source,
}

/// A job's snapshot of its definition, shared by all jobs launched alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Terms {
    /// Its event, if any.
    pub event: Option<Box<str>>,
    /// Its limits, with their sources.
    pub limits: Vec<SourcedLimit>,
    /// Ids and groups of servers; none: every server.
    pub targets: Vec<Box<str>>,
    /// How a server is picked.
    pub algo: Algo,
    /// Who executes it.
    pub executor: Executor,
    /// The nodes of a workflow job.
    pub nodes: Vec<Node>,
    /// What the leader does between a start and its hand-out.
    pub on_start: Option<Box<StartAction>>,
}

/// The settings of a rate, as declared (S26).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RateSettings {
    /// Most starts per window; tokens gained per window.
    pub rate: u32,
    /// The window, in seconds.
    pub window_s: u32,
    /// Its shape.
    pub style: Style,
    /// Whose clock its boundaries belong to.
    pub align: Align,
    /// Most tokens of a bucket; the rate for other styles.
    pub burst: u32,
}

/// A `rate` limit as a job carries it (S5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// `rate:KEY`.
    pub name: Box<str>,
    /// Its settings.
    pub settings: RateSettings,
    /// What becomes of a job that finds it shut.
    pub mode: Mode,
}

/// What a job's limits come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Most running jobs of the pool; 0: no limit.
    pub amount: u32,
    /// The pool's rate, if any.
    pub rate: Option<RateSettings>,
    /// What becomes of a job that finds it shut; none: the queue limit decides.
    pub mode: Option<Mode>,
    /// The key that joins pools.
    pub cap_key: Option<Box<str>>,
    /// Capacity units on a server.
    pub weight: u32,
    /// Most waiting jobs of the pool; none: no queue.
    pub queue: Option<u32>,
    /// Buckets in the job's order.
    pub buckets: Vec<Bucket>,
    /// Longest time in `active`, in seconds.
    pub time_s: Option<u32>,
    /// Retries, first delay in seconds, and the factor by which it grows.
    pub retry: Option<Retry>,
}

/// How a job is tried again (S49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// How many times.
    pub amount: u32,
    /// The first delay, in seconds.
    pub delay_s: u64,
    /// The factor by which it grows.
    pub backoff: u64,
}

/// A declared number, which [`crate::limits::validate`] has bounded far below `u32::MAX`.
fn bounded(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Rules {
    /// True where a rate that is shut ends the job (S16).
    pub(crate) fn skips(&self) -> bool {
        let own = self.rate.and(self.mode);
        let mut modes = self.buckets.iter().map(|bucket| bucket.mode).chain(own);
        modes.any(|mode| mode == Mode::Skip)
    }

    /// What resolved limits come to. A queue limit without a `job` or `rate` limit is as if
    /// absent (S4).
    #[must_use]
    pub fn of(limits: &[SourcedLimit]) -> Rules {
        let mut rules = Rules {
            weight: 1,
            ..Rules::default()
        };
        let mut queue = None;
        let mut queueable = false;
        for SourcedLimit { limit, .. } in limits {
            match &limit.kind {
                LimitKind::Job(job) => {
                    rules.take_job(job);
                    queueable = true;
                }
                LimitKind::Queue(limit) => queue = Some(limit.amount).filter(|amount| *amount > 0),
                LimitKind::Rate(rate) => {
                    rules.buckets.push(Bucket::of(rate));
                    queueable = true;
                }
                LimitKind::Time(time) => rules.time_s = Some(bounded(time.duration)),
                LimitKind::Retry(retry) => {
                    rules.retry = Some(Retry {
                        amount: bounded(retry.amount),
                        delay_s: retry.duration,
                        backoff: retry.backoff.unwrap_or(1),
                    });
                }
            }
        }
        rules.queue = queue.filter(|_| queueable).map(bounded);
        rules
    }

    fn take_job(&mut self, job: &JobLimit) {
        self.amount = bounded(job.amount);
        self.mode = job.mode;
        self.weight = bounded(job.weight.unwrap_or(1));
        self.cap_key = job.cap_key.clone().filter(|key| !key.is_empty());
        self.rate = job
            .window
            .filter(|_| job.rate > 0)
            .map(|window| RateSettings {
                rate: bounded(job.rate),
                window_s: bounded(window),
                style: job.style.unwrap_or_default(),
                align: job.align.unwrap_or_default(),
                burst: bounded(job.burst.unwrap_or(job.rate)),
            });
    }
}

impl Bucket {
    fn of(rate: &RateLimit) -> Bucket {
        Bucket {
            name: bucket_name(&rate.key),
            settings: RateSettings {
                rate: bounded(rate.count),
                window_s: bounded(rate.per_seconds),
                style: rate.style.unwrap_or_default(),
                align: Align::Utc,
                burst: bounded(rate.burst.unwrap_or(rate.count)),
            },
            mode: rate.mode.unwrap_or(Mode::Skip),
        }
    }
}

/// The first enabled limit of each type (for `rate`: of each key), in the order of precedence;
/// `rate` limits in the order in which they were found (S7).
#[must_use]
pub fn by_precedence(lists: &[(Source, &[Limit])]) -> Vec<SourcedLimit> {
    let mut found: Vec<SourcedLimit> = Vec::new();
    for (source, limits) in lists {
        for limit in limits.iter().filter(|limit| limit.enabled) {
            let known = found
                .iter()
                .any(|other| match (&other.limit.kind, &limit.kind) {
                    (LimitKind::Rate(one), LimitKind::Rate(two)) => one.key == two.key,
                    (one, two) => core::mem::discriminant(one) == core::mem::discriminant(two),
                });
            if !known {
                found.push(SourcedLimit {
                    limit: limit.clone(),
                    source: *source,
                });
            }
        }
    }
    found
}
