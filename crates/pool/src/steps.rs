//! Steps: what a command or a question costs, counted so that a test can hold it down.
//!
//! A step is a node of a tree or a bucket of a hash table that is looked into, or a row that is
//! passed. They are counted where rows lie: in [`crate::table`], [`crate::sorted`],
//! [`crate::ranked`] and [`crate::ids`]. Counting is for builds with debug assertions; others pay
//! nothing for it.
//!
//! Caveats: the count is one for the whole process, so a test that reads it has the process for
//! itself. Nodes of the library's trees cannot be seen; of n rows, 1 + log₈ n are assumed.

#[cfg(debug_assertions)]
static TAKEN: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// How many steps all pools of this process have taken; always 0 without debug assertions.
#[must_use]
pub fn taken() -> u64 {
    #[cfg(debug_assertions)]
    return TAKEN.load(core::sync::atomic::Ordering::Relaxed);
    #[cfg(not(debug_assertions))]
    0
}

/// Counts so many steps.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(debug_assertions)]
    TAKEN.fetch_add(steps as u64, core::sync::atomic::Ordering::Relaxed);
    #[cfg(not(debug_assertions))]
    let _ = steps;
}

/// Counts a look-up in a tree of so many rows.
#[inline]
pub(crate) fn descend(rows: usize) {
    count(1 + rows.max(1).ilog2() as usize / 3);
}
