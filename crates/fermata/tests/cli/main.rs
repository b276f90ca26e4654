//! The built binary as a person or a script uses it: its help, its settings, its exit codes, its
//! nodes and its workers. Nothing is mocked.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

mod exec;
mod harness;
mod help;
mod jobs;
mod nodes;
mod settings;
mod shutdown;
mod why;
mod workers;
