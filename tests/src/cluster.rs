//! A cluster of real processes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use fermata_api::cluster::ClusterView;
use fermata_client::{Client, ClientOptions};
use http::StatusCode;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::http::Http;
use crate::process::{Exit, Process, binary};
use crate::wait::{DEADLINE, wait_for};

/// How long a node may take to end in order: less than a change of leader may take that nobody can
/// make.
const STOP_DEADLINE: Duration = Duration::from_secs(9);

/// How a cluster is laid out.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// How many nodes.
    pub nodes: u64,
    /// Where each node runs; empty: all on one loopback address of the cluster's own.
    pub places: Vec<Place>,
    /// Further flags of `fermata serve`.
    pub flags: Vec<String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 3,
            places: Vec::new(),
            flags: Vec::new(),
        }
    }
}

/// Where a process runs.
#[derive(Clone, Debug)]
pub struct Place {
    /// The address on which it listens.
    pub address: IpAddr,
    /// The network namespace in which it lives; absent = the test's own.
    pub namespace: Option<String>,
    /// Variables that it has beside the test's own.
    pub environment: Vec<(String, String)>,
}

impl Place {
    /// On a loopback address that no other place has, in the test's own namespace.
    #[must_use]
    pub fn own() -> Self {
        Self {
            address: IpAddr::V4(own_address()),
            namespace: None,
            environment: Vec::new(),
        }
    }

    /// A command for the binary there.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = match &self.namespace {
            None => Command::new(binary()),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(binary());
                command
            }
        };
        let environment = self.environment.iter().cloned();
        command.envs(environment);
        command
    }
}

/// One node: its folder and ports stay, its process comes and goes.
#[derive(Debug)]
pub struct Node {
    /// Its id, from 1.
    pub id: u64,
    /// Its state.
    pub data: PathBuf,
    /// Where it runs.
    pub place: Place,
    /// Where clients reach it; chosen by the kernel at its first start.
    pub client: SocketAddr,
    /// Where peers reach it; chosen by the kernel at its first start.
    pub peer: SocketAddr,
    process: Option<Process>,
    ready_file: PathBuf,
}

impl Node {
    fn new(id: u64, folder: &Path, place: Place) -> Self {
        let any_port = SocketAddr::new(place.address, 0);
        Self {
            id,
            data: folder.join(format!("node-{id}")),
            place,
            client: any_port,
            peer: any_port,
            process: None,
            ready_file: folder.join(format!("node-{id}.ready")),
        }
    }

    /// The base URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    /// Its process.
    ///
    /// # Panics
    /// It does not run.
    #[must_use]
    pub fn process(&self) -> &Process {
        let process = self.process.as_ref();
        process.unwrap_or_else(|| panic!("node {} does not run", self.id))
    }
}

/// Some nodes, each a process.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    options: ClusterOptions,
    folder: Option<TempDir>,
    http: Http,
}

impl Cluster {
    /// Three nodes that have a leader.
    pub async fn start() -> Self {
        Self::start_with(ClusterOptions::default()).await
    }

    /// So many nodes that have a leader.
    pub async fn of(nodes: u64) -> Self {
        Self::start_with(ClusterOptions {
            nodes,
            ..ClusterOptions::default()
        })
        .await
    }

