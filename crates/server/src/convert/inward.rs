//! Requests to commands: HTTP's types to the pool's.
//!
//! What breaks a rule is refused here as well as by the pool, so that it never reaches the log
//! (S6). What depends on the state (an event that is missing, a bound of the settings) only the
//! pool can know.

use fermata_api::events::{self, Algorithm, EventType};
use fermata_api::jobs::{self, JobState};
use fermata_api::limits as api_limits;
use fermata_api::pools;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::servers::ServerBody;
use fermata_api::settings;
use fermata_pool::command::{
    Algo, Category, Event, EventKind, Executor, Header, Holder, Launch, Node, OnFailure, Override,
    PARAMS_BYTES_MAX, Parent, ResolveLimits, ServerDefinition, Settings, StartAction,
};
use fermata_pool::id::{check_id, check_key, check_scope_name};
use fermata_pool::limits::{
    Align, InvalidField, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, RetryLimit,
    Style, TimeLimit,
};
use fermata_pool::query::StateKind;
use fermata_pool::time::Instant;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};

/// The bound of parameters whatever the settings say; theirs is the pool's to know.
const PARAMS_BYTES_ANY: u32 = PARAMS_BYTES_MAX as u32;

/// Headers that a start action does not choose.
const OWN_HEADERS: [HeaderName; 5] = [
    CONNECTION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    HOST,
    TRANSFER_ENCODING,
];

/// A field that breaks a rule, as it is answered.
pub(crate) fn invalid(fault: InvalidField) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, fault.to_string()).with_field(fault.field)
}

/// An id of a path or body.
pub(crate) fn id(field: &str, text: &str) -> Result<Box<str>, Problem> {
    check_id(field, text).map_err(invalid)?;
    Ok(text.into())
}

/// The name of a pool or bucket.
pub(crate) fn scope(field: &str, text: &str) -> Result<Box<str>, Problem> {
    check_scope_name(field, text).map_err(invalid)?;
    Ok(text.into())
}

/// A launch under the id that was given or chosen for it, and the hash of its request.
pub(crate) fn launch(
    request: jobs::LaunchRequest,
    id: &str,
    request_hash: u64,
) -> Result<Launch, Problem> {
    let launch = Launch {
        id: id.into(),
        event: request.event.map(Into::into),
        priority: request.priority.map(jobs::Priority::get),
        params: request.params.map(|json| params(&json)),
        request_hash: Some(request_hash),
        limits: limits(request.limits),
        targets: Some(names(request.targets)).filter(|targets| !targets.is_empty()),
        delay_s: request.delay_s,
        parent: request.workflow.map(|parent| Parent {
            job: parent.job.into(),
            node: parent.node.into(),
        }),
        executor: request.executor.map(executor),
        lease_s: request.lease_s,
    };
    launch.check(PARAMS_BYTES_ANY).map_err(invalid)?;
    Ok(launch)
}

/// An event under the id of its path.
pub(crate) fn event(body: events::Event, id: &str) -> Result<Event, Problem> {
    same_id(body.id.as_deref(), id)?;
    let event = Event {
        id: id.into(),
        title: body.title.unwrap_or_default().into(),
        kind: match body.r#type {
            EventType::Event => EventKind::Event,
            EventType::Workflow => EventKind::Workflow,
        },
        enabled: body.enabled,
        category: body.category.map(Into::into),
        limits: limits(body.limits),
        targets: names(body.targets),
        algo: match body.algo {
            Algorithm::FewestJobs => Algo::FewestJobs,
            Algorithm::RoundRobin => Algo::RoundRobin,
            Algorithm::PreferFirst => Algo::PreferFirst,
            Algorithm::PreferLast => Algo::PreferLast,
            Algorithm::Random => Algo::Random,
        },
        priority: body.priority.get(),
        params: body.params.map(|json| params(&json)),
        nodes: body.nodes.into_iter().map(node).collect(),
        resolve: match body.resolve_limits {
            events::ResolveLimits::Launch => ResolveLimits::Launch,
            events::ResolveLimits::FirstStart => ResolveLimits::FirstStart,
        },
        on_start: body.on_start.map(start_action).transpose()?,
    };
    event.check(PARAMS_BYTES_ANY).map_err(invalid)?;
    Ok(event)
}

