//! Who belongs to the cluster: coming in, going out, handing leadership over.
//!
//! A cluster begins with one member, which makes up its id; every other member asks to be let
//! in. It seeks any member that is there ([`seek`]), learns the cluster's id from it, opens its
//! folder under that id, and announces itself to the leader until it is in ([`announce`]). The
//! leader first has it as a learner, which receives the log and has no vote, and makes it a voter
//! once it has caught up.
//!
//! The same announcement tells the leader when a member's addresses have changed.
//!
//! A member's id belongs to its disk. An empty folder under an id that the cluster knows has
//! forgotten what it promised, and is refused: it must come under a new id, after the old one was
//! removed.
//!
//! Caveats: a change passes through a joint membership of two sets of voters. If its leader fails
//! in between, the next leader finishes it ([`finish_changes`]). A member that was removed while it
//! was away learns so when it has heard no leader for a while and asks; until then it asks for votes
//! and gets none.

use crate::core::Core;
use crate::driver::HandOver;
use crate::format::log::MemberRecord;
use crate::format::wire::{Answer, Purpose, Request};
use crate::peer::{Dialer, PeerError};
use crate::raft::TypeConfig;
use crate::{FORMAT_LATEST, Leadership, Member, MembershipError, NodeId, ReplicaError};
use openraft::async_runtime::WatchReceiver;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{ChangeMembers, ReadPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Most members of a cluster.
pub const MEMBERS_MAX: usize = 15;
/// Longest address or URL of a member, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;
/// A learner that is so many entries behind has caught up.
const CAUGHT_UP_ENTRIES: u64 = 100;
/// How long a change may take to be committed, or a learner to catch up while somebody waits.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer has to say of which cluster it is, to a member that knows its own.
const GLANCE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often a leader looks for a change that stands half done.
const JOINT_LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a new member seeks its cluster.
const SEEK_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it waits before it asks again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often a member that is in looks whether anybody leads.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Without a leader for so long, a member asks whether it still belongs to the cluster.
const LOST_AFTER: Duration = Duration::from_secs(3);

type Changed<T> = Result<T, RaftError<TypeConfig, ClientWriteError<TypeConfig>>>;

/// Makes a change, and waits for it for as long as one may take; also for another one that is
/// under way.
async fn change<T, F>(core: &Core, mut change: impl FnMut() -> F) -> Result<(), MembershipError>
where
    F: Future<Output = Changed<T>>,
{
    let until = Instant::now() + CHANGE_TIMEOUT;
    loop {
        let Ok(changed) = timeout_at(until, change()).await else {
            return Err(MembershipError::Unknown);
        };
        let error = match changed {
            Ok(_) => return Ok(()),
            Err(RaftError::Fatal(_)) => return Err(MembershipError::Unknown),
            Err(RaftError::APIError(error)) => error,
        };
        match error {
            ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_))
                if Instant::now() < until =>
            {
                sleep(core.timing.heartbeat()).await;
            }
            error => return Err(refused(core, &error)),
        }
    }
}

fn refused(core: &Core, error: &ClientWriteError<TypeConfig>) -> MembershipError {
    match error {
        ClientWriteError::ForwardToLeader(_) => not_leader(core),
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)) => {
            MembershipError::UnderWay
        }
        ClientWriteError::ChangeMembershipError(error) => {
            MembershipError::Invalid(error.to_string())
        }
        ClientWriteError::LogEntryDiscarded(_) | ClientWriteError::PreconditionFailed(_) => {
            MembershipError::Unknown
        }
    }
}

fn not_leader(core: &Core) -> MembershipError {
    MembershipError::NotLeader {
        leader: core.other_leader(),
    }
}

fn leads(core: &Core) -> bool {
    core.leader().is_some_and(|leader| leader.node == core.node)
}

/// Refuses what cannot be a member.
pub(crate) fn check(member: &Member) -> Result<(), String> {
    if member.node == 0 {
        return Err("node: 0 was given, and ids begin at 1".to_owned());
    }
    let port = member
        .peer
        .rsplit_once(':')
        .map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        let peer = &member.peer;
        return Err(format!(
            "peer: {peer:?} was given, and it must be host:port"
        ));
    }
    for (field, value) in [("peer", &member.peer), ("client_url", &member.client_url)] {
        if value.len() > ADDRESS_BYTES_MAX {
            let given = value.len();
            return Err(format!(
                "{field}: {given} bytes were given, and at most {ADDRESS_BYTES_MAX} are allowed"
            ));
        }
    }
    Ok(())
}

