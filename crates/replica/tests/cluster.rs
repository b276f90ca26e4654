//! Proposing, failing over and coming back, in clusters of one and three.

#![expect(clippy::expect_used, reason = "these are tests")]

mod harness;

use fermata_pool::command::{Command, Launch};
use fermata_pool::outcome::{Outcome, Standing};
use fermata_replica::{Leadership, ProposeError, Replica, Start};
use harness::{Cluster, DEADLINE, applied, eventually, launch, leads, node_of, propose};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;

fn claim(replica: &Replica) -> u64 {
    match *replica.leadership().borrow() {
        Leadership::Leader { claim } => claim.0,
        _ => panic!("it does not lead"),
    }
}

fn jobs(replica: &Replica) -> BTreeSet<String> {
    replica.read(|pool| {
        let page = pool.jobs(&Default::default(), None, 10_000, 10_000);
        page.jobs
            .iter()
            .map(|view| view.job.id.to_string())
            .collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_alone_keeps_everything_over_a_restart() {
    let mut cluster = Cluster::of(1).await;
    let Outcome::Job(job) = propose(&cluster, &launch("j1")).await else {
        panic!("a launch has a job");
    };
    assert_eq!((&*job.job, job.standing), ("j1", Standing::Queued));
    let before = cluster.leader().await.status();
    cluster.shut_down(1).await;

    cluster.restart(1).await;
    let leader = cluster.leader().await;
    assert!(claim(&leader) > before.term, "a restart takes over anew");
    assert_eq!(jobs(&leader), BTreeSet::from(["j1".to_owned()]));
    assert_eq!(leader.status().cluster, before.cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_proposed_happens_on_all_members_alike() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let mut proposals = JoinSet::new();
    for number in 0..300 {
        let leader = leader.clone();
        proposals.spawn(async move {
            let command = launch(&format!("j{number}"));
            leader.propose(command).await.expect("it leads")
        });
    }
    while let Some(outcome) = proposals.join_next().await {
        assert!(matches!(outcome.expect("no panic"), Outcome::Job(_)));
    }
    let batch = (0..2_500)
        .map(|number| launch(&format!("b{number}")))
        .collect();
    let proposed = leader.propose_all(batch).await.expect("it leads");
    let names = proposed.outcomes.iter().map(|outcome| match outcome {
        Outcome::Job(job) => job.job.to_string(),
        other => panic!("{other:?}"),
    });
    assert!(
        names.eq((0..2_500).map(|number| format!("b{number}"))),
        "an outcome per command, in order"
    );
    cluster.applied_everywhere(proposed.index).await;
    for replica in cluster.running.values() {
        assert_eq!(jobs(replica).len(), 2_800);
    }
    cluster.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_arrive_together_share_entries() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let before = leader.status().last_log;
    let mut proposals = JoinSet::new();
    for number in 0..1_000 {
        let leader = leader.clone();
        proposals.spawn(async move { leader.propose(launch(&format!("j{number}"))).await });
    }
    while let Some(outcome) = proposals.join_next().await {
        outcome.expect("no panic").expect("it leads");
    }
    let entries = leader.status().last_log.unwrap_or(0) - before.unwrap_or(0);
    assert!(entries < 500, "{entries} entries for 1,000 commands");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_takes_over_from_one_that_is_gone() {
    let mut cluster = Cluster::of(3).await;
    let mut claims = BTreeSet::new();
    for round in 0..3 {
        let id = format!("j{round}");
        propose(&cluster, &launch(&id)).await;
        let leader = cluster.leader().await;
        assert!(claims.insert(claim(&leader)), "a claim is never used again");
        let node = node_of(&leader);
        drop(leader);
        cluster.kill(node).await;
        let next = cluster.leader().await;
        assert_ne!(node_of(&next), node);
        assert!(claim(&next) > *claims.last().expect("one"));
        assert!(jobs(&next).contains(&id), "what was answered is not lost");
        cluster.restart(node).await;
        cluster.agrees().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_cluster_writes_no_entry() {
    let cluster = Cluster::of(3).await;
    propose(&cluster, &launch("j1")).await;
    cluster.agrees().await;
    let leader = cluster.leader().await;
    let before = leader.status().last_log;
    for _ in 0..200 {
        // Each is a heartbeat that a majority answered.
        leader.confirm().await.expect("it leads");
    }
    for replica in cluster.running.values() {
        assert_eq!(replica.status().last_log, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_passes_without_anybody_asking() {
    let cluster = Cluster::of(3).await;
    let Command::Launch(mut request) = launch("later") else {
        panic!("it is a launch");
    };
    request.delay_s = Some(1);
    let delayed: Launch = *request;
    let Outcome::Job(job) = propose(&cluster, &Command::Launch(Box::new(delayed))).await else {
        panic!("a launch has a job");
    };
    assert_eq!(job.standing, Standing::Delayed);
    for replica in cluster.running.values() {
        eventually("the job is due on every member", || {
            replica.read(|pool| pool.standing("later")) == Some(Standing::Queued)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nobody_is_kept_waiting() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let others: Vec<u64> = cluster
        .running
        .keys()
        .copied()
        .filter(|&node| node != node_of(&leader))
        .collect();
    for node in others {
        cluster.kill(node).await;
    }
    let bounded = Duration::from_secs(5);
    let outcome = tokio::time::timeout(bounded, leader.propose(launch("j1"))).await;
    let error = outcome
        .expect("in bounded time")
        .expect_err("nobody agrees");
    assert!(
        matches!(
            error,
            ProposeError::Unknown | ProposeError::NotLeader { .. }
        ),
        "{error:?}"
    );
    let confirmed = tokio::time::timeout(bounded, leader.confirm()).await;
    confirmed
        .expect("in bounded time")
        .expect_err("nobody agrees");
    eventually("it is not open any more", || !leads(&leader)).await;
    let refused = leader.propose(launch("j2")).await;
    assert!(matches!(refused, Err(ProposeError::NotLeader { .. })));

    let back = *cluster.running.keys().next().expect("one is left") % 3 + 1;
    cluster.restart(back).await;
    propose(&cluster, &launch("j3")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_refuses_and_names_the_leader() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let refused = follower.propose(launch("j1")).await;
    let Err(ProposeError::NotLeader {
        leader: Some(named),
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(named.node, node_of(&leader));
    assert_eq!(named.client_url, format!("http://node-{}.test", named.node));
    follower
        .confirm()
        .await
        .expect_err("it cannot speak for the cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_is_handed_over_while_commands_come() {
    let cluster = Cluster::of(3).await;
    let first = cluster.leader().await;
    let to = node_of(&cluster.follower().await);
    let proposer = {
        let first = first.clone();
        tokio::spawn(async move {
            let mut done = Vec::new();
            for number in 0.. {
                let id = format!("j{number}");
                match first.propose(launch(&id)).await {
                    Ok(_) => done.push(id),
                    Err(ProposeError::NotLeader { .. }) => return (done, id),
                    Err(error) => panic!("{id}: {error}"),
                }
            }
            unreachable!("it is handed over");
        })
    };
    assert_eq!(first.transfer(Some(to)).await, Ok(to));
    let (done, refused) = tokio::time::timeout(DEADLINE, proposer)
        .await
        .expect("in time")
        .expect("no panic");
    let next = cluster.leader().await;
    assert_eq!(node_of(&next), to);
    let there = jobs(&next);
    assert!(
        done.iter().all(|id| there.contains(id)),
        "what was answered is there"
    );
    assert!(!there.contains(&refused), "what was refused is not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_shuts_down_hands_over() {
    let mut cluster = Cluster::of(3).await;
    let leader = node_of(&cluster.leader().await);
    propose(&cluster, &launch("j1")).await;
    let stopping = cluster.running.get(&leader).expect("it runs").clone();
    cluster.shut_down(leader).await;
    let refused = stopping.propose(launch("j2")).await;
    assert_eq!(refused, Err(ProposeError::Stopping));
    drop(stopping);
    assert!(jobs(&cluster.leader().await).contains("j1"));
    let back = cluster.restart(leader).await;
    let index = propose_index(&cluster).await;
    applied(&back, index).await;
    cluster.agrees().await;
}

async fn propose_index(cluster: &Cluster) -> u64 {
    let leader = cluster.leader().await;
    let proposed = leader.propose_all(vec![launch("last")]).await;
    proposed.expect("it leads").index
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_cluster_stops_and_comes_back() {
    let mut cluster = Cluster::of(3).await;
    for number in 0..20 {
        propose(&cluster, &launch(&format!("j{number}"))).await;
    }
    let before = jobs(&cluster.leader().await);
    for node in 1..=3 {
        cluster.shut_down(node).await;
    }
    for node in 1..=3 {
        cluster.restart(node).await;
    }
    assert_eq!(jobs(&cluster.leader().await), before);
    cluster.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_be_changes_nothing() {
    let mut cluster = Cluster::of(1).await;
    let fresh = cluster.config(7, Start::Restart);
    let data = fresh.data.clone();
    let error = Replica::open(fresh).await.err().expect("nothing is there");
    assert!(error.to_string().contains("holds no member"), "{error}");

    let mut taken = cluster.config(7, Start::Bootstrap);
    taken.peer_listen = cluster.running[&1].peer_address();
    let error = Replica::open(taken).await.err().expect("the port is taken");
    assert!(
        error
            .to_string()
            .contains("cannot listen for peers on 127.0.0.1"),
        "{error}"
    );
    let left = std::fs::read_dir(&data).expect("the folder").count();
    assert_eq!(left, 0, "nothing was made");

    let mut in_use = cluster.config(1, Start::Restart);
    in_use.peer_listen.set_port(0);
    let error = Replica::open(in_use).await.err().expect("it runs already");
    assert!(
        error.to_string().contains("in use by another process"),
        "{error}"
    );

    cluster.shut_down(1).await;
    cluster.restart(1).await;
    cluster.shut_down(1).await;
    let mut renamed = cluster.config(1, Start::Restart);
    renamed.node = 2;
    eventually("the folder is let go of", || true).await;
    let until = tokio::time::Instant::now() + DEADLINE;
    let error = loop {
        match Replica::open(renamed.clone())
            .await
            .err()
            .expect("it is another's")
        {
            fermata_replica::ReplicaError::InUse { .. } if tokio::time::Instant::now() < until => {}
            error => break error,
        }
    };
    assert!(
        error.to_string().contains("belongs to node 1, not 2"),
        "{error}"
    );
}
