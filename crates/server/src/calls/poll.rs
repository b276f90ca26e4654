//! A worker's poll: heartbeat, reports and hand-out in one (S13, S14, S41, S42).
//!
//! A poll renews the lease and brings its confirmations and ends into the log ([`reports`]), and then
//! is answered with what the worker should know: attempts to take in hand, and attempts to stop. It is
//! held until there is something new to say.
//!
//! Handing out is not committed. An attempt in `starting` is offered until it is confirmed, so an
//! answer that is lost costs nothing; the worker drops what it has seen.
//!
//! What is remembered between polls ([`Polls`]) lives in the leader and is forgotten with its
//! claim. It decides only *when* a poll is answered, and when an attempt counts as missing: one
//! that its worker did not name in two polls running. One poll is not enough: it may have been on
//! its way when the attempt was confirmed by another.
//!
//! # Caveats
//!
//! - `holds` is what the worker held when it *sent* the poll. What was offered since through
//!   another poll is offered again by a held one.
//! - A server with a hundred thousand attempts is looked through under the replica's lock, at each
//!   hint that concerns it.

mod reports;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use fermata_api::bounds::POLL_WAIT_MS_MAX;
use fermata_api::problem::{ErrorCode, Problem};
use fermata_api::query::CallQuery;
use fermata_api::servers::{
    AttemptRef, Completion, Offer, PollAnswer, PollRequest, StopOrder, StopReason,
};
use fermata_pool::Pool;
use fermata_pool::command::{COMMANDS_PER_ENTRY_MAX, Claim, Command, Holder};
use fermata_pool::job::State as JobState;
use fermata_replica::{Leadership, ServerLease};
use http::StatusCode;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::reports::{Heard, Reports};
use super::servers;
use crate::admission::{Deadline, Place};
use crate::convert::{inward, outward};
use crate::edge::Edge;
use crate::input::{Id, Json, Query};
use crate::refused::{Refused, json};
use crate::start_actions::StartActions;

/// Most attempts that one answer offers; the next poll gets the next ones.
const OFFERS_MAX: usize = 1_000;
/// Most bytes of parameters in one answer, beyond its first offer.
const OFFERED_PARAMS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// After how long what was said counts as new again, in milliseconds: the answer may be lost, or
/// the worker may have no room yet.
const SAY_AGAIN_MS: u64 = 1_000;
/// From what wait on, in milliseconds, a poll without reports counts as one that nobody waits for.
const UNHURRIED_WAIT_MS_MIN: u64 = 1_000;

/// The distance between the instants at which polls end that nobody waits for, in milliseconds:
/// thousands of them wake the node a few times a second.
const END_TOGETHER_MS: u32 = 100;

/// What the leader remembers of each server's polls.
pub(crate) struct Polls {
    /// From when on the instants count at which polls end together.
    since: Instant,
    servers: Mutex<HashMap<Box<str>, Memory>>,
}

/// Of one server's polls, under one claim and incarnation.
struct Memory {
    claim: Claim,
    incarnation: u64,
    /// `active` attempts that the last poll did not name.
    missing: BTreeSet<AttemptRef>,
    /// What was said, and when.
    said: HashMap<Subject, Instant>,
}

/// What is said something about.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Subject {
    /// The worker itself: it is to drain.
    Worker,
    /// An attempt: to be taken in hand, or to be stopped.
    Attempt(AttemptRef),
}

/// A poll as it is worked off.
struct Poll {
    server: Box<str>,
    incarnation: u64,
    holder: Holder,
    claim: Claim,
    holds: HashSet<AttemptRef>,
    /// What it reports the end of.
    ended: HashSet<AttemptRef>,
    /// Whether its worker takes nothing new.
    draining: bool,
}

/// What there is to say.
#[derive(Debug, Default)]
struct News {
    launches: Vec<Offer>,
    stop: Vec<StopOrder>,
    drain: bool,
}

