//! A node of one's own: it takes requests over real HTTP and answers what the test says.

#![allow(
    clippy::expect_used,
    dead_code,
    reason = "the harness is shared by test binaries, and its faults are the tests' faults"
)]

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The deadline of every wait in the tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Most requests that wait for the test to look at them; more wait on their connections.
const ASKED_MAX: usize = 1_024;

/// Waits for a condition, not for a time.
pub(crate) async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, happens)
        .await
        .unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
}

/// A request that waits for the test's answer.
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
    reply: oneshot::Sender<Reply>,
}

struct Reply {
    status: u16,
    leader: Option<String>,
    body: Vec<u8>,
}

impl Asked {
    pub(crate) fn answer(self, status: u16, body: &Value) {
        self.send(status, None, body.to_string().into_bytes());
    }

    pub(crate) fn answer_with_leader(self, status: u16, leader: &str, body: &Value) {
        self.send(
            status,
            Some(leader.to_owned()),
            body.to_string().into_bytes(),
        );
    }

    pub(crate) fn answer_text(self, status: u16, body: &str) {
        self.send(status, None, body.as_bytes().to_vec());
    }

    /// Breaks the connection after the request was taken.
    pub(crate) fn hang_up(self) {}

    fn send(self, status: u16, leader: Option<String>, body: Vec<u8>) {
        // The client may have gone, which is what some tests want.
        let _ = self.reply.send(Reply {
            status,
            leader,
            body,
        });
    }
}

pub(crate) struct FakeNode {
    pub(crate) url: String,
    asked: mpsc::Receiver<Asked>,
    /// What came while the test waited for something else.
    kept: VecDeque<Asked>,
    server: JoinHandle<()>,
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeNode {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (sender, asked) = mpsc::channel(ASKED_MAX);
        let server = tokio::spawn(serve(listener, sender));
        Self {
            url: format!("http://{address}"),
            asked,
            kept: VecDeque::new(),
            server,
        }
    }

    /// The next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        self.asked_for("a request", |_| true).await
    }

    /// The next request of this kind; others are kept for later.
    pub(crate) async fn asked_for(&mut self, what: &str, is_it: impl Fn(&Asked) -> bool) -> Asked {
        if let Some(at) = self.kept.iter().position(&is_it) {
            return self.kept.remove(at).expect("found there");
        }
        let found = async {
            loop {
                let asked = self.asked.recv().await.expect("the node runs");
                if is_it(&asked) {
                    return asked;
                }
                self.kept.push_back(asked);
            }
        };
        soon(what, found).await
    }

    /// Whether no request is there.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.kept.is_empty() && self.asked.try_recv().is_err()
    }
}

/// A URL at which nobody listens.
pub(crate) async fn dead_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    format!("http://{address}")
}

async fn serve(listener: TcpListener, sender: mpsc::Sender<Asked>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("accepts");
        let sender = sender.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| exchange(request, sender.clone()));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // A client that goes away is no fault of the harness.
            let _ = connection.await;
        });
    }
}

async fn exchange(
    request: http::Request<Incoming>,
    sender: mpsc::Sender<Asked>,
) -> Result<http::Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (reply, answered) = oneshot::channel();
    let asked = Asked {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        reply,
    };
    sender.send(asked).await?;
    // Without a reply the error closes the connection.
    let reply = answered.await?;
    let mut response = http::Response::builder().status(reply.status);
    if let Some(leader) = reply.leader {
        response = response.header("Fermata-Leader", leader);
    }
    Ok(response.body(Full::from(reply.body))?)
}
