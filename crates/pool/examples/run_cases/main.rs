//! Replays case files against the pool and says where they differ from what they expect.
//!
//! `cargo run -q -p fermata-pool --example run_cases -- FILE…` prints a line per file, what was
//! expected and what came where they differ, then `N passed, N failed`; it fails if any failed.

mod story;

use std::process::ExitCode;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: run_cases FILE…");
        return ExitCode::from(2);
    }
    let (mut passed, mut failed) = (0, 0);
    for file in files {
        let read = std::fs::read_to_string(&file).map_err(|fault| vec![fault.to_string()]);
        match read.and_then(|text| story::replay(&text)) {
            Ok(log) => {
                passed += 1;
                println!("ok      {file} ({} entries)", log.len());
            }
            Err(differences) => {
                failed += 1;
                println!("FAILED  {file}");
                for difference in differences {
                    println!("        {difference}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
