//! What executors, callers and people say about a job: started, still here, completed, cancel.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fermata_api::bounds::DESCRIPTION_BYTES_MAX;
use fermata_api::jobs::{
    AttemptAnswer, CompletedRequest, Executor, HeartbeatRequest, JobView, StartedRequest,
};
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::query::CallQuery;
use fermata_pool::command::Command;
use fermata_pool::outcome::Refusal;
use fermata_replica::{HeardError, Leadership};
use http::StatusCode;
use serde::Deserialize;
use tokio::time::timeout_at;

use crate::admission::{Deadline, Place};
use crate::edge::Edge;
use crate::input::{Id, Json, OptionalJson, Query};
use crate::refused::{Refused, json};

/// The body of a call that takes none.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

pub(crate) async fn cancel(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    Id(job): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    OptionalJson(Nothing {}): OptionalJson<Nothing>,
) -> Result<Response, Refused> {
    let command = Command::Cancel { job: job.clone() };
    edge.propose_about(deadline, &job, command).await?;
    Ok(json(StatusCode::OK, &edge.job(&job)?))
}

pub(crate) async fn started(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    Extension(place): Extension<Arc<Place>>,
    Id(job): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    Json(StartedRequest { attempt }): Json<StartedRequest>,
) -> Result<Response, Refused> {
    edge.until_acted(deadline, &place, &job, attempt).await?;
    let command = Command::Started {
        job: job.clone(),
        attempt,
        from: None,
    };
    edge.propose_about(deadline, &job, command).await?;
    Ok(json(StatusCode::OK, &answer(&edge.job(&job)?)))
}

pub(crate) async fn completed(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    Id(job): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    Json(body): Json<CompletedRequest>,
) -> Result<Response, Refused> {
    let description = description("description", body.description)?;
    let command = Command::Completed {
        job: job.clone(),
        attempt: body.attempt,
        code: body.code,
        description,
        from: None,
    };
    edge.propose_about(deadline, &job, command).await?;
    Ok(json(StatusCode::OK, &edge.job(&job)?))
}

pub(crate) async fn heartbeat(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    Id(job): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    OptionalJson(body): OptionalJson<HeartbeatRequest>,
) -> Result<Response, Refused> {
    // A job of a server has no lease of its own: its server's worker keeps it by polling.
    let is_leased = edge.job(&job)?.executor == Executor::Caller;
    let heard = async {
        if !is_leased {
            return Ok::<_, Refused>(edge.replica.confirm().await?);
        }
        match edge.replica.caller_heard(&job).await {
            // Told below, as for a job of a server.
            Err(HeardError::Refused(Refusal::Final)) => Ok(()),
            heard => Ok(heard?),
        }
    };
    let heard = timeout_at(deadline.at, heard).await;
    heard.map_err(|_| Refused::unled("no majority confirmed the leader in time"))??;
    let view = edge.job(&job)?;
    match not_held(&view, body.attempt) {
        None => Ok(json(StatusCode::OK, &answer(&view))),
        Some(mut problem) => {
            problem.job = Some(Box::new(view));
            Err(problem.into())
        }
    }
}

/// Why whoever sends a heartbeat does not hold the job, or not with this attempt: judged as a
/// confirmation is (S14).
fn not_held(view: &JobView, given: Option<u32>) -> Option<Problem> {
    let is_other = given.is_some_and(|given| given != view.attempt);
    if view.state.is_final() && !is_other {
        let detail = format!("job {} has ended", view.id);
        return Some(Problem::new(ErrorCode::Final, detail));
    }
    let given = given.filter(|_| is_other || !is_running(view))?;
    let detail = format!(
        "attempt {given} was given; the job is at attempt {} now",
        view.attempt
    );
    Some(Problem::new(ErrorCode::StaleAttempt, detail).with_field("attempt"))
}

impl Edge {
    /// Waits until the attempt's start action is over, if it has one.
    async fn until_acted(
        &self,
        deadline: Deadline,
        place: &Place,
        job: &str,
        attempt: u32,
    ) -> Result<(), Refused> {
        let is_pending = || {
            let Leadership::Leader { claim } = *self.replica.leadership().borrow() else {
                return false;
            };
            self.replica.read(|pool| {
                let view = pool.job(job).filter(|view| view.job.attempt == attempt);
                view.is_some_and(|view| self.start_actions.is_pending(claim, &view))
            })
        };
        if !is_pending() {
            return Ok(());
        }
        place.hold()?;
        let listener = self.hints.jobs.listen(job);
        loop {
            let hint = listener.next();
            if !is_pending() {
                return Ok(());
            }
            if timeout_at(deadline.at, hint).await.is_err() {
                let detail = "the attempt's start action is not over; the confirmation is to be \
                              repeated";
                let mut problem = Problem::new(ErrorCode::StartActionPending, detail);
                problem.retry_after_ms = Some(1_000);
                return Err(problem.into());
            }
        }
    }
}

/// A description that keeps to its bound (S11).
pub(crate) fn description(field: &str, given: Option<String>) -> Result<Box<str>, Problem> {
    let text = given.unwrap_or_default();
    if text.len() > DESCRIPTION_BYTES_MAX {
        let detail = format!(
            "{field} has {} bytes; allowed: at most {DESCRIPTION_BYTES_MAX}",
            text.len()
        );
        return Err(Problem::new(ErrorCode::InvalidRequest, detail).with_field(field));
    }
    Ok(text.into())
}

fn is_running(view: &JobView) -> bool {
    use fermata_api::jobs::JobState::{Active, Starting};
    matches!(view.state, Starting | Active)
}

fn answer(view: &JobView) -> AttemptAnswer {
    AttemptAnswer {
        state: view.state,
        attempt: view.attempt,
        lease_s: match view.executor {
            Executor::Caller => view.lease_s,
            Executor::Server => None,
        },
        cancel: view.cancel || view.state.is_final(),
    }
}
