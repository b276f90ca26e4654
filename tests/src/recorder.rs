//! A client that writes down what it asked and what was answered, and has it audited.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use fermata_api::jobs::{AbortReason, JobState, JobView, LaunchRequest, Wait};
use fermata_api::limits::Limit;
use fermata_api::problem::ErrorCode;
use fermata_audit::{
    Disturbed, Ended, Expectation, History, Launch, LaunchPlace, Lost, LostReason, Record,
};
use fermata_audit::{Report, check};
use fermata_client::{Client, ClientError};

use crate::wait::now_us;

/// How long one node holds the answer until a job has ended: it may be one that is cut off by now.
const HOLD: Duration = Duration::from_secs(1);

/// Launches jobs and records what becomes of them.
#[derive(Debug)]
pub struct Recorder {
    client: Client,
    pool: String,
    /// Pools of events that do not launch into `pool`.
    pools: BTreeMap<String, String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<Record>,
    launched: u64,
    /// The jobs that must come to an end.
    accepted: Vec<String>,
    /// The jobs that must come to an end if they exist.
    unknown: Vec<String>,
}

impl Recorder {
    /// A recorder whose pool must keep to `expectation`.
    #[must_use]
    pub fn new(client: Client, expectation: Expectation) -> Self {
        let pool = expectation.pool.clone();
        let state = State {
            records: vec![Record::Expect(expectation)],
            ..State::default()
        };
        Self {
            client,
            pool,
            pools: BTreeMap::new(),
            state: Mutex::new(state),
        }
    }

    /// As well a pool into which an event launches; its name is the expectation's.
    #[must_use]
    pub fn with_event(mut self, event: &str, expectation: Expectation) -> Self {
        self.pools
            .insert(event.to_owned(), expectation.pool.clone());
        self.state().records.push(Record::Expect(expectation));
        self
    }

    /// Launches a job, with an id of the recorder's where the request has none.
    ///
    /// # Errors
    /// As [`Client::launch`]; it is recorded all the same.
    pub async fn launch(&self, mut request: LaunchRequest) -> Result<JobView, ClientError> {
        let number = {
            let mut state = self.state();
            state.launched += 1;
            state.launched
        };
        let id = request.id.get_or_insert_with(|| format!("job-{number}"));
        let pool = request.event.as_ref().and_then(|it| self.pools.get(it));
        let mut launch = Launch {
            job: id.clone(),
            pool: pool.unwrap_or(&self.pool).clone(),
            priority: request.priority.unwrap_or_default().get(),
            sent_us: now_us(),
            answered_us: None,
            was_aborted: false,
            place: None,
            due_us: None,
            retries: 0,
        };
        let result = self.client.launch(request).await;
        match &result {
            Ok(job) => {
                launch.answered_us = Some(now_us());
                launch.priority = job.priority.get();
                launch.retries = retries(job);
                launch.place = Some(LaunchPlace {
                    number: job.launch_number,
                    at_us: job.launched_at.unix_us(),
                });
            }
            // What was certainly not done must not run, like what was aborted at once.
            Err(ClientError::Refused(_) | ClientError::Unavailable { .. }) => {
                launch.answered_us = Some(now_us());
                launch.was_aborted = true;
            }
            Err(_) => {}
        }
        let mut state = self.state();
        if result.is_ok() {
            state.accepted.push(launch.job.clone());
        } else if !launch.was_aborted {
            state.unknown.push(launch.job.clone());
        }
        state.records.push(Record::Launch(launch));
        drop(state);
        result
    }

    /// How many jobs were accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state().accepted.len()
    }

    /// A worker was paused, cut off or killed on purpose.
    pub fn disturbed(&self, disturbed: Disturbed) {
        self.record(Record::Disturbed(disturbed));
    }

    /// Something else that a client knows.
    pub fn record(&self, record: Record) {
        self.state().records.push(record);
    }

    /// Waits until every accepted job has ended, and every other that may exist and does, and
    /// records how. Answers the accepted jobs by id.
    ///
    /// # Panics
    /// One does not end within `deadline`, or an accepted one is not there.
    pub async fn read_ends(&self, deadline: Duration) -> BTreeMap<String, JobView> {
        let (accepted, unknown) = {
            let state = self.state();
            (state.accepted.clone(), state.unknown.clone())
        };
        for id in unknown {
            if let Some(job) = self.read_end(&id, deadline).await {
                self.record_end(&job);
            }
        }
        let mut ended = BTreeMap::new();
        for id in accepted {
            let job = self.read_end(&id, deadline).await;
            let job = job.unwrap_or_else(|| panic!("{id} was accepted, and is not there"));
            self.record_end(&job);
            ended.insert(id, job);
        }
        ended
    }

    /// Waits until the job has ended, and answers how; nothing if there is none.
    ///
    /// # Panics
    /// It does not end within `deadline`.
    pub async fn read_end(&self, id: &str, deadline: Duration) -> Option<JobView> {
        let ended = async {
            loop {
                // Where no node can tell, the client asks on by itself for a while.
                match self.client.job_and_wait(id, Wait::End, HOLD).await {
                    Ok(job) if job.state.is_final() => return Some(job),
                    Err(error) if error.code() == Some(ErrorCode::UnknownJob) => return None,
                    Err(ClientError::Refused(problem)) => panic!("{id}: {problem}"),
                    Ok(_) | Err(_) => {}
                }
            }
        };
        let ended = tokio::time::timeout(deadline, ended).await;
        ended.unwrap_or_else(|_| panic!("not within {deadline:?}: {id} has ended"))
    }

    fn record_end(&self, job: &JobView) {
        let reason = match job.reason {
            Some(AbortReason::ServerLost) => Some(LostReason::ServerLost),
            Some(AbortReason::LeaseExpired) => Some(LostReason::LeaseExpired),
            _ => None,
        };
        let mut state = self.state();
        if let (Some(reason), Some(at), true) = (reason, job.ended_at, job.active_at.is_some()) {
            state.records.push(Record::Lost(Lost {
                job: job.id.clone(),
                attempt: job.attempt,
                reason,
                at_us: at.unix_us(),
            }));
        }
        let is_aborted = job.state == JobState::Aborted;
        state.records.push(Record::Ended(Ended {
            job: job.id.clone(),
            attempt: job.attempt,
            code: job.code,
            aborted: is_aborted.then(|| format!("{:?}", job.reason)),
        }));
    }

    /// Writes down what was recorded here, as JSON lines.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn save(&self, path: &Path) {
        let records = self.state().records.clone();
        let lines = records.iter().map(Record::to_line);
        let text: Result<String, _> = lines.collect();
        let written = std::fs::write(path, text.expect("records are JSON"));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Holds what was recorded here and in the workers' journals against every invariant.
    ///
    /// # Panics
    /// A journal cannot be read.
    pub fn audit<'a>(&self, journals: impl IntoIterator<Item = &'a Path>) -> Report {
        let mut history = History::default();
        for record in self.state().records.iter().cloned() {
            history.add(record).expect("records that agree");
        }
        for path in journals {
            let file = File::open(path).expect("the worker has a journal");
            let read = history.read(BufReader::new(file));
            read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        check(&history)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no recorder panicked")
    }
}

/// How often a job may be tried again.
fn retries(job: &JobView) -> u64 {
    let retries = job
        .limits
        .iter()
        .filter_map(|sourced| match &sourced.limit {
            Limit::Retry(retry) if retry.enabled => Some(retry.amount),
            _ => None,
        });
    retries.sum()
}
