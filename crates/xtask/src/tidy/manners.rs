//! How tests behave: none is switched off, and none sleeps.
//!
//! A test that sleeps is slow where the machine is fast and wrong where it is slow; it waits for
//! a condition, with a deadline. Somewhere that wait sleeps between two looks: once per harness,
//! in a file that `waits.txt` names.

use super::tree::WAITS;
use super::{Findings, Tree};

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let waits: Vec<&str> = tree.waits.iter().flat_map(|text| text.lines()).collect();
    let waits: Vec<&str> = waits
        .into_iter()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .collect();
    for source in &tree.sources {
        for at in source.ignored_tests() {
            findings.fault(
                &source.path,
                Some(source.line_of(at)),
                "a test that is switched off",
            );
        }
        let allowed = usize::from(waits.contains(&source.path.as_str()));
        for at in source.sleeps_in_tests().into_iter().skip(allowed) {
            let what = format!(
                "a test that sleeps: wait for a condition with a deadline, in one place per \
                 harness that {WAITS} names"
            );
            findings.fault(&source.path, Some(source.line_of(at)), &what);
        }
    }
    for wait in waits {
        let sleeps = tree.sources.iter().find(|source| source.path == wait);
        if sleeps.is_none_or(|source| source.sleeps_in_tests().is_empty()) {
            findings.fault(
                WAITS,
                None,
                &format!("{wait} does not sleep: take it off the list"),
            );
        }
    }
}
