//! The end-to-end tests' house: real processes of the one binary, on loopback, nothing mocked.
//!
//! A [`Cluster`] is some nodes, each a process with its folder and its ports, which a test kills,
//! pauses, stops and starts again. A [`Worker`] is a worker process with a journal. A [`Recorder`]
//! launches jobs and writes down what was asked and answered; at the end the [`Recorder`] reads the
//! workers' journals beside its own records and has them audited. What a [`fermata_client::Client`]
//! hides (statuses, headers, malformed bodies) is said in raw HTTP ([`http`]).
//!
//! Every wait is [`wait_for`]: a condition with a deadline. Every cluster has a loopback address of
//! its own, so that a node that comes back finds its ports free whatever runs beside it; the ports
//! are the kernel's choice.
//!
//! The binary is the one that `FERMATA_BIN` names, which `cargo xtask verify` sets.
//!
//! # Caveats
//!
//! - Linux: signals by pid, `127.0.0.0/8`, network namespaces (which need root).
//! - Folders of a test that failed are kept, and named in its output.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a harness fails its test by panicking")]

mod chaos;
pub mod clock;
mod cluster;
pub mod disk;
pub mod fleet;
mod folder;
pub mod http;
mod load;
pub mod namespaces;
mod process;
mod rated;
mod recorder;
mod soak;
mod wait;
mod worker;

pub use chaos::{ChaosOptions, ChaosReport, Story, chaos};
pub use cluster::{Cluster, ClusterOptions, Node, Place};
pub use folder::{contents, copy_folder};
pub use load::load;
pub use process::{Exit, Process, binary};
pub use rated::Rated;
pub use recorder::Recorder;
pub use soak::{SoakOptions, SoakReport, soak};
pub use wait::{DEADLINE, now_us, wait_for};
pub use worker::{Worker, WorkerOptions};
