//! `fermata`: a node of a cluster, a worker, and everything that a person does with them.
//!
//! One file per command; what they share is how a cluster is reached (`remote`), how an answer is
//! shown (`screen`, `table`) and how a command fails (`error`). No rule lives here: commands ask a
//! node and show what it said.

#![forbid(unsafe_code)]

mod audit;
mod cli;
mod cluster;
mod completions;
mod definitions;
mod demo;
mod dev;
mod error;
mod event;
mod exec;
mod group;
mod hidden;
mod inspect;
mod job;
mod limits;
mod logging;
mod moment;
mod node;
mod overrides;
mod pool;
mod remote;
mod screen;
mod serve;
mod server;
mod settings;
mod signals;
mod table;
mod worker;

fn main() -> std::process::ExitCode {
    cli::main()
}
