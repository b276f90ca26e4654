//! Mends what mends itself.

use std::path::Path;

use crate::cargo;

const CLIPPY: &[&str] = &[
    "clippy",
    "--workspace",
    "--all-targets",
    "--fix",
    "--allow-dirty",
    "--allow-staged",
];

pub(crate) fn run(root: &Path) -> bool {
    let steps = [CLIPPY, &["fmt", "--all"]];
    steps
        .iter()
        .all(|arguments| match cargo(root, arguments).status() {
            Ok(status) => status.success(),
            Err(error) => {
                eprintln!(
                    "cargo {} could not be started: {error}",
                    arguments.join(" ")
                );
                false
            }
        })
}
