//! Starts the binary with nothing of the tester's own settings, waits for what it shows, and ends
//! it with the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything is waited for.
const DEADLINE: Duration = Duration::from_secs(30);

/// The binary, without the settings of whoever runs the tests.
pub(crate) fn fermata() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fermata"));
    let ours = |name: &str| name.starts_with("FERMATA_") || name == "RUST_LOG";
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(ours) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// What a command that ended said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Its answer as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Asserts its exit code, and that it says so.
    pub(crate) fn ends(self, code: i32, with: &str) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        let all = format!("{}{}", self.out, self.err);
        assert!(all.contains(with), "{with:?} is not in {self:?}");
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
pub(crate) fn say(command: &mut Command) -> Said {
    command.output().expect("the binary runs").into()
}

/// Runs the binary with these arguments to its end.
pub(crate) fn run(args: &[&str]) -> Said {
    say(fermata().args(args))
}

/// Looks until there is something to see.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(since.elapsed() < DEADLINE, "waited in vain for {what}");
        pause();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one pause of this harness, between two looks at a condition with a deadline"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

/// A process that stays, until the test ends.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it, with its standard error in `log`.
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Self {
        let file = File::create(&log).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        Self {
            child: child.expect("the binary runs"),
            log,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("it runs");
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// Waits until its log says this.
    pub(crate) fn logs(&self, text: &str) {
        wait_for(text, || self.log().contains(text).then_some(()));
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        wait_for("the end of a process", || {
            child.try_wait().expect("a child")
        })
    }

    /// Waits for its end and asserts its exit code.
    pub(crate) fn ends(&mut self, code: i32) {
        let ended = self.ended();
        assert_eq!(ended.code(), Some(code), "{ended}; {}", self.log());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node in a folder, on ports of its own.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) running: Running,
    pub(crate) url: String,
    pub(crate) address: String,
    pub(crate) peer: String,
}

impl Node {
    /// Starts it and waits until it serves.
    pub(crate) fn start(folder: &Path, id: u64, from: &[&str]) -> Self {
        let ready = folder.join(format!("ready-{id}"));
        // A node that was killed leaves it behind.
        let _ = std::fs::remove_file(&ready);
        let mut command = fermata();
        command
            .args(["serve", "--id", &id.to_string()])
            .args(["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"])
            .arg("--data")
            .arg(folder.join(format!("node-{id}")))
            .arg("--ready-file")
            .arg(&ready)
            .args(from);
        let mut running = Running::start(&mut command, folder.join(format!("node-{id}.log")));
        let addresses: Value = wait_for("the ready file", || {
            if let Some(status) = running.child.try_wait().expect("a child") {
                panic!("the node ended with {status}: {}", running.log());
            }
            let text = std::fs::read_to_string(&ready).ok()?;
            Some(serde_json::from_str(&text).expect("a whole ready file"))
        });
        let text = |name: &str| addresses[name].as_str().expect(name).to_owned();
        Self {
            running,
            url: text("client_url"),
            address: text("client_address"),
            peer: text("peer_address"),
        }
    }
}

/// One node and its folder; workers are started beside it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) folder: TempDir,
    pub(crate) node: Node,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let node = Node::start(folder.path(), 1, &["--bootstrap"]);
        Self { folder, node }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and names it.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// The binary as a client of this cluster.
    pub(crate) fn client(&self) -> Command {
        let mut command = fermata();
        command.env("FERMATA_URL", &self.node.url);
        command
    }

    /// Runs a client with these arguments to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        say(self.client().args(args))
    }

    /// The same, for its answer as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let said = self.run(&[&["--output", "json"], args].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.json()
    }

    /// Starts a worker that executes a shell script for each job, and waits until it polls.
    pub(crate) fn worker(&self, server: &str, options: &[&str], script: &str) -> Running {
        self.worker_of(server, options, &["sh", "-c", script])
    }

    /// The same for any command.
    pub(crate) fn worker_of(&self, server: &str, options: &[&str], argv: &[&str]) -> Running {
        let mut command = self.client();
        command
            .args(["worker", "--server", server])
            .args(options)
            .arg("--")
            .args(argv);
        let log = self.path(&format!("worker-{server}-{}.log", fresh()));
        let running = Running::start(&mut command, log);
        wait_for("the worker's first poll", || {
            let servers = self.json(&["server", "list"]);
            let mut servers = servers["items"].as_array().into_iter().flatten();
            let is_online = |s: &Value| s["id"] == server && s["online"] == true;
            servers.any(is_online).then_some(())
        });
        running
    }

    /// Waits until the job is in this state.
    pub(crate) fn job_is(&self, id: &str, state: &str) -> Value {
        wait_for(state, || {
            let job = self.json(&["job", "show", id]);
            (job["state"] == state).then_some(job)
        })
    }
}

/// A number that no other call in this process got.
fn fresh() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Whether a process is there and not a zombie.
pub(crate) fn lives(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) else {
        return false;
    };
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state != Some('Z')
}

/// Reads a file that is about to be written, once it has a whole line.
pub(crate) fn line_of(path: &Path) -> String {
    wait_for("a line in a file", || {
        let text = std::fs::read_to_string(path).ok()?;
        text.ends_with('\n').then_some(text)
    })
}
