//! Talking to a fermata cluster: calls that survive a change of leader, and the worker's loop.
//!
//! A [`Client`] knows some nodes. It sends every call to the node that it believes to lead,
//! follows the `Fermata-Leader` header of the answers, and goes round the nodes it knows when one
//! does not answer. Each call has one deadline; within it, whatever is harmless to repeat is
//! repeated, with pauses that grow and vary.
//!
//! What makes a repetition harmless is the identity of the request (S40): a launch always carries
//! an id, given by the caller or made here, and confirmations and completions name their attempt.
//! So there are three ways in which a call can fail, and they are three variants of
//! [`ClientError`]: it was *refused*, with a problem that says why; it was certainly not done,
//! because no node could do it (*unavailable*); or it may have been done (*unknown*), because an
//! answer was lost and none came since.
//!
//! [`worker::run`] is the other half: the loop that executes jobs of a server, with its lease, its
//! confirmations and its reports.
//!
//! # Caveats
//!
//! - No TLS and no keys yet: plain `http://` only.
//! - Calls that are not harmless to repeat (resets, changes of members, hand-overs) are not
//!   repeated once their outcome is unknown.
//! - A call that was repeated after a lost answer can meet its own effect: a conditional `PUT` is
//!   then answered `revision_conflict`, a cancel `final`.

#![forbid(unsafe_code)]

mod calls;
mod client;
mod error;
mod nodes;
pub mod permit;
pub mod worker;

pub use client::{Client, ClientOptions};
pub use error::{Cause, ClientError};
pub use permit::{Permit, PermitError, PermitLease, PermitOptions, PermitStop};

pub use fermata_api::jobs::LaunchRequest;
pub use fermata_api::limits::Limit;
