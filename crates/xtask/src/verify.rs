//! Everything that must hold before a change is merged, in one command that changes nothing.
//!
//! All steps run, also after one has failed: whoever reads the output wants all of it. The
//! end-to-end tests run after the others, so that what they time is not disturbed by them,
//! and against the binary that was built here and no other.
//!
//! A test that did not run proves nothing, so one that was skipped or ignored is a failure. The
//! last line is `N passed, N failed`, over tests, doc tests and cases.

mod counts;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use counts::Counts;

use crate::{cargo, tidy};

const FORMAT: &[&str] = &["fmt", "--all", "--", "--check"];
const LINTS: &[&str] = &[
    "clippy",
    "--locked",
    "--workspace",
    "--all-targets",
    "--",
    "-D",
    "warnings",
];
const BUILD: &[&str] = &[
    "build",
    "--locked",
    "--package",
    "fermata",
    "--message-format=json-render-diagnostics",
];
const DOC_TESTS: &[&str] = &["test", "--locked", "--no-fail-fast", "--workspace", "--doc"];
const CASES: &[&str] = &[
    "run",
    "--locked",
    "--quiet",
    "--package",
    "fermata-pool",
    "--example",
    "run_cases",
    "--",
];
/// Seeds of simulated clusters, some of them twice in processes of their own.
const SIMULATION: &[&str] = &[
    "run",
    "--locked",
    "--quiet",
    "--profile=simulation",
    "--package=fermata-sim",
    "--",
    "--seeds=1..51",
    "--twice=5",
];
const CASES_FOLDER: &str = "crates/pool/tests/cases";

/// The variable that tells the end-to-end tests which binary to run.
const BINARY_VARIABLE: &str = "FERMATA_BIN";

const NEXTEST: &[&str] = &[
    "nextest",
    "run",
    "--locked",
    "--config-file=crates/xtask/nextest.toml",
    "--no-tests=pass",
    "--workspace",
];
const CARGO_TEST: &[&str] = &[
    "test",
    "--locked",
    "--no-fail-fast",
    "--lib",
    "--bins",
    "--tests",
    "--examples",
];

/// What runs the tests: nextest where it is installed, else cargo itself.
#[derive(Clone, Copy)]
enum Runner {
    Nextest,
    Cargo,
}

/// Which of the tests.
#[derive(Clone, Copy)]
enum Part {
    AllButEndToEnd,
    EndToEnd,
}

/// Which of a child's two streams is read; the other goes where ours goes.
#[derive(Clone, Copy)]
enum Reads {
    Stdout,
    Stderr,
}

/// What has been seen so far.
#[derive(Default)]
struct Verification {
    counts: Counts,
    failed_steps: Vec<&'static str>,
}

pub(crate) fn run(root: &Path) -> bool {
    let mut verification = Verification::default();
    verification.step("format", |_| succeeds(&mut cargo(root, FORMAT)));
    verification.step("tidy", |_| Ok(tidy::run(root)));
    verification.step("lints", |_| succeeds(&mut cargo(root, LINTS)));

    let mut binary = None;
    verification.step("build", |_| {
        binary = build_binary(root)?;
        Ok(binary.is_some())
    });
    let runner = Runner::of_this_machine(root);
    verification.step("tests", |counts| {
        runner.run(&mut runner.command(root, Part::AllButEndToEnd), counts)
    });
    verification.step("end-to-end tests", |counts| {
        let Some(binary) = &binary else {
            return Ok(false);
        };
        let mut command = runner.command(root, Part::EndToEnd);
        runner.run(command.env(BINARY_VARIABLE, binary), counts)
    });
    verification.step("simulation", |_| succeeds(&mut cargo(root, SIMULATION)));
    verification.step("doc tests", |counts| {
        count(&mut cargo(root, DOC_TESTS), Reads::Stdout, counts)
    });
    verification.step("cases", |counts| {
        count(
            cargo(root, CASES).args(case_files(root)?),
            Reads::Stdout,
            counts,
        )
    });
    verification.conclude()
}

