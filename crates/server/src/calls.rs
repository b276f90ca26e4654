//! The calls, by what they are about. Each runs where it is to be done ([`crate::steer`]).

pub(crate) mod attempts;
pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod definitions;
pub(crate) mod jobs;
pub(crate) mod poll;
pub(crate) mod pools;
pub(crate) mod probes;
pub(crate) mod rate_headers;
pub(crate) mod servers;
pub(crate) mod why;
