//! A window as the list tells it: opened, taken from, given back to, resized, gone.

use crate::history::{Fact, Model, Number, Scope, override_change};
use fermata_pool::command::Override;
use fermata_pool::limits::{Align, Style};
use fermata_pool::terms::RateSettings;
use fermata_pool::time::{Boundaries, Instant};

/// What the list says of an open window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) number: usize,
    pub(crate) settings: RateSettings,
    pub(crate) sizes: Option<Override>,
    /// When this was told.
    pub(crate) at: Instant,
    /// Where a fixed window ends.
    end: Instant,
    /// The starts taken and not given back; of a sliding window, those that are kept.
    pub(crate) starts: Vec<(Number, u32, Instant)>,
    /// The tokens of a bucket, in units of 1/(length in µs) of a token.
    tokens: i128,
    /// The latest launched of the jobs that started in it.
    newest: Option<Number>,
}

/// When one more start is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Open,
    At(Instant),
    Never,
}

fn length_us(window_s: u32) -> i128 {
    i128::from(window_s) * 1_000_000
}

/// The instant at which something in µs is reached, rounded up to a whole µs.
fn after(at: Instant, units: i128, per_us: i128) -> Instant {
    let us = (units + per_us - 1) / per_us;
    at.plus_us(us.try_into().expect("an allowed duration"))
}

/// Where the window that holds `at` ends (S24, S25).
fn boundary(at: Instant, window_s: u32, align: Align, boundaries: &Boundaries) -> Instant {
    match (align, window_s) {
        (Align::Local, 1) => boundaries.second,
        (Align::Local, 60) => boundaries.minute,
        (Align::Local, 3_600) => boundaries.hour,
        (Align::Local, 86_400) => boundaries.day,
        _ => {
            let length = i64::from(window_s) * 1_000_000;
            Instant::from_us((at.us() / length + 1) * length)
        }
    }
}

impl Window {
    /// The rate in force.
    pub(crate) fn rate(&self) -> u32 {
        let count = self.sizes.as_ref().and_then(|sizes| sizes.count);
        match self.settings.style {
            // The bound of S3 holds for what an override says too.
            Style::Sliding => count.unwrap_or(self.settings.rate).min(100_000),
            Style::Fixed | Style::TokenBucket => count.unwrap_or(self.settings.rate),
        }
    }

    /// The burst in force.
    pub(crate) fn burst(&self) -> u32 {
        let count = self.sizes.as_ref().and_then(|sizes| sizes.count);
        count.unwrap_or(self.settings.burst)
    }

    /// The length in force.
    pub(crate) fn window_s(&self) -> u32 {
        let window_s = self.sizes.as_ref().and_then(|sizes| sizes.window_s);
        window_s.unwrap_or(self.settings.window_s)
    }

    fn capacity(&self) -> i128 {
        i128::from(self.burst()) * length_us(self.window_s())
    }

    fn pass(&mut self, at: Instant) {
        let gained = i128::from(self.rate()) * i128::from(at.since_us(self.at));
        self.tokens = (self.tokens + gained).min(self.capacity());
        self.at = at;
        self.forget_starts();
    }

    /// A sliding window keeps its starts for the longer of the length in force and its own (S33).
    fn forget_starts(&mut self) {
        if self.settings.style == Style::Sliding {
            let keep_s = u64::from(self.window_s().max(self.settings.window_s));
            let at = self.at;
            self.starts
                .retain(|(_, _, start)| start.plus_s(keep_s) > at);
        }
    }

    /// Changes the settings or the override, at the present instant of the window.
    fn resize(&mut self, boundaries: &Boundaries, change: impl FnOnce(&mut Window)) {
        let before = self.window_s();
        change(self);
        let now = self.window_s();
        if before != now {
            self.end = boundary(self.at, now, self.settings.align, boundaries);
            self.tokens = self.tokens * length_us(now) / length_us(before);
        }
        self.tokens = self.tokens.min(self.capacity());
        self.forget_starts();
    }

    /// True where an override says something of the rate.
    fn is_overridden(&self) -> bool {
        let says = |sizes: &Override| sizes.count.is_some() || sizes.window_s.is_some();
        self.sizes.as_ref().is_some_and(says)
    }

    fn is_expired(&self) -> bool {
        match self.settings.style {
            Style::Fixed => self.end <= self.at,
            Style::Sliding => self.starts.is_empty(),
            Style::TokenBucket => !self.is_overridden() && self.tokens == self.capacity(),
        }
    }

    /// When the starts that count leave a sliding window, the first to leave first.
    fn leaving(&self) -> Vec<Instant> {
        let length_s = u64::from(self.window_s());
        let leave = |(_, _, start): &(Number, u32, Instant)| start.plus_s(length_s);
        let mut leaving: Vec<Instant> = self.starts.iter().map(leave).collect();
        leaving.retain(|leave| *leave > self.at);
        leaving.sort();
        leaving
    }

    /// The starts that count; of a bucket, its whole tokens.
    pub(crate) fn count(&self) -> usize {
        match self.settings.style {
            Style::Fixed => self.starts.len(),
            Style::Sliding => self.leaving().len(),
            Style::TokenBucket => {
                let whole = self.tokens / length_us(self.window_s());
                whole.try_into().expect("an allowed burst")
            }
        }
    }

    pub(crate) fn max(&self) -> u32 {
        match self.settings.style {
            Style::Fixed | Style::Sliding => self.rate(),
            Style::TokenBucket => self.burst(),
        }
    }

