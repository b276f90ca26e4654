//! Why a job waits, and what would become of one that is not launched yet.
//!
//! Every gate is looked at, open or shut, in the order of S12, with what holds it: the jobs in the
//! slots, the window with its count, the servers and the room that they lack. The earliest instant
//! at which the job could start is exact where only time is in the way; where something else has
//! to happen first there is none.
//!
//! Caveat: lists of holders and servers are cut at [`SHOWN_MAX`], so that the answer costs the same
//! however many there are.

use crate::command::{Executor, Launch};
use crate::consideration::Verdict;
use crate::fleet::Wanted;
use crate::job::{JobNumber, ScopeNumber, State};
use crate::limits::Mode;
use crate::members::Interned;
use crate::outcome::{Refusal, Standing};
use crate::query::WindowView;
use crate::queue::{job_of, order, order_of};
use crate::scope::Gate;
use crate::state::Pool;
use crate::time::Instant;
use crate::window::Opening;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Most holders or servers that a gate names.
pub const SHOWN_MAX: usize = 16;

/// Why a job stands as it does.
#[derive(Clone, Debug)]
pub struct Why<'a> {
    /// How it stands, or would.
    pub standing: Standing,
    /// The name of its pool; none before its limits are fixed (S8).
    pub pool: Option<String>,
    /// Its place in the queue, from 1, while it waits there.
    pub position: Option<u64>,
    /// The head of the queue, where that is another job.
    pub behind: Option<&'a str>,
    /// The gate that it is registered under, where it is the head (S20).
    pub waits_for: Option<Gate>,
    /// Its gates in their order (S12); none once it has ended.
    pub gates: Vec<GateView<'a>>,
    /// The earliest instant at which it could start: exact where only time is in the way. None:
    /// something else has to happen first, or nothing is known.
    pub earliest: Option<Instant>,
}

/// One gate as a job sees it.
#[derive(Clone, Debug)]
pub struct GateView<'a> {
    /// True where it would let the job through now.
    pub is_open: bool,
    /// When it opens if nothing else happens; none: not by time alone.
    pub opens_at: Option<Instant>,
    /// What it is, and what holds it.
    pub what: What<'a>,
}

/// What a gate is.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// The pool's concurrency.
    Slot {
        /// Jobs in `starting` and `active`.
        running: u32,
        /// The concurrency in force; none: no limit.
        amount: Option<u32>,
        /// Some of the jobs that hold the slots, oldest first.
        holders: Vec<&'a str>,
        /// Until when an override holds the pool, if one does that ends.
        held_until: Option<Instant>,
    },
    /// The pool's rate, or a bucket.
    Rate {
        /// The pool's or bucket's name.
        name: String,
        /// What becomes of a job that finds it shut; none: the queue limit decides.
        mode: Option<Mode>,
        /// The open window, if any.
        window: Option<Box<WindowView<'a>>>,
        /// Most starts per window: the window's, or what the job would open it with.
        max: u32,
    },
    /// A server with room.
    Server {
        /// Units of weight that the job needs.
        weight: u32,
        /// Some of the servers that its targets name.
        servers: Vec<ServerRoom<'a>>,
    },
}

/// A server that could execute a job, and the room that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerRoom<'a> {
    /// Its id.
    pub id: &'a str,
    /// False while its worker is not heard.
    pub online: bool,
    /// False where it was disabled.
    pub enabled: bool,
    /// Units of weight that it has room for; 0 while it is offline or disabled.
    pub room: u32,
    /// Units that are missing for this job.
    pub missing: u32,
}

