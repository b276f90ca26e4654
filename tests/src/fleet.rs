//! Workers that come and go: which lives each had, and what was done to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fermata_audit::{Begin, Disturbed, Record};
use fermata_client::Client;

use crate::wait::{DEADLINE, now_us, wait_for};
use crate::worker::{Worker, WorkerOptions};

/// The variable by which a worker's commands, and whatever they start, are known.
const MARK: &str = "FERMATA_SERVER";

/// One life of a worker's process.
#[derive(Debug)]
struct Life {
    server: String,
    from_us: i64,
    killed_us: Option<i64>,
    was_paused: bool,
}

/// Some workers, each under its server's id, with what becomes of them.
#[derive(Debug)]
pub struct Fleet {
    workers: BTreeMap<String, Worker>,
    lives: Vec<Life>,
    folder: PathBuf,
}

/// What a fleet leaves when it is stopped.
#[derive(Debug)]
pub struct Disbanded {
    /// What each worker recorded.
    pub journals: Vec<PathBuf>,
    /// Every begin that is recorded there.
    pub begins: Vec<Begin>,
    /// Which incarnations were killed or paused.
    pub disturbed: Vec<Disturbed>,
    /// Processes of their commands that outlived them: ids and command lines.
    pub left_behind: Vec<String>,
}

impl Fleet {
    /// No worker yet; their journals and logs will be in `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            workers: BTreeMap::new(),
            lives: Vec::new(),
            folder: folder.to_owned(),
        }
    }

    /// Starts a worker; under an id that had one, in its place.
    pub fn start(&mut self, options: WorkerOptions) {
        let server = options.server.clone();
        self.lives.push(Life {
            server: server.clone(),
            from_us: now_us(),
            killed_us: None,
            was_paused: false,
        });
        let worker = Worker::start(options, &self.folder);
        self.workers.insert(server, worker);
    }

    /// Waits until the cluster has heard of all of them: one that was never seen cannot be missed.
    pub async fn online(&self, client: &Client) {
        for server in self.servers() {
            online(client, server).await;
        }
    }

    /// Their servers' ids.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.workers.keys().map(String::as_str)
    }

    /// SIGKILL, and a new worker under the same id.
    ///
    /// # Panics
    /// There is no such worker.
    pub async fn kill(&mut self, server: &str) {
        let worker = self.workers.remove(server).expect("it runs");
        let options = worker.options.clone();
        worker.kill().await;
        self.life(server).killed_us = Some(now_us());
        self.start(options);
    }

    /// Has a worker stand still (SIGSTOP) until the cluster takes it for offline, and its jobs for
    /// lost if `is_long`.
    pub async fn pause_until_missed(&mut self, client: &Client, server: &str, is_long: bool) {
        self.life(server).was_paused = true;
        self.workers[server].process().pause();
        missed(client, server, is_long).await;
        self.workers[server].process().resume();
    }

    /// Stops them in order.
    ///
    /// # Panics
    /// One does not end within `deadline`, or with a failure.
    pub async fn stop(self, deadline: Duration) -> Disbanded {
        let servers: Vec<String> = self.workers.keys().cloned().collect();
        let mut journals = Vec::new();
        for (server, worker) in self.workers {
            journals.push(worker.journal().to_owned());
            let exit = worker.stop(deadline).await;
            assert!(exit.status.success(), "{server}: {}", exit.status);
        }
        let begins = begins(&journals);
        Disbanded {
            disturbed: disturbances(&begins, &self.lives),
            left_behind: left_behind(&servers),
            journals,
            begins,
        }
    }

    fn life(&mut self, server: &str) -> &mut Life {
        let life = self.lives.iter_mut().rev().find(|it| it.server == server);
        life.expect("a worker that was started")
    }
}

/// Waits until the cluster has heard of a worker.
pub async fn online(client: &Client, server: &str) {
    wait_for(&format!("{server} is online"), DEADLINE, async || {
        let view = client.server(server).await.ok()?;
        view.online.then_some(())
    })
    .await;
}

/// Waits until the cluster takes a worker for offline, and its jobs for lost if `is_long`.
pub async fn missed(client: &Client, server: &str, is_long: bool) {
    wait_for(&format!("{server} is missed"), DEADLINE, async || {
        let view = client.server(server).await.ok()?;
        let is_missed = !view.online && (!is_long || view.active == 0);
        is_missed.then_some(())
    })
    .await;
}

fn begins(journals: &[PathBuf]) -> Vec<Begin> {
    let mut begins = Vec::new();
    for path in journals {
        let text = std::fs::read_to_string(path).expect("the worker has a journal");
        for line in text.lines() {
            if let Ok(Record::Begin(begin)) = serde_json::from_str(line) {
                begins.push(begin);
            }
        }
    }
    begins
}

/// Which incarnations were killed or paused: an incarnation is the instant at which its worker
/// began.
fn disturbances(begins: &[Begin], lives: &[Life]) -> Vec<Disturbed> {
    let mut found = BTreeMap::new();
    for begin in begins {
        let began_us = i64::try_from(begin.incarnation).unwrap_or(i64::MAX);
        let mut of_it = lives.iter().filter(|life| life.server == begin.worker);
        let life = of_it.rfind(|life| life.from_us <= began_us);
        let life = life.expect("an incarnation has a life");
        if life.was_paused || life.killed_us.is_some() {
            found.insert((begin.worker.clone(), begin.incarnation), life.killed_us);
        }
    }
    let found = found.into_iter();
    let disturbed = found.map(|((worker, incarnation), killed_us)| Disturbed {
        worker,
        incarnation,
        killed_us,
    });
    disturbed.collect()
}

/// Processes of this machine that belong to the commands of these servers.
fn left_behind(servers: &[String]) -> Vec<String> {
    let marks: Vec<String> = servers.iter().map(|it| format!("{MARK}={it}")).collect();
    let processes = std::fs::read_dir("/proc").expect("Linux has it");
    let mut left = Vec::new();
    for process in processes.filter_map(Result::ok) {
        let of = |name: &str| std::fs::read(Path::new(&process.path()).join(name));
        // A process may end while it is looked at.
        let Ok(environment) = of("environ") else {
            continue;
        };
        let mut variables = environment.split(|byte| *byte == 0);
        if variables.any(|variable| marks.iter().any(|mark| mark.as_bytes() == variable)) {
            let command = of("cmdline").unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            left.push(format!("{}: {command}", process.path().display()));
        }
    }
    left
}
