//! Events, workflows and their nodes, categories: the definitions from which jobs are launched.
//!
//! The same type is sent and answered. `revision` in a `PUT` means what `If-Match` means: the
//! definition must still have it, or the change is refused (`revision_conflict`). So what a `GET`
//! answered can be edited and put back, and never undoes the change of somebody else unseen;
//! without a revision the definition is replaced whatever it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bounds::{self, LIMITS_MAX, NODES_MAX, TARGETS_MAX};
use crate::jobs::Priority;
use crate::limits::Limit;
use crate::params::Params;

/// A named, editable job definition. A `PUT` replaces it whole; absent fields take their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an event: an object")]
pub struct Event {
    /// The id. In a `PUT` it may be absent; given, it must be that of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// An event or a workflow.
    #[serde(default)]
    pub r#type: EventType,
    /// Whether it may be launched (S10).
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// The category whose limits it takes where it has none of a type (S7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Its limits, at most [`LIMITS_MAX`].
    #[serde(default, deserialize_with = "bounds::list::<_, _, LIMITS_MAX>")]
    pub limits: Vec<Limit>,
    /// Servers and groups that may execute it, at most [`TARGETS_MAX`]; none = every server (S18).
    #[serde(default, deserialize_with = "bounds::list::<_, _, TARGETS_MAX>")]
    pub targets: Vec<String>,
    /// How a server is picked among the eligible ones (S18).
    #[serde(default)]
    pub algo: Algorithm,
    /// The priority of its jobs where a launch names none (S19).
    #[serde(default)]
    pub priority: Priority,
    /// The parameters of its jobs where a launch has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Params>,
    /// The nodes of a workflow, at most [`NODES_MAX`].
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounds::list::<_, _, NODES_MAX>"
    )]
    pub nodes: Vec<Node>,
    /// When a job's limits are fixed (S8).
    #[serde(default)]
    pub resolve_limits: ResolveLimits,
    /// What the leader does between the start of a job and its hand-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_start: Option<StartAction>,
    /// The number of the definition's last change. In a `PUT`: the one that it must still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// A node of a workflow: jobs launched from it share a pool within one execution (S9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a node: an object")]
pub struct Node {
    /// The id, unique within the workflow.
    pub id: String,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The event that is usually launched from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Its limits (S7), at most [`LIMITS_MAX`].
    #[serde(default, deserialize_with = "bounds::list::<_, _, LIMITS_MAX>")]
    pub limits: Vec<Limit>,
}

/// A category: limits that its events take where they have none of a type (S7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a category: an object")]
pub struct Category {
    /// The id. In a `PUT` it may be absent; given, it must be that of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its limits, at most [`LIMITS_MAX`].
    #[serde(default, deserialize_with = "bounds::list::<_, _, LIMITS_MAX>")]
    pub limits: Vec<Limit>,
    /// The number of the definition's last change. In a `PUT`: the one that it must still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// An HTTP request that the leader makes between the start of a job and its hand-out: until it is
/// over, the attempt is neither offered to a worker nor can it be confirmed.
///
/// The rate is taken before (S13). The request is a `POST` of a [`crate::servers::StartNotice`] with
/// an `Idempotency-Key` of job and attempt. Any 2xx is success; redirects are not followed. It is made at
/// least once for every attempt that is handed out: after a change of leader, or where
/// `start_timeout` ended the attempt, it is made again for the next one (S15, S39). The time that it
/// takes counts in `start_timeout`.
///
/// Whoever may read events can read the headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a start action: an object with `url`"
)]
pub struct StartAction {
    /// Where it goes: `http://HOST[:PORT]/PATH`, at most 2,048 bytes.
    pub url: String,
    /// Further headers, at most 16 with names and values of up to 1,024 bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How long it may take, in seconds, 1 to 300.
    #[serde(default = "action_timeout_s")]
    pub timeout_s: u64,
    /// What becomes of the job if it fails: no answer in time, or another than 2xx.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// What becomes of a job whose start action fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It does not run: it ends `complete` with code 125 and the failure as its description, its
    /// start is given back (S31), and its retries are used, if it has any (S49).
    #[default]
    Abort,
    /// It goes on; the leader logs the failure.
    Continue,
}

/// What a definition describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// A job that an executor runs.
    #[default]
    Event,
    /// A workflow, whose jobs are launched from its nodes and whose executor is its caller.
    Workflow,
}

/// How a server is picked among the eligible ones (S18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// The one with the fewest starting and active jobs, then by id.
    #[default]
    FewestJobs,
    /// The next id after the event's last pick.
    RoundRobin,
    /// The first by id.
    PreferFirst,
    /// The last by id.
    PreferLast,
    /// By the place of the start in the log.
    Random,
}

/// When a job's limits are fixed (S8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolveLimits {
    /// When it is launched.
    #[default]
    Launch,
    /// When it first falls due.
    FirstStart,
}

fn enabled() -> bool {
    true
}

fn action_timeout_s() -> u64 {
    5
}
