//! What answers the peers that call.
//!
//! A connection is served until it breaks or says something that no peer says; then it is
//! closed, and whoever called calls again.

use super::connection::{Connection, PeerError};
use super::forward;
use crate::NodeId;
use crate::core::Core;
use crate::digests;
use crate::environment::{Accept, Stream};
use crate::format::FormatError;
use crate::format::wire::{
    self, Answer, Candidacy, Greeting, Hello, Purpose, Request, SnapshotOutline,
};
use crate::membership;
use crate::raft::{self, SnapshotMeta, StoredMembership, TypeConfig};
use crate::standing;
use crate::state_machine::Snapshot;
use crate::store::SnapshotWriter;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Most connections at a time: a few purposes for each of a few members, with room for those
/// that broke and were not noticed yet.
const CONNECTIONS_MAX: usize = 256;
/// How long a caller may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// How long accepting rests after it failed: there are no file descriptors, and soon there are.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Accepts and serves connections for as long as it is polled.
pub(crate) async fn listen(core: Arc<Core>, listener: Box<dyn Accept>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a peer's connection could not be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let core = Arc::clone(&core);
        connections.spawn(async move {
            if let Err(error) = serve(&core, stream).await {
                match error {
                    PeerError::Broken(_) => tracing::debug!(%error, "a peer is gone"),
                    _ => tracing::warn!(%error, "a peer's connection was closed"),
                }
            }
            drop(place);
        });
    }
}

async fn serve(core: &Arc<Core>, stream: Stream) -> Result<(), PeerError> {
    let mut connection = Connection::over(stream, Purpose::Votes);
    let hello = connection.reader.next::<Hello>();
    let (hello, _) = tokio::time::timeout(HELLO_TIMEOUT, hello)
        .await
        .map_err(std::io::Error::from)??;
    if let Err(why) = check(core, &hello) {
        tracing::warn!(peer = hello.from, why, "a peer was refused");
        return connection
            .writer
            .send(&Greeting::Refused { why }, &[])
            .await;
    }
    let welcome = Greeting::Welcome { node: core.node };
    connection.writer.send(&welcome, &[]).await?;
    connection.serves(hello.purpose);
    match hello.purpose {
        Purpose::Forwards => forward::answer(core, connection).await,
        Purpose::Snapshots => receive_snapshots(core, connection).await,
        Purpose::Votes | Purpose::Heartbeats | Purpose::Appends | Purpose::Membership => {
            answer_in_turn(core, connection, hello.from).await
        }
    }
}

/// Wrong addresses must do no harm: who calls must mean this member of this cluster.
fn check(core: &Core, hello: &Hello) -> Result<(), String> {
    if let Some(to) = hello.to.filter(|&to| to != core.node) {
        return Err(format!("this is member {}, not {to}", core.node));
    }
    if hello.from == core.node {
        return Err(format!(
            "this is member {} itself: two members have one id",
            core.node
        ));
    }
    match hello.cluster {
        Some(cluster) if cluster == core.cluster => Ok(()),
        None if hello.purpose == Purpose::Membership => Ok(()),
        Some(cluster) => Err(format!(
            "this is a member of cluster {:032x}, not of {cluster:032x}",
            core.cluster
        )),
        None => Err("only a member may ask this".to_owned()),
    }
}

async fn answer_in_turn(
    core: &Arc<Core>,
    mut connection: Connection,
    from: NodeId,
) -> Result<(), PeerError> {
    loop {
        let (request, tail) = connection.reader.next::<Request>().await?;
        let answer = answer(core, from, request, &tail).await?;
        connection.writer.send(&answer, &[]).await?;
    }
}

async fn answer(
    core: &Arc<Core>,
    from: NodeId,
    request: Request,
    tail: &[u8],
) -> Result<Answer, PeerError> {
    match request {
        Request::Vote(candidacy) => {
            let response = core.raft.vote(vote_request(&candidacy)).await;
            Ok(voted(&response.map_err(stopped)?))
        }
        Request::PreVote(candidacy) => {
            let response = core.raft.pre_vote(vote_request(&candidacy)).await;
            Ok(voted(&response.map_err(stopped)?))
        }
        Request::Transfer { from, to, last } => {
            let request = TransferLeaderRequest::new(from.into(), to, last.map(Into::into));
            let response = core.raft.handle_transfer_leader(request).await;
            Ok(match response.map_err(stopped)? {
                Ok(()) => Answer::Transferring,
                Err(TransferLeaderError::VoteChanged { actual, .. }) => {
                    Answer::TransferVoteChanged {
                        vote: (&actual).into(),
                    }
                }
                Err(TransferLeaderError::LogNotFlushed { actual, .. }) => Answer::TransferBehind {
                    last: actual.map(Into::into),
                },
            })
        }
        Request::Append {
            vote,
            previous,
            committed,
            entries,
        } => {
            let request = AppendEntriesRequest {
                vote: vote.into(),
                prev_log_id: previous.map(Into::into),
                entries: wire::entries(&entries, tail)?,
                leader_commit: committed.map(Into::into),
            };
            let response = core.raft.append_entries(request).await.map_err(stopped)?;
            if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
                core.leader_heard();
            }
            Ok(appended(&response))
        }
        Request::Standing => Ok(Answer::Stands(standing::own(core))),
        Request::Seek { format_max } => Ok(membership::sought(core, from, format_max)),
        Request::Announce {
            member,
            join,
            format_max,
        } => Ok(membership::announced(core, member, join, format_max).await),
        Request::Digest { index, digest } => Ok(digests::asked(core, index, digest)),
        Request::SnapshotBegin { .. }
        | Request::SnapshotPart
        | Request::SnapshotEnd
        | Request::Forward { .. } => Ok(Answer::Refused {
            why: "not on a connection of this purpose".to_owned(),
        }),
    }
}

