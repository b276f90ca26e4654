//! What commands and questions take of time in a small cluster and in a large one.
//!
//! `scripts/bench/pool` runs it, with a folder for what criterion measures: then the ratios are
//! printed, and one above [`RATIO_MAX`] is a failure. The operations are those whose steps
//! `tests/flat_cost.rs` counts.
//!
//! Caveat: of a large state less lies in the processor's caches. That is part of what is measured,
//! and differs from machine to machine.

#[path = "../tests/scale/mod.rs"]
mod scale;

use criterion::Criterion;
use scale::{Cluster, LARGE, OPERATIONS, SMALL, Size};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Most time in the large cluster for the same in the small one.
const RATIO_MAX: f64 = 4.0;

fn measure(criterion: &mut Criterion, name: &str, size: Size) {
    let mut cluster = Cluster::new(size);
    let mut group = criterion.benchmark_group(name);
    for it in &OPERATIONS {
        group.bench_function(it.name, |bencher| {
            bencher.iter_custom(|times| {
                let timed = |work: &mut dyn FnMut()| {
                    let begun = Instant::now();
                    work();
                    begun.elapsed()
                };
                (0..times).map(|_| it.run(&mut cluster, timed)).sum()
            });
        });
    }
    group.finish();
}

/// The median in nanoseconds that criterion has written down.
fn median(folder: &Path, size: &str, name: &str) -> Option<f64> {
    let file = folder.join(size).join(name).join("new/estimates.json");
    let text = std::fs::read_to_string(file).ok()?;
    let estimates: serde_json::Value = serde_json::from_str(&text).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}

/// Prints the ratios; true where none is too high.
fn compare(folder: &Path) -> bool {
    let mut good = true;
    println!(
        "\n{:<46} {:>10} {:>10} {:>6}",
        "", "small ns", "large ns", "ratio"
    );
    for it in &OPERATIONS {
        let small = median(folder, "small", it.name);
        let large = median(folder, "large", it.name);
        let (Some(small), Some(large)) = (small, large) else {
            println!("{:<46} was not measured", it.name);
            good = false;
            continue;
        };
        let ratio = large / small;
        let note = if ratio > RATIO_MAX { "  too high" } else { "" };
        println!(
            "{:<46} {small:>10.0} {large:>10.0} {ratio:>6.2}{note}",
            it.name
        );
        good &= ratio <= RATIO_MAX;
    }
    good
}

fn main() -> ExitCode {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .configure_from_args();
    measure(&mut criterion, "small", SMALL);
    measure(&mut criterion, "large", LARGE);
    match std::env::var_os("CRITERION_HOME") {
        Some(folder) if !compare(Path::new(&folder)) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
