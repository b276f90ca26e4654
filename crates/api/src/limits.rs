//! Limits as they stand in JSON (S1–S5, S49, S50), on launches, events, nodes, categories and in
//! the universal settings.
//!
//! A limit is an object with a `type`. serde's own tagged enums would read it into a buffer first
//! and lose the place of a fault inside of it; so it is read as one flat object with every field
//! of every type, and then sorted into its type. A wrong value is thereby named as
//! `limits[0].amount`, and a field of another type is refused by name.
//!
//! Numbers are `u64` here whatever the range of the rule (S3), so that the pool can say what was
//! given and what is allowed.

use serde::{Deserialize, Serialize};

use crate::bounds::{
    AMOUNT_MAX, BACKOFF_MAX, DURATION_S_MAX, RATE_MAX, RETRIES_MAX, WEIGHT_MAX, WINDOW_S_MAX,
};
use crate::decode::NO_NUMBER;
use crate::whole::Given;

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", try_from = "AnyLimit")]
pub enum Limit {
    /// Concurrency and start rate of the job's pool.
    Job(JobLimit),
    /// The length of the pool's queue.
    Queue(QueueLimit),
    /// A rate bucket that jobs of any pool share by its key.
    Rate(RateLimit),
    /// How long a job may be active.
    Time(TimeLimit),
    /// How often a failed job is tried again.
    Retry(RetryLimit),
}

/// The `job` limit (S2): most jobs of a pool at once, and most starts per window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobLimit {
    /// A disabled limit is as if absent. Absent means true.
    pub enabled: bool,
    /// Most jobs of the pool in `starting` and `active`; 0 = no concurrency limit.
    pub amount: u64,
    /// Most starts per window; 0 = no rate limit.
    pub rate: u64,
    /// Length of the window in seconds; needed with a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The name under which jobs of different events share one pool; empty = absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_key: Option<String>,
    /// Shape of the window; `fixed` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style: Option<Style>,
    /// Where fixed windows begin; `local` where absent. For `fixed` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub align: Option<Align>,
    /// Capacity of a token bucket; the rate where absent. For `token_bucket` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// What happens to a job that meets the exhausted rate; where absent, the queue limit decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Capacity units that one job takes on its server; 1 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
}

/// The `queue` limit (S4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueLimit {
    /// A disabled limit is as if absent. Absent means true.
    pub enabled: bool,
    /// Most jobs of the pool in `queued`; 0 = as if the limit were absent.
    pub amount: u64,
}

/// The `rate` limit (S5): a bucket of its own, `rate:KEY`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RateLimit {
    /// A disabled limit is as if absent. Absent means true.
    pub enabled: bool,
    /// The bucket's name.
    pub key: String,
    /// Most starts per window, at least 1.
    pub count: u64,
    /// Length of the window in seconds.
    pub per_seconds: u64,
    /// Shape of the window; `fixed` (aligned to UTC) where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style: Option<Style>,
    /// Capacity of a token bucket; the count where absent. For `token_bucket` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// What happens to a job that meets the exhausted bucket; `skip` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// The `time` limit (S50).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeLimit {
    /// A disabled limit is as if absent. Absent means true.
    pub enabled: bool,
    /// How long a job may be `active`, in seconds.
    pub duration: u64,
}

/// The `retry` limit (S49).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetryLimit {
    /// A disabled limit is as if absent. Absent means true.
    pub enabled: bool,
    /// Most retries after the first attempt that failed.
    pub amount: u64,
    /// Delay before a retry, in seconds.
    pub duration: u64,
    /// Factor by which the delay grows with each retry, 1 to 10; 1 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<u64>,
}

/// The shape of a rate's window (S2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Windows that begin at fixed instants (S24, S25).
    Fixed,
    /// Any rolling stretch of the window's length (S27).
    Sliding,
    /// Tokens that refill continuously (S28).
    TokenBucket,
}

/// Where fixed windows begin (S24, S25).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// At the local second, minute, hour or midnight of the active conductor.
    Local,
    /// At multiples of the length in Unix time.
    Utc,
}

/// What happens to a job that meets an exhausted rate (S16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It waits in the queue.
    Wait,
    /// It is aborted.
    Skip,
}

/// Where a job's limit came from (S7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// The launch request.
    Launch,
    /// The event.
    Event,
    /// The workflow node from which the job was launched.
    Node,
    /// The event's category.
    Category,
    /// The cluster's universal settings.
    Universal,
}

/// A limit of a job, with its source (S7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcedLimit {
    /// Where it was found first.
    pub source: LimitSource,
    /// The limit.
    pub limit: Limit,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitType {
    Job,
    Queue,
    Rate,
    Time,
    Retry,
}

/// Every field of every type of limit, as read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a limit: an object")]
struct AnyLimit {
    r#type: LimitType,
    enabled: Option<bool>,
    amount: Option<Given>,
    rate: Option<Given>,
    window: Option<Given>,
    cap_key: Option<String>,
    style: Option<Style>,
    align: Option<Align>,
    burst: Option<Given>,
    mode: Option<Mode>,
    weight: Option<Given>,
    key: Option<String>,
    count: Option<Given>,
    per_seconds: Option<Given>,
    duration: Option<Given>,
    backoff: Option<Given>,
}

