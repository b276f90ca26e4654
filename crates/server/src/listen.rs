//! Connections: accepted up to a bound, served as HTTP/1.1, and ended in order.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::util::MapRequest;

use crate::ServeError;
use crate::actor::Actor;

/// How long the head of a call may take to arrive, in milliseconds.
const HEAD_ARRIVES_MS_MAX: u64 = 30_000;
/// Most bytes of a call's head: its path, query and headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long calls at hand may take after the shutdown, in milliseconds.
const LAST_CALLS_MS_MAX: u64 = 5_000;
/// The pause after the system could not give a connection, in milliseconds.
const ACCEPT_AGAIN_MS: u64 = 50;

/// Serves until `shutdown` resolves; tells `close` then, and waits for the calls at hand.
pub(crate) async fn listen(
    listener: TcpListener,
    router: Router,
    connections_max: usize,
    shutdown: impl Future<Output = ()> + Send,
    close: watch::Sender<bool>,
) -> Result<(), ServeError> {
    let places = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    let served = loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break Ok(()),
            accepted = accept(&listener, &places) => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok(Some((stream, from, place))) => {
                let actor = Actor::at(from.ip());
                let connection =
                    connection(stream, router.clone(), actor, close.subscribe(), place);
                connections.spawn(connection);
            }
            Ok(None) => {}
            Err(error) => break Err(error),
        }
    };
    drop(listener);
    close.send_replace(true);
    let last_calls = async { while connections.join_next().await.is_some() {} };
    let ended = timeout(Duration::from_millis(LAST_CALLS_MS_MAX), last_calls).await;
    if ended.is_err() {
        tracing::warn!(left = connections.len(), "calls did not end in time");
    }
    served
}

/// A connection with its place; none where it was gone again or the system has no room.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Result<Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)>, ServeError> {
    let Ok(place) = Arc::clone(places).acquire_owned().await else {
        return Ok(None);
    };
    match listener.accept().await {
        Ok((stream, from)) => Ok(Some((stream, from, place))),
        Err(error) if is_for_good(&error) => Err(ServeError::Accept(error)),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            sleep(Duration::from_millis(ACCEPT_AGAIN_MS)).await;
            Ok(None)
        }
    }
}

/// Whether the socket itself is broken: not the peer, and not for want of descriptors or memory.
fn is_for_good(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::NotConnected
    )
}

async fn connection(
    stream: TcpStream,
    router: Router,
    actor: Actor,
    mut closing: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection is gone");
        return;
    }
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_ARRIVES_MS_MAX))
        .max_buf_size(HEAD_BYTES_MAX);
    let of_actor = MapRequest::new(router, move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(actor.clone());
        request
    });
    let service = TowerToHyperService::new(of_actor);
    let mut served = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
    let closed = async move {
        // A sender that is gone says the same as one that says so.
        let _ = closing.wait_for(|closing| *closing).await.map(|_| ());
    };
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = closed => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        // Whoever hung up does not hear of it.
        tracing::debug!(%error, "a connection broke off");
    }
}
