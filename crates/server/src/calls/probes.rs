//! Probes and metrics. They are not admitted like calls: an overloaded node is alive.

use std::fmt::Write;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fermata_api::problem::{ErrorCode, Problem};
use fermata_pool::outcome::Reason;
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
        let status = self.replica.status();
        let stats = self.replica.read(|pool| pool.stats().clone());
        let mut text = Text::default();
        let (calls, held) = self.admission.taken();
        let node = [
            (
                "fermata_edge_calls",
                "Calls that are being worked on.",
                calls as u64,
            ),
            (
                "fermata_edge_held",
                "Polls and answers that are held.",
                held as u64,
            ),
            ("fermata_raft_term", "Term of this node.", status.term),
            (
                "fermata_raft_is_leader",
                "1 while this node leads.",
                u64::from(status.role == Role::Leader),
            ),
            (
                "fermata_raft_last_log_index",
                "Last index of the log.",
                status.last_log.unwrap_or(0),
            ),
            (
                "fermata_raft_committed_index",
                "Last index known to be committed.",
                status.committed.unwrap_or(0),
            ),
            (
                "fermata_raft_applied_index",
                "Last index that was applied.",
                status.applied.unwrap_or(0),
            ),
        ];
        for (name, help, value) in node {
            text.head(name, "gauge", help);
            text.line(name, "", value);
        }
        // The counters are the cluster's: they begin again when somebody resets them.
        let counters = [
            ("fermata_jobs_launched", "Jobs launched.", stats.launched),
            (
                "fermata_attempts_started",
                "Starts, every attempt counted.",
                stats.started,
            ),
            (
                "fermata_attempts_confirmed",
                "Attempts confirmed.",
                stats.confirmed,
            ),
            (
                "fermata_attempts_put_back",
                "Attempts put back.",
                stats.put_back,
            ),
            (
                "fermata_jobs_queued_by_rate",
                "Jobs queued because a rate was shut.",
                stats.queued_by_rate,
            ),
        ];
        for (name, help, value) in counters {
            text.head(name, "counter", help);
            text.line(name, "", value);
        }
        text.head("fermata_jobs_ended", "counter", "Jobs that ended, by how.");
        text.line("fermata_jobs_ended", "{end=\"succeeded\"}", stats.succeeded);
        text.line("fermata_jobs_ended", "{end=\"failed\"}", stats.failed);
        for (why, count) in Reason::ALL.into_iter().zip(stats.aborted) {
            let label = format!("{{end=\"{}\"}}", why.code());
            text.line("fermata_jobs_ended", &label, count);
        }
        text.head(
            "fermata_rate_decisions",
            "counter",
            "Decisions of rates, by outcome.",
        );
        text.line(
            "fermata_rate_decisions",
            "{outcome=\"acquired\"}",
            stats.acquired,
        );
        text.line(
            "fermata_rate_decisions",
            "{outcome=\"skipped\"}",
            stats.skipped,
        );
        text.line(
            "fermata_rate_decisions",
            "{outcome=\"throttled\"}",
            stats.throttled,
        );
        text.0
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}
