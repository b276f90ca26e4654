//! How the demo is told: lines for people as things happen, or JSON lines for scripts.
//!
//! On a terminal, the line of the window that is open is drawn again and again; everywhere else
//! each window has one line, once it is over.

use std::io::IsTerminal;
use std::path::Path;

use fermata_audit::Report;
use serde::Serialize;

use super::{AMOUNT, JOBS, RATE, WINDOW_S};
use crate::error::CommandError;
use crate::screen::{Format, Screen, Tone, print};

/// Starts that one cell of the bar stands for.
const STARTS_PER_CELL: usize = 2;
/// Goes to the beginning of the line and clears it.
const CLEAR_LINE: &str = "\r\u{1b}[K";

/// Something that is told.
#[derive(Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(super) enum Happening<'a> {
    Opening {
        seed: u64,
    },
    OnStage {
        folder: &'a Path,
        nodes: Vec<String>,
        workers: &'a [&'a str],
    },
    /// A window that is over.
    Window(&'a Line),
    Killed {
        node: u64,
    },
    NewLeader {
        node: u64,
        after_ms: u128,
        launch_after_ms: u128,
    },
    Restarted {
        node: u64,
        after_ms: u128,
        entries: u64,
    },
    HandedOver {
        from: u64,
        to: u64,
        after_ms: u128,
    },
    Done {
        jobs: usize,
        seconds: u64,
        memory_mib: Option<u64>,
    },
    Audit {
        #[serde(serialize_with = "as_findings")]
        report: &'a Report,
    },
    Kept {
        folder: &'a Path,
    },
}

/// A window so far.
#[derive(Serialize)]
pub(super) struct Line {
    /// When the window began.
    pub(super) from_us: i64,
    /// Committed starts in it.
    pub(super) starts: usize,
    /// Jobs that run now.
    pub(super) running: usize,
    /// Most jobs that ran at once in it.
    pub(super) at_once_max: usize,
    /// Jobs that wait.
    pub(super) waiting: usize,
    /// Jobs that have ended.
    pub(super) ended: usize,
    /// Who leads.
    pub(super) leader: Option<u64>,
}

/// Where it is told.
pub(super) struct Show {
    screen: Screen,
    is_live: bool,
}

impl Show {
    pub(super) fn new(screen: Screen) -> Self {
        Self {
            screen,
            is_live: screen.format == Format::Text && std::io::stdout().is_terminal(),
        }
    }

    /// Tells it.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn tell(&mut self, happening: &Happening<'_>) -> Result<(), CommandError> {
        self.clear();
        self.screen
            .show_next(happening, |screen| text(screen, happening))
    }

    /// As [`Show::tell`]; that nobody listens does not change what is proved.
    pub(super) fn tell_or_ignore(&mut self, happening: &Happening<'_>) {
        let _ = self.tell(happening);
    }

    /// What stands above the windows.
    pub(super) fn heading(&self) {
        if self.screen.format == Format::Text {
            let heading = format!(
                "{:<10}{:<22}{:>8}{:>9}{:>8}   {}",
                "WINDOW", "STARTS", "AT ONCE", "WAITING", "ENDED", "LEADER"
            );
            let heading = self.screen.paint(Tone::Strong, &heading);
            let _ = print(&format!("\n{heading}\n"));
        }
    }

    /// The window that is open, on a terminal.
    pub(super) fn live(&mut self, line: &Line) {
        if self.is_live {
            let open = window(self.screen, line, line.running, Tone::Busy);
            let _ = print(&format!("{CLEAR_LINE}{open}"));
        }
    }

    fn clear(&self) {
        if self.is_live {
            let _ = print(CLEAR_LINE);
        }
    }
}

fn window(screen: Screen, line: &Line, at_once: usize, tone: Tone) -> String {
    let rate = usize::try_from(RATE).unwrap_or(usize::MAX);
    let filled = line.starts.min(rate).div_ceil(STARTS_PER_CELL);
    let cells = rate.div_ceil(STARTS_PER_CELL);
    let is_over = line.starts > rate;
    let bar = screen.paint(if is_over { Tone::Bad } else { tone }, &"█".repeat(filled));
    let rest = screen.paint(Tone::Faint, &"·".repeat(cells - filled));
    let leader = match line.leader {
        Some(node) => format!("node {node}"),
        None => screen.paint(Tone::Bad, "nobody"),
    };
    format!(
        "{:<10}{bar}{rest} {:>2}/{rate} {at_once:>7}{:>9}{:>8}   {leader}",
        time_of_day(line.from_us),
        line.starts,
        line.waiting,
        line.ended,
    )
}

