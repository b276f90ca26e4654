//! How the other members stand, by what they say themselves (S24, S36).
//!
//! A leader asks every member again and again: it needs their clocks, and warns once, in its log,
//! of what an operator should know before leadership moves. Any member asks on demand, for whoever
//! looks at the cluster through it. What was answered is kept for a moment, so that many who look
//! are one question.
//!
//! Caveat: how far a clock is ahead is known to half of the time that the answer took, which is at
//! most [`ANSWER_TIMEOUT`].

use crate::core::Core;
use crate::format::wire::Standing;
use crate::{NodeId, Status, digests};
use fermata_pool::Pool;
use fermata_pool::command::Command;
use openraft::async_runtime::WatchReceiver;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often a leader asks.
const ASKED_EVERY: Duration = Duration::from_secs(2);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// What was said this long ago need not be asked again, in microseconds.
const FRESH_US_MAX: i64 = 500_000;
/// What was said longer ago is no longer told, in microseconds.
pub(crate) const REPORT_AGE_US_MAX: i64 = 5_000_000;
/// A clock that is ahead or behind by more is warned of, in milliseconds.
pub const CLOCK_SKEW_MS_MAX: i64 = 1_000;

/// How a member stands, as it said itself not long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The term that it knows.
    pub term: u64,
    /// The last entry in its log.
    pub last_log: Option<u64>,
    /// The last entry that it applied.
    pub applied: Option<u64>,
    /// The name of its time zone.
    pub time_zone: String,
    /// Which zone database its rules came from.
    pub tzdb: String,
    /// The version of its program.
    pub version: String,
    /// The digest of its state when it had applied that entry.
    pub digest: u64,
    /// The newest format of the state that its program knows.
    pub format_max: u32,
    /// How far its wall clock is ahead of this member's, in microseconds.
    pub clock_ahead_us: i64,
}

/// Something that an operator should know of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is.
    pub kind: WarningKind,
    /// Of which member.
    pub node: NodeId,
    /// The same in a sentence, with both values.
    pub detail: String,
}

/// What is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WarningKind {
    /// Another time zone than the leader's: local windows move when leadership does.
    TimeZoneDiffers,
    /// Other zone rules than the leader's: local windows may.
    TzdbDiffers,
    /// A clock that is ahead or behind by more than [`CLOCK_SKEW_MS_MAX`].
    ClockSkew,
    /// A program that knows fewer formats of the state than another member's: the cluster's format
    /// does not rise until it is replaced.
    FormatBehind,
}

impl WarningKind {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            WarningKind::TimeZoneDiffers => "time_zone_differs",
            WarningKind::TzdbDiffers => "tzdb_differs",
            WarningKind::ClockSkew => "clock_skew",
            WarningKind::FormatBehind => "format_behind",
        }
    }
}

impl Status {
    /// What an operator should know: members whose zone or zone rules are not the leader's (this
    /// member's, where nobody leads), and clocks that are not this member's.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let reports = || {
            let reported = self.members.iter();
            reported.filter_map(|it| Some((it.member.node, it.report.as_ref()?)))
        };
        let reference = reports()
            .find(|(node, _)| Some(*node) == self.leader)
            .or_else(|| reports().find(|(node, _)| *node == self.node));
        let newest = reports().map(|(_, it)| it.format_max).max();
        let mut warnings = Vec::new();
        for (node, report) in reports() {
            if let Some(newest) = newest.filter(|newest| *newest > report.format_max) {
                let kind = WarningKind::FormatBehind;
                let detail = format!(
                    "node {node} runs {}, which knows formats up to {}, and others know {newest}: \
                     the cluster stays with the format {} until the node runs a newer program",
                    report.version, report.format_max, self.format
                );
                warnings.push(Warning { kind, node, detail });
            }
            if let Some((other, expected)) = reference {
                let zones = [&report.time_zone, &expected.time_zone];
                let rules = [&report.tzdb, &expected.tzdb];
                for (kind, what, [here, there]) in [
                    (WarningKind::TimeZoneDiffers, "time zone", zones),
                    (WarningKind::TzdbDiffers, "zone rules", rules),
                ] {
                    if here != there {
                        let detail = format!(
                            "node {node} has the {what} {here}, and node {other} {there}: local \
                             windows may move when leadership does"
                        );
                        warnings.push(Warning { kind, node, detail });
                    }
                }
            }
            let ahead_ms = report.clock_ahead_us / 1_000;
            if ahead_ms.abs() > CLOCK_SKEW_MS_MAX {
                let detail = format!(
                    "the clock of node {node} is {ahead_ms} ms ahead of node {}'s; more than \
                     {CLOCK_SKEW_MS_MAX} ms either way is too much",
                    self.node
                );
                let kind = WarningKind::ClockSkew;
                warnings.push(Warning { kind, node, detail });
            }
        }
        warnings
    }
}

