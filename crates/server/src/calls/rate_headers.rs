//! `RateLimit` and `RateLimit-Policy` on launch answers, as the IETF's draft of HTTP rate limit
//! fields has them: the tightest of a job's rates, what is left of it, and for how long.
//!
//! # Caveats
//!
//! - They are of the moment in which the answer was made: others launch, too.
//! - Names of pools and buckets may hold any UTF-8, strings of header fields may not; so names are
//!   percent-encoded, as in paths.

use fermata_api::routes::encode;
use fermata_pool::Pool;
use fermata_pool::limits::Style;
use fermata_pool::query::{JobView, WindowView};
use fermata_pool::terms::{RateSettings, Rules};
use fermata_pool::time::{Calendar, Instant, SECOND_US};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::cmp::Reverse;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A rate of a job, as its window is now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    name: String,
    /// Most starts per window.
    quota: u32,
    window_s: u32,
    /// Starts that are left.
    remaining: u32,
    /// Until the whole of the rate is there again; an override that goes before is seen.
    resets_in_s: Option<u64>,
}

/// The rate of the job with the fewest starts left, and of those the one that stays so for longest;
/// none where it has no rate.
pub(crate) fn tightest(
    pool: &Pool,
    view: &JobView<'_>,
    at: Instant,
    calendar: Calendar<'_>,
) -> Option<Rate> {
    let rules = Rules::of(&view.terms.limits);
    let own = rules
        .rate
        .and_then(|rate| Some((pool.pool_name(view)?, rate)));
    let buckets = rules.buckets.into_iter();
    own.into_iter()
        .chain(buckets.map(|bucket| (bucket.name.into(), bucket.settings)))
        .map(|(name, settings)| {
            let resets_at = pool.rate_resets_at(&name, at, calendar);
            let mut rate = match pool.window(&name, at) {
                Some(window) => Rate::open(name, &window),
                None => {
                    let settings = settings.under(pool.override_of(&name));
                    Rate::unopened(name, &settings)
                }
            };
            rate.resets_in_s = resets_at.map(|resets_at| {
                let left_us = u64::try_from(resets_at.since_us(at)).unwrap_or(0);
                left_us.div_ceil(SECOND_US as u64)
            });
            rate
        })
        .min_by_key(|rate| {
            (
                rate.remaining,
                Reverse(rate.resets_in_s.unwrap_or(u64::MAX)),
            )
        })
}

impl Rate {
    fn open(name: String, window: &WindowView<'_>) -> Self {
        Self {
            name,
            quota: window.max,
            window_s: window.settings.window_s,
            remaining: match window.settings.style {
                Style::Fixed | Style::Sliding => window.max.saturating_sub(window.count),
                Style::TokenBucket => window.count,
            },
            resets_in_s: None,
        }
    }

    fn unopened(name: String, settings: &RateSettings) -> Self {
        let quota = match settings.style {
            Style::Fixed | Style::Sliding => settings.rate,
            Style::TokenBucket => settings.burst,
        };
        Self {
            name,
            quota,
            window_s: settings.window_s,
            remaining: quota,
            resets_in_s: None,
        }
    }

    /// Writes both fields.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let name = encode(&self.name);
        let policy = format!("\"{name}\";q={};w={}", self.quota, self.window_s);
        let resets = self.resets_in_s.map(|seconds| format!(";t={seconds}"));
        let limit = format!(
            "\"{name}\";r={}{}",
            self.remaining,
            resets.unwrap_or_default()
        );
        for (header, text) in [(POLICY, policy), (LIMIT, limit)] {
            // Percent-encoded names and numbers are always a header value.
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(header, value);
            }
        }
    }
}
