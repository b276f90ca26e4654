//! Limits as they are declared: their shape, their bounds, and what is refused.
//!
//! A limit is checked where it enters (S6): [`validate`] is called by the edge before anything is
//! proposed, and again while applying, so that nothing half-valid is ever stored. What a job ends
//! up with after precedence is [`crate::terms`]'s affair.
//!
//! Caveat: numbers are `u64` here although their bounds are far below: what is refused must still
//! be representable, to be named in the error.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Most jobs of a pool that a concurrency or queue limit may name.
pub const AMOUNT_MAX: u64 = 10_000_000;
/// Most starts per window, or tokens of a burst.
pub const RATE_MAX: u64 = 1_000_000;
/// Most starts per window of a sliding one, whose history is kept.
pub const SLIDING_RATE_MAX: u64 = 100_000;
/// Longest window, in seconds: seven days.
pub const WINDOW_S_MAX: u64 = 604_800;
/// Most capacity units of a job or a server.
pub const WEIGHT_MAX: u64 = 100_000;
/// Longest duration of any kind, in seconds: 366 days.
pub const DURATION_S_MAX: u64 = 366 * 86_400;
/// Most limits in one list, and on one job.
pub const LIMITS_MAX: usize = 16;
/// Most retries of a job (S49).
pub const RETRIES_MAX: u64 = 10_000;
/// Largest factor by which the delay of a retry grows (S49).
pub const BACKOFF_MAX: u64 = 10;
/// Longest delay of a retry after backoff, in seconds (S49).
pub const RETRY_DELAY_S_MAX: u64 = 86_400;

/// The shape of a rate's window (S24–S28).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Style {
    /// A counter that ends at a boundary of the clock.
    #[default]
    Fixed,
    /// At most so many in any rolling window.
    Sliding,
    /// A steady pace with room for a burst.
    TokenBucket,
}

/// Whose clock a fixed window's boundaries belong to (S24, S25).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Align {
    /// The active conductor's time zone.
    #[default]
    Local,
    /// Unix time.
    Utc,
}

/// What becomes of a job that finds a rate shut (S16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// It waits, without a queue limit too.
    Wait,
    /// It is aborted as `rate_limited`.
    Skip,
}

/// One declared limit (S1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Limit {
    /// A disabled limit is as if absent.
    pub enabled: bool,
    /// What it limits.
    pub kind: LimitKind,
}

/// The types of limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LimitKind {
    /// Concurrency and the pool's rate (S2).
    Job(JobLimit),
    /// How many may wait (S4).
    Queue(QueueLimit),
    /// A rate bucket of its own (S5).
    Rate(RateLimit),
    /// How long a job may be active (S50).
    Time(TimeLimit),
    /// How often and when it is tried again (S49).
    Retry(RetryLimit),
}

/// `{"type": "job"}`: concurrency, the pool's rate, and the job's weight (S2).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobLimit {
    /// Most jobs of the pool in `starting` and `active`; 0: no concurrency limit.
    pub amount: u64,
    /// Most starts per window; 0: no rate limit.
    pub rate: u64,
    /// The window in seconds; needed with a rate.
    pub window: Option<u64>,
    /// The key that joins pools; empty counts as absent.
    pub cap_key: Option<Box<str>>,
    /// The window's shape; absent: fixed.
    pub style: Option<Style>,
    /// For `fixed` only; absent: local.
    pub align: Option<Align>,
    /// For `token_bucket` only; absent: the rate.
    pub burst: Option<u64>,
    /// Absent: the queue limit decides.
    pub mode: Option<Mode>,
    /// Capacity units on the server; absent: 1.
    pub weight: Option<u64>,
}

/// `{"type": "queue"}`: most jobs of the pool that wait (S4).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueLimit {
    /// 0: as if absent.
    pub amount: u64,
}

/// `{"type": "rate"}`: a bucket `rate:KEY`, shared by all that name the key (S5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RateLimit {
    /// The bucket's key.
    pub key: Box<str>,
    /// Most starts per window, at least 1.
    pub count: u64,
    /// The window in seconds.
    pub per_seconds: u64,
    /// Absent: fixed.
    pub style: Option<Style>,
    /// For `token_bucket` only; absent: the count.
    pub burst: Option<u64>,
    /// Absent: skip.
    pub mode: Option<Mode>,
}

/// `{"type": "time"}`: an `active` job older than this is told to stop (S50).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimeLimit {
    /// In seconds.
    pub duration: u64,
}

/// `{"type": "retry"}`: a job that failed is tried again (S49).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RetryLimit {
    /// How many times.
    pub amount: u64,
    /// The delay in seconds before the first retry.
    pub duration: u64,
    /// The factor 1…10 by which the delay grows with each; absent: 1.
    pub backoff: Option<u64>,
}

/// Why something is refused where it enters (S6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidField {
    /// The path of the field, as `limits[1].window`.
    pub field: String,
    /// What was given.
    pub given: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {}; allowed: {}",
            self.field, self.given, self.allowed
        )
    }
}

impl core::error::Error for InvalidField {}

impl InvalidField {
    /// Says that `field` holds `given` where `allowed` is allowed.
    pub fn new(
        field: impl Into<String>,
        given: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        InvalidField {
            field: field.into(),
            given: format!("{given}"),
            allowed: allowed.into(),
        }
    }

