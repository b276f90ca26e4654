//! All records of one run, sorted by what they are about.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::BufRead;

use thiserror::Error;

use crate::ration::{Operation, Ration};
use crate::record::{Begin, Disturbed, End, Ended, Expectation, Launch, Lost, Record, Windows};

/// Why a file is no history.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// It cannot be read.
    #[error("line {line}: {source}")]
    Read {
        /// The line, from 1.
        line: u64,
        /// Why.
        source: std::io::Error,
    },
    /// A line is no record.
    #[error("line {line} is no record: {source}")]
    Malformed {
        /// The line, from 1.
        line: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// A line contradicts itself or an earlier one.
    #[error("line {line}: {source}")]
    Contradiction {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        source: Contradiction,
    },
}

/// What makes a record useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Contradiction {
    /// A window of no length.
    #[error("a window is at least 1 second long")]
    NoLength,
    /// Boundaries that bound nothing.
    #[error("boundaries are at least two, and rise")]
    NoBoundaries,
    /// Two different expectations of one pool.
    #[error("the pool has another expectation already")]
    OtherExpectation,
}

/// One attempt of one job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(crate) job: String,
    pub(crate) number: u32,
}

/// One execution: a begin, and its end if there was one.
#[derive(Clone, Debug)]
pub(crate) struct Execution {
    pub(crate) begin: Begin,
    pub(crate) end: Option<End>,
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(crate) expectations: BTreeMap<String, Expectation>,
    pub(crate) launches: BTreeMap<String, Launch>,
    pub(crate) executions: BTreeMap<Attempt, Vec<Execution>>,
    /// Ends of which no begin is recorded.
    pub(crate) loose_ends: Vec<End>,
    pub(crate) lost: BTreeMap<Attempt, Lost>,
    pub(crate) ended: BTreeMap<String, Ended>,
    /// Worker and incarnation, and when it was killed, if it was.
    pub(crate) disturbed: BTreeMap<(String, u64), Option<i64>>,
    pub(crate) rations: BTreeMap<String, Ration>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) torn_lines: u64,
}

impl History {
    /// Adds the records of one file, in its order. Files of different writers may be added in any
    /// order; the end of an execution stands in the same file as its begin, after it.
    ///
    /// A last line without a newline was torn when its writer was killed: it is counted, and not
    /// read.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no record; the lines before it are added.
    pub fn read(&mut self, mut file: impl BufRead) -> Result<(), HistoryError> {
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            let length = file
                .read_line(&mut text)
                .map_err(|source| HistoryError::Read { line, source })?;
            if length == 0 {
                break;
            }
            if !text.ends_with('\n') {
                self.torn_lines += 1;
                break;
            }
            let record = serde_json::from_str(&text)
                .map_err(|source| HistoryError::Malformed { line, source })?;
            self.add(record)
                .map_err(|source| HistoryError::Contradiction { line, source })?;
        }
        Ok(())
    }

    /// Adds one record.
    ///
    /// # Errors
    /// What is wrong with it: no windows to judge by, or another expectation of the same pool.
    pub fn add(&mut self, record: Record) -> Result<(), Contradiction> {
        match record {
            Record::Expect(expectation) => return self.expect(expectation),
            Record::Launch(launch) => self.launch(launch),
            Record::Begin(begin) => {
                let attempt = Attempt {
                    job: begin.job.clone(),
                    number: begin.attempt,
                };
                let execution = Execution { begin, end: None };
                self.executions.entry(attempt).or_default().push(execution);
            }
            Record::End(end) => self.end(end),
            Record::Lost(lost) => {
                let attempt = Attempt {
                    job: lost.job.clone(),
                    number: lost.attempt,
                };
                self.lost.insert(attempt, lost);
            }
            Record::Ended(ended) => {
                self.ended.insert(ended.job.clone(), ended);
            }
            Record::Ration(ration) => {
                self.rations.insert(ration.pool.clone(), ration);
            }
            Record::Operation(operation) => self.operations.push(operation),
            Record::Disturbed(Disturbed {
                worker,
                incarnation,
                killed_us,
            }) => {
                let known = self.disturbed.entry((worker, incarnation)).or_default();
                *known = known.or(killed_us);
            }
        }
        Ok(())
    }

    fn expect(&mut self, expectation: Expectation) -> Result<(), Contradiction> {
        match expectation.rate.as_ref().map(|rate| &rate.windows) {
            Some(Windows::UtcS(0)) => return Err(Contradiction::NoLength),
            Some(Windows::BoundariesUs(instants))
                if instants.len() < 2 || !instants.is_sorted_by(|one, next| one < next) =>
            {
                return Err(Contradiction::NoBoundaries);
            }
            _ => {}
        }
        match self.expectations.entry(expectation.pool.clone()) {
            Entry::Vacant(place) => {
                place.insert(expectation);
            }
            Entry::Occupied(known) if *known.get() == expectation => {}
            Entry::Occupied(_) => return Err(Contradiction::OtherExpectation),
        }
        Ok(())
    }

    /// A launch may be recorded again when it was repeated; what was answered stands.
    fn launch(&mut self, launch: Launch) {
        let known = self.launches.get(&launch.job);
        if known.is_none_or(|known| known.answered_us.is_none()) {
            self.launches.insert(launch.job.clone(), launch);
        }
    }

    fn end(&mut self, end: End) {
        let attempt = Attempt {
            job: end.job.clone(),
            number: end.attempt,
        };
        let begun = self.executions.get_mut(&attempt).and_then(|executions| {
            executions.iter_mut().find(|execution| {
                execution.end.is_none()
                    && execution.begin.worker == end.worker
                    && execution.begin.incarnation == end.incarnation
            })
        });
        match begun {
            Some(execution) => execution.end = Some(end),
            None => self.loose_ends.push(end),
        }
    }
}
