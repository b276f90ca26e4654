//! Refusals and faults as `application/problem+json` (RFC 9457), with codes that scripts can
//! rely on.
//!
//! A code is stable: it may be added, never renamed or given another meaning. Its HTTP status
//! stands beside it here, so that no two calls answer the same code differently.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::jobs::JobView;

/// Most bytes of a problem's `detail`: it may quote what was sent, but not mirror it.
pub const DETAIL_BYTES_MAX: usize = 1_024;

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The body is no JSON.
    InvalidJson,
    /// A value has the wrong type or breaks a rule (S3–S6, S11).
    InvalidRequest,
    /// The request has a field that the call does not know.
    UnknownField,
    /// The event is not there (S10).
    EventMissing,
    /// The event is disabled (S10).
    EventDisabled,
    /// The workflow job named as parent is unknown or final (S9).
    UnknownParent,
    /// The parent's workflow has no such node (S9).
    UnknownNode,
    /// No such job, or it was forgotten after its retention (S47).
    UnknownJob,
    /// No such server.
    UnknownServer,
    /// No such category.
    UnknownCategory,
    /// No such node of the cluster.
    UnknownMember,
    /// No job, window, queue or override knows the pool.
    UnknownPool,
    /// There are as many definitions of this kind as there may be.
    TooMany,
    /// Another attempt than the current one, or the job was put back (S14).
    StaleAttempt,
    /// A completion before the confirmation (S14).
    NotActive,
    /// The attempt cannot be confirmed yet: its start action is not over. Nothing was done.
    StartActionPending,
    /// The job has ended (S14).
    Final,
    /// A newer incarnation of this worker has taken over (S42).
    Superseded,
    /// The same id or idempotency key with another request (S40).
    IdConflict,
    /// The definition is no longer at the revision that was named.
    RevisionConflict,
    /// A change of the cluster's members that cannot be made now.
    MembershipConflict,
    /// The job was aborted: a rate was exhausted (S16).
    RateLimited,
    /// The job was aborted: the pool's slots were taken (S16).
    ConcurrencyLimited,
    /// The job was aborted: the queue was full (S16).
    QueueFull,
    /// The job was aborted: no server could take it (S16, S18).
    NoServer,
    /// The cluster holds as many unfinished jobs as it may (S47).
    ClusterFull,
    /// This node does not lead and did not pass the request on; nothing was done.
    NotLeader,
    /// There is no leader, or none that a majority confirms; nothing was done.
    NoLeader,
    /// Leadership was lost or time ran out while the request was on its way: it may have been done
    /// or be done yet. Repeating it is safe (S40).
    UnknownOutcome,
    /// This node has as many requests at hand as it admits; nothing was done.
    Overloaded,
    /// The body is larger than [`crate::bounds::BODY_BYTES_MAX`].
    BodyTooLarge,
    /// The body is not said to be `application/json`.
    UnsupportedMediaType,
    /// No such path.
    NotFound,
    /// The path does not know this method.
    MethodNotAllowed,
    /// A fault of this node, which it has logged.
    Internal,
}

impl ErrorCode {
    /// Every code, in the order of the type.
    pub const ALL: [Self; 35] = [
        Self::InvalidJson,
        Self::InvalidRequest,
        Self::UnknownField,
        Self::EventMissing,
        Self::EventDisabled,
        Self::UnknownParent,
        Self::UnknownNode,
        Self::UnknownJob,
        Self::UnknownServer,
        Self::UnknownCategory,
        Self::UnknownMember,
        Self::UnknownPool,
        Self::TooMany,
        Self::StaleAttempt,
        Self::NotActive,
        Self::StartActionPending,
        Self::Final,
        Self::Superseded,
        Self::IdConflict,
        Self::RevisionConflict,
        Self::MembershipConflict,
        Self::RateLimited,
        Self::ConcurrencyLimited,
        Self::QueueFull,
        Self::NoServer,
        Self::ClusterFull,
        Self::NotLeader,
        Self::NoLeader,
        Self::UnknownOutcome,
        Self::Overloaded,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Internal,
    ];

    /// The code as it stands in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status with which the code is answered.
    #[must_use]
    pub fn status(self) -> u16 {
        self.row().1
    }

