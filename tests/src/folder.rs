//! Folders of nodes: what is in them, and copies of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file: its bytes, and when they were last changed.
type Content = (Vec<u8>, SystemTime);

/// Every file below a folder.
///
/// # Panics
/// It cannot be read.
#[must_use]
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Content> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            let changed = fs::metadata(&path).and_then(|file| file.modified());
            let bytes = fs::read(&path).expect("a file");
            files.insert(path, (bytes, changed.expect("when it was changed")));
        }
    }
    files
}

/// Copies a folder to where nothing is.
///
/// # Panics
/// It cannot be read, or the copy not be written.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("listed").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, target).expect("a copy");
        }
    }
}
