//! What the pool foretells of a job, against what comes when nothing but time happens: a copy of
//! the pool is given entries without commands, at the instants at which it asks for them.
//!
//! Jobs that are `starting` are confirmed, because an executor that is silent is not nothing. A
//! job is followed three times: alone, where all others that wait are cancelled, so that only time
//! is in its way and everything must be foretold exactly; among those that wait, where what is
//! called exact must come although they go on as well; and among all, where an instant is a lower
//! bound as soon as another falls due.

use crate::history::{Fact, Model};
use crate::made_anew;
use crate::windows::Opening;
use fermata_pool::Pool;
use fermata_pool::command::{Command, Entry, Launch};
use fermata_pool::outcome::{Move, Outcome, Reason, Standing};
use fermata_pool::query::{JobFilter, StateKind};
use fermata_pool::terms::RateSettings;
use fermata_pool::time::{Boundaries, Instant, Stamp};
use std::collections::BTreeMap;

type Holds = Result<(), String>;

/// Most entries that a job is followed for.
const ENTRIES_MAX: usize = 300;
/// More jobs than any story has.
const JOBS_MAX: usize = 1_000;

/// The local boundaries after an instant.
pub(crate) type Calendar<'a> = &'a dyn Fn(Instant) -> Boundaries;

impl Model {
    /// When one more start is allowed by a rate, if nothing but time happens.
    fn next_start(&self, scope: &str, calendar: Calendar<'_>) -> Option<Instant> {
        let sizes = self.override_of(scope);
        let opening = |model: &Model| match model.window(scope) {
            Some(window) => window.opening(),
            None if model.override_of(scope).and_then(|it| it.count) == Some(0) => Opening::Never,
            None => Opening::Open,
        };
        let ends = sizes.and_then(|sizes| sizes.expires_at);
        match opening(self) {
            Opening::Open => return Some(self.now()),
            Opening::At(at) if ends.is_none_or(|ends| at < ends) => return Some(at),
            Opening::At(_) | Opening::Never => {}
        }
        let mut later = self.clone();
        later.push(Fact::Entry {
            index: self.entry().0,
            at: ends?,
            boundaries: calendar(ends?),
        });
        later.push(Fact::OverrideRanOut(scope.into()));
        match opening(&later) {
            Opening::Open => ends,
            Opening::At(at) => Some(at),
            Opening::Never => None,
        }
    }
}

/// The rates of all pools and buckets.
pub(crate) fn rates(model: &Model, pool: &Pool, calendar: Calendar<'_>) -> Holds {
    for scope in model.scopes() {
        let expected = model.next_start(&scope, calendar);
        let found = pool.rate_opens_at(&scope, model.now(), calendar);
        if expected != found {
            return Err(format!(
                "{scope} allows one more start: the list says {expected:?}, the pool {found:?}"
            ));
        }
    }
    Ok(())
}

/// A copy of the pool in which only time passes.
struct Future<'a> {
    pool: Pool,
    index: u64,
    calendar: Calendar<'a>,
    /// Jobs that started, ended or fell due, since the copy was made.
    moved: Vec<Box<str>>,
    /// Jobs that were delayed since then, to be tried again.
    delayed: Vec<Box<str>>,
}

impl<'a> Future<'a> {
    fn of(pool: &mut Pool, index: u64, calendar: Calendar<'a>) -> Result<Self, String> {
        let mut future = Future {
            pool: made_anew(pool)?,
            index,
            calendar,
            moved: Vec::new(),
            delayed: Vec::new(),
        };
        let now = future.pool.stamp().at;
        future.confirm(now);
        future.moved.clear();
        Ok(future)
    }

    fn apply(&mut self, at: Instant, commands: Vec<Command>) -> Vec<Outcome> {
        self.index += 1;
        let entry = Entry {
            claim: self.pool.claim(),
            stamp: Stamp {
                at,
                boundaries: (self.calendar)(at),
            },
            commands,
        };
        let applied = self.pool.apply(self.index, &entry);
        let moves = applied.moves.iter().map(|it| Box::from(&*it.job));
        self.moved.extend(moves);
        let is_delayed = |it: &&Move| it.standing == Standing::Delayed;
        let delayed = applied.moves.iter().filter(is_delayed);
        self.delayed.extend(delayed.map(|it| Box::from(&*it.job)));
        applied.outcomes.expect("the claim in force")
    }

