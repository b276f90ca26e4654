//! `fermata exec` on several shells with one key: whatever is killed, stopped or gone, the commands
//! themselves never see more of them at once than the limit says.
//!
//! Each command writes down every few milliseconds that it is there, until it is told to end. What
//! is held against the limit is what they wrote, not what anybody counted.

#![expect(clippy::expect_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fermata_api::jobs::{JobState, JobsQuery};
use fermata_e2e::{Cluster, DEADLINE, Process, wait_for};
use tokio::process::Command;

const POOL: &str = "cap:crm";
/// Long enough for a change of leader on a busy machine.
const LEASE_S: u64 = 6;

/// Shells whose commands write down that they run.
struct Shells<'a> {
    cluster: &'a Cluster,
    max: usize,
    lease_s: u64,
}

impl Shells<'_> {
    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.cluster.folder().join(format!("{name}.{kind}"))
    }

    fn start(&self, name: &str) -> Process {
        let [run, stop, pid] = ["run", "stop", "pid"].map(|kind| self.file(name, kind));
        let script = format!(
            "echo $$ > {}; while [ ! -e {} ]; do date +%s%N >> {}; sleep 0.02; done",
            pid.display(),
            stop.display(),
            run.display()
        );
        let mut command = Command::new(fermata_e2e::binary());
        command
            .args(["exec", "--key", "crm", "--grace-s", "0"])
            .args(["--max", &self.max.to_string()])
            .args(["--lease-s", &self.lease_s.to_string()])
            .args(["--url", &self.cluster.urls().join(",")])
            .args(["--log", "info", "--", "sh", "-c", &script]);
        Process::start(name, command, self.cluster.folder())
    }

    /// When its command wrote that it was there.
    fn seen(&self, name: &str) -> Vec<u64> {
        let text = fs::read_to_string(self.file(name, "run")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Waits until its command has written once more.
    async fn runs(&self, name: &str) {
        let before = self.seen(name).len();
        wait_for(&format!("{name} runs"), DEADLINE, async || {
            (self.seen(name).len() > before).then_some(())
        })
        .await;
    }

    /// Waits until so many wait in the pool's queue.
    async fn wait(&self, count: u64) {
        let client = self.cluster.client();
        wait_for(&format!("{count} wait"), DEADLINE, async || {
            let pool = client.pool(POOL).await.ok()?;
            (pool.waiting == count).then_some(())
        })
        .await;
    }

    /// Waits until its command is gone.
    async fn is_gone(&self, name: &str) {
        let pid = fs::read_to_string(self.file(name, "pid")).expect("it ran");
        let stat = format!("/proc/{}/stat", pid.trim());
        wait_for(
            &format!("the command of {name} is gone"),
            DEADLINE,
            async || {
                let stat = fs::read_to_string(&stat).unwrap_or_default();
                let lives = stat.rsplit(") ").next().is_some_and(|s| !s.is_empty());
                let is_zombie = stat.rsplit(") ").next().is_some_and(|s| s.starts_with('Z'));
                (!lives || is_zombie).then_some(())
            },
        )
        .await;
    }

    /// Tells the command to end, and answers the exit code.
    async fn ends(&self, name: &str, shell: Process) -> Option<i32> {
        fs::write(self.file(name, "stop"), "").expect("the folder can be written to");
        shell.ended(DEADLINE).await.status.code()
    }

    /// Holds what these commands wrote against the limit.
    fn kept_the_limit(&self, names: &[&str]) {
        let mut steps = Vec::new();
        for name in names {
            let seen = self.seen(name);
            let ends = seen.first().copied().zip(seen.last().copied());
            let (first, last) = ends.unwrap_or_else(|| panic!("{name} never ran"));
            steps.push((first, 1));
            steps.push((last, -1));
        }
        steps.sort_unstable();
        let mut running = 0;
        for (at, change) in steps {
            running += change;
            assert!(
                running <= i32::try_from(self.max).expect("few"),
                "{running} at once at {at} ns"
            );
        }
    }

    async fn running(&self) -> u64 {
        let pool = self.cluster.client().pool(POOL).await;
        pool.map_or(0, |pool| pool.running)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_stopped_and_without_a_leader_the_limit_is_kept() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let shells = Shells {
        cluster: &cluster,
        max: 2,
        lease_s: LEASE_S,
    };
    let one = shells.start("one");
    shells.runs("one").await;
    let two = shells.start("two");
    shells.runs("two").await;
    let three = shells.start("three");
    shells.wait(1).await;

    one.kill().await;
    shells.is_gone("one").await;
    shells.runs("three").await;

    let four = shells.start("four");
    shells.wait(1).await;
    two.pause();
    shells.runs("four").await;
    shells.is_gone("two").await;
    two.resume();
    let two = two.ended(DEADLINE).await;
    assert_eq!(two.status.code(), Some(76), "{}", two.output);

    let five = shells.start("five");
    shells.wait(1).await;
    cluster.kill(leader).await;
    cluster.leader().await;
    let shells = Shells {
        cluster: &cluster,
        max: 2,
        lease_s: LEASE_S,
    };
    shells.wait(1).await;
    for name in ["three", "four"] {
        shells.runs(name).await;
    }
    assert_eq!(shells.ends("three", three).await, Some(0));
    shells.runs("five").await;
    assert_eq!(shells.running().await, 2);
    assert_eq!(shells.ends("four", four).await, Some(0));
    assert_eq!(shells.ends("five", five).await, Some(0));
    assert_eq!(shells.running().await, 0);
    shells.kept_the_limit(&["one", "two", "three", "four", "five"]);

    // No slot is lost: as many as before run at once.
    let six = shells.start("six");
    let seven = shells.start("seven");
    shells.runs("six").await;
    shells.runs("seven").await;
    assert_eq!(shells.ends("six", six).await, Some(0));
    assert_eq!(shells.ends("seven", seven).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_cluster_stops_what_runs_and_one_that_comes_back_goes_on() {
    let mut cluster = Cluster::of(1).await;
    let shells = Shells {
        cluster: &cluster,
        max: 1,
        lease_s: 3,
    };
    let holder = shells.start("holder");
    shells.runs("holder").await;
    let waiter = shells.start("waiter");
    shells.wait(1).await;
    let queued = queued(&cluster).await;

    cluster.kill(1).await;
    let dead = Instant::now();
    let holder = holder.ended(DEADLINE).await;
    let took = dead.elapsed();
    assert_eq!(holder.status.code(), Some(76), "{}", holder.output);
    // Told before the lease ends, and then a second's try to tell its end.
    assert!(took < Duration::from_secs(6), "{took:?}: {}", holder.output);

    cluster.start_node(1).await;
    let shells = Shells {
        cluster: &cluster,
        max: 1,
        lease_s: 3,
    };
    shells.runs("waiter").await;
    let running = cluster.client().job(&queued).await.expect("the job");
    assert_eq!(running.state, JobState::Active, "it waited on, as it was");
    assert_eq!(shells.ends("waiter", waiter).await, Some(0));
    shells.kept_the_limit(&["holder", "waiter"]);
    assert_eq!(shells.running().await, 0);
}

/// The id of the job that waits.
async fn queued(cluster: &Cluster) -> String {
    let query = JobsQuery {
        state: Some(JobState::Queued),
        ..JobsQuery::default()
    };
    let page = cluster.client().jobs(&query).await.expect("a list");
    page.items.into_iter().next().expect("one waits").id
}
