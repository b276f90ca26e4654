//! The processes of the demo and the folder in which they live.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fermata_api::cluster::ClusterView;
use fermata_client::{Client, ClientError, ClientOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{DemoError, until};

/// How many nodes.
const NODES: u64 = 3;
/// The workers' names.
const WORKERS: [&str; 2] = ["east", "west"];
/// Most jobs that one worker runs at once.
const WORKER_JOBS: &str = "4";
/// What a worker runs for each job: it sleeps for as many seconds as its parameters say.
const JOB: [&str; 3] = ["sh", "-c", "read -r seconds; exec sleep \"$seconds\""];
/// Ports are taken from here: below those that systems give to outgoing connections, so that a
/// node that comes back finds its own free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Ports from one place to begin looking to the next: demos that run at once begin at different
/// ones, by their process ids.
const PORTS_APART: u16 = 12;
/// How long a process may take to end in order, in seconds.
const STOP_S_MAX: u64 = 10;
/// How long a node may take to say what it sees, in milliseconds.
const GLANCE_MS_MAX: u64 = 500;
/// Bytes of a log's end that are shown.
const LOG_TAIL_BYTES: usize = 2_000;

/// The folder, and the processes that run.
pub(super) struct Stage {
    folder: Option<TempDir>,
    path: PathBuf,
    nodes: Vec<Node>,
    workers: Vec<Process>,
    resident_kib_max: Option<u64>,
}

struct Node {
    id: u64,
    client: SocketAddr,
    peer: SocketAddr,
    process: Option<Process>,
}

struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Stage {
    /// An empty one.
    pub(super) fn new() -> Result<Self, DemoError> {
        let folder = tempfile::Builder::new().prefix("fermata-demo-").tempdir();
        let folder = folder.map_err(|source| system("make a temporary folder", source))?;
        let mut ports = FreePorts::new();
        let mut nodes = Vec::new();
        for id in 1..=NODES {
            nodes.push(Node {
                id,
                client: ports.take()?,
                peer: ports.take()?,
                process: None,
            });
        }
        Ok(Self {
            path: folder.path().to_owned(),
            folder: Some(folder),
            nodes,
            workers: Vec::new(),
            resident_kib_max: None,
        })
    }

    /// Starts the nodes, each once the one before votes.
    pub(super) async fn start_nodes(&mut self) -> Result<(), DemoError> {
        for id in 1..=NODES {
            self.restart(id)?;
            let what = format!("{id} nodes vote");
            until(&what, async || {
                let leader = self.leader().await?;
                let view = self.view(leader).await?;
                let voters = view.nodes.iter().filter(|node| node.voter).count();
                (u64::try_from(voters) == Ok(id)).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    /// Starts the workers, and waits until their servers are online.
    pub(super) async fn start_workers(&mut self) -> Result<(), DemoError> {
        let client = self.client()?;
        for name in WORKERS {
            let mut command = this_program()?;
            command.args(["worker", "--server", name, "--max-jobs", WORKER_JOBS]);
            command.arg("--journal").arg(self.journal(name));
            command.args(["--url", &self.urls().join(",")]);
            command.arg("--").args(JOB);
            self.workers
                .push(Process::start(name, command, &self.path)?);
        }
        for name in WORKERS {
            until("the workers are online", async || {
                client.server(name).await.ok()?.online.then_some(())
            })
            .await?;
        }
        Ok(())
    }

    /// Starts a node that does not run: the first time, and after it was killed.
    pub(super) fn restart(&mut self, id: u64) -> Result<(), DemoError> {
        let first_peer = self.nodes[0].peer.to_string();
        let path = self.path.clone();
        let node = self.node_mut(id);
        let mut command = this_program()?;
        command.args(["serve", "--id", &id.to_string()]);
        command.arg("--data").arg(path.join(format!("node-{id}")));
        command.args(["--listen", &node.client.to_string()]);
        command.args(["--peer-listen", &node.peer.to_string()]);
        if id == 1 {
            command.arg("--bootstrap");
        } else {
            command.args(["--join", &first_peer]);
        }
        let process = Process::start(&format!("node-{id}"), command, &path)?;
        node.process = Some(process);
        Ok(())
    }

    /// SIGKILL for a node.
    pub(super) async fn kill(&mut self, id: u64) -> Result<(), DemoError> {
        match self.node_mut(id).process.take() {
            Some(mut process) => {
                let killed = process.child.kill().await;
                killed.map_err(|source| system(&format!("kill node {id}"), source))
            }
            None => Ok(()),
        }
    }

    /// The node that leads and that a majority confirms.
    pub(super) async fn leader(&self) -> Option<u64> {
        for node in self.nodes.iter().filter(|node| node.process.is_some()) {
            let Some(leader) = self.view(node.id).await.and_then(|view| view.leader) else {
                continue;
            };
            let its_view = self.view(leader).await;
            if its_view.is_some_and(|view| view.leader == Some(leader) && view.has_quorum) {
                return Some(leader);
            }
        }
        None
    }

    /// The index of the log up to which the node has caught up with the leader; nothing before.
    pub(super) async fn caught_up(&self, id: u64) -> Option<u64> {
        let leader = self.leader().await?;
        let index = of_node(&self.view(leader).await?, leader)?.last_index?;
        let applied = of_node(&self.view(id).await?, id)?.applied?;
        (applied >= index).then_some(applied)
    }

    /// What a node that runs sees.
    async fn view(&self, id: u64) -> Option<ClusterView> {
        let node = self.nodes.iter().find(|node| node.id == id)?;
        node.process.as_ref()?;
        // A client of its own, which knows no other node to go to.
        let glance = Duration::from_millis(GLANCE_MS_MAX);
        let options = ClientOptions {
            deadline: glance,
            answer_timeout: glance,
            ..ClientOptions::default()
        };
        let client = Client::connect_with([node.url()], options).ok()?;
        client.cluster().await.ok()
    }

    /// A client that knows all nodes.
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        Client::connect(self.urls())
    }

    /// The nodes' URLs.
    pub(super) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// The workers' names.
    pub(super) fn workers(&self) -> &'static [&'static str] {
        &WORKERS
    }

    /// The workers' journals.
    pub(super) fn journals(&self) -> Vec<PathBuf> {
        WORKERS.map(|name| self.journal(name)).to_vec()
    }

    /// Where everything is.
    pub(super) fn folder(&self) -> &Path {
        &self.path
    }

    fn journal(&self, worker: &str) -> PathBuf {
        self.path.join(format!("{worker}.journal"))
    }

    /// A process that ended by itself is the end of the demo.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        let nodes = self
            .nodes
            .iter_mut()
            .filter_map(|node| node.process.as_mut());
        for process in nodes.chain(&mut self.workers) {
            if !matches!(process.child.try_wait(), Ok(None)) {
                return Err(DemoError::Ended {
                    name: process.name.clone(),
                    log: process.log_tail(),
                });
            }
        }
        Ok(())
    }

    /// Notes how much memory all processes have at this moment, this one included.
    pub(super) fn measure(&mut self) {
        let nodes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        let children = nodes.chain(&self.workers).filter_map(|p| p.child.id());
        let processes = children.chain([std::process::id()]);
        let resident_kib = processes.map(resident_kib).sum::<Option<u64>>();
        self.resident_kib_max = self.resident_kib_max.max(resident_kib);
    }

    /// The most that was measured; nothing where the system does not tell.
    pub(super) fn resident_kib_max(&self) -> Option<u64> {
        self.resident_kib_max
    }

    /// Ends everything in order: the workers first, which finish what they have in hand.
    pub(super) async fn stop(&mut self) {
        let nodes = self.nodes.iter_mut().filter_map(|node| node.process.take());
        let nodes: Vec<Process> = nodes.collect();
        for processes in [std::mem::take(&mut self.workers), nodes] {
            for process in &processes {
                process.terminate();
            }
            for process in processes {
                process.ended().await;
            }
        }
    }

    /// Ends at once whatever still runs.
    pub(super) async fn close(&mut self) {
        let nodes = self.nodes.iter_mut().filter_map(|node| node.process.take());
        for mut process in nodes.chain(std::mem::take(&mut self.workers)) {
            // One that is gone already is no fault.
            let _ = process.child.kill().await;
        }
    }

    /// Leaves the folder there, and answers where.
    pub(super) fn keep(self) -> PathBuf {
        self.folder.map_or(self.path, TempDir::keep)
    }

    fn node_mut(&mut self, id: u64) -> &mut Node {
        let place = usize::try_from(id - 1).unwrap_or(usize::MAX);
        &mut self.nodes[place]
    }
}

impl Node {
    fn url(&self) -> String {
        format!("http://{}", self.client)
    }
}

impl Process {
    fn start(name: &str, mut command: Command, folder: &Path) -> Result<Self, DemoError> {
        let log = folder.join(format!("{name}.log"));
        let doing = format!("start {name}");
        let output = File::options().create(true).append(true).open(&log);
        let output = output.map_err(|source| system(&doing, source))?;
        let errors = output
            .try_clone()
            .map_err(|source| system(&doing, source))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // A Ctrl-C in the terminal is for the demo, which ends them in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| system(&doing, source))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// SIGTERM.
    fn terminate(&self) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // One that is gone already is no fault.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for its end; SIGKILL where it takes too long.
    async fn ended(mut self) {
        if timeout(Duration::from_secs(STOP_S_MAX), self.child.wait())
            .await
            .is_err()
        {
            let _ = self.child.kill().await;
        }
    }

    fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let tail = &bytes[bytes.len().saturating_sub(LOG_TAIL_BYTES)..];
        String::from_utf8_lossy(tail).into_owned()
    }
}

/// Looks for ports on which nobody listens.
struct FreePorts {
    next: u16,
}

impl FreePorts {
    fn new() -> Self {
        let places = u32::from((PORTS.end - PORTS.start) / PORTS_APART);
        let place = u16::try_from(std::process::id() % places).unwrap_or(0);
        Self {
            next: PORTS.start + place * PORTS_APART,
        }
    }

    fn take(&mut self) -> Result<SocketAddr, DemoError> {
        while self.next < PORTS.end {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.next));
            self.next += 1;
            if TcpListener::bind(address).is_ok() {
                return Ok(address);
            }
        }
        let source = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        Err(system("find a free port", source))
    }
}

fn of_node(view: &ClusterView, id: u64) -> Option<&fermata_api::cluster::NodeView> {
    view.nodes.iter().find(|node| node.id == id)
}

/// The running program, to be started again.
fn this_program() -> Result<Command, DemoError> {
    let path = std::env::current_exe();
    path.map(Command::new)
        .map_err(|source| system("find this program's file", source))
}

/// The memory of a process in KiB, as Linux tells it; of one that is gone, nothing.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn system(doing: &str, source: std::io::Error) -> DemoError {
    DemoError::System {
        doing: doing.to_owned(),
        source,
    }
}
