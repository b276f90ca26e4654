//! Requests that one edge hands to another's.

mod harness;

use fermata_replica::{FORWARDED_BYTES_MAX, ForwardError, ForwardedHandler};
use harness::{Cluster, DEADLINE, eventually};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Answers with what came, backwards; never, where that begins with a zero.
fn backwards() -> ForwardedHandler {
    Arc::new(|mut request| {
        Box::pin(async move {
            if request.first() == Some(&0) {
                return std::future::pending().await;
            }
            request.reverse();
            request
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_the_leaders_edge_many_at_a_time() {
    let cluster = Cluster::of(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let early = follower.forward(vec![1], DEADLINE).await;
    assert!(
        matches!(early, Err(ForwardError::Unreachable(_))),
        "{early:?}"
    );
    assert_eq!(
        leader.forward(vec![1], DEADLINE).await,
        Err(ForwardError::Here)
    );

    leader.answer_forwarded(backwards());
    let mut asked = JoinSet::new();
    for number in 1..=500_u32 {
        let follower = follower.clone();
        asked.spawn(async move {
            let request = [&[1][..], &number.to_le_bytes(), &vec![7; 4_000][..]].concat();
            let mut expected = request.clone();
            expected.reverse();
            assert_eq!(follower.forward(request, DEADLINE).await, Ok(expected));
        });
    }
    while let Some(answered) = asked.join_next().await {
        answered.expect("each has its own answer");
    }

    let slow = follower.forward(vec![0], Duration::from_millis(50)).await;
    assert_eq!(slow, Err(ForwardError::Unanswered));
    let most = FORWARDED_BYTES_MAX as usize;
    let largest = follower.forward(vec![1; most], DEADLINE).await;
    assert_eq!(largest.map(|answer| answer.len()), Ok(most));
    let beyond = follower.forward(vec![1; most + 1], DEADLINE).await;
    assert!(
        matches!(beyond, Err(ForwardError::TooLarge { .. })),
        "{beyond:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_goes_leaves_its_answers_open() {
    let mut cluster = Cluster::of(3).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let called = Arc::new(tokio::sync::Notify::new());
    let calls = Arc::clone(&called);
    leader.answer_forwarded(Arc::new(move |_| {
        calls.notify_one();
        Box::pin(std::future::pending())
    }));
    let waiting = {
        let follower = follower.clone();
        tokio::spawn(async move { follower.forward(vec![1], DEADLINE).await })
    };
    called.notified().await;
    let node = harness::node_of(&leader);
    drop(leader);
    cluster.kill(node).await;
    let answered = tokio::time::timeout(DEADLINE / 2, waiting).await;
    let answered = answered.expect("at once, not at its deadline");
    assert_eq!(answered.expect("no panic"), Err(ForwardError::Unanswered));

    let next = cluster.leader().await;
    next.answer_forwarded(backwards());
    if harness::node_of(&next) != harness::node_of(&follower) {
        eventually("the follower knows the new leader", || {
            follower.status().leader == Some(harness::node_of(&next))
        })
        .await;
        let answer = follower.forward(vec![1, 2], DEADLINE).await;
        assert_eq!(answer, Ok(vec![2, 1]));
    }
}
