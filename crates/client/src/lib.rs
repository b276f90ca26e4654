//! Talking to a fermata cluster: calls that survive a change of leader, permits, and workers.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use fermata_client::api::jobs::Wait;
//! use fermata_client::{Client, LaunchRequest};
//!
//! # async fn example() -> Result<(), fermata_client::ClientError> {
//! // Some nodes of the cluster are enough; the leader is found.
//! let client = Client::connect(["http://n1:7400", "http://n2:7400", "http://n3:7400"])?;
//! let launch = LaunchRequest {
//!     event: Some("sync".to_owned()),
//!     id: Some("sync-2026-03-02".to_owned()), // harmless to repeat
//!     ..LaunchRequest::default()
//! };
//! let job = client.launch_and_wait(launch, Wait::End, Duration::from_secs(60)).await?;
//! println!("{}: {:?} {:?}", job.id, job.state, job.code);
//! # Ok(()) }
//! ```
//!
//! There are three ways to use a cluster, and an example of each in `examples/`, which runs beside
//! `fermata dev`:
//!
//! - *launch* jobs that workers execute: [`Client::launch`], and the other calls of a [`Client`];
//! - hold a *permit* while this program does something itself: [`Client::permit`], a guard that
//!   renews itself ([`permit`]);
//! - be a *worker*, which executes jobs with an async function: [`Client::worker`] ([`worker`]).
//!
//! All of them need a Tokio runtime. The types of the HTTP contract are in [`api`].
//!
//! # What a call does
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

/// The HTTP contract: what is sent and answered.
pub use fermata_api as api;
pub use fermata_api::jobs::LaunchRequest;
