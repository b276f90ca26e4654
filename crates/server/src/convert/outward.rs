//! The pool's state and outcomes as they are answered.

use fermata_api::audit::{self, AuditAction};
use fermata_api::events::{self, Algorithm, EventType};
use fermata_api::jobs::{self, JobState, LogPlace, Priority};
use fermata_api::limits as api_limits;
use fermata_api::params::Params;
use fermata_api::servers::{Offer, ServerView, StopReason};
use fermata_api::settings;
use fermata_api::time::Timestamp;
use fermata_pool::Pool;
use fermata_pool::audit::{Action, AuditRecord};
use fermata_pool::command::{
    Algo, Category, Event, EventKind, Executor, Node, OnFailure, ResolveLimits, Settings,
    StartAction,
};
use fermata_pool::job::{Attempt, Difference, MetaLine, Note, PutBackCause, State};
use fermata_pool::limits::{Align, Limit, LimitKind, Mode, Style};
use fermata_pool::outcome::{Reason, Standing};
use fermata_pool::query::{JobView, Stored};
use fermata_pool::server::Server;
use fermata_pool::terms::{Source, SourcedLimit};
use fermata_pool::time::Instant;

use super::refusals::reason;

/// An instant as it is shown: rounded up (S30).
pub(crate) fn time(at: Instant) -> Timestamp {
    Timestamp::from_unix_us_rounded_up(at.us())
}

/// How much of a job is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// All of it.
    Whole,
    /// Without parameters and meta log: one of a list.
    Brief,
}

/// A job.
pub(crate) fn job(pool: &Pool, view: &JobView<'_>, detail: Detail) -> jobs::JobView {
    let job = view.job;
    let mut shown = jobs::JobView {
        id: job.id.to_string(),
        event: view.terms.event.as_deref().map(Into::into),
        state: state(&job.state),
        code: None,
        reason: None,
        description: None,
        pool: pool.pool_name(view),
        priority: priority(job.priority),
        executor: executor(view.terms.executor),
        workflow: job.parent.as_deref().map(|parent| jobs::WorkflowNode {
            job: parent.job.to_string(),
            node: parent.node.to_string(),
        }),
        attempt: job.attempt,
        server: view.server.map(Into::into),
        cancel: false,
        position: None,
        launched_at: time(job.launched_at),
        launch_number: view.number.0,
        due_at: None,
        started_at: None,
        start_index: None,
        active_at: None,
        ended_at: None,
        lease_s: job.lease.as_deref().map(|lease| u64::from(lease.lease_s)),
        limits: view.terms.limits.iter().map(sourced).collect(),
        params: None,
        meta: Vec::new(),
    };
    if detail == Detail::Whole {
        shown.params = view.params.and_then(params);
        shown.meta = job.meta.iter().map(meta_line).collect();
        // A queue's order is a tree: a place in it is counted, so lists do without.
        if matches!(job.state, State::Queued) {
            shown.position = pool.position(&job.id).map(|place| place.saturating_sub(1));
        }
    }
    match &job.state {
        State::Delayed { due } => shown.due_at = Some(time(*due)),
        State::Queued => {}
        State::Starting(attempt) | State::Active(attempt) => show_attempt(&mut shown, attempt),
        State::Ended(end) => {
            shown.ended_at = Some(time(end.at));
            match end.result {
                Ok(code) => shown.code = Some(code),
                Err(why) => shown.reason = Some(reason(why)),
            }
            shown.description = Some(end.description.to_string()).filter(|text| !text.is_empty());
            if let Some(last) = &end.last {
                shown.server = last.server.as_deref().map(Into::into);
                shown.started_at = Some(time(last.at));
                shown.start_index = Some(place(last.index, last.ordinal));
                shown.active_at = last.confirmed_at.map(time);
            }
        }
    }
    shown
}

fn show_attempt(shown: &mut jobs::JobView, attempt: &Attempt) {
    shown.started_at = Some(time(attempt.at));
    shown.start_index = Some(place(attempt.index, attempt.ordinal));
    shown.active_at = attempt.confirmed_at.map(time);
    shown.cancel = attempt.stop.is_some();
}

