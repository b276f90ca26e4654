//! Coming in, going out, and being somebody else.

mod harness;

use fermata_replica::format::wire::{Greeting, Hello, Purpose, frame};
use fermata_replica::{Member, MembershipError, Replica, ReplicaError, Role, Start};
use harness::{Cluster, DEADLINE, applied, eventually, launch, node_of, propose};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The member votes, and the change that let it in is over.
async fn settles_in(replica: &Replica, node: u64) {
    eventually("the new member votes", || {
        voters(replica).contains(&node) && !replica.status().changing
    })
    .await;
}

fn voters(replica: &Replica) -> Vec<u64> {
    let members = replica.status().members;
    let voters = members.iter().filter(|member| member.voter);
    voters.map(|member| member.member.node).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grows_shrinks_and_replaces_a_member() {
    let mut cluster = Cluster::of(1).await;
    propose(&cluster, &launch("j1")).await;
    for node in [2, 3] {
        cluster.join(node).await.expect("it joins");
        let leader = cluster.leader().await;
        settles_in(&leader, node).await;
    }
    cluster.agrees().await;

    let leader = cluster.leader().await;
    let gone = node_of(&cluster.follower().await);
    cluster.kill(gone).await;
    leader
        .remove_member(gone)
        .await
        .expect("a dead member goes");
    assert!(!voters(&leader).contains(&gone));
    let again = leader.remove_member(gone).await;
    assert_eq!(again, Err(MembershipError::UnknownMember { node: gone }));

    cluster.join(4).await.expect("it joins");
    settles_in(&leader, 4).await;
    propose(&cluster, &launch("j2")).await;
    cluster.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_removed_by_its_successor() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = node_of(&leader);
    let Err(MembershipError::NotLeader { .. }) = leader.remove_member(node).await else {
        panic!("it cannot take itself out");
    };
    eventually("another one leads", || {
        cluster
            .running
            .values()
            .any(|replica| node_of(replica) != node && harness::leads(replica))
    })
    .await;
    let next = cluster.leader().await;
    assert_ne!(node_of(&next), node);
    next.remove_member(node).await.expect("it goes");
    assert_eq!(voters(&next).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_member_is_refused() {
    let cluster = Cluster::of(1).await;
    let leader = cluster.leader().await;
    let member = |node, peer: &str| Member {
        node,
        peer: peer.to_owned(),
        client_url: String::new(),
    };
    for (given, named) in [
        (member(0, "127.0.0.1:1"), "node"),
        (member(2, "127.0.0.1"), "peer"),
        (member(2, "127.0.0.1:0"), "peer"),
        (member(2, &format!("{}:1", "a".repeat(300))), "peer"),
        (member(1, "127.0.0.1:1"), "node"),
    ] {
        let Err(MembershipError::Invalid(why)) = leader.add_member(given).await else {
            panic!("it is refused");
        };
        assert!(why.starts_with(named), "{why}");
    }
    assert_eq!(
        leader.transfer(None).await,
        Err(MembershipError::NoSuccessor)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_folder_cannot_come_under_a_known_id() {
    let mut cluster = Cluster::of(3).await;
    let gone = node_of(&cluster.follower().await);
    cluster.kill(gone).await;
    let peers = cluster.peers();
    let mut config = cluster.config(gone, Start::Join { peers });
    let empty = tempfile::TempDir::new().expect("a folder");
    config.data = empty.path().to_path_buf();
    config.peer_listen.set_port(0);
    let error = Replica::open(config)
        .await
        .err()
        .expect("it forgot its votes");
    assert!(matches!(error, ReplicaError::NotJoined { .. }), "{error}");
    assert!(
        error.to_string().contains("an id that was never used"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_moved_tells_the_others() {
    let mut cluster = Cluster::of(3).await;
    let moved = node_of(&cluster.follower().await);
    let before = cluster.running[&moved].peer_address();
    cluster.shut_down(moved).await;
    let mut config = cluster.config(moved, Start::Restart);
    config.peer_listen.set_port(0);
    config.peer_advertise = "127.0.0.1:0".to_owned();
    let until = tokio::time::Instant::now() + DEADLINE;
    let replica = loop {
        match Replica::open(config.clone()).await {
            Ok(replica) => break replica,
            Err(ReplicaError::InUse { .. }) if tokio::time::Instant::now() < until => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_ne!(replica.peer_address(), before);
    let leader = cluster.leader().await;
    let new = replica.peer_address().to_string();
    eventually("the leader knows the new address", || {
        let members = leader.status().members;
        members.iter().any(|member| member.member.peer == new)
    })
    .await;
    let proposed = leader
        .propose_all(vec![launch("j1")])
        .await
        .expect("it leads");
    applied(&replica, proposed.index).await;
    assert_eq!(replica.status().role, Role::Follower);
}

/// Says hello on a raw connection; what is said to it, or that it was closed.
async fn greet(replica: &Replica, bytes: &[u8]) -> io::Result<Greeting> {
    let mut stream = TcpStream::connect(replica.peer_address()).await?;
    stream.write_all(bytes).await?;
    let mut header = [0; fermata_replica::format::wire::FRAME_HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let (header, sum) =
        fermata_replica::format::wire::Header::parse(&header, 0).map_err(io::Error::from)?;
    let mut head = vec![0; header.head_bytes as usize];
    stream.read_exact(&mut head).await?;
    Ok(header.decode(sum, &head, &[])?)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_wrong_here_is_told_so() {
    let cluster = Cluster::of(1).await;
    let replica = cluster.leader().await;
    let own = u128::from_str_radix(&replica.status().cluster, 16).expect("hexadecimal");
    let hello = |cluster, from, to| {
        let hello = Hello {
            cluster,
            from,
            to,
            purpose: Purpose::Votes,
        };
        frame(&hello, &[], 0).expect("it is small")
    };
    let refused = |greeting: io::Result<Greeting>| match greeting.expect("an answer") {
        Greeting::Refused { why } => why,
        Greeting::Welcome { .. } => panic!("it was welcome"),
    };
    let other = greet(&replica, &hello(Some(own + 1), 2, Some(1))).await;
    assert!(refused(other).contains("not of"), "another cluster");
    let wrong = greet(&replica, &hello(Some(own), 2, Some(3))).await;
    assert_eq!(refused(wrong), "this is member 1, not 3");
    let twin = greet(&replica, &hello(Some(own), 1, Some(1))).await;
    assert!(refused(twin).contains("two members have one id"));
    let stranger = greet(&replica, &hello(None, 2, Some(1))).await;
    assert_eq!(refused(stranger), "only a member may ask this");
    let right = greet(&replica, &hello(Some(own), 2, Some(1))).await;
    assert_eq!(right.expect("an answer"), Greeting::Welcome { node: 1 });

    let mut damaged = hello(Some(own), 2, Some(1));
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    greet(&replica, &damaged).await.expect_err("it is closed");
    greet(&replica, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .expect_err("it is closed");
    let mut huge = hello(Some(own), 2, Some(1));
    huge[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
    greet(&replica, &huge).await.expect_err("it is closed");
    propose(&cluster, &launch("j1")).await;
}
