//! Events, categories and settings: the definitions from which jobs are launched.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fermata_api::events::{Category, Event};
use fermata_api::headers::ETAG;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::query::{CallQuery, Page, PageQuery};
use fermata_api::settings::Settings;
use fermata_pool::command::Command;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use crate::actor::Actor;
use crate::admission::Deadline;
use crate::convert::{inward, outward};
use crate::edge::Edge;
use crate::input::{self, Id, Json, Query};
use crate::refused::{Refused, json, no_content};

pub(crate) async fn put_event(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Id(id): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    headers: HeaderMap,
    Json(body): Json<Event>,
) -> Result<Response, Refused> {
    let if_revision = input::revision(&headers, body.revision)?;
    let event = Box::new(inward::event(body, &id)?);
    let command = Command::PutEvent { event, if_revision };
    edge.propose_by(actor, deadline, command).await?;
    event_answer(&edge, &id)
}

pub(crate) async fn get_event(
    State(edge): State<Edge>,
    Id(id): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    event_answer(&edge, &id)
}

pub(crate) async fn delete_event(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Id(event): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let if_revision = input::revision(&headers, None)?;
    let command = Command::DeleteEvent { event, if_revision };
    edge.propose_by(actor, deadline, command).await?;
    Ok(no_content())
}

pub(crate) async fn list_events(
    State(edge): State<Edge>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let after = query.after.unwrap_or_default();
    let events = edge.replica.read(|pool| {
        let events = pool.events(&after).take(items_max + 1);
        events.map(|stored| outward::event(&stored)).collect()
    });
    let page = page(events, items_max, |event| {
        event.id.clone().unwrap_or_default()
    });
    Ok(json(StatusCode::OK, &page))
}

pub(crate) async fn put_category(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Id(id): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    headers: HeaderMap,
    Json(body): Json<Category>,
) -> Result<Response, Refused> {
    let if_revision = input::revision(&headers, body.revision)?;
    let category = Box::new(inward::category(body, &id)?);
    let command = Command::PutCategory {
        category,
        if_revision,
    };
    edge.propose_by(actor, deadline, command).await?;
    category_answer(&edge, &id)
}

pub(crate) async fn get_category(
    State(edge): State<Edge>,
    Id(id): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    category_answer(&edge, &id)
}

pub(crate) async fn delete_category(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Id(category): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let if_revision = input::revision(&headers, None)?;
    let command = Command::DeleteCategory {
        category,
        if_revision,
    };
    edge.propose_by(actor, deadline, command).await?;
    Ok(no_content())
}

pub(crate) async fn list_categories(
    State(edge): State<Edge>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let after = query.after.unwrap_or_default();
    let categories = edge.replica.read(|pool| {
        let categories = pool.categories(&after).take(items_max + 1);
        categories
            .map(|stored| outward::category(&stored))
            .collect()
    });
    let page = page(categories, items_max, |category| {
        category.id.clone().unwrap_or_default()
    });
    Ok(json(StatusCode::OK, &page))
}

pub(crate) async fn put_settings(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    actor: Actor,
    Query(CallQuery { .. }): Query<CallQuery>,
    headers: HeaderMap,
    Json(body): Json<Settings>,
) -> Result<Response, Refused> {
    let if_revision = input::revision(&headers, body.revision)?;
    let settings = Box::new(inward::settings(body)?);
    let command = Command::PutSettings {
        settings,
        if_revision,
    };
    edge.propose_by(actor, deadline, command).await?;
    Ok(settings_answer(&edge))
}

pub(crate) async fn get_settings(
    State(edge): State<Edge>,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Response {
    settings_answer(&edge)
}

/// One page of what was taken with one item too many: that one only tells that there is more.
pub(crate) fn page<T>(
    mut items: Vec<T>,
    items_max: usize,
    place: impl FnOnce(&T) -> String,
) -> Page<T> {
    let has_more = items.len() > items_max;
    items.truncate(items_max);
    let after = items.last().filter(|_| has_more).map(place);
    Page { items, after }
}

fn event_answer(edge: &Edge, id: &str) -> Result<Response, Refused> {
    let event = edge
        .replica
        .read(|pool| pool.event(id).map(|stored| outward::event(&stored)));
    let Some(event) = event else {
        let detail = format!("there is no event {id}");
        return Err(Problem::new(ErrorCode::EventMissing, detail).into());
    };
    Ok(revised(&event, event.revision))
}

fn category_answer(edge: &Edge, id: &str) -> Result<Response, Refused> {
    let category = edge
        .replica
        .read(|pool| pool.category(id).map(|stored| outward::category(&stored)));
    let Some(category) = category else {
        let detail = format!("there is no category {id}");
        return Err(Problem::new(ErrorCode::UnknownCategory, detail).into());
    };
    Ok(revised(&category, category.revision))
}

fn settings_answer(edge: &Edge) -> Response {
    let settings = edge
        .replica
        .read(|pool| outward::settings(&pool.stored_settings()));
    revised(&settings, settings.revision)
}

/// A definition with its revision as `ETag`.
fn revised<T: Serialize>(definition: &T, revision: Option<u64>) -> Response {
    let mut response = json(StatusCode::OK, definition);
    let revision = revision.unwrap_or_default();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
