//! A wall clock of its own for a process, which can be set while it runs.
//!
//! Debian's `libfaketime` stands between the process and the C library: it adds to the wall clock
//! what a file says, which it reads at every look. The monotonic clock is left alone, as it is by
//! whoever sets a real clock.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian's package `faketime` puts the library for programs with threads: in the folder of
/// the machine's architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The clock of one process.
#[derive(Debug)]
pub struct WallClock {
    file: PathBuf,
}

impl WallClock {
    /// A clock that shows what the machine's does; it is set by a file in `folder`.
    #[must_use]
    pub fn new(folder: &Path, name: &str) -> Self {
        let clock = Self {
            file: folder.join(format!("{name}.clock")),
        };
        clock.set(0);
        clock
    }

    /// The variables that a process has whose clock it is.
    ///
    /// # Panics
    /// The library is not there.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let library = library().unwrap_or_else(|| {
            panic!("{LIBRARY} is not in {LIBRARIES}/*: install Debian's package faketime")
        });
        [
            ("LD_PRELOAD", library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // Its name, and its name in releases before 0.9.9.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// Sets it to so many seconds ahead of the machine's clock; less than 0: behind.
    ///
    /// # Panics
    /// The file cannot be written.
    #[expect(
        clippy::disallowed_methods,
        reason = "whole at any moment for whoever reads it; it need not outlive the machine"
    )]
    pub fn set(&self, ahead_s: i64) {
        // Whole at any moment: it is read all the time.
        let next = self.file.with_extension("next");
        let set = fs::write(&next, format!("{ahead_s:+}\n"));
        let set = set.and_then(|()| fs::rename(&next, &self.file));
        set.unwrap_or_else(|error| panic!("{}: {error}", self.file.display()));
    }
}

fn library() -> Option<PathBuf> {
    let folders = fs::read_dir(LIBRARIES).ok()?.filter_map(Result::ok);
    let mut libraries = folders.map(|folder| folder.path().join(LIBRARY));
    libraries.find(|library| library.is_file())
}