pub(crate) async fn poll(
    State(edge): State<Edge>,
    Extension(deadline): Extension<Deadline>,
    Extension(place): Extension<Arc<Place>>,
    Id(server): Id,
    Query(CallQuery { .. }): Query<CallQuery>,
    Json(body): Json<PollRequest>,
) -> Result<Response, Refused> {
    let arrived = Instant::now();
    let mut leadership = edge.replica.leadership();
    let claim = claim(&leadership.borrow_and_update())
        .ok_or_else(|| Refused::unled("this node does not lead"))?;
    let ended = body.completed.iter().map(named).collect();
    let poll = Poll {
        holder: inward::holder(&server, body.incarnation),
        incarnation: body.incarnation,
        claim,
        holds: body.holds.into_iter().collect(),
        ended,
        draining: body.draining,
        server,
    };
    let reports = Reports::read(&poll, body.started, body.completed)?;
    let has_reports = !reports.is_empty();
    let is_awaited = has_reports
        || poll.draining
        || body
            .wait_ms
            .is_some_and(|wait_ms| wait_ms < UNHURRIED_WAIT_MS_MIN);
    let heard = if is_awaited {
        // Boxed, as what ends is: a thousand held polls keep no room for what they are past.
        Box::pin(edge.reported(deadline, &poll, reports)).await?
    } else {
        Box::pin(edge.heard(deadline, &poll)).await?
    };
    let is_first = edge.replica.read(|pool| {
        edge.polls
            .begin(&poll, |server| pool.server(server).is_some())
    });
    if is_first {
        // Held polls of an older incarnation are answered at once.
        edge.hints.servers.wake(&poll.server);
    }
    Box::pin(edge.end_missing(deadline, &poll)).await?;

    let until = if has_reports {
        Instant::now()
    } else {
        let until = held_until(arrived, deadline, heard.lease, body.wait_ms);
        edge.polls.ends(until, is_awaited)
    };
    let news = edge.news(&poll, &place, &mut leadership, until).await?;
    let answer = PollAnswer {
        lease_ms: millis(heard.lease.whole()),
        server_timeout_ms: millis(heard.lease.server_timeout),
        started: heard.started,
        completed: heard.completed,
        launches: news.launches,
        stop: news.stop,
        drain: news.drain,
    };
    Ok(json(StatusCode::OK, &answer))
}

fn held_until(
    arrived: Instant,
    deadline: Deadline,
    lease: ServerLease,
    wait_ms: Option<u64>,
) -> Instant {
    let wait_ms = wait_ms.unwrap_or(u64::MAX).min(POLL_WAIT_MS_MAX);
    let wait = Duration::from_millis(wait_ms).min(lease.server_timeout / 3);
    let until = arrived + wait;
    if deadline.is_given {
        until.min(deadline.at)
    } else {
        until
    }
}

impl Edge {
    /// Renews the lease of the worker of a poll that nobody waits for (S41). While it finds nothing
    /// to say, it shares the renewal with others.
    async fn heard(&self, deadline: Deadline, poll: &Poll) -> Result<Heard, Refused> {
        let renewed = async {
            let listener = self.hints.servers.listen(&poll.server);
            let hint = listener.next();
            let is_idle = self.replica.read(|pool| {
                let news = poll.look(pool, &self.start_actions);
                news.is_ok_and(|news| news.is_empty())
            });
            if is_idle {
                tokio::select! {
                    lease = self.replica.server_heard_unhurried(poll.holder.clone()) => return lease,
                    () = hint => {}
                }
            }
            self.replica.server_heard(poll.holder.clone()).await
        };
        let lease = timeout_at(deadline.at, renewed).await;
        let lease =
            lease.map_err(|_| Refused::unled("no majority confirmed the leader in time"))??;
        Ok(Heard::without_reports(lease))
    }

    /// Ends `active` attempts that the worker has not named twice running.
    async fn end_missing(&self, deadline: Deadline, poll: &Poll) -> Result<(), Refused> {
        let unnamed = self.replica.read(|pool| poll.unnamed(pool));
        let commands: Vec<Command> = self
            .polls
            .missing_again(poll, unnamed)
            .into_iter()
            .take(COMMANDS_PER_ENTRY_MAX)
            .map(|AttemptRef { job, attempt }| Command::AttemptMissing {
                job: job.into(),
                attempt,
                from: poll.holder.clone(),
            })
            .collect();
        // A refusal means that it ended meanwhile.
        self.propose_all(deadline, commands).await?;
        Ok(())
    }

