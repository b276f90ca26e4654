//! Launching jobs and looking at them.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use fermata_api::headers;
use fermata_api::jobs::{
    BatchAnswer, BatchItem, JobQuery, JobView, JobsQuery, LaunchQuery, LaunchResult, Launches,
};
use fermata_api::problem::{ErrorCode, Problem, RetryWith};
use fermata_api::query::Page;
use fermata_pool::command::{Command, Launch};
use fermata_pool::job::JobNumber;
use fermata_pool::outcome::{Outcome, Refusal};
use fermata_pool::query::JobFilter;
use http::StatusCode;

use crate::admission::Deadline;
use crate::calls::rate_headers;
use crate::convert::outward::{self, Detail};
use crate::convert::{inward, refusals};
use crate::edge::{Edge, unexpected};
use crate::ids;
use crate::input::{self, Id, Query};
use crate::refused::{self, Refused, json};
use crate::sameness;

/// Most rows that one page of jobs looks at: a rare filter ends a page early and goes on from
/// there, instead of holding everything up.
const ROWS_MAX: usize = 10_000;

pub(crate) async fn launch(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    Query(query): Query<LaunchQuery>,
    request: Request,
) -> Result<Response, Refused> {
    let is_dry = query.dry_run == Some(true);
    if is_dry && query.wait.is_some() {
        let detail = "wait is given with dry_run; allowed: absent, because nothing will happen";
        return Err(Problem::new(ErrorCode::InvalidRequest, detail)
            .with_field("wait")
            .into());
    }
    let key = input::idempotency_key(request.headers())?.map(str::to_owned);
    let key = key.as_deref();
    let body = input::body(request, &edge).await?;
    match Launches::decode(&body)? {
        Launches::One(request) => {
            let id = ids::choose(request.id.as_deref(), key, 0);
            // It was read as JSON, so it is UTF-8.
            let json = std::str::from_utf8(&body).unwrap_or_default();
            let launch = inward::launch(*request, &id, sameness::of_launch(json))?;
            if is_dry {
                edge.dry_run_one(&launch)
            } else {
                edge.launch_one(deadline, launch).await
            }
        }
        Launches::Batch(items) => {
            let checked = edge.check_batch(items, key)?;
            if is_dry {
                Ok(edge.dry_run_all(checked))
            } else {
                edge.launch_all(deadline, checked).await
            }
        }
    }
}

pub(crate) async fn get(
    State(edge): State<Edge>,
    Id(id): Id,
    Query(JobQuery { .. }): Query<JobQuery>,
) -> Result<Response, Refused> {
    Ok(json(StatusCode::OK, &edge.job(&id)?))
}

pub(crate) async fn list(
    State(edge): State<Edge>,
    Query(query): Query<JobsQuery>,
) -> Result<Response, Refused> {
    let items_max = input::page_items(query.limit)?;
    let after = query.after.as_deref().map(place).transpose()?;
    let id = |field, id: Option<String>| id.map(|id| inward::id(field, &id)).transpose();
    let filter = JobFilter {
        state: query.state.map(inward::state),
        pool: query
            .pool
            .map(|name| inward::scope("pool", &name))
            .transpose()?,
        event: id("event", query.event)?,
        server: id("server", query.server)?,
    };
    let page = edge.replica.read(|pool| {
        let page = pool.jobs(&filter, after, items_max, ROWS_MAX);
        Page {
            items: page
                .jobs
                .iter()
                .map(|view| outward::job(pool, view, Detail::Brief))
                .collect(),
            after: page.next.map(|JobNumber(number)| number.to_string()),
        }
    });
    Ok(json(StatusCode::OK, &page))
}

fn place(after: &str) -> Result<JobNumber, Problem> {
    after.parse().map(JobNumber).map_err(|_| {
        let detail = format!("after is {after:?}; allowed: what the page before answered");
        Problem::new(ErrorCode::InvalidRequest, detail).with_field("after")
    })
}

/// What became of one job of a batch.
pub(crate) fn result(launched: Result<JobView, Problem>) -> LaunchResult {
    match launched {
        Ok(job) => LaunchResult {
            status: StatusCode::CREATED.as_u16(),
            job: Some(Box::new(job)),
            problem: None,
        },
        Err(problem) => LaunchResult {
            status: problem.code.status(),
            job: None,
            problem: Some(Box::new(problem)),
        },
    }
}

impl Edge {
    /// A job as it is in this node's copy.
    pub(crate) fn job(&self, id: &str) -> Result<JobView, Problem> {
        let view = self.replica.read(|pool| {
            pool.job(id)
                .map(|view| outward::job(pool, &view, Detail::Whole))
        });
        view.ok_or_else(|| unknown_job(id))
    }

