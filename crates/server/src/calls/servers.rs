//! Servers: their definitions. What their workers say is in [`crate::calls::poll`].

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::query::{CallQuery, PageQuery};
use fermata_api::servers::{LeaveRequest, ServerBody};
use fermata_pool::command::Command;
use http::StatusCode;

use super::attempts::Nothing;
use super::definitions::page;
use crate::actor::Actor;
use crate::admission::Deadline;
use crate::convert::{inward, outward};
use crate::edge::Edge;
use crate::input::{self, Id, Json, OptionalJson, Query};
use crate::refused::{Refused, json, no_content};

pub(crate) async fn put(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Id(id): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    Json(body): Json<ServerBody>,
) -> Result<Response, Refused> {
    let definition = inward::server(body, &id)?;
    edge.propose_by(actor, deadline, Command::PutServer(definition))
        .await?;
    answer(&edge, &id)
}

pub(crate) async fn get(
    State(edge): State<Edge>,
    Id(id): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    answer(&edge, &id)
}

pub(crate) async fn delete(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Id(server): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    let command = Command::DeleteServer {
        server: server.clone(),
    };
    edge.propose_by(actor, deadline, command).await?;
    // Its worker learns that there is nothing to wait for.
    edge.hints.servers.wake(&server);
    Ok(no_content())
}

pub(crate) async fn drain(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Id(server): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    OptionalJson(Nothing {}): OptionalJson<Nothing>,
) -> Result<Response, Refused> {
    let command = Command::DrainServer {
        server: server.clone(),
    };
    edge.propose_by(actor, deadline, command).await?;
    // Its worker is told by the poll that is being held.
    edge.hints.servers.wake(&server);
    answer(&edge, &server)
}

pub(crate) async fn leave(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    Id(server): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    Json(LeaveRequest { incarnation }): Json<LeaveRequest>,
) -> Result<Response, Refused> {
    let holder = inward::holder(&server, incarnation);
    // What it gave up by itself is lost at once, and need not run out.
    edge.propose(deadline, Command::ServerLost(holder)).await?;
    answer(&edge, &server)
}

pub(crate) async fn list(
    State(edge): State<Edge>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let after = query.after.unwrap_or_default();
    let servers = edge.replica.read(|pool| {
        let servers = pool.servers(&after).take(items_max + 1);
        servers
            .map(|server| outward::server(pool, server))
            .collect()
    });
    let page = page(
        servers,
        items_max,
        |server: &fermata_api::servers::ServerView| server.id.clone(),
    );
    Ok(json(StatusCode::OK, &page))
}

fn answer(edge: &Edge, id: &str) -> Result<Response, Refused> {
    let view = edge
        .replica
        .read(|pool| pool.server(id).map(|server| outward::server(pool, server)));
    let Some(view) = view else {
        return Err(unknown(id).into());
    };
    Ok(json(StatusCode::OK, &view))
}

/// No such server.
pub(crate) fn unknown(id: &str) -> Problem {
    Problem::new(ErrorCode::UnknownServer, format!("there is no server {id}"))
}
