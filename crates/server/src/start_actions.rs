//! Start actions: the HTTP request that the leader makes between the start of a job and its
//! hand-out (S13).
//!
//! An attempt whose event has one is *pending* until its request is over: polls do not offer it,
//! and it cannot be confirmed. That a request is over is known to the leader that made it and to
//! nobody else. That is enough: a takeover puts every attempt in `starting` back (S39), so the next
//! leader meets only attempts that it starts itself, and makes the request for each of them. So it
//! is made at least once for every attempt that is handed out, and its receiver may hear of
//! attempts that never were.
//!
//! One task a node follows what is applied while the node leads, and makes a bounded number of
//! requests at a time; the others wait in the order of their starts.
//!
//! # Caveats
//!
//! - The time in `starting`, the wait for a turn included, counts in `start_timeout` (S15): an
//!   action that takes longer is made again for the next attempt.
//! - A failure that ends the job is proposed once. Should that fail while this node goes on leading,
//!   the attempt stays pending until its `start_timeout`.
//! - Only `http://`: there is no TLS in this program. A proxy beside the node can add it.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use fermata_api::servers::StartNotice;
use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, OnFailure, StartAction};
use fermata_pool::job::State;
use fermata_pool::outcome::{Applied, Standing};
use fermata_pool::query::JobView;
use fermata_replica::Leadership;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::convert::outward;
use crate::edge::Edge;

/// Most requests at a time; the others wait for their turn.
const REQUESTS_MAX: usize = 64;
/// How long an unused connection is kept.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// The header by which a receiver knows a repeated request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What the leader knows of the start actions of its claim.
#[derive(Default)]
pub(crate) struct StartActions(Mutex<Known>);

/// Attempts in `starting` that have an action, under one claim.
#[derive(Default)]
struct Known {
    claim: Option<Claim>,
    attempts: HashMap<Arc<str>, Progress>,
}

struct Progress {
    attempt: u32,
    is_over: bool,
}

/// An action whose turn has not come.
struct Due {
    notice: StartNotice,
    action: Arc<StartAction>,
}

/// What became of one.
struct Over {
    notice: StartNotice,
    action: Arc<StartAction>,
    result: Result<(), String>,
}

type HttpClient = Client<HttpConnector, Body>;

