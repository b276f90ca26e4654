//! Held answers: `wait=start` and `wait=end`.
//!
//! A held answer is bound to the job, not to the request. The launch is done first, wherever the
//! leader is; then the node that holds the client's connection watches its *own* copy, from the
//! log index on that the launch was answered with. So the answer outlives a change of leader, and
//! the leader is not burdened with those who wait on other nodes.
//!
//! # Caveats
//!
//! - A node that is cut off sees nothing happen: its answers end with their timeout, and say how
//!   the job stood as far as the node knows (202).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fermata_api::bounds::WAIT_S_MAX;
use fermata_api::headers::APPLIED_INDEX;
use fermata_api::jobs::{
    BatchAnswer, JobQuery, JobState, JobView, LaunchQuery, LaunchResult, Wait,
};
use fermata_api::problem::{ErrorCode, Problem};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::admission::{Deadline, Place};
use crate::calls::jobs;
use crate::convert::outward::{self, Detail};
use crate::edge::Edge;
use crate::input;
use crate::refused::{self, Refused};
use crate::steer::Forwarded;

/// How long an answer is held where the call does not say, in seconds.
const WAIT_S_DEFAULT: u64 = 30;

/// How long and until what an answer is held.
#[derive(Clone, Copy)]
struct Hold {
    wait: Wait,
    until: Instant,
}

/// The layer around launches and looks at a job.
pub(crate) async fn hold(State(edge): State<Edge>, mut request: Request, next: Next) -> Response {
    // Whoever forwarded the call holds the answer. One without a body is not worth holding.
    let is_forwarded = request.extensions().get::<Forwarded>().is_some();
    if is_forwarded || request.method() == Method::HEAD {
        return next.run(request).await;
    }
    let mut hold = match asked(&mut request) {
        Ok(Some(hold)) => hold,
        Ok(None) => return next.run(request).await,
        Err(problem) => return Refused::from(problem).into_response(),
    };
    let place = request.extensions().get::<Arc<Place>>().cloned();
    let is_look = request.method() == Method::GET;
    let answered = next.run(request).await;
    // Kept to the end: that is what bounds how many are held.
    if let Some(place) = &place
        && let Err(refused) = place.hold()
    {
        // What was launched stays launched: it is answered as if its time had ended.
        tracing::debug!(problem = %refused.problem, "an answer is not held");
        hold.until = Instant::now();
    }
    let (parts, body) = answered.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Refused::unknown().into_response(),
    };
    let mut held = match (is_look, parts.status) {
        (true, StatusCode::OK) => edge.hold_look(hold, &parts.headers, &body).await,
        (false, StatusCode::CREATED) => edge.hold_launch(hold, &parts.headers, &body).await,
        (false, StatusCode::OK) => edge.hold_batch(hold, &parts.headers, &body).await,
        _ => return Response::from_parts(parts, body.into()),
    };
    // Who leads, and what was known; the job's own headers are written anew.
    for (name, value) in &parts.headers {
        if name.as_str().starts_with("fermata-") {
            held.headers_mut().insert(name.clone(), value.clone());
        }
    }
    held
}

/// What the query asks for. The launch itself has no longer than the answer is held.
fn asked(request: &mut Request) -> Result<Option<Hold>, Problem> {
    let (wait, timeout_s) = if request.method() == Method::GET {
        let query: JobQuery = input::query(request.uri())?;
        (query.wait, query.timeout_s)
    } else {
        let query: LaunchQuery = input::query(request.uri())?;
        (query.wait, query.timeout_s)
    };
    let Some(wait) = wait else {
        return Ok(None);
    };
    let timeout_s = timeout_s.unwrap_or(WAIT_S_DEFAULT);
    if timeout_s > WAIT_S_MAX {
        let detail = format!("timeout_s is {timeout_s}; allowed: 0 to {WAIT_S_MAX}");
        return Err(Problem::new(ErrorCode::InvalidRequest, detail).with_field("timeout_s"));
    }
    let now = Instant::now();
    let mut until = now + Duration::from_secs(timeout_s);
    if let Some(deadline) = request.extensions_mut().get_mut::<Deadline>() {
        if deadline.is_given {
            until = until.min(deadline.at);
        }
        // With `timeout_s=0` the call still has to be done.
        let settled = now + Duration::from_secs(timeout_s.max(1));
        deadline.at = deadline.at.min(settled);
    }
    Ok(Some(Hold { wait, until }))
}

