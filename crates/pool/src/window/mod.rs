//! Windows: the live counters of rates.
//!
//! Three styles, each in its file, behind one interface: what is open and when it opens, take,
//! give back, fit to new settings, and what is shown. A window never looks at jobs or queues; it
//! is told the settings in force and the time.
//!
//! Caveat: a sliding window's history does not lie in the window but in a table of its own
//! ([`sliding::Runs`]), so that one start changes one small row.

use serde::{Deserialize, Serialize};

/// One opening of a pool's or bucket's rate (S26).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Identifies this opening for ever.
    pub number: u64,
}
