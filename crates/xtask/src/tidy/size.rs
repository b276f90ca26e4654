//! How long a file and a function may be, in lines of code: blank lines and comments are free.

use super::{Findings, Tree};

/// Above the first number it is told, above the second it is a fault.
struct Limit {
    lines_noted: usize,
    lines_max: usize,
}

const FILE: Limit = Limit {
    lines_noted: 500,
    lines_max: 700,
};

const FUNCTION: Limit = Limit {
    lines_noted: 70,
    lines_max: 100,
};

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for source in &tree.sources {
        // Tests are read one at a time, so a file of them may be long.
        if !source.is_test_file() {
            let lines = source.code_lines(0, source.code.len());
            FILE.check(lines, findings, &source.path, None, "the file");
        }
        for function in source.functions() {
            let lines = source.code_lines(function.begin, function.end);
            let line = source.line_of(function.begin);
            let what = format!("the function {}", function.name);
            FUNCTION.check(lines, findings, &source.path, Some(line), &what);
        }
    }
}

impl Limit {
    fn check(
        &self,
        lines: usize,
        findings: &mut Findings,
        path: &str,
        line: Option<usize>,
        what: &str,
    ) {
        let what = format!(
            "{what} has {lines} lines of code; think above {}, at most {}",
            self.lines_noted, self.lines_max
        );
        if lines > self.lines_max {
            findings.fault(path, line, &what);
        } else if lines > self.lines_noted {
            findings.note(path, line, &what);
        }
    }
}