/// A start action that can be sent as it is: what cannot be is refused when it is defined.
fn start_action(action: events::StartAction) -> Result<Box<StartAction>, Problem> {
    let allowed = "http://HOST[:PORT]/PATH, without a user or password";
    let host = action.url.parse::<Uri>().ok().and_then(|url| {
        let authority = url.authority()?;
        let is_plain = url.scheme() == Some(&Scheme::HTTP) && !authority.as_str().contains('@');
        is_plain.then(|| authority.host().to_owned())
    });
    if host.is_none_or(|host| host.is_empty()) {
        let given = format!("{:?}", action.url);
        return Err(invalid(InvalidField::new("on_start.url", given, allowed)));
    }
    let mut headers = Vec::with_capacity(action.headers.len());
    for (name, value) in action.headers {
        let is_free = HeaderName::try_from(&name).is_ok_and(|name| !OWN_HEADERS.contains(&name));
        if !is_free || HeaderValue::try_from(&value).is_err() {
            let allowed = format!(
                "names and values of HTTP headers; not {}, which follow from the request",
                OWN_HEADERS.map(|name| name.to_string()).join(", ")
            );
            let given = format!("{name:?}: {value:?}");
            return Err(invalid(InvalidField::new(
                "on_start.headers",
                given,
                allowed,
            )));
        }
        headers.push(Header {
            name: name.into(),
            value: value.into(),
        });
    }
    Ok(Box::new(StartAction {
        url: action.url.into(),
        headers,
        timeout_s: number("on_start.timeout_s", action.timeout_s)?,
        on_failure: match action.on_failure {
            events::OnFailure::Abort => OnFailure::Abort,
            events::OnFailure::Continue => OnFailure::Continue,
        },
    }))
}

fn node(node: events::Node) -> Node {
    Node {
        id: node.id.into(),
        title: node.title.unwrap_or_default().into(),
        event: node.event.map(Into::into),
        limits: limits(node.limits),
    }
}

/// A category under the id of its path.
pub(crate) fn category(body: events::Category, id: &str) -> Result<Category, Problem> {
    same_id(body.id.as_deref(), id)?;
    let category = Category {
        id: id.into(),
        title: body.title.unwrap_or_default().into(),
        limits: limits(body.limits),
    };
    category.check().map_err(invalid)?;
    Ok(category)
}

/// The cluster's settings.
pub(crate) fn settings(body: settings::Settings) -> Result<Settings, Problem> {
    let settings = Settings {
        universal_event_limits: limits(body.universal_limits.default),
        universal_workflow_limits: limits(body.universal_limits.workflow),
        start_timeout_s: number("start_timeout_s", body.start_timeout_s)?,
        max_start_attempts: body.max_start_attempts,
        server_timeout_s: number("server_timeout_s", body.server_timeout_s)?,
        job_timeout_s: number("job_timeout_s", body.job_timeout_s)?,
        lease_s: number("lease_s", body.lease_s)?,
        retention_s: number("retention_s", body.retention_s)?,
        finished_max: number("finished_max", body.finished_max)?,
        unfinished_max: number("unfinished_max", body.unfinished_max)?,
        max_clock_step_s: number("max_clock_step_s", body.max_clock_step_s)?,
        params_bytes_max: number("params_bytes_max", body.params_bytes_max)?,
    };
    settings.check().map_err(invalid)?;
    Ok(settings)
}

/// A server under the id of its path.
pub(crate) fn server(body: ServerBody, id: &str) -> Result<ServerDefinition, Problem> {
    let definition = ServerDefinition {
        id: id.into(),
        groups: names(body.groups),
        max_jobs: body
            .max_jobs
            .map(|given| number("max_jobs", given))
            .transpose()?,
        enabled: body.enabled,
    };
    definition.check().map_err(invalid)?;
    Ok(definition)
}

/// An override of a pool or bucket.
pub(crate) fn sizes(body: pools::Override, scope: &str) -> Result<Override, Problem> {
    let count = |field, given: Option<u64>| given.map(|given| number(field, given)).transpose();
    let sizes = Override {
        count: count("count", body.count)?,
        window_s: count("window_s", body.window_s)?,
        amount: count("amount", body.amount)?,
        expires_at: body.expires_at.map(|at| Instant::from_ms(at.unix_ms())),
        note: body.note.unwrap_or_default().into(),
    };
    sizes.check(scope).map_err(invalid)?;
    Ok(sizes)
}

