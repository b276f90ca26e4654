//! Every path of the contract, once: templates for the server's router, and the function with
//! which a client fills them, so that the two cannot disagree about odd characters.
//!
//! A template holds at most one `{id}`. Ids of pools, windows and overrides carry keys with any
//! UTF-8 in them (`cap:a/b`), so [`path`] percent-encodes all but RFC 3986's unreserved characters
//! and the colon; the router decodes the segment.

/// One event: `PUT`, `GET`, `DELETE`.
pub const EVENT: &str = "/v1/events/{id}";
/// All events: `GET`.
pub const EVENTS: &str = "/v1/events";
/// One category: `PUT`, `GET`, `DELETE`.
pub const CATEGORY: &str = "/v1/categories/{id}";
/// All categories: `GET`.
pub const CATEGORIES: &str = "/v1/categories";
/// The cluster's settings: `GET`, `PUT`.
pub const SETTINGS: &str = "/v1/settings";
/// Jobs: `POST` launches one or many, `GET` lists.
pub const JOBS: &str = "/v1/jobs";
/// One job: `GET`.
pub const JOB: &str = "/v1/jobs/{id}";
/// Why a job waits: `GET`.
pub const JOB_WHY: &str = "/v1/jobs/{id}/why";
/// `POST`: ends a job that is not final.
pub const JOB_CANCEL: &str = "/v1/jobs/{id}/cancel";
/// `POST`: the executor's confirmation.
pub const JOB_STARTED: &str = "/v1/jobs/{id}/started";
/// `POST`: the caller's renewal.
pub const JOB_HEARTBEAT: &str = "/v1/jobs/{id}/heartbeat";
/// `POST`: the executor's result.
pub const JOB_COMPLETED: &str = "/v1/jobs/{id}/completed";
/// One server: `PUT`, `GET`, `DELETE`.
pub const SERVER: &str = "/v1/servers/{id}";
/// All servers: `GET`.
pub const SERVERS: &str = "/v1/servers";
/// `POST`: a worker's heartbeat and long poll.
pub const SERVER_POLL: &str = "/v1/servers/{id}/poll";
/// `POST`: takes nothing new, ends what it runs; its worker leaves.
pub const SERVER_DRAIN: &str = "/v1/servers/{id}/drain";
/// `POST`: its worker leaves.
pub const SERVER_LEAVE: &str = "/v1/servers/{id}/leave";
/// One pool: `GET`.
pub const POOL: &str = "/v1/pools/{id}";
/// All pools: `GET`.
pub const POOLS: &str = "/v1/pools";
/// One window: `DELETE` resets it.
pub const WINDOW: &str = "/v1/windows/{id}";
/// The active windows: `GET`; `DELETE` resets all.
pub const WINDOWS: &str = "/v1/windows";
/// One override: `PUT`, `DELETE`.
pub const OVERRIDE: &str = "/v1/overrides/{id}";
/// All overrides: `GET`.
pub const OVERRIDES: &str = "/v1/overrides";
/// Counters: `GET`, `DELETE` sets them to zero.
pub const STATS: &str = "/v1/stats";
/// Who changed what: `GET`.
pub const AUDIT: &str = "/v1/audit";
/// The cluster's nodes: `GET`.
pub const CLUSTER: &str = "/v1/cluster";
/// `POST` adds a node.
pub const MEMBERS: &str = "/v1/cluster/members";
/// One node: `DELETE` removes it.
pub const MEMBER: &str = "/v1/cluster/members/{id}";
/// `POST` hands leadership over.
pub const TRANSFER: &str = "/v1/cluster/transfer";
/// Is the process alive?
pub const LIVEZ: &str = "/livez";
/// Can the node serve?
pub const READYZ: &str = "/readyz";
/// Prometheus metrics.
pub const METRICS: &str = "/metrics";

/// The path of `template` for `id`, percent-encoded.
///
/// ```
/// use fermata_api::routes;
/// assert_eq!(routes::path(routes::WINDOW, "cap:a/b"), "/v1/windows/cap:a%2Fb");
/// ```
#[must_use]
pub fn path(template: &str, id: &str) -> String {
    template.replacen("{id}", &encode(id), 1)
}

/// Percent-encodes one segment of a path or one value of a query string.
#[must_use]
pub fn encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    // `.` and `..` alone would be taken for steps in the path.
    let is_step = matches!(text, "." | "..");
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'.' if is_step => encoded.push_str("%2E"),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                encoded.push(char::from(byte));
            }
            _ => {
                encoded.push('%');
                encoded.push(char::from(HEX[usize::from(byte >> 4)]));
                encoded.push(char::from(HEX[usize::from(byte & 0xF)]));
            }
        }
    }
    encoded
}
