//! Instants as people and scripts read them: RFC 3339, UTC, milliseconds.
//!
//! Inside, the conductors count microseconds. What they show is rounded up to milliseconds (S30),
//! so that whoever waits until the shown instant never comes a fraction too early. Where the exact
//! instant matters (the committed start that an audit counts), a field ending in `_us` carries the
//! microseconds beside it.

use std::fmt;

use chrono::{DateTime, SecondsFormat};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The last instant that RFC 3339 can write: 9999-12-31T23:59:59.999Z, in milliseconds.
const UNIX_MS_MAX: i64 = 253_402_300_799_999;

/// An instant in whole milliseconds of Unix time, from 1970 to the end of 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    unix_ms: i64,
}

impl Timestamp {
    /// An instant from milliseconds of Unix time; what lies outside 1970–9999 becomes its end.
    #[must_use]
    pub fn from_unix_ms(unix_ms: i64) -> Self {
        Self {
            unix_ms: unix_ms.clamp(0, UNIX_MS_MAX),
        }
    }

    /// The first millisecond that is not before `unix_us` microseconds of Unix time (S30).
    #[must_use]
    pub fn from_unix_us_rounded_up(unix_us: i64) -> Self {
        let whole = unix_us.div_euclid(1_000);
        let part = i64::from(unix_us.rem_euclid(1_000) != 0);
        Self::from_unix_ms(whole + part)
    }

    /// Milliseconds of Unix time.
    #[must_use]
    pub fn unix_ms(self) -> i64 {
        self.unix_ms
    }

    /// Microseconds of Unix time.
    #[must_use]
    pub fn unix_us(self) -> i64 {
        self.unix_ms * 1_000
    }

    /// Reads an RFC 3339 instant with any offset; what is finer than a millisecond is rounded up.
    ///
    /// `None` where the text is no such instant or lies outside 1970–9999.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let instant = DateTime::parse_from_rfc3339(text).ok()?;
        let part = i64::from(!instant.timestamp_subsec_nanos().is_multiple_of(1_000_000));
        let unix_ms = instant.timestamp_millis() + part;
        (0..=UNIX_MS_MAX)
            .contains(&unix_ms)
            .then_some(Self { unix_ms })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The constructors keep to the years that chrono can write.
        let instant = DateTime::from_timestamp_millis(self.unix_ms).unwrap_or_default();
        formatter.write_str(&instant.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rfc3339;

        impl Visitor<'_> for Rfc3339 {
            type Value = Timestamp;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(
                    "an RFC 3339 instant from 1970 to 9999, such as 2026-03-02T12:00:17.000Z",
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
                Timestamp::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Rfc3339)
    }
}
