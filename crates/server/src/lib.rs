//! The edge of a node: HTTP in front of one member of the cluster.
//!
//! A call passes, from the outside in: a connection ([`serve`]), a bounded place and a deadline
//! (`admission`), the decision where it is done (`steer`: here, at the leader, nowhere), and the
//! call itself (`calls`), which turns HTTP's types into the pool's and back (`convert`). The edge
//! decides nothing about jobs: it asks the replica, and shows what the pool said.
//!
//! Two things wait here, and each watches the state, not a request. A held answer (`held`)
//! watches its job in the node's own copy. A poll (`calls::poll`) watches its server on the leader.
//! Both are woken by hints (`hints`), and look at the state again. And the leader makes the start
//! actions (`start_actions`), which an attempt waits for before it is offered.
//!
//! Runtime: the edge spawns onto the runtime that calls [`serve`]; the binary gives it one of its
//! own, so that no flood of calls takes threads from Raft.
//!
//! # Caveats
//!
//! - Anybody who reaches the socket may do everything: keys and roles are not here yet. The binary
//!   listens on loopback unless told otherwise.
//! - Parameters that are written differently are different to the pool, although they may mean the
//!   same: a retry must repeat the bytes (S40).

#![forbid(unsafe_code)]

mod actor;
mod admission;
mod calls;
mod convert;
mod edge;
mod held;
mod hints;
mod ids;
mod input;
mod listen;
mod refused;
mod routes;
mod sameness;
mod start_actions;
mod steer;
mod wire;

use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use fermata_api::problem::{ErrorCode, Problem};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;

use edge::Edge;
use refused::Refused;

/// The member of the cluster that stands behind an edge, and what opening it takes: whoever serves
/// opens it, and hands it to [`serve`].
pub mod member {
    pub use fermata_replica::{
        Config, FORMAT_LATEST, Member, NodeId, Replica, ReplicaError, Start, Timing, Zone,
    };
}

use member::Replica;

/// How much the edge takes on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most connections; beyond it, new ones wait to be accepted.
    pub connections_max: usize,
    /// Most calls that are being worked on; beyond it: 503, `overloaded`.
    pub calls_max: usize,
    /// Most polls and held answers that wait.
    pub held_max: usize,
    /// Most bytes of bodies in memory, of all calls together.
    pub body_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            calls_max: 2_048,
            held_max: 20_000,
            body_bytes_max: 128 * 1024 * 1024,
        }
    }
}

/// Why the edge cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket fails.
    #[error("the socket for clients fails")]
    Accept(#[source] std::io::Error),
}

/// Serves clients on `listener` until `shutdown` resolves, and answers what other nodes forward.
///
/// After that no connection is accepted, what is held is answered at once, and the calls at hand
/// have a bounded time to end. The replica stays open: it is the caller's.
///
/// # Errors
/// The socket fails for good.
pub async fn serve(
    listener: TcpListener,
    replica: Replica,
    config: Config,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let (close, closing) = watch::channel(false);
    let edge = Edge::new(replica.clone(), &config, closing);
    let router = routes::router(&edge);
    let hints = tokio::spawn(edge.hints.clone().follow(replica.clone()));
    let actions = tokio::spawn(start_actions::run(edge));
    let forwarded = router.clone();
    // The replica calls from threads of its own; the work is done on the edge's.
    let runtime = tokio::runtime::Handle::current();
    replica.answer_forwarded(Arc::new(move |call| {
        let answer = runtime.spawn(answer_forwarded(forwarded.clone(), call));
        Box::pin(async move { answer.await.unwrap_or_default() })
    }));
    let served = listen::listen(listener, router, config.connections_max, shutdown, close).await;
    hints.abort();
    actions.abort();
    served
}

/// Does another node's call as if it had come here.
async fn answer_forwarded(router: axum::Router, call: Vec<u8>) -> Vec<u8> {
    let response = match wire::Call::decode(&call) {
        Ok(mut call) => {
            let mut request = Request::new(Body::from(call.body));
            if let Some(actor) = actor::Actor::take(&mut call.headers) {
                request.extensions_mut().insert(actor);
            }
            *request.method_mut() = call.method;
            *request.uri_mut() = call.uri;
            *request.headers_mut() = call.headers;
            request.extensions_mut().insert(steer::Forwarded);
            match router.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
        Err(error) => {
            tracing::error!(%error, "another node's call is malformed");
            let detail = format!("the forwarded call: {error}");
            Refused::from(Problem::new(ErrorCode::Internal, detail)).into_response()
        }
    };
    steer::carried_answer(response).await
}
