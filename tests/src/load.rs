//! How busy the machine is, for whoever measures on it.

/// The machine's load averages: of the last 1, 5 and 15 minutes.
///
/// # Panics
/// The machine does not tell it: it is no Linux.
#[must_use]
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").expect("Linux tells it");
    text.split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}