/// The life of a worker. The pool compares incarnations as text, so the digits are filled up.
pub(crate) fn holder(server: &str, incarnation: u64) -> Holder {
    Holder {
        server: server.into(),
        incarnation: format!("{incarnation:020}").into(),
    }
}

/// A state of a filter.
pub(crate) fn state(state: JobState) -> StateKind {
    match state {
        JobState::Delayed => StateKind::Delayed,
        JobState::Queued => StateKind::Queued,
        JobState::Starting => StateKind::Starting,
        JobState::Active => StateKind::Active,
        JobState::Complete => StateKind::Complete,
        JobState::Aborted => StateKind::Aborted,
    }
}

fn limits(given: Vec<api_limits::Limit>) -> Vec<Limit> {
    given.into_iter().map(limit).collect()
}

fn limit(given: api_limits::Limit) -> Limit {
    let (enabled, kind) = match given {
        api_limits::Limit::Job(job) => (
            job.enabled,
            LimitKind::Job(JobLimit {
                amount: job.amount,
                rate: job.rate,
                window: job.window,
                cap_key: job.cap_key.map(Into::into),
                style: job.style.map(style),
                align: job.align.map(|align| match align {
                    api_limits::Align::Local => Align::Local,
                    api_limits::Align::Utc => Align::Utc,
                }),
                burst: job.burst,
                mode: job.mode.map(mode),
                weight: job.weight,
            }),
        ),
        api_limits::Limit::Queue(queue) => (
            queue.enabled,
            LimitKind::Queue(QueueLimit {
                amount: queue.amount,
            }),
        ),
        api_limits::Limit::Rate(rate) => (
            rate.enabled,
            LimitKind::Rate(RateLimit {
                key: rate.key.into(),
                count: rate.count,
                per_seconds: rate.per_seconds,
                style: rate.style.map(style),
                burst: rate.burst,
                mode: rate.mode.map(mode),
            }),
        ),
        api_limits::Limit::Time(time) => (
            time.enabled,
            LimitKind::Time(TimeLimit {
                duration: time.duration,
            }),
        ),
        api_limits::Limit::Retry(retry) => (
            retry.enabled,
            LimitKind::Retry(RetryLimit {
                amount: retry.amount,
                duration: retry.duration,
                backoff: retry.backoff,
            }),
        ),
    };
    Limit { enabled, kind }
}

fn style(style: api_limits::Style) -> Style {
    match style {
        api_limits::Style::Fixed => Style::Fixed,
        api_limits::Style::Sliding => Style::Sliding,
        api_limits::Style::TokenBucket => Style::TokenBucket,
    }
}

fn mode(mode: api_limits::Mode) -> Mode {
    match mode {
        api_limits::Mode::Wait => Mode::Wait,
        api_limits::Mode::Skip => Mode::Skip,
    }
}

fn executor(executor: jobs::Executor) -> Executor {
    match executor {
        jobs::Executor::Server => Executor::Server,
        jobs::Executor::Caller => Executor::Caller,
    }
}

fn names(given: Vec<String>) -> Vec<Box<str>> {
    given.into_iter().map(Into::into).collect()
}

fn params(json: &fermata_api::params::Params) -> Box<[u8]> {
    json.as_json().as_bytes().into()
}

/// A key of a header, which is bounded before anything is made of it (S11).
pub(crate) fn key<'a>(field: &str, given: &'a str) -> Result<&'a str, Problem> {
    check_key(field, given).map_err(invalid)?;
    Ok(given)
}

/// A number that the pool keeps in 32 bits; its range by the rules is narrower still.
fn number(field: &str, given: u64) -> Result<u32, Problem> {
    u32::try_from(given).map_err(|_| {
        let allowed = format!("0 to {}", u32::MAX);
        invalid(InvalidField::new(field, given, allowed))
    })
}

fn same_id(given: Option<&str>, id: &str) -> Result<(), Problem> {
    match given {
        Some(given) if given != id => {
            let allowed = format!("absent, or {id:?} as in the path");
            Err(invalid(InvalidField::new(
                "id",
                format!("{given:?}"),
                allowed,
            )))
        }
        _ => Ok(()),
    }
}
