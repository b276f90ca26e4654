//! How openraft reaches the others.

use super::acknowledged::Acknowledged;
use super::connection::{CONNECT_TIMEOUT, Connection, Dialer, PeerError};
use crate::NodeId;
use crate::format::log::MembershipRecord;
use crate::format::wire::{
    Answer, Candidacy, Purpose, Request, SNAPSHOT_PART_BYTES_MAX, SnapshotOutline, Standing,
};
use crate::raft::{Membership, Node, TypeConfig, Vote};
use crate::state_machine::Snapshot;
use crate::store::SnapshotReader;
use openraft::error::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::TypeConfigExt;
use openraft::{OptionalSend, StorageError};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a follower may take to have an append on its disk, beside what its size takes.
const APPEND_TIMEOUT: Duration = Duration::from_secs(1);
/// The slowest link that a follower may have, for what its size takes: 1 MiB per second.
const BYTES_PER_MS_MIN: u64 = 1_049;
/// How long a peer may take to have a part of a snapshot on its disk.
const SNAPSHOT_PART_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take to make a pool of a snapshot and to have it on its disk.
const SNAPSHOT_INSTALL_TIMEOUT: Duration = Duration::from_secs(300);

type Rpc<T> = Result<T, RPCError<TypeConfig>>;

/// A place for one connection, taken out while it is in use.
type Place = Arc<tokio::sync::Mutex<Option<Connection>>>;

/// Makes a [`PeerClient`] per peer and purpose.
#[derive(Clone)]
pub(crate) struct Network {
    dialer: Dialer,
    /// Where members are reached by the membership in force. openraft keeps its client of a
    /// member whose address changes.
    addresses: Arc<Mutex<BTreeMap<NodeId, String>>>,
    /// openraft makes a client for every round of votes; these keep their connections.
    votes: Arc<Mutex<BTreeMap<NodeId, Place>>>,
    acknowledged: Acknowledged,
}

impl Network {
    pub(crate) fn new(dialer: Dialer) -> Network {
        Network {
            dialer,
            addresses: Arc::default(),
            votes: Arc::default(),
            acknowledged: Acknowledged::default(),
        }
    }

    /// Notes where members are reached, and forgets those who are none.
    pub(crate) fn note_members(&self, membership: &Membership) {
        let nodes = membership.nodes();
        let addresses = nodes.map(|(&node, at)| (node, at.peer.clone()));
        let addresses: BTreeMap<NodeId, String> = addresses.collect();
        lock(&self.votes).retain(|node, _| addresses.contains_key(node));
        self.acknowledged
            .retain(|node| addresses.contains_key(&node));
        *lock(&self.addresses) = addresses;
    }

    fn client(&self, to: NodeId, node: &Node, purpose: Purpose) -> PeerClient {
        let asker = |purpose, place| Asker {
            dialer: self.dialer.clone(),
            to,
            address: node.peer.clone(),
            addresses: Arc::clone(&self.addresses),
            purpose,
            place,
        };
        PeerClient {
            votes: asker(Purpose::Votes, self.vote_place(to)),
            bulk: asker(purpose, Place::default()),
            acknowledged: self.acknowledged.clone(),
        }
    }

    fn vote_place(&self, to: NodeId) -> Place {
        Arc::clone(lock(&self.votes).entry(to).or_default())
    }

    /// How a peer stands.
    pub(crate) async fn standing(&self, to: NodeId, node: &Node) -> Result<Standing, PeerError> {
        let client = self.client(to, node, Purpose::Votes);
        match client.votes.ask(&Request::Standing, &[]).await? {
            Answer::Stands(standing) => Ok(standing),
            other => Err(PeerError::unexpected(&other)),
        }
    }

