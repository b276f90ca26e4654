//! The rules: when may a job start?
//!
//! A [`Pool`] is a state machine. It holds events, servers, jobs, queues and windows of a whole
//! cluster; [`Pool::apply`] takes the next entry of the replicated log and changes the state by the
//! rules, which are numbered (S12) as in the product's semantics. It decides, and does nothing
//! else: no IO, no clock, no time zone, no randomness, no threads, no logging. The crate is
//! `no_std`, so the compiler keeps it so. Every replica that applies the same log has the same
//! state, byte for byte (S37).
//!
//! # The map
//!
//! - [`command`] is what may be asked, [`outcome`] what is answered; [`apply`] lets time pass and
//!   carries commands out.
//! - [`launch`] makes jobs, [`consideration`] looks at them first; [`admission`] looks at gates and starts,
//!   [`heads`] knows who is considered next, [`kinds`] which of them are alike;
//!   [`ends`] frees what was taken; [`rates`] and [`window`] count starts; [`fleet`] picks servers;
//!   [`definitions`] keeps events, categories, servers, settings and overrides.
//! - [`state`] is the tables and the indexes made of them, [`table`] the one type that all rows lie
//!   in, [`snapshot`] how they leave and come back, [`digest`] how replicas compare them. Indexes
//!   are [`sorted`], [`ranked`] or hashed ([`ids`]).
//! - [`audit`] keeps who changed what.
//! - [`query`] is for looking, [`outlook`] sees what time alone will bring, [`why`] says what a job
//!   waits for, [`invariants`] for checking.
//!
//! # What costs what
//!
//! With n jobs, pools or servers a command costs a few ordered-map steps of log n each, however
//! many jobs wait: only the head of a queue is looked at, only when the one gate that it waits for
//! opens, and of those that find the same only one. Builds with debug assertions count these
//! [`steps`]. A snapshot walks the tables in steps of its own, between entries.
//!
//! # Caveats
//!
//! - A panic on a committed entry would repeat on every replica. Asserts guard our own invariants;
//!   nothing that an entry can hold reaches one.
//! - A takeover visits every starting job, every server and every caller's lease.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admission;
mod apply;
pub mod audit;
pub mod command;
mod consideration;
mod definitions;
mod digest;
mod ends;
mod fleet;
mod heads;
pub mod id;
mod ids;
mod invariants;
pub mod job;
mod kinds;
mod launch;
pub mod limits;
mod members;
pub mod outcome;
mod outlook;
pub mod query;
mod queue;
mod ranked;
mod rates;
pub mod scope;
pub mod server;
pub mod snapshot;
mod sorted;
pub mod state;
pub mod steps;
mod table;
pub mod terms;
pub mod time;
mod wanted;
pub mod why;
pub mod window;

pub use apply::MOVES_PER_ENTRY_MAX;
pub use launch::{PRIORITY_MAX, PRIORITY_MIN};
pub use state::Pool;
