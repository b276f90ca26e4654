//! A reset begins a window anew, once: of the pool whose windows are reset, no more starts between
//! two boundaries or resets than its rate.
//!
//! A start lies before or after a reset as it does in the log. Where both are in one entry nobody
//! recorded which came first: those starts are not judged.

use std::collections::BTreeMap;

use fermata_audit::Begin;

use super::load::{RESET_POOL, SIZES};

pub(super) fn check(begins: &[Begin], resets: &[u64]) -> Vec<String> {
    let mut windows: BTreeMap<(i64, usize), u64> = BTreeMap::new();
    for begin in begins.iter().filter(|begin| begin.pool == RESET_POOL) {
        let index = begin.start_index.index;
        if resets.contains(&index) {
            continue;
        }
        let before = resets.iter().filter(|reset| **reset < index).count();
        let window = begin
            .start_us
            .div_euclid(i64::from(SIZES.window_s) * 1_000_000);
        *windows.entry((window, before)).or_default() += 1;
    }
    let over = windows.into_iter();
    let over = over.filter(|(_, starts)| *starts > SIZES.starts_per_window);
    let told = over.map(|((window, resets), starts)| {
        format!(
            "{RESET_POOL}: {starts} starts in window {window} after {resets} resets, \
             {} are allowed",
            SIZES.starts_per_window
        )
    });
    told.collect()
}
