//! Clusters in one process: members on loopback, each with a folder of its own.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![expect(clippy::expect_used, reason = "it is part of tests")]

use fermata_calendar::Zone;
use fermata_pool::command::{Command, Holder, Launch, ServerDefinition};
use fermata_pool::limits::{JobLimit, Limit, LimitKind, QueueLimit};
use fermata_pool::outcome::Outcome;
use fermata_replica::{
    Config, FORMAT_LATEST, Leadership, NodeId, ProposeError, Replica, ReplicaError, Start, Timing,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take before a test says that it does not happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Members that run, and the folders of all that ever did.
pub(crate) struct Cluster {
    pub(crate) running: BTreeMap<NodeId, Replica>,
    folders: BTreeMap<NodeId, TempDir>,
    addresses: BTreeMap<NodeId, String>,
    /// Which formats members know, where it is not what this program knows.
    formats: BTreeMap<NodeId, u32>,
}

impl Cluster {
    /// A cluster without members.
    pub(crate) fn empty() -> Cluster {
        Cluster {
            running: BTreeMap::new(),
            folders: BTreeMap::new(),
            addresses: BTreeMap::new(),
            formats: BTreeMap::new(),
        }
    }

    /// A cluster of members 1 to `size`, all of whom vote, and one of whom leads.
    pub(crate) async fn of(size: u64) -> Cluster {
        let mut cluster = Cluster::empty();
        cluster.grow(size).await;
        cluster
    }

    /// Starts the members 1 to `size` of an empty cluster; returns when all vote and one leads.
    pub(crate) async fn grow(&mut self, size: u64) {
        self.start(1, Start::Bootstrap).await.expect("it starts");
        for node in 2..=size {
            self.join(node).await.expect("it joins");
        }
        eventually("all vote", || {
            self.running.values().all(|replica| {
                let status = replica.status();
                let members = &status.members;
                members.len() as u64 == size
                    && members.iter().all(|member| member.voter)
                    && !status.changing
            })
        })
        .await;
        self.leader().await;
    }

    /// From its next start on a member says that it knows formats up to this one.
    pub(crate) fn knows_format(&mut self, node: NodeId, format_max: u32) {
        self.formats.insert(node, format_max);
    }

    pub(crate) fn folder(&self, node: NodeId) -> &Path {
        self.folders[&node].path()
    }

    pub(crate) fn config(&mut self, node: NodeId, start: Start) -> Config {
        let folder = self
            .folders
            .entry(node)
            .or_insert_with(|| TempDir::new().expect("a folder"));
        // A member that comes back comes back where it was.
        let peer_listen = self
            .addresses
            .get(&node)
            .map_or("127.0.0.1:0", String::as_str);
        Config {
            node,
            data: folder.path().to_path_buf(),
            peer_listen: peer_listen.parse().expect("an address"),
            peer_advertise: peer_listen.to_owned(),
            client_url: format!("http://node-{node}.test"),
            time_zone: Zone::built_in("UTC").expect("a zone"),
            timing: Timing::Fast,
            start,
            format_max: self.formats.get(&node).copied().unwrap_or(FORMAT_LATEST),
        }
    }

    pub(crate) async fn start(
        &mut self,
        node: NodeId,
        start: Start,
    ) -> Result<Replica, ReplicaError> {
        let config = self.config(node, start);
        let replica = Replica::open(config).await?;
        let address = replica.peer_address().to_string();
        self.addresses.insert(node, address);
        self.running.insert(node, replica.clone());
        Ok(replica)
    }

    pub(crate) async fn join(&mut self, node: NodeId) -> Result<Replica, ReplicaError> {
        let peers = self.peers();
        self.start(node, Start::Join { peers }).await
    }

    pub(crate) fn peers(&self) -> Vec<String> {
        self.running
            .values()
            .map(|replica| replica.peer_address().to_string())
            .collect()
    }

    /// The member that leads and is open; there is one sooner or later.
    pub(crate) async fn leader(&self) -> Replica {
        let mut found = None;
        eventually("somebody leads", || {
            found = self
                .running
                .values()
                .find(|replica| leads(replica))
                .cloned();
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// A member that does not lead and knows who does.
    pub(crate) async fn follower(&self) -> Replica {
        let mut found = None;
        eventually("somebody follows", || {
            let follows = |replica: &&Replica| {
                matches!(*replica.leadership().borrow(), Leadership::Follower { .. })
            };
            found = self.running.values().find(follows).cloned();
            found.is_some()
        })
        .await;
        found.expect("it was found")
    }

    /// Ends a member without a word, as far as one process can: returns when it is gone.
    pub(crate) async fn kill(&mut self, node: NodeId) {
        let replica = self.running.remove(&node).expect("it runs");
        drop(replica);
        let lock = self.folders[&node].path().join("LOCK");
        let lock = std::fs::File::open(lock).expect("the folder's lock");
        // Whatever of it still runs keeps its folder locked.
        eventually("the member is gone", || lock.try_lock().is_ok()).await;
    }

    pub(crate) async fn shut_down(&mut self, node: NodeId) {
        let replica = self.running.remove(&node).expect("it runs");
        replica.shutdown().await.expect("it stops");
    }

    /// Starts a member again on its folder, once that is let go of.
    pub(crate) async fn restart(&mut self, node: NodeId) -> Replica {
        let started = self.try_restart(node).await;
        started.unwrap_or_else(|error| panic!("member {node} does not start again: {error}"))
    }

    /// The same where it may be refused.
    pub(crate) async fn try_restart(&mut self, node: NodeId) -> Result<Replica, ReplicaError> {
        let until = tokio::time::Instant::now() + DEADLINE;
        loop {
            match self.start(node, Start::Restart).await {
                Err(ReplicaError::InUse { .. } | ReplicaError::Listen { .. })
                    if tokio::time::Instant::now() < until =>
                {
                    tokio::task::yield_now().await;
                }
                started => return started,
            }
        }
    }

    /// Returns once every member that runs has applied an entry.
    pub(crate) async fn applied_everywhere(&self, index: u64) {
        for replica in self.running.values() {
            applied(replica, index).await;
        }
    }

    /// All members that run have the same state.
    pub(crate) async fn agrees(&self) {
        let mut statuses = Vec::new();
        eventually("all members have the same state", || {
            statuses = self.running.values().map(Replica::status).collect();
            let same = |status: &fermata_replica::Status| (status.applied, status.digest);
            statuses
                .iter()
                .all(|status| same(status) == same(&statuses[0]))
        })
        .await;
    }
}

pub(crate) fn leads(replica: &Replica) -> bool {
    matches!(*replica.leadership().borrow(), Leadership::Leader { .. })
}

pub(crate) fn node_of(replica: &Replica) -> NodeId {
    replica.status().node
}

pub(crate) async fn applied(replica: &Replica, index: u64) {
    let mut applied = replica.applied();
    let reached = applied.wait_for(|&applied| applied >= index);
    tokio::time::timeout(DEADLINE, reached)
        .await
        .expect("it is applied in time")
        .expect("the replica goes on");
}

/// Waits until something holds, and fails if it never does.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, waiting).await.is_err() {
        panic!("it never came true that {what}");
    }
}

/// A launch of a job that waits for ever: its pool starts nothing without a server.
pub(crate) fn launch(id: &str) -> Command {
    Command::Launch(Box::new(Launch {
        id: id.into(),
        limits: vec![
            Limit {
                enabled: true,
                kind: LimitKind::Queue(QueueLimit { amount: 1_000_000 }),
            },
            concurrency(),
        ],
        ..Launch::default()
    }))
}

fn concurrency() -> Limit {
    Limit {
        enabled: true,
        kind: LimitKind::Job(JobLimit {
            amount: 1,
            cap_key: Some("k".into()),
            ..JobLimit::default()
        }),
    }
}

pub(crate) fn server(id: &str) -> Command {
    Command::PutServer(ServerDefinition {
        id: id.into(),
        enabled: true,
        ..ServerDefinition::default()
    })
}

pub(crate) fn holder(server: &str) -> Holder {
    Holder {
        server: server.into(),
        incarnation: "i1".into(),
    }
}

/// Proposes to whoever leads until it has an outcome: what a client does.
pub(crate) async fn propose(cluster: &Cluster, command: &Command) -> Outcome {
    let until = tokio::time::Instant::now() + DEADLINE;
    loop {
        let leader = cluster.leader().await;
        match leader.propose(command.clone()).await {
            Ok(outcome) => return outcome,
            Err(ProposeError::NotLeader { .. } | ProposeError::Unknown)
                if tokio::time::Instant::now() < until => {}
            Err(error) => panic!("{command:?}: {error}"),
        }
    }
}
