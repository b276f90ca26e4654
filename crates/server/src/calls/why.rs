//! Why a job waits, and what would become of one that is not launched.
//!
//! Both only look: nothing is proposed, and nothing is taken. A dry run is a `POST` that is steered
//! as a read is, so it is as current as one.

use axum::extract::State;
use axum::response::Response;
use fermata_api::problem::Problem;
use fermata_api::query::CallQuery;
use fermata_api::why::{DryRunAnswer, DryRunResult, WhyView};
use fermata_pool::command::Launch;
use http::StatusCode;

use super::jobs::{in_batch, unknown_job};
use crate::convert::{refusals, why};
use crate::edge::Edge;
use crate::input::{Id, Query};
use crate::refused::{Refused, json};

pub(crate) async fn get(
    State(edge): State<Edge>,
    Id(id): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
) -> Result<Response, Refused> {
    let at = edge.replica.now();
    let view = edge.replica.read(|pool| {
        let calendar = edge.calendar();
        pool.why(&id, at, &calendar)
            .map(|found| why::why(pool, &id, &found, (at, &calendar)))
    });
    let view = view.ok_or_else(|| unknown_job(&id))?;
    Ok(json(StatusCode::OK, &view))
}

impl Edge {
    /// The answer to the dry run of one launch.
    pub(crate) fn dry_run_one(&self, launch: &Launch) -> Result<Response, Refused> {
        let view = self.would(launch)?;
        Ok(json(StatusCode::OK, &view))
    }

    /// The answer to the dry run of many, each as if it came alone.
    pub(crate) fn dry_run_all(&self, launches: Vec<Result<Launch, Problem>>) -> Response {
        let judged = launches.into_iter().enumerate().map(|(place, launch)| {
            let view = launch.and_then(|launch| {
                self.would(&launch)
                    .map_err(|problem| in_batch(problem, place))
            });
            match view {
                Ok(view) => DryRunResult {
                    status: StatusCode::OK.as_u16(),
                    why: Some(Box::new(view)),
                    problem: None,
                },
                Err(problem) => DryRunResult {
                    status: problem.code.status(),
                    why: None,
                    problem: Some(Box::new(problem)),
                },
            }
        });
        let results = judged.collect();
        json(StatusCode::OK, &DryRunAnswer { results })
    }

    fn would(&self, launch: &Launch) -> Result<WhyView, Problem> {
        let at = self.replica.now();
        let found = self.replica.read(|pool| {
            let calendar = self.calendar();
            pool.would(launch, at, &calendar)
                .map(|found| why::why(pool, &launch.id, &found, (at, &calendar)))
        });
        found.map_err(refusals::refusal)
    }
}
