//! Names of the HTTP headers that the contract adds to the usual ones, in lower case.

/// On answers of a node that is not the leader: the leader's client URL, so that a client can go
/// there directly.
pub const LEADER: &str = "fermata-leader";
/// On requests: how long the client waits for the answer, in milliseconds. A node answers within
/// it, with `no_leader` or `unknown_outcome` if need be, instead of letting the client hang up.
pub const TIMEOUT_MS: &str = "fermata-timeout-ms";
/// On answers to `?consistency=stale`: how long ago this node was last known to be current, in
/// milliseconds.
pub const AGE_MS: &str = "fermata-age-ms";
/// On answers of the pool's calls: the index of the log that the answer reflects. A node that has
/// applied it has everything that the answer tells.
pub const APPLIED_INDEX: &str = "fermata-applied-index";
/// On `POST /v1/jobs`: a key that makes a retry harmless (S40), instead of an `id`.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// On `PUT` and `DELETE` of a definition: the revision, in quotes, that it must still have.
pub const IF_MATCH: &str = "if-match";
/// On `PUT` of a definition: `*`, where there must be none yet.
pub const IF_NONE_MATCH: &str = "if-none-match";
/// On answers that carry a definition: its revision, in quotes.
pub const ETAG: &str = "etag";
/// On 429 and 503: whole seconds until the request may succeed, never earlier than the truth.
pub const RETRY_AFTER: &str = "retry-after";
/// The media type of requests and of answers that are no problems.
pub const JSON: &str = "application/json";
/// The media type of [`crate::problem::Problem`] (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";