    /// Waits for something to say, until the instant.
    async fn news(
        &self,
        poll: &Poll,
        place: &Place,
        leadership: &mut watch::Receiver<Leadership>,
        until: Instant,
    ) -> Result<News, Refused> {
        let listener = self.hints.servers.listen(&poll.server);
        let mut closing = self.closing.clone();
        let mut is_held = false;
        loop {
            let hint = listener.next();
            let news = self
                .replica
                .read(|pool| poll.look(pool, &self.start_actions))?;
            let now = Instant::now();
            if now >= until || *closing.borrow() || self.polls.is_new(poll, &news, now) {
                self.polls.said(poll, &news, now);
                return Ok(news);
            }
            if !is_held {
                place.hold()?;
                is_held = true;
            }
            let look_again = if news.is_empty() {
                until
            } else {
                until.min(now + Duration::from_millis(SAY_AGAIN_MS))
            };
            tokio::select! {
                () = hint => {}
                () = sleep_until(look_again) => {}
                _ = closing.changed() => {}
                changed = leadership.changed() => {
                    if changed.is_err() || claim(&leadership.borrow_and_update()) != Some(poll.claim) {
                        let detail = "leadership was lost while the poll was held";
                        return Err(Problem::new(ErrorCode::NoLeader, detail).into());
                    }
                }
            }
        }
    }
}

impl Poll {
    /// The server's `active` attempts that the poll does not name.
    fn unnamed(&self, pool: &Pool) -> BTreeSet<AttemptRef> {
        pool.held_by(&self.server)
            .filter(|view| matches!(view.job.state, JobState::Active(_)))
            .map(|view| attempt_ref(&view.job.id, view.job.attempt))
            .filter(|active| !self.holds.contains(active) && !self.ended.contains(active))
            .collect()
    }

    /// What there is to say to this worker.
    fn look(&self, pool: &Pool, actions: &StartActions) -> Result<News, Problem> {
        let server = pool
            .server(&self.server)
            .ok_or_else(|| servers::unknown(&self.server))?;
        if server.incarnation.as_deref() != Some(&*self.holder.incarnation) {
            let detail = format!(
                "incarnation {} is not that of the server's worker any more",
                self.incarnation
            );
            let problem = Problem::new(ErrorCode::Superseded, detail);
            return Err(problem.with_field("incarnation"));
        }
        Ok(News {
            launches: self.launches(pool, actions),
            stop: self.stop(pool),
            drain: server.draining && !self.draining,
        })
    }

    fn launches(&self, pool: &Pool, actions: &StartActions) -> Vec<Offer> {
        let mut launches = Vec::new();
        let mut params_bytes = 0;
        for view in pool.held_by(&self.server) {
            let JobState::Starting(attempt) = &view.job.state else {
                continue;
            };
            let is_held = self
                .holds
                .contains(&attempt_ref(&view.job.id, view.job.attempt));
            if is_held || actions.is_pending(self.claim, &view) {
                continue;
            }
            params_bytes += view.params.map_or(0, <[u8]>::len);
            let is_full = launches.len() == OFFERS_MAX
                || (!launches.is_empty() && params_bytes > OFFERED_PARAMS_BYTES_MAX);
            if is_full {
                break;
            }
            launches.push(outward::offer(pool, &view, attempt));
        }
        launches
    }

    fn stop(&self, pool: &Pool) -> Vec<StopOrder> {
        let held = self.holds.iter().filter(|held| !self.ended.contains(held));
        let mut stop: Vec<StopOrder> = held
            .filter_map(|held| {
                let reason = self.stop_reason(pool, held)?;
                Some(StopOrder {
                    job: held.job.clone(),
                    attempt: held.attempt,
                    reason,
                })
            })
            .collect();
        stop.sort_unstable_by(|one, two| (&one.job, one.attempt).cmp(&(&two.job, two.attempt)));
        stop
    }

    fn stop_reason(&self, pool: &Pool, held: &AttemptRef) -> Option<StopReason> {
        let Some(view) = pool.job(&held.job) else {
            return Some(StopReason::Stale);
        };
        if view.job.attempt != held.attempt || view.server != Some(&*self.server) {
            return Some(StopReason::Stale);
        }
        match &view.job.state {
            JobState::Starting(_) => None,
            JobState::Active(attempt) => attempt.stop.map(outward::stop),
            JobState::Delayed { .. } | JobState::Queued | JobState::Ended(_) => {
                Some(StopReason::Stale)
            }
        }
    }
}

