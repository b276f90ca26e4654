//! Who changed what, and when: a record for each command of an operator that was done.
//!
//! Records are part of the state, so they survive failovers and snapshots like everything else.
//! Who it was the edge says, by wrapping the command ([`Command::By`]); the pool believes it. A
//! change of the members is Raft's, not the pool's: [`Command::MembersChanged`] only leaves its
//! record here.
//!
//! Caveats:
//!
//! - At most [`AUDIT_RECORDS_MAX`] are kept; beyond, the oldest go. Whoever needs all of them reads
//!   them page by page, often enough.
//! - Refused commands leave none, and neither does a server that is defined as it was: workers
//!   define theirs at every start.

use crate::apply::Answer;
use crate::command::{
    Category, Command, Event, MemberChange, Override, ServerDefinition, Settings,
};
use crate::limits::InvalidField;
use crate::outcome::{Outcome, Refusal};
use crate::state::{Pool, Turn};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Most records that are kept.
pub const AUDIT_RECORDS_MAX: usize = 10_000;
/// Longest name of an actor, in bytes; a longer one is cut off.
pub const ACTOR_BYTES_MAX: usize = 128;
/// Longest description of a change, in bytes; a longer one is cut off.
pub const CHANGE_BYTES_MAX: usize = 1_024;

/// One change by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When: the stamp of its entry.
    pub at: Instant,
    /// Where in the log.
    pub index: u64,
    /// Who, as the edge knew it; empty: nobody said.
    pub actor: Box<str>,
    /// What was done.
    pub action: Action,
    /// To what: an id, a pool or bucket, a node; empty where there is one only.
    pub target: Box<str>,
    /// The revision that a definition has since; none where it has no revisions or is gone.
    pub revision: Option<u64>,
    /// What changed, for people.
    pub change: Box<str>,
}

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after the command that they are of")]
pub enum Action {
    PutEvent,
    DeleteEvent,
    PutCategory,
    DeleteCategory,
    PutSettings,
    PutServer,
    DeleteServer,
    DrainServer,
    PutOverride,
    DeleteOverride,
    Reset,
    ResetAll,
    ResetStats,
    AddMember,
    RemoveMember,
    Transfer,
}

/// A record before its command was done.
struct Draft {
    action: Action,
    target: Box<str>,
    change: String,
}

impl Draft {
    fn new(action: Action, target: &str, change: impl Into<String>) -> Option<Draft> {
        Some(Draft {
            action,
            target: target.into(),
            change: change.into(),
        })
    }
}

impl Pool {
    /// Carries a command out, and leaves a record of it if it is an operator's.
    pub(crate) fn audited(
        &mut self,
        command: &Command,
        turn: &mut Turn,
    ) -> Result<Answer, Refusal> {
        let (actor, command) = match command {
            Command::By { actor, command } => (&**actor, &**command),
            other => ("", other),
        };
        let draft = self.draft(command);
        let answer = self.command(command, turn)?;
        if let Some(draft) = draft {
            self.record(actor, draft, &answer, turn.index);
        }
        Ok(answer)
    }

    /// What a command would leave, before it is done: what was there before is known only now.
    fn draft(&self, command: &Command) -> Option<Draft> {
        match command {
            Command::PutEvent { event, .. } => {
                let old = self.events.get(&event.id).map(|stored| &stored.event);
                Draft::new(Action::PutEvent, &event.id, event_change(old, event))
            }
            Command::DeleteEvent { event, .. } => Draft::new(Action::DeleteEvent, event, ""),
            Command::PutCategory { category, .. } => {
                let old = self.categories.get(&category.id);
                let change = category_change(old.map(|stored| &stored.category), category);
                Draft::new(Action::PutCategory, &category.id, change)
            }
            Command::DeleteCategory { category, .. } => {
                Draft::new(Action::DeleteCategory, category, "")
            }
            Command::PutSettings { settings, .. } => {
                let change = settings_change(&self.header.settings, settings);
                Draft::new(Action::PutSettings, "", change)
            }
            Command::PutServer(new) => {
                let number = self.index.fleet.number(&new.id);
                let old = number.and_then(|number| self.servers.get(&number));
                let old = old.map(|server| &server.definition);
                if old == Some(new) {
                    return None;
                }
                Draft::new(Action::PutServer, &new.id, server_change(old, new))
            }
            Command::DeleteServer { server } => Draft::new(Action::DeleteServer, server, ""),
            Command::DrainServer { server } => Draft::new(Action::DrainServer, server, ""),
            Command::PutOverride { scope, sizes } => {
                Draft::new(Action::PutOverride, scope, override_text(sizes))
            }
            Command::DeleteOverride { scope } => {
                let old = self.override_of(scope).map(override_text);
                let change = old.map_or("none was set".into(), |old| format!("was: {old}"));
                Draft::new(Action::DeleteOverride, scope, change)
            }
            Command::Reset { scope } => Draft::new(Action::Reset, scope, ""),
            Command::ResetAll => Draft::new(Action::ResetAll, "", ""),
            Command::ResetStats => Draft::new(Action::ResetStats, "", ""),
            Command::MembersChanged(change) => member_draft(change),
            Command::Takeover
            | Command::Launch(_)
            | Command::Started { .. }
            | Command::Completed { .. }
            | Command::Cancel { .. }
            | Command::ServerSeen(_)
            | Command::ServerOffline(_)
            | Command::ServerLost(_)
            | Command::AttemptMissing { .. }
            | Command::CallerSeen { .. }
            | Command::LeaseExpired { .. }
            | Command::ServerDraining(_)
            | Command::StartActionFailed { .. }
            | Command::RaiseFormat { .. }
            | Command::By { .. } => None,
        }
    }

