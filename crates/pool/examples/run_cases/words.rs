//! The words of a case: JSON as the cases write it, made into what the pool takes.

use fermata_pool::command::{
    Algo, Category, Event, EventKind, Executor, Launch, Node, Override, Parent, ResolveLimits,
    Settings,
};
use fermata_pool::limits::{
    Align, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, RetryLimit, Style, TimeLimit,
};
use fermata_pool::time::Instant;
use serde_json::{Map, Value};

/// Why a case cannot be read.
pub(crate) type Fault = String;

pub(crate) fn object(value: &Value) -> Result<&Map<String, Value>, Fault> {
    value
        .as_object()
        .ok_or_else(|| format!("{value} is no object"))
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(crate) fn text(value: &Value) -> Result<Box<str>, Fault> {
    value
        .as_str()
        .map(Into::into)
        .ok_or_else(|| format!("{value} is no text"))
}

pub(crate) fn texts(value: &Value) -> Result<Vec<Box<str>>, Fault> {
    list(value).map(text).collect()
}

pub(crate) fn optional_text(value: &Value) -> Result<Option<Box<str>>, Fault> {
    if value.is_null() {
        Ok(None)
    } else {
        text(value).map(Some)
    }
}

pub(crate) fn small(value: &Value) -> Result<Option<u32>, Fault> {
    match value.as_u64() {
        None => Ok(None),
        Some(number) => u32::try_from(number).map(Some).map_err(|it| it.to_string()),
    }
}

/// `2026-03-02T12:00:17.000Z`
pub(crate) fn instant(value: &Value) -> Result<Instant, Fault> {
    let text = value
        .as_str()
        .ok_or_else(|| format!("{value} is no instant"))?;
    let parse = || -> Option<i64> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let mut date = date.splitn(3, '-').map(|it| it.parse::<i64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let mut clock = clock.splitn(3, ':').map(|it| it.parse::<i64>().ok());
        let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
        let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        // Days since 1970 in a calendar whose year begins in March.
        let (year, month) = if month <= 2 {
            (year - 1, month + 9)
        } else {
            (year, month - 3)
        };
        let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = 365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468;
        Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
    };
    parse()
        .map(Instant::from_us)
        .ok_or_else(|| format!("{text:?} is no instant"))
}

pub(crate) fn attempt(value: &Value) -> Result<(Box<str>, u32), Fault> {
    let attempt = small(&value["attempt"])?.ok_or("no attempt")?;
    Ok((text(&value["job"])?, attempt))
}

pub(crate) fn priority(value: &Value) -> Result<Option<i8>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(high) => Ok(Some(i8::from(*high))),
        other => {
            let number = other.as_i64().and_then(|it| i8::try_from(it).ok());
            number
                .map(Some)
                .ok_or_else(|| format!("{other} is no priority"))
        }
    }
}

pub(crate) fn launch(value: &Value) -> Result<Launch, Fault> {
    let parent = match &value["workflow"] {
        Value::Null => None,
        parent => Some(Parent {
            job: text(&parent["job"])?,
            node: text(&parent["node"])?,
        }),
    };
    let executor = match value["executor"].as_str() {
        None => None,
        Some("server") => Some(Executor::Server),
        Some("caller") => Some(Executor::Caller),
        Some(other) => return Err(format!("unknown executor {other:?}")),
    };
    Ok(Launch {
        id: text(&value["id"])?,
        event: optional_text(&value["event"])?,
        priority: priority(&value["priority"])?,
        params: value
            .get("params")
            .map(|params| params.to_string().into_bytes().into()),
        request_hash: None,
        limits: limits(&value["limits"])?,
        targets: value.get("targets").map(texts).transpose()?,
        delay_s: value["delay_s"].as_u64(),
        parent,
        executor,
        lease_s: value["lease_s"].as_u64(),
    })
}

