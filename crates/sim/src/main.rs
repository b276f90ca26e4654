//! Whole clusters in one process, under a simulated network, disk and clock.
//!
//! `cargo run -p fermata-sim -- --seed N` runs one: nodes with the real pool, driver and openraft;
//! workers, callers and users who launch, cancel, reset and override; and, drawn from the seed,
//! crashes, cuts, slow and failing disks, jumping clocks, hand-overs, snapshots and changes of the
//! membership. After a while all is mended, and every job must come to its end. What was seen is
//! judged by the invariants, one file each in `invariants/`.
//!
//! The run prints one hash over every message, write, entry and outcome: the same seed gives the
//! same hash, so a violation can be had again, with `--trace` in every detail. `--seeds A..B` runs
//! many, each in a process of its own, and prints those that fail with the command for each.
//!
//! # Caveats
//!
//! - The store is simulated; the real one is tested under crashes in `crates/replica/tests/store`.
//! - The edge is a small one of its own: HTTP is tested end to end, on real clusters.
//! - Hosts take turns by the millisecond, and all run at one speed.

#![forbid(unsafe_code)]

mod clock;
mod disk;
mod edge;
mod faults;
mod invariants;
mod log;
mod many;
mod network;
mod node;
mod ration;
mod run;
mod trace;
mod users;
mod worker;

pub(crate) use run::{LATENCY_MAX, NODES, WORKERS};

use clap::Parser;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

/// Runs whole clusters in a simulation, and says what does not hold.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run one seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds A to B, B excluded, each in a process of its own.
    #[arg(long, value_name = "A..B", value_parser = many::range)]
    seeds: Option<std::ops::Range<u64>>,
    /// Run so many of the seeds twice, and fail where the two runs differ.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "seeds")]
    twice: u64,
    /// Print everything that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr);
    // What members log of what is done to them is of interest to who asks for it only.
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(LevelFilter::OFF.into())
        .from_env_lossy();
    subscriber.with_env_filter(filter).init();
    match arguments.seeds {
        Some(seeds) => many::run(&seeds, arguments.twice),
        None => run::run(arguments.seed.unwrap_or_else(rand::random), arguments.trace),
    }
}
