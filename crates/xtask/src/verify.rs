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
const DOC_TESTS: &[&str] = &["test", "--locked", "--workspace", "--doc"];
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
const CASES_FOLDER: &str = "crates/pool/tests/cases";

/// The package of the end-to-end tests, and the variable that tells them which binary to run.
const END_TO_END: &str = "fermata-e2e";
const BINARY_VARIABLE: &str = "FERMATA_BIN";

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
    let nextest = has_nextest(root);
    verification.step("tests", |counts| {
        count_tests(
            &mut tests(root, nextest, &["--workspace", "--exclude", END_TO_END]),
            nextest,
            counts,
        )
    });
    verification.step("end-to-end tests", |counts| {
        let Some(binary) = &binary else {
            return Ok(false);
        };
        let mut command = tests(root, nextest, &["--package", END_TO_END]);
        count_tests(command.env(BINARY_VARIABLE, binary), nextest, counts)
    });
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

/// nextest tells its results on standard error, cargo's own runner on standard output.
fn count_tests(command: &mut Command, nextest: bool, counts: &mut Counts) -> io::Result<bool> {
    count(
        command,
        if nextest {
            Reads::Stderr
        } else {
            Reads::Stdout
        },
        counts,
    )
}

fn has_nextest(root: &Path) -> bool {
    let version = cargo(root, &["nextest", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// The tests of some packages. Without nextest cargo's own runner runs them; doc tests are a
/// step of their own in both cases.
fn tests(root: &Path, nextest: bool, packages: &[&str]) -> Command {
    let runner: &[&str] = if nextest {
        &["nextest", "run", "--no-fail-fast", "--no-tests=pass"]
    } else {
        &[
            "test",
            "--no-fail-fast",
            "--lib",
            "--bins",
            "--tests",
            "--examples",
        ]
    };
    let mut command = cargo(root, runner);
    command.arg("--locked").args(packages);
    command
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
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(CASES_FOLDER))? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
