//! A worker process with its journal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::Place;
use crate::process::{Exit, Process};

/// What a worker is.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The server whose jobs it runs.
    pub server: String,
    /// The groups of that server.
    pub groups: Vec<String>,
    /// Its capacity.
    pub max_jobs: u64,
    /// What it runs for each job.
    pub command: Vec<String>,
    /// The nodes that it knows.
    pub urls: Vec<String>,
    /// Where it runs.
    pub place: Option<Place>,
    /// Whether it records what it does: each begin is on disk before its command exists.
    pub has_journal: bool,
}

impl WorkerOptions {
    /// A worker whose jobs sleep for as many seconds as their parameters say.
    #[must_use]
    pub fn sleeping(server: &str, urls: Vec<String>) -> Self {
        let command = ["sh", "-c", "read -r seconds; exec sleep \"$seconds\""];
        Self {
            server: server.to_owned(),
            groups: Vec::new(),
            max_jobs: 10,
            command: command.map(str::to_owned).to_vec(),
            urls,
            place: None,
            has_journal: true,
        }
    }
}

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    /// What it is.
    pub options: WorkerOptions,
    journal: PathBuf,
    process: Process,
}

impl Worker {
    /// Starts it; its journal and log are in `folder`.
    #[must_use]
    pub fn start(options: WorkerOptions, folder: &Path) -> Self {
        let journal = folder.join(format!("{}.journal", options.server));
        let process = process(&options, &journal, folder);
        Self {
            options,
            journal,
            process,
        }
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Where it records what it really did.
    #[must_use]
    pub fn journal(&self) -> &Path {
        &self.journal
    }

    /// SIGTERM: it finishes what it has in hand. Answers how it ended.
    ///
    /// # Panics
    /// It does not end within `deadline`.
    pub async fn stop(self, deadline: Duration) -> Exit {
        self.process.stop(deadline).await
    }

    /// SIGKILL.
    pub async fn kill(self) {
        self.process.kill().await;
    }
}

fn process(options: &WorkerOptions, journal: &Path, folder: &Path) -> Process {
    let mut command = match &options.place {
        Some(place) => place.command(),
        None => tokio::process::Command::new(crate::binary()),
    };
    command.arg("worker");
    command.args(["--server", &options.server]);
    for group in &options.groups {
        command.args(["--group", group]);
    }
    command.args(["--max-jobs", &options.max_jobs.to_string()]);
    if options.has_journal {
        command.arg("--journal").arg(journal);
    }
    command.args(["--url", &options.urls.join(",")]);
    command.arg("--").args(&options.command);
    Process::start(&options.server, command, folder)
}
