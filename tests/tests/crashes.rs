//! Killed, stopped and restarted nodes: nothing answered is lost, nothing runs twice, no quota is
//! fresh.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fermata_api::jobs::LaunchRequest;
use fermata_api::params::Params;
use fermata_e2e::{Cluster, DEADLINE, Rated, Recorder, Worker, WorkerOptions, now_us, wait_for};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

const KILLS: usize = 9;
/// Clients that launch one job after the other, each through its own node first.
const LAUNCHERS: u64 = 3;
const SIZES: Rated = Rated {
    amount: 6,
    starts_per_window: 40,
    window_s: 2,
};

/// Sets a run's random choices; a failure prints the one that it had.
const SEED_VARIABLE: &str = "FERMATA_SEED";

fn seed() -> u64 {
    let given = std::env::var(SEED_VARIABLE).ok();
    let seed = given.map_or_else(rand::random, |text| text.parse().expect("a number"));
    println!("REPRODUCE WITH: {SEED_VARIABLE}={seed}");
    seed
}

/// A job that sleeps for 50 to 300 ms.
fn short_job(random: &mut StdRng) -> LaunchRequest {
    let ms = random.random_range(50..=300_u32);
    LaunchRequest {
        event: Some("sync".to_owned()),
        params: Some(Params::from_json(&format!("0.{ms:03}")).expect("a number")),
        ..LaunchRequest::default()
    }
}

