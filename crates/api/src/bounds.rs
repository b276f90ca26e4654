//! The named sizes of the contract, and the list type of requests that keeps to them.
//!
//! A list is cut off while it is read: a body of 8 MiB holds millions of empty objects, which
//! would be gigabytes of requests if they were counted only afterwards.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use crate::object::Object;

/// Most bytes of a request body. Beyond it: 413, `body_too_large`.
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most jobs in one `POST /v1/jobs`.
pub const BATCH_JOBS_MAX: usize = 1_000;
/// Most bytes of the id of an event, category, node, job or server (S11).
pub const ID_BYTES_MAX: usize = 64;
/// Most bytes of a capacity key, rate key or idempotency key (S11).
pub const KEY_BYTES_MAX: usize = 128;
/// Most bytes of a job's parameters, whatever the settings say (S11).
pub const PARAMS_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of arrays and objects in a job's parameters. JSON readers of most languages
/// stop at 128 or later, and this leaves them room to wrap the parameters.
pub const PARAMS_DEPTH_MAX: usize = 64;
/// Most bytes of a description (S11).
pub const DESCRIPTION_BYTES_MAX: usize = 4 * 1024;
/// Most limits of a job, event, node or category, and of each list of universal limits (S3).
pub const LIMITS_MAX: usize = 16;
/// Most targets of a job or event (S3).
pub const TARGETS_MAX: usize = 32;
/// Most groups of a server (S3).
pub const GROUPS_MAX: usize = 16;
/// Most nodes of a workflow.
pub const NODES_MAX: usize = 256;
/// Most entries in each list of a poll: a server's `max_jobs` is at most this (S3).
pub const POLL_ENTRIES_MAX: usize = 100_000;
/// Longest hold of a poll, in milliseconds. The server answers earlier where S42 asks for it.
pub const POLL_WAIT_MS_MAX: u64 = 30_000;
/// Longest hold of an answer (`timeout_s`), in seconds.
pub const WAIT_S_MAX: u64 = 3_600;
/// Most jobs of a concurrency or queue limit (S3).
pub const AMOUNT_MAX: u64 = 10_000_000;
/// Most starts per window, and most tokens of a bucket (S3).
pub const RATE_MAX: u64 = 1_000_000;
/// Longest window, in seconds (S3).
pub const WINDOW_S_MAX: u64 = 604_800;
/// Most units of a weight or of a server's capacity (S3).
pub const WEIGHT_MAX: u64 = 100_000;
/// Longest duration of any kind, in seconds (S3).
pub const DURATION_S_MAX: u64 = 366 * 86_400;
/// Most retries of a job (S49).
pub const RETRIES_MAX: u64 = 10_000;
/// Greatest factor of a retry's delay (S49).
pub const BACKOFF_MAX: u64 = 10;
/// Most jobs that the settings may say are kept, finished or not (S47).
pub const JOBS_KEPT_MAX: u64 = 10_000_000;
/// Most unconfirmed starts that the settings may give a job (S15).
pub const START_ATTEMPTS_MAX: u64 = 1_000;
/// Most items of one page of a list.
pub const PAGE_ITEMS_MAX: u32 = 1_000;
/// Items of one page where the request does not say.
pub const PAGE_ITEMS_DEFAULT: u32 = 100;

/// Reads a list of at most `MAX` items and refuses a longer one at its first item too many.
pub(crate) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Items<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "a list of at most {MAX} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            // The reader's hint is not trusted with an allocation.
            let mut list = Vec::new();
            while list.len() < MAX {
                match items.next_element()? {
                    Some(Object(item)) => list.push(item),
                    None => return Ok(list),
                }
            }
            match items.next_element::<serde::de::IgnoredAny>()? {
                None => Ok(list),
                Some(_) => Err(A::Error::custom(format_args!(
                    "more than {MAX} items given, at most {MAX} are allowed"
                ))),
            }
        }
    }

    deserializer.deserialize_seq(Items::<T, MAX>(PhantomData))
}