    /// The same under an outer path: `limits[0]` and `nodes[2]` give `nodes[2].limits[0]`.
    #[must_use]
    pub fn under(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

/// Refuses a number outside `least..=most`, naming it.
pub(crate) fn within(field: &str, given: u64, least: u64, most: u64) -> Result<(), InvalidField> {
    if (least..=most).contains(&given) {
        Ok(())
    } else {
        Err(InvalidField::new(
            field,
            given,
            format!("{least} to {most}"),
        ))
    }
}

/// Checks one list of limits by S2–S6, S49 and S50: bounds, combinations, and no two enabled
/// limits of one type (for `rate`: of one key). `path` names the list in errors.
///
/// # Errors
/// The first field that breaks a rule.
pub fn validate(path: &str, limits: &[Limit]) -> Result<(), InvalidField> {
    if limits.len() > LIMITS_MAX {
        let allowed = format!("at most {LIMITS_MAX} limits");
        return Err(InvalidField::new(
            path,
            format!("{} limits", limits.len()),
            allowed,
        ));
    }
    for (position, limit) in limits.iter().enumerate() {
        let here = format!("{path}[{position}]");
        match &limit.kind {
            LimitKind::Job(job) => validate_job(job),
            LimitKind::Queue(queue) => within("amount", queue.amount, 0, AMOUNT_MAX),
            LimitKind::Rate(rate) => validate_rate(rate),
            LimitKind::Time(time) => within("duration", time.duration, 1, DURATION_S_MAX),
            LimitKind::Retry(retry) => validate_retry(retry),
        }
        .map_err(|fault| fault.under(&here))?;
        if limit.enabled {
            refuse_twins(path, &limits[..position], position, limit)?;
        }
    }
    Ok(())
}

fn refuse_twins(
    path: &str,
    earlier: &[Limit],
    position: usize,
    limit: &Limit,
) -> Result<(), InvalidField> {
    let twin = earlier.iter().position(|other| {
        other.enabled
            && match (&other.kind, &limit.kind) {
                (LimitKind::Rate(one), LimitKind::Rate(two)) => one.key == two.key,
                (one, two) => core::mem::discriminant(one) == core::mem::discriminant(two),
            }
    });
    match twin {
        None => Ok(()),
        Some(first) => Err(InvalidField::new(
            format!("{path}[{position}]"),
            format!("a second enabled limit like {path}[{first}]"),
            "one enabled limit of a type (for rate: of a key) in a list",
        )),
    }
}

fn validate_job(job: &JobLimit) -> Result<(), InvalidField> {
    within("amount", job.amount, 0, AMOUNT_MAX)?;
    within("weight", job.weight.unwrap_or(1), 1, WEIGHT_MAX)?;
    if let Some(key) = job.cap_key.as_deref().filter(|key| !key.is_empty()) {
        crate::id::check_key("cap_key", key)?;
    }
    let style = job.style.unwrap_or_default();
    validate_size("rate", job.rate, 0, "window", job.window, style, job.burst)?;
    if style != Style::Fixed && job.align.is_some() {
        return Err(InvalidField::new(
            "align",
            "given",
            "absent unless style is fixed",
        ));
    }
    let local = style == Style::Fixed && job.align.unwrap_or_default() == Align::Local;
    match job.window {
        None if job.rate > 0 => Err(InvalidField::new(
            "window",
            "absent",
            "a window in seconds, with a rate",
        )),
        Some(window) if local && !matches!(window, 1 | 60 | 3_600 | 86_400) => {
            let allowed = "1, 60, 3600 or 86400 (any from 1 to 604800 with align utc)";
            Err(InvalidField::new("window", window, allowed))
        }
        _ => Ok(()),
    }
}

fn validate_rate(rate: &RateLimit) -> Result<(), InvalidField> {
    crate::id::check_key("key", &rate.key)?;
    let style = rate.style.unwrap_or_default();
    validate_size(
        "count",
        rate.count,
        1,
        "per_seconds",
        Some(rate.per_seconds),
        style,
        rate.burst,
    )
}

fn validate_size(
    rate_field: &str,
    rate: u64,
    least: u64,
    window_field: &str,
    window: Option<u64>,
    style: Style,
    burst: Option<u64>,
) -> Result<(), InvalidField> {
    let most = if style == Style::Sliding {
        SLIDING_RATE_MAX
    } else {
        RATE_MAX
    };
    within(rate_field, rate, least, most)?;
    if let Some(window) = window {
        within(window_field, window, 1, WINDOW_S_MAX)?;
    }
    match burst {
        Some(burst) if style == Style::TokenBucket => within("burst", burst, 1, RATE_MAX),
        Some(burst) => Err(InvalidField::new(
            "burst",
            burst,
            "absent unless style is token_bucket",
        )),
        None => Ok(()),
    }
}

fn validate_retry(retry: &RetryLimit) -> Result<(), InvalidField> {
    within("amount", retry.amount, 0, RETRIES_MAX)?;
    within("duration", retry.duration, 0, DURATION_S_MAX)?;
    within("backoff", retry.backoff.unwrap_or(1), 1, BACKOFF_MAX)
}