    /// The digest of a peer's state after an entry, if it knows; this member's own is `digest`.
    pub(crate) async fn digest(
        &self,
        to: NodeId,
        node: &Node,
        index: u64,
        digest: u64,
    ) -> Result<Option<u64>, PeerError> {
        let client = self.client(to, node, Purpose::Votes);
        let request = Request::Digest { index, digest };
        match client.votes.ask(&request, &[]).await? {
            Answer::Digested { digest } => Ok(digest),
            other => Err(PeerError::unexpected(&other)),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = PeerClient;

    async fn new_client(&mut self, target: NodeId, node: &Node) -> PeerClient {
        self.client(target, node, Purpose::Appends)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, node: &Node) -> PeerClient {
        self.client(target, node, Purpose::Heartbeats)
    }

    async fn new_snapshot_client(&mut self, target: NodeId, node: &Node) -> PeerClient {
        self.client(target, node, Purpose::Snapshots)
    }
}

/// Asks one peer for one purpose.
struct Asker {
    dialer: Dialer,
    to: NodeId,
    /// Where it was reached when this was made.
    address: String,
    /// Where members are reached now.
    addresses: Arc<Mutex<BTreeMap<NodeId, String>>>,
    purpose: Purpose,
    place: Place,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asker {
    async fn connection(&self, kept: Option<Connection>) -> Result<Connection, PeerError> {
        if let Some(connection) = kept {
            return Ok(connection);
        }
        let address = lock(&self.addresses).get(&self.to).cloned();
        let address = address.as_ref().unwrap_or(&self.address);
        let to = Some(self.to);
        self.dialer.open(address, to, self.purpose).await
    }

    async fn ask(&self, request: &Request, tail: &[u8]) -> Result<Answer, PeerError> {
        let mut place = self.place.lock().await;
        let mut connection = self.connection(place.take()).await?;
        let answer = connection.ask(request, tail).await?;
        *place = Some(connection);
        Ok(answer)
    }

    /// The same, as openraft wants to know it.
    async fn rpc(
        &self,
        action: RPCTypes,
        request: &Request,
        tail: &[u8],
        timeout: Duration,
    ) -> Rpc<Answer> {
        match tokio::time::timeout(timeout, self.ask(request, tail)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(to_rpc(&error)),
            Err(_) => Err(RPCError::Timeout(Timeout {
                action,
                id: self.dialer.own.node,
                target: self.to,
                timeout,
            })),
        }
    }
}

fn to_rpc(error: &PeerError) -> RPCError<TypeConfig> {
    match error {
        // These make openraft wait before it tries again.
        PeerError::Unreachable { .. } | PeerError::Refused { .. } | PeerError::PutBack { .. } => {
            RPCError::Unreachable(Unreachable::new(error))
        }
        PeerError::Broken(_) | PeerError::Format(_) | PeerError::Unexpected(_) => {
            RPCError::Network(NetworkError::new(error))
        }
    }
}

fn unexpected(answer: &Answer) -> RPCError<TypeConfig> {
    to_rpc(&PeerError::unexpected(answer))
}

/// What openraft holds for one peer and one purpose. Votes and transfers have connections of
/// their own, whatever the client was made for.
pub(crate) struct PeerClient {
    votes: Asker,
    bulk: Asker,
    acknowledged: Acknowledged,
}

impl PeerClient {
    async fn candidacy(
        &self,
        rpc: VoteRequest<TypeConfig>,
        ask: impl FnOnce(Candidacy) -> Request,
        option: &RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        let request = ask(Candidacy {
            vote: (&rpc.vote).into(),
            last: rpc.last_log_id.map(Into::into),
            transfer: rpc.leadership_transfer,
        });
        let timeout = option.soft_ttl();
        match self
            .votes
            .rpc(RPCTypes::Vote, &request, &[], timeout)
            .await?
        {
            Answer::Voted {
                vote,
                last,
                granted,
            } => Ok(VoteResponse {
                vote: vote.into(),
                vote_granted: granted,
                last_log_id: last.map(Into::into),
            }),
            other => Err(unexpected(&other)),
        }
    }

    async fn send_snapshot(
        &self,
        vote: &Vote,
        snapshot: &Snapshot,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let rpc = async |request: &Request, tail: &[u8], timeout| {
            self.bulk
                .rpc(RPCTypes::InstallSnapshot, request, tail, timeout)
                .await
        };
        let begin = Request::SnapshotBegin {
            vote: vote.into(),
            outline: outline(snapshot),
        };
        go_on(&rpc(&begin, &[], SNAPSHOT_PART_TIMEOUT).await?)?;
        let stream = &snapshot.snapshot;
        let mut offset = 0;
        while offset < stream.bytes() {
            let part = read_part(stream, offset).await?;
            go_on(&rpc(&Request::SnapshotPart, &part, SNAPSHOT_PART_TIMEOUT).await?)?;
            offset += part.len() as u64;
        }
        match rpc(&Request::SnapshotEnd, &[], SNAPSHOT_INSTALL_TIMEOUT).await? {
            Answer::SnapshotInstalled { vote: theirs } => {
                let last = snapshot.meta.last_log_id;
                self.acknowledged.note(self.bulk.to, vote, last);
                Ok(SnapshotResponse::new(theirs.into()))
            }
            other => Err(unexpected(&other).into()),
        }
    }
}

fn outline(snapshot: &Snapshot) -> SnapshotOutline {
    let membership = &snapshot.meta.last_membership;
    SnapshotOutline {
        last: snapshot.meta.last_log_id.map(Into::into),
        membership_at: membership.log_id().map(Into::into),
        membership: MembershipRecord::from(membership.membership()),
        bytes: snapshot.snapshot.bytes(),
        checksum: snapshot.snapshot.checksum(),
    }
}

async fn read_part(
    stream: &SnapshotReader,
    offset: u64,
) -> Result<Vec<u8>, StreamingError<TypeConfig>> {
    let part = stream.read(offset, SNAPSHOT_PART_BYTES_MAX as usize).await;
    part.map_err(|error| {
        StorageError::read_snapshot(None, TypeConfig::err_from_error(&error)).into()
    })
}

/// The peer wants the next part.
fn go_on(answer: &Answer) -> Rpc<()> {
    match answer {
        Answer::SnapshotGoOn => Ok(()),
        other => Err(unexpected(other)),
    }
}

impl RaftNetworkV2<TypeConfig> for PeerClient {
    type SnapshotData = SnapshotReader;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<TypeConfig>> {
        let (request, tail) =
            Request::append(&rpc).map_err(|error| to_rpc(&PeerError::Format(error)))?;
        // A heartbeat keeps to its interval. An append is not bounded by it: a slow disk would
        // have the same bytes sent again and again.
        let timeout = if rpc.entries.is_empty() {
            option.soft_ttl()
        } else {
            APPEND_TIMEOUT + Duration::from_millis(tail.len() as u64 / BYTES_PER_MS_MIN)
        };
        let answer = self
            .bulk
            .rpc(RPCTypes::AppendEntries, &request, &tail, timeout)
            .await?;
        let peer = self.bulk.to;
        match answer {
            Answer::Appended => {
                let last = rpc.entries.last().map(|entry| entry.log_id);
                let last = last.or(rpc.prev_log_id);
                self.acknowledged.note(peer, &rpc.vote, last);
                Ok(AppendEntriesResponse::Success)
            }
            Answer::AppendedUpTo(last) => {
                let last = last.map(Into::into);
                self.acknowledged.note(peer, &rpc.vote, last);
                Ok(AppendEntriesResponse::PartialSuccess(last))
            }
            Answer::AppendConflict => {
                self.acknowledged
                    .must_lack(peer, &rpc.vote, rpc.prev_log_id)
                    .map_err(|error| to_rpc(&error))?;
                Ok(AppendEntriesResponse::Conflict)
            }
            Answer::AppendHigherVote(vote) => Ok(AppendEntriesResponse::HigherVote(vote.into())),
            other => Err(unexpected(&other)),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        self.candidacy(rpc, Request::Vote, &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<VoteResponse<TypeConfig>> {
        self.candidacy(rpc, Request::PreVote, &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        // Each part has a deadline of its own: a large snapshot takes as long as it takes.
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(&vote, &snapshot) => sent,
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<TransferLeaderResponse<TypeConfig>> {
        let request = Request::Transfer {
            from: req.from_leader().into(),
            to: *req.to_node_id(),
            last: req.last_log_id().copied().map(Into::into),
        };
        let timeout = option.soft_ttl().max(CONNECT_TIMEOUT / 4);
        let answer = self
            .votes
            .rpc(RPCTypes::TransferLeader, &request, &[], timeout)
            .await?;
        match answer {
            Answer::Transferring => Ok(Ok(())),
            Answer::TransferVoteChanged { vote } => Ok(Err(TransferLeaderError::VoteChanged {
                expected: *req.from_leader(),
                actual: vote.into(),
            })),
            Answer::TransferBehind { last } => Ok(Err(TransferLeaderError::LogNotFlushed {
                expected: req.last_log_id().copied(),
                actual: last.map(Into::into),
            })),
            other => Err(unexpected(&other)),
        }
    }
}
