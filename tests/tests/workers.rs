//! Workers that are killed, paused past their lease and started again, under leaders that are
//! killed: the short form of `scripts/bench/soak`.

use fermata_e2e::{SoakOptions, soak};

/// Sets a run's random choices; a failure prints the one that it had.
const SEED_VARIABLE: &str = "FERMATA_SEED";

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_and_go_run_every_job_once_and_leave_nothing_behind() {
    let given = std::env::var(SEED_VARIABLE).ok();
    let given = given.and_then(|text| text.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    println!("REPRODUCE WITH: {SEED_VARIABLE}={seed}");
    let options = SoakOptions {
        jobs: 300,
        workers: 4,
        max_jobs: 8,
        amount: 12,
        seed,
    };
    let report = soak(options).await;
    println!("{report}");
    assert!(report.audit.holds(), "seed {seed}: {report}");
    assert_eq!(report.following, options.amount, "{report}");
    assert!(report.left_behind.is_empty(), "{:?}", report.left_behind);
    assert_eq!(report.succeeded + report.lost, 300, "{report}");
}
