//! The calendar through its public surface.
//!
//! `data/boundaries_sample.csv` holds right values; `data/root` is a small file system with
//! zone files of the same release as the zones that are built in, so that what is tested does
//! not hang on the machine's own.

#![expect(
    clippy::expect_used,
    reason = "what a test expects and does not find is its failure"
)]

mod sample;
mod scanner;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

/// The file system of the tests.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/root")
}

/// The names of all zones that have a file below [`root`], sorted.
fn zone_names() -> Vec<String> {
    let directory = root().join("usr/share/zoneinfo");
    let mut names = Vec::new();
    let mut folders = vec![directory.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder of zone files") {
            let path = entry.expect("an entry of the folder").path();
            let name = path
                .strip_prefix(&directory)
                .expect("a path below the folder");
            if path.is_dir() {
                folders.push(path);
            } else if name != Path::new("tzdata.zi") {
                names.push(name.to_str().expect("a name in UTF-8").to_owned());
            }
        }
    }
    names.sort();
    names
}
