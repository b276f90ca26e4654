//! Pools, windows, overrides and counters.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fermata_api::pools::{Override, OverrideView, PoolView, WindowView};
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::query::{CallQuery, PageQuery};
use fermata_pool::command::Command;
use http::StatusCode;

use super::definitions::page;
use crate::actor::Actor;
use crate::admission::Deadline;
use crate::convert::{inward, rates};
use crate::edge::Edge;
use crate::input::{self, Json, Query, Scope};
use crate::refused::{Refused, json, no_content};

pub(crate) async fn get(
    State(edge): State<Edge>,
    Scope(id): Scope,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    let at = edge.replica.now();
    let view = edge.replica.read(|pool| {
        let view = pool.pool(&id, at)?;
        Some(rates::pool(pool, &view, (at, &edge.calendar())))
    });
    let view = view.ok_or_else(|| {
        let detail = format!("no job, window or override knows {id}");
        Problem::new(ErrorCode::UnknownPool, detail)
    })?;
    Ok(json(StatusCode::OK, &view))
}

pub(crate) async fn list(
    State(edge): State<Edge>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let after = query.after.unwrap_or_default();
    let at = edge.replica.now();
    let pools = edge.replica.read(|pool| {
        let pools = pool.pools(&after, at).take(items_max + 1);
        let calendar = edge.calendar();
        pools
            .map(|view| rates::pool(pool, &view, (at, &calendar)))
            .collect()
    });
    let page = page(pools, items_max, |pool: &PoolView| pool.id.clone());
    Ok(json(StatusCode::OK, &page))
}

pub(crate) async fn list_windows(
    State(edge): State<Edge>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let after = query.after.unwrap_or_default();
    let at = edge.replica.now();
    let windows = edge.replica.read(|pool| {
        let windows = pool.windows(&after, at).take(items_max + 1);
        let calendar = edge.calendar();
        windows
            .map(|view| rates::window(pool, &view, (at, &calendar)))
            .collect()
    });
    let page = page(windows, items_max, |window: &WindowView| window.id.clone());
    Ok(json(StatusCode::OK, &page))
}

pub(crate) async fn reset_window(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Scope(scope): Scope,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    edge.propose_by(actor, deadline, Command::Reset { scope })
        .await?;
    Ok(no_content())
}

pub(crate) async fn reset_windows(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    edge.propose_by(actor, deadline, Command::ResetAll).await?;
    Ok(no_content())
}

pub(crate) async fn put_override(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Scope(scope): Scope,
    Query(CallQuery { .. }): Query<CallQuery>,
    Json(body): Json<Override>,
) -> Result<Response, Refused> {
    let sizes = inward::sizes(body, &scope)?;
    let answer = rates::named_override(&scope, &sizes);
    edge.propose_by(actor, deadline, Command::PutOverride { scope, sizes })
        .await?;
    Ok(json(StatusCode::OK, &answer))
}

pub(crate) async fn delete_override(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Scope(scope): Scope,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    edge.propose_by(actor, deadline, Command::DeleteOverride { scope })
        .await?;
    Ok(no_content())
}

pub(crate) async fn list_overrides(
    State(edge): State<Edge>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let after = query.after.unwrap_or_default();
    let overrides = edge.replica.read(|pool| {
        let overrides = pool.overrides(&after).take(items_max + 1);
        overrides
            .map(|(name, sizes)| rates::named_override(name, sizes))
            .collect()
    });
    let page = page(overrides, items_max, |view: &OverrideView| view.id.clone());
    Ok(json(StatusCode::OK, &page))
}

pub(crate) async fn stats(
    State(edge): State<Edge>,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Response {
    json(StatusCode::OK, &edge.replica.read(rates::stats))
}

pub(crate) async fn reset_stats(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    edge.propose_by(actor, deadline, Command::ResetStats)
        .await?;
    Ok(no_content())
}
