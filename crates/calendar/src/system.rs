//! What the system knows of zones: its zone files, and which zone is its own.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::offsets::{LIST_END_S, Offsets};
use crate::{CalendarError, TzdbSource, Zone, built_in};

/// The longest zone name that is looked up. The database's longest has 32.
const NAME_BYTES_MAX: usize = 64;

/// The most that is read of a zone file. The largest that exist have under 4 KiB.
const ZONE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The most that is read of a file of which only the first line counts.
const LINE_BYTES_MAX: u64 = 256;

/// Where zone files are, below the root of the file system.
const ZONE_FILES: &str = "usr/share/zoneinfo";

pub(crate) fn named(root: &Path, name: &str) -> Result<Zone, CalendarError> {
    check_name(name)?;
    let directory = root.join(ZONE_FILES);
    let version = version(&directory)?;
    // Releases are named by year and letter, so their names are in their order.
    let outdated = version
        .as_deref()
        .is_some_and(|version| version < built_in::VERSION);
    if outdated && let Some(zone) = built_in::open(name) {
        return Ok(zone);
    }
    if let Some(offsets) = read_zone_file(&directory.join(name), name)? {
        return Ok(Zone::new(name, TzdbSource::System { version }, offsets));
    }
    built_in::open(name).ok_or_else(|| CalendarError::Unknown {
        name: name.to_owned(),
        directory: Some(directory),
    })
}

pub(crate) fn own(root: &Path) -> Result<Zone, CalendarError> {
    let local_time = root.join("etc/localtime");
    if let Ok(target) = fs::read_link(&local_time)
        && let Some((_, name)) = target.to_string_lossy().rsplit_once("zoneinfo/")
    {
        return named(root, name);
    }
    if let Some(name) = first_line(&root.join("etc/timezone"))? {
        return named(root, &name);
    }
    match read_zone_file(&local_time, "localtime")? {
        Some(offsets) => Ok(Zone::new(
            "localtime",
            TzdbSource::System { version: None },
            offsets,
        )),
        None => named(root, "UTC"),
    }
}

/// Refuses what is no zone's name, before it becomes part of a path.
pub(crate) fn check_name(name: &str) -> Result<(), CalendarError> {
    let part_allowed = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
    };
    if name.len() > NAME_BYTES_MAX || !name.split('/').all(part_allowed) {
        return Err(CalendarError::BadName {
            name: name.to_owned(),
        });
    }
    if name.starts_with("right/") {
        return Err(CalendarError::CountsLeapSeconds {
            name: name.to_owned(),
        });
    }
    Ok(())
}

/// The release that a folder of zone files says it is. `tzdata.zi` is the database's own text
/// form, which begins with it; some systems have a file with nothing else instead.
fn version(directory: &Path) -> Result<Option<String>, CalendarError> {
    let source_text = first_line(&directory.join("tzdata.zi"))?;
    match source_text.and_then(|line| line.strip_prefix("# version ").map(str::to_owned)) {
        Some(version) => Ok(Some(version)),
        None => first_line(&directory.join("+VERSION")),
    }
}

/// The offsets that a zone file lists; `None` where there is no such file.
fn read_zone_file(path: &Path, name: &str) -> Result<Option<Offsets>, CalendarError> {
    let Some(bytes) = read_start(path, ZONE_FILE_BYTES_MAX + 1)? else {
        return Ok(None);
    };
    if bytes.len() as u64 > ZONE_FILE_BYTES_MAX {
        return Err(CalendarError::TooLarge {
            path: path.to_owned(),
            bytes_max: ZONE_FILE_BYTES_MAX,
        });
    }
    let zone = TimeZone::tzif(name, &bytes).map_err(|source| CalendarError::Damaged {
        path: path.to_owned(),
        source,
    })?;
    Ok(Some(offsets(&zone)))
}

fn offsets(zone: &TimeZone) -> Offsets {
    let mut offsets = Offsets::new(i64::from(zone.to_offset(Timestamp::MIN).seconds()));
    for change in zone.following(Timestamp::MIN) {
        let at_s = change.timestamp().as_second();
        if at_s >= LIST_END_S {
            break;
        }
        offsets.push(at_s, i64::from(change.offset().seconds()));
    }
    offsets
}

/// The first line of a text file without the space around it; `None` where there is nothing.
fn first_line(path: &Path) -> Result<Option<String>, CalendarError> {
    let bytes = read_start(path, LINE_BYTES_MAX)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next().map(str::trim);
    Ok(line.filter(|line| !line.is_empty()).map(str::to_owned))
}

/// The first bytes of a file, at most so many; `None` where there is no such file.
fn read_start(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, CalendarError> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(bytes_max).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory => Ok(None),
            _ => Err(CalendarError::Read {
                path: path.to_owned(),
                source: error,
            }),
        },
    }
}