impl StartActions {
    /// Whether the job's current attempt may not be handed out or confirmed yet.
    pub(crate) fn is_pending(&self, claim: Claim, view: &JobView<'_>) -> bool {
        if view.terms.on_start.is_none() || !matches!(view.job.state, State::Starting(_)) {
            return false;
        }
        let known = self.lock();
        let progress = known.attempts.get(&view.job.id);
        let is_over = progress
            .is_some_and(|progress| progress.is_over && progress.attempt == view.job.attempt);
        known.claim != Some(claim) || !is_over
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // An attempt that a panic left out stays pending, and times out.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes requests for as long as the replica is there, while it leads.
pub(crate) async fn run(edge: Edge) {
    let mut events = edge.replica.events();
    let mut leadership = edge.replica.leadership();
    let mut runner = Runner::new(edge);
    loop {
        let claim = match *leadership.borrow_and_update() {
            Leadership::Leader { claim } => Some(claim),
            Leadership::Follower { .. } | Leadership::Unknown => None,
        };
        runner.lead(claim);
        runner.take_turns();
        tokio::select! {
            changed = leadership.changed() => if changed.is_err() { return },
            applied = events.recv() => match applied {
                Ok(applied) => runner.follow(&applied),
                Err(RecvError::Lagged(_)) => runner.look_through(),
                Err(RecvError::Closed) => return,
            },
            Some(Ok(over)) = runner.requests.join_next() => runner.over(over).await,
        }
    }
}

struct Runner {
    edge: Edge,
    http: HttpClient,
    claim: Option<Claim>,
    due: VecDeque<Due>,
    requests: JoinSet<Over>,
}

impl Runner {
    fn new(edge: Edge) -> Self {
        Self {
            edge,
            http: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_MAX)
                .pool_max_idle_per_host(REQUESTS_MAX)
                .build_http(),
            claim: None,
            due: VecDeque::new(),
            requests: JoinSet::new(),
        }
    }

    /// Under another claim than before everything begins anew.
    fn lead(&mut self, claim: Option<Claim>) {
        if self.claim == claim {
            return;
        }
        self.claim = claim;
        self.due.clear();
        self.requests = JoinSet::new();
        *self.edge.start_actions.lock() = Known {
            claim,
            attempts: HashMap::new(),
        };
        self.look_through();
    }

    /// Takes in what an entry has moved.
    fn follow(&mut self, applied: &Applied) {
        if self.claim.is_none() {
            return;
        }
        let starts = |standing: &Standing| matches!(standing, Standing::Starting { .. });
        let mut known = self.edge.start_actions.lock();
        if !known.attempts.is_empty() {
            for moved in applied.moves.iter().filter(|it| !starts(&it.standing)) {
                known.attempts.remove(&moved.job);
            }
        }
        drop(known);
        if applied.moves.iter().any(|moved| starts(&moved.standing)) {
            let edge = self.edge.clone();
            edge.replica.read(|pool| {
                let started = applied.moves.iter().filter(|it| starts(&it.standing));
                started
                    .filter_map(|moved| pool.job(&moved.job))
                    .for_each(|view| self.found(pool, &view));
            });
        }
    }

    /// Looks at every attempt in `starting`: hints were missed.
    fn look_through(&mut self) {
        if self.claim.is_none() {
            return;
        }
        let edge = self.edge.clone();
        edge.replica.read(|pool| {
            let is_current = |job: &str, attempt: u32| {
                pool.job(job).is_some_and(|view| {
                    view.job.attempt == attempt && matches!(view.job.state, State::Starting(_))
                })
            };
            let mut known = edge.start_actions.lock();
            known
                .attempts
                .retain(|job, progress| is_current(job, progress.attempt));
            drop(known);
            pool.starting().for_each(|view| self.found(pool, &view));
        });
    }

    /// An attempt was found, in `starting` perhaps; it may be known.
    fn found(&mut self, pool: &Pool, view: &JobView<'_>) {
        let (State::Starting(attempt), Some(action)) = (&view.job.state, &view.terms.on_start)
        else {
            return;
        };
        let number = view.job.attempt;
        let mut known = self.edge.start_actions.lock();
        let before = known.attempts.get(&view.job.id);
        if before.is_some_and(|progress| progress.attempt == number) {
            return;
        }
        let progress = Progress {
            attempt: number,
            is_over: false,
        };
        known.attempts.insert(view.job.id.clone(), progress);
        drop(known);
        self.due.push_back(Due {
            notice: StartNotice {
                offer: outward::offer(pool, view, attempt),
                server: view.server.map(Into::into),
            },
            action: Arc::new(StartAction::clone(action)),
        });
    }

    /// Makes the next requests, as far as there are turns.
    fn take_turns(&mut self) {
        while self.requests.len() < REQUESTS_MAX
            && let Some(Due { notice, action }) = self.due.pop_front()
        {
            if !self.is_wanted(&notice) {
                continue;
            }
            let http = self.http.clone();
            self.requests.spawn(async move {
                let result = send(&http, &notice, &action).await;
                Over {
                    notice,
                    action,
                    result,
                }
            });
        }
    }

    /// Whether the attempt still waits for its action.
    fn is_wanted(&self, notice: &StartNotice) -> bool {
        let known = self.edge.start_actions.lock();
        let progress = known.attempts.get(&*notice.offer.job);
        progress.is_some_and(|progress| progress.attempt == notice.offer.attempt)
    }

    async fn over(&mut self, over: Over) {
        let Over {
            notice,
            action,
            result,
        } = over;
        let (job, attempt) = (&notice.offer.job, notice.offer.attempt);
        if !self.is_wanted(&notice) {
            return;
        }
        if let Err(failure) = result {
            let aborts = action.on_failure == OnFailure::Abort;
            tracing::warn!(job, attempt, failure, aborts, "a start action failed");
            if aborts {
                return self.abort(&notice, &failure);
            }
        }
        if let Some(progress) = self.edge.start_actions.lock().attempts.get_mut(&**job)
            && progress.attempt == attempt
        {
            progress.is_over = true;
        }
        if let Some(server) = &notice.server {
            self.edge.hints.servers.wake(server);
        }
        // Its caller may be waiting with its confirmation.
        self.edge.hints.jobs.wake(job);
    }

    /// Has the job ended, without waiting for it: other actions go on.
    fn abort(&self, notice: &StartNotice, failure: &str) {
        let command = Command::StartActionFailed {
            job: notice.offer.job.as_str().into(),
            attempt: notice.offer.attempt,
            description: format!("the start action failed: {failure}").into(),
        };
        let replica = self.edge.replica.clone();
        tokio::spawn(async move {
            if let Err(error) = replica.propose(command).await {
                tracing::warn!(%error, "the end of a job whose start action failed was not made");
            }
        });
    }
}

/// Makes one request; what went wrong, if anything did.
async fn send(http: &HttpClient, notice: &StartNotice, action: &StartAction) -> Result<(), String> {
    let request = request(notice, action)?;
    let time = Duration::from_secs(action.timeout_s.into());
    // Its query may hold what is nobody's business.
    let url = action.url.split('?').next().unwrap_or_default();
    match timeout(time, http.request(request)).await {
        Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
        Ok(Ok(answer)) => Err(format!("{url} answered {}", answer.status())),
        Ok(Err(error)) => {
            let cause = error.source().map(|cause| format!(": {cause}"));
            Err(format!("{url}: {error}{}", cause.unwrap_or_default()))
        }
        Err(_) => Err(format!(
            "{url} did not answer within {} s",
            action.timeout_s
        )),
    }
}

/// The request. The definition was checked before it was stored, so a fault in it is ours.
fn request(notice: &StartNotice, action: &StartAction) -> Result<Request<Body>, String> {
    let key = format!("{}/{}", notice.offer.job, notice.offer.attempt);
    let body = serde_json::to_vec(notice).map_err(|error| error.to_string())?;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&*action.url)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(IDEMPOTENCY_KEY, key);
    for header in &action.headers {
        request = request.header(&*header.name, &*header.value);
    }
    request
        .body(Body::from(body))
        .map_err(|error| error.to_string())
}
