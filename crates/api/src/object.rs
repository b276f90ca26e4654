//! Objects that are written as objects.
//!
//! serde reads a struct from a JSON array, too, by position: `{"jobs": [[]]}` would be a launch
//! with every default. Requests are read through [`Object`], which refuses that. It reaches one
//! level deep, so every nested struct of a request is read through it at its own place.

use serde::de::{Deserialize, Deserializer, Visitor};

/// A value that, if it is a struct, was given as an object.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(ByName(deserializer)).map(Self)
    }
}

/// Reads a field that is a struct: `#[serde(deserialize_with = "object::by_name")]`.
pub(crate) fn by_name<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// As [`by_name`], for a field that may be absent or null.
pub(crate) fn optional_by_name<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let given = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(given.map(|Object(value)| value))
}

struct ByName<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ByName<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    /// By its name serde_json knows who wants the text itself.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
