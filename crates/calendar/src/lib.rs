//! When the next local second, minute, hour and day begin (S24).
//!
//! A zone is, in the end, a list of instants at which its offset from UTC changes. Both places
//! that rules can come from, the system's zone files ([`Zone::named`]) and the zones that are
//! built into the binary ([`Zone::built_in`]), are turned into that one list when a zone is
//! opened; from then on a question costs a binary search and some integer arithmetic, takes no
//! lock and reads no file. That matters because the leader asks for every log entry that it
//! stamps.
//!
//! The rules themselves, stated once for lists of offsets, stand in `boundaries.rs`. Between two
//! changes the local clock just runs, so a boundary is found by rounding up; the only instants
//! that need thought are the changes, and there the question is always what the clock reads
//! after the change, and whether it went forward to get there.
//!
//! This is the only crate that knows zones. It has no clock: the caller says which instant.
//!
//! # Caveats
//!
//! - A zone is read once. After the system's zone files are upgraded a process goes on with
//!   what it read until it is restarted.
//! - The zones that are built in have no rules beyond their last listed change, in the year
//!   2099: after it the last offset stays. Zone files carry a rule that goes on for ever.
//! - Offsets are whole seconds, as in every zone file, so the local second is the Unix second.

#![forbid(unsafe_code)]

mod boundaries;
mod built_in;
mod error;
mod offsets;
mod system;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use boundaries::Boundaries;
pub use error::CalendarError;

use offsets::Offsets;

/// A time zone with its rules; cheap to clone, and the same for ever once it is opened.
#[derive(Clone)]
pub struct Zone {
    rules: Arc<Rules>,
}

struct Rules {
    name: String,
    source: TzdbSource,
    offsets: Offsets,
}

/// Which time zone database a zone's rules were taken from. Members of a cluster that differ
/// here may see different boundaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TzdbSource {
    /// The system's zone files.
    System {
        /// The release that the files say they are, like `2025b`; `None` where they do not say.
        version: Option<String>,
    },
    /// The zones built into this binary.
    BuiltIn {
        /// The release that they were made from, like `2025b`.
        version: &'static str,
    },
}

impl fmt::Display for TzdbSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TzdbSource::System {
                version: Some(version),
            } => write!(f, "system {version}"),
            TzdbSource::System { version: None } => f.write_str("system, unknown version"),
            TzdbSource::BuiltIn { version } => write!(f, "built-in {version}"),
        }
    }
}

impl Zone {
    /// The zone with this IANA name, such as `Europe/Berlin`.
    ///
    /// Its rules come from the system's zone files (`/usr/share/zoneinfo`) where they have it,
    /// unless those say that they are of an older release than the zones that are built in;
    /// otherwise from the latter.
    ///
    /// # Errors
    ///
    /// A name that no zone can have, a name that neither source knows, and a zone file that
    /// cannot be read or is damaged.
    pub fn named(name: &str) -> Result<Zone, CalendarError> {
        Zone::named_under(Path::new("/"), name)
    }

    /// As [`Zone::named`], with the system's files looked up below `root` instead of `/`.
    ///
    /// # Errors
    ///
    /// As [`Zone::named`].
    pub fn named_under(root: &Path, name: &str) -> Result<Zone, CalendarError> {
        system::named(root, name)
    }

    /// The zone with this IANA name as it is built into this binary, whatever the system has.
    ///
    /// # Errors
    ///
    /// A name that no zone can have, and a name that is not built in.
    pub fn built_in(name: &str) -> Result<Zone, CalendarError> {
        built_in::named(name)
    }

    /// The system's own zone: what the link `/etc/localtime` points to, else what
    /// `/etc/timezone` names, else what the file `/etc/localtime` holds (a zone without a name,
    /// shown as `localtime`), else UTC.
    ///
    /// The variable `TZ` is not read here: whoever wants to obey it passes its value to
    /// [`Zone::named`].
    ///
    /// # Errors
    ///
    /// As [`Zone::named`], and system files that cannot be read.
    pub fn system() -> Result<Zone, CalendarError> {
        Zone::system_under(Path::new("/"))
    }

    /// As [`Zone::system`], with the system's files looked up below `root` instead of `/`.
    ///
    /// # Errors
    ///
    /// As [`Zone::system`].
    pub fn system_under(root: &Path) -> Result<Zone, CalendarError> {
        system::own(root)
    }

    /// The name under which the zone was found.
    pub fn name(&self) -> &str {
        &self.rules.name
    }

    /// Where its rules came from.
    pub fn source(&self) -> &TzdbSource {
        &self.rules.source
    }

    /// The next local second, minute, hour and day after an instant (S24).
    ///
    /// `at_us` is in microseconds of Unix time, and any value is allowed. Where a boundary lies
    /// beyond what an `i64` holds, in the year 294247, it is [`i64::MAX`].
    pub fn boundaries_after(&self, at_us: i64) -> Boundaries {
        boundaries::after(&self.rules.offsets, at_us)
    }

    fn new(name: &str, source: TzdbSource, offsets: Offsets) -> Zone {
        Zone {
            rules: Arc::new(Rules {
                name: name.to_owned(),
                source,
                offsets,
            }),
        }
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone")
            .field("name", &self.rules.name)
            .field("source", &self.rules.source)
            .finish_non_exhaustive()
    }
}