    /// Starts the nodes, the first one as a new cluster, and waits until all of them vote.
    ///
    /// # Panics
    /// They do not come up.
    pub async fn start_with(options: ClusterOptions) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::start_in(folder, options).await
    }

    /// As [`Cluster::start_with`], in a folder in which something was prepared. The state of node
    /// `N` will be in `node-N`.
    ///
    /// # Panics
    /// They do not come up.
    pub async fn start_in(folder: TempDir, options: ClusterOptions) -> Self {
        let own = Place::own();
        let places = options.places.iter().cloned().chain(std::iter::repeat(own));
        let nodes = (1..=options.nodes).zip(places);
        let nodes = nodes.map(|(id, place)| Node::new(id, folder.path(), place));
        let mut cluster = Self {
            nodes: nodes.collect(),
            options,
            folder: Some(folder),
            http: Http::default(),
        };
        for id in 1..=cluster.options.nodes {
            cluster.start_node(id).await;
            cluster.wait_for_voters(id).await;
        }
        cluster
    }

    /// The cluster's folder: of its nodes, its logs, and whatever the test puts there.
    ///
    /// # Panics
    /// Never: the folder goes with the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        let folder = self.folder.as_ref();
        folder.expect("a folder that lives").path()
    }

    /// Keeps the folder, whatever becomes of the cluster; answers it.
    ///
    /// # Panics
    /// Never: the folder goes with the cluster.
    pub fn keep_folder(&mut self) -> PathBuf {
        let folder = self.folder.as_mut().expect("a folder that lives");
        folder.disable_cleanup(true);
        folder.path().to_owned()
    }

    /// The node.
    #[must_use]
    pub fn node(&self, id: u64) -> &Node {
        let place = self.nodes.iter().find(|node| node.id == id);
        place.unwrap_or_else(|| panic!("there is no node {id}"))
    }

    /// All nodes, by id.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The URLs of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// A client that knows all nodes.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_with(ClientOptions {
            deadline: DEADLINE,
            ..ClientOptions::default()
        })
    }

    /// As [`Cluster::client`], with options.
    ///
    /// # Panics
    /// Never: the URLs are well-formed.
    #[must_use]
    pub fn client_with(&self, options: ClientOptions) -> Client {
        Client::connect_with(self.urls(), options).expect("the URLs are well-formed")
    }

    /// Defines an event.
    ///
    /// # Panics
    /// The definition is refused.
    pub async fn define_event(&self, id: &str, definition: Value) {
        let event = serde_json::from_value(definition).expect("an event of a test");
        let defined = self.client().put_event(id, &event).await;
        defined.unwrap_or_else(|error| panic!("event {id}: {error}"));
    }

    /// A URL of a node.
    #[must_use]
    pub fn url(&self, id: u64, path: &str) -> String {
        format!("{}{path}", self.node(id).url())
    }

    /// Raw HTTP.
    #[must_use]
    pub fn http(&self) -> &Http {
        &self.http
    }

    /// What the node says about the cluster; nothing while it does not answer.
    pub async fn view(&self, id: u64) -> Option<ClusterView> {
        let asking = self
            .http
            .ask(http::Method::GET, &self.url(id, "/v1/cluster"));
        let reply = tokio::time::timeout(Duration::from_secs(2), asking.try_send()).await;
        let reply = reply.ok().flatten()?;
        if reply.status != StatusCode::OK {
            return None;
        }
        serde_json::from_value(reply.json).ok()
    }

    /// Waits until all nodes that run agree on a leader which a majority confirms.
    pub async fn leader(&self) -> u64 {
        wait_for(
            "the nodes that run agree on a leader",
            DEADLINE,
            async || {
                let mut agreed = None;
                for node in self.nodes.iter().filter(|node| node.process.is_some()) {
                    let leader = self.view(node.id).await?.leader?;
                    if agreed.is_some_and(|agreed| agreed != leader) {
                        return None;
                    }
                    agreed = Some(leader);
                }
                let leader = agreed?;
                self.view(leader).await?.has_quorum.then_some(leader)
            },
        )
        .await
    }

    /// A node that runs and does not lead.
    pub async fn follower(&self) -> u64 {
        let leader = self.leader().await;
        let mut running = self.nodes.iter().filter(|node| node.process.is_some());
        let follower = running.find(|node| node.id != leader);
        follower.expect("a second node").id
    }

    /// Waits until the node has ended by itself, and answers how.
    pub async fn ended(&mut self, id: u64) -> Exit {
        self.take_process(id).ended(DEADLINE).await
    }

    /// SIGKILL.
    pub async fn kill(&mut self, id: u64) {
        self.take_process(id).kill().await;
    }

    /// SIGTERM; answers how it ended.
    pub async fn stop(&mut self, id: u64) -> Exit {
        self.take_process(id).stop(STOP_DEADLINE).await
    }

    /// Starts the node, with the ports that it had, and waits until it serves.
    pub async fn start_node(&mut self, id: u64) {
        let command = self.serve_command(id);
        let folder = self.folder().to_owned();
        let http = self.http.clone();
        let node = self.node_mut(id);
        // What is left of an earlier start would say that this one is ready.
        let _ = std::fs::remove_file(&node.ready_file);
        let process = Process::start(&format!("node-{id}"), command, &folder);
        let process = node.process.insert(process);
        let ready_file = node.ready_file.clone();
        let ready = wait_for(&format!("node {id} is ready"), DEADLINE, async || {
            assert!(
                !process.has_ended(),
                "node {id} ended; it said:\n{}",
                process.log_tail()
            );
            read_ready_file(&ready_file)
        })
        .await;
        node.client = ready.client;
        node.peer = ready.peer;
        let livez = format!("{}/livez", node.url());
        wait_for(&format!("node {id} answers"), DEADLINE, async || {
            http.ask(http::Method::GET, &livez).try_send().await
        })
        .await;
    }

    /// Lets one more node in, under an id that no node had, and waits until it votes. Answers its id.
    pub async fn add_node(&mut self) -> u64 {
        let last = self.nodes.last().expect("there is always one");
        let (id, place) = (last.id + 1, last.place.clone());
        let node = Node::new(id, self.folder(), place);
        self.nodes.push(node);
        self.start_node(id).await;
        wait_for(&format!("node {id} votes"), DEADLINE, async || {
            let view = self.view(id).await?;
            let leader = self.view(view.leader?).await?;
            let is_in = leader.nodes.iter().any(|node| node.id == id && node.voter);
            is_in.then_some(())
        })
        .await;
        id
    }

    /// Takes a node out of the cluster, dead or alive; its process goes on, and its folder stays.
    pub async fn remove_node(&self, id: u64) {
        let client = self.client();
        wait_for(&format!("node {id} is taken out"), DEADLINE, async || {
            // Whether it was done is known by the members alone: a leader that is told to take
            // itself out hands over first.
            let _ = client.remove_member(id).await;
            let view = client.cluster().await.ok()?;
            let is_in = view.nodes.iter().any(|node| node.id == id);
            (!is_in).then_some(())
        })
        .await;
    }

    /// The command that starts the node: the first as a new cluster, the others to join.
    #[must_use]
    pub fn serve_command(&self, id: u64) -> Command {
        if id != 1 {
            return self.join_command(id);
        }
        let mut command = self.command_of(id);
        command.arg("--bootstrap");
        command
    }

    /// The command that starts the node as one that joins: any other that is there shows the way.
    ///
    /// # Panics
    /// There is no other node.
    #[must_use]
    pub fn join_command(&self, id: u64) -> Command {
        let others = || self.nodes.iter().filter(|other| other.id != id);
        let guide = others().find(|other| other.process.is_some());
        let guide = guide.or_else(|| others().next()).expect("another node");
        let mut command = self.command_of(id);
        command.args(["--join", &guide.peer.to_string()]);
        command
    }

    /// All of it but where the cluster comes from.
    fn command_of(&self, id: u64) -> Command {
        let node = self.node(id);
        let mut command = node.place.command();
        command.arg("serve");
        command.args(["--id", &id.to_string()]);
        command.arg("--data").arg(&node.data);
        command.args(["--listen", &node.client.to_string()]);
        command.args(["--peer-listen", &node.peer.to_string()]);
        command.arg("--ready-file").arg(&node.ready_file);
        command.args(&self.options.flags);
        command
    }

    async fn wait_for_voters(&self, count: u64) {
        let what = format!("{count} nodes vote");
        wait_for(&what, DEADLINE, async || {
            let view = self.view(count).await?;
            let leader = self.view(view.leader?).await?;
            let voters = leader.nodes.iter().filter(|node| node.voter).count();
            (u64::try_from(voters) == Ok(count) && leader.has_quorum).then_some(())
        })
        .await;
    }

    fn take_process(&mut self, id: u64) -> Process {
        let process = self.node_mut(id).process.take();
        process.unwrap_or_else(|| panic!("node {id} does not run"))
    }

    fn node_mut(&mut self, id: u64) -> &mut Node {
        let place = self.nodes.iter_mut().find(|node| node.id == id);
        place.unwrap_or_else(|| panic!("there is no node {id}"))
    }
}

impl Drop for Cluster {
    /// What a failed test left is worth reading.
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            println!("kept: {}", folder.keep().display());
        }
    }
}

/// Where a node that is ready is reached.
struct Ready {
    client: SocketAddr,
    peer: SocketAddr,
}

/// What a node's ready file says, once it is there.
fn read_ready_file(path: &Path) -> Option<Ready> {
    let text = std::fs::read_to_string(path).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    Some(Ready {
        client: value["client_address"].as_str()?.parse().ok()?,
        peer: value["peer_address"].as_str()?.parse().ok()?,
    })
}

/// An address of the loopback net that no other cluster has: its process has the id, and counts.
fn own_address() -> Ipv4Addr {
    static CLUSTERS: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed).max(1);
    Ipv4Addr::new(127, cluster, high, low.clamp(1, 254))
}
