//! A job: one run, from its launch to its end.
//!
//! A waiting job is what there is most of, so it is small: what it shares with others stands in
//! its interned terms, what only a running or ended job has is boxed in its state, and its
//! parameters lie in a table of their own.

use crate::command::Parent;
use crate::outcome::Reason;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The place of a job in launch order (S19), never used again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct JobNumber(pub u64);

/// Identifies interned [`crate::terms::Terms`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TermsNumber(pub u64);

/// Identifies a pool or bucket.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ScopeNumber(pub u64);

/// Identifies a server for as long as it is defined.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ServerNumber(pub u32);

/// Identifies a kind of heads for as long as any wait in it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct KindNumber(pub u64);

/// Most lines of a job's meta log; the oldest but the first go (S11).
pub const META_LINES_MAX: usize = 64;

/// The parameters of a job: JSON, as the bytes that came (S11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params(#[serde(with = "serde_bytes")] pub Box<[u8]>);

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id, which is also told wherever the job moves.
    pub id: Arc<str>,
    /// What it was launched with, shared with those launched alike.
    pub terms: TermsNumber,
    /// Its pool; none before its limits are fixed (S8) and after its end.
    pub pool: Option<ScopeNumber>,
    /// Higher goes first.
    pub priority: i8,
    /// True once it was put back: queue limits and `skip` no longer apply (S15).
    pub put_back: bool,
    /// How many attempts were made; the last one's number.
    pub attempt: u32,
    /// Starts that went unconfirmed, since the last retry (S15).
    pub timeouts: u32,
    /// Retries used (S49).
    pub retries: u32,
    /// What its launch request hashes to, to know it again (S40).
    pub fingerprint: u64,
    /// When it was launched.
    pub launched_at: Instant,
    /// Where it is on its way.
    pub state: State,
    /// The workflow node that it was launched from, and the limits that it took from there.
    pub parent: Option<Box<Parent>>,
    /// The lease of a caller.
    pub lease: Option<Box<Lease>>,
    /// What is needed to fix its limits later.
    pub unresolved: Option<Box<Unresolved>>,
    /// Its moves and warnings, oldest first.
    pub meta: Vec<MetaLine>,
}

impl Job {
    /// Adds a line to the meta log; the second oldest gives way where it is full.
    pub(crate) fn say(&mut self, at: Instant, note: Note) {
        if self.meta.len() >= META_LINES_MAX {
            self.meta.remove(2);
            self.meta[1] = MetaLine {
                at: self.meta[1].at,
                note: Note::LinesLeftOut,
            };
        }
        if self.meta.len() == self.meta.capacity() {
            // Most jobs that wait have a single line; one that starts will be confirmed and end.
            let waits = matches!(self.state, State::Queued | State::Delayed { .. });
            self.meta.reserve_exact(if waits { 1 } else { 3 });
        }
        self.meta.push(MetaLine { at, note });
    }

    /// Makes it a member of a pool, with a line for each member that differs (S35).
    pub(crate) fn belong_to(
        &mut self,
        pool: ScopeNumber,
        now: Instant,
        differences: Vec<Difference>,
    ) {
        self.pool = Some(pool);
        for difference in differences {
            self.say(now, Note::Differs(Box::new(difference)));
        }
    }

    /// The attempt that is starting or active.
    #[must_use]
    pub fn current(&self) -> Option<&Attempt> {
        match &self.state {
            State::Starting(attempt) | State::Active(attempt) => Some(attempt),
            _ => None,
        }
    }
}

/// Where a job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Considered when it is due.
    Delayed {
        /// When.
        due: Instant,
    },
    /// In its pool's queue.
    Queued,
    /// Started, not confirmed.
    Starting(Box<Attempt>),
    /// Confirmed by its executor.
    Active(Box<Attempt>),
    /// Ended.
    Ended(Box<End>),
}

/// One start of a job, and what it took (S12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The stamp of the entry that started it.
    pub at: Instant,
    /// That entry's index in the log.
    pub index: u64,
    /// Which start of that entry it was, from 0.
    pub ordinal: u32,
    /// Where it executes; none: at its caller.
    pub server: Option<ServerNumber>,
    /// Units of weight taken there.
    pub weight: u32,
    /// While starting: when it is given up unless confirmed. While active: when it is told to
    /// stop for its age, if ever.
    pub deadline: Option<Instant>,
    /// When it was confirmed.
    pub confirmed_at: Option<Instant>,
    /// Why it was told to stop.
    pub stop: Option<Reason>,
    /// The windows that it took a start from, by their numbers (S31).
    pub taken: Tickets,
}