fn text(screen: Screen, happening: &Happening<'_>) -> String {
    let bad = screen.paint(Tone::Bad, "✗");
    let good = screen.paint(Tone::Good, "✓");
    match happening {
        Happening::Opening { seed } => opening(screen, *seed),
        Happening::OnStage {
            folder,
            nodes,
            workers,
        } => {
            let nodes: Vec<String> = (1..)
                .zip(nodes)
                .map(|(id, url)| format!("{id} {url}"))
                .collect();
            format!(
                "  nodes    {}\n  workers  {}\n  state    {}\n",
                nodes.join("   "),
                workers.join(", "),
                folder.display()
            )
        }
        Happening::Window(line) => {
            let closed = window(screen, line, line.at_once_max, Tone::Good);
            format!("{closed}\n")
        }
        Happening::Killed { node } => {
            format!("        {bad} node {node}, which leads, is killed with SIGKILL\n")
        }
        Happening::NewLeader {
            node,
            after_ms,
            launch_after_ms,
        } => format!(
            "        {good} node {node} leads {after_ms} ms later; the next launch was answered \
             {launch_after_ms} ms after the kill\n"
        ),
        Happening::Restarted {
            node,
            after_ms,
            entries,
        } => format!(
            "        {good} node {node} is back after {after_ms} ms, with all {entries} entries of \
             the log\n"
        ),
        Happening::HandedOver { from, to, after_ms } => format!(
            "        {good} node {from} hands leadership over to node {to}, within {after_ms} ms\n"
        ),
        Happening::Done {
            jobs,
            seconds,
            memory_mib,
        } => {
            let memory = memory_mib.map_or_else(String::new, |mib| {
                format!("; six processes had at most {mib} MiB of memory")
            });
            format!("\n{jobs} jobs have ended after {seconds} s{memory}\n")
        }
        Happening::Audit { report } => audit(screen, report),
        Happening::Kept { folder } => format!("kept: {}\n", folder.display()),
    }
}

fn opening(screen: Screen, seed: u64) -> String {
    let title = screen.paint(Tone::Strong, "fermata demo");
    format!(
        "{title}: three conductors, two workers, {JOBS} jobs of one pool (seed {seed})\n\
         At most {AMOUNT} jobs at once and {RATE} starts in each window of {WINDOW_S} s. The \
         leader is killed in the middle of one.\n\n"
    )
}

/// The report, its verdicts painted.
fn audit(screen: Screen, report: &Report) -> String {
    let lead =
        "What the workers' journals and the clients' records say, without asking the cluster:";
    let mut text = format!("\n{}\n", screen.paint(Tone::Strong, lead));
    for line in report.to_string().lines() {
        let tone = match line.split_whitespace().next() {
            Some("ok") => Tone::Good,
            Some("BROKEN") => Tone::Bad,
            _ if line.starts_with("the audit") && report.holds() => Tone::Good,
            _ if line.starts_with("the audit") => Tone::Bad,
            _ => Tone::Plain,
        };
        text.push_str("  ");
        text.push_str(&screen.paint(tone, line));
        text.push('\n');
    }
    text
}

/// What a script wants of a report.
fn as_findings<S: serde::Serializer>(report: &&Report, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Findings {
        holds: bool,
        launches: u64,
        accepted: u64,
        begins: u64,
        ends: u64,
        at_once_max: Option<u64>,
        in_window_max: Option<u64>,
        violations: Vec<String>,
    }
    let pool = report.pools.values().next();
    let findings = Findings {
        holds: report.holds(),
        launches: report.counts.launches,
        accepted: report.counts.accepted,
        begins: report.counts.begins,
        ends: report.counts.ends,
        at_once_max: pool.map(|pool| pool.at_once_max),
        in_window_max: pool.map(|pool| pool.in_window_max),
        violations: report.violations.iter().map(|it| it.what.clone()).collect(),
    };
    findings.serialize(serializer)
}

/// An instant's time of day in UTC, as windows are aligned to.
fn time_of_day(at_us: i64) -> String {
    let second = at_us.div_euclid(1_000_000).rem_euclid(86_400);
    let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}")
}
