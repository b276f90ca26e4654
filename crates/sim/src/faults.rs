//! What goes wrong in a run, drawn from its seed: at most a few things at a time, each mended after
//! a while, all of them before the end.

use crate::clock::{EPOCH_US, Wall};
use crate::disk::Disk;
use crate::invariants::Seen;
use crate::node::Program;
use crate::trace::{Kind, Trace};
use crate::worker::Worker;
use fermata_audit::{Disturbed, Record};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::time::Duration;
use turmoil::Sim;

/// How far clocks that are well are apart from the true time, in microseconds.
pub(crate) const SKEW_US_MAX: i64 = 2_500_000;
/// How far a clock jumps at most, in seconds.
const JUMP_S_MAX: i64 = 86_400;
/// How long something is wrong, in milliseconds.
const LASTS_MS: std::ops::Range<u64> = 200..5_000;
/// The time between two things that go wrong, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 300..2_500;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A node's power fails.
    Crash(u64),
    /// Every node's power fails.
    CrashAll,
    /// A node is cut off from the other nodes.
    Cut(u64),
    /// What a node sends to the others is lost; what they send arrives.
    Mute(u64),
    /// What the others send to a node is lost; what it sends arrives.
    Deaf(u64),
    /// Everything between a node and everybody takes long.
    Lag(u64),
    /// A node's disk is slow.
    SlowDisk(u64),
    /// A node's disk fails for good; it is started again.
    BadDisk(u64),
    /// A node's clock jumps.
    Jump(u64, i64),
    /// Leadership is given away.
    Transfer,
    /// A node takes a snapshot, and lets go of its log.
    Snapshot(u64),
    /// The node that was added is taken out, for good.
    Remove(u64),
    /// A node's program is stopped, and a newer one started in its place.
    Upgrade(u64),
    /// A worker is killed.
    Kill(usize),
    /// A worker is cut off from every node.
    CutWorker(usize),
}

/// Everything that things can go wrong with.
pub(crate) struct Cluster {
    pub(crate) disks: Vec<Disk>,
    pub(crate) walls: Vec<Wall>,
    pub(crate) skews: Vec<i64>,
    pub(crate) programs: Vec<Program>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) trace: Trace,
    pub(crate) seen: Seen,
}

/// Breaks and mends, step by step.
pub(crate) struct Faults {
    random: StdRng,
    next: Duration,
    until: Duration,
    /// What is to be mended, and when.
    broken: BTreeMap<Duration, Vec<Fault>>,
    /// Questions that are to be asked by the one who breaks things.
    wishes: tokio::sync::mpsc::Sender<Fault>,
    pub(crate) count: u64,
}

impl Faults {
    pub(crate) fn new(
        seed: u64,
        from: Duration,
        until: Duration,
        wishes: tokio::sync::mpsc::Sender<Fault>,
    ) -> Faults {
        Faults {
            random: StdRng::seed_from_u64(seed),
            next: from,
            until,
            broken: BTreeMap::new(),
            wishes,
            count: 0,
        }
    }

    /// Does what is due at this step of the simulation.
    pub(crate) fn step(&mut self, sim: &mut Sim<'_>, cluster: &Cluster) {
        let now = sim.elapsed();
        for node in cluster.seen.take_stopped() {
            crash(sim, cluster, node);
        }
        while let Some(entry) = self
            .broken
            .first_entry()
            .filter(|entry| *entry.key() <= now)
        {
            for fault in entry.remove() {
                self.mend(sim, cluster, &fault);
            }
        }
        if now >= self.next && now < self.until {
            self.next = now + Duration::from_millis(self.random.random_range(PAUSE_MS));
            let fault = self.draw();
            if !self
                .broken
                .values()
                .flatten()
                .any(|broken| collide(broken, &fault))
            {
                self.break_it(sim, cluster, fault);
            }
        }
    }

    fn draw(&mut self) -> Fault {
        let node = self.random.random_range(1..=crate::NODES);
        let worker = self.random.random_range(0..crate::WORKERS as usize);
        match self.random.random_range(0..25) {
            0..=3 => Fault::Crash(node),
            4 => Fault::CrashAll,
            5 | 6 => Fault::Cut(node),
            7 => Fault::Mute(node),
            8 => Fault::Deaf(node),
            9 => Fault::Lag(node),
            10 => Fault::SlowDisk(node),
            11 => Fault::BadDisk(node),
            12 | 13 => {
                let sizes = [-JUMP_S_MAX, -3_600, -60, -5, 5, 60, 3_600, JUMP_S_MAX];
                let seconds = sizes.choose(&mut self.random).copied().unwrap_or(60);
                Fault::Jump(node, seconds)
            }
            14 | 15 => Fault::Transfer,
            16 | 17 => Fault::Snapshot(node),
            18 => Fault::Remove(crate::NODES),
            19 | 20 => Fault::Kill(worker),
            21..=23 => Fault::Upgrade(node),
            _ => Fault::CutWorker(worker),
        }
    }

