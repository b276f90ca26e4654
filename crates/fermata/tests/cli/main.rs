//! The built binary as a person or a script uses it: its help, its settings, its exit codes, its
//! nodes and its workers. Nothing is mocked.

mod harness;
mod help;
mod jobs;
mod nodes;
mod settings;
mod workers;
