//! `fermata`: a node of a cluster, a worker, and everything that a person does with them.
//!
//! One file per command; what they share is how a cluster is reached (`remote`), how an answer is
//! shown (`screen`, `table`) and how a command fails (`error`). No rule lives here: commands ask a
//! node and show what it said.

#![forbid(unsafe_code)]

mod cli;
mod cluster;
mod completions;
mod definitions;
mod demo;
mod dev;
mod error;
mod event;
mod job;
mod limits;
mod logging;
mod node;
mod pool;
mod remote;
mod screen;
mod serve;
mod server;
mod settings;
mod signals;
mod table;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    abort_on_panic();
    cli::main()
}

/// A panicked Raft core goes on looking like a leader, and a worker's executor must not vanish
/// without its process: after the message, the process goes. Release builds abort anyway; this
/// makes the others alike.
fn abort_on_panic() {
    let message = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        message(panic);
        std::process::abort();
    }));
}
