//! Windows: the live counters of rates.
//!
//! Three styles, each in its file, behind one interface: is it gone, when does it open, take, give
//! back, fit to other settings, and what is shown. A window knows nothing of jobs and queues: it is
//! told the settings in force, which are its own under an override ([`RateSettings::under`]), and
//! the time.
//!
//! A window that has expired is gone for everybody at that instant (S30), although its row may be
//! swept a little later: whoever looks asks [`Window::is_expired`] first.
//!
//! Caveat: a sliding window's history does not lie in the window but in a table of its own
//! ([`Runs`]), under the window's number, so that one start changes one small row, and what a
//! closed window leaves behind can be swept in steps.

pub mod fixed;
pub mod sliding;
pub mod token_bucket;

use crate::command::Override;
use crate::job::JobNumber;
use crate::limits::{Align, SLIDING_RATE_MAX, Style};
use crate::table::Table;
use crate::terms::RateSettings;
use crate::time::{Instant, SECOND_US, Stamp};
use fixed::Fixed;
use serde::{Deserialize, Serialize};
use sliding::Sliding;
use token_bucket::TokenBucket;

/// Starts of sliding windows: how many, by the window's number and the instant.
pub(crate) type Runs = Table<(u64, Instant), u32>;

/// One opening of a pool's or bucket's rate (S26).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Identifies this opening for ever.
    pub number: u64,
    /// Those of the job that opened it, or of a later one that took over (S26).
    pub settings: RateSettings,
    /// The newest job, by launch order, that has started in it.
    pub newest: JobNumber,
    /// The counter.
    pub shape: Shape,
}

/// The counter of a window, by style.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// Until a boundary (S24, S25).
    Fixed(Fixed),
    /// In any rolling window (S27).
    Sliding(Sliding),
    /// At a steady pace (S28).
    TokenBucket(TokenBucket),
}

/// When one more start is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Now.
    Open,
    /// Then, if nothing else happens.
    At(Instant),
    /// Not before something else happens.
    Never,
}

/// What is shown of a window (S30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) count: u32,
    pub(crate) max: u32,
    pub(crate) expires_at: Option<Instant>,
}

impl RateSettings {
    /// The settings in force: these, under an override (S33). A local window of another length
    /// than a second, minute, hour or day is aligned to UTC.
    #[must_use]
    pub fn under(mut self, sizes: Option<&Override>) -> RateSettings {
        let Some(sizes) = sizes else { return self };
        if let Some(count) = sizes.count {
            self.rate = count;
            if self.style == Style::Sliding {
                self.rate = count.min(SLIDING_RATE_MAX as u32);
            }
            self.burst = count;
        }
        if let Some(window_s) = sizes.window_s {
            self.window_s = window_s;
            if !matches!(window_s, 1 | 60 | 3_600 | 86_400) {
                self.align = Align::Utc;
            }
        }
        self
    }

    /// The length of the window in microseconds.
    pub(crate) fn length_us(&self) -> i64 {
        i64::from(self.window_s) * SECOND_US
    }
}

/// True where an override sets the size of a rate, not only the concurrency.
pub(crate) fn overrides_rate(sizes: Option<&Override>) -> bool {
    sizes.is_some_and(|sizes| sizes.count.is_some() || sizes.window_s.is_some())
}

impl Window {
    /// Opens a window for its first start, which is not taken yet.
    pub(crate) fn open(
        number: u64,
        newest: JobNumber,
        settings: RateSettings,
        sizes: Option<&Override>,
        stamp: &Stamp,
    ) -> Window {
        let force = settings.under(sizes);
        let shape = match settings.style {
            Style::Fixed => Shape::Fixed(Fixed::open(&force, stamp)),
            Style::Sliding => Shape::Sliding(Sliding::open(&force, stamp.at)),
            Style::TokenBucket => Shape::TokenBucket(TokenBucket::open(&force, stamp.at)),
        };
        Window {
            number,
            settings,
            newest,
            shape,
        }
    }

    /// When this window is gone if nothing more starts in it: the boundary, when its last start
    /// leaves, or when its bucket is full. None: not while it is overridden.
    pub(crate) fn expires_at(&self, sizes: Option<&Override>, runs: &Runs) -> Option<Instant> {
        let force = self.settings.under(sizes);
        match &self.shape {
            Shape::Fixed(fixed) => Some(fixed.ends_at),
            Shape::Sliding(_) => {
                let kept_us = force.length_us().max(self.settings.length_us());
                let newest = sliding::newest(self.number, runs);
                Some(newest.map_or(Instant::EPOCH, |newest| newest.plus_us(kept_us)))
            }
            Shape::TokenBucket(_) if overrides_rate(sizes) => None,
            Shape::TokenBucket(bucket) => Some(bucket.full_at(&force)),
        }
    }