    fn break_it(&mut self, sim: &mut Sim<'_>, cluster: &Cluster, fault: Fault) {
        let now = sim.elapsed();
        self.count += 1;
        let told = format!("{fault:?}");
        cluster
            .trace
            .note_at(now, Kind::Fault, "faults", told.as_bytes());
        match &fault {
            Fault::Crash(node) => crash(sim, cluster, *node),
            Fault::CrashAll => (1..=crate::NODES).for_each(|node| crash(sim, cluster, node)),
            Fault::Cut(node) => links(*node, |one, other| sim.partition(one, other)),
            Fault::Mute(node) => links(*node, |one, other| sim.partition_oneway(one, other)),
            Fault::Deaf(node) => links(*node, |one, other| sim.partition_oneway(other, one)),
            Fault::Lag(node) => {
                let lag = Duration::from_millis(self.random.random_range(20..300));
                links(*node, |one, other| {
                    sim.set_link_max_message_latency(one, other, lag);
                });
            }
            Fault::SlowDisk(node) => {
                let slow = Duration::from_millis(self.random.random_range(10..400));
                disk(cluster, *node).set_slow(slow);
            }
            Fault::BadDisk(node) => disk(cluster, *node).fail(),
            Fault::Jump(node, seconds) => {
                let skew = cluster.skews[at(*node)];
                cluster.walls[at(*node)].set_ahead_us(skew + seconds * 1_000_000);
            }
            Fault::Transfer | Fault::Snapshot(_) | Fault::Remove(_) => {
                // Wishes that nobody takes in time are let go.
                let _ = self.wishes.try_send(fault.clone());
                return;
            }
            Fault::Upgrade(node) => {
                crash(sim, cluster, *node);
                cluster.programs[at(*node)].replace();
            }
            Fault::Kill(worker) => {
                let worker = &cluster.workers[*worker];
                disturbed(worker);
                sim.crash(worker.server.as_str());
                worker.killed(EPOCH_US + now.as_micros() as i64);
            }
            Fault::CutWorker(worker) => {
                let worker = &cluster.workers[*worker];
                for node in 1..=crate::NODES {
                    sim.partition(worker.server.as_str(), name(node).as_str());
                }
            }
        }
        let lasts = match fault {
            // Longer than the lease: what it runs must be stopped.
            Fault::CutWorker(_) => Duration::from_secs(6),
            _ => Duration::from_millis(self.random.random_range(LASTS_MS)),
        };
        self.broken.entry(now + lasts).or_default().push(fault);
    }

    fn mend(&mut self, sim: &mut Sim<'_>, cluster: &Cluster, fault: &Fault) {
        let told = format!("mend {fault:?}");
        cluster
            .trace
            .note_at(sim.elapsed(), Kind::Fault, "faults", told.as_bytes());
        match fault {
            Fault::Crash(node) | Fault::Upgrade(node) => sim.bounce(name(*node).as_str()),
            Fault::CrashAll => (1..=crate::NODES).for_each(|node| sim.bounce(name(node).as_str())),
            Fault::Cut(node) => links(*node, |one, other| sim.repair(one, other)),
            Fault::Mute(node) => links(*node, |one, other| sim.repair_oneway(one, other)),
            Fault::Deaf(node) => links(*node, |one, other| sim.repair_oneway(other, one)),
            Fault::Lag(node) => {
                links(*node, |one, other| {
                    sim.set_link_max_message_latency(one, other, crate::LATENCY_MAX);
                });
            }
            Fault::SlowDisk(node) => disk(cluster, *node).set_slow(Duration::ZERO),
            Fault::BadDisk(node) => {
                crash(sim, cluster, *node);
                sim.bounce(name(*node).as_str());
            }
            Fault::Jump(node, _) => {
                cluster.walls[at(*node)].set_ahead_us(cluster.skews[at(*node)]);
            }
            Fault::Kill(worker) => sim.bounce(cluster.workers[*worker].server.as_str()),
            Fault::CutWorker(worker) => {
                for node in 1..=crate::NODES {
                    let server = cluster.workers[*worker].server.as_str();
                    sim.repair(server, name(node).as_str());
                }
            }
            Fault::Transfer | Fault::Snapshot(_) | Fault::Remove(_) => {}
        }
    }
}

/// Whether two may not be there at the same time: mending one would mend the other, or a majority
/// of clocks would be wrong.
fn collide(one: &Fault, other: &Fault) -> bool {
    use Fault::{
        BadDisk, Crash, CrashAll, Cut, CutWorker, Deaf, Jump, Kill, Lag, Mute, SlowDisk, Upgrade,
    };
    match (one, other) {
        (
            Crash(_) | CrashAll | BadDisk(_) | Upgrade(_),
            Crash(_) | CrashAll | BadDisk(_) | Upgrade(_),
        )
        | (Cut(_) | Mute(_) | Deaf(_), Cut(_) | Mute(_) | Deaf(_))
        | (Jump(..), Jump(..))
        | (Lag(_), Lag(_))
        | (Kill(_) | CutWorker(_), Kill(_) | CutWorker(_)) => true,
        (SlowDisk(one), SlowDisk(other)) => one == other,
        _ => false,
    }
}

fn crash(sim: &mut Sim<'_>, cluster: &Cluster, node: u64) {
    if sim.is_host_running(name(node).as_str()) {
        sim.crash(name(node).as_str());
        disk(cluster, node).crash();
    }
}

fn disk(cluster: &Cluster, node: u64) -> &Disk {
    &cluster.disks[at(node)]
}

fn at(node: u64) -> usize {
    usize::try_from(node).map_or(0, |node| node - 1)
}

/// The host of a node.
pub(crate) fn name(node: u64) -> String {
    format!("n{node}")
}

/// Does something to the link between a node and each other one.
fn links(node: u64, act: impl Fn(&str, &str)) {
    for other in (1..=crate::NODES).filter(|other| *other != node) {
        act(&name(node), &name(other));
    }
}

/// Its overlaps, if any, are listed apart.
fn disturbed(worker: &Worker) {
    worker.seen.record(Record::Disturbed(Disturbed {
        worker: worker.server.clone(),
        incarnation: worker.incarnation(),
        // What it ran has its end recorded by whoever kills it.
        killed_us: None,
    }));
}