impl LimitType {
    fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Queue => "queue",
            Self::Rate => "rate",
            Self::Time => "time",
            Self::Retry => "retry",
        }
    }

    /// The range of a number of the type. Styles and other fields may narrow it (S3); the pool
    /// knows that.
    fn range(self, field: &str) -> (u64, u64) {
        match (self, field) {
            (Self::Retry, "amount") => (0, RETRIES_MAX),
            (_, "amount") => (0, AMOUNT_MAX),
            (_, "rate") => (0, RATE_MAX),
            (_, "count" | "burst") => (1, RATE_MAX),
            (_, "window" | "per_seconds") => (1, WINDOW_S_MAX),
            (_, "weight") => (1, WEIGHT_MAX),
            (Self::Retry, "duration") => (0, DURATION_S_MAX),
            (_, "duration") => (1, DURATION_S_MAX),
            (_, "backoff") => (1, BACKOFF_MAX),
            _ => (0, u64::MAX),
        }
    }

    /// The fields of the type beside `type` and `enabled`.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Job => &[
                "amount", "rate", "window", "cap_key", "style", "align", "burst", "mode", "weight",
            ],
            Self::Queue => &["amount"],
            Self::Rate => &["key", "count", "per_seconds", "style", "burst", "mode"],
            Self::Time => &["duration"],
            Self::Retry => &["amount", "duration", "backoff"],
        }
    }
}

impl LimitType {
    fn needed<T>(self, field: &'static str, value: Option<T>) -> Result<T, LimitFault> {
        value.ok_or(LimitFault::Missing { field, of: self })
    }

    fn number(self, field: &'static str, given: Option<Given>) -> Result<Option<u64>, LimitFault> {
        match given {
            None => Ok(None),
            Some(Given(Ok(number))) => Ok(Some(number)),
            Some(Given(Err(given))) => Err(LimitFault::NoNumber {
                field,
                of: self,
                given,
            }),
        }
    }

    fn needed_number(self, field: &'static str, given: Option<Given>) -> Result<u64, LimitFault> {
        let number = self.number(field, given)?;
        self.needed(field, number)
    }
}

impl AnyLimit {
    /// The names of the fields that were given, beside `type` and `enabled`.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("amount", self.amount.is_some()),
            ("rate", self.rate.is_some()),
            ("window", self.window.is_some()),
            ("cap_key", self.cap_key.is_some()),
            ("style", self.style.is_some()),
            ("align", self.align.is_some()),
            ("burst", self.burst.is_some()),
            ("mode", self.mode.is_some()),
            ("weight", self.weight.is_some()),
            ("key", self.key.is_some()),
            ("count", self.count.is_some()),
            ("per_seconds", self.per_seconds.is_some()),
            ("duration", self.duration.is_some()),
            ("backoff", self.backoff.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// Why an object whose fields are well-formed is no limit. The wording of serde's own faults, so
/// that [`crate::decode`] treats them alike.
enum LimitFault {
    Unknown {
        field: &'static str,
        of: LimitType,
    },
    Missing {
        field: &'static str,
        of: LimitType,
    },
    NoNumber {
        field: &'static str,
        of: LimitType,
        given: String,
    },
}

impl std::fmt::Display for LimitFault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { field, of } => write!(
                formatter,
                "unknown field `{field}` in a `{}` limit, expected `type`, `enabled`, `{}`",
                of.name(),
                of.fields().join("`, `")
            ),
            Self::Missing { field, of } => {
                write!(
                    formatter,
                    "missing field `{field}` in a `{}` limit",
                    of.name()
                )
            }
            Self::NoNumber { field, of, given } => {
                let (least, most) = of.range(field);
                write!(
                    formatter,
                    "{NO_NUMBER}{field}` of a `{}` limit: {given} given, a whole number from \
                     {least} to {most} allowed",
                    of.name()
                )
            }
        }
    }
}

impl TryFrom<AnyLimit> for Limit {
    type Error = LimitFault;

    fn try_from(any: AnyLimit) -> Result<Self, LimitFault> {
        let of = any.r#type;
        if let Some(field) = any.given().find(|name| !of.fields().contains(name)) {
            return Err(LimitFault::Unknown { field, of });
        }
        let enabled = any.enabled.unwrap_or(true);
        Ok(match of {
            LimitType::Job => Self::Job(JobLimit {
                enabled,
                amount: of.number("amount", any.amount)?.unwrap_or(0),
                rate: of.number("rate", any.rate)?.unwrap_or(0),
                window: of.number("window", any.window)?,
                cap_key: any.cap_key,
                style: any.style,
                align: any.align,
                burst: of.number("burst", any.burst)?,
                mode: any.mode,
                weight: of.number("weight", any.weight)?,
            }),
            LimitType::Queue => Self::Queue(QueueLimit {
                enabled,
                amount: of.needed_number("amount", any.amount)?,
            }),
            LimitType::Rate => Self::Rate(RateLimit {
                enabled,
                key: of.needed("key", any.key)?,
                count: of.needed_number("count", any.count)?,
                per_seconds: of.needed_number("per_seconds", any.per_seconds)?,
                style: any.style,
                burst: of.number("burst", any.burst)?,
                mode: any.mode,
            }),
            LimitType::Time => Self::Time(TimeLimit {
                enabled,
                duration: of.needed_number("duration", any.duration)?,
            }),
            LimitType::Retry => Self::Retry(RetryLimit {
                enabled,
                amount: of.needed_number("amount", any.amount)?,
                duration: of.needed_number("duration", any.duration)?,
                backoff: of.number("backoff", any.backoff)?,
            }),
        })
    }
}
