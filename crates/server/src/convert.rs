//! Two contracts, two type sets, joined here and nowhere else.
//!
//! The log and the snapshots keep the pool's types; clients are promised those of `fermata-api`.
//! Either may change without the other, so nothing is derived for both: every variant is named
//! ([`inward`], [`outward`], [`rates`], [`refusals`], [`why`]), and a new one on either side does not
//! compile until it is joined.

pub(crate) mod inward;
pub(crate) mod outward;
pub(crate) mod rates;
pub(crate) mod refusals;
pub(crate) mod why;

#[cfg(test)]
mod tests;
