//! Every call of the contract, typed. All follow the leader and keep to the client's deadline;
//! their errors are those of [`ClientError`].

mod why;

use std::fmt::Display;
use std::time::Duration;

use fermata_api::audit::AuditRecord;
use fermata_api::cluster::{ClusterView, MemberBody, TransferRequest};
use fermata_api::events::{Category, Event};
use fermata_api::jobs::{
    AttemptAnswer, BatchAnswer, CompletedRequest, HeartbeatRequest, JobView, JobsQuery,
    LaunchBatch, LaunchRequest, StartedRequest, Wait,
};
use fermata_api::pools::{Override, OverrideView, PoolView, WindowView};
use fermata_api::query::{Page, PageQuery};
use fermata_api::routes;
use fermata_api::servers::{LeaveRequest, PollAnswer, PollRequest, ServerBody, ServerView};
use fermata_api::settings::Settings;
use fermata_api::stats::StatsView;
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::client::{Call, Client};
use crate::error::ClientError;

/// Jobs.
impl Client {
    /// Launches one job. Without an `id` it is given one here, so that repetitions are harmless.
    ///
    /// # Errors
    /// Among others `rate_limited`, `concurrency_limited`, `queue_full` and `no_server`, where the
    /// job was aborted at once: the problem carries the job.
    pub async fn launch(&self, launch: LaunchRequest) -> Result<JobView, ClientError> {
        let call = Call::new(Method::POST, routes::JOBS).json(&identified(launch))?;
        self.send(&call).await?.value()
    }

    /// Launches one job and holds until it has come so far, or until `hold` is over: then the job
    /// is answered as it is. `hold` is rounded up to seconds.
    ///
    /// # Errors
    /// As [`Client::launch`].
    pub async fn launch_and_wait(
        &self,
        launch: LaunchRequest,
        wait: Wait,
        hold: Duration,
    ) -> Result<JobView, ClientError> {
        let (query, hold) = waiting(wait, hold)?;
        let call = Call::new(Method::POST, format!("{}{query}", routes::JOBS))
            .json(&identified(launch))?
            .held(hold);
        self.send(&call).await?.value()
    }

    /// Launches many jobs, at most [`fermata_api::bounds::BATCH_JOBS_MAX`], in this order. Those
    /// without an `id` are given one here.
    ///
    /// # Errors
    /// As [`ClientError`]; what became of each job is told in its own result.
    pub async fn launch_batch(
        &self,
        launches: Vec<LaunchRequest>,
    ) -> Result<BatchAnswer, ClientError> {
        let batch = LaunchBatch {
            jobs: launches.into_iter().map(identified).collect(),
        };
        let call = Call::new(Method::POST, routes::JOBS).json(&batch)?;
        self.send(&call).await?.value()
    }

    /// The job as it is.
    ///
    /// # Errors
    /// Among others `unknown_job`.
    pub async fn job(&self, id: &str) -> Result<JobView, ClientError> {
        self.get(routes::path(routes::JOB, id)).await
    }

    /// The job, once it has come so far or `hold` is over. `hold` is rounded up to seconds.
    ///
    /// # Errors
    /// Among others `unknown_job`.
    pub async fn job_and_wait(
        &self,
        id: &str,
        wait: Wait,
        hold: Duration,
    ) -> Result<JobView, ClientError> {
        let (query, hold) = waiting(wait, hold)?;
        let target = format!("{}{query}", routes::path(routes::JOB, id));
        let call = Call::new(Method::GET, target).held(hold);
        self.send(&call).await?.value()
    }

