//! What a worker writes down about its executions, for an audit that believes no counter.
//!
//! A begin is on disk before its command exists, an end before it is reported: so whatever kills
//! the worker, nothing that ran is missing, and what has no end here was not reported by it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fermata_audit::{Begin, End, LogPlace, Record};
use fermata_client::worker::Run;

use crate::error::CommandError;

/// A file of records, one a line, that is only ever added to.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl Journal {
    /// Opens the file, which may hold the records of earlier workers.
    pub(crate) fn open(path: &Path) -> Result<Self, CommandError> {
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|source| unwritable(path, source))?;
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(Mutex::new(file)),
        })
    }

    /// The execution is about to begin.
    pub(super) async fn begins(&self, server: &str, run: &Run) -> Result<(), CommandError> {
        let offer = &run.offer;
        self.append(Record::Begin(Begin {
            job: offer.job.clone(),
            attempt: offer.attempt,
            pool: offer.pool.clone(),
            worker: server.to_owned(),
            incarnation: run.incarnation,
            start_us: offer.start_at_us,
            start_index: LogPlace {
                index: offer.start_index.index,
                ordinal: offer.start_index.ordinal,
            },
            at_us: now_us(),
        }))
        .await
    }

    /// The execution has ended.
    pub(super) async fn ended(
        &self,
        server: &str,
        run: &Run,
        code: i32,
    ) -> Result<(), CommandError> {
        self.append(Record::End(End {
            job: run.offer.job.clone(),
            attempt: run.offer.attempt,
            worker: server.to_owned(),
            incarnation: run.incarnation,
            at_us: now_us(),
            code,
        }))
        .await
    }

    async fn append(&self, record: Record) -> Result<(), CommandError> {
        let journal = self.clone();
        // The disk may take its time; polls do not wait for it.
        let written = tokio::task::spawn_blocking(move || {
            let line = record.to_line()?;
            let mut file = journal.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes())?;
            file.sync_data()
        });
        let written = written.await.unwrap_or_else(|error| Err(error.into()));
        written.map_err(|source| unwritable(&self.path, source))
    }
}

fn unwritable(path: &Path, source: std::io::Error) -> CommandError {
    CommandError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the journal says when something really happened on this machine; nothing is decided by it"
)]
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}