    /// When the whole of its rate is there again, if nothing more starts in it; none: never under
    /// this override.
    pub(crate) fn whole_at(&self, sizes: Option<&Override>, runs: &Runs) -> Option<Instant> {
        let force = self.settings.under(sizes);
        match &self.shape {
            Shape::Fixed(fixed) => Some(fixed.ends_at),
            Shape::Sliding(_) => {
                let newest = sliding::newest(self.number, runs)?;
                Some(newest.plus_us(force.length_us()))
            }
            Shape::TokenBucket(bucket) => (force.rate > 0).then(|| bucket.full_at(&force)),
        }
    }

    /// True once it is gone (S30).
    pub(crate) fn is_expired(&self, sizes: Option<&Override>, now: Instant, runs: &Runs) -> bool {
        self.expires_at(sizes, runs)
            .is_some_and(|expires_at| expires_at <= now)
    }

    /// When one more start is allowed.
    pub(crate) fn opening(&self, sizes: Option<&Override>, now: Instant, runs: &Runs) -> Opening {
        let force = self.settings.under(sizes);
        match &self.shape {
            Shape::Fixed(fixed) => fixed.opening(&force),
            Shape::Sliding(sliding) => sliding.opening(self.number, &force, now, runs),
            Shape::TokenBucket(bucket) => bucket.opening(&force, now),
        }
    }

    /// Takes one start for a job that carries `settings`. A job that is newer than all that
    /// started here, with other settings of the same style, brings its own to a window that may
    /// never rest (S26).
    pub(crate) fn take(
        &mut self,
        job: JobNumber,
        settings: RateSettings,
        sizes: Option<&Override>,
        stamp: &Stamp,
        runs: &mut Runs,
    ) {
        let brings_its_own = job > self.newest
            && settings.style == self.settings.style
            && settings.style != Style::Fixed
            && settings != self.settings;
        if brings_its_own {
            self.refit(settings, sizes, sizes, stamp, runs);
        }
        self.newest = self.newest.max(job);
        let force = self.settings.under(sizes);
        match &mut self.shape {
            Shape::Fixed(fixed) => fixed.count += 1,
            Shape::Sliding(sliding) => {
                let kept_us = force.length_us().max(self.settings.length_us());
                sliding.take(self.number, &force, kept_us, stamp.at, runs);
            }
            Shape::TokenBucket(bucket) => bucket.take(&force, stamp.at),
        }
    }

    /// Gives back one start that was taken at `taken_at` (S31).
    pub(crate) fn give_back(
        &mut self,
        taken_at: Instant,
        sizes: Option<&Override>,
        now: Instant,
        runs: &mut Runs,
    ) {
        let force = self.settings.under(sizes);
        match &mut self.shape {
            Shape::Fixed(fixed) => fixed.count = fixed.count.saturating_sub(1),
            Shape::Sliding(sliding) => sliding.give_back(self.number, taken_at, runs),
            Shape::TokenBucket(bucket) => bucket.give_back(&force, now),
        }
    }

    /// Goes on under other settings or another override, with the history that it has (S26, S33).
    pub(crate) fn refit(
        &mut self,
        settings: RateSettings,
        sizes_before: Option<&Override>,
        sizes: Option<&Override>,
        stamp: &Stamp,
        runs: &Runs,
    ) {
        let before = self.settings.under(sizes_before);
        let after = settings.under(sizes);
        match &mut self.shape {
            Shape::Fixed(fixed) => fixed.refit(&before, &after, stamp),
            Shape::Sliding(sliding) => {
                let kept_us = before.length_us().max(self.settings.length_us());
                sliding.refit(self.number, &before, kept_us, &after, stamp.at, runs);
            }
            Shape::TokenBucket(bucket) => bucket.refit(&before, &after, stamp.at),
        }
        self.settings = settings;
    }

    /// What is shown of it at an instant; none where nothing is: a sliding window that counts no
    /// start, though an override keeps some (S33).
    pub(crate) fn shown(
        &self,
        sizes: Option<&Override>,
        now: Instant,
        runs: &Runs,
    ) -> Option<Shown> {
        let force = self.settings.under(sizes);
        let expires_at = self.expires_at(sizes, runs);
        match &self.shape {
            Shape::Fixed(fixed) => Some(Shown {
                count: fixed.count,
                max: force.rate,
                expires_at,
            }),
            Shape::Sliding(sliding) => {
                let count = sliding.count_at(self.number, &force, now, runs);
                let newest = sliding::newest(self.number, runs)?;
                let expires_at = Some(newest.plus_us(force.length_us()));
                (count > 0).then_some(Shown {
                    count,
                    max: force.rate,
                    expires_at,
                })
            }
            Shape::TokenBucket(bucket) => Some(Shown {
                count: bucket.tokens_at(&force, now),
                max: force.burst,
                expires_at,
            }),
        }
    }
}
