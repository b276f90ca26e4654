//! A log that grows is cut behind a snapshot, and who needs what was cut gets the snapshot.

mod harness;

use fermata_pool::command::{Command, Launch};
use harness::{Cluster, eventually, launch, propose};

/// Launches whose entries take so many bytes, about.
const LOG_BYTES: usize = 70 << 20;
const PARAMS_BYTES: usize = 16_000;

fn large(id: &str) -> Command {
    let Command::Launch(request) = launch(id) else {
        panic!("it is a launch");
    };
    let params = format!("\"{}\"", "x".repeat(PARAMS_BYTES));
    Command::Launch(Box::new(Launch {
        params: Some(params.into_bytes().into()),
        ..*request
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_comes_late_gets_the_snapshot() {
    let mut cluster = Cluster::of(1).await;
    let leader = cluster.leader().await;
    let jobs = LOG_BYTES / PARAMS_BYTES;
    for from in (0..jobs).step_by(25) {
        let batch = (from..jobs.min(from + 25)).map(|number| large(&format!("j{number}")));
        leader.propose_all(batch.collect()).await.expect("it leads");
    }
    eventually("the log is cut behind a snapshot", || {
        leader.status().purged.is_some()
    })
    .await;
    assert!(leader.status().snapshot >= leader.status().purged);

    cluster.join(2).await.expect("it joins");
    eventually("the new member votes", || {
        let status = leader.status();
        status.members.iter().filter(|member| member.voter).count() == 2 && !status.changing
    })
    .await;
    propose(&cluster, &launch("last")).await;
    cluster.agrees().await;
    let late = cluster.running[&2].status();
    assert!(late.snapshot.is_some(), "its log never held the beginning");
    assert!(cluster.running[&2].read(|pool| pool.job("j0").is_some()));

    drop(leader);
    cluster.kill(2).await;
    cluster.restart(2).await;
    cluster.leader().await;
    cluster.agrees().await;
}