/// What one attempt took from windows. Most take from one or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tickets {
    /// Nothing.
    #[default]
    None,
    /// From one.
    One(Ticket),
    /// From several, in the order in which they were taken.
    Several(Vec<Ticket>),
}

impl Tickets {
    /// The tickets in the order in which they were taken.
    #[must_use]
    pub fn as_slice(&self) -> &[Ticket] {
        match self {
            Tickets::None => &[],
            Tickets::One(ticket) => core::slice::from_ref(ticket),
            Tickets::Several(tickets) => tickets,
        }
    }

    pub(crate) fn push(&mut self, ticket: Ticket) {
        *self = match core::mem::take(self) {
            Tickets::None => Tickets::One(ticket),
            Tickets::One(first) => Tickets::Several(Vec::from([first, ticket])),
            Tickets::Several(mut tickets) => {
                tickets.push(ticket);
                Tickets::Several(tickets)
            }
        };
    }
}

/// One start taken from one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Whose window.
    pub scope: ScopeNumber,
    /// Which opening of it (S26).
    pub window: u64,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: Instant,
    /// Its exit code, or why it was ended.
    pub result: Result<i32, Reason>,
    /// What its executor had to say.
    pub description: Box<str>,
    /// The last attempt, if there was one.
    pub last: Option<LastAttempt>,
}

/// What is kept of an attempt after the job's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAttempt {
    /// When it was started.
    pub at: Instant,
    /// In which entry.
    pub index: u64,
    /// Which start of that entry it was.
    pub ordinal: u32,
    /// On which server; none: at its caller.
    pub server: Option<Arc<str>>,
    /// When it was confirmed, if it was.
    pub confirmed_at: Option<Instant>,
}

/// A caller's lease on its job (S46). Renewals live in the leader; here is what a takeover needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// How long the caller may be silent, in seconds.
    pub lease_s: u32,
    /// The takeover under which the caller was last seen, counted from 1.
    pub seen_under: u64,
    /// Where its silence counts from unless it was heard under the leader of now: the launch, the
    /// first renewal under a leader, or a takeover that gave it a full lease anew (S41).
    pub heard_at: Instant,
}

/// What a job with `resolve_limits: "first_start"` keeps until it falls due (S8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unresolved {
    /// The launch's own limits.
    pub launch: Vec<crate::limits::Limit>,
    /// The parent node's limits, from the parent's snapshot.
    pub node: Vec<crate::limits::Limit>,
}

/// One line of a job's meta log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaLine {
    /// When.
    pub at: Instant,
    /// What.
    pub note: Note,
}

/// What a line of the meta log says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// It was launched with a delay.
    Delayed,
    /// It was queued, because this gate was shut.
    Queued(Reason),
    /// It was queued behind others.
    QueuedBehind,
    /// It was started.
    Started {
        /// Which attempt.
        attempt: u32,
        /// Where; none: at its caller.
        server: Option<Arc<str>>,
    },
    /// Its executor confirmed the attempt.
    Confirmed {
        /// Which attempt.
        attempt: u32,
    },
    /// The attempt was refunded and the job put back.
    PutBack {
        /// Which attempt.
        attempt: u32,
        /// What ended the attempt.
        cause: PutBackCause,
    },
    /// It was told to stop.
    Stopping(Reason),
    /// It will be tried again.
    Retry {
        /// Which retry, from 1.
        retry: u32,
        /// When it is due.
        due: Instant,
    },
    /// Its settings differ from those of another job of its pool (S35).
    Differs(Box<Difference>),
    /// It ended.
    Ended,
    /// Lines were left out here for want of room.
    LinesLeftOut,
}

/// What ended an attempt that was put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutBackCause {
    /// It was not confirmed in time (S15).
    StartTimeout,
    /// A new leader took over (S39).
    Takeover,
    /// Its server went offline, or came back as another incarnation (S42).
    ServerOffline,
    /// Its server is being emptied.
    ServerDraining,
}

/// One difference between members of a pool (S35).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `amount`, `rate` or `queue amount`.
    pub what: Box<str>,
    /// This job's value.
    pub ours: String,
    /// The other job's value.
    pub theirs: String,
    /// The other job.
    pub job: Arc<str>,
}