impl Pool {
    /// Why a job stands as it does at `at` (or at the pool's own latest instant, if that is later).
    #[must_use]
    pub fn why(&self, id: &str, at: Instant) -> Option<Why<'_>> {
        let at = at.max(self.now());
        let number = self.number_of_job(id)?;
        let job = self.jobs.get(&number)?;
        let interned = self.interned(job);
        let mut why = Why {
            standing: self.standing_of(job),
            pool: job
                .unresolved
                .is_none()
                .then(|| Pool::pool_name_of(job, &interned).into_owned()),
            position: None,
            behind: None,
            waits_for: None,
            gates: Vec::new(),
            earliest: None,
        };
        let due = match &job.state {
            State::Delayed { due } => Some(*due),
            State::Queued => None,
            State::Starting(_) | State::Active(_) | State::Ended(_) => return Some(why),
        };
        let Some(pool) = job.pool else {
            why.earliest = due;
            return Some(why);
        };
        why.gates = self.gate_views(pool, why.pool.as_deref().unwrap_or(""), &interned, at);
        self.note_place(&mut why, pool, order_of(number, job), due.is_none());
        why.earliest = self.earliest(&why, due, at);
        Some(why)
    }

    /// What would become of a launch at `at`; nothing is taken and nothing changes. A launch that
    /// was made already is answered as [`Pool::why`] answers for its job (S40).
    ///
    /// # Errors
    /// What the launch would be refused with.
    pub fn would(&self, launch: &Launch, at: Instant) -> Result<Why<'_>, Refusal> {
        let at = at.max(self.now());
        if let Some(known) = self.job(&launch.id) {
            return match self.why(&known.job.id, at) {
                Some(why) if known.job.fingerprint == launch.fingerprint() => Ok(why),
                _ => Err(Refusal::IdConflict),
            };
        }
        let number = JobNumber(self.header.last.job + 1);
        let prospect = self.prospect(launch)?;
        let interned = &prospect.interned;
        let name = prospect.pool_name.clone();
        let scope = self.index.scope_names.get(&*name).copied();
        // No scope has number 0: a pool that is not there yet is empty.
        let pool = scope.unwrap_or_default();
        let place = order(prospect.priority, number);
        let due = launch
            .delay_s
            .filter(|delay_s| *delay_s > 0)
            .map(|delay_s| at.plus_s(delay_s));
        let verdict = self.verdict(pool, interned, place, false, 0, at);
        let server = |number| {
            let server = self.servers.get(&number)?;
            Some(server.definition.id.clone())
        };
        let standing = match verdict {
            _ if due.is_some() => Standing::Delayed,
            Verdict::Start(number) => Standing::Starting {
                attempt: 1,
                server: number.and_then(server),
            },
            Verdict::Queue(_) => Standing::Queued,
            Verdict::Abort(reason) => Standing::Aborted { reason },
        };
        let mut why = Why {
            gates: self.gate_views(pool, &name, interned, at),
            pool: Some(name),
            position: None,
            behind: None,
            waits_for: None,
            earliest: None,
            standing,
        };
        let waits = why.standing == Standing::Queued;
        self.note_place(&mut why, pool, place, waits);
        if let Verdict::Queue(shut) = verdict
            && waits
            && why.behind.is_none()
        {
            why.waits_for = shut.map(|shut| shut.gate);
        }
        why.earliest = self.earliest(&why, due, at);
        Ok(why)
    }

    /// Where a job stands in its queue, and who is before it.
    fn note_place<'a>(&'a self, why: &mut Why<'a>, pool: ScopeNumber, place: u64, waits: bool) {
        let Some(known) = self.index.scopes.get(&pool) else {
            why.position = waits.then_some(1);
            return;
        };
        if waits {
            why.position = Some(known.queue.rank(place) as u64 + 1);
        }
        let first = known.queue.first().filter(|first| *first < place);
        why.behind = first
            .and_then(|it| self.jobs.get(&job_of(it)))
            .map(|job| &*job.id);
        let head = self.scopes.get(&pool).and_then(|scope| scope.head);
        why.waits_for = head
            .filter(|head| head.job == job_of(place))
            .map(|head| self.gate_of(head));
    }

    /// The latest opening of the gates that are shut, if all of them open by time alone and nobody
    /// is ahead.
    fn earliest(&self, why: &Why<'_>, due: Option<Instant>, at: Instant) -> Option<Instant> {
        if why.behind.is_some() && due.is_none() {
            return None;
        }
        let shut = why.gates.iter().filter(|gate| !gate.is_open);
        shut.map(|gate| gate.opens_at)
            .try_fold(due.unwrap_or(at), |latest, opens_at| {
                Some(latest.max(opens_at?))
            })
    }

    fn gate_views(
        &self,
        pool: ScopeNumber,
        name: &str,
        interned: &Interned,
        at: Instant,
    ) -> Vec<GateView<'_>> {
        let rules = &interned.rules;
        let mut gates = Vec::from([self.slot_view(pool, rules.amount)]);
        if let Some(settings) = rules.rate {
            gates.push(self.rate_view(name, rules.mode, settings.rate, at));
        }
        for bucket in &rules.buckets {
            gates.push(self.rate_view(&bucket.name, Some(bucket.mode), bucket.settings.rate, at));
        }
        if interned.terms.executor == Executor::Server {
            gates.push(self.server_view(interned));
        }
        gates
    }

    fn slot_view(&self, pool: ScopeNumber, own_amount: u32) -> GateView<'_> {
        let scope = self.scopes.get(&pool);
        let running = scope.map_or(0, |scope| scope.running);
        let own = Some(own_amount).filter(|amount| *amount > 0);
        let amount = scope.map_or(own, |scope| scope.amount_in_force(own_amount));
        let running_now = self
            .index
            .scopes
            .get(&pool)
            .map(|known| known.running.iter());
        let holders = running_now.into_iter().flatten().take(SHOWN_MAX);
        let holders = holders.filter_map(|number| self.jobs.get(&JobNumber(number)));
        let sizes = scope.and_then(|scope| scope.sizes.as_ref());
        let held_until = sizes
            .filter(|sizes| sizes.amount.is_some())
            .and_then(|it| it.expires_at);
        let is_open = amount.is_none_or(|amount| running < amount);
        // Only the end of an override opens a slot by time alone, if the job's own limit is met.
        let opens_at = held_until.filter(|_| own.is_none_or(|own| running < own));
        GateView {
            is_open,
            opens_at: opens_at.filter(|_| !is_open),
            what: What::Slot {
                running,
                amount,
                holders: holders.map(|job| &*job.id).collect(),
                held_until,
            },
        }
    }

    fn rate_view(
        &self,
        name: &str,
        mode: Option<Mode>,
        own_rate: u32,
        at: Instant,
    ) -> GateView<'_> {
        let number = self.index.scope_names.get(name).copied();
        let opening = number.map_or(Opening::Open, |number| self.rate_opening(number, at));
        let window = self.window(name, at);
        let sizes = self.override_of(name);
        let max = match &window {
            Some(window) => window.max,
            None => sizes.and_then(|sizes| sizes.count).unwrap_or(own_rate),
        };
        let ends_at = sizes.and_then(|sizes| sizes.expires_at);
        GateView {
            is_open: opening == Opening::Open,
            opens_at: match opening {
                Opening::Open => None,
                Opening::At(opens_at) => Some(opens_at),
                // Closed by an override: nobody knows how far the window is then.
                Opening::Never => ends_at.filter(|_| window.is_none()),
            },
            what: What::Rate {
                name: name.into(),
                mode,
                window: window.map(Box::new),
                max,
            },
        }
    }

    fn server_view(&self, interned: &Interned) -> GateView<'_> {
        let weight = interned.rules.weight;
        let wanted = Wanted {
            targets: &interned.terms.targets,
            weight,
            algo: interned.terms.algo,
            last_pick: None,
            place: 0,
        };
        let targeted = self
            .index
            .fleet
            .targeted(&interned.terms.targets)
            .take(SHOWN_MAX);
        let servers = targeted
            .filter_map(|number| self.servers.get(&number))
            .map(|server| {
                let room = server.room();
                ServerRoom {
                    id: &server.definition.id,
                    online: server.online,
                    enabled: server.definition.enabled,
                    room,
                    missing: weight.saturating_sub(room),
                }
            });
        GateView {
            is_open: self.index.fleet.pick(&wanted).is_some(),
            opens_at: None,
            what: What::Server {
                weight,
                servers: servers.collect(),
            },
        }
    }
}