impl News {
    fn is_empty(&self) -> bool {
        self.launches.is_empty() && self.stop.is_empty() && !self.drain
    }

    /// What it says something about. A stop and an offer never concern the same attempt.
    fn subjects(&self) -> impl Iterator<Item = Subject> {
        let offered = self
            .launches
            .iter()
            .map(|offer| (&offer.job, offer.attempt));
        let stopped = self.stop.iter().map(|order| (&order.job, order.attempt));
        offered
            .chain(stopped)
            .map(|(job, attempt)| Subject::Attempt(attempt_ref(job, attempt)))
            .chain(self.drain.then_some(Subject::Worker))
    }
}

impl Polls {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            servers: Mutex::default(),
        }
    }

    /// When a poll ends that may be held until then.
    fn ends(&self, until: Instant, is_awaited: bool) -> Instant {
        let distance = Duration::from_millis(END_TOGETHER_MS.into());
        let held = until.saturating_duration_since(self.since);
        let beyond = held.as_nanos() % distance.as_nanos();
        match u64::try_from(beyond) {
            Ok(beyond) if !is_awaited => until - Duration::from_nanos(beyond),
            _ => until,
        }
    }

    /// A poll has come. True where it is the first of its incarnation under this claim.
    fn begin(&self, poll: &Poll, is_there: impl Fn(&str) -> bool) -> bool {
        let mut polls = self.lock();
        let is_known = polls.get(&poll.server).is_some_and(|memory| {
            memory.claim == poll.claim && memory.incarnation == poll.incarnation
        });
        if !is_known {
            let memory = Memory {
                claim: poll.claim,
                incarnation: poll.incarnation,
                missing: BTreeSet::new(),
                said: HashMap::new(),
            };
            polls.insert(poll.server.clone(), memory);
            // Of servers that were deleted, or of an earlier claim, nothing is kept.
            polls.retain(|server, memory| memory.claim == poll.claim && is_there(server));
        }
        !is_known
    }

    /// Those of the unnamed attempts that the poll before did not name either.
    fn missing_again(&self, poll: &Poll, unnamed: BTreeSet<AttemptRef>) -> BTreeSet<AttemptRef> {
        self.of(poll, |memory| {
            let again = unnamed.intersection(&memory.missing).cloned().collect();
            memory.missing = unnamed;
            again
        })
    }

    /// Whether some of it was not said just now.
    fn is_new(&self, poll: &Poll, news: &News, now: Instant) -> bool {
        self.of(poll, |memory| {
            news.subjects().any(|subject| {
                let said = memory.said.get(&subject);
                said.is_none_or(|said| now >= *said + Duration::from_millis(SAY_AGAIN_MS))
            })
        })
    }

    /// Remembers what is being said, and of what was said before only what still holds.
    fn said(&self, poll: &Poll, news: &News, now: Instant) {
        self.of(poll, |memory| {
            memory.said = news.subjects().map(|subject| (subject, now)).collect();
        });
    }

    /// Looks into the memory of the poll's server; an empty answer where another has begun since.
    fn of<R: Default>(&self, poll: &Poll, look: impl FnOnce(&mut Memory) -> R) -> R {
        match self.lock().get_mut(&poll.server) {
            Some(memory)
                if memory.claim == poll.claim && memory.incarnation == poll.incarnation =>
            {
                look(memory)
            }
            _ => R::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Memory>> {
        // A memory that a panic left half-changed only makes a poll come back earlier or later.
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn claim(leadership: &Leadership) -> Option<Claim> {
    match leadership {
        Leadership::Leader { claim } => Some(*claim),
        Leadership::Follower { .. } | Leadership::Unknown => None,
    }
}

fn named(ended: &Completion) -> AttemptRef {
    attempt_ref(&ended.job, ended.attempt)
}

fn attempt_ref(job: &str, attempt: u32) -> AttemptRef {
    AttemptRef {
        job: job.to_owned(),
        attempt,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