    /// A page of the jobs that match.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn jobs(&self, query: &JobsQuery) -> Result<Page<JobView>, ClientError> {
        self.get(format!("{}{}", routes::JOBS, query_string(query)?))
            .await
    }

    /// Cancels the job.
    ///
    /// # Errors
    /// Among others `unknown_job` and `final`.
    pub async fn cancel(&self, id: &str) -> Result<JobView, ClientError> {
        let call = Call::new(Method::POST, routes::path(routes::JOB_CANCEL, id));
        self.send(&call).await?.value()
    }

    /// Confirms an attempt (S13). It may be executed only after this was accepted.
    ///
    /// # Errors
    /// Among others `unknown_job`, `stale_attempt` and `final`.
    pub async fn started(&self, id: &str, attempt: u32) -> Result<AttemptAnswer, ClientError> {
        let target = routes::path(routes::JOB_STARTED, id);
        self.post(target, &StartedRequest { attempt }).await
    }

    /// Renews the caller's lease, which counts from before this call (S41).
    ///
    /// # Errors
    /// Among others `unknown_job`, `stale_attempt` and `final`.
    pub async fn heartbeat(
        &self,
        id: &str,
        attempt: Option<u32>,
    ) -> Result<AttemptAnswer, ClientError> {
        let target = routes::path(routes::JOB_HEARTBEAT, id);
        self.post(target, &HeartbeatRequest { attempt }).await
    }

    /// Renews once, by one node: whoever keeps a lease knows when each renewal was sent.
    pub(crate) async fn heartbeat_once(
        &self,
        id: &str,
        attempt: Option<u32>,
        answer_timeout: Duration,
    ) -> Result<AttemptAnswer, ClientError> {
        let call = Call::new(Method::POST, routes::path(routes::JOB_HEARTBEAT, id))
            .json(&HeartbeatRequest { attempt })?
            .renewal();
        self.send_once(&call, answer_timeout).await?.value()
    }

    /// Reports the end of an attempt.
    ///
    /// # Errors
    /// Among others `unknown_job`, `stale_attempt` and `not_active`.
    pub async fn completed(
        &self,
        id: &str,
        completed: &CompletedRequest,
    ) -> Result<JobView, ClientError> {
        self.post(routes::path(routes::JOB_COMPLETED, id), completed)
            .await
    }
}

/// Definitions.
impl Client {
    /// Creates or replaces an event; the answer carries its new revision. With a `revision`, only
    /// if the event still has it.
    ///
    /// # Errors
    /// Among others `invalid_request` and `revision_conflict`.
    pub async fn put_event(&self, id: &str, event: &Event) -> Result<Event, ClientError> {
        self.put(routes::path(routes::EVENT, id), event).await
    }

    /// The event.
    ///
    /// # Errors
    /// Among others `event_missing`.
    pub async fn event(&self, id: &str) -> Result<Event, ClientError> {
        self.get(routes::path(routes::EVENT, id)).await
    }

    /// A page of the events, by id.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn events(&self, query: &PageQuery) -> Result<Page<Event>, ClientError> {
        self.get(format!("{}{}", routes::EVENTS, query_string(query)?))
            .await
    }

    /// Deletes the event.
    ///
    /// # Errors
    /// Among others `event_missing`.
    pub async fn delete_event(&self, id: &str) -> Result<(), ClientError> {
        self.delete(routes::path(routes::EVENT, id)).await
    }

    /// Creates or replaces a category.
    ///
    /// # Errors
    /// Among others `invalid_request` and `revision_conflict`.
    pub async fn put_category(
        &self,
        id: &str,
        category: &Category,
    ) -> Result<Category, ClientError> {
        self.put(routes::path(routes::CATEGORY, id), category).await
    }

    /// The category.
    ///
    /// # Errors
    /// Among others `unknown_category`.
    pub async fn category(&self, id: &str) -> Result<Category, ClientError> {
        self.get(routes::path(routes::CATEGORY, id)).await
    }

    /// A page of the categories, by id.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn categories(&self, query: &PageQuery) -> Result<Page<Category>, ClientError> {
        self.get(format!("{}{}", routes::CATEGORIES, query_string(query)?))
            .await
    }

    /// Deletes the category.
    ///
    /// # Errors
    /// Among others `unknown_category`.
    pub async fn delete_category(&self, id: &str) -> Result<(), ClientError> {
        self.delete(routes::path(routes::CATEGORY, id)).await
    }

    /// The cluster's settings.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn settings(&self) -> Result<Settings, ClientError> {
        self.get(routes::SETTINGS.to_owned()).await
    }

    /// Replaces the cluster's settings.
    ///
    /// # Errors
    /// Among others `invalid_request` and `revision_conflict`.
    pub async fn put_settings(&self, settings: &Settings) -> Result<Settings, ClientError> {
        self.put(routes::SETTINGS.to_owned(), settings).await
    }
}