    fn in_state(&self, state: StateKind) -> Vec<Box<str>> {
        let filter = JobFilter {
            state: Some(state),
            ..JobFilter::default()
        };
        let page = self.pool.jobs(&filter, None, JOBS_MAX, JOBS_MAX);
        page.jobs.iter().map(|it| Box::from(&*it.job.id)).collect()
    }

    /// Every job that is starting is confirmed.
    fn confirm(&mut self, at: Instant) {
        let starting = self.in_state(StateKind::Starting);
        let attempt = |id: &str| self.pool.job(id).map_or(0, |view| view.job.attempt);
        let confirmations = starting.iter().map(|id| Command::Started {
            job: id.clone(),
            attempt: attempt(id),
            from: None,
        });
        let confirmations: Vec<Command> = confirmations.collect();
        if !confirmations.is_empty() {
            self.apply(at, confirmations);
        }
    }

    /// Time passes to the next instant at which the pool asks for an entry; false: there is none.
    fn tick(&mut self, until: Option<Instant>) -> bool {
        let now = self.pool.stamp().at;
        let next = self.pool.next_deadline().map(|next| next.max(now));
        let next = match (next, until) {
            (Some(next), Some(until)) => next.min(until),
            (Some(next), None) => next,
            (None, until) => match until {
                Some(until) => until,
                None => return false,
            },
        };
        self.apply(next, Vec::new());
        self.confirm(next);
        true
    }

    /// Follows a job until it no longer waits: how it stands then, and when.
    fn follow(&mut self, id: &str) -> Option<(Instant, Standing)> {
        for _ in 0..ENTRIES_MAX {
            match self.pool.standing(id)? {
                Standing::Queued | Standing::Delayed => {}
                Standing::Active { attempt, server } => {
                    let started = Standing::Starting { attempt, server };
                    return Some((self.pool.stamp().at, started));
                }
                other => return Some((self.pool.stamp().at, other)),
            }
            if !self.tick(None) {
                break;
            }
        }
        None
    }

    /// Every delayed job but one is cancelled: who falls due is more than time.
    fn cancel_delayed(&mut self, but: &str) {
        let delayed = self.in_state(StateKind::Delayed).into_iter();
        let others = delayed.filter(|other| **other != *but);
        let cancel = others.map(|job| Command::Cancel { job }).collect();
        let now = self.pool.stamp().at;
        self.apply(now, cancel);
        self.confirm(now);
    }

    fn others_moved(&self, id: &str) -> bool {
        self.moved.iter().any(|moved| **moved != *id)
    }

    /// True where another is to be tried again, and so will fall due.
    fn others_were_delayed(&self, id: &str) -> bool {
        self.delayed.iter().any(|delayed| **delayed != *id)
    }

    fn settings(&self) -> BTreeMap<u64, RateSettings> {
        let windows = self.pool.windows("", Instant::EPOCH);
        windows.map(|it| (it.number, it.settings)).collect()
    }
}

/// What was foretold of a job.
#[derive(Debug)]
struct Foretold {
    earliest: Option<Instant>,
    is_exact: bool,
    aborts: Option<(Instant, Reason)>,
    /// Its limits are fixed, so that it is known where it will wait.
    is_fixed: bool,
}

fn foretold(future: &Future<'_>, id: &str) -> Option<Foretold> {
    let why = future
        .pool
        .why(id, future.pool.stamp().at, future.calendar)?;
    Some(Foretold {
        earliest: why.earliest,
        is_exact: why.is_exact,
        aborts: why.aborts,
        is_fixed: why.pool.is_some(),
    })
}

/// True where what was foretold exactly has come.
fn has_come(told: &Foretold, came: Option<&(Instant, Standing)>) -> bool {
    match (told.earliest, told.aborts, came) {
        (Some(starts), None, Some((at, Standing::Starting { .. }))) => starts == *at,
        (None, Some((aborts, why)), Some((at, Standing::Aborted { reason }))) => {
            (aborts, why) == (*at, *reason)
        }
        (None, None, None) => true,
        _ => false,
    }
}

/// Every job that waits or is delayed, alone and among the others.
pub(crate) fn jobs(pool: &mut Pool, index: u64, calendar: Calendar<'_>) -> Holds {
    let now = Future::of(pool, index, calendar)?;
    let mut waiting = now.in_state(StateKind::Queued);
    waiting.extend(now.in_state(StateKind::Delayed));
    for id in &waiting {
        alone(Future::of(pool, index, calendar)?, id, &waiting)?;
        among_waiting(Future::of(pool, index, calendar)?, id)?;
        among_others(Future::of(pool, index, calendar)?, id)?;
    }
    Ok(())
}