/// Leader only: lets a member in, first as a learner.
pub(crate) async fn add(core: &Core, member: &Member) -> Result<(), MembershipError> {
    check(member).map_err(MembershipError::Invalid)?;
    if !leads(core) {
        return Err(not_leader(core));
    }
    if let Some(known) = core.member(member.node)
        && known != *member
    {
        let (node, peer) = (known.node, known.peer);
        let why = format!("node: {node} is a member already, reached at {peer}");
        return Err(MembershipError::Invalid(why));
    }
    admit(core, member).await?;
    let node = member.node;
    let caught_up = async {
        while !has_caught_up(core, node) {
            sleep(core.timing.heartbeat()).await;
        }
    };
    timeout(CHANGE_TIMEOUT, caught_up)
        .await
        .map_err(|_| MembershipError::NotCaughtUp { node })?;
    promote(core, node).await
}

/// Makes an unknown member a learner.
async fn admit(core: &Core, member: &Member) -> Result<(), MembershipError> {
    let members = core.members();
    if members.membership().get_node(&member.node).is_some() {
        return Ok(());
    }
    if members.nodes().count() >= MEMBERS_MAX {
        let why = format!("members: there are {MEMBERS_MAX}, and no more are allowed");
        return Err(MembershipError::Invalid(why));
    }
    let learner = || core.raft.add_learner(member.node, member.to_node(), false);
    change(core, learner).await
}

/// Makes a learner a voter.
async fn promote(core: &Core, node: NodeId) -> Result<(), MembershipError> {
    if core.members().voter_ids().any(|voter| voter == node) {
        return Ok(());
    }
    let voters = ChangeMembers::AddVoterIds(BTreeSet::from([node]));
    change(core, || core.raft.change_membership(voters.clone(), true)).await
}

/// Whether a member is so little behind that its vote would not hold the others up.
fn has_caught_up(core: &Core, node: NodeId) -> bool {
    let metrics = core.raft.data_metrics();
    let metrics = metrics.borrow_watched();
    let matched = metrics.replication.as_ref().and_then(|all| all.get(&node));
    let Some(Some(matched)) = matched else {
        return false;
    };
    let last = metrics.last_log.map_or(0, |id| id.index);
    last.saturating_sub(matched.index) <= CAUGHT_UP_ENTRIES
}

/// Leader only: takes a member out.
pub(crate) async fn remove(core: &Core, node: NodeId) -> Result<(), MembershipError> {
    if !leads(core) {
        return Err(not_leader(core));
    }
    let members = core.members();
    if members.membership().get_node(&node).is_none() {
        return Err(MembershipError::UnknownMember { node });
    }
    if node == core.node {
        // The next leader is asked instead, and takes this one out.
        transfer(core, None).await?;
        return Err(not_leader(core));
    }
    let nodes = BTreeSet::from([node]);
    let removal = if members.voter_ids().any(|voter| voter == node) {
        ChangeMembers::RemoveVoters(nodes)
    } else {
        ChangeMembers::RemoveNodes(nodes)
    };
    change(core, || core.raft.change_membership(removal.clone(), false)).await
}

/// Finishes changes that were left between their two steps: by a leader before, or because
/// nobody waited any longer. One that is under way is over before it is looked at twice.
pub(crate) async fn finish_changes(core: &Core) {
    let mut seen = None;
    let mut looks = tokio::time::interval(JOINT_LOOK_EVERY);
    loop {
        looks.tick().await;
        let members = core.members();
        let joint = (members.get_joint_config().len() > 1).then(|| *members.log_id());
        if joint.is_some() && joint == seen {
            let nobody = ChangeMembers::AddVoterIds(BTreeSet::new());
            match change(core, || core.raft.change_membership(nobody.clone(), false)).await {
                Ok(()) => tracing::info!("a change of the membership was finished"),
                Err(error) => tracing::warn!(%error, "a change of the membership stands half done"),
            }
        }
        seen = joint;
    }
}

/// Leader only: hands leadership to a member, or to the voter that is least behind.
pub(crate) async fn transfer(core: &Core, to: Option<NodeId>) -> Result<NodeId, MembershipError> {
    // One whose takeover is not applied, or whom no majority answers, has nobody to give it to;
    // the last member of a cluster that is stopped must not wait for the others.
    if !matches!(*core.leadership.borrow(), Leadership::Leader { .. }) {
        return Err(not_leader(core));
    }
    let to = match to {
        None => least_behind(core).ok_or(MembershipError::NoSuccessor)?,
        Some(node) if core.members().voter_ids().all(|voter| voter != node) => {
            return Err(MembershipError::UnknownMember { node });
        }
        Some(node) if node == core.node => return Ok(node),
        Some(node) => node,
    };
    let (tried, answer) = oneshot::channel();
    if core.hand_over.send(HandOver { to, tried }).await.is_err() {
        return Err(MembershipError::Unknown);
    }
    match timeout(CHANGE_TIMEOUT, answer).await {
        Ok(Ok(true)) => Ok(to),
        Ok(_) => Err(MembershipError::NoSuccessor),
        Err(_) => Err(MembershipError::Unknown),
    }
}

