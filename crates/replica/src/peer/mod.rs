//! Talking to the other members.
//!
//! Each purpose has connections of its own ([`Purpose`]), so that a heartbeat never waits behind
//! a megabyte of log or a snapshot. A connection begins with a handshake in which both sides say
//! their node id and the caller its cluster; who reached the wrong member or another cluster is
//! told so and refused, so that wrong addresses do no harm. Frames and messages are described in
//! [`crate::format::wire`].
//!
//! - `connection`: one connection, from frames to asking and answering;
//! - `network`: what openraft calls to reach others;
//! - `acknowledged`: what they have, and must not lose;
//! - `listen`: what answers them;
//! - `forward`: requests that one edge hands to another, many at a time on one connection.
//!
//! An asker takes its connection out of its place while it waits for an answer and puts it back
//! only when the answer is read whole: whatever is dropped or fails in between costs the
//! connection, and never leaves an answer behind for the next question.
//!
//! Caveats: peers are not authenticated and nothing is encrypted; the member listens only where
//! it is told to, which must be a network that only members reach. TLS belongs between
//! `connection`'s TCP stream and its frames (`Connection::over`). Names are resolved by the
//! system whenever a connection is made.

mod acknowledged;
mod connection;
mod forward;
mod listen;
mod network;

pub(crate) use connection::{Dialer, Identity, PeerError};
pub(crate) use forward::Forwards;
pub(crate) use listen::listen;
pub(crate) use network::Network;
