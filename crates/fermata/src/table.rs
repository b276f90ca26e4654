//! Rows with a heading, aligned for a terminal and for `awk` alike.
//!
//! # Caveats
//!
//! - Columns are counted in characters: text that is wider or narrower on a terminal shifts what
//!   is right of it.

use std::fmt::Write as _;

use crate::screen::{Screen, Tone, printable};

/// What stands in a cell that has nothing to say, so that columns can be counted.
const EMPTY: &str = "-";

/// One cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        let text = text.into();
        // A cell is one line.
        let line = printable(&text).replace(['\n', '\t'], " ");
        Self { text: line, tone }
    }
}

/// A value as a cell.
#[expect(
    clippy::needless_pass_by_value,
    reason = "for `map(cell)` over what is there, whether it is borrowed or not"
)]
pub(crate) fn cell(value: impl ToString) -> Cell {
    Cell::new(Tone::Plain, value.to_string())
}

/// A value that may be absent, as a cell.
pub(crate) fn maybe<T: ToString>(value: Option<T>) -> Cell {
    value.map_or_else(Cell::default, cell)
}

/// The rows under their heading.
pub(crate) fn table<const COLUMNS: usize>(
    screen: Screen,
    heading: [&str; COLUMNS],
    rows: &[[Cell; COLUMNS]],
) -> String {
    let heading = heading.map(|name| Cell::new(Tone::Strong, name));
    let mut widths = [0; COLUMNS];
    for row in std::iter::once(&heading).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(shown(cell).chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&heading).chain(rows) {
        for (column, cell) in row.iter().enumerate() {
            let cell_text = shown(cell);
            text.push_str(&screen.paint(cell.tone, cell_text));
            if column + 1 < COLUMNS {
                let gap = widths[column] - cell_text.chars().count() + 2;
                text.extend(std::iter::repeat_n(' ', gap));
            }
        }
        text.push('\n');
    }
    text
}

/// Names with their values, one a line; what is absent is left out. Values of several lines are
/// indented.
pub(crate) fn facts<'a>(
    screen: Screen,
    facts: impl IntoIterator<Item = (&'a str, Option<Cell>)>,
) -> String {
    let facts: Vec<_> = facts
        .into_iter()
        .filter_map(|(name, cell)| Some((name, cell?)))
        .collect();
    let width = facts.iter().map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for (name, cell) in facts {
        let gap = width - name.chars().count() + 2;
        let name = screen.paint(Tone::Strong, name);
        let value = screen.paint(cell.tone, shown(&cell));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}{:gap$}{value}", "");
    }
    text
}

fn shown(cell: &Cell) -> &str {
    if cell.text.is_empty() {
        EMPTY
    } else {
        &cell.text
    }
}