/// Servers.
impl Client {
    /// Creates or replaces a server.
    ///
    /// # Errors
    /// Among others `invalid_request`.
    pub async fn put_server(
        &self,
        id: &str,
        server: &ServerBody,
    ) -> Result<ServerView, ClientError> {
        self.put(routes::path(routes::SERVER, id), server).await
    }

    /// The server.
    ///
    /// # Errors
    /// Among others `unknown_server`.
    pub async fn server(&self, id: &str) -> Result<ServerView, ClientError> {
        self.get(routes::path(routes::SERVER, id)).await
    }

    /// A page of the servers, by id.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn servers(&self, query: &PageQuery) -> Result<Page<ServerView>, ClientError> {
        self.get(format!("{}{}", routes::SERVERS, query_string(query)?))
            .await
    }

    /// Deletes the server.
    ///
    /// # Errors
    /// Among others `unknown_server`.
    pub async fn delete_server(&self, id: &str) -> Result<(), ClientError> {
        self.delete(routes::path(routes::SERVER, id)).await
    }

    /// Sends one poll to one node, once: its sender counts the lease from when it was sent. After
    /// a failure the next poll goes to another node. The node has `answer_timeout` beyond the
    /// poll's `wait_ms`.
    ///
    /// # Errors
    /// Among others `unknown_server` and `superseded`.
    pub async fn poll_once(
        &self,
        server: &str,
        poll: &PollRequest,
        answer_timeout: Duration,
    ) -> Result<PollAnswer, ClientError> {
        let hold = Duration::from_millis(poll.wait_ms.unwrap_or(0));
        let call = Call::new(Method::POST, routes::path(routes::SERVER_POLL, server))
            .json(poll)?
            .held(hold);
        self.send_once(&call, answer_timeout).await?.value()
    }

    /// Empties a server: it is disabled, and its worker takes nothing new, ends what it runs and
    /// leaves.
    ///
    /// # Errors
    /// Among others `unknown_server`.
    pub async fn drain_server(&self, id: &str) -> Result<ServerView, ClientError> {
        let nothing = serde_json::Map::new();
        self.post(routes::path(routes::SERVER_DRAIN, id), &nothing)
            .await
    }

    /// Says that a server's worker leaves: the server is offline at once, and what the worker still
    /// held is put back or lost.
    ///
    /// # Errors
    /// Among others `unknown_server` and `superseded`.
    pub async fn leave_server(
        &self,
        id: &str,
        incarnation: u64,
    ) -> Result<ServerView, ClientError> {
        let leave = LeaveRequest { incarnation };
        self.post(routes::path(routes::SERVER_LEAVE, id), &leave)
            .await
    }
}

/// Pools, windows, overrides, counters.
impl Client {
    /// The pool.
    ///
    /// # Errors
    /// Among others `unknown_pool`.
    pub async fn pool(&self, id: &str) -> Result<PoolView, ClientError> {
        self.get(routes::path(routes::POOL, id)).await
    }

    /// A page of the pools, by id.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn pools(&self, query: &PageQuery) -> Result<Page<PoolView>, ClientError> {
        self.get(format!("{}{}", routes::POOLS, query_string(query)?))
            .await
    }

    /// A page of the active windows and buckets, by id.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn windows(&self, query: &PageQuery) -> Result<Page<WindowView>, ClientError> {
        self.get(format!("{}{}", routes::WINDOWS, query_string(query)?))
            .await
    }

    /// Resets one window (S32).
    ///
    /// # Errors
    /// As [`ClientError`]; it is not repeated once its outcome is unknown, because a second reset
    /// would grant another allowance.
    pub async fn reset_window(&self, id: &str) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, routes::path(routes::WINDOW, id)).once_only();
        self.send(&call).await?.accepted()
    }

    /// Resets all windows (S32).
    ///
    /// # Errors
    /// As [`Client::reset_window`].
    pub async fn reset_windows(&self) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, routes::WINDOWS).once_only();
        self.send(&call).await?.accepted()
    }

    /// A page of the overrides, by id.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn overrides(&self, query: &PageQuery) -> Result<Page<OverrideView>, ClientError> {
        self.get(format!("{}{}", routes::OVERRIDES, query_string(query)?))
            .await
    }

    /// Sets the override of a pool or bucket (S33).
    ///
    /// # Errors
    /// Among others `invalid_request`.
    pub async fn put_override(
        &self,
        id: &str,
        body: &Override,
    ) -> Result<OverrideView, ClientError> {
        self.put(routes::path(routes::OVERRIDE, id), body).await
    }

    /// Removes the override of a pool or bucket.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn delete_override(&self, id: &str) -> Result<(), ClientError> {
        self.delete(routes::path(routes::OVERRIDE, id)).await
    }

    /// The counters.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn stats(&self) -> Result<StatsView, ClientError> {
        self.get(routes::STATS.to_owned()).await
    }

    /// Sets the counters to zero.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn reset_stats(&self) -> Result<(), ClientError> {
        self.delete(routes::STATS.to_owned()).await
    }
}