/// An attempt in `starting`, as it is offered to its server's worker.
pub(crate) fn offer(pool: &Pool, view: &JobView<'_>, attempt: &Attempt) -> Offer {
    Offer {
        job: view.job.id.to_string(),
        attempt: view.job.attempt,
        start_at: time(attempt.at),
        start_at_us: attempt.at.us(),
        start_index: place(attempt.index, attempt.ordinal),
        event: view.terms.event.as_deref().map(Into::into),
        // A job that was started has its limits, and with them its pool.
        pool: pool.pool_name(view).unwrap_or_default(),
        priority: priority(view.job.priority),
        params: view.params.and_then(params),
    }
}

/// Why an active attempt must stop.
pub(crate) fn stop(why: Reason) -> StopReason {
    match why {
        Reason::TimeLimit => StopReason::TimeLimit,
        Reason::RateLimited
        | Reason::ConcurrencyLimited
        | Reason::QueueFull
        | Reason::NoServer
        | Reason::ServerLost
        | Reason::StartTimeout
        | Reason::LeaseExpired
        | Reason::Cancelled
        | Reason::EventMissing => StopReason::Cancelled,
    }
}

/// The state of a row.
pub(crate) fn state(state: &State) -> JobState {
    match state {
        State::Delayed { .. } => JobState::Delayed,
        State::Queued => JobState::Queued,
        State::Starting(_) => JobState::Starting,
        State::Active(_) => JobState::Active,
        State::Ended(end) => match end.result {
            Ok(_) => JobState::Complete,
            Err(_) => JobState::Aborted,
        },
    }
}

/// The state of an outcome.
pub(crate) fn standing(standing: &Standing) -> JobState {
    match standing {
        Standing::Delayed => JobState::Delayed,
        Standing::Queued => JobState::Queued,
        Standing::Starting { .. } => JobState::Starting,
        Standing::Active { .. } => JobState::Active,
        Standing::Complete { .. } => JobState::Complete,
        Standing::Aborted { .. } => JobState::Aborted,
    }
}

/// An event with its revision.
pub(crate) fn event(stored: &Stored<'_, Event>) -> events::Event {
    let event = stored.definition;
    events::Event {
        id: Some(event.id.to_string()),
        title: text(&event.title),
        r#type: match event.kind {
            EventKind::Event => EventType::Event,
            EventKind::Workflow => EventType::Workflow,
        },
        enabled: event.enabled,
        category: event.category.as_deref().map(Into::into),
        limits: event.limits.iter().map(limit).collect(),
        targets: event.targets.iter().map(ToString::to_string).collect(),
        algo: match event.algo {
            Algo::FewestJobs => Algorithm::FewestJobs,
            Algo::RoundRobin => Algorithm::RoundRobin,
            Algo::PreferFirst => Algorithm::PreferFirst,
            Algo::PreferLast => Algorithm::PreferLast,
            Algo::Random => Algorithm::Random,
        },
        priority: priority(event.priority),
        params: event.params.as_deref().and_then(params),
        nodes: event.nodes.iter().map(node).collect(),
        resolve_limits: match event.resolve {
            ResolveLimits::Launch => events::ResolveLimits::Launch,
            ResolveLimits::FirstStart => events::ResolveLimits::FirstStart,
        },
        on_start: event.on_start.as_deref().map(start_action),
        revision: Some(stored.revision),
    }
}

fn start_action(action: &StartAction) -> events::StartAction {
    let headers = action.headers.iter();
    events::StartAction {
        url: action.url.to_string(),
        headers: headers
            .map(|header| (header.name.to_string(), header.value.to_string()))
            .collect(),
        timeout_s: action.timeout_s.into(),
        on_failure: match action.on_failure {
            OnFailure::Abort => events::OnFailure::Abort,
            OnFailure::Continue => events::OnFailure::Continue,
        },
    }
}

fn node(node: &Node) -> events::Node {
    events::Node {
        id: node.id.to_string(),
        title: text(&node.title),
        event: node.event.as_deref().map(Into::into),
        limits: node.limits.iter().map(limit).collect(),
    }
}