/// The other voter with most of the log.
fn least_behind(core: &Core) -> Option<NodeId> {
    let metrics = core.raft.data_metrics();
    let replication = metrics.borrow_watched().replication.clone()?;
    core.members()
        .voter_ids()
        .filter(|&node| node != core.node)
        .max_by_key(|node| replication.get(node).copied().flatten())
}

/// What is said to a member that seeks its cluster.
pub(crate) fn sought(core: &Core, from: NodeId, format_max: u32) -> Answer {
    let known = core.members().membership().get_node(&from).is_some();
    let has_log = core
        .raft
        .data_metrics()
        .borrow_watched()
        .replication
        .as_ref()
        .and_then(|all| all.get(&from).copied().flatten())
        .is_some();
    let votes = core.members().voter_ids().any(|voter| voter == from);
    let forgot = (known && (votes || has_log)).then(|| {
        format!(
            "member {from} is known here, and an empty folder has forgotten what it promised: \
             remove member {from}, and join under an id that was never used"
        )
    });
    let refusal = forgot.or_else(|| too_old(core, format_max));
    Answer::Cluster {
        cluster: core.cluster,
        leader: core.leader().map(Into::into),
        refusal,
    }
}

/// Why a program that knows formats up to this one cannot take part; none: it can.
fn too_old(core: &Core, format_max: u32) -> Option<String> {
    let format = core.state.read(fermata_pool::Pool::format);
    let most = format_max;
    (format > most).then(|| ReplicaError::TooNew { format, most }.to_string())
}

/// What is said to a member that announces itself.
pub(crate) async fn announced(
    core: &Core,
    record: MemberRecord,
    join: bool,
    format_max: u32,
) -> Answer {
    if !leads(core) {
        return Answer::AskLeader {
            leader: core.other_leader().map(Into::into),
        };
    }
    let member = Member::from(record);
    if let Err(why) = check(&member) {
        return Answer::Refused { why };
    }
    if let Some(why) = too_old(core, format_max) {
        return Answer::Refused { why };
    }
    let known = core.member(member.node);
    let done = match known {
        None if !join => return removed(core, member.node).await,
        None => admit(core, &member).await,
        Some(known) if known != member => readdress(core, &member).await,
        Some(_) if has_caught_up(core, member.node) => promote(core, member.node).await,
        Some(_) => Ok(()),
    };
    match done {
        Ok(()) => Answer::Announced {
            votes: core.members().voter_ids().any(|voter| voter == member.node),
        },
        Err(MembershipError::Invalid(why)) => Answer::Refused { why },
        // It will ask again.
        Err(_) => Answer::Announced { votes: false },
    }
}

/// What is said to a member that was one once. It gives up by it, so a majority must stand behind it.
async fn removed(core: &Core, node: NodeId) -> Answer {
    let confirmed = core.raft.ensure_linearizable(ReadPolicy::ReadIndex).await;
    if confirmed.is_err() {
        return Answer::AskLeader { leader: None };
    }
    let why = format!(
        "member {node} does not belong to this cluster any more: it was removed. Start a node with \
         an id that was never used and an empty folder in its place"
    );
    Answer::Refused { why }
}

/// Changes how a member is reached.
async fn readdress(core: &Core, member: &Member) -> Result<(), MembershipError> {
    let nodes = BTreeMap::from([(member.node, member.to_node())]);
    let change_to = ChangeMembers::SetNodes(nodes);
    change(core, || {
        core.raft.change_membership(change_to.clone(), true)
    })
    .await
}

