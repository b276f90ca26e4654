//! One run: the stage, the steps, the verdict.

use crate::clock::Wall;
use crate::disk::Disk;
use crate::edge::{Answer, Question, ask, ask_node};
use crate::faults::{self, Cluster, Fault, Faults};
use crate::invariants::Seen;
use crate::network::Network;
use crate::node::{Node, Program};
use crate::ration;
use crate::trace::{Kind, Trace};
use crate::users::{self, User};
use crate::worker::Worker;
use fermata_audit::Record;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use turmoil::Sim;

/// Nodes that ever belong to the cluster; the last one may be taken out.
pub(crate) const NODES: u64 = 4;
/// Workers.
pub(crate) const WORKERS: u64 = 3;
/// Users who launch, and callers.
const USERS: u64 = 3;
const CALLERS: u64 = 2;
/// Clients of the pool whose answers are searched for an order.
const RATIONERS: u64 = 3;
/// How long a message takes at most while nothing is wrong.
pub(crate) const LATENCY_MAX: Duration = Duration::from_millis(4);
/// The first thing goes wrong then.
const BREAKS_FROM: Duration = Duration::from_secs(4);
/// From here on nothing new goes wrong.
const HEALED: Duration = Duration::from_secs(40);
/// By then everything has ended.
const OVER: Duration = Duration::from_secs(120);

/// Questions that wait to be asked by the one who breaks things.
const WISHES_MAX: usize = 64;

/// Runs one seed, and prints its verdict.
pub(crate) fn run(seed: u64, prints: bool) -> ExitCode {
    let trace = Trace::new(prints);
    let seen = Seen::default();
    for expectation in users::expectations() {
        seen.record(Record::Expect(expectation));
    }
    seen.record(ration::ration());
    fermata_replica::runtime::seed(seed);
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(OVER * 2)
        .min_message_latency(Duration::from_micros(200))
        .max_message_latency(LATENCY_MAX)
        .tcp_capacity(4_096)
        .build();
    let (wishes, wished) = mpsc::channel(WISHES_MAX);
    let cluster = set_up(&mut sim, seed, &trace, &seen, wished);
    let mut faults = Faults::new(seed ^ 1, BREAKS_FROM, HEALED, wishes);
    let ended = loop {
        faults.step(&mut sim, &cluster);
        match sim.step() {
            Ok(true) => break Ok(()),
            Ok(false) if sim.elapsed() > OVER => break Err("not over in time".to_owned()),
            Ok(false) => {}
            Err(error) => break Err(error.to_string()),
        }
    };
    if let Err(why) = ended {
        seen.violate(format!("the run: {why}"));
    }
    let known = cluster.programs.iter().map(Program::format_max);
    let violations = seen.judge(known.min().unwrap_or_default());
    let verdict = if violations.is_empty() {
        "holds"
    } else {
        "DOES NOT HOLD"
    };
    println!(
        "seed {seed}: {} hash {} faults {} entries {} operations {} messages {} writes {} \
         simulated {:.1} s",
        verdict,
        trace.hash(),
        faults.count,
        trace.count(Kind::Entry),
        seen.operations(),
        trace.count(Kind::Message),
        trace.count(Kind::Write),
        sim.elapsed().as_secs_f64(),
    );
    for violation in &violations {
        println!("  {violation}");
    }
    if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("  again: cargo run -p fermata-sim -- --seed {seed}");
        ExitCode::FAILURE
    }
}

fn set_up(
    sim: &mut Sim<'_>,
    seed: u64,
    trace: &Trace,
    seen: &Seen,
    wished: mpsc::Receiver<Fault>,
) -> Cluster {
    let mut random = StdRng::seed_from_u64(seed);
    let network = |host: String| Network {
        host,
        trace: trace.clone(),
    };
    let mut cluster = Cluster {
        disks: Vec::new(),
        walls: Vec::new(),
        skews: Vec::new(),
        programs: Vec::new(),
        workers: Vec::new(),
        trace: trace.clone(),
        seen: seen.clone(),
    };
    for number in 1..=NODES {
        let host = faults::name(number);
        let node = Node {
            number,
            disk: Disk::new(&host, trace.clone(), random.random()),
            wall: Wall::default(),
            network: network(host.clone()),
            seen: seen.clone(),
            program: Program::of_today(),
        };
        let skew = random.random_range(-faults::SKEW_US_MAX..=faults::SKEW_US_MAX);
        node.wall.set_ahead_us(skew);
        cluster.disks.push(node.disk.clone());
        cluster.walls.push(node.wall.clone());
        cluster.skews.push(skew);
        cluster.programs.push(node.program.clone());
        sim.host(host, move || node.clone().live());
    }
    for number in 1..=WORKERS {
        let worker = Worker::new(
            number,
            network(format!("w{number}")),
            seen.clone(),
            random.random(),
        );
        cluster.workers.push(worker.clone());
        sim.host(worker.server.clone(), move || worker.clone().live());
    }
    let mut user = |name: String| User {
        network: network(name.clone()),
        name,
        seen: seen.clone(),
        seed: random.random(),
        healed: HEALED,
        over: OVER,
    };
    sim.client("admin", user("admin".to_owned()).administer());
    for number in 1..=USERS {
        let user = user(format!("u{number}"));
        sim.client(user.name.clone(), user.launch());
    }
    for number in 1..=CALLERS {
        let caller = user(format!("c{number}"));
        sim.client(caller.name.clone(), caller.call());
    }
    for number in 1..=RATIONERS {
        let user = user(format!("r{number}"));
        sim.client(user.name.clone(), user.ration());
    }
    let asking = network("faults".to_owned());
    sim.host("faults", {
        let wished = std::rc::Rc::new(tokio::sync::Mutex::new(wished));
        move || grant(asking.clone(), wished.clone())
    });
    cluster
}

/// Asks nodes for what the one who breaks things wishes.
async fn grant(
    network: Network,
    wished: std::rc::Rc<tokio::sync::Mutex<mpsc::Receiver<Fault>>>,
) -> turmoil::Result {
    let mut wished = wished.lock().await;
    while let Some(fault) = wished.recv().await {
        let answer = match fault {
            Fault::Transfer => ask(&network, 1, &Question::Transfer, Duration::from_secs(2)).await,
            Fault::Remove(node) => {
                let question = Question::Remove(node);
                ask(&network, 1, &question, Duration::from_secs(2)).await
            }
            Fault::Snapshot(node) => ask_node(&network, node, &Question::Snapshot)
                .await
                .unwrap_or(Answer::Unknown),
            _ => continue,
        };
        network.trace.note(
            Kind::Outcome,
            "faults",
            format!("{fault:?} {answer:?}").as_bytes(),
        );
    }
    Ok(())
}
