//! Where a call is done: here, at the leader, or nowhere.
//!
//! Every call of the pool passes [`steer`]. On the leader it is done here, a read (a dry run is one)
//! once a majority has confirmed that this still is the leader. On a follower it is forwarded, or answered with a
//! 307 where the client asks for that. While nobody leads it waits, within its deadline.
//!
//! A call is tried again only if it certainly changed nothing: this node does not lead, or the
//! leader could not be reached. Once it may have been done, the answer is `unknown_outcome`, and
//! what to do is the client's to decide (F06).
//!
//! # Caveats
//!
//! - A forwarded call is never forwarded again: two nodes that take each other for the leader would
//!   send it to and fro.
//! - A stale read says how old the node's copy is by the stamp of the last entry that it applied.
//!   Where nothing happens no entry is written, so the copy may be younger than it says.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fermata_api::bounds::POLL_WAIT_MS_MAX;
use fermata_api::headers;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::routes;
use fermata_replica::{ForwardError, Leadership, Member};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::actor::Actor;
use crate::admission::{Deadline, Place};
use crate::edge::Edge;
use crate::refused::{Refused, Unled};
use crate::wire::{Answer, Call};

/// Between two looks at who leads, where no change is told, in milliseconds.
const LOOK_AGAIN_MS: u64 = 25;
/// The headers of a call that go with it.
const CARRIED: [HeaderName; 3] = [
    CONTENT_TYPE,
    HeaderName::from_static(headers::IDEMPOTENCY_KEY),
    HeaderName::from_static(headers::IF_MATCH),
];

/// On a call that another node forwarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded;

/// Whether a call is answered as soon as it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It is.
    Prompt,
    /// The leader may hold the answer until there is something to say.
    Held,
}

/// What one attempt came to.
enum Attempt {
    Settled(Response),
    /// Nothing was done; it may be tried again.
    Again(Response),
}

/// The layer around every call of the pool.
pub(crate) async fn steer(
    State((edge, manner)): State<(Edge, Manner)>,
    Extension(deadline): Extension<Deadline>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    if parts.method.is_safe() && flag(&parts.uri, "consistency", "stale") {
        let mut response = next.run(Request::from_parts(parts, body)).await;
        edge.show_age(response.headers_mut());
        return response;
    }
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let detail = format!("the body broke off: {error}");
            return Refused::from(Problem::new(ErrorCode::InvalidRequest, detail)).into_response();
        }
    };
    if manner == Manner::Held {
        detach(&mut parts);
    }
    let steered = Steered {
        edge: &edge,
        manner,
        deadline,
        is_read: parts.method.is_safe() || is_dry_run(&parts.uri),
        is_forwarded: parts.extensions.get::<Forwarded>().is_some(),
        call: Call {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            headers: HeaderMap::new(),
            body,
        },
        parts,
        next,
    };
    steered.run().await
}

struct Steered<'a> {
    edge: &'a Edge,
    manner: Manner,
    deadline: Deadline,
    is_read: bool,
    is_forwarded: bool,
    call: Call,
    parts: http::request::Parts,
    next: Next,
}

