//! What a pool with a rate alone may do, in order: the sequential half of the check in
//! [`crate::linear`].
//!
//! A *ration* is a pool whose job limit has a rate, a window too long to end within the run, no
//! amount and no queue limit, and whose jobs callers execute. So nothing but what clients do moves
//! it, and a handful of rules say what each answer must be:
//!
//! - a launch starts while the window has less than its rate, and is aborted otherwise (S16);
//! - a job that is confirmed keeps its start; one that is cancelled before gives it back to the very
//!   window that it took it from (S31, S48);
//! - a reset begins a new window (S32);
//! - a job that was put back, by a takeover or a timeout, before it was confirmed starts again: it
//!   gives its start back and takes another one, or waits for room (S15, S39). Clients do not see
//!   that, so the search may let it happen whenever such a job is not confirmed.

use serde::{Deserialize, Serialize};

/// A pool of this kind; by whoever set the stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ration {
    /// The pool.
    pub pool: String,
    /// Most starts in its window.
    pub rate: u64,
}

/// What a client did to a ration and what it was answered; by the client, when it has the answer or
/// gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The pool.
    pub pool: String,
    /// What was asked.
    pub ask: Ask,
    /// When the client first sent it.
    pub sent_us: i64,
    /// When the answer came, and what it was; absent where none came: it may have happened at any
    /// time since, or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answered>,
}

/// An answer and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    /// When it came.
    pub at_us: i64,
    /// What it said.
    pub answer: Answer,
    /// The log's index that it reflects, where that was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Launch a job, once.
    Launch(String),
    /// Confirm its start.
    Confirm(String),
    /// Cancel it before it was confirmed.
    Cancel(String),
    /// Reset the window.
    Reset,
    /// How many starts does the window count?
    Count,
}

/// What can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To a launch: it started.
    Started,
    /// To a launch: it was aborted.
    Aborted,
    /// To a confirmation, a cancel or a reset: done.
    Done,
    /// To the question for the count.
    Count(u64),
}

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    /// It has a start in the window of this number, and is not confirmed.
    Starting(u64),
    /// It was put back and found no room.
    Waiting,
}

/// The pool, between two operations. Jobs are numbered in the order of their launches.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    window: u64,
    count: u64,
    /// Jobs that started and were neither confirmed nor ended, in the order of their launches.
    open: Vec<(u32, Phase)>,
}

/// What happens to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Launch(u32),
    Confirm(u32),
    Cancel(u32),
    Reset,
    Count,
    /// A job that was not confirmed is put back and starts again.
    Again(u32),
}

impl State {
    /// Jobs that it would matter for if they were put back: they started in a window that was reset
    /// since, or somebody waits for what they would give back.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = u32> {
        let somebody_waits = self.somebody_waits();
        let matters = move |(job, phase): &(u32, Phase)| match phase {
            Phase::Starting(window) if *window != self.window || somebody_waits => Some(*job),
            Phase::Starting(_) | Phase::Waiting => None,
        };
        self.open.iter().filter_map(matters)
    }

    fn somebody_waits(&self) -> bool {
        self.open.iter().any(|(_, phase)| *phase == Phase::Waiting)
    }

    /// The pool after an event that was answered so; none: it cannot have been. An event without an
    /// answer may have had any.
    pub(crate) fn after(&self, rate: u64, event: Event, answer: Option<Answer>) -> Option<State> {
        let mut next = self.clone();
        let given = next.happen(rate, event)?;
        (answer.is_none() || answer == Some(given)).then_some(next)
    }

    fn happen(&mut self, rate: u64, event: Event) -> Option<Answer> {
        match event {
            Event::Launch(job) => Some(self.launch(rate, job)),
            Event::Confirm(job) => {
                let place = self.place(job)?;
                matches!(self.open[place].1, Phase::Starting(_)).then(|| {
                    self.open.remove(place);
                    Answer::Done
                })
            }
            Event::Cancel(job) => {
                let place = self.place(job)?;
                if self.open[place].1 == Phase::Starting(self.window) {
                    self.count -= 1;
                }
                self.open.remove(place);
                self.release(rate);
                Some(Answer::Done)
            }
            Event::Reset => {
                self.window += 1;
                self.count = 0;
                self.release(rate);
                Some(Answer::Done)
            }
            Event::Count => Some(Answer::Count(self.count)),
            Event::Again(job) => {
                let place = self.place(job)?;
                let Phase::Starting(window) = self.open[place].1 else {
                    return None;
                };
                if window == self.window {
                    self.count -= 1;
                }
                self.open[place].1 = Phase::Waiting;
                self.release(rate);
                Some(Answer::Done)
            }
        }
    }

    fn launch(&mut self, rate: u64, job: u32) -> Answer {
        if self.count < rate && !self.somebody_waits() {
            self.count += 1;
            self.open.push((job, Phase::Starting(self.window)));
            Answer::Started
        } else {
            Answer::Aborted
        }
    }

    fn place(&self, job: u32) -> Option<usize> {
        self.open.iter().position(|(other, _)| *other == job)
    }

    /// Starts those that wait, as far as there is room.
    fn release(&mut self, rate: u64) {
        for (_, phase) in &mut self.open {
            if *phase == Phase::Waiting && self.count < rate {
                self.count += 1;
                *phase = Phase::Starting(self.window);
            }
        }
    }
}