/// A category with its revision.
pub(crate) fn category(stored: &Stored<'_, Category>) -> events::Category {
    let category = stored.definition;
    events::Category {
        id: Some(category.id.to_string()),
        title: text(&category.title),
        limits: category.limits.iter().map(limit).collect(),
        revision: Some(stored.revision),
    }
}

/// The cluster's settings with their revision.
pub(crate) fn settings(stored: &Stored<'_, Settings>) -> settings::Settings {
    let settings = stored.definition;
    settings::Settings {
        universal_limits: settings::UniversalLimits {
            default: settings.universal_event_limits.iter().map(limit).collect(),
            workflow: settings
                .universal_workflow_limits
                .iter()
                .map(limit)
                .collect(),
        },
        start_timeout_s: settings.start_timeout_s.into(),
        max_start_attempts: settings.max_start_attempts,
        server_timeout_s: settings.server_timeout_s.into(),
        job_timeout_s: settings.job_timeout_s.into(),
        lease_s: settings.lease_s.into(),
        retention_s: settings.retention_s.into(),
        finished_max: settings.finished_max.into(),
        unfinished_max: settings.unfinished_max.into(),
        max_clock_step_s: settings.max_clock_step_s.into(),
        params_bytes_max: settings.params_bytes_max.into(),
        revision: Some(stored.revision),
    }
}

/// A server and what it does.
pub(crate) fn server(pool: &Pool, server: &Server) -> ServerView {
    let id = &server.definition.id;
    let starting = pool
        .held_by(id)
        .filter(|view| matches!(view.job.state, State::Starting(_)))
        .count() as u64;
    ServerView {
        id: id.to_string(),
        groups: server
            .definition
            .groups
            .iter()
            .map(ToString::to_string)
            .collect(),
        max_jobs: server.definition.max_jobs.map(Into::into),
        enabled: server.definition.enabled,
        online: server.online,
        draining: server.draining,
        incarnation: server
            .incarnation
            .as_deref()
            .and_then(|digits| digits.parse().ok()),
        starting,
        active: u64::from(server.jobs).saturating_sub(starting),
        weight: server.used.into(),
        seen_at: server.incarnation.as_ref().map(|_| time(server.heard_at)),
    }
}

fn sourced(sourced: &SourcedLimit) -> api_limits::SourcedLimit {
    api_limits::SourcedLimit {
        source: match sourced.source {
            Source::Launch => api_limits::LimitSource::Launch,
            Source::Event => api_limits::LimitSource::Event,
            Source::Node => api_limits::LimitSource::Node,
            Source::Category => api_limits::LimitSource::Category,
            Source::Universal => api_limits::LimitSource::Universal,
        },
        limit: limit(&sourced.limit),
    }
}

fn limit(limit: &Limit) -> api_limits::Limit {
    let enabled = limit.enabled;
    match &limit.kind {
        LimitKind::Job(job) => api_limits::Limit::Job(api_limits::JobLimit {
            enabled,
            amount: job.amount,
            rate: job.rate,
            window: job.window,
            cap_key: job.cap_key.as_deref().map(Into::into),
            style: job.style.map(style),
            align: job.align.map(align),
            burst: job.burst,
            mode: job.mode.map(mode),
            weight: job.weight,
        }),
        LimitKind::Queue(queue) => api_limits::Limit::Queue(api_limits::QueueLimit {
            enabled,
            amount: queue.amount,
        }),
        LimitKind::Rate(rate) => api_limits::Limit::Rate(api_limits::RateLimit {
            enabled,
            key: rate.key.to_string(),
            count: rate.count,
            per_seconds: rate.per_seconds,
            style: rate.style.map(style),
            burst: rate.burst,
            mode: rate.mode.map(mode),
        }),
        LimitKind::Time(time) => api_limits::Limit::Time(api_limits::TimeLimit {
            enabled,
            duration: time.duration,
        }),
        LimitKind::Retry(retry) => api_limits::Limit::Retry(api_limits::RetryLimit {
            enabled,
            amount: retry.amount,
            duration: retry.duration,
            backoff: retry.backoff,
        }),
    }
}

/// The shape of a window.
pub(crate) fn style(style: Style) -> api_limits::Style {
    match style {
        Style::Fixed => api_limits::Style::Fixed,
        Style::Sliding => api_limits::Style::Sliding,
        Style::TokenBucket => api_limits::Style::TokenBucket,
    }
}

