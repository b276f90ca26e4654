//! Real members in temporary folders, each behind its edge on a port of its own, and a plain HTTP
//! client that shows what came back.

#![allow(dead_code, reason = "each test binary uses some of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a harness fails the test that it serves"
)]

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::time::Duration;

use axum::body::{Body, Bytes};
use fermata_server::Config;
use fermata_server::member::{self, NodeId, Replica, Start, Timing, Zone};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

pub(crate) type HttpClient = Client<HttpConnector, Body>;

/// How long a test waits for what must come to pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A client of its own.
pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

/// Sends a request and reads the answer whole.
pub(crate) async fn request(
    client: &HttpClient,
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.into()).unwrap();
    let exchange = async {
        let (parts, body) = client.request(request).await.unwrap().into_parts();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            bytes: body.collect().await.unwrap().to_bytes(),
        }
    };
    let answer = timeout(PATIENCE, exchange).await;
    answer.unwrap_or_else(|_| panic!("no answer from {url}"))
}

/// A member and its edge.
pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) url: String,
    client: HttpClient,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    _folder: TempDir,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    /// The body as JSON; null where there is none.
    pub(crate) fn json(&self) -> Value {
        if self.bytes.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error} in {:?}", String::from_utf8_lossy(&self.bytes)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The status, and where it is none of success the code.
    pub(crate) fn outcome(&self) -> (u16, String) {
        let code = match self.status {
            200..300 => String::new(),
            _ => self.json()["code"].as_str().unwrap_or("?").to_owned(),
        };
        (self.status, code)
    }
}

/// A cluster of one, which leads.
pub(crate) async fn alone() -> Node {
    alone_with(Config::default()).await
}

pub(crate) async fn alone_with(config: Config) -> Node {
    let node = Node::start(1, Start::Bootstrap, config).await;
    node.until_led().await;
    node
}

/// One cluster of three at a time: more of them on a small machine would take each other the
/// time for their heartbeats.
static ROOM_FOR_THREE: Semaphore = Semaphore::const_new(1);

/// Three nodes of one cluster.
pub(crate) struct Three {
    nodes: [Node; 3],
    _room: SemaphorePermit<'static>,
}

impl Deref for Three {
    type Target = [Node; 3];

    fn deref(&self) -> &[Node; 3] {
        &self.nodes
    }
}

/// A cluster of three; the first leads, until an election.
pub(crate) async fn three() -> Three {
    let room = ROOM_FOR_THREE.acquire().await.unwrap();
    let first = alone().await;
    let peers = vec![first.replica.peer_address().to_string()];
    let join = || Start::Join {
        peers: peers.clone(),
    };
    let second = Node::start(2, join(), Config::default()).await;
    let third = Node::start(3, join(), Config::default()).await;
    let nodes = [first, second, third];
    until("three voters", || async {
        let status = nodes[0].replica.status();
        let voters = status.members.iter().filter(|member| member.voter).count();
        (voters == 3).then_some(())
    })
    .await;
    for node in &nodes {
        node.until_led().await;
    }
    Three { nodes, _room: room }
}

/// Looks again and again until there is something, or fails after [`PATIENCE`].
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "this did not come to pass: {what}");
        sleep(LOOK_AGAIN).await;
    }
}

impl Node {
    pub(crate) async fn start(node: NodeId, start: Start, config: Config) -> Self {
        Self::start_with(Handle::current(), node, start, config).await
    }

    /// A cluster of one whose member has another runtime than its edge.
    pub(crate) async fn start_on(members: Handle) -> Self {
        Self::start_with(members, 1, Start::Bootstrap, Config::default()).await
    }

    async fn start_with(members: Handle, node: NodeId, start: Start, config: Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let opening = Replica::open(member::Config {
            node,
            data: folder.path().to_owned(),
            peer_listen: any,
            peer_advertise: any.to_string(),
            client_url: url.clone(),
            time_zone: Zone::named("UTC").unwrap(),
            timing: Timing::Normal,
            start,
            format_max: member::FORMAT_LATEST,
        });
        let replica = members.spawn(opening).await.unwrap().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let serving = fermata_server::serve(listener, replica.clone(), config, shutdown);
        Self {
            replica,
            url,
            client: client(),
            stop: Some(stop),
            served: tokio::spawn(async move { serving.await.unwrap() }),
            _folder: folder,
        }
    }

    /// Waits until this node knows who leads.
    pub(crate) async fn until_led(&self) {
        until("a leader", || async {
            let answer = self.get("/readyz").await;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let url = format!("{}{target}", self.url);
        request(&self.client, method, &url, headers, body).await
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send(Method::GET, target, &[], Body::empty()).await
    }

    pub(crate) async fn delete(&self, target: &str) -> Answer {
        self.send(Method::DELETE, target, &[], Body::empty()).await
    }

    pub(crate) async fn put(&self, target: &str, body: Value) -> Answer {
        self.json(Method::PUT, target, &[], body).await
    }

    pub(crate) async fn post(&self, target: &str, body: Value) -> Answer {
        self.json(Method::POST, target, &[], body).await
    }

    pub(crate) async fn json(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        self.send(method, target, &all, body.to_string()).await
    }

    /// What a poll of the worker of server `s1` is answered: of its incarnation 1, and at once,
    /// unless the body says otherwise.
    pub(crate) async fn poll(&self, mut body: Value) -> Value {
        for (field, value) in [("incarnation", 1), ("wait_ms", 0)] {
            if body.get(field).is_none() {
                body[field] = value.into();
            }
        }
        let answer = self.post("/v1/servers/s1/poll", body).await;
        assert_eq!(answer.status, 200, "{:?}", answer.json());
        answer.json()
    }

    /// A call that is harmless to repeat (S40), sent until its outcome is known: elections happen
    /// at any time, on a busy machine above all.
    pub(crate) async fn post_until_known(&self, target: &str, body: Value) -> Answer {
        self.until_known(Method::POST, target, body).await
    }

    /// As [`Node::post_until_known`], for any method.
    pub(crate) async fn until_known(&self, method: Method, target: &str, body: Value) -> Answer {
        until(target, || async {
            let answer = self.json(method.clone(), target, &[], body.clone()).await;
            let code = answer.outcome().1;
            let is_known = code != "unknown_outcome" && code != "no_leader";
            is_known.then_some(answer)
        })
        .await
    }

    /// What `path` answers once it fulfils the condition.
    pub(crate) async fn until(&self, path: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        until(path, || async {
            let answer = self.get(path).await;
            let json = answer.json();
            (answer.status == 200 && is_met(&json)).then_some(json)
        })
        .await
    }

    /// Waits until the node holds so many polls and answers.
    pub(crate) async fn until_held(&self, count: usize) {
        let line = format!("\nfermata_edge_held {count}\n");
        until(&line, || async {
            let metrics = self.get("/metrics").await;
            let text = String::from_utf8_lossy(&metrics.bytes);
            text.contains(&line).then_some(())
        })
        .await;
    }

    /// Ends the edge; the member goes on.
    pub(crate) async fn stop_serving(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        timeout(PATIENCE, &mut self.served).await.unwrap().unwrap();
    }
}
