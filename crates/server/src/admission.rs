//! How much a node takes on at once.
//!
//! A flood must not cost the leader its leadership, so the edge takes a bounded number of calls and
//! of body bytes, and refuses the next one before it parses anything. A call that only waits (a
//! poll, a held answer) costs little: it gives its place back and takes one of the many held ones.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fermata_api::bounds::BODY_BYTES_MAX;
use fermata_api::headers::TIMEOUT_MS;
use fermata_api::problem::{ErrorCode, Problem};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::Config;
use crate::edge::Edge;
use crate::refused::Refused;

/// How long a body may take to arrive, in milliseconds.
const BODY_ARRIVES_MS_MAX: u64 = 30_000;
/// Most bytes of a refused body that are read before it is answered.
const DRAINED_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;
/// How long a refused body is read, in milliseconds.
const DRAINED_MS_MAX: u64 = 2_000;
/// The deadline of a call that names none, in milliseconds.
const DEADLINE_MS_DEFAULT: u64 = 5_000;
/// The longest deadline, in milliseconds: the longest hold and a little.
const DEADLINE_MS_MAX: u64 = 3_660_000;
/// What is kept of a named deadline so that the answer arrives within it: a twentieth, at most
/// this, in milliseconds.
const ON_ITS_WAY_MS_MAX: u64 = 100;

/// The places there are.
pub(crate) struct Admission {
    calls_max: usize,
    held_max: usize,
    calls: Arc<Semaphore>,
    held: Arc<Semaphore>,
    body_bytes: Arc<Semaphore>,
}

/// A call's place, and the room that its body takes.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Mutex<Taken>,
    held: Arc<Semaphore>,
}

/// Everything is given back when it is dropped.
#[derive(Debug, Default)]
struct Taken {
    #[expect(dead_code, reason = "kept to be dropped")]
    place: Option<OwnedSemaphorePermit>,
    body: Option<OwnedSemaphorePermit>,
}

impl Admission {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            calls_max: config.calls_max,
            held_max: config.held_max,
            calls: Arc::new(Semaphore::new(config.calls_max)),
            held: Arc::new(Semaphore::new(config.held_max)),
            body_bytes: Arc::new(Semaphore::new(config.body_bytes_max)),
        }
    }

    /// How many calls are being worked on, and how many are held.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let calls = self.calls_max - self.calls.available_permits();
        (calls, self.held_max - self.held.available_permits())
    }

    fn admit(&self) -> Result<Arc<Place>, Refused> {
        let place = Arc::clone(&self.calls)
            .try_acquire_owned()
            .map_err(|_| Refused::overloaded("this node has as many calls at hand as it takes"))?;
        let taken = Taken {
            place: Some(place),
            body: None,
        };
        Ok(Arc::new(Place {
            taken: Mutex::new(taken),
            held: Arc::clone(&self.held),
        }))
    }

    /// Reads a body and takes room for it as it comes.
    async fn read(&self, body: &mut Body, place: &Place) -> Result<Bytes, Refused> {
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let detail = format!("the body broke off: {error}");
                Problem::new(ErrorCode::InvalidRequest, detail)
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if read.len() + data.len() > BODY_BYTES_MAX {
                return Err(too_large().into());
            }
            let room = u32::try_from(data.len())
                .ok()
                .and_then(|bytes| {
                    Arc::clone(&self.body_bytes)
                        .try_acquire_many_owned(bytes)
                        .ok()
                })
                .ok_or_else(|| {
                    Refused::overloaded("this node has as many bytes at hand as it takes")
                })?;
            place.add_body(room);
            read.extend_from_slice(&data);
        }
        Ok(read.into())
    }
}

impl Place {
    /// The call waits from now on: it gives its place to another and its body's room back.
    pub(crate) fn hold(&self) -> Result<(), Refused> {
        let held = Arc::clone(&self.held)
            .try_acquire_owned()
            .map_err(|_| Refused::overloaded("this node holds as many answers as it can"))?;
        *self.lock() = Taken {
            place: Some(held),
            body: None,
        };
        Ok(())
    }

    fn add_body(&self, room: OwnedSemaphorePermit) {
        match &mut self.lock().body {
            Some(body) => body.merge(room),
            none => *none = Some(room),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        // Every change is one assignment, so a panic elsewhere leaves it whole.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until when a call is settled, one way or another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// The instant.
    pub(crate) at: Instant,
    /// Whether the client named it; else it says nothing about how long a poll may be held.
    pub(crate) is_given: bool,
}

impl Deadline {
    fn of(headers: &HeaderMap, now: Instant) -> Result<Self, Problem> {
        let Some(given) = headers.get(TIMEOUT_MS) else {
            return Ok(Self {
                at: now + Duration::from_millis(DEADLINE_MS_DEFAULT),
                is_given: false,
            });
        };
        let text = given.to_str().unwrap_or("");
        let given_ms: u64 = text.parse().map_err(|_| {
            let detail = format!("{TIMEOUT_MS} is {given:?}; allowed: whole milliseconds from 0");
            Problem::new(ErrorCode::InvalidRequest, detail).with_field(TIMEOUT_MS)
        })?;
        let time_ms = given_ms.min(DEADLINE_MS_MAX);
        let on_its_way_ms = (time_ms / 20).min(ON_ITS_WAY_MS_MAX);
        Ok(Self {
            at: now + Duration::from_millis(time_ms - on_its_way_ms),
            is_given: true,
        })
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// The layer around every call: a place, a deadline, and the whole body or a refusal.
pub(crate) async fn admit(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    let (mut parts, mut body) = request.into_parts();
    match admitted(&edge, &mut parts, &mut body).await {
        Ok(body) => next.run(Request::from_parts(parts, body.into())).await,
        Err(refused) => {
            drain(&mut body).await;
            refused.into_response()
        }
    }
}

async fn admitted(edge: &Edge, parts: &mut Parts, body: &mut Body) -> Result<Bytes, Refused> {
    let deadline = Deadline::of(&parts.headers, Instant::now())?;
    let place = edge.admission.admit()?;
    let announced = parts.headers.get(CONTENT_LENGTH);
    let announced: Option<u64> = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        return Err(too_large().into());
    }
    let read = edge.admission.read(body, &place);
    let body = timeout(Duration::from_millis(BODY_ARRIVES_MS_MAX), read)
        .await
        .map_err(|_| {
            let detail = format!("the body did not arrive within {BODY_ARRIVES_MS_MAX} ms");
            Problem::new(ErrorCode::InvalidRequest, detail)
        })??;
    parts.extensions.insert(deadline);
    parts.extensions.insert(place);
    Ok(body)
}

/// Reads a refused body to its end, within bounds, and keeps nothing: a client that is still
/// sending when its connection is closed never sees the refusal.
async fn drain(body: &mut Body) {
    let read = async {
        let mut left = DRAINED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // Whoever sends more, or more slowly, is cut off.
    let _ = timeout(Duration::from_millis(DRAINED_MS_MAX), read).await;
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {BODY_BYTES_MAX} bytes, which is the most");
    Problem::new(ErrorCode::BodyTooLarge, detail)
}
