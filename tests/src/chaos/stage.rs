//! The stage of a story: nodes, workers and load, and what they stand on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fermata_api::audit::AuditAction;
use fermata_api::query::PageQuery;
use fermata_api::settings::Settings;
use fermata_client::{Client, ClientOptions};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::load::{Load, RESET_POOL};
use super::{ChaosReport, Story, clocks, resets};
use crate::clock::WallClock;
use crate::disk::SmallDisk;
use crate::fleet::Fleet;
use crate::namespaces::Network;
use crate::wait::DEADLINE;
use crate::{Cluster, ClusterOptions, Place, WorkerOptions};

const NODES: u8 = 3;
/// Capacity of a worker.
const MAX_JOBS: u64 = 8;
/// How long one node has for one answer: shorter than usual, as some of them will not give one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Launches that are answered before something else happens.
const CALM_LAUNCHES: u32 = 6;
/// Room on a small disk: two files of the log, and what snapshots take beside them.
const DISK_BYTES: u64 = 128 << 20;
/// Changes that are read at once, where resets are looked for.
const AUDIT_PAGE: u32 = 1_000;

static STAGES: AtomicU32 = AtomicU32::new(1);

/// Nodes, workers, clients. What is dropped first stands above what it stands on.
pub(super) struct Stage {
    pub(super) story: Story,
    pub(super) load: Load,
    pub(super) fleet: Fleet,
    pub(super) cluster: Cluster,
    pub(super) client: Client,
    pub(super) clocks: Vec<WallClock>,
    pub(super) disks: Vec<SmallDisk>,
    network: Option<Network>,
    pub(super) random: StdRng,
    /// Which stage of this process it is.
    number: u32,
    injected: BTreeMap<String, u64>,
}

impl Stage {
    pub(super) async fn set(story: Story, seed: u64) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let network = matches!(
            story,
            Story::CutLeader | Story::CutFollower | Story::CutOneWay | Story::CutWorker
        )
        .then(|| Network::new(NODES));
        let disks = match story {
            Story::FullDisk => small_disks(folder.path()),
            _ => Vec::new(),
        };
        let clocks: Vec<WallClock> = match story {
            Story::ClockSteps => (1..=NODES)
                .map(|node| WallClock::new(folder.path(), &format!("node-{node}")))
                .collect(),
            _ => Vec::new(),
        };
        let mut options = ClusterOptions::default();
        if let Some(network) = &network {
            options.places = network.places();
            options.flags = ["--insecure", "--profile", "fast"]
                .map(str::to_owned)
                .to_vec();
        } else {
            let own = Place::own();
            options.places = vec![own; NODES.into()];
        }
        for (place, clock) in options.places.iter_mut().zip(&clocks) {
            place.environment = clock.environment();
        }
        let cluster = Cluster::start_in(folder, options).await;
        let client = cluster.client_with(ClientOptions {
            deadline: DEADLINE,
            answer_timeout: ANSWER_TIMEOUT,
            ..ClientOptions::default()
        });
        let settings = Settings {
            server_timeout_s: 1,
            job_timeout_s: 2,
            ..Settings::default()
        };
        client.put_settings(&settings).await.expect("settings");
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let mut fleet = Fleet::new(cluster.folder());
        for node in 1..=NODES {
            let place =
                (story == Story::CutWorker).then(|| cluster.node(node.into()).place.clone());
            fleet.start(WorkerOptions {
                max_jobs: MAX_JOBS,
                place,
                ..WorkerOptions::sleeping(&worker(node.into(), number), cluster.urls())
            });
        }
        fleet.online(&client).await;
        let load = Load::begin(&cluster, &client, seed).await;
        Self {
            story,
            load,
            fleet,
            cluster,
            client,
            clocks,
            disks,
            network,
            random: StdRng::seed_from_u64(seed),
            number,
            injected: BTreeMap::new(),
        }
    }

    /// Notes what is done now.
    pub(super) fn did(&mut self, what: &str) {
        *self.injected.entry(what.to_owned()).or_default() += 1;
    }

    /// Waits until all is well and the load has gone on for a while.
    pub(super) async fn calm(&mut self) {
        self.cluster.leader().await;
        self.load.goes_on(CALM_LAUNCHES).await;
    }

    /// Waits until the load goes on in spite of what was done.
    pub(super) async fn goes_on(&mut self) {
        self.load.goes_on(2).await;
    }

    pub(super) fn network(&self) -> &Network {
        self.network.as_ref().expect("a story with a network")
    }

    /// The worker in a node's place.
    pub(super) fn worker_beside(&self, node: u64) -> String {
        worker(node, self.number)
    }

    /// Any of the nodes.
    pub(super) fn any_node(&mut self) -> u64 {
        let nodes: Vec<u64> = self.cluster.nodes().iter().map(|node| node.id).collect();
        *nodes.choose(&mut self.random).expect("nodes")
    }

    /// The nodes but this one.
    pub(super) fn others(&self, but: u64) -> Vec<u64> {
        let nodes = self.cluster.nodes().iter().map(|node| node.id);
        nodes.filter(|node| *node != but).collect()
    }

    /// Ends everything in order, and looks at what is left.
    pub(super) async fn clear(mut self) -> ChaosReport {
        let (cancels, resets) = self.load.end().await;
        let reset_places = self.reset_places().await;
        let workers = self.fleet.stop(DEADLINE).await;
        let mut faults = Vec::new();
        for node in 1..=NODES {
            let exit = self.cluster.stop(node.into()).await;
            if !exit.status.success() {
                faults.push(format!("node {node} ended with {}", exit.status));
            }
        }
        let recorder = &self.load.recorder;
        for disturbed in workers.disturbed {
            recorder.disturbed(disturbed);
        }
        let audit = recorder.audit(workers.journals.iter().map(PathBuf::as_path));
        faults.extend(resets::check(&workers.begins, &reset_places));
        faults.extend(clocks::check(&workers.begins));
        let left = workers.left_behind.into_iter();
        faults.extend(left.map(|process| format!("left behind {process}")));
        let is_well = audit.holds() && faults.is_empty();
        let kept = (!is_well).then(|| {
            recorder.save(&self.cluster.folder().join("clients.jsonl"));
            self.cluster.keep_folder()
        });
        // Before the folder in which they are mounted.
        drop(self.disks);
        ChaosReport {
            story: self.story,
            audit,
            injected: self.injected,
            cancels,
            resets,
            faults,
            kept,
        }
    }

    /// The log's indexes at which windows were reset.
    async fn reset_places(&self) -> Vec<u64> {
        let mut places = Vec::new();
        let mut query = PageQuery {
            limit: Some(AUDIT_PAGE),
            ..PageQuery::default()
        };
        loop {
            let page = self.client.audit(&query).await.expect("the changes");
            let resets = page.items.iter().filter(|record| {
                record.action == AuditAction::ResetWindow
                    && record.target.as_deref() == Some(RESET_POOL)
            });
            places.extend(resets.map(|record| record.index));
            query.after = page.after;
            if query.after.is_none() {
                return places;
            }
        }
    }
}

/// The id of a worker; no other run has it.
fn worker(node: u64, stage: u32) -> String {
    format!("w{node}-{}-{stage}", std::process::id())
}

fn small_disks(folder: &Path) -> Vec<SmallDisk> {
    let nodes = (1..=NODES).map(|node| folder.join(format!("node-{node}")));
    nodes
        .map(|data| SmallDisk::mount(&data, DISK_BYTES))
        .collect()
}
