//! Pools, their windows, and overrides.

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::limits::{Align, Style};
use crate::time::Timestamp;
use crate::whole;

/// A pool as it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// The id (S9): `cap:KEY`, `node:NODE@JOB`, `event:ID` or `job:ID`.
    pub id: String,
    /// Its jobs in `starting` and `active`.
    pub running: u64,
    /// Its jobs in `queued`.
    pub waiting: u64,
    /// Its jobs in `delayed`.
    pub delayed: u64,
    /// The limits in force for the queue's head, or else for its latest job.
    pub limits: LimitsInForce,
    /// The head of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The gate that the head found shut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Gate>,
    /// The override, where one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#override: Option<Override>,
    /// The open window, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowView>,
}

/// The limits of a pool as they are applied, overrides included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsInForce {
    /// Most jobs at once; absent = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
    /// Most waiting jobs; absent = no queue limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// The start rate; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateInForce>,
}

/// A rate as it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateInForce {
    /// Most starts per window.
    pub count: u64,
    /// Length of the window in seconds.
    pub window_s: u64,
    /// Shape of the window.
    pub style: Style,
    /// Where a fixed window begins; absent for the other styles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align: Option<Align>,
    /// Capacity of a token bucket; absent for the other styles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

/// What a queue's head waits for (S20).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "snake_case")]
pub enum Gate {
    /// A slot of its pool.
    Slot,
    /// The rate of its pool's window.
    Window,
    /// A rate bucket.
    Rate {
        /// The bucket's id: `rate:KEY`.
        id: String,
    },
    /// A server with room.
    Server,
}

/// An active window or bucket (S30).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowView {
    /// The pool's id, or `rate:KEY`.
    pub id: String,
    /// The event; null where the pool or bucket is shared.
    pub event: Option<String>,
    /// Starts counted; whole tokens for a token bucket.
    pub count: u64,
    /// Most starts; the burst for a token bucket.
    pub max: u64,
    /// Length in force, in seconds.
    pub window_s: u64,
    /// Shape.
    pub style: Style,
    /// When it expires: the boundary; the last start's leaving; when the bucket is full. Null
    /// where it never does, as a bucket that an override keeps from refilling.
    pub expires_at: Option<Timestamp>,
    /// The same as a duration from now.
    pub expires_in_ms: Option<u64>,
    /// When one more start is allowed if nothing else happens, overrides that go by themselves seen;
    /// an instant that has passed = now; null = never as things stand.
    pub next_at: Option<Timestamp>,
    /// The override in force; null where none is set.
    pub r#override: Option<Override>,
    /// Whether jobs of the pool carry other settings than those with which it was opened (S26).
    pub settings_differ: bool,
}

/// An override of a pool or `rate:KEY` (S33): the body of `PUT /v1/overrides/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an override: an object")]
pub struct Override {
    /// Stands for the rate and the burst; 0 lets nobody start who uses the rate.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional::<_, _, 0, { bounds::RATE_MAX }>"
    )]
    pub count: Option<u64>,
    /// Stands for the length of the window, in seconds.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional::<_, _, 1, { bounds::WINDOW_S_MAX }>"
    )]
    pub window_s: Option<u64>,
    /// Stands for the concurrency; 0 holds the pool. For pools only.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole::optional::<_, _, 0, { bounds::AMOUNT_MAX }>"
    )]
    pub amount: Option<u64>,
    /// When it goes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Why it was set, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An override with the pool or bucket that it is for: an item of `GET /v1/overrides`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideView {
    /// The pool's id, or `rate:KEY`.
    pub id: String,
    /// What it says.
    pub r#override: Override,
}