/// The cluster that a new member is to join, asked of its peers until one knows who leads.
///
/// # Errors
/// Nobody answers, or the leader does not want an empty folder under this id.
pub(crate) async fn seek(
    stranger: &Dialer,
    peers: &[String],
    format_max: u32,
) -> Result<u128, ReplicaError> {
    let until = Instant::now() + SEEK_TIMEOUT;
    let mut last = "no peer was named".to_owned();
    while Instant::now() < until {
        for peer in peers {
            match seek_at(stranger, peer, format_max).await {
                Ok(Ok(cluster)) => return Ok(cluster),
                Ok(Err(why)) => return Err(ReplicaError::NotJoined { why }),
                Err(error) => last = error.to_string(),
            }
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
    Err(ReplicaError::NotJoined { why: last })
}

/// The cluster of the first of these peers that answers, whoever leads it; nothing where none does
/// soon: then a member that knows its cluster goes on without having asked.
pub(crate) async fn cluster_of(dialer: &Dialer, peers: &[String]) -> Option<u128> {
    // No member has this id: another cluster may well have one with ours, and refuses it.
    let nobody = dialer.stranger(0);
    for peer in peers {
        let seek = Request::Seek {
            format_max: FORMAT_LATEST,
        };
        let question = ask(&nobody, peer, None, seek);
        if let Ok(Ok(Answer::Cluster { cluster, .. })) = timeout(GLANCE_TIMEOUT, question).await {
            return Some(cluster);
        }
    }
    None
}

/// The cluster's id, or why the leader refuses.
async fn seek_at(
    dialer: &Dialer,
    peer: &str,
    format_max: u32,
) -> Result<Result<u128, String>, PeerError> {
    let mut at = peer.to_owned();
    // From whoever is there to the leader that it names: two questions, unless that changes.
    for _ in 0..3 {
        let question = ask(dialer, &at, None, Request::Seek { format_max });
        let Answer::Cluster {
            cluster,
            leader,
            refusal,
        } = question.await?
        else {
            return Err(PeerError::Unexpected("it knows no cluster".to_owned()));
        };
        match leader {
            None => return Err(PeerError::Unexpected("nobody leads it now".to_owned())),
            Some(leader) if leader.peer == at => {
                return Ok(refusal.map_or(Ok(cluster), Err));
            }
            Some(leader) => at = leader.peer,
        }
    }
    Err(PeerError::Unexpected("its leader changes".to_owned()))
}

async fn ask(
    dialer: &Dialer,
    address: &str,
    to: Option<NodeId>,
    request: Request,
) -> Result<Answer, PeerError> {
    let asking = async {
        let mut connection = dialer.open(address, to, Purpose::Membership).await?;
        connection.ask(&request, &[]).await
    };
    let Ok(answer) = timeout(CHANGE_TIMEOUT + ASK_AGAIN_AFTER, asking).await else {
        return Err(PeerError::Broken(std::io::ErrorKind::TimedOut.into()));
    };
    answer
}

/// Tells the leader of this member until it is known as it is, and votes; and again whenever it has
/// heard no leader for a while, as it may have been removed. `peers`: whom it was told to join by.
pub(crate) async fn announce(core: &Core, peers: &[String]) {
    let mut hint: Option<Member> = None;
    let mut turn = 0;
    let mut led = Instant::now();
    // Who has a log was let in once, and is not let in again after it was removed.
    let has_log = core.raft.is_initialized().await;
    let mut join = !peers.is_empty() && has_log.is_ok_and(|has_log| !has_log);
    loop {
        if leads(core) || core.other_leader().is_some() {
            led = Instant::now();
        }
        if is_in(core) && led.elapsed() < LOST_AFTER {
            join = false;
            sleep(LOOK_EVERY).await;
            continue;
        }
        let leader = core.other_leader().or_else(|| hint.take());
        let address = leader.map(|leader| leader.peer).or_else(|| {
            let others = others(core, peers);
            turn += 1;
            let place = turn % others.len().max(1);
            others.into_iter().nth(place)
        });
        let own = core.own.clone().into();
        match address {
            _ if leads(core) => drop(announced(core, own, join, core.format_max).await),
            Some(address) => {
                let request = Request::Announce {
                    member: own,
                    join,
                    format_max: core.format_max,
                };
                match ask(&core.dialer, &address, None, request).await {
                    Ok(Answer::AskLeader { leader }) => hint = leader.map(Into::into),
                    Ok(Answer::Refused { why }) => {
                        tracing::error!(why, "this member is not let in");
                        core.raft.runtime_config().elect(false);
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, address, "cannot announce this member"),
                }
            }
            None => {}
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
}

/// The addresses of all who may know who leads.
fn others(core: &Core, peers: &[String]) -> Vec<String> {
    let members = core.members();
    let others = members.nodes().filter(|(node, _)| **node != core.node);
    let others = others.map(|(_, at)| at.peer.clone());
    peers.iter().cloned().chain(others).collect()
}

/// Whether this member votes, and is known as it is reached.
fn is_in(core: &Core) -> bool {
    core.member(core.node).as_ref() == Some(&core.own)
        && core.members().voter_ids().any(|voter| voter == core.node)
}