    fn record(&mut self, actor: &str, draft: Draft, answer: &Answer, index: u64) {
        self.header.last.audit += 1;
        let record = AuditRecord {
            at: self.now(),
            index,
            actor: cut(actor, ACTOR_BYTES_MAX).into(),
            action: draft.action,
            target: draft.target,
            revision: match answer {
                Answer::Plain(Outcome::Stored { revision }) => Some(*revision),
                _ => None,
            },
            change: cut(&draft.change, CHANGE_BYTES_MAX).into(),
        };
        let number = self.header.last.audit;
        self.audit.insert(number, Box::new(record));
        // Numbers have no gaps.
        if let Some(beyond) = number.checked_sub(AUDIT_RECORDS_MAX as u64) {
            self.audit.remove(&beyond);
        }
    }

    /// The records with smaller numbers than `before`, newest first; all where it is none.
    pub fn audit(&self, before: Option<u64>) -> impl Iterator<Item = (u64, &AuditRecord)> {
        let records = self.audit.range(..before.unwrap_or(u64::MAX));
        records.rev().map(|(number, record)| (*number, &**record))
    }
}

/// A command has one actor.
pub(crate) fn nested_actor() -> Refusal {
    Refusal::Invalid(InvalidField::new("command", "two actors", "one actor"))
}

fn member_draft(change: &MemberChange) -> Option<Draft> {
    match change {
        MemberChange::Added { node, peer } => Draft::new(
            Action::AddMember,
            &node.to_string(),
            format!("reached by its peers at {peer}"),
        ),
        MemberChange::Removed { node } => Draft::new(Action::RemoveMember, &node.to_string(), ""),
        MemberChange::HandedOver { from, to } => {
            let target = to.map_or(String::new(), |node| node.to_string());
            Draft::new(Action::Transfer, &target, format!("node {from} led"))
        }
    }
}

/// The names of those that are true, or what stands for none of them.
fn names<const COUNT: usize>(differ: [(&str, bool); COUNT]) -> String {
    let named: Vec<&str> = differ
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
    if named.is_empty() {
        "nothing changed".into()
    } else {
        format!("changed: {}", named.join(", "))
    }
}

fn event_change(old: Option<&Event>, new: &Event) -> String {
    let Some(old) = old else {
        return "new".into();
    };
    names([
        ("title", old.title != new.title),
        ("type", old.kind != new.kind),
        ("enabled", old.enabled != new.enabled),
        ("category", old.category != new.category),
        ("limits", old.limits != new.limits),
        ("targets", old.targets != new.targets),
        ("algo", old.algo != new.algo),
        ("priority", old.priority != new.priority),
        ("params", old.params != new.params),
        ("nodes", old.nodes != new.nodes),
        ("resolve_limits", old.resolve != new.resolve),
    ])
}

fn category_change(old: Option<&Category>, new: &Category) -> String {
    let Some(old) = old else {
        return "new".into();
    };
    names([
        ("title", old.title != new.title),
        ("limits", old.limits != new.limits),
    ])
}

fn server_change(old: Option<&ServerDefinition>, new: &ServerDefinition) -> String {
    let Some(old) = old else {
        return "new".into();
    };
    names([
        ("groups", old.groups != new.groups),
        ("max_jobs", old.max_jobs != new.max_jobs),
        (
            if new.enabled { "enabled" } else { "disabled" },
            old.enabled != new.enabled,
        ),
    ])
}

fn settings_change(old: &Settings, new: &Settings) -> String {
    let numbers = |of: &Settings| {
        [
            ("start_timeout_s", of.start_timeout_s),
            ("max_start_attempts", of.max_start_attempts),
            ("server_timeout_s", of.server_timeout_s),
            ("job_timeout_s", of.job_timeout_s),
            ("lease_s", of.lease_s),
            ("retention_s", of.retention_s),
            ("finished_max", of.finished_max),
            ("unfinished_max", of.unfinished_max),
            ("max_clock_step_s", of.max_clock_step_s),
            ("params_bytes_max", of.params_bytes_max),
        ]
    };
    let mut changes: Vec<String> = numbers(old)
        .into_iter()
        .zip(numbers(new))
        .filter(|((_, old), (_, new))| old != new)
        .map(|((name, old), (_, new))| format!("{name} from {old} to {new}"))
        .collect();
    let limits = [
        (
            "default",
            old.universal_event_limits != new.universal_event_limits,
        ),
        (
            "workflow",
            old.universal_workflow_limits != new.universal_workflow_limits,
        ),
    ];
    for (of, differs) in limits {
        if differs {
            changes.push(format!("universal_limits.{of}"));
        }
    }
    if changes.is_empty() {
        return "nothing changed".into();
    }
    format!("changed: {}", changes.join(", "))
}

fn override_text(sizes: &Override) -> String {
    let parts = [
        sizes.count.map(|count| format!("count {count}")),
        sizes
            .window_s
            .map(|window_s| format!("window_s {window_s}")),
        sizes.amount.map(|amount| format!("amount {amount}")),
        sizes.expires_at.map(|at| format!("expires_at {at}")),
        Some(&*sizes.note)
            .filter(|note| !note.is_empty())
            .map(|note| format!("note {note:?}")),
    ];
    let given: Vec<String> = parts.into_iter().flatten().collect();
    given.join(", ")
}

/// A text, cut off at a character's beginning where it is too long.
fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let end = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
