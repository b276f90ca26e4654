//! How a call can fail.

use std::fmt;
use std::time::Duration;

use fermata_api::problem::{ErrorCode, Problem};
use thiserror::Error;

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum ClientError {
    /// A node's URL is not `http://HOST:PORT`, or none was given.
    #[error("{url:?} is no node of a cluster: {reason}, expected http://HOST:PORT")]
    InvalidUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The request cannot be written as HTTP or JSON.
    #[error("the request cannot be sent: {0}")]
    InvalidRequest(String),
    /// The cluster refused it.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// No node could do it within the deadline; nothing was done.
    #[error("no node could do it within {deadline:?}; nothing was done; last, {cause}")]
    Unavailable {
        /// The call's deadline.
        deadline: Duration,
        /// What the last attempt met.
        cause: Cause,
    },
    /// It was sent, and no definite answer came within the deadline: it may have been done, or be
    /// done yet. The same request with the same id can be sent again.
    #[error("the outcome is unknown after {deadline:?}; last, {cause}")]
    Unknown {
        /// The call's deadline.
        deadline: Duration,
        /// What the last attempt met.
        cause: Cause,
    },
    /// A node answered what the contract does not allow.
    #[error("{url} answered {status}, which was not understood: {detail}")]
    Unexpected {
        /// The node.
        url: String,
        /// The HTTP status.
        status: u16,
        /// Why it was not understood.
        detail: String,
    },
}

impl ClientError {
    /// The code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(problem) => Some(problem.code),
            _ => None,
        }
    }
}

/// What one attempt of a call met.
#[derive(Debug, Error)]
pub enum Cause {
    /// No connection to the node.
    #[error("{url} could not be reached: {}", causes(source))]
    Connect {
        /// The node.
        url: String,
        /// Why.
        source: hyper_util::client::legacy::Error,
    },
    /// The connection broke after the request was sent.
    #[error("{url} broke off: {}", causes(source.as_ref()))]
    Broken {
        /// The node.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node did not answer in time.
    #[error("{url} did not answer within {timeout:?}")]
    Timeout {
        /// The node.
        url: String,
        /// How long it had.
        timeout: Duration,
    },
    /// The node could not do it.
    #[error("{url} answered {status}: {detail}")]
    Answered {
        /// The node.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The problem, as text.
        detail: String,
    },
    /// All of the client's connections were in use until the deadline.
    #[error("no connection of this client became free")]
    Busy,
}

/// An error with all that caused it: hyper's own message does not name the refused connection.
fn causes(error: &(dyn std::error::Error + 'static)) -> impl fmt::Display {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