pub(crate) fn event(value: &Value) -> Result<Event, Fault> {
    let kind = match value["type"].as_str() {
        None | Some("event") => EventKind::Event,
        Some("workflow") => EventKind::Workflow,
        Some(other) => return Err(format!("unknown type {other:?}")),
    };
    let algo = match value["algo"].as_str() {
        None | Some("fewest_jobs") => Algo::FewestJobs,
        Some("round_robin") => Algo::RoundRobin,
        Some("prefer_first") => Algo::PreferFirst,
        Some("prefer_last") => Algo::PreferLast,
        Some("random") => Algo::Random,
        Some(other) => return Err(format!("unknown algo {other:?}")),
    };
    let resolve = match value["resolve_limits"].as_str() {
        None | Some("launch") => ResolveLimits::Launch,
        Some("first_start") => ResolveLimits::FirstStart,
        Some(other) => return Err(format!("unknown resolve_limits {other:?}")),
    };
    let node = |value: &Value| -> Result<Node, Fault> {
        Ok(Node {
            id: text(&value["id"])?,
            title: optional_text(&value["title"])?.unwrap_or_default(),
            event: optional_text(&value["event"])?,
            limits: limits(&value["limits"])?,
        })
    };
    Ok(Event {
        id: text(&value["id"])?,
        title: optional_text(&value["title"])?.unwrap_or_default(),
        kind,
        enabled: value["enabled"].as_bool().unwrap_or(true),
        category: optional_text(&value["category"])?,
        limits: limits(&value["limits"])?,
        targets: texts(&value["targets"])?,
        algo,
        priority: priority(&value["priority"])?.unwrap_or(0),
        params: None,
        nodes: list(&value["nodes"]).map(node).collect::<Result<_, _>>()?,
        resolve,
        on_start: None,
    })
}

pub(crate) fn category(value: &Value) -> Result<Category, Fault> {
    let title = optional_text(&value["title"])?.unwrap_or_default();
    Ok(Category {
        id: text(&value["id"])?,
        title,
        limits: limits(&value["limits"])?,
    })
}

pub(crate) fn settings(value: &Value) -> Result<Settings, Fault> {
    let mut settings = Settings {
        // Leases do not run out in cases, and nothing is forgotten.
        retention_s: 366 * 86_400,
        ..Settings::default()
    };
    if let Some(seconds) = small(&value["start_timeout_s"])? {
        settings.start_timeout_s = seconds;
    }
    if let Some(attempts) = small(&value["max_start_attempts"])? {
        settings.max_start_attempts = attempts;
    }
    let universal = &value["universal_limits"];
    settings.universal_event_limits = limits(&universal["default"])?;
    settings.universal_workflow_limits = limits(&universal["workflow"])?;
    Ok(settings)
}

pub(crate) fn sizes(value: &Value) -> Result<Override, Fault> {
    let expires_at = match &value["expires_at"] {
        Value::Null => None,
        at => Some(instant(at)?),
    };
    Ok(Override {
        count: small(&value["count"])?,
        window_s: small(&value["window_s"])?,
        amount: small(&value["amount"])?,
        expires_at,
        note: "".into(),
    })
}

pub(crate) fn limits(value: &Value) -> Result<Vec<Limit>, Fault> {
    list(value).map(limit).collect()
}

pub(crate) fn limit(value: &Value) -> Result<Limit, Fault> {
    let style = match value["style"].as_str() {
        None => None,
        Some("fixed") => Some(Style::Fixed),
        Some("sliding") => Some(Style::Sliding),
        Some("token_bucket") => Some(Style::TokenBucket),
        Some(other) => return Err(format!("unknown style {other:?}")),
    };
    let align = match value["align"].as_str() {
        None => None,
        Some("local") => Some(Align::Local),
        Some("utc") => Some(Align::Utc),
        Some(other) => return Err(format!("unknown align {other:?}")),
    };
    let mode = match value["mode"].as_str() {
        None => None,
        Some("wait") => Some(Mode::Wait),
        Some("skip") => Some(Mode::Skip),
        Some(other) => return Err(format!("unknown mode {other:?}")),
    };
    let number = |key: &str| value[key].as_u64();
    let needed = |key: &str| number(key).ok_or_else(|| format!("a limit without {key}"));
    let kind = match value["type"].as_str() {
        Some("job") => LimitKind::Job(JobLimit {
            amount: number("amount").unwrap_or(0),
            rate: number("rate").unwrap_or(0),
            window: number("window"),
            cap_key: optional_text(&value["cap_key"])?,
            style,
            align,
            burst: number("burst"),
            mode,
            weight: number("weight"),
        }),
        Some("queue") => LimitKind::Queue(QueueLimit {
            amount: number("amount").unwrap_or(0),
        }),
        Some("rate") => LimitKind::Rate(RateLimit {
            key: text(&value["key"])?,
            count: needed("count")?,
            per_seconds: needed("per_seconds")?,
            style,
            burst: number("burst"),
            mode,
        }),
        Some("time") => LimitKind::Time(TimeLimit {
            duration: needed("duration")?,
        }),
        Some("retry") => LimitKind::Retry(RetryLimit {
            amount: needed("amount")?,
            duration: number("duration").unwrap_or(0),
            backoff: number("backoff"),
        }),
        other => return Err(format!("unknown type of limit {other:?}")),
    };
    Ok(Limit {
        enabled: value["enabled"].as_bool().unwrap_or(true),
        kind,
    })
}