fn alone(mut future: Future<'_>, id: &str, waiting: &[Box<str>]) -> Holds {
    let others = waiting.iter().filter(|other| ***other != *id);
    let cancel = others.map(|job| Command::Cancel { job: job.clone() });
    let now = future.pool.stamp().at;
    future.apply(now, cancel.collect());
    future.confirm(now);
    if !matches!(
        future.pool.standing(id),
        Some(Standing::Queued | Standing::Delayed)
    ) {
        return Ok(());
    }
    let told = foretold(&future, id).ok_or("no reason of a job that waits")?;
    let came = future.follow(id);
    let is_right = if told.is_fixed {
        has_come(&told, came.as_ref()) && (told.is_exact || told.earliest.is_none())
    } else {
        !told.is_exact
            && came
                .as_ref()
                .is_none_or(|(at, _)| told.earliest <= Some(*at))
    };
    if is_right {
        return Ok(());
    }
    Err(format!(
        "{id} alone: it is foretold {told:?}, and came {came:?}"
    ))
}

fn among_waiting(mut future: Future<'_>, id: &str) -> Holds {
    future.cancel_delayed(id);
    if !matches!(
        future.pool.standing(id),
        Some(Standing::Queued | Standing::Delayed)
    ) {
        return Ok(());
    }
    let told = foretold(&future, id).ok_or("no reason of a job that waits")?;
    if !told.is_exact && told.aborts.is_none() {
        return Ok(());
    }
    let came = future.follow(id);
    if future.others_were_delayed(id) || has_come(&told, came.as_ref()) {
        return Ok(());
    }
    Err(format!(
        "{id} among those that wait: it is foretold {told:?}, and came {came:?}"
    ))
}

fn among_others(mut future: Future<'_>, id: &str) -> Holds {
    if !matches!(
        future.pool.standing(id),
        Some(Standing::Queued | Standing::Delayed)
    ) {
        return Ok(());
    }
    let told = foretold(&future, id).ok_or("no reason of a job that waits")?;
    let settings = future.settings();
    let came = future.follow(id);
    let others_moved = future.others_moved(id);
    let is_certain = told.is_exact || told.aborts.is_some();
    // Another job may bring other settings to a window that may never rest (S26).
    let now = future.settings();
    let resized = settings
        .iter()
        .any(|(window, settings)| now.get(window).is_some_and(|it| it != settings));
    let is_right = match (&came, told.earliest) {
        _ if is_certain && !others_moved => has_come(&told, came.as_ref()),
        (Some((at, Standing::Starting { .. })), Some(earliest)) => resized || *at >= earliest,
        _ => true,
    };
    if is_right {
        return Ok(());
    }
    Err(format!(
        "{id} among others: it is foretold {told:?}, and came {came:?}"
    ))
}

/// A launch that was aborted just now: one like it is not aborted at the instant that is named, and
/// is aborted shortly before.
pub(crate) fn retry(pool: &mut Pool, index: u64, calendar: Calendar<'_>, launch: &Launch) -> Holds {
    let reason = |future: &Future<'_>, at| {
        let mut again = launch.clone();
        again.id = "again".into();
        let would = future.pool.would(&again, at, calendar).ok()?;
        Some(match would.standing {
            Standing::Aborted { reason } => Some(reason),
            _ => None,
        })
    };
    let mut future = Future::of(pool, index, calendar)?;
    future.cancel_delayed(&launch.id);
    let now = future.pool.stamp().at;
    let Some(admits) = future.pool.admits_at(&launch.id, now, calendar) else {
        return Ok(());
    };
    for (at, aborted) in [(admits.plus_us(-1), true), (admits, false)] {
        if at < now {
            continue;
        }
        for _ in 0..ENTRIES_MAX {
            if future.pool.stamp().at >= at {
                break;
            }
            future.tick(Some(at));
        }
        if future.others_were_delayed(&launch.id) {
            return Ok(());
        }
        let Some(came) = reason(&future, at) else {
            // It is refused: it is a node of a job that was cancelled with those that are delayed.
            return Ok(());
        };
        if came.is_some() != aborted {
            return Err(format!(
                "{} may be launched again at {admits:?}, but at {at:?} that comes to {came:?}",
                launch.id
            ));
        }
    }
    Ok(())
}
