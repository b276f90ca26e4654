//! Probes and metrics. They are not admitted like calls: an overloaded node is alive.

use std::fmt::Write;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fermata_api::problem::{ErrorCode, Problem};
use fermata_pool::outcome::Reason;
use fermata_pool::query::Stats;
use fermata_replica::{Leadership, ProposeError, Role};
use http::header::CONTENT_TYPE;
use tokio::time::timeout;

use crate::edge::Edge;
use crate::refused::Refused;

/// How long the core may take to answer, in milliseconds.
const CORE_ANSWERS_MS_MAX: u64 = 2_000;

/// Alive: the core of the node answers, whatever it answers. What a node says of itself proves
/// nothing, because a core that has failed goes on looking like it did.
pub(crate) async fn livez(State(edge): State<Edge>) -> Response {
    let is_stopped = edge.replica.status().role == Role::Stopped;
    let asked = timeout(
        Duration::from_millis(CORE_ANSWERS_MS_MAX),
        edge.replica.confirm(),
    );
    let is_alive = match asked.await {
        Ok(Ok(()) | Err(ProposeError::NotLeader { .. } | ProposeError::Unknown)) => true,
        Ok(Err(ProposeError::Overloaded | ProposeError::TooLarge { .. })) => true,
        Ok(Err(ProposeError::Stopping)) => false,
        // A leader without a majority waits for one; that is no fault of its own.
        Err(_) => !is_stopped,
    };
    if is_alive && !is_stopped {
        "alive\n".into_response()
    } else {
        Refused::from(Problem::new(ErrorCode::Internal, "the core has stopped")).into_response()
    }
}

/// Ready: the node leads or knows who does, so that it can have calls done.
pub(crate) async fn readyz(State(edge): State<Edge>) -> Response {
    let leadership = edge.replica.leadership().borrow().clone();
    match leadership {
        Leadership::Leader { .. } | Leadership::Follower { .. } => "ready\n".into_response(),
        Leadership::Unknown => Refused::unled("no leader is known").into_response(),
    }
}

/// Metrics in Prometheus' text format, of this node's copy.
pub(crate) async fn metrics(State(edge): State<Edge>) -> Response {
    let text = edge.metrics();
    let media_type = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
    (media_type, text).into_response()
}

impl Edge {
    fn metrics(&self) -> String {
        let mut text = Text::default();
        self.node_metrics(&mut text);
        job_metrics(&self.replica.read(|pool| pool.stats().clone()), &mut text);
        text.0
    }

    fn node_metrics(&self, text: &mut Text) {
        let status = self.replica.status();
        let (calls, held) = self.admission.taken();
        let index = |index: Option<u64>| index.unwrap_or(0);
        let is_leader = u64::from(status.role == Role::Leader);
        for (name, help, value) in [
            (
                "edge_calls",
                "Calls that are being worked on.",
                calls as u64,
            ),
            ("edge_held", "Polls and answers that are held.", held as u64),
            ("raft_term", "Term of this node.", status.term),
            ("raft_is_leader", "1 while this node leads.", is_leader),
            (
                "raft_last_log_index",
                "Last index of the log.",
                index(status.last_log),
            ),
            (
                "raft_committed_index",
                "Last index known to be committed.",
                index(status.committed),
            ),
            (
                "raft_applied_index",
                "Last index that was applied.",
                index(status.applied),
            ),
        ] {
            text.head(name, "gauge", help);
            text.line(name, "", value);
        }
    }
}

/// The counters are the cluster's: they begin again when somebody resets them.
fn job_metrics(stats: &Stats, text: &mut Text) {
    for (name, help, value) in [
        ("jobs_launched", "Jobs launched.", stats.launched),
        (
            "attempts_started",
            "Starts, every attempt counted.",
            stats.started,
        ),
        ("attempts_confirmed", "Attempts confirmed.", stats.confirmed),
        ("attempts_put_back", "Attempts put back.", stats.put_back),
        (
            "jobs_queued_by_rate",
            "Jobs queued because a rate was shut.",
            stats.queued_by_rate,
        ),
    ] {
        text.head(name, "counter", help);
        text.line(name, "", value);
    }
    text.head("jobs_ended", "counter", "Jobs that ended, by how.");
    let aborted = Reason::ALL.into_iter().map(Reason::code).zip(stats.aborted);
    let ended = [("succeeded", stats.succeeded), ("failed", stats.failed)];
    for (end, count) in ended.into_iter().chain(aborted) {
        text.line("jobs_ended", &format!("{{end=\"{end}\"}}"), count);
    }
    text.head(
        "rate_decisions",
        "counter",
        "Decisions of rates, by outcome.",
    );
    for (outcome, count) in [
        ("acquired", stats.acquired),
        ("skipped", stats.skipped),
        ("throttled", stats.throttled),
    ] {
        let label = format!("{{outcome=\"{outcome}\"}}");
        text.line("rate_decisions", &label, count);
    }
}

/// Metrics as they are written; every name begins with `fermata_`.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = write!(
            self.0,
            "# HELP fermata_{name} {help}\n# TYPE fermata_{name} {kind}\n"
        );
    }

    fn line(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.0, "fermata_{name}{labels} {value}");
    }
}