impl Steered<'_> {
    async fn run(mut self) -> Response {
        let mut leadership = self.edge.replica.leadership();
        loop {
            let now = leadership.borrow_and_update().clone();
            let unled = match now {
                Leadership::Leader { .. } => match self.lead().await {
                    Attempt::Settled(response) => return response,
                    Attempt::Again(response) => response,
                },
                Leadership::Follower { .. } | Leadership::Unknown if self.is_forwarded => {
                    return Refused::unled("this node does not lead").into_response();
                }
                Leadership::Follower { leader } if self.wants_redirect() => {
                    return redirect(&leader, &self.call.uri);
                }
                Leadership::Follower { leader } => match self.forward(&leader).await {
                    Attempt::Settled(response) => return response,
                    Attempt::Again(response) => response,
                },
                Leadership::Unknown => {
                    Refused::unled("no node leads, or none that a majority confirms")
                        .into_response()
                }
            };
            let look_again = Instant::now() + Duration::from_millis(LOOK_AGAIN_MS);
            if self.is_forwarded || look_again >= self.deadline.at {
                return unled;
            }
            tokio::select! {
                changed = leadership.changed() => if changed.is_err() {
                    return unled;
                },
                () = sleep_until(look_again) => {}
            }
        }
    }

    fn wants_redirect(&self) -> bool {
        flag(&self.call.uri, "redirect", "true")
    }

    /// Does the call on this node.
    async fn lead(&mut self) -> Attempt {
        if self.is_read {
            let confirmed = timeout_at(self.deadline.at, self.edge.replica.confirm()).await;
            let refused = match confirmed {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(unconfirmed(&Refused::from(error))),
                Err(_) => Some(Refused::unled("no majority confirmed the leader in time")),
            };
            if let Some(refused) = refused {
                return Attempt::Again(refused.into_response());
            }
        }
        let body = Body::from(self.call.body.clone());
        let request = Request::from_parts(self.parts.clone(), body);
        let mut response = self.next.clone().run(request).await;
        self.edge.show_applied(response.headers_mut());
        if response.extensions().get::<Unled>().is_some() {
            Attempt::Again(response)
        } else {
            Attempt::Settled(response)
        }
    }

    /// Has the leader do the call.
    async fn forward(&mut self, leader: &Member) -> Attempt {
        let deadline = match self.manner {
            Manner::Held if !self.deadline.is_given => {
                self.deadline.left() + Duration::from_millis(POLL_WAIT_MS_MAX)
            }
            Manner::Held | Manner::Prompt => self.deadline.left(),
        };
        if self.manner == Manner::Held
            && let Some(place) = self.parts.extensions.get::<std::sync::Arc<Place>>()
            && let Err(refused) = place.hold()
        {
            return Attempt::Settled(refused.into_response());
        }
        self.call.headers = carried(&self.parts.headers);
        if let Some(actor) = self.parts.extensions.get::<Actor>() {
            actor.write(&mut self.call.headers);
        }
        if self.manner == Manner::Prompt || self.deadline.is_given {
            let left_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
            let value = HeaderValue::from(left_ms);
            self.call.headers.insert(headers::TIMEOUT_MS, value);
        }
        let answer = self
            .edge
            .replica
            .forward(self.call.encode(), deadline)
            .await;
        let response = match answer {
            Ok(bytes) => match Answer::decode(&bytes) {
                Ok(answer) if answer.is_unled => return Attempt::Again(shown(answer, leader)),
                Ok(answer) => shown(answer, leader),
                Err(error) => {
                    tracing::error!(%error, leader = leader.node, "the leader's answer is malformed");
                    Refused::unknown().into_response()
                }
            },
            Err(ForwardError::Unanswered) if !self.is_read => Refused::unknown().into_response(),
            Err(error @ ForwardError::TooLarge { .. }) => {
                Refused::from(Problem::new(ErrorCode::BodyTooLarge, error.to_string()))
                    .into_response()
            }
            Err(
                error @ (ForwardError::NoLeader
                | ForwardError::Here
                | ForwardError::Unreachable(_)
                | ForwardError::Unanswered
                | ForwardError::Overloaded),
            ) => {
                return Attempt::Again(Refused::unled(&error.to_string()).into_response());
            }
        };
        Attempt::Settled(response)
    }
}

/// Keeps of a head what the call needs, copied out of the buffer that its connection was read into:
/// whoever keeps a word of it keeps those 8 KiB, and a call that is held keeps its head for long.
fn detach(parts: &mut http::request::Parts) {
    parts.headers = carried(&parts.headers);
    for value in parts.headers.values_mut() {
        // What was a value is one.
        if let Ok(copy) = HeaderValue::from_bytes(value.as_bytes()) {
            *value = copy;
        }
    }
    if let Ok(copy) = Uri::try_from(parts.uri.to_string()) {
        parts.uri = copy;
    }
}

/// A read that was not confirmed changed nothing, whatever became of the question.
fn unconfirmed(refused: &Refused) -> Refused {
    Refused::unled(&refused.problem.detail)
}

fn carried(given: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in CARRIED {
        for value in given.get_all(&name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// The leader's answer with where it came from.
fn shown(answer: Answer, leader: &Member) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    if answer.is_unled {
        response.extensions_mut().insert(Unled);
    } else if let Ok(url) = HeaderValue::from_str(&leader.client_url) {
        response.headers_mut().insert(headers::LEADER, url);
    }
    response
}

fn redirect(leader: &Member, uri: &Uri) -> Response {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let url = format!("{}{target}", leader.client_url.trim_end_matches('/'));
    let (Ok(location), Ok(leader)) = (
        HeaderValue::from_str(&url),
        HeaderValue::from_str(&leader.client_url),
    ) else {
        tracing::error!(leader = leader.node, "the leader's URL is no header value");
        return Refused::unled("the leader has no URL to go to").into_response();
    };
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    response.headers_mut().insert(LOCATION, location);
    response.headers_mut().insert(headers::LEADER, leader);
    response
}

/// Whether the call is a launch that only asks.
fn is_dry_run(uri: &Uri) -> bool {
    uri.path() == routes::JOBS && flag(uri, "dry_run", "true")
}

/// Whether the query says `name=value`. The call itself judges the rest of it.
fn flag(uri: &Uri, name: &str, value: &str) -> bool {
    let query = uri.query().unwrap_or("").as_bytes();
    form_urlencoded::parse(query).any(|(key, given)| key == name && given == value)
}

/// An answer of this node as it goes back to the node that forwarded the call.
pub(crate) async fn carried_answer(response: Response) -> Vec<u8> {
    let (mut parts, body) = response.into_parts();
    // The node that holds the client's connection writes it anew.
    parts.headers.remove(CONTENT_LENGTH);
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            tracing::error!(%error, "an answer broke off");
            return Vec::new();
        }
    };
    Answer {
        status: parts.status,
        is_unled: parts.extensions.get::<Unled>().is_some(),
        headers: parts.headers,
        body,
    }
    .encode()
}