impl Edge {
    async fn hold_launch(&self, hold: Hold, headers: &HeaderMap, body: &Bytes) -> Response {
        let view: JobView = match answered(body) {
            Ok(view) => view,
            Err(refused) => return refused.into_response(),
        };
        let (view, has_come) = self.watch(hold, headers, view).await;
        if !has_come {
            let answer = refused::json(StatusCode::ACCEPTED, &view);
            return self.rated(&view.id, answer);
        }
        self.launch_answer(view)
    }

    async fn hold_look(&self, hold: Hold, headers: &HeaderMap, body: &Bytes) -> Response {
        let view: JobView = match answered(body) {
            Ok(view) => view,
            Err(refused) => return refused.into_response(),
        };
        let (view, has_come) = self.watch(hold, headers, view).await;
        let status = if has_come {
            StatusCode::OK
        } else {
            StatusCode::ACCEPTED
        };
        refused::json(status, &view)
    }

    async fn hold_batch(&self, hold: Hold, headers: &HeaderMap, body: &Bytes) -> Response {
        let batch: BatchAnswer = match answered(body) {
            Ok(batch) => batch,
            Err(refused) => return refused.into_response(),
        };
        let mut results = Vec::with_capacity(batch.results.len());
        // One after the other: they share the end of the hold, so the order does not matter.
        for result in batch.results {
            let LaunchResult {
                job: Some(view), ..
            } = result
            else {
                results.push(result);
                continue;
            };
            let (view, has_come) = self.watch(hold, headers, *view).await;
            results.push(if has_come {
                jobs::result(self.launched(view))
            } else {
                LaunchResult {
                    status: StatusCode::ACCEPTED.as_u16(),
                    job: Some(Box::new(view)),
                    problem: None,
                }
            });
        }
        refused::json(StatusCode::OK, &BatchAnswer { results })
    }

    /// Watches a job until it has come so far or the hold ends; as it is then, and whether it has.
    async fn watch(&self, hold: Hold, headers: &HeaderMap, known: JobView) -> (JobView, bool) {
        if has_come(hold.wait, known.state) {
            return (known, true);
        }
        let index = headers
            .get(APPLIED_INDEX)
            .and_then(|index| index.to_str().ok()?.parse().ok())
            .unwrap_or(0);
        if !self.applied_up_to(index, hold.until).await {
            return (known, false);
        }
        let listener = self.hints.jobs.listen(&known.id);
        let mut closing = self.closing.clone();
        loop {
            let hint = listener.next();
            let state = self.replica.read(|pool| {
                pool.job(&known.id)
                    .map(|view| outward::state(&view.job.state))
            });
            // A job that is forgotten has ended.
            let has_come = state.is_none_or(|state| has_come(hold.wait, state));
            if has_come || Instant::now() >= hold.until || *closing.borrow() {
                let view = self.replica.read(|pool| {
                    pool.job(&known.id)
                        .map(|view| outward::job(pool, &view, Detail::Whole))
                });
                return (view.unwrap_or(known), has_come);
            }
            tokio::select! {
                () = hint => {}
                () = sleep_until(hold.until) => {}
                _ = closing.changed() => {}
            }
        }
    }

    /// Whether this node applied the entry before the instant.
    async fn applied_up_to(&self, index: u64, until: Instant) -> bool {
        let mut applied = self.replica.applied();
        let reached = timeout_at(until, applied.wait_for(|applied| *applied >= index)).await;
        matches!(reached, Ok(Ok(_)))
    }
}

fn has_come(wait: Wait, state: JobState) -> bool {
    match wait {
        Wait::Start => !matches!(state, JobState::Delayed | JobState::Queued),
        Wait::End => state.is_final(),
    }
}

/// The leader's answer, which this node reads to go on from it.
fn answered<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| {
        tracing::error!(%error, "the leader's answer is malformed");
        Refused::unknown()
    })
}
