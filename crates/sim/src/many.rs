//! Many seeds, each in a process of its own: what one leaves behind in its process must not be seen
//! by the next.

use std::ops::Range;
use std::process::{Command, ExitCode, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Reads `A..B`.
pub(crate) fn range(text: &str) -> Result<Range<u64>, String> {
    let parts = text.split_once("..");
    let numbers = parts.map(|(from, to)| (from.parse(), to.parse()));
    match numbers {
        Some((Ok(from), Ok(to))) if from < to => Ok(from..to),
        _ => Err(format!(
            "{text:?} was given; two numbers are allowed, as in 1..51"
        )),
    }
}

/// Runs them, as many at a time as there are processors; fails if any does.
pub(crate) fn run(seeds: Range<u64>) -> ExitCode {
    let Ok(program) = std::env::current_exe() else {
        eprintln!("fermata-sim: the path of this program is not known");
        return ExitCode::from(2);
    };
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let output = Command::new(&program)
                        .args(["--seed", &seed.to_string()])
                        .output();
                    if !told(seed, output)
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    println!(
        "{} seeds ran, {} failed",
        seeds.end - seeds.start,
        failed.len()
    );
    for seed in &failed {
        println!("again: cargo run -p fermata-sim -- --seed {seed}");
    }
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints what a seed came to, in one piece; true if it holds.
fn told(seed: u64, output: std::io::Result<Output>) -> bool {
    match output {
        Ok(output) => {
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            if output.status.success() {
                print!("{out}");
            } else {
                print!("{out}{err}");
            }
            output.status.success()
        }
        Err(error) => {
            println!("seed {seed} could not be run: {error}");
            false
        }
    }
}