    /// One short sentence for people, the same for every occurrence.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidJson => ("invalid_json", 400, "The body is not JSON"),
            Self::InvalidRequest => ("invalid_request", 400, "The request breaks a rule"),
            Self::UnknownField => ("unknown_field", 400, "The request has an unknown field"),
            Self::EventMissing => ("event_missing", 404, "There is no such event"),
            Self::EventDisabled => ("event_disabled", 409, "The event is disabled"),
            Self::UnknownParent => (
                "unknown_parent",
                409,
                "The parent job is unknown or has ended",
            ),
            Self::UnknownNode => ("unknown_node", 409, "The workflow has no such node"),
            Self::UnknownJob => ("unknown_job", 404, "There is no such job"),
            Self::UnknownServer => ("unknown_server", 404, "There is no such server"),
            Self::UnknownCategory => ("unknown_category", 404, "There is no such category"),
            Self::UnknownMember => ("unknown_member", 404, "There is no such node"),
            Self::UnknownPool => ("unknown_pool", 404, "There is no such pool"),
            Self::TooMany => ("too_many", 409, "There are as many as there may be"),
            Self::StaleAttempt => ("stale_attempt", 409, "The attempt is not the current one"),
            Self::NotActive => ("not_active", 409, "The attempt was not confirmed"),
            Self::StartActionPending => {
                ("start_action_pending", 503, "The start action is not over")
            }
            Self::Final => ("final", 409, "The job has ended"),
            Self::Superseded => ("superseded", 409, "A newer incarnation has taken over"),
            Self::IdConflict => ("id_conflict", 409, "The id belongs to another request"),
            Self::RevisionConflict => ("revision_conflict", 412, "The definition has changed"),
            Self::MembershipConflict => (
                "membership_conflict",
                409,
                "The members cannot be changed so",
            ),
            Self::RateLimited => ("rate_limited", 429, "The rate is exhausted"),
            Self::ConcurrencyLimited => ("concurrency_limited", 429, "All slots are taken"),
            Self::QueueFull => ("queue_full", 429, "The queue is full"),
            Self::NoServer => ("no_server", 503, "No server can take the job"),
            Self::ClusterFull => ("cluster_full", 503, "The cluster holds too many jobs"),
            Self::NotLeader => ("not_leader", 503, "This node does not lead"),
            Self::NoLeader => ("no_leader", 503, "There is no leader"),
            Self::UnknownOutcome => ("unknown_outcome", 503, "The outcome is unknown"),
            Self::Overloaded => ("overloaded", 503, "The node is overloaded"),
            Self::BodyTooLarge => ("body_too_large", 413, "The body is too large"),
            Self::UnsupportedMediaType => (
                "unsupported_media_type",
                415,
                "The body must be application/json",
            ),
            Self::NotFound => ("not_found", 404, "There is no such path"),
            Self::MethodNotAllowed => ("method_not_allowed", 405, "The method is not allowed here"),
            Self::Internal => ("internal", 500, "The node has failed"),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// With what a launch can be repeated that was aborted and has used up its id (S40).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryWith {
    /// Another id or idempotency key.
    NewId,
}

/// A refusal or fault (RFC 9457).
///
/// In JSON it has `type` (`urn:fermata:problem:CODE`), `title` and `status` too; they follow from
/// the code, so they are written, and not kept.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Problem {
    /// The stable code.
    pub code: ErrorCode,
    /// What happened this time: what was given and what is allowed.
    pub detail: String,
    /// The field at fault, as a path: `limits[0].amount`.
    #[serde(default)]
    pub field: Option<String>,
    /// The job as it ended, where a launch was aborted; as it is, where an attempt was refused.
    #[serde(default)]
    pub job: Option<Box<JobView>>,
    /// What must change before the launch is repeated.
    #[serde(default)]
    pub retry_with: Option<RetryWith>,
    /// Milliseconds until the same may succeed, where an instant is known: for a launch that was
    /// aborted, until one like it would not be, if nothing else happens. Absent where others wait
    /// who would take what comes, or something else has to happen first. `Retry-After` says the
    /// same in whole seconds, rounded up.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem of this kind. A `detail` beyond [`DETAIL_BYTES_MAX`] is cut off.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            let mut end = DETAIL_BYTES_MAX - "…".len();
            while !detail.is_char_boundary(end) {
                end -= 1;
            }
            detail.truncate(end);
            detail.push('…');
        }
        Self {
            code,
            detail,
            field: None,
            job: None,
            retry_with: None,
            retry_after_ms: None,
        }
    }

    /// The same problem with the field at fault.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            r#type: String,
            title: &'static str,
            status: u16,
            detail: &'a str,
            code: ErrorCode,
            #[serde(skip_serializing_if = "Option::is_none")]
            field: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            job: Option<&'a JobView>,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_with: Option<RetryWith>,
            #[serde(skip_serializing_if = "Option::is_none")]
            retry_after_ms: Option<u64>,
        }

        Written {
            r#type: format!("urn:fermata:problem:{}", self.code),
            title: self.code.title(),
            status: self.code.status(),
            detail: &self.detail,
            code: self.code,
            field: self.field.as_deref(),
            job: self.job.as_deref(),
            retry_with: self.retry_with,
            retry_after_ms: self.retry_after_ms,
        }
        .serialize(serializer)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.code)?;
        if let Some(field) = &self.field {
            write!(formatter, "{field}: ")?;
        }
        formatter.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}
