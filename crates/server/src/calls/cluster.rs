//! The cluster: who is in it, who leads, and changes of both.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fermata_api::cluster::{
    ClusterView, MemberBody, NodeView, Role, TransferRequest, Warning, WarningCode,
};
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::query::CallQuery;
use fermata_pool::command::{Command, MemberChange};
use fermata_replica::{self as replica, Member, MemberStatus, NodeId, Status, WarningKind};
use http::StatusCode;
use tokio::time::{timeout, timeout_at};

use crate::actor::Actor;
use crate::admission::Deadline;
use crate::edge::Edge;
use crate::input::{Json, OptionalJson, PathNode, Query};
use crate::refused::{Refused, json, no_content};

/// How long the question for a majority may take, in milliseconds: the view is answered without
/// one, too.
const QUORUM_MS_MAX: u64 = 1_000;

pub(crate) async fn get(
    State(edge): State<Edge>,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Response {
    json(StatusCode::OK, &edge.cluster().await)
}

pub(crate) async fn add_member(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Query(CallQuery { .. }): Query<CallQuery>,
    Json(body): Json<MemberBody>,
) -> Result<Response, Refused> {
    let member = Member {
        node: body.id,
        peer: body.peer_address,
        client_url: body.client_url,
    };
    let change = MemberChange::Added {
        node: member.node,
        peer: member.peer.as_str().into(),
    };
    let added = timeout_at(deadline.at, edge.replica.add_member(member)).await;
    added.map_err(|_| Refused::unknown())??;
    edge.note(actor, deadline, change).await;
    Ok(json(StatusCode::OK, &edge.cluster().await))
}

pub(crate) async fn remove_member(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    PathNode(node): PathNode,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    let removed = timeout_at(deadline.at, edge.replica.remove_member(node)).await;
    removed.map_err(|_| Refused::unknown())??;
    edge.note(actor, deadline, MemberChange::Removed { node })
        .await;
    Ok(no_content())
}

pub(crate) async fn transfer(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Query(CallQuery { .. }): Query<CallQuery>,
    OptionalJson(TransferRequest { to }): OptionalJson<TransferRequest>,
) -> Result<Response, Refused> {
    let status = edge.replica.status();
    let is_voter = |node| {
        status
            .members
            .iter()
            .any(|it| it.member.node == node && it.voter)
    };
    if to.is_none_or(|to| to != status.node && is_voter(to)) {
        // Before, because afterwards this node can write nothing.
        let from = status.node;
        edge.note(actor, deadline, MemberChange::HandedOver { from, to })
            .await;
    }
    let moved = timeout_at(deadline.at, edge.replica.transfer(to)).await;
    let heir: NodeId = moved.map_err(|_| Refused::unknown())??;
    let mut leadership = edge.replica.leadership();
    let here = edge.replica.status().node;
    let led = leadership.wait_for(|leadership| match leadership {
        replica::Leadership::Unknown => false,
        replica::Leadership::Follower { leader } => leader.node == heir,
        replica::Leadership::Leader { .. } => heir == here,
    });
    match timeout_at(deadline.at, led).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => {
            let detail = format!("node {heir} was told to lead and does not yet");
            return Err(Problem::new(ErrorCode::UnknownOutcome, detail).into());
        }
    }
    Ok(json(StatusCode::OK, &edge.cluster().await))
}

impl Edge {
    /// Leaves a record of a change of the members. The change stands, so that where the record
    /// cannot be made, the log of this node has it.
    async fn note(&self, actor: Actor, deadline: Deadline, change: MemberChange) {
        let command = Command::MembersChanged(change.clone());
        if let Err(refused) = self.propose_by(actor.clone(), deadline, command).await {
            let actor = actor.into_name();
            let error = refused.problem;
            tracing::warn!(%error, %actor, ?change, "a change of the members has no record");
        }
    }

    async fn cluster(&self) -> ClusterView {
        let status = self.replica.survey().await;
        let has_quorum = match status.role {
            // A leader asks; the others believe their leader until its silence makes them vote.
            replica::Role::Leader => {
                let asked = timeout(Duration::from_millis(QUORUM_MS_MAX), self.replica.confirm());
                matches!(asked.await, Ok(Ok(())))
            }
            replica::Role::Learner
            | replica::Role::Follower
            | replica::Role::Candidate
            | replica::Role::Stopped => status.leader.is_some(),
        };
        ClusterView {
            cluster_id: status.cluster.clone(),
            node: status.node,
            leader: status.leader,
            term: status.term,
            has_quorum,
            format: status.format,
            nodes: status
                .members
                .iter()
                .map(|member| node(&status, member))
                .collect(),
            warnings: status.warnings().into_iter().map(warning).collect(),
        }
    }
}

fn warning(warning: replica::Warning) -> Warning {
    Warning {
        code: match warning.kind {
            WarningKind::TimeZoneDiffers => WarningCode::TimeZoneDiffers,
            WarningKind::TzdbDiffers => WarningCode::TzdbDiffers,
            WarningKind::ClockSkew => WarningCode::ClockSkew,
            WarningKind::FormatBehind => WarningCode::FormatBehind,
        },
        node: warning.node,
        detail: warning.detail,
    }
}

fn node(status: &Status, seen: &MemberStatus) -> NodeView {
    let member = &seen.member;
    let is_here = member.node == status.node;
    let is_leader = status.leader == Some(member.node);
    let report = seen.report.as_ref();
    let skew_us = report.map(|report| report.clock_ahead_us);
    NodeView {
        id: member.node,
        role: match status.role {
            replica::Role::Stopped if is_here => Role::Unreachable,
            replica::Role::Candidate if is_here => Role::Candidate,
            _ if is_leader => Role::Leader,
            _ if report.is_none() => Role::Unreachable,
            _ if seen.voter => Role::Follower,
            _ => Role::Learner,
        },
        voter: seen.voter,
        term: report.map(|report| report.term),
        last_index: report.and_then(|report| report.last_log).or(seen.matched),
        applied: report.and_then(|report| report.applied),
        lag: seen.lag,
        client_url: Some(member.client_url.clone()).filter(|url| !url.is_empty()),
        peer_address: member.peer.clone(),
        time_zone: report.map(|report| report.time_zone.clone()),
        tzdb: report.map(|report| report.tzdb.clone()),
        clock_skew_ms: skew_us.map(|us| us / 1_000),
        version: report.map(|report| report.version.clone()),
        format_max: report.map(|report| report.format_max),
    }
}