/// Launches one job after the other until it is told to stop; tells of each answer the instant at
/// which its launch was sent.
async fn launch_all_the_time(
    recorder: Arc<Recorder>,
    mut random: StdRng,
    stop: Arc<AtomicBool>,
    answers: watch::Sender<Instant>,
) {
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        if recorder.launch(short_job(&mut random)).await.is_ok() {
            answers.send_if_modified(|last| {
                let is_later = sent > *last;
                *last = sent.max(*last);
                is_later
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_nodes_lose_nothing_and_repeat_nothing() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start().await;
    cluster.define_event("sync", SIZES.event(Some("crm"))).await;
    let workers = ["east", "west"]
        .map(|server| WorkerOptions::sleeping(server, cluster.urls()))
        .map(|options| Worker::start(options, cluster.folder()));
    let recorder = Arc::new(Recorder::new(
        cluster.client(),
        SIZES.expectation("cap:crm"),
    ));

    let stop = Arc::new(AtomicBool::new(false));
    let (answers, mut answered) = watch::channel(Instant::now());
    let mut launchers = JoinSet::new();
    for launcher in 0..LAUNCHERS {
        launchers.spawn(launch_all_the_time(
            Arc::clone(&recorder),
            StdRng::seed_from_u64(seed.wrapping_add(launcher)),
            Arc::clone(&stop),
            answers.clone(),
        ));
    }

    let mut gaps = Vec::new();
    for kill in 0..KILLS {
        // Every second one hits the leader, the others anybody.
        let leader = cluster.leader().await;
        let victim = if kill % 2 == 0 {
            leader
        } else {
            random.random_range(1..=3)
        };
        let load = recorder.accepted() + 20;
        wait_for("twenty more launches were accepted", DEADLINE, async || {
            (recorder.accepted() >= load).then_some(())
        })
        .await;
        let begun = Instant::now();
        cluster.kill(victim).await;
        let goes_on = answered.wait_for(|sent| *sent > begun);
        let goes_on = tokio::time::timeout(DEADLINE, goes_on).await;
        goes_on.expect("launches go on").expect("launchers live");
        gaps.push((begun.elapsed(), victim == leader));
        cluster.start_node(victim).await;
    }
    stop.store(true, Ordering::Relaxed);
    launchers.join_all().await;
    print_gaps(&gaps);

    recorder.read_ends(Duration::from_secs(120)).await;
    let journals = workers.each_ref().map(Worker::journal);
    let report = recorder.audit(journals);
    println!("{report}");
    assert!(report.holds(), "seed {seed}: {report}");
    assert!(report.counts.accepted >= 20 * KILLS as u64, "{report}");
    assert!(report.pools["cap:crm"].starts >= 20 * KILLS as u64);
    assert!(report.overlaps.is_empty(), "{report}");
}

fn print_gaps(gaps: &[(Duration, bool)]) {
    for (name, of_leader) in [("leader", true), ("follower", false)] {
        let of_these = gaps.iter().filter(|gap| gap.1 == of_leader);
        let mut gaps: Vec<Duration> = of_these.map(|gap| gap.0).collect();
        gaps.sort();
        if let (Some(median), Some(worst)) = (gaps.get(gaps.len() / 2), gaps.last()) {
            println!(
                "{} times a {name} was killed: until the next answered launch, median {} ms, \
                 worst {} ms",
                gaps.len(),
                median.as_millis(),
                worst.as_millis()
            );
        }
    }
}

/// A launch that needs no worker: the test executes it. It keeps its lease for an hour.
fn by_caller(id: &str) -> LaunchRequest {
    let request = json!({"id": id, "event": "hold", "executor": "caller", "lease_s": 3_600});
    serde_json::from_value(request).expect("a launch")
}

/// S38, S39, S43, F04: everything is as it was; what was `starting` is started as the next attempt.
#[tokio::test]
async fn a_stopped_cluster_comes_back_as_it_was() {
    for is_killed in [false, true] {
        let mut cluster = Cluster::start().await;
        let client = cluster.client();
        let limits = json!([
            {"type": "job", "amount": 2, "rate": 1_000, "window": far_window_s(), "align": "utc"},
            {"type": "queue", "amount": 10},
        ]);
        cluster
            .define_event("hold", json!({"limits": limits, "title": "Kept"}))
            .await;
        for id in ["active", "starting", "third", "fourth", "fifth"] {
            client.launch(by_caller(id)).await.expect("a launch");
        }
        client.started("active", 1).await.expect("a confirmation");
        let before = rows(&cluster).await;
        let window_before = window(&cluster).await;
        let event_before = client.event("hold").await.expect("the event");

        for node in 1..=3 {
            if is_killed {
                cluster.kill(node).await;
            } else {
                let exit = cluster.stop(node).await;
                assert!(exit.status.success(), "{}: {}", exit.status, exit.output);
            }
        }
        for node in 1..=3 {
            cluster.start_node(node).await;
        }
        cluster.leader().await;

        // Only the attempt that was `starting` is another one; each takeover makes one.
        let mut after = wait_for(
            "the unconfirmed attempt was repeated",
            DEADLINE,
            async || {
                let after = rows(&cluster).await;
                (after[1] != before[1]).then_some(after)
            },
        )
        .await;
        let attempt = after[1][2].as_u64().expect("an attempt");
        assert!(attempt > 1, "{after:?}");
        after[1][2] = json!(1);
        assert_eq!(after, before);
        assert_eq!(window(&cluster).await, window_before);
        assert_eq!(client.event("hold").await.expect("the event"), event_before);

        let stale = client
            .started("starting", 1)
            .await
            .expect_err("it was put back");
        assert_eq!(
            stale.code().map(|code| code.as_str()),
            Some("stale_attempt")
        );
        let attempt = u32::try_from(attempt).expect("a small number");
        client
            .started("starting", attempt)
            .await
            .expect("a confirmation");
    }
}

/// Id, state, attempt and position of each job, in launch order.
async fn rows(cluster: &Cluster) -> Vec<Value> {
    let mut rows = Vec::new();
    for id in ["active", "starting", "third", "fourth", "fifth"] {
        let job = cluster.client().job(id).await.expect("the job is there");
        rows.push(json!([job.id, job.state, job.attempt, job.position]));
    }
    rows
}

/// Count, most and end of the only open window.
async fn window(cluster: &Cluster) -> Value {
    let page = cluster
        .client()
        .windows(&fermata_api::query::PageQuery::default())
        .await;
    let windows = page.expect("the windows").items;
    let [window] = windows.as_slice() else {
        panic!("one window is open: {windows:?}");
    };
    json!([window.id, window.count, window.max, window.expires_at])
}

/// The length of a UTC-aligned window that began a while ago and does not end during a test.
fn far_window_s() -> i64 {
    let now_s = now_us() / 1_000_000;
    let lengths = 3_600..7_200;
    let far = |length: &i64| (600..length - 600).contains(&(now_s % length));
    lengths.into_iter().find(far).expect("one of 3,600 lengths")
}

/// F05: a failover gave a fresh quota. And a reset is not undone by one.
#[tokio::test]
async fn a_restart_of_every_node_gives_no_fresh_quota() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client();
    let limits = json!([
        {"type": "job", "rate": 10, "window": far_window_s(), "align": "utc"},
    ]);
    cluster
        .define_event("hold", json!({"limits": limits}))
        .await;
    let run = async |id: &str| {
        let job = client.launch(by_caller(id)).await?;
        client.started(id, job.attempt).await?;
        let end = json!({"attempt": job.attempt, "code": 0});
        let end = serde_json::from_value(end).expect("an end");
        client.completed(id, &end).await
    };
    for number in 1..=4 {
        run(&format!("before-{number}")).await.expect("one of ten");
    }
    for node in 1..=3 {
        let exit = cluster.stop(node).await;
        assert!(exit.status.success(), "{}: {}", exit.status, exit.output);
        cluster.start_node(node).await;
        cluster.leader().await;
    }
    for number in 5..=10 {
        run(&format!("after-{number}")).await.expect("one of ten");
    }
    let refused = run("eleventh").await.expect_err("ten are used");
    assert_eq!(
        refused.code().map(|code| code.as_str()),
        Some("rate_limited")
    );

    client.reset_window("event:hold").await.expect("a reset");
    let leader = cluster.leader().await;
    cluster.kill(leader).await;
    for number in 1..=10 {
        run(&format!("reset-{number}")).await.expect("one of ten");
    }
    let refused = run("reset-11").await.expect_err("ten are used");
    assert_eq!(
        refused.code().map(|code| code.as_str()),
        Some("rate_limited")
    );
}
