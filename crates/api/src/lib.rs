//! The HTTP contract of fermata: what a client, a worker or a script sends, and what a node answers.
//!
//! Server and client are both written against these types, so that they cannot disagree: bodies,
//! query strings, paths, header names, error codes and their HTTP statuses stand here and nowhere
//! else. The crate (de)serialises and does nothing more: whether a limit is sensible, a job may
//! start or an id is free is decided by the rules of the pool, behind the server's edge.
//!
//! The habits of the contract:
//!
//! - JSON, snake_case, under `/v1`. Instants are RFC 3339 in UTC with milliseconds
//!   ([`time::Timestamp`]); durations are whole numbers whose names end in `_ms` or `_s`.
//! - A request with an unknown field is refused, and every refusal is a [`problem::Problem`] that
//!   names the field. [`decode::decode`] turns bytes into a request or into that problem.
//! - An answer may gain fields in later versions: readers skip what they do not know.
//! - Whatever can grow is bounded while it is read ([`bounds`]), so that a short body cannot
//!   become a large value.
//!
//! # Caveats
//!
//! - Rules that need more than one field (S3, S5) are checked by the pool, not here: a `rate` of
//!   10^18 in a limit decodes, and is refused a moment later with the range that its style allows.
//! - Parameters are opaque: two values that mean the same but are written differently are
//!   different bytes here, and the same request for S40, which compares them as parsed.

#![forbid(unsafe_code)]

pub mod audit;
pub mod bounds;
pub mod cluster;
pub mod decode;
pub mod events;
pub mod headers;
pub mod jobs;
pub mod limits;
mod object;
pub mod params;
pub mod pools;
pub mod problem;
pub mod query;
pub mod routes;
pub mod servers;
pub mod settings;
pub mod stats;
pub mod time;
mod whole;
pub mod why;
