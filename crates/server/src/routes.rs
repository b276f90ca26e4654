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
use fermata_api::routes;

use crate::admission::admit;
use crate::calls::{attempts, cluster, definitions, jobs, poll, pools, probes, servers};
use crate::edge::Edge;
use crate::held::hold;
use crate::refused::Refused;
use crate::steer::{Manner, steer};

/// The router of a node.
pub(crate) fn router(edge: &Edge) -> Router {
    let led = |calls: MethodRouter<Edge>| {
        calls.route_layer(from_fn_with_state((edge.clone(), Manner::Prompt), steer))
    };
    let held =
        |calls: MethodRouter<Edge>| led(calls).route_layer(from_fn_with_state(edge.clone(), hold));
    let poll =
        post(poll::poll).route_layer(from_fn_with_state((edge.clone(), Manner::Held), steer));
    let calls = Router::new()
        .route(
            routes::EVENT,
            led(put(definitions::put_event)
                .get(definitions::get_event)
                .delete(definitions::delete_event)),
        )
        .route(routes::EVENTS, led(get(definitions::list_events)))
        .route(
            routes::CATEGORY,
            led(put(definitions::put_category)
                .get(definitions::get_category)
                .delete(definitions::delete_category)),
        )
        .route(routes::CATEGORIES, led(get(definitions::list_categories)))
        .route(
            routes::SETTINGS,
            led(get(definitions::get_settings).put(definitions::put_settings)),
        )
        .route(
            routes::JOBS,
            held(post(jobs::launch)).merge(led(get(jobs::list))),
        )
        .route(routes::JOB, held(get(jobs::get)))
        .route(routes::JOB_CANCEL, led(post(attempts::cancel)))
        .route(routes::JOB_STARTED, led(post(attempts::started)))
        .route(routes::JOB_HEARTBEAT, led(post(attempts::heartbeat)))
        .route(routes::JOB_COMPLETED, led(post(attempts::completed)))
        .route(
            routes::SERVER,
            led(put(servers::put).get(servers::get).delete(servers::delete)),
        )
        .route(routes::SERVERS, led(get(servers::list)))
        .route(routes::SERVER_POLL, poll)
        .route(routes::POOL, led(get(pools::get)))
        .route(routes::POOLS, led(get(pools::list)))
        .route(routes::WINDOW, led(delete(pools::reset_window)))
        .route(
            routes::WINDOWS,
            led(get(pools::list_windows).delete(pools::reset_windows)),
        )
        .route(
            routes::OVERRIDE,
            led(put(pools::put_override).delete(pools::delete_override)),
        )
        .route(routes::OVERRIDES, led(get(pools::list_overrides)))
        .route(
            routes::STATS,
            led(get(pools::stats).delete(pools::reset_stats)),
        )
        .route(routes::CLUSTER, get(cluster::get))
        .route(routes::MEMBERS, led(post(cluster::add_member)))
        .route(routes::MEMBER, led(delete(cluster::remove_member)))
        .route(routes::TRANSFER, led(post(cluster::transfer)))
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