    /// False where it is kept but counts none (S33).
    pub(crate) fn is_shown(&self) -> bool {
        self.settings.style != Style::Sliding || self.count() > 0
    }

    pub(crate) fn expires_at(&self) -> Option<Instant> {
        match self.settings.style {
            Style::Fixed => Some(self.end),
            Style::Sliding => self.leaving().last().copied(),
            Style::TokenBucket if self.is_overridden() => None,
            Style::TokenBucket => Some(after(
                self.at,
                self.capacity() - self.tokens,
                i128::from(self.rate()),
            )),
        }
    }

    /// When one more start is allowed (S29).
    pub(crate) fn opening(&self) -> Opening {
        if self.rate() == 0 {
            return Opening::Never;
        }
        let max = self.rate() as usize;
        match self.settings.style {
            Style::Fixed if self.starts.len() < max => Opening::Open,
            Style::Fixed => Opening::At(self.end),
            Style::Sliding => {
                let leaving = self.leaving();
                match leaving.len().checked_sub(max) {
                    None => Opening::Open,
                    Some(too_many) => Opening::At(leaving[too_many]),
                }
            }
            Style::TokenBucket => {
                let missing = length_us(self.window_s()) - self.tokens;
                if missing <= 0 {
                    Opening::Open
                } else {
                    Opening::At(after(self.at, missing, i128::from(self.rate())))
                }
            }
        }
    }

    /// True where a start by this job changes the settings (S26).
    pub(crate) fn takes_settings_of(&self, job: Number, settings: RateSettings) -> bool {
        self.settings.style != Style::Fixed
            && self.settings.style == settings.style
            && self.settings != settings
            && self.newest.is_none_or(|newest| job > newest)
    }
}

impl Model {
    /// The open window of a pool or bucket, shown or not.
    pub(crate) fn window(&self, name: &str) -> Option<Window> {
        let mut window: Option<Window> = None;
        let mut sizes: Option<&Override> = None;
        let (mut now, mut boundaries) = (Instant::EPOCH, Boundaries::default());
        let mut openings = 0;
        for fact in &self.facts {
            let mut may_expire = false;
            if let Some((scope, change)) = override_change(fact)
                && *scope == *name
            {
                sizes = change;
                if let Some(window) = &mut window {
                    window.resize(&boundaries, |it| it.sizes = change.cloned());
                    may_expire = true;
                }
            }
            match fact {
                Fact::Entry {
                    at, boundaries: b, ..
                } => {
                    (now, boundaries) = (*at, *b);
                    if let Some(window) = &mut window {
                        window.pass(now);
                        may_expire = true;
                    }
                }
                Fact::Opened { scope, settings } => {
                    openings += 1;
                    if **scope == *name {
                        window = Some(opened(openings, *settings, sizes, now, &boundaries));
                    }
                }
                Fact::Settled { scope, settings } if **scope == *name => {
                    if let Some(window) = &mut window {
                        window.resize(&boundaries, |it| it.settings = *settings);
                    }
                }
                Fact::Started(start) if start.taken.iter().any(|(it, _)| **it == *name) => {
                    if let Some(window) = &mut window {
                        window.starts.push((start.job, start.attempt, now));
                        window.newest = window.newest.max(Some(start.job));
                        window.tokens -= length_us(window.window_s());
                    }
                }
                Fact::Refunded {
                    job,
                    attempt,
                    scope,
                } if **scope == *name => {
                    if let Some(window) = &mut window {
                        let same = |(a, b, _): &(Number, u32, Instant)| (a, b) == (job, attempt);
                        window.starts.retain(|start| !same(start));
                        window.tokens += length_us(window.window_s());
                        window.tokens = window.tokens.min(window.capacity());
                        may_expire = true;
                    }
                }
                Fact::Reset(scope) if **scope == *name => window = None,
                _ => {}
            }
            if may_expire && window.as_ref().is_some_and(Window::is_expired) {
                window = None;
            }
        }
        window
    }

    /// How many windows were ever opened.
    pub(crate) fn openings(&self) -> usize {
        let opened = |fact: &&Fact| matches!(fact, Fact::Opened { .. });
        self.facts.iter().filter(opened).count()
    }

    /// Every pool or bucket in which a window was ever opened or an override set.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = Vec::new();
        for fact in &self.facts {
            match fact {
                Fact::Opened { scope, .. } => scopes.push(scope.clone()),
                other => {
                    scopes.extend(override_change(other).map(|(scope, _)| Scope::from(scope)));
                }
            }
        }
        scopes.sort();
        scopes.dedup();
        scopes
    }

    /// When a rate that a job with these settings looks at allows one more start.
    pub(crate) fn opening(&self, scope: &str, settings: &RateSettings) -> Opening {
        if let Some(window) = self.window(scope) {
            return window.opening();
        }
        let count = self.override_of(scope).and_then(|sizes| sizes.count);
        match count.unwrap_or(settings.rate) {
            0 => Opening::Never,
            _ => Opening::Open,
        }
    }
}

fn opened(
    number: usize,
    settings: RateSettings,
    sizes: Option<&Override>,
    now: Instant,
    boundaries: &Boundaries,
) -> Window {
    let mut window = Window {
        number,
        settings,
        sizes: sizes.cloned(),
        at: now,
        end: now,
        starts: Vec::new(),
        tokens: 0,
        newest: None,
    };
    window.end = boundary(now, window.window_s(), settings.align, boundaries);
    window.tokens = window.capacity();
    window
}
