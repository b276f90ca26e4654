//! One call: which node, how long, how often, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fermata_api::headers as names;
use fermata_api::problem::{ErrorCode, Problem};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;

use crate::error::{Cause, ClientError};
use crate::nodes::Nodes;

/// Most bytes of an answer that the client reads.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most bytes of an answer that is quoted in an error.
const QUOTE_BYTES_MAX: usize = 256;
/// The first pause before a repetition; it doubles from one to the next.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause before a repetition. A new leader takes over within a second, and clients
/// that wait for it should not sleep through much of it.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Most renewals of leases at once. They do not wait behind calls that are held, because a lease
/// would lapse meanwhile.
const RENEWALS_MAX: usize = 32;
/// How long an unused connection is kept.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How a client goes about its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// How long a call may take in all, repetitions included. Held answers (`wait`) have theirs
    /// on top.
    pub deadline: Duration,
    /// How long one node has for one answer before another is asked.
    pub answer_timeout: Duration,
    /// How long one node has to accept a connection.
    pub connect_timeout: Duration,
    /// Most calls at once, and so most connections; further ones wait for their turn. A permit that
    /// is waited for takes one. Renewals of permits go beside them, a few at once.
    pub connections_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(1),
            connections_max: 256,
        }
    }
}

/// A handle to a cluster. Clones share connections and what is known of the leader.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
    nodes: Nodes,
    options: ClientOptions,
    turns: Semaphore,
    renewal_turns: Semaphore,
}

/// Whether a call whose outcome is unknown may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The second has no effect of its own.
    Harmless,
    /// The second could act on what happened since the first.
    OnceOnly,
}

/// A call, ready to be sent to any node.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) repeat: Repeat,
    /// How long the node may hold the answer because the call asks for it.
    pub(crate) hold: Duration,
    /// Whether a lease hangs on it.
    pub(crate) is_renewal: bool,
}

/// An answer that settles the call, whatever it says.
#[derive(Debug)]
pub(crate) struct Answer {
    url: String,
    status: StatusCode,
    body: Bytes,
}

/// One attempt that did not settle the call.
struct Setback {
    cause: Cause,
    /// Whether the request may have been acted upon all the same.
    is_unknown: bool,
}

impl Call {
    pub(crate) fn new(method: Method, target: impl Into<String>) -> Self {
        Self {
            method,
            target: target.into(),
            body: None,
            repeat: Repeat::Harmless,
            hold: Duration::ZERO,
            is_renewal: false,
        }
    }

    pub(crate) fn json<T: Serialize>(mut self, body: &T) -> Result<Self, ClientError> {
        let json = serde_json::to_vec(body)
            .map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
        self.body = Some(Bytes::from(json));
        Ok(self)
    }

    pub(crate) fn once_only(mut self) -> Self {
        self.repeat = Repeat::OnceOnly;
        self
    }

    pub(crate) fn renewal(mut self) -> Self {
        self.is_renewal = true;
        self
    }

    pub(crate) fn held(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }
}

impl Answer {
    /// The answer's value, or its refusal.
    pub(crate) fn value<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        self.accepted()?;
        serde_json::from_slice(&self.body).map_err(|error| self.unexpected(&error))
    }

    /// Only whether it was done.
    pub(crate) fn accepted(&self) -> Result<(), ClientError> {
        if self.status.is_success() {
            return Ok(());
        }
        match serde_json::from_slice::<Problem>(&self.body) {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(error) => Err(self.unexpected(&error)),
        }
    }

    fn unexpected(&self, error: &serde_json::Error) -> ClientError {
        let start = &self.body[..self.body.len().min(QUOTE_BYTES_MAX)];
        ClientError::Unexpected {
            url: self.url.clone(),
            status: self.status.as_u16(),
            detail: format!("{error}, in {:?}", String::from_utf8_lossy(start)),
        }
    }
}