/// The cluster.
impl Client {
    /// A page of the changes by operators, newest first.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn audit(&self, query: &PageQuery) -> Result<Page<AuditRecord>, ClientError> {
        self.get(format!("{}{}", routes::AUDIT, query_string(query)?))
            .await
    }

    /// The cluster as the asked node sees it.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn cluster(&self) -> Result<ClusterView, ClientError> {
        self.get(routes::CLUSTER.to_owned()).await
    }

    /// Adds a node.
    ///
    /// # Errors
    /// Among others `membership_conflict`; it is not repeated once its outcome is unknown.
    pub async fn add_member(&self, member: &MemberBody) -> Result<ClusterView, ClientError> {
        let call = Call::new(Method::POST, routes::MEMBERS)
            .json(member)?
            .once_only();
        self.send(&call).await?.value()
    }

    /// Removes a node.
    ///
    /// # Errors
    /// Among others `unknown_member` and `membership_conflict`; it is not repeated once its
    /// outcome is unknown.
    pub async fn remove_member(&self, id: u64) -> Result<(), ClientError> {
        let target = routes::path(routes::MEMBER, &id.to_string());
        let call = Call::new(Method::DELETE, target).once_only();
        self.send(&call).await?.accepted()
    }

    /// Hands leadership over, to this node or to the follower that is furthest.
    ///
    /// # Errors
    /// Among others `unknown_member`; it is not repeated once its outcome is unknown.
    pub async fn transfer(&self, to: Option<u64>) -> Result<ClusterView, ClientError> {
        let call = Call::new(Method::POST, routes::TRANSFER)
            .json(&TransferRequest { to })?
            .once_only();
        self.send(&call).await?.value()
    }
}

impl Client {
    async fn get<T: DeserializeOwned>(&self, target: String) -> Result<T, ClientError> {
        self.send(&Call::new(Method::GET, target)).await?.value()
    }

    async fn put<B: Serialize, T: DeserializeOwned>(
        &self,
        target: String,
        body: &B,
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::PUT, target).json(body)?;
        self.send(&call).await?.value()
    }

    async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        target: String,
        body: &B,
    ) -> Result<T, ClientError> {
        let call = Call::new(Method::POST, target).json(body)?;
        self.send(&call).await?.value()
    }

    async fn delete(&self, target: String) -> Result<(), ClientError> {
        self.send(&Call::new(Method::DELETE, target))
            .await?
            .accepted()
    }
}

fn identified(mut launch: LaunchRequest) -> LaunchRequest {
    launch.id.get_or_insert_with(|| Uuid::now_v7().to_string());
    launch
}

/// The query of a held call, and how long the node may hold it.
fn waiting(wait: Wait, hold: Duration) -> Result<(String, Duration), ClientError> {
    #[derive(Serialize)]
    struct Held {
        wait: Wait,
        timeout_s: u64,
    }

    let timeout_s = hold.as_secs() + u64::from(hold.subsec_nanos() != 0);
    let query = query_string(&Held { wait, timeout_s })?;
    Ok((query, Duration::from_secs(timeout_s)))
}

/// A query string of a flat struct; empty where every field is absent.
fn query_string<T: Serialize>(query: &T) -> Result<String, ClientError> {
    let fields = serde_json::to_value(query)
        .map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
    let mut text = String::new();
    for (name, value) in fields.as_object().into_iter().flatten() {
        let value: &dyn Display = match value {
            Value::Null => continue,
            Value::String(value) => value,
            value => value,
        };
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        text.push_str(&routes::encode(&value.to_string()));
    }
    Ok(text)
}
