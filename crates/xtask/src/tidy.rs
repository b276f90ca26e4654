//! The rules of the house that no compiler knows.
//!
//! Each rule is a file beside this one and looks at the same [`Tree`]. What it finds is a fault,
//! which fails, or a note, which is only told: sizes have a limit at which one should think and
//! one at which one must.

mod imports;
mod layout;
mod manners;
mod size;
mod source;
mod tree;

use std::path::Path;

use tree::Tree;

use crate::faults;

/// What the rules found, each as `path:line: what`.
#[derive(Default)]
struct Findings {
    faults: Vec<String>,
    notes: Vec<String>,
}

impl Findings {
    fn fault(&mut self, path: &str, line: Option<usize>, what: &str) {
        self.faults.push(finding(path, line, what));
    }

    fn note(&mut self, path: &str, line: Option<usize>, what: &str) {
        self.notes.push(finding(path, line, what));
    }
}

fn finding(path: &str, line: Option<usize>, what: &str) -> String {
    match line {
        Some(line) => format!("{path}:{line}: {what}"),
        None => format!("{path}: {what}"),
    }
}

pub(crate) fn run(root: &Path) -> bool {
    let mut findings = Findings::default();
    match Tree::read(root) {
        Ok(tree) => {
            imports::check(&tree, &mut findings);
            layout::check(&tree, &mut findings);
            manners::check(&tree, &mut findings);
            size::check(&tree, &mut findings);
            for (path, flaw) in faults::flaws(root) {
                findings.fault(&path, None, &flaw);
            }
        }
        Err(error) => findings.fault(&root.display().to_string(), None, &error.to_string()),
    }
    for note in &findings.notes {
        println!("note: {note}");
    }
    for fault in &findings.faults {
        println!("fault: {fault}");
    }
    findings.faults.is_empty()
}
