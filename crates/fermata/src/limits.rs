//! Limits as a person reads them, in the words of the rules (S2–S5, S49, S50).

use fermata_api::limits::{JobLimit, Limit, RateLimit};

use crate::screen::word;

/// One limit in a few words: `5 at once, 30 per 10 s (fixed, utc)`.
pub(crate) fn limit(limit: &Limit) -> String {
    let (is_enabled, text) = match limit {
        Limit::Job(limit) => (limit.enabled, job(limit)),
        Limit::Queue(limit) => (limit.enabled, format!("queue of {}", limit.amount)),
        Limit::Rate(limit) => (limit.enabled, rate(limit)),
        Limit::Time(limit) => (limit.enabled, format!("at most {} s", limit.duration)),
        Limit::Retry(limit) => {
            let text = format!("{} retries after {} s", limit.amount, limit.duration);
            let text = match limit.backoff {
                Some(backoff) => format!("{text} (times {backoff} each)"),
                None => text,
            };
            (limit.enabled, text)
        }
    };
    if is_enabled {
        text
    } else {
        format!("disabled: {text}")
    }
}

/// Several limits in one line.
pub(crate) fn limits<'a>(limits: impl IntoIterator<Item = &'a Limit>) -> String {
    limits.into_iter().map(limit).collect::<Vec<_>>().join("; ")
}

fn job(limit: &JobLimit) -> String {
    let mut parts = Vec::new();
    if limit.amount > 0 {
        parts.push(format!("{} at once", limit.amount));
    }
    if limit.rate > 0 {
        let window = limit.window.map_or_else(String::new, |s| format!(" {s} s"));
        let shape = [
            limit.style.as_ref().map(word),
            limit.align.as_ref().map(word),
            limit.burst.map(|burst| format!("burst {burst}")),
            limit.mode.as_ref().map(word),
        ];
        parts.push(format!("{} per{window}{}", limit.rate, in_brackets(shape)));
    }
    if let Some(key) = limit.cap_key.as_deref().filter(|key| !key.is_empty()) {
        parts.push(format!("key {key}"));
    }
    if let Some(weight) = limit.weight {
        parts.push(format!("weight {weight}"));
    }
    if parts.is_empty() {
        "no job limit".to_owned()
    } else {
        parts.join(", ")
    }
}

fn rate(limit: &RateLimit) -> String {
    let shape = [
        limit.style.as_ref().map(word),
        limit.burst.map(|burst| format!("burst {burst}")),
        limit.mode.as_ref().map(word),
    ];
    let RateLimit {
        key,
        count,
        per_seconds,
        ..
    } = limit;
    format!("{key}: {count} per {per_seconds} s{}", in_brackets(shape))
}

fn in_brackets(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    }
}