impl Verification {
    fn step(&mut self, name: &'static str, work: impl FnOnce(&mut Counts) -> io::Result<bool>) {
        println!("== {name}");
        let begun = Instant::now();
        let fine = work(&mut self.counts).unwrap_or_else(|error| {
            eprintln!("{name}: {error}");
            false
        });
        let result = if fine { "fine" } else { "FAILED" };
        println!("== {name}: {result} after {} s", begun.elapsed().as_secs());
        if !fine {
            self.failed_steps.push(name);
        }
    }

    fn conclude(mut self) -> bool {
        let Counts {
            passed,
            failed,
            skipped,
        } = self.counts;
        println!("{} ran, {skipped} skipped or ignored", passed + failed);
        if skipped > 0 {
            self.failed_steps.push("nothing skipped or ignored");
        }
        if passed + failed == 0 {
            self.failed_steps.push("some test ran");
        }
        if !self.failed_steps.is_empty() {
            println!("not fulfilled: {}", self.failed_steps.join(", "));
        }
        println!("{passed} passed, {failed} failed");
        self.failed_steps.is_empty()
    }
}

fn succeeds(command: &mut Command) -> io::Result<bool> {
    Ok(command.status()?.success())
}

/// Runs a command, prints the stream that is read as it comes, and adds up what its lines count.
fn count(command: &mut Command, reads: Reads, counts: &mut Counts) -> io::Result<bool> {
    let (stdout, stderr) = match reads {
        Reads::Stdout => (Stdio::piped(), Stdio::inherit()),
        Reads::Stderr => (Stdio::inherit(), Stdio::piped()),
    };
    let mut child = command.stdout(stdout).stderr(stderr).spawn()?;
    let stream: Option<Box<dyn io::Read>> = match reads {
        Reads::Stdout => child.stdout.take().map(|stream| Box::new(stream) as _),
        Reads::Stderr => child.stderr.take().map(|stream| Box::new(stream) as _),
    };
    for line in stream
        .into_iter()
        .flat_map(|stream| BufReader::new(stream).split(b'\n'))
    {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        counts.add_line(&line);
    }
    Ok(child.wait()?.success())
}

impl Runner {
    fn of_this_machine(root: &Path) -> Runner {
        match cargo(root, &["nextest", "--version"]).output() {
            Ok(output) if output.status.success() => Runner::Nextest,
            _ => Runner::Cargo,
        }
    }

    /// Doc tests are no part of either: nextest cannot run them.
    fn command(self, root: &Path, part: Part) -> Command {
        let (runner, part): (&[&str], &[&str]) = match (self, part) {
            // The end-to-end tests are chosen by a filter and not by package, because another
            // choice of packages is another choice of features, and everything is built again.
            (Runner::Nextest, Part::AllButEndToEnd) => {
                (NEXTEST, &["-E", "not package(fermata-e2e)"])
            }
            (Runner::Nextest, Part::EndToEnd) => (NEXTEST, &["-E", "package(fermata-e2e)"]),
            (Runner::Cargo, Part::AllButEndToEnd) => {
                (CARGO_TEST, &["--workspace", "--exclude", "fermata-e2e"])
            }
            (Runner::Cargo, Part::EndToEnd) => (CARGO_TEST, &["--package", "fermata-e2e"]),
        };
        let mut command = cargo(root, runner);
        command.args(part);
        command
    }

    fn run(self, command: &mut Command, counts: &mut Counts) -> io::Result<bool> {
        let reads = match self {
            Runner::Nextest => Reads::Stderr,
            Runner::Cargo => Reads::Stdout,
        };
        count(command, reads, counts)
    }
}

/// The path of the binary that was built, as cargo says it.
fn build_binary(root: &Path) -> io::Result<Option<PathBuf>> {
    let output = cargo(root, BUILD).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Ok(None);
    }
    let messages = output.stdout.lines().map_while(Result::ok);
    Ok(messages
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .last())
}

fn case_files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let in_folder =
        |error: io::Error| io::Error::new(error.kind(), format!("{CASES_FOLDER}: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(CASES_FOLDER)).map_err(in_folder)? {
        let path = entry.map_err(in_folder)?.path();
        if path.extension() == Some(OsStr::new("json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