/// What this member says of itself.
pub(crate) fn own(core: &Core) -> Standing {
    let metrics = core.raft.metrics().borrow_watched().clone();
    let (applied, digest) = core.state.read_applied(fermata_pool::Pool::digest);
    Standing {
        wall_us: core.time.wall_us(),
        term: metrics.current_term,
        last_log: metrics.last_log_index,
        applied,
        time_zone: core.zone.name().to_owned(),
        tzdb: core.zone.source().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        digest,
        format_max: core.format_max,
    }
}

impl Report {
    /// Of what a member said when this member's wall clock showed `wall_us`.
    pub(crate) fn of(standing: Standing, wall_us: i64) -> Report {
        Report {
            term: standing.term,
            last_log: standing.last_log,
            applied: standing.applied,
            time_zone: standing.time_zone,
            tzdb: standing.tzdb,
            version: standing.version,
            digest: standing.digest,
            format_max: standing.format_max,
            clock_ahead_us: standing.wall_us.saturating_sub(wall_us),
        }
    }
}

/// Asks every other member that has not said it lately, and returns when each has answered or is
/// late.
pub(crate) async fn ask_all(core: &Arc<Core>) {
    let members = core.members();
    let mut asked = JoinSet::new();
    for (&node, _) in members.membership().nodes() {
        if node != core.node && !core.has_report(node, FRESH_US_MAX) {
            asked.spawn(ask(Arc::clone(core), node));
        }
    }
    while asked.join_next().await.is_some() {}
}

async fn ask(core: Arc<Core>, node: NodeId) {
    let Some(member) = core.member(node) else {
        return;
    };
    let before_us = core.time.monotonic_us();
    let at = member.to_node();
    let asked = core.network.standing(node, &at);
    if let Ok(Ok(standing)) = tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
        let after_us = core.time.monotonic_us();
        let half_us = (after_us - before_us) / 2;
        core.note_clock(node, standing.wall_us, before_us + half_us);
        if let Some(applied) = standing.applied {
            digests::compare(&core, node, applied, standing.digest).await;
        }
        let report = Report::of(standing, core.time.wall_us() - half_us);
        core.note_report(node, report, after_us);
    }
}

/// A leader's rounds: at once and then again and again it asks the others, whose clocks it needs
/// to follow a step of its own (S36), warns of each thing once, until it is over, and raises the
/// format of the state once all know a newer one.
pub(crate) async fn keep_asking(core: &Arc<Core>) {
    let mut rounds = tokio::time::interval(ASKED_EVERY);
    let mut told = BTreeSet::new();
    loop {
        rounds.tick().await;
        ask_all(core).await;
        raise_format(core);
        let mut now = BTreeSet::new();
        for Warning { kind, node, detail } in Status::of(core).warnings() {
            now.insert((kind, node));
            if !told.contains(&(kind, node)) {
                tracing::warn!(node, warning = kind.word(), "{detail}");
            }
        }
        told = now;
    }
}

