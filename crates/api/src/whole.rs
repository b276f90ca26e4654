//! Whole numbers of requests, refused in the words of the rule that bounds them (S6).
//!
//! serde names the type that a number is kept in (`u64`), and so do parsers of query strings. That
//! is nothing to whoever sent `0.5` seconds: here the refusal says what the field allows.

use std::fmt;
use std::marker::PhantomData;

use serde::de::Unexpected;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Reads a number from `LEAST` to `MOST`:
/// `#[serde(deserialize_with = "whole::number::<_, _, 1, 100>")]`.
pub(crate) fn number<'de, D, T, const LEAST: u64, const MOST: u64>(
    deserializer: D,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_any(Range::<T, LEAST, MOST>(PhantomData))
}

/// As [`number`], for a field that may be absent or null.
pub(crate) fn optional<'de, D, T, const LEAST: u64, const MOST: u64>(
    deserializer: D,
) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_option(Optional(Range::<T, LEAST, MOST>(PhantomData)))
}

/// As [`optional`], for a field of a query string: digits.
pub(crate) fn optional_text<'de, D, T, const LEAST: u64, const MOST: u64>(
    deserializer: D,
) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let range = Range::<T, LEAST, MOST>(PhantomData);
    match Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)? {
        None => Ok(None),
        Some(text) => match text.parse::<u64>() {
            Ok(number) => number_in(number, &range).map(Some),
            Err(_) => Err(D::Error::invalid_value(Unexpected::Str(&text), &range)),
        },
    }
}

struct Range<T, const LEAST: u64, const MOST: u64>(PhantomData<T>);

fn number_in<E: Error, T: TryFrom<u64>, const LEAST: u64, const MOST: u64>(
    number: u64,
    range: &Range<T, LEAST, MOST>,
) -> Result<T, E> {
    let within = (LEAST..=MOST).contains(&number).then_some(number);
    within
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), range))
}

impl<T: TryFrom<u64>, const LEAST: u64, const MOST: u64> Visitor<'_> for Range<T, LEAST, MOST> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a whole number from {LEAST} to {MOST}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        number_in(number, &self)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }
}

struct Optional<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Optional<V> {
    type Value = Option<V::Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self.0).map(Some)
    }
}

/// A number whose range is known only when the object around it was read: what was given instead
/// is kept in words.
pub(crate) struct Given(pub(crate) Result<u64, String>);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Anything;

        impl<'de> Visitor<'de> for Anything {
            type Value = Given;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Given, E> {
                Ok(Given(Ok(number)))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Given, E> {
                Ok(Given(Err(number.to_string())))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Given, E> {
                Ok(Given(Err(format!("{number:?}"))))
            }

            fn visit_bool<E: Error>(self, is_true: bool) -> Result<Given, E> {
                Ok(Given(Err(is_true.to_string())))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Given, E> {
                Ok(Given(Err(format!("{text:?}"))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Given, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Given(Err("a list".to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Given, A::Error> {
                while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Given(Err("an object".to_owned())))
            }
        }

        deserializer.deserialize_any(Anything)
    }
}
