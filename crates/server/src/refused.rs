//! Answers that are a "no", and answers in general: JSON in one place.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use fermata_api::headers;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_replica::{HeardError, MembershipError, ProposeError};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::convert::refusals;

/// After what time to come back where the cause usually passes soon: an election, a full queue.
pub(crate) const SOON_MS: u64 = 1_000;

/// A call that was not done, and what is known of that.
#[derive(Debug)]
pub(crate) struct Refused {
    /// What is answered.
    pub(crate) problem: Box<Problem>,
    /// Whether it was refused because this node does not lead, and certainly changed nothing: the
    /// same call may be tried again.
    pub(crate) is_unled: bool,
}

/// On an answer within this process: see [`Refused::is_unled`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unled;

impl Refused {
    /// No leader, and nothing was done.
    pub(crate) fn unled(detail: &str) -> Self {
        let mut refused = Self::from(Problem::new(ErrorCode::NoLeader, detail));
        refused.is_unled = true;
        refused
    }

    /// It may have been done.
    pub(crate) fn unknown() -> Self {
        let detail = "leadership or time was lost while the call was on its way; it may have been \
                      done or be done yet, and repeating it under the same id is safe";
        Problem::new(ErrorCode::UnknownOutcome, detail).into()
    }

    /// More than this node takes at once.
    pub(crate) fn overloaded(detail: &str) -> Self {
        Problem::new(ErrorCode::Overloaded, detail).into()
    }
}

impl From<Problem> for Refused {
    fn from(mut problem: Problem) -> Self {
        let passes_soon = matches!(
            problem.code,
            ErrorCode::NoLeader
                | ErrorCode::NotLeader
                | ErrorCode::UnknownOutcome
                | ErrorCode::Overloaded
        );
        if passes_soon && problem.retry_after_ms.is_none() {
            problem.retry_after_ms = Some(SOON_MS);
        }
        Self {
            problem: Box::new(problem),
            is_unled: false,
        }
    }
}

impl From<ProposeError> for Refused {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NotLeader { .. } => Self::unled("this node does not lead any more"),
            ProposeError::Stopping => Self::unled("this node is being shut down"),
            ProposeError::Unknown => Self::unknown(),
            ProposeError::Overloaded => Self::overloaded("as many commands wait as may"),
            ProposeError::TooLarge { .. } => {
                Problem::new(ErrorCode::BodyTooLarge, error.to_string()).into()
            }
        }
    }
}

impl From<HeardError> for Refused {
    fn from(error: HeardError) -> Self {
        match error {
            HeardError::Propose(error) => error.into(),
            HeardError::Refused(refusal) => refusals::refusal(refusal).into(),
        }
    }
}

impl From<MembershipError> for Refused {
    fn from(error: MembershipError) -> Self {
        let detail = error.to_string();
        match error {
            MembershipError::NotLeader { .. } => Self::unled(&detail),
            MembershipError::Unknown => Problem::new(ErrorCode::UnknownOutcome, detail).into(),
            MembershipError::UnderWay
            | MembershipError::NotCaughtUp { .. }
            | MembershipError::NoSuccessor => {
                Problem::new(ErrorCode::MembershipConflict, detail).into()
            }
            MembershipError::Invalid(_) => Problem::new(ErrorCode::InvalidRequest, detail).into(),
            MembershipError::UnknownMember { .. } => {
                Problem::new(ErrorCode::UnknownMember, detail).into()
            }
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = problem(&self.problem);
        if self.is_unled {
            response.extensions_mut().insert(Unled);
        }
        response
    }
}

/// A problem as it goes over the wire. `Retry-After` is rounded up: never earlier than the truth.
pub(crate) fn problem(problem: &Problem) -> Response {
    let status =
        StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = written(status, headers::PROBLEM_JSON, problem);
    if let Some(after_ms) = problem.retry_after_ms {
        let seconds = HeaderValue::from(after_ms.div_ceil(1_000).max(1));
        response.headers_mut().insert(headers::RETRY_AFTER, seconds);
    }
    response
}

/// A JSON answer.
pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    written(status, headers::JSON, body)
}

/// An answer without a body.
pub(crate) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn written<T: Serialize>(status: StatusCode, media_type: &'static str, body: &T) -> Response {
    let (status, body) = match serde_json::to_vec(body) {
        Ok(body) => (status, Body::from(body)),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, Body::empty())
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
