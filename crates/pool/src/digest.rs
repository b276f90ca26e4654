//! A digest of rows that is kept as they change (S37).
//!
//! Each row is hashed through serde's data model, which is the same for every compiler and
//! platform, and the digest of a table is the wrapping sum of its rows' hashes: adding a row adds
//! its hash, removing it subtracts it, and no order is needed. Replicas compare one number.
//!
//! Caveat: this finds replicas that went apart by a fault. It is no defence against somebody who
//! looks for collisions.

use alloc::string::String;
use core::fmt;
use serde::ser::{self, Serialize};

/// The hash of a value through its serialised form.
pub(crate) fn hash_of<T: Serialize + ?Sized>(value: &T) -> u64 {
    let mut hasher = Hasher(0x9e37_79b9_7f4a_7c15);
    match value.serialize(&mut hasher) {
        Ok(()) => hasher.finish(),
        // The hasher itself refuses nothing and our types have no serialiser that fails; should
        // one ever, all replicas get the same number for it.
        Err(Unhashable) => 0,
    }
}

struct Hasher(u64);

impl Hasher {
    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 = (mixed ^ (mixed >> 32)).rotate_left(23);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^ (mixed >> 33)
    }
}

#[derive(Debug)]
struct Unhashable;

impl fmt::Display for Unhashable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value refused to be serialised")
    }
}

impl core::error::Error for Unhashable {}

impl ser::Error for Unhashable {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Unhashable
    }
}

macro_rules! words {
    ($($method:ident: $number:ty),*) => {
        $(fn $method(self, value: $number) -> Result<(), Unhashable> {
            self.word(value as u64);
            Ok(())
        })*
    };
}

impl ser::Serializer for &mut Hasher {
    type Ok = ();
    type Error = Unhashable;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    words!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_char: char
    );

    fn serialize_f32(self, _: f32) -> Result<(), Unhashable> {
        Err(Unhashable)
    }

    fn serialize_f64(self, _: f64) -> Result<(), Unhashable> {
        Err(Unhashable)
    }

    fn serialize_str(self, value: &str) -> Result<(), Unhashable> {
        self.bytes(value.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Unhashable> {
        self.bytes(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Unhashable> {
        self.word(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unhashable> {
        self.word(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unhashable> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unhashable> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
    ) -> Result<(), Unhashable> {
        self.word(u64::from(index));
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unhashable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unhashable> {
        self.word(u64::from(index));
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, Unhashable> {
        self.word(length.map_or(u64::MAX, |length| length as u64));
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Unhashable> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unhashable> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unhashable> {
        self.word(u64::from(index));
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self, Unhashable> {
        self.serialize_seq(length)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unhashable> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self, Unhashable> {
        self.serialize_tuple_variant(name, index, variant, length)
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), Unhashable> {
        use fmt::Write;
        let mut text = String::new();
        write!(text, "{value}").map_err(|_| Unhashable)?;
        self.serialize_str(&text)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! compounds {
    ($($part:ident :: $method:ident ( $($name:ident : $kind:ty)? )),*) => {
        $(impl ser::$part for &mut Hasher {
            type Ok = ();
            type Error = Unhashable;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($name: $kind,)?
                value: &T,
            ) -> Result<(), Unhashable> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Unhashable> {
                Ok(())
            }
        })*
    };
}

compounds!(
    SerializeSeq::serialize_element(),
    SerializeTuple::serialize_element(),
    SerializeTupleStruct::serialize_field(),
    SerializeTupleVariant::serialize_field(),
    SerializeStruct::serialize_field(_name: &'static str),
    SerializeStructVariant::serialize_field(_name: &'static str)
);

impl ser::SerializeMap for &mut Hasher {
    type Ok = ();
    type Error = Unhashable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unhashable> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unhashable> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Unhashable> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_hash_apart() {
        assert_ne!(hash_of("ab"), hash_of("ba"));
        assert_ne!(hash_of(&("a", "bc")), hash_of(&("ab", "c")));
        assert_ne!(hash_of(&Some(0_u8)), hash_of(&None::<u8>));
        assert_ne!(
            hash_of(&[1_u8, 2].as_slice()),
            hash_of(&[2_u8, 1].as_slice())
        );
    }

    #[test]
    fn the_hash_is_the_one_that_it_always_was() {
        // Members of two releases compare digests: this number must not change.
        assert_eq!(
            hash_of(&("fermata", 7_u64, Some(-1_i8))),
            9_796_396_916_865_865_591
        );
    }
}
