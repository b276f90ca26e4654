//! `cargo xtask`: how this repository checks and mends itself.
//!
//! - `verify` reads and never writes: formatting, lints, tidiness, every test, every case. It is
//!   what runs before a change is merged, and it is the same everywhere.
//! - `fix` writes what can be mended without thinking: formatting and the lints that mend
//!   themselves.
//! - `tidy` is the part of `verify` that knows the house: who may import whom, what may be
//!   named where, how long a file may be, that every known fault still applies. Given a folder it
//!   checks that one.
//! - `faults` brings each known fault into a copy of the tree, and fails unless a test catches it.

#![forbid(unsafe_code)]

mod faults;
mod fix;
mod tidy;
mod verify;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str =
    "usage: cargo xtask verify | fix | tidy [FOLDER] | faults [--list | PART OF A NAME…]";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let fine = match arguments[..] {
        ["verify"] => verify::run(&root()),
        ["fix"] => fix::run(&root()),
        ["tidy"] => tidy::run(&root()),
        ["tidy", folder] => tidy::run(Path::new(folder)),
        ["faults", "--list"] => faults::list(&root()),
        ["faults", ref wanted @ ..] => faults::run(&root(), wanted),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The folder of the workspace: two above this package.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cargo that runs us, to be run at the root of the workspace. Nothing that it prints is
/// coloured, because some of it is read.
fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(root)
        .args(arguments)
        .env("CARGO_TERM_COLOR", "never");
    command
}