    /// The answer to a launch, as the job is now: the job, or why it was aborted. The launch has
    /// then used up its id, so only another one can succeed (S40).
    pub(crate) fn launched(&self, job: JobView) -> Result<JobView, Problem> {
        let Some(code) = job.reason.and_then(refusals::refused_launch) else {
            return Ok(job);
        };
        let detail = format!("job {} was aborted: {code}", job.id);
        let mut problem = Problem::new(code, detail);
        problem.retry_after_ms = self.replica.read(|pool| {
            // Not by this node's clock: the leader's last stamp is what the instants go by, and it
            // never lies ahead of the leader's time.
            let at = pool.stamp().at;
            let admits = pool.admits_at(&job.id, at, &self.calendar())?;
            let admits_us = u64::try_from(admits.since_us(at)).unwrap_or(0);
            Some(admits_us.div_ceil(1_000))
        });
        problem.retry_with = Some(RetryWith::NewId);
        problem.job = Some(Box::new(job));
        Err(problem)
    }

    /// The whole answer to the launch of one job.
    pub(crate) fn launch_answer(&self, job: JobView) -> Response {
        let id = job.id.clone();
        let answer = match self.launched(job) {
            Ok(job) => json(StatusCode::CREATED, &job),
            Err(problem) => refused::problem(&problem),
        };
        self.rated(&id, answer)
    }

    /// An answer about a launched job, with the fields of its tightest rate.
    pub(crate) fn rated(&self, id: &str, mut answer: Response) -> Response {
        let rate = self.replica.read(|pool| {
            let view = pool.job(id)?;
            rate_headers::tightest(pool, &view, pool.stamp().at, &self.calendar())
        });
        if let Some(rate) = rate {
            rate.write(answer.headers_mut());
        }
        answer
    }

    async fn launch_one(&self, deadline: Deadline, launch: Launch) -> Result<Response, Refused> {
        let id = launch.id.clone();
        let command = Command::Launch(Box::new(launch));
        match self.propose(deadline, command).await? {
            Outcome::Job(_) => Ok(self.launch_answer(self.job(&id)?)),
            outcome => Err(unexpected(&outcome)),
        }
    }

    /// The launches of a batch, or what is wrong with each. Where ids come of a key that another
    /// request has used, the whole is refused and nothing is done (S40).
    fn check_batch(
        &self,
        items: Vec<BatchItem<'_>>,
        key: Option<&str>,
    ) -> Result<Vec<Result<Launch, Problem>>, Problem> {
        let batch = key.map(|_| sameness::of_batch(items.iter().map(|item| item.json)));
        let mut keyed = 0;
        let mut launches = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            let own = item
                .request
                .as_ref()
                .ok()
                .and_then(|request| request.id.clone());
            let id = ids::choose(own.as_deref(), key, keyed);
            let of_key = batch.filter(|_| own.is_none());
            keyed += usize::from(of_key.is_some());
            let launch = item.request.and_then(|request| {
                let hash = match of_key {
                    Some(batch) => sameness::of_item(item.json, batch),
                    None => sameness::of_launch(item.json),
                };
                inward::launch(request, &id, hash).map_err(|problem| in_batch(problem, place))
            });
            if let (Ok(launch), true) = (&launch, of_key.is_some())
                && self.replica.read(|pool| pool.is_id_conflict(launch))
            {
                let mut problem = refusals::refusal(Refusal::IdConflict);
                problem.field = Some(headers::IDEMPOTENCY_KEY.to_owned());
                return Err(problem);
            }
            launches.push(launch);
        }
        Ok(launches)
    }

    async fn launch_all(
        &self,
        deadline: Deadline,
        launches: Vec<Result<Launch, Problem>>,
    ) -> Result<Response, Refused> {
        let mut checked: Vec<Result<Box<str>, Problem>> = Vec::with_capacity(launches.len());
        let mut commands = Vec::with_capacity(launches.len());
        for launch in launches {
            checked.push(launch.map(|launch| {
                let id = launch.id.clone();
                commands.push(Command::Launch(Box::new(launch)));
                id
            }));
        }
        let mut outcomes = self.propose_all(deadline, commands).await?.into_iter();
        let mut results = Vec::with_capacity(checked.len());
        for (place, item) in checked.into_iter().enumerate() {
            let launched = match item {
                Err(problem) => {
                    results.push(result(Err(problem)));
                    continue;
                }
                Ok(id) => match outcomes.next() {
                    Some(Outcome::Job(_)) => self.job(&id).and_then(|job| self.launched(job)),
                    Some(Outcome::Refused(refusal)) => Err(refusals::refusal(refusal)),
                    Some(outcome) => return Err(unexpected(&outcome)),
                    None => return Err(Refused::unknown()),
                },
            };
            results.push(result(launched.map_err(|problem| in_batch(problem, place))));
        }
        Ok(json(StatusCode::OK, &BatchAnswer { results }))
    }
}

/// A job that this node's copy does not have.
pub(crate) fn unknown_job(id: &str) -> Problem {
    let detail = format!("there is no job {id}, or it was forgotten after its retention");
    Problem::new(ErrorCode::UnknownJob, detail)
}

/// A problem of a batch's item names its field from the body's root.
pub(crate) fn in_batch(mut problem: Problem, place: usize) -> Problem {
    problem.field = problem.field.map(|field| format!("jobs[{place}].{field}"));
    problem
}
