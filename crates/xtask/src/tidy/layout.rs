//! Which folders there are, and what nothing may be called.

use super::{Findings, Tree};

const TOP_FOLDERS: &[&str] = &["crates", "deploy", "scripts", "tests"];

/// Names that say where something was put instead of what it is.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for folder in &tree.top_folders {
        if !TOP_FOLDERS.contains(&folder.as_str()) {
            let allowed = TOP_FOLDERS.join(", ");
            findings.fault(
                folder,
                None,
                &format!("not a folder of ours; there are {allowed}"),
            );
        }
    }
    for path in &tree.paths {
        let stems = path
            .split('/')
            .map(|part| part.split('.').next().unwrap_or(part));
        if let Some(stem) = stems.into_iter().find(|stem| EMPTY_NAMES.contains(stem)) {
            findings.fault(
                path,
                None,
                &format!("{stem:?} says nothing: name what is in it"),
            );
        }
    }
}
