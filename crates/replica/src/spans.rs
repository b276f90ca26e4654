//! Spans of the rates that decide about starts (S44), for whoever traces.
//!
//! A rate decides while an entry is applied, and every member applies it. So the spans are of the
//! member that proposed the entry, the leader, alone; nobody pays for them where no subscriber
//! wants spans of this target. A span covers no time: a decision has an instant.

use fermata_pool::limits::Style;
use fermata_pool::outcome::RateCheck;
use tracing::Level;

/// The target of the spans, by which a subscriber's filter names them.
pub const RATE_SPANS_TARGET: &str = "fermata::rate_limit";

/// Whether anybody wants them.
pub(crate) fn wanted() -> bool {
    tracing::span_enabled!(target: RATE_SPANS_TARGET, Level::INFO, "rate_limit_check")
}

/// Emits a span for each check.
pub(crate) fn emit(checks: &[RateCheck]) {
    for check in checks {
        let style = match check.style {
            Style::Fixed => "fixed",
            Style::Sliding => "sliding",
            Style::TokenBucket => "token_bucket",
        };
        let span = tracing::info_span!(
            target: RATE_SPANS_TARGET,
            "rate_limit_check",
            rate_limit.key = &*check.key,
            rate_limit.count = check.count,
            rate_limit.window_seconds = check.window_s,
            rate_limit.style = style,
            rate_limit.outcome = check.outcome.word(),
        );
        span.in_scope(|| ());
    }
}
