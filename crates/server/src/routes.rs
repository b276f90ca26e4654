//! Which path is which call, and what is wrapped around it.
//!
//! From the outside in: admission (every call, known or not), holding (launches and looks that
//! wait), steering (whatever is the leader's to do), the call. Probes have none of them.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::Next;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::{headers, routes};

use crate::admission::admit;
use crate::calls::{
    attempts, audit, cluster, definitions, jobs, poll, pools, probes, servers, why,
};
use crate::edge::Edge;
use crate::held::hold;
use crate::refused::Refused;
use crate::steer::{Manner, steer};

/// The router of a node.
pub(crate) fn router(edge: &Edge) -> Router {
    let calls = Router::new()
        .merge(definitions(edge))
        .merge(without_revisions(edge))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // The bound of the contract is kept where the body is read.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(edge.clone(), admit));
    let probes = Router::new()
        .route(routes::LIVEZ, get(probes::livez))
        .route(routes::READYZ, get(probes::readyz))
        .route(routes::METRICS, get(probes::metrics))
        .method_not_allowed_fallback(method_not_allowed);
    calls
        .merge(probes)
        .layer(from_fn(log))
        .with_state(edge.clone())
}

/// Calls that are the leader's to do.
fn led(edge: &Edge, calls: MethodRouter<Edge>) -> MethodRouter<Edge> {
    calls.route_layer(from_fn_with_state((edge.clone(), Manner::Prompt), steer))
}

/// The same, where the answer may be held for a job.
fn held(edge: &Edge, calls: MethodRouter<Edge>) -> MethodRouter<Edge> {
    led(edge, calls).route_layer(from_fn_with_state(edge.clone(), hold))
}

/// Calls about what has no revision: a condition would promise what nobody keeps.
fn without_revisions(edge: &Edge) -> Router<Edge> {
    Router::new()
        .merge(jobs_and_servers(edge))
        .merge(rates(edge))
        .merge(members(edge))
        .route_layer(from_fn(refuse_conditions))
}

fn definitions(edge: &Edge) -> Router<Edge> {
    let event = put(definitions::put_event)
        .get(definitions::get_event)
        .delete(definitions::delete_event);
    let category = put(definitions::put_category)
        .get(definitions::get_category)
        .delete(definitions::delete_category);
    let settings = get(definitions::get_settings).put(definitions::put_settings);
    Router::new()
        .route(routes::EVENT, led(edge, event))
        .route(routes::EVENTS, led(edge, get(definitions::list_events)))
        .route(routes::CATEGORY, led(edge, category))
        .route(
            routes::CATEGORIES,
            led(edge, get(definitions::list_categories)),
        )
        .route(routes::SETTINGS, led(edge, settings))
}

fn jobs_and_servers(edge: &Edge) -> Router<Edge> {
    let jobs = held(edge, post(jobs::launch)).merge(led(edge, get(jobs::list)));
    let server = put(servers::put).get(servers::get).delete(servers::delete);
    let poll =
        post(poll::poll).route_layer(from_fn_with_state((edge.clone(), Manner::Held), steer));
    Router::new()
        .route(routes::JOBS, jobs)
        .route(routes::JOB, held(edge, get(jobs::get)))
        .route(routes::JOB_WHY, led(edge, get(why::get)))
        .route(routes::JOB_CANCEL, led(edge, post(attempts::cancel)))
        .route(routes::JOB_STARTED, led(edge, post(attempts::started)))
        .route(routes::JOB_HEARTBEAT, led(edge, post(attempts::heartbeat)))
        .route(routes::JOB_COMPLETED, led(edge, post(attempts::completed)))
        .route(routes::SERVER, led(edge, server))
        .route(routes::SERVERS, led(edge, get(servers::list)))
        .route(routes::SERVER_DRAIN, led(edge, post(servers::drain)))
        .route(routes::SERVER_LEAVE, led(edge, post(servers::leave)))
        .route(routes::SERVER_POLL, poll)
}

fn rates(edge: &Edge) -> Router<Edge> {
    let windows = get(pools::list_windows).delete(pools::reset_windows);
    let overriding = put(pools::put_override).delete(pools::delete_override);
    let stats = get(pools::stats).delete(pools::reset_stats);
    Router::new()
        .route(routes::POOL, led(edge, get(pools::get)))
        .route(routes::POOLS, led(edge, get(pools::list)))
        .route(routes::WINDOW, led(edge, delete(pools::reset_window)))
        .route(routes::WINDOWS, led(edge, windows))
        .route(routes::OVERRIDE, led(edge, overriding))
        .route(routes::OVERRIDES, led(edge, get(pools::list_overrides)))
        .route(routes::STATS, led(edge, stats))
        .route(routes::AUDIT, led(edge, get(audit::list)))
}

fn members(edge: &Edge) -> Router<Edge> {
    Router::new()
        // Every node says how it sees the cluster, also where there is no leader.
        .route(routes::CLUSTER, get(cluster::get))
        .route(routes::MEMBERS, led(edge, post(cluster::add_member)))
        .route(routes::MEMBER, led(edge, delete(cluster::remove_member)))
        .route(routes::TRANSFER, led(edge, post(cluster::transfer)))
}

/// Logs each call once: what it was and how it was answered, never what it carried (F39).
async fn log(request: Request, next: Next) -> Response {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return next.run(request).await;
    }
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let begun = tokio::time::Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(%method, path, status, took_ms, "answered");
    response
}

async fn refuse_conditions(request: Request, next: Next) -> Response {
    match unkept_condition(&request) {
        None => next.run(request).await,
        Some(problem) => Refused::from(problem).into_response(),
    }
}

fn unkept_condition(request: &Request) -> Option<Problem> {
    let mut names = [headers::IF_MATCH, headers::IF_NONE_MATCH].into_iter();
    let (name, value) = names.find_map(|name| Some((name, request.headers().get(name)?)))?;
    let detail = format!(
        "{name} is {value:?}; {} has no revision: allowed for events, categories and settings",
        request.uri().path()
    );
    let problem = Problem::new(ErrorCode::InvalidRequest, detail);
    (!request.method().is_safe()).then(|| problem.with_field(name))
}

async fn not_found(request: Request) -> Response {
    let detail = format!("there is no {}", request.uri().path());
    Refused::from(Problem::new(ErrorCode::NotFound, detail)).into_response()
}

async fn method_not_allowed(request: Request) -> Response {
    let detail = format!(
        "{} does not know the method {}; the header Allow names those that it knows",
        request.uri().path(),
        request.method()
    );
    Refused::from(Problem::new(ErrorCode::MethodNotAllowed, detail)).into_response()
}
