//! How a job looks: in a line, in a table, and whole.

use fermata_api::jobs::{JobState, JobView};

use crate::limits::limit;
use crate::screen::{Screen, Tone, printable, word};
use crate::table::{Cell, cell, facts, maybe};

/// The heading of [`row`].
pub(super) const HEADING: [&str; 8] = [
    "JOB", "STATE", "END", "POOL", "PRIORITY", "ATTEMPT", "SERVER", "LAUNCHED",
];

/// A job in a table.
pub(super) fn row(job: &JobView) -> [Cell; 8] {
    [
        cell(&job.id),
        state(job),
        end(job),
        maybe(job.pool.as_ref()),
        cell(job.priority.get()),
        cell(job.attempt),
        maybe(job.server.as_ref()),
        cell(job.launched_at),
    ]
}

/// A job and how it stands, in one line.
pub(super) fn line(job: &JobView, screen: Screen) -> String {
    let state_word = word(&job.state);
    let more = match job.state {
        JobState::Delayed => job.due_at.map(|due_at| format!("due at {due_at}")),
        JobState::Queued => job.position.map(|position| match position {
            0 => "next of its pool".to_owned(),
            ahead => format!("{ahead} ahead"),
        }),
        JobState::Starting | JobState::Active => {
            let server = job.server.as_deref().unwrap_or("its caller");
            let stopping = if job.cancel { ", told to stop" } else { "" };
            Some(format!("attempt {} on {server}{stopping}", job.attempt))
        }
        JobState::Complete => job.code.map(|code| format!("code {code}")),
        JobState::Aborted => job.reason.map(|reason| word(&reason)),
    };
    let more = more.map_or_else(String::new, |more| format!("  {}", printable(&more)));
    let state_word = screen.paint(tone(job), &state_word);
    format!("{}  {state_word}{more}\n", job.id)
}

/// All that is known of a job.
pub(super) fn described(job: &JobView, screen: Screen) -> String {
    let node = job.workflow.as_ref();
    let lines = |text: &str| cell(printable(text));
    let one = [
        ("job", Some(cell(&job.id))),
        ("state", Some(state(job))),
        ("code", job.code.map(cell)),
        ("reason", job.reason.map(|reason| cell(word(&reason)))),
        ("event", job.event.as_ref().map(cell)),
        ("pool", job.pool.as_ref().map(cell)),
        ("priority", Some(cell(job.priority.get()))),
        ("position", job.position.map(cell)),
        ("executor", Some(cell(word(&job.executor)))),
        (
            "workflow",
            node.map(|node| cell(format!("{} of {}", node.node, node.job))),
        ),
        ("attempt", Some(cell(job.attempt))),
        ("server", job.server.as_ref().map(cell)),
        ("told to stop", job.cancel.then(|| cell("yes"))),
        ("launched", Some(cell(job.launched_at))),
        ("due", job.due_at.map(cell)),
        ("started", job.started_at.map(cell)),
        ("active", job.active_at.map(cell)),
        ("ended", job.ended_at.map(cell)),
        ("lease", job.lease_s.map(|s| cell(format!("{s} s")))),
        ("params", job.params.as_ref().map(|p| lines(p.as_json()))),
    ];
    let limits = job.limits.iter().map(|sourced| {
        let text = format!("{} ({})", limit(&sourced.limit), word(&sourced.source));
        ("limit", Some(cell(text)))
    });
    let mut text = facts(screen, one.into_iter().chain(limits));
    for meta in &job.meta {
        let at = screen.paint(Tone::Faint, &meta.at.to_string());
        text.push_str(&format!("{at}  {}\n", printable(&meta.text)));
    }
    if let Some(description) = &job.description {
        let heading = screen.paint(Tone::Strong, "description");
        let description = printable(description.trim_end()).replace('\n', "\n  ");
        text.push_str(&format!("{heading}\n  {description}\n"));
    }
    text
}

fn state(job: &JobView) -> Cell {
    Cell::new(tone(job), word(&job.state))
}

fn end(job: &JobView) -> Cell {
    match (job.code, job.reason) {
        (Some(code), _) => cell(format!("code {code}")),
        (None, Some(reason)) => cell(word(&reason)),
        (None, None) => Cell::default(),
    }
}

fn tone(job: &JobView) -> Tone {
    match job.state {
        JobState::Delayed | JobState::Queued => Tone::Plain,
        JobState::Starting | JobState::Active => Tone::Busy,
        JobState::Complete if job.code == Some(0) => Tone::Good,
        JobState::Complete | JobState::Aborted => Tone::Bad,
    }
}