impl Client {
    /// A client for the cluster that has these nodes; some of them are enough. Nothing is sent
    /// before the first call.
    ///
    /// # Errors
    /// A URL is not `http://HOST:PORT`, or there is none.
    pub fn connect<I, S>(urls: I) -> Result<Self, ClientError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        Self::connect_with(urls, ClientOptions::default())
    }

    /// As [`Client::connect`], with options.
    ///
    /// # Errors
    /// A URL is not `http://HOST:PORT`, or there is none.
    pub fn connect_with<I, S>(urls: I, options: ClientOptions) -> Result<Self, ClientError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(options.connect_timeout));
        connector.set_nodelay(true);
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(options.connections_max)
            .build(connector);
        Ok(Self {
            shared: Arc::new(Shared {
                http,
                nodes: Nodes::new(urls)?,
                options,
                turns: Semaphore::new(options.connections_max),
                renewal_turns: Semaphore::new(RENEWALS_MAX),
            }),
        })
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> ClientOptions {
        self.shared.options
    }

    /// Sends the call until an answer settles it or the deadline ends.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, ClientError> {
        let deadline = self.shared.options.deadline + call.hold;
        let ends = Instant::now() + deadline;
        let mut pause = PAUSE_MIN;
        let mut is_unknown = false;
        loop {
            let left = ends.saturating_duration_since(Instant::now());
            let setback = match self.attempt(call, left).await {
                Ok(answer) => return Ok(answer),
                Err(setback) => setback,
            };
            is_unknown |= setback.is_unknown;
            let is_over =
                Instant::now() + pause >= ends || (is_unknown && call.repeat == Repeat::OnceOnly);
            let cause = setback.cause;
            match (is_over, is_unknown) {
                (true, true) => return Err(ClientError::Unknown { deadline, cause }),
                (true, false) => return Err(ClientError::Unavailable { deadline, cause }),
                (false, _) => debug!(%cause, target = call.target, "repeating a call"),
            }
            sleep(varied(pause)).await;
            pause = longer(pause);
        }
    }

    /// Sends the call once, to the node that is believed to lead.
    pub(crate) async fn send_once(
        &self,
        call: &Call,
        answer_timeout: Duration,
    ) -> Result<Answer, ClientError> {
        let deadline = answer_timeout + call.hold;
        self.attempt(call, deadline).await.map_err(|setback| {
            let cause = setback.cause;
            if setback.is_unknown {
                ClientError::Unknown { deadline, cause }
            } else {
                ClientError::Unavailable { deadline, cause }
            }
        })
    }

    async fn attempt(&self, call: &Call, left: Duration) -> Result<Answer, Setback> {
        let shared = &*self.shared;
        let ends = Instant::now() + left;
        let url = shared.nodes.target();
        let turns = if call.is_renewal {
            &shared.renewal_turns
        } else {
            &shared.turns
        };
        let Ok(Ok(_turn)) = timeout_at(ends, turns.acquire()).await else {
            return Err(Setback {
                cause: Cause::Busy,
                is_unknown: false,
            });
        };
        let left = ends.saturating_duration_since(Instant::now());
        let time = left.min(shared.options.answer_timeout + call.hold);
        let result = match timeout(time, self.exchange(call, &url, time)).await {
            Ok(result) => result,
            Err(_) => Err(Setback {
                cause: Cause::Timeout {
                    url: url.clone(),
                    timeout: time,
                },
                is_unknown: true,
            }),
        };
        // A node that answered 503 has given its hint before it counts as failed: see `exchange`.
        if let Err(setback) = &result
            && !matches!(setback.cause, Cause::Answered { .. })
        {
            shared.nodes.failed(&url);
        }
        result
    }

    async fn exchange(&self, call: &Call, url: &str, time: Duration) -> Result<Answer, Setback> {
        let shared = &*self.shared;
        let request = request(call, url, time);
        let response = shared.http.request(request).await.map_err(|source| {
            let url = url.to_owned();
            if source.is_connect() {
                Setback {
                    cause: Cause::Connect { url, source },
                    is_unknown: false,
                }
            } else {
                let source = source.into();
                Setback {
                    cause: Cause::Broken { url, source },
                    is_unknown: true,
                }
            }
        })?;
        let leader = response
            .headers()
            .get(names::LEADER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|source| Setback {
                cause: Cause::Broken {
                    url: url.to_owned(),
                    source,
                },
                is_unknown: true,
            })?
            .to_bytes();
        let answer = Answer {
            url: url.to_owned(),
            status,
            body,
        };
        let setback = setback(&answer);
        if setback.is_some() {
            shared.nodes.failed(url);
        }
        match leader {
            // The node that just failed is not believed to lead, whoever says so.
            Some(leader) if setback.is_none() || leader != url => shared.nodes.hinted(&leader),
            _ => {}
        }
        setback.map_or(Ok(answer), Err)
    }
}

fn request(call: &Call, url: &str, time: Duration) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(call.body.clone().unwrap_or_default()));
    *request.method_mut() = call.method.clone();
    let uri = format!("{url}{}", call.target);
    #[expect(
        clippy::expect_used,
        reason = "base URL and path were parsed or percent-encoded before"
    )]
    let uri = uri.parse().expect("a checked base and an encoded path");
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    let time_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    headers.insert(names::TIMEOUT_MS, time_ms.into());
    if call.body.is_some() {
        let json = http::HeaderValue::from_static(names::JSON);
        headers.insert(header::CONTENT_TYPE, json);
    }
    request
}

/// Whether the answer leaves the call unsettled, so that another node or moment may do it.
fn setback(answer: &Answer) -> Option<Setback> {
    if !answer.status.is_server_error() {
        return None;
    }
    let problem = serde_json::from_slice::<Problem>(&answer.body).ok();
    let is_unknown = match problem.as_ref().map(|problem| problem.code) {
        Some(
            ErrorCode::NotLeader
            | ErrorCode::NoLeader
            | ErrorCode::Overloaded
            | ErrorCode::StartActionPending,
        ) => false,
        // A 503 that the contract does not know, or a fault: it may have come after the commit.
        Some(ErrorCode::UnknownOutcome | ErrorCode::Internal) | None => true,
        // The cluster's own no: `no_server`, `cluster_full`.
        Some(_) => return None,
    };
    let cause = Cause::Answered {
        url: answer.url.clone(),
        status: answer.status.as_u16(),
        detail: problem.map_or_else(String::new, |problem| problem.to_string()),
    };
    Some(Setback { cause, is_unknown })
}

/// A pause between the half and the whole of it, so that clients do not come back together.
pub(crate) fn varied(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..=1.0))
}

/// The next longer pause.
pub(crate) fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
}
