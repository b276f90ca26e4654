//! The cluster's settings: `GET` and `PUT /v1/settings` (S7, S51).

use serde::{Deserialize, Serialize};

use crate::bounds::{self, LIMITS_MAX};
use crate::limits::Limit;
use crate::object;
use crate::whole;

/// Settings of the whole cluster. A `PUT` replaces them whole; absent fields take their defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "settings: an object")]
pub struct Settings {
    /// Limits of every job that has none of a type from a nearer place (S7).
    #[serde(deserialize_with = "object::by_name")]
    pub universal_limits: UniversalLimits,
    /// Within what a start must be confirmed (S15), in seconds.
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::DURATION_S_MAX }>")]
    pub start_timeout_s: u64,
    /// Start timeouts after which a job is aborted (S15).
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::START_ATTEMPTS_MAX }>")]
    pub max_start_attempts: u32,
    /// Silence after which a server is offline (S42), in seconds.
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::DURATION_S_MAX }>")]
    pub server_timeout_s: u64,
    /// Further silence after which its active jobs are lost (S42), in seconds.
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::DURATION_S_MAX }>")]
    pub job_timeout_s: u64,
    /// A caller's lease where its launch names none (S46), in seconds.
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::DURATION_S_MAX }>")]
    pub lease_s: u64,
    /// How long finished jobs are kept (S47), in seconds.
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::DURATION_S_MAX }>")]
    pub retention_s: u64,
    /// Most finished jobs that are kept (S47).
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::JOBS_KEPT_MAX }>")]
    pub finished_max: u64,
    /// Most unfinished jobs (S47).
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::JOBS_KEPT_MAX }>")]
    pub unfinished_max: u64,
    /// The clock step of a leader that is shown as skew, in seconds.
    #[serde(deserialize_with = "whole::number::<_, _, 1, { bounds::DURATION_S_MAX }>")]
    pub max_clock_step_s: u64,
    /// Most bytes of a job's parameters (S11), up to [`bounds::PARAMS_BYTES_MAX`].
    #[serde(deserialize_with = "whole::number::<_, _, 0, { bounds::PARAMS_BYTES_MAX as u64 }>")]
    pub params_bytes_max: u64,
    /// The number of the last change. In a `PUT`: the one that the settings must still have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

impl Default for Settings {
    /// S51, and 16 KiB of parameters (S11).
    fn default() -> Self {
        Self {
            universal_limits: UniversalLimits::default(),
            start_timeout_s: 30,
            max_start_attempts: 3,
            server_timeout_s: 30,
            job_timeout_s: 120,
            lease_s: 30,
            retention_s: 3_600,
            finished_max: 1_000_000,
            unfinished_max: 2_000_000,
            max_clock_step_s: 5,
            params_bytes_max: 16 * 1024,
            revision: None,
        }
    }
}

/// Limits of last resort (S7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "an object with `default` and `workflow`"
)]
pub struct UniversalLimits {
    /// For jobs of events, at most [`LIMITS_MAX`].
    #[serde(deserialize_with = "bounds::list::<_, _, LIMITS_MAX>")]
    pub default: Vec<Limit>,
    /// For jobs of workflows, at most [`LIMITS_MAX`].
    #[serde(deserialize_with = "bounds::list::<_, _, LIMITS_MAX>")]
    pub workflow: Vec<Limit>,
}
