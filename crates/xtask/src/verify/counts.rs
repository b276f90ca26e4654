//! What test runners say that they ran.

/// How many tests passed, failed, and did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Counts {
    /// Adds what a line counts, if it is a runner's line of results: cargo's (`test result: ok.
    /// 3 passed; 0 failed; 1 ignored; …`), nextest's (`Summary [1.2s] 4 tests run: 3 passed, 1
    /// failed, 0 skipped`), or the plain one of the cases (`3 passed, 1 failed`). Only nextest's is
    /// indented: what it shows of a test that failed is, and has a line like cargo's.
    pub(super) fn add_line(&mut self, line: &str) {
        let line = line.trim_end();
        let is_cargos = line.starts_with("test result: ");
        let is_nextests = line.trim_start().starts_with("Summary [") && line.contains(" run: ");
        if !(is_cargos || is_nextests || is_plain(line)) {
            return;
        }
        let separators = |c: char| c.is_whitespace() || ",;()".contains(c);
        let words: Vec<&str> = line
            .split(separators)
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1] {
                "passed" => self.passed += number,
                // nextest's "3 timed out"
                "failed" | "timed" => self.failed += number,
                "skipped" | "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

/// `N passed, N failed` and nothing else.
fn is_plain(line: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    line.strip_suffix(" failed")
        .and_then(|rest| rest.split_once(" passed, "))
        .is_some_and(|(passed, failed)| is_number(passed) && is_number(failed))
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn lines_of_results_are_counted() {
        let cases = [
            (
                "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out",
                3,
                0,
                1,
            ),
            (
                "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out",
                2,
                5,
                0,
            ),
            (
                "     Summary [  29.784s] 4 tests run: 4 passed, 0 skipped",
                4,
                0,
                0,
            ),
            (
                "     Summary [   0.1s] 1 test run: 1 passed (1 slow), 2 skipped",
                1,
                0,
                2,
            ),
            (
                "     Summary [   9.1s] 9 tests run: 5 passed, 3 failed, 1 timed out, 7 skipped",
                5,
                4,
                7,
            ),
            ("12 passed, 1 failed", 12, 1, 0),
            ("it said 12 passed, 1 failed", 0, 0, 0),
            (
                "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured",
                0,
                0,
                0,
            ),
            ("12 passed", 0, 0, 0),
            ("running 3 tests", 0, 0, 0),
            ("", 0, 0, 0),
        ];
        for (line, passed, failed, skipped) in cases {
            let mut counts = Counts::default();
            counts.add_line(line);
            assert_eq!(
                counts,
                Counts {
                    passed,
                    failed,
                    skipped
                },
                "{line}"
            );
        }
    }

    #[test]
    fn lines_add_up() {
        let mut counts = Counts::default();
        counts.add_line("1 passed, 2 failed");
        counts.add_line("3 passed, 4 failed");
        assert_eq!(
            counts,
            Counts {
                passed: 4,
                failed: 6,
                skipped: 0
            }
        );
    }
}