/// Where fixed windows begin.
pub(crate) fn align(align: Align) -> api_limits::Align {
    match align {
        Align::Local => api_limits::Align::Local,
        Align::Utc => api_limits::Align::Utc,
    }
}

/// What becomes of a job that meets an exhausted rate.
pub(crate) fn mode(mode: Mode) -> api_limits::Mode {
    match mode {
        Mode::Wait => api_limits::Mode::Wait,
        Mode::Skip => api_limits::Mode::Skip,
    }
}

fn executor(executor: Executor) -> jobs::Executor {
    match executor {
        Executor::Server => jobs::Executor::Server,
        Executor::Caller => jobs::Executor::Caller,
    }
}

fn priority(priority: i8) -> Priority {
    // The pool keeps to the same range; what would lie outside is brought to its end.
    Priority::new(priority.into()).unwrap_or(if priority < 0 {
        Priority::MIN
    } else {
        Priority::MAX
    })
}

fn place(index: u64, ordinal: u32) -> LogPlace {
    LogPlace { index, ordinal }
}

fn params(json: &[u8]) -> Option<Params> {
    Params::from_json(std::str::from_utf8(json).ok()?).ok()
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn meta_line(line: &MetaLine) -> jobs::MetaLine {
    jobs::MetaLine {
        at: time(line.at),
        text: note(&line.note),
    }
}

fn note(note: &Note) -> String {
    match note {
        Note::Delayed => "launched with a delay".to_owned(),
        Note::Queued(why) => format!("queued: {}", why.code()),
        Note::QueuedBehind => "queued behind others".to_owned(),
        Note::Started { attempt, server } => match server {
            Some(server) => format!("attempt {attempt} started on {server}"),
            None => format!("attempt {attempt} started at its caller"),
        },
        Note::Confirmed { attempt } => format!("attempt {attempt} confirmed"),
        Note::PutBack { attempt, cause } => {
            let cause = match cause {
                PutBackCause::StartTimeout => "it was not confirmed in time",
                PutBackCause::Takeover => "a new leader took over",
                PutBackCause::ServerOffline => "its server went away",
                PutBackCause::ServerDraining => "its server takes nothing new",
            };
            format!("attempt {attempt} put back: {cause}")
        }
        Note::Stopping(why) => format!("told to stop: {}", why.code()),
        Note::Retry { retry, due } => format!("retry {retry} is due at {due}"),
        Note::Differs(difference) => differs(difference),
        Note::Ended => "ended".to_owned(),
        Note::LinesLeftOut => "lines were left out here".to_owned(),
    }
}

fn differs(difference: &Difference) -> String {
    let Difference {
        what,
        ours,
        theirs,
        job,
    } = difference;
    format!("warning: {what} is {ours} here and {theirs} in job {job} of the same pool")
}

/// A change by an operator.
pub(crate) fn audit_record(number: u64, record: &AuditRecord) -> audit::AuditRecord {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    audit::AuditRecord {
        number,
        at: time(record.at),
        index: record.index,
        actor: given(&record.actor),
        action: match record.action {
            Action::PutEvent => AuditAction::PutEvent,
            Action::DeleteEvent => AuditAction::DeleteEvent,
            Action::PutCategory => AuditAction::PutCategory,
            Action::DeleteCategory => AuditAction::DeleteCategory,
            Action::PutSettings => AuditAction::PutSettings,
            Action::PutServer => AuditAction::PutServer,
            Action::DeleteServer => AuditAction::DeleteServer,
            Action::DrainServer => AuditAction::DrainServer,
            Action::PutOverride => AuditAction::PutOverride,
            Action::DeleteOverride => AuditAction::DeleteOverride,
            Action::Reset => AuditAction::ResetWindow,
            Action::ResetAll => AuditAction::ResetWindows,
            Action::ResetStats => AuditAction::ResetStats,
            Action::AddMember => AuditAction::AddMember,
            Action::RemoveMember => AuditAction::RemoveMember,
            Action::Transfer => AuditAction::Transfer,
        },
        target: given(&record.target),
        revision: record.revision,
        change: given(&record.change),
    }
}
