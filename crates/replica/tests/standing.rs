//! Every member knows how all of them stand, and what an operator should know of them (S24).

#![expect(clippy::expect_used, reason = "what the test builds is its own")]

mod harness;

use fermata_replica::{CLOCK_SKEW_MS_MAX, NodeId, Replica, Start, Status, WarningKind, Zone};
use harness::{Cluster, DEADLINE, launch, propose};

const ZONES: [&str; 3] = ["Europe/Berlin", "Asia/Kolkata", "Europe/Berlin"];

/// Three voters, each with its zone.
async fn of_zones() -> Cluster {
    let mut cluster = Cluster::empty();
    for (node, zone) in (1..).zip(ZONES) {
        let start = match node {
            1 => Start::Bootstrap,
            _ => Start::Join {
                peers: cluster.peers(),
            },
        };
        let mut config = cluster.config(node, start);
        config.time_zone = Zone::built_in(zone).expect("a zone");
        let replica = Replica::open(config).await.expect("it starts");
        cluster.running.insert(node, replica);
    }
    cluster
}

/// What a member sees, once it is as it should be.
async fn survey(replica: &Replica, is_met: impl Fn(&Status) -> bool) -> Status {
    let until = tokio::time::Instant::now() + DEADLINE;
    loop {
        let status = replica.survey().await;
        if is_met(&status) {
            return status;
        }
        assert!(tokio::time::Instant::now() < until, "never so: {status:#?}");
        tokio::task::yield_now().await;
    }
}

fn all_report(status: &Status) -> bool {
    status.members.len() == ZONES.len() && status.members.iter().all(|it| it.report.is_some())
}

fn differing(status: &Status) -> Vec<NodeId> {
    let warnings = status.warnings();
    let zones = warnings
        .iter()
        .filter(|it| it.kind == WarningKind::TimeZoneDiffers);
    zones.map(|it| it.node).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_member_tells_how_all_stand() {
    let mut cluster = of_zones().await;
    propose(&cluster, &launch("j")).await;
    let leader = cluster.leader().await;
    let led_by = harness::node_of(&leader);
    let expected: Vec<NodeId> = (1..)
        .zip(ZONES)
        .filter(|(_, zone)| *zone != ZONES[led_by as usize - 1])
        .map(|(node, _)| node)
        .collect();
    for replica in cluster.running.values() {
        let status = survey(replica, |status| {
            let applied = status.applied;
            status.leader == Some(led_by)
                && all_report(status)
                && status.members.iter().all(|member| {
                    let report = member.report.as_ref();
                    report.is_some_and(|it| it.applied == applied && it.last_log.is_some())
                })
        })
        .await;
        for (member, zone) in status.members.iter().zip(ZONES) {
            let report = member.report.as_ref().expect("it reports");
            assert_eq!(report.time_zone, zone);
            assert!(report.tzdb.starts_with("built-in "), "{report:?}");
            assert_eq!(report.term, status.term);
            assert!(report.clock_ahead_us.abs() < CLOCK_SKEW_MS_MAX * 1_000);
        }
        assert_eq!(
            differing(&status),
            expected,
            "as member {} sees it",
            status.node
        );
        assert_eq!(status.warnings().len(), expected.len());
    }

    let gone = harness::node_of(&cluster.follower().await);
    drop(leader);
    cluster.kill(gone).await;
    let left = cluster.leader().await;
    let status = survey(&left, |status| !all_report(status)).await;
    let silent: Vec<NodeId> = status
        .members
        .iter()
        .filter(|it| it.report.is_none())
        .map(|it| it.member.node)
        .collect();
    assert_eq!(silent, [gone], "it is told that it says nothing");
}
