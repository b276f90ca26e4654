//! Who is heard, who is not, and what follows (S41, S42, S46).

mod harness;

use fermata_pool::command::{Command, Executor, Holder, Launch, Settings};
use fermata_pool::outcome::{Outcome, Reason, Refusal, Standing};
use fermata_replica::{HeardError, ProposeError, Replica};
use harness::{Cluster, DEADLINE, eventually, holder, launch, leads, node_of, propose, server};
use std::time::Duration;
use tokio::task::JoinSet;

/// The shortest leases that there are.
async fn impatient(cluster: &Cluster) {
    let settings = Settings {
        server_timeout_s: 1,
        job_timeout_s: 1,
        lease_s: 1,
        ..Settings::default()
    };
    let settings = Command::PutSettings {
        settings: Box::new(settings),
        if_revision: None,
    };
    propose(cluster, &settings).await;
}

fn online(replica: &Replica, server: &str) -> bool {
    replica.read(|pool| pool.server(server).is_some_and(|row| row.online))
}

fn standing(replica: &Replica, job: &str) -> Option<Standing> {
    replica.read(|pool| pool.standing(job))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_renewal_under_a_claim_is_written() {
    let cluster = Cluster::of(3).await;
    propose(&cluster, &server("s1")).await;
    let leader = cluster.leader().await;
    let lease = leader
        .server_heard(holder("s1"))
        .await
        .expect("it is heard");
    assert_eq!(lease.whole(), Duration::from_secs(150));
    assert!(online(&leader, "s1"));
    let before = leader.status().last_log;
    for _ in 0..20 {
        leader
            .server_heard(holder("s1"))
            .await
            .expect("it is heard");
    }
    assert_eq!(leader.status().last_log, before, "renewals stay in memory");

    let to = node_of(&cluster.follower().await);
    assert_eq!(leader.transfer(Some(to)).await, Ok(to));
    let next = cluster.leader().await;
    let before = next.status().last_log;
    for _ in 0..3 {
        next.server_heard(holder("s1")).await.expect("it is heard");
    }
    let written = next.status().last_log.unwrap_or(0) - before.unwrap_or(0);
    assert_eq!(
        written, 1,
        "the first renewal that a leader gets is committed"
    );
}

/// What a worker brings is its renewal as well; but not before the worker itself is known.
#[tokio::test(flavor = "multi_thread")]
async fn reports_renew_the_lease_of_who_brings_them() {
    let cluster = Cluster::of(3).await;
    propose(&cluster, &server("s1")).await;
    let leader = cluster.leader().await;
    let reported = |incarnation: &str, job: &str| {
        let from = Holder {
            incarnation: incarnation.into(),
            ..holder("s1")
        };
        let started = Command::Started {
            job: job.into(),
            attempt: 1,
            from: Some(from.clone()),
        };
        let leader = leader.clone();
        async move { leader.server_reported(from, vec![started]).await }
    };
    let written = || leader.status().last_log.unwrap_or(0);
    let before = written();
    let (lease, outcomes) = reported("i1", "nobody").await.expect("it is heard");
    assert_eq!(lease.whole(), Duration::from_secs(150));
    assert_eq!(outcomes, [Outcome::Refused(Refusal::UnknownJob)]);
    assert!(online(&leader, "s1"));
    assert_eq!(
        written() - before,
        2,
        "its first renewal, and what it brings"
    );

    propose(&cluster, &launch("j1")).await;
    let before = written();
    let (_, outcomes) = reported("i1", "j1").await.expect("it is heard");
    assert!(matches!(&outcomes[..], [Outcome::Job(_)]), "{outcomes:?}");
    assert_eq!(written() - before, 1, "what it brings");
    let (_, none) = leader
        .server_reported(holder("s1"), Vec::new())
        .await
        .expect("it is heard");
    assert_eq!(none, []);
    assert_eq!(written() - before, 1);

    reported("i2", "nobody")
        .await
        .expect("a newer one takes over");
    propose(&cluster, &launch("j2")).await;
    let old = reported("i1", "j2").await;
    assert_eq!(old, Err(HeardError::Refused(Refusal::Superseded)));
    assert!(
        matches!(standing(&leader, "j2"), Some(Standing::Starting { .. })),
        "it brought nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workers_share_rounds_and_entries() {
    let cluster = Cluster::of(3).await;
    let servers: Vec<String> = (0..2_000).map(|number| format!("s{number}")).collect();
    let until = tokio::time::Instant::now() + DEADLINE;
    let written = loop {
        if let Some(written) = entries_of_renewals(&cluster.leader().await, &servers).await {
            break written;
        }
        assert!(tokio::time::Instant::now() < until, "nobody leads for long");
    };
    assert!(written[0] <= 200, "{written:?}");
    assert_eq!(written[1], 0, "later renewals are not committed");
}

/// Entries that two rounds of renewals took; none: leadership moved meanwhile.
async fn entries_of_renewals(leader: &Replica, servers: &[String]) -> Option<[u64; 2]> {
    let term = leader.status().term;
    let defined = servers.iter().map(|id| server(id)).collect();
    leader.propose_all(defined).await.ok()?;
    let mut written = [0; 2];
    for entries in &mut written {
        let before = leader.status().last_log.unwrap_or(0);
        let mut heard = JoinSet::new();
        for id in servers {
            let (leader, holder) = (leader.clone(), holder(id));
            heard.spawn(async move { leader.server_heard(holder).await });
        }
        while let Some(lease) = heard.join_next().await {
            match lease {
                Ok(Ok(_)) => {}
                Ok(Err(HeardError::Propose(_))) => return None,
                other => panic!("{other:?}"),
            }
        }
        *entries = leader.status().last_log.unwrap_or(0) - before;
    }
    (leader.status().term == term).then_some(written)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_without_hurry_is_a_renewal() {
    let cluster = Cluster::of(3).await;
    propose(&cluster, &server("s1")).await;
    let leader = cluster.leader().await;
    let before = leader.status().last_log.unwrap_or(0);
    for round in 0..3 {
        let heard = leader.server_heard_unhurried(holder("s1")).await;
        let lease = heard.expect("it is heard");
        assert!(!lease.whole().is_zero());
        let written = leader.status().last_log.unwrap_or(0) - before;
        assert_eq!(written, 1, "round {round}: the first alone is committed");
    }
    let follower = cluster.follower().await;
    let elsewhere = follower.server_heard_unhurried(holder("s1")).await;
    assert!(
        matches!(
            elsewhere,
            Err(HeardError::Propose(ProposeError::NotLeader { .. }))
        ),
        "{elsewhere:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_goes_offline_and_loses_its_jobs() {
    let cluster = Cluster::of(3).await;
    impatient(&cluster).await;
    propose(&cluster, &server("s1")).await;
    let leader = cluster.leader().await;
    leader
        .server_heard(holder("s1"))
        .await
        .expect("it is heard");
    propose(&cluster, &launch("j1")).await;
    let started = Command::Started {
        job: "j1".into(),
        attempt: 1,
        from: Some(holder("s1")),
    };
    let Outcome::Job(job) = propose(&cluster, &started).await else {
        panic!("it is confirmed");
    };
    assert!(matches!(job.standing, Standing::Active { .. }));
    eventually("the server is offline", || !online(&leader, "s1")).await;
    assert!(matches!(
        standing(&leader, "j1"),
        Some(Standing::Active { .. })
    ));
    let lost = Standing::Aborted {
        reason: Reason::ServerLost,
    };
    eventually("its job is lost", || {
        standing(&leader, "j1") == Some(lost.clone())
    })
    .await;
    let before = leader.status().last_log;
    leader
        .server_heard(holder("s1"))
        .await
        .expect("it is heard again");
    assert!(online(&leader, "s1"));
    assert_ne!(leader.status().last_log, before, "its return is committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_heard_stays() {
    let cluster = Cluster::of(3).await;
    impatient(&cluster).await;
    propose(&cluster, &server("s1")).await;
    let leader = cluster.leader().await;
    let mut events = leader.events();
    leader
        .server_heard(holder("s1"))
        .await
        .expect("it is heard");
    let began = leader.now();
    while leader.now().since_us(began) < 3_000_000 {
        leader
            .server_heard(holder("s1"))
            .await
            .expect("it is heard");
        assert!(online(&leader, "s1"));
    }
    assert!(events.try_recv().is_ok(), "its first renewal");
    assert!(events.try_recv().is_err(), "and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_no_lease_is_refused() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    propose(&cluster, &server("s1")).await;
    leader
        .server_heard(holder("s1"))
        .await
        .expect("it is heard");
    let newer = Holder {
        incarnation: "i2".into(),
        ..holder("s1")
    };
    leader.server_heard(newer).await.expect("a new incarnation");
    let old = leader.server_heard(holder("s1")).await;
    assert_eq!(old, Err(HeardError::Refused(Refusal::Superseded)));
    let unknown = leader.caller_heard("nobody").await;
    assert_eq!(unknown, Err(HeardError::Refused(Refusal::UnknownJob)));
    let follower = cluster.follower().await;
    let elsewhere = follower.server_heard(holder("s1")).await;
    let not_leader = |error| matches!(error, HeardError::Propose(ProposeError::NotLeader { .. }));
    assert!(elsewhere.is_err_and(not_leader));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_keeps_its_job_while_it_is_heard() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    for id in ["kept", "left"] {
        let Command::Launch(request) = launch(id) else {
            panic!("it is a launch");
        };
        let request = Launch {
            executor: Some(Executor::Caller),
            lease_s: Some(1),
            ..*request
        };
        propose(&cluster, &Command::Launch(Box::new(request))).await;
    }
    let before = leader.status().last_log;
    leader.caller_heard("kept").await.expect("it is heard");
    assert_eq!(
        leader.status().last_log,
        before,
        "launching was the first renewal"
    );
    let expired = Standing::Aborted {
        reason: Reason::LeaseExpired,
    };
    while standing(&leader, "left") != Some(expired.clone()) {
        leader.caller_heard("kept").await.expect("it is heard");
    }
    assert!(!standing(&leader, "kept").expect("it is there").is_final());
    let ended = leader.caller_heard("left").await;
    assert_eq!(ended, Err(HeardError::Refused(Refusal::Final)));
    eventually("and is lost when it is not", || {
        standing(&leader, "kept") == Some(expired.clone())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_cut_off_renews_nothing() {
    let mut cluster = Cluster::of(3).await;
    propose(&cluster, &server("s1")).await;
    let leader = cluster.leader().await;
    leader
        .server_heard(holder("s1"))
        .await
        .expect("it is heard");
    for node in 1..=3 {
        if node != node_of(&leader) {
            cluster.kill(node).await;
        }
    }
    let heard = tokio::time::timeout(Duration::from_secs(5), leader.server_heard(holder("s1")));
    let heard = heard.await.expect("in bounded time");
    assert!(matches!(heard, Err(HeardError::Propose(_))), "{heard:?}");
    eventually("it knows", || !leads(&leader)).await;
}