/// The core has stopped: the connection ends, and the peer finds nobody.
fn stopped(error: impl std::error::Error + Send + Sync + 'static) -> PeerError {
    PeerError::Broken(std::io::Error::other(error))
}

fn vote_request(candidacy: &Candidacy) -> VoteRequest<TypeConfig> {
    let mut request = VoteRequest::new(candidacy.vote.into(), candidacy.last.map(Into::into));
    request.leadership_transfer = candidacy.transfer;
    request
}

fn voted(response: &VoteResponse<TypeConfig>) -> Answer {
    Answer::Voted {
        vote: (&response.vote).into(),
        last: response.last_log_id.map(Into::into),
        granted: response.vote_granted,
    }
}

fn appended(response: &AppendEntriesResponse<TypeConfig>) -> Answer {
    match response {
        AppendEntriesResponse::Success => Answer::Appended,
        AppendEntriesResponse::PartialSuccess(last) => Answer::AppendedUpTo(last.map(Into::into)),
        AppendEntriesResponse::Conflict => Answer::AppendConflict,
        AppendEntriesResponse::HigherVote(vote) => Answer::AppendHigherVote(vote.into()),
    }
}

/// A snapshot that is being received.
struct Arriving {
    vote: raft::Vote,
    outline: SnapshotOutline,
    writer: SnapshotWriter,
    received: u64,
}

async fn receive_snapshots(core: &Core, mut connection: Connection) -> Result<(), PeerError> {
    let mut arriving = None;
    loop {
        let (request, tail) = connection.reader.next::<Request>().await?;
        let answer = receive(core, &mut arriving, request, &tail).await?;
        connection.writer.send(&answer, &[]).await?;
    }
}

async fn receive(
    core: &Core,
    arriving: &mut Option<Arriving>,
    request: Request,
    tail: &[u8],
) -> Result<Answer, PeerError> {
    match (request, arriving.as_mut()) {
        (Request::SnapshotBegin { vote, outline }, _) => {
            // One that was begun before and not ended goes with its writer.
            *arriving = Some(Arriving {
                vote: vote.into(),
                outline,
                writer: core.recovery.begin().await.map_err(stopped)?,
                received: 0,
            });
            Ok(Answer::SnapshotGoOn)
        }
        (Request::SnapshotPart, Some(snapshot)) => {
            snapshot.received += tail.len() as u64;
            if snapshot.received > snapshot.outline.bytes {
                return Err(damaged("it is longer than its outline says"));
            }
            snapshot.writer.write(tail).await.map_err(stopped)?;
            Ok(Answer::SnapshotGoOn)
        }
        (Request::SnapshotEnd, Some(_)) => match arriving.take() {
            Some(snapshot) => install(core, snapshot).await,
            None => Err(damaged("it ended twice")),
        },
        _ => Err(damaged("it was not begun")),
    }
}

async fn install(core: &Core, arrived: Arriving) -> Result<Answer, PeerError> {
    let reader = arrived.writer.finish().await.map_err(stopped)?;
    let outline = arrived.outline;
    if reader.bytes() != outline.bytes || reader.checksum() != outline.checksum {
        return Err(damaged("it is not what its outline says"));
    }
    let snapshot = Snapshot {
        meta: SnapshotMeta {
            last_log_id: outline.last.map(Into::into),
            last_membership: StoredMembership::new(
                outline.membership_at.map(Into::into),
                outline.membership.try_into()?,
            ),
        },
        snapshot: reader,
    };
    let response = core
        .raft
        .install_full_snapshot(arrived.vote, snapshot)
        .await;
    Ok(Answer::SnapshotInstalled {
        vote: (&response.map_err(stopped)?.vote).into(),
    })
}

fn damaged(why: &'static str) -> PeerError {
    PeerError::Format(FormatError::damaged("a snapshot from a peer", why))
}
