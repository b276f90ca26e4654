use std::io;
use std::path::PathBuf;

/// Why a zone could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum CalendarError {
    /// Not a name that any zone can have.
    #[error(
        "time zone {name:?}: not a zone name; allowed are IANA names like Europe/Berlin, up to \
         64 bytes of letters, digits and . _ + - between single slashes"
    )]
    BadName {
        /// What was given.
        name: String,
    },
    /// A zone whose file counts leap seconds, which Unix time does not.
    #[error("time zone {name:?}: the zones below right/ count leap seconds; leave right/ out")]
    CountsLeapSeconds {
        /// What was given.
        name: String,
    },
    /// A name that was not found.
    #[error("time zone {name:?} is unknown, {}", looked_in(.directory.as_ref()))]
    Unknown {
        /// What was given.
        name: String,
        /// The folder of zone files in which it was looked for, beside the zones built in.
        directory: Option<PathBuf>,
    },
    /// A file that is there and cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that is no zone file, or a damaged one.
    #[error("{} is not a zone file, or is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: jiff::Error,
    },
    /// A file that is larger than any zone file.
    #[error("{} is not a zone file: it has more than {bytes_max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        bytes_max: u64,
    },
}

fn looked_in(directory: Option<&PathBuf>) -> String {
    match directory {
        Some(directory) => {
            format!(
                "both in {} and among the zones built in",
                directory.display()
            )
        }
        None => "among the zones built in".to_owned(),
    }
}
