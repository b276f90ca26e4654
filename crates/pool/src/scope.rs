//! A scope: what a pool's or bucket's name stands for.
use crate::window::Window;
use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

/// A pool or a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// `cap:KEY`, `event:ID`, `node:NODE@JOB`, `job:ID` or `rate:KEY`.
    pub name: Box<str>,
    /// Its open window, if any.
    pub window: Option<Window>,
}
