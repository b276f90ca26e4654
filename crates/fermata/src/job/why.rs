//! Why a job waits, in words: how it stands, a line for each gate, and the earliest instant.

use fermata_api::jobs::JobState;
use fermata_api::pools::WindowView;
use fermata_api::why::{GateKind, GateView, ServerRoom, WhyView};

use crate::screen::{Screen, Tone, printable, word};
use crate::table::{Cell, cell, maybe, table};

/// Why a job stands as it does, or would.
pub(super) fn described(why: &WhyView, screen: Screen) -> String {
    let mut text = standing(why, screen);
    if why.gates.is_empty() {
        return text;
    }
    text.push('\n');
    let rows: Vec<_> = why.gates.iter().map(row).collect();
    text.push_str(&table(
        screen,
        ["GATE", "NOW", "OPENS AT", "BECAUSE"],
        &rows,
    ));
    let name = screen.paint(Tone::Strong, "earliest start");
    text.push_str(&format!("\n{name}  {}\n", earliest(why)));
    text
}

fn earliest(why: &WhyView) -> String {
    match (why.earliest_at, why.aborts_at) {
        (Some(at), _) if why.earliest_is_exact == Some(true) => at.to_string(),
        (Some(at), _) => format!("not before {at}"),
        (None, Some(at)) => {
            let reason = why.reason.map(|reason| word(&reason)).unwrap_or_default();
            format!("never: it will be aborted at {at} ({reason})")
        }
        (None, None) if why.state == JobState::Aborted => "never: it would be aborted".to_owned(),
        (None, None) => "not known: something else has to happen first".to_owned(),
    }
}

fn standing(why: &WhyView, screen: Screen) -> String {
    let (tone, more) = match why.state {
        JobState::Delayed => (Tone::Plain, None),
        JobState::Queued => (Tone::Plain, Some(place(why))),
        JobState::Starting | JobState::Active => {
            let server = why.server.as_deref().unwrap_or("its caller");
            let attempt = why.attempt.unwrap_or_default();
            (Tone::Busy, Some(format!("attempt {attempt} on {server}")))
        }
        JobState::Complete => {
            let is_success = why.code == Some(0);
            let tone = if is_success { Tone::Good } else { Tone::Bad };
            (tone, why.code.map(|code| format!("code {code}")))
        }
        JobState::Aborted => (Tone::Bad, why.reason.map(|reason| word(&reason))),
    };
    let pool = why.pool.as_ref().map(|pool| format!("of {pool}"));
    let parts = [more, pool].into_iter().flatten();
    let more: String = parts.map(|part| format!("  {part}")).collect();
    let state = screen.paint(tone, &word(&why.state));
    format!("{}  {state}{}\n", why.id, printable(&more))
}

fn place(why: &WhyView) -> String {
    match (why.position, &why.behind) {
        (Some(ahead), Some(head)) => format!("{ahead} ahead, the first is {head}"),
        _ => "next of its pool".to_owned(),
    }
}

fn row(gate: &GateView) -> [Cell; 4] {
    let (name, because) = match &gate.what {
        GateKind::Slot {
            running,
            amount,
            holders,
            held_until,
        } => {
            let mut because = match amount {
                Some(amount) => format!("{running} of {amount} run"),
                None => format!("{running} run, no limit"),
            };
            because.push_str(&named(holders, *running));
            if let Some(until) = held_until {
                because.push_str(&format!("; overridden until {until}"));
            }
            ("slot".to_owned(), because)
        }
        GateKind::Rate {
            id,
            mode,
            max,
            window,
            held_until,
            ahead,
        } => {
            let mut because = match window {
                Some(window) => counted(window),
                None => format!("no start counts, {max} may"),
            };
            if let Some(mode) = mode.filter(|_| !gate.open) {
                because.push_str(&format!("; mode {}", word(&mode)));
            }
            if let Some(until) = held_until {
                because.push_str(&format!("; overridden until {until}"));
            }
            if !ahead.is_empty() {
                because.push_str(&format!("; first {}", ahead.join(", ")));
            }
            (format!("rate {id}"), because)
        }
        GateKind::Server { weight, servers } => {
            let rooms: Vec<_> = servers.iter().map(room).collect();
            let because = if rooms.is_empty() {
                "there is no server that its targets name".to_owned()
            } else {
                format!("needs {weight}: {}", rooms.join(", "))
            };
            ("server".to_owned(), because)
        }
    };
    [cell(name), now(gate), maybe(gate.opens_at), cell(because)]
}

fn now(gate: &GateView) -> Cell {
    match (gate.open, gate.waited_for) {
        (true, _) => Cell::new(Tone::Good, "open"),
        (false, true) => Cell::new(Tone::Bad, "shut, waited for"),
        (false, false) => Cell::new(Tone::Bad, "shut"),
    }
}

/// Some of so many jobs.
fn named(ids: &[String], all: u64) -> String {
    if ids.is_empty() {
        return String::new();
    }
    let more = all.saturating_sub(u64::try_from(ids.len()).unwrap_or(u64::MAX));
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(": {}{more}", ids.join(", "))
}

fn counted(window: &WindowView) -> String {
    let WindowView {
        count,
        max,
        window_s,
        ..
    } = window;
    let what = match window.style {
        fermata_api::limits::Style::TokenBucket => "tokens",
        fermata_api::limits::Style::Fixed | fermata_api::limits::Style::Sliding => "starts",
    };
    let expires = match window.expires_at {
        Some(at) => format!(", until {at}"),
        None => String::new(),
    };
    let overridden = match &window.r#override {
        Some(_) => ", overridden",
        None => "",
    };
    let style = word(&window.style);
    format!("{count} of {max} {what} in {window_s} s ({style}){expires}{overridden}")
}

fn room(server: &ServerRoom) -> String {
    let ServerRoom {
        id, room, missing, ..
    } = server;
    if !server.online {
        format!("{id} is offline")
    } else if !server.enabled {
        format!("{id} is disabled")
    } else if *missing > 0 {
        format!("{id} lacks {missing}")
    } else {
        format!("{id} has {room}")
    }
}
