//! Reasons and refusals of the pool, as codes and problems.

use fermata_api::jobs::AbortReason;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_pool::outcome::{Reason, Refusal};

use super::inward::invalid;

/// Why a job was aborted.
pub(crate) fn reason(why: Reason) -> AbortReason {
    match why {
        Reason::RateLimited => AbortReason::RateLimited,
        Reason::ConcurrencyLimited => AbortReason::ConcurrencyLimited,
        Reason::QueueFull => AbortReason::QueueFull,
        Reason::NoServer => AbortReason::NoServer,
        Reason::ServerLost => AbortReason::ServerLost,
        Reason::StartTimeout => AbortReason::StartTimeout,
        Reason::LeaseExpired => AbortReason::LeaseExpired,
        Reason::Cancelled => AbortReason::Cancelled,
        Reason::EventMissing => AbortReason::EventMissing,
        Reason::TimeLimit => AbortReason::TimeLimit,
    }
}

/// The code with which the launch of a job is answered that was aborted for want of admission;
/// none where it was admitted and ended later.
pub(crate) fn refused_launch(why: AbortReason) -> Option<ErrorCode> {
    match why {
        AbortReason::RateLimited => Some(ErrorCode::RateLimited),
        AbortReason::ConcurrencyLimited => Some(ErrorCode::ConcurrencyLimited),
        AbortReason::QueueFull => Some(ErrorCode::QueueFull),
        AbortReason::NoServer => Some(ErrorCode::NoServer),
        AbortReason::EventMissing => Some(ErrorCode::EventMissing),
        AbortReason::ServerLost
        | AbortReason::StartTimeout
        | AbortReason::LeaseExpired
        | AbortReason::Cancelled
        | AbortReason::TimeLimit => None,
    }
}

/// The stable code of a refusal.
pub(crate) fn code(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::Invalid(_) => ErrorCode::InvalidRequest,
        Refusal::UnknownJob => ErrorCode::UnknownJob,
        Refusal::StaleAttempt => ErrorCode::StaleAttempt,
        Refusal::NotActive => ErrorCode::NotActive,
        Refusal::Final => ErrorCode::Final,
        Refusal::IdConflict => ErrorCode::IdConflict,
        Refusal::EventMissing => ErrorCode::EventMissing,
        Refusal::EventDisabled => ErrorCode::EventDisabled,
        Refusal::UnknownParent => ErrorCode::UnknownParent,
        Refusal::UnknownNode => ErrorCode::UnknownNode,
        Refusal::ClusterFull => ErrorCode::ClusterFull,
        Refusal::TooMany { .. } => ErrorCode::TooMany,
        Refusal::UnknownServer => ErrorCode::UnknownServer,
        Refusal::Superseded => ErrorCode::Superseded,
        Refusal::UnknownCategory => ErrorCode::UnknownCategory,
        Refusal::RevisionConflict { .. } => ErrorCode::RevisionConflict,
    }
}

/// A refusal of the pool, in a sentence and with the field at fault.
pub(crate) fn refusal(refusal: Refusal) -> Problem {
    let code = code(&refusal);
    let detail = match refusal {
        Refusal::Invalid(fault) => return invalid(fault),
        Refusal::IdConflict => {
            let detail = "the id was used for another request; the same request can be repeated, \
                          another one needs another id";
            return Problem::new(code, detail).with_field("id");
        }
        Refusal::EventMissing | Refusal::EventDisabled => {
            return Problem::new(code, code.title()).with_field("event");
        }
        Refusal::UnknownParent => {
            return Problem::new(code, code.title()).with_field("workflow.job");
        }
        Refusal::UnknownNode => {
            return Problem::new(code, code.title()).with_field("workflow.node");
        }
        Refusal::UnknownCategory => return Problem::new(code, code.title()).with_field("category"),
        Refusal::RevisionConflict { revision: 0 } => "it is absent, or was never edited".to_owned(),
        Refusal::RevisionConflict { revision } => {
            format!("the definition is at revision {revision} now")
        }
        Refusal::TooMany { most } => format!("at most {most} are allowed"),
        Refusal::UnknownJob
        | Refusal::StaleAttempt
        | Refusal::NotActive
        | Refusal::Final
        | Refusal::ClusterFull
        | Refusal::UnknownServer
        | Refusal::Superseded => code.title().to_owned(),
    };
    Problem::new(code, detail)
}
