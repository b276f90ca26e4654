//! Ten thousand jobs over eight workers that are killed, paused past their lease and started again,
//! while leaders are killed: `scripts/bench/soak` builds what this needs and runs it.

#![expect(clippy::expect_used, reason = "a run that cannot go on says where")]

use std::process::ExitCode;

use fermata_e2e::{SoakOptions, soak};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let jobs = arguments.next().unwrap_or_else(|| "10000".to_owned());
    let jobs = jobs.parse().expect("a number of jobs");
    let seed = arguments.next().map(|text| text.parse());
    let seed = seed.unwrap_or_else(|| Ok(rand::random()));
    let seed = seed.expect("a seed");
    println!("REPRODUCE WITH: scripts/bench/soak {jobs} {seed}");
    let options = SoakOptions {
        jobs,
        workers: 8,
        max_jobs: 10,
        amount: 40,
        seed,
    };
    let report = soak(options).await;
    println!("{report}");
    let holds = report.audit.holds()
        && report.left_behind.is_empty()
        && report.following == options.amount
        && report.succeeded + report.lost == jobs as u64;
    for left in &report.left_behind {
        println!("left behind {left}");
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