/// Proposes the newest format that every member has just said it knows, if the state has an older
/// one. Nobody waits for it: the next round looks again.
fn raise_format(core: &Core) {
    let members = core.members();
    let known = members.membership().nodes().map(|(&node, _)| {
        if node == core.node {
            return Some(core.format_max);
        }
        core.report(node).map(|report| report.format_max)
    });
    // One that is not heard may know less.
    let Some(Some(to)) = known.min() else {
        return;
    };
    if to > core.state.read(Pool::format) {
        tracing::info!(
            format = to,
            "every member knows it: the state's format rises"
        );
        // A full queue empties before the next round.
        let _ = core.queue.leave(vec![Command::RaiseFormat { to }]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, MemberStatus, Role};

    fn report(time_zone: &str, tzdb: &str, ahead_ms: i64) -> Report {
        Report {
            term: 1,
            last_log: None,
            applied: None,
            time_zone: time_zone.to_owned(),
            tzdb: tzdb.to_owned(),
            version: String::new(),
            digest: 0,
            format_max: 1,
            clock_ahead_us: ahead_ms * 1_000,
        }
    }

    /// As member 1 sees it.
    fn status(leader: Option<NodeId>, reports: Vec<Option<Report>>) -> Status {
        let members = (1..).zip(reports).map(|(node, report)| MemberStatus {
            member: Member {
                node,
                peer: String::new(),
                client_url: String::new(),
            },
            voter: true,
            matched: None,
            lag: None,
            report,
        });
        Status {
            cluster: String::new(),
            node: 1,
            term: 1,
            role: Role::Follower,
            leader,
            members: members.collect(),
            changing: false,
            last_log: None,
            committed: None,
            applied: None,
            snapshot: None,
            purged: None,
            time_zone: String::new(),
            tzdb: String::new(),
            digest: 0,
            format: 1,
        }
    }

    fn kinds(status: &Status) -> Vec<(WarningKind, NodeId)> {
        let warnings = status.warnings();
        warnings.iter().map(|it| (it.kind, it.node)).collect()
    }

    #[test]
    fn members_that_are_alike_are_not_warned_of() {
        let alike = || Some(report("UTC", "system 2025b", CLOCK_SKEW_MS_MAX));
        assert_eq!(kinds(&status(Some(2), vec![alike(), alike(), None])), []);
    }

    #[test]
    fn members_are_compared_with_the_leader() {
        let reports = || {
            vec![
                Some(report("UTC", "system 2025b", 0)),
                Some(report("Asia/Kolkata", "system 2025b", 0)),
                Some(report("Asia/Kolkata", "built-in 2024a", 0)),
            ]
        };
        use WarningKind::{TimeZoneDiffers, TzdbDiffers};
        let led = status(Some(2), reports());
        assert_eq!(kinds(&led), [(TimeZoneDiffers, 1), (TzdbDiffers, 3)]);
        let unled = status(None, reports());
        let expected = [(TimeZoneDiffers, 2), (TimeZoneDiffers, 3), (TzdbDiffers, 3)];
        assert_eq!(kinds(&unled), expected);
        let detail = &led.warnings()[0].detail;
        assert!(detail.contains("UTC") && detail.contains("Asia/Kolkata"));
    }

    #[test]
    fn who_holds_the_format_back_is_named() {
        let of = |format_max| {
            let plain = report("UTC", "system 2025b", 0);
            Some(Report {
                format_max,
                ..plain
            })
        };
        let status = status(Some(1), vec![of(2), of(1), None]);
        assert_eq!(kinds(&status), [(WarningKind::FormatBehind, 2)]);
    }

    #[test]
    fn clocks_are_compared_with_this_members() {
        let ahead = |ms| Some(report("UTC", "system 2025b", ms));
        let beyond = CLOCK_SKEW_MS_MAX + 1;
        let status = status(Some(1), vec![ahead(0), ahead(beyond), ahead(-beyond)]);
        let kind = WarningKind::ClockSkew;
        assert_eq!(kinds(&status), [(kind, 2), (kind, 3)]);
    }
}
