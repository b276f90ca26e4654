//! What the workers recorded so far, read while they write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use fermata_audit::Record;

use super::DemoError;

/// The workers' journals, each read up to the last whole line.
pub(super) struct Journals {
    files: Vec<(PathBuf, u64)>,
    executions: BTreeMap<(String, u32), Execution>,
}

struct Execution {
    start_us: i64,
    begun_us: i64,
    ended_us: Option<i64>,
}

impl Journals {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            files: paths.into_iter().map(|path| (path, 0)).collect(),
            executions: BTreeMap::new(),
        }
    }

    /// Takes in what was written since. What is no record is left to the audit.
    pub(super) fn read_on(&mut self) -> Result<(), DemoError> {
        let mut records = Vec::new();
        for (path, read_to) in &mut self.files {
            let text = text_from(path, *read_to).map_err(|source| DemoError::System {
                doing: format!("read {}", path.display()),
                source,
            })?;
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            *read_to += u64::try_from(whole).unwrap_or(u64::MAX);
            let lines = text[..whole].lines();
            records.extend(lines.filter_map(|line| serde_json::from_str(line).ok()));
        }
        for record in records {
            self.add(record);
        }
        Ok(())
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Begin(begin) => {
                let execution = Execution {
                    start_us: begin.start_us,
                    begun_us: begin.at_us,
                    ended_us: None,
                };
                self.executions
                    .insert((begin.job, begin.attempt), execution);
            }
            Record::End(end) => {
                let begun = self.executions.get_mut(&(end.job, end.attempt));
                if let Some(execution) = begun {
                    execution.ended_us = Some(end.at_us);
                }
            }
            _ => {}
        }
    }

    /// Executions that began.
    pub(super) fn begun(&self) -> usize {
        self.executions.len()
    }

    /// Executions that ended.
    pub(super) fn ended(&self) -> usize {
        let ended = |execution: &&Execution| execution.ended_us.is_some();
        self.executions.values().filter(ended).count()
    }

    /// Executions that run.
    pub(super) fn running(&self) -> usize {
        self.begun() - self.ended()
    }

    /// Starts that were committed from one instant to before another.
    pub(super) fn starts_within(&self, from_us: i64, to_us: i64) -> usize {
        let within = |execution: &&Execution| (from_us..to_us).contains(&execution.start_us);
        self.executions.values().filter(within).count()
    }

    /// Most executions at once, from one instant to before another.
    pub(super) fn at_once_max(&self, from_us: i64, to_us: i64) -> usize {
        let mut changes = Vec::new();
        for execution in self.executions.values() {
            let ended_us = execution.ended_us.unwrap_or(i64::MAX);
            if execution.begun_us < to_us && ended_us > from_us {
                changes.push((execution.begun_us.max(from_us), true));
                changes.push((ended_us, false));
            }
        }
        // At one instant, the ends come first.
        changes.sort_unstable();
        let (mut running, mut most) = (0_usize, 0);
        for (_, begins) in changes {
            running = if begins { running + 1 } else { running - 1 };
            most = most.max(running);
        }
        most
    }
}

/// The rest of a file; nothing where it is not there yet.
fn text_from(path: &PathBuf, from: u64) -> std::io::Result<String> {
    let mut text = String::new();
    match File::open(path) {
        Ok(mut file) => {
            file.seek(SeekFrom::Start(from))?;
            file.read_to_string(&mut text)?;
            Ok(text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(text),
        Err(error) => Err(error),
    }
}
