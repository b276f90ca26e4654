//! Why a job waits, and what would become of one that is not launched yet.
//!
//! Every gate is looked at, open or shut, in the order of S12, with what holds it: the jobs in the
//! slots, the window with its count, the servers and the room that they lack, and who comes before
//! it. The first shut one is what holds the job; the one that it is registered under may be
//! another (S20), where a gate before that has shut since.
//!
//! The earliest instant is what time alone will bring (see `outlook`): it is exact where nobody
//! comes before the job or may take what it needs, a lower bound where somebody does, and absent
//! where something else has to happen first. Where time alone brings the end of the job instead,
//! that is said; and nothing is, where others decide between a start and the end.
//!
//! Caveats: lists are cut at [`SHOWN_MAX`], so that the answer costs the same however many jobs,
//! pools and servers there are. Those who wait for the same servers are not named, and a job behind
//! others is told the same whatever its place: when it could be considered first. All of it holds
//! if nothing else happens; a launch, an end, a job that falls due or is put back, a reset or an
//! override can bring it forward or put it off.

use crate::admission::Shut;
use crate::command::{Executor, Launch};
use crate::consideration::Verdict;
use crate::ends::retry_of;
use crate::job::{JobNumber, ScopeNumber, State};
use crate::limits::Mode;
use crate::members::Interned;
use crate::outcome::{Reason, Refusal, Standing};
use crate::outlook::{Fate, Outlook};
use crate::query::WindowView;
use crate::queue::{job_of, order, order_of};
use crate::scope::Gate;
use crate::state::Pool;
use crate::terms::Bucket;
use crate::time::{Calendar, Instant};
use crate::wanted::Wants;
use crate::window::overrides_rate;
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
    /// The earliest instant at which it could start. None: something else has to happen first, or
    /// it will be aborted.
    pub earliest: Option<Instant>,
    /// True where only time is in the way: it starts then. Else `earliest` is a lower bound:
    /// somebody comes before it in its queue; others may take first from one of its buckets, or
    /// the room on its servers; it is delayed and others wait in its pool, who may be gone by then;
    /// or its limits are not fixed yet (S8).
    pub is_exact: bool,
    /// When it will be aborted and with which reason, where time alone brings that.
    pub aborts: Option<(Instant, Reason)>,
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
        /// Until when the override of the amount is in force, if there is one that goes by itself.
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
        /// Until when the override of the rate is in force, if there is one that goes by itself.
        held_until: Option<Instant>,
        /// Of a bucket: heads of other pools in which somebody waits who names it and comes before
        /// the job or may take from it first, whatever gate they wait for (S20). The first of them
        /// first.
        ahead: Vec<&'a str>,
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

/// A job that is followed, launched or not, and from when on.
struct Followed<'a> {
    pool: ScopeNumber,
    name: &'a str,
    interned: &'a Interned,
    order: u64,
    put_back: bool,
    /// The gate that it waits for, as the head of its queue.
    gate: Gate,
    /// When it falls due, if it is delayed.
    due: Option<Instant>,
    at: Instant,
    calendar: Calendar<'a>,
}

impl Followed<'_> {
    fn wants(&self) -> Wants<'_> {
        Wants {
            pool: self.pool,
            interned: self.interned,
            order: self.order,
            due: self.due,
        }
    }

    /// After how many seconds it is tried again where it ends like this for the first time (S49).
    fn tried_again_after(&self, reason: Reason) -> Option<u64> {
        let retry = self.interned.rules.retry?;
        let (_, delay_s) = retry_of(0, retry, Err(reason))?;
        Some(delay_s)
    }
}

impl Why<'_> {
    fn new(standing: Standing, pool: Option<String>) -> Self {
        Why {
            standing,
            pool,
            position: None,
            behind: None,
            waits_for: None,
            gates: Vec::new(),
            earliest: None,
            is_exact: false,
            aborts: None,
        }
    }
}

impl Pool {
    /// Why a job stands as it does at `at` (or at the pool's own latest instant, if that is later).
    #[must_use]
    pub fn why(&self, id: &str, at: Instant, calendar: Calendar<'_>) -> Option<Why<'_>> {
        let at = at.max(self.now());
        let number = self.number_of_job(id)?;
        let job = self.jobs.get(&number)?;
        let interned = self.interned(job);
        let name = Pool::pool_name_of(job, &interned);
        let is_fixed = job.unresolved.is_none();
        let mut why = Why::new(
            self.standing_of(job),
            is_fixed.then(|| name.clone().into_owned()),
        );
        let due = match &job.state {
            State::Delayed { due } => Some(*due),
            State::Queued => None,
            State::Starting(_) | State::Active(_) | State::Ended(_) => return Some(why),
        };
        let Some(pool) = job.pool else {
            why.earliest = due;
            return Some(why);
        };
        let order = order_of(number, job);
        self.note_place(&mut why, pool, order, due.is_none());
        let followed = Followed {
            pool,
            name: &name,
            interned: &interned,
            order,
            put_back: job.put_back,
            gate: why.waits_for.unwrap_or(Gate::Due),
            due,
            at,
            calendar,
        };
        self.foretell(&mut why, &followed);
        Some(why)
    }

    /// What would become of a launch at `at`; nothing is taken and nothing changes. A launch that
    /// was made already is answered as [`Pool::why`] answers for its job (S40).
    ///
    /// # Errors
    /// What the launch would be refused with.
    pub fn would(
        &self,
        launch: &Launch,
        at: Instant,
        calendar: Calendar<'_>,
    ) -> Result<Why<'_>, Refusal> {
        let at = at.max(self.now());
        if let Some(known) = self.job(&launch.id) {
            return match self.why(&known.job.id, at, calendar) {
                Some(why) if known.job.fingerprint == launch.fingerprint() => Ok(why),
                _ => Err(Refusal::IdConflict),
            };
        }
        let number = JobNumber(self.header.last.job + 1);
        let prospect = self.prospect(launch)?;
        let interned = &prospect.interned;
        let name = &*prospect.pool_name;
        let scope = self.index.scope_names.get(name).copied();
        let delay_s = launch.delay_s.filter(|delay_s| *delay_s > 0);
        let mut followed = Followed {
            // No scope has number 0: a pool that is not there yet is empty.
            pool: scope.unwrap_or_default(),
            name,
            interned,
            order: order(prospect.priority, number),
            put_back: false,
            gate: Gate::Due,
            due: delay_s.map(|delay_s| at.plus_s(delay_s)),
            at,
            calendar,
        };
        if prospect.is_late {
            let mut why = Why::new(Standing::Delayed, None);
            why.earliest = followed.due;
            return Ok(why);
        }
        if followed.due.is_none() {
            followed.at = self.judged_at(&followed);
        }
        let standing = match followed.due {
            Some(_) => Standing::Delayed,
            None => self.considered_now(&mut followed),
        };
        let waits = standing == Standing::Queued;
        let mut why = Why::new(standing, Some(name.into()));
        self.note_place(&mut why, followed.pool, followed.order, waits);
        if waits && why.behind.is_none() {
            why.waits_for = Some(followed.gate);
        }
        self.foretell(&mut why, &followed);
        Ok(why)
    }

    /// As of when a launch is judged. Where a tick is owed and others wait who would move with it,
    /// what the launch would find is what they leave. That is not known without applying the tick,
    /// so it is judged as if it had come before, at the latest stamp.
    fn judged_at(&self, it: &Followed<'_>) -> Instant {
        let is_owed = self.next_deadline().is_some_and(|next| next <= it.at);
        let queue = self.index.scopes.get(&it.pool).map(|known| &known.queue);
        let others_wait = queue.is_some_and(|queue| !queue.is_empty())
            || self.is_wanted_by_others(it.pool, it.interned);
        if is_owed && others_wait {
            self.now()
        } else {
            it.at
        }
    }

    /// The first gate that will be shut to the head of a job's queue.
    fn shut_to_head(&self, it: &Followed<'_>, head: &Interned, at: Instant) -> Option<Shut> {
        let outlook = self.outlook(it.pool, head, 0, it.at, it.calendar);
        outlook.first_shut(at)
    }

    /// How a job that is launched now stands once it was considered.
    fn considered_now(&self, it: &mut Followed<'_>) -> Standing {
        let outlook = self.outlook(it.pool, it.interned, 0, it.at, it.calendar);
        let found = match outlook.first_shut(it.at) {
            Some(shut) => Err(shut),
            None if it.interned.terms.executor == Executor::Caller => Ok(None),
            None => Ok(self.pick(it.interned, 0)),
        };
        let shut_to = |head: &Interned| self.shut_to_head(it, head, it.at);
        match self.judge(it.pool, it.interned, it.order, false, found, shut_to) {
            Verdict::Start(server) => Standing::Starting {
                attempt: 1,
                server: server.and_then(|server| {
                    let server = self.servers.get(&server)?;
                    Some(server.definition.id.clone())
                }),
            },
            Verdict::Queue(shut) => {
                it.gate = shut.map_or(Gate::Due, |shut| shut.gate);
                Standing::Queued
            }
            Verdict::Abort(reason) => match it.tried_again_after(reason) {
                Some(delay_s) => {
                    (it.put_back, it.due) = (true, Some(it.at.plus_s(delay_s)));
                    Standing::Delayed
                }
                None => Standing::Aborted { reason },
            },
        }
    }

    /// When a launch like that of an aborted job would not be aborted, from `at` on, if nothing
    /// else happens. None: that is not known, because something else has to happen first, or
    /// because others wait who would take what comes.
    #[must_use]
    pub fn admits_at(&self, id: &str, at: Instant, calendar: Calendar<'_>) -> Option<Instant> {
        let at = at.max(self.now());
        let job = self.jobs.get(&self.number_of_job(id)?)?;
        let interned = self.interned(job);
        let name = Pool::pool_name_of(job, &interned);
        // A pool of its own will be another one.
        let shared = Some(&*name).filter(|name| !name.starts_with("job:"));
        let pool = shared.and_then(|name| self.index.scope_names.get(name));
        let pool = pool.copied().unwrap_or_default();
        let queue = self.index.scopes.get(&pool).map(|known| &known.queue);
        if queue.is_some_and(|queue| queue.first().is_some()) {
            return None;
        }
        if self.is_wanted_by_others(pool, &interned) {
            return None;
        }
        let outlook = self.outlook(pool, &interned, 0, at, calendar);
        outlook.admits_from(at, interned.rules.queue.is_some())
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

    /// Notes what the gates of a job say, and what time alone will bring it.
    fn foretell<'a>(&'a self, why: &mut Why<'a>, it: &Followed<'_>) {
        let outlook = self.outlook(it.pool, it.interned, 0, it.at, it.calendar);
        why.gates = self.gate_views(it, &outlook);
        match why.standing {
            Standing::Starting { .. } => {
                (why.earliest, why.is_exact) = (Some(it.at), true);
                return;
            }
            Standing::Delayed | Standing::Queued => {}
            Standing::Active { .. } | Standing::Complete { .. } | Standing::Aborted { .. } => {
                return;
            }
        }
        let fate = match it.due {
            Some(due) => self.fate_when_due(&outlook, it, due.max(it.at)),
            None if why.behind.is_some() => None,
            None => Some(outlook.fate(it.at, it.gate, it.put_back)),
        };
        let Some(fate) = fate else {
            why.earliest = self.earliest_behind_head(it);
            return;
        };
        // Those who wait when it falls due may go first, and let it in or keep it out.
        let is_settled = it.due.is_none_or(|due| self.queue_stays(it, due));
        let is_certain = |at| is_settled && !self.is_contested(it.wants(), &outlook, it.at, at);
        match fate {
            Fate::Starts(at) => {
                why.earliest = Some(at);
                why.is_exact = is_certain(at) && !self.servers_are_contested(it.pool, it.interned);
            }
            Fate::Aborted(at, reason) => {
                why.aborts = is_certain(at).then_some((at, reason));
            }
            Fate::Waits => {}
        }
    }

    /// What becomes of a job that falls due at an instant (S16), if those who wait in its pool
    /// still do. None: it waits behind them.
    fn fate_when_due(&self, outlook: &Outlook, it: &Followed<'_>, due: Instant) -> Option<Fate> {
        if outlook.event_is_missing() {
            return Some(Fate::Aborted(due, Reason::EventMissing));
        }
        let found = outlook.first_shut(due).map_or(Ok(None), Err);
        let mut is_told = true;
        let shut_to = |head: &Interned| {
            // Others may shut another gate by then, to the head or to this job.
            let mut both = [head, it.interned].into_iter();
            is_told = !both.any(|wants| self.is_wanted_by_others(it.pool, wants));
            self.shut_to_head(it, head, due)
        };
        match self.judge(it.pool, it.interned, it.order, it.put_back, found, shut_to) {
            Verdict::Start(_) => Some(Fate::Starts(due)),
            Verdict::Queue(shut) => {
                let queue = self.index.scopes.get(&it.pool).map(|known| &known.queue);
                let first = queue.and_then(|queue| queue.first());
                let gate = shut.map_or(Gate::Due, |shut| shut.gate);
                let is_first = first.is_none_or(|first| first > it.order);
                is_first.then(|| outlook.fate(due, gate, it.put_back))
            }
            Verdict::Abort(reason) => match it.tried_again_after(reason) {
                // It is delayed again, and no server comes by time alone.
                Some(_) => Some(Fate::Waits),
                None if !is_told => Some(Fate::Waits),
                None => Some(Fate::Aborted(due, reason)),
            },
        }
    }

    /// True where nobody leaves the queue of a job's pool up to an instant.
    fn queue_stays(&self, it: &Followed<'_>, until: Instant) -> bool {
        self.head_leaves(it).is_none_or(|(at, _)| at > until)
    }

    /// When the head of a job's pool leaves its queue by itself, at the earliest, and how many
    /// start then. None: it does not, or there is none.
    fn head_leaves(&self, it: &Followed<'_>) -> Option<(Instant, u32)> {
        let head = self.scopes.get(&it.pool)?.head?;
        let job = self.jobs.get(&head.job)?;
        let interned = self.interned(job);
        let outlook = self.outlook(it.pool, &interned, 0, it.at, it.calendar);
        let gate = self.gate_of(head);
        let is_skipped = !job.put_back && interned.rules.skips();
        if (is_skipped || outlook.event_is_missing()) && self.others_fall_due(it) {
            // One of them may go before it or take from it, so that it is aborted at any time.
            return Some((it.at, 0));
        }
        if !job.put_back && self.may_be_skipped(it.pool, &interned) {
            // Whenever it is considered, others may have taken what it is aborted without.
            return outlook.opens(gate).next(it.at).map(|at| (at, 0));
        }
        match outlook.fate(it.at, gate, job.put_back) {
            Fate::Starts(at) => Some((at, 1)),
            Fate::Aborted(at, _) => Some((at, 0)),
            Fate::Waits => None,
        }
    }

    /// True where another job than this falls due some time.
    fn others_fall_due(&self, it: &Followed<'_>) -> bool {
        let own = job_of(it.order);
        let mut first = self.index.delayed.iter().take(2);
        first.any(|(_, number)| *number != own)
    }

    /// When a job could be considered and start at the earliest that waits behind the head of its
    /// pool: that has to leave before, and takes a slot if it starts.
    fn earliest_behind_head(&self, it: &Followed<'_>) -> Option<Instant> {
        let (leaves_at, starts) = self.head_leaves(it)?;
        let outlook = self.outlook(it.pool, it.interned, starts, it.at, it.calendar);
        outlook.all_open(it.due.map_or(leaves_at, |due| due.max(leaves_at)))
    }

    fn gate_views(&self, it: &Followed<'_>, outlook: &Outlook) -> Vec<GateView<'_>> {
        let rules = &it.interned.rules;
        let over_time = |gate, what| {
            let opens_at = outlook.opens(gate).next(it.at);
            GateView {
                is_open: opens_at == Some(it.at),
                opens_at: opens_at.filter(|opens_at| *opens_at > it.at),
                what,
            }
        };
        let slot = self.slot_of(it.pool, rules.amount);
        let mut gates = Vec::from([over_time(Gate::Slot, slot)]);
        if let Some(settings) = rules.rate {
            let rate = self.rate_of(it.name, rules.mode, settings.rate, it.at);
            gates.push(over_time(Gate::Rate(it.pool), rate));
        }
        for bucket in &rules.buckets {
            // No scope has number 0: nobody was there yet.
            let number = self.index.scope_names.get(&*bucket.name).copied();
            let number = number.unwrap_or_default();
            gates.push(over_time(
                Gate::Rate(number),
                self.bucket_of(bucket, outlook, it),
            ));
        }
        if it.interned.terms.executor == Executor::Server {
            gates.push(over_time(Gate::Server, self.servers_of(it.interned)));
        }
        gates
    }

    fn slot_of(&self, pool: ScopeNumber, own_amount: u32) -> What<'_> {
        let scope = self.scopes.get(&pool);
        let own = Some(own_amount).filter(|amount| *amount > 0);
        let known = self.index.scopes.get(&pool);
        let running = known.map(|known| known.running.iter());
        let holders = running.into_iter().flatten().take(SHOWN_MAX);
        let holders = holders.filter_map(|number| self.jobs.get(&JobNumber(number)));
        let sizes = scope.and_then(|scope| scope.sizes.as_ref());
        What::Slot {
            running: scope.map_or(0, |scope| scope.running),
            amount: scope.map_or(own, |scope| scope.amount_in_force(own_amount)),
            holders: holders.map(|job| &*job.id).collect(),
            held_until: sizes
                .filter(|sizes| sizes.amount.is_some())
                .and_then(|sizes| sizes.expires_at),
        }
    }

    fn rate_of(&self, name: &str, mode: Option<Mode>, own_rate: u32, at: Instant) -> What<'_> {
        let window = self.window(name, at);
        let sizes = self.override_of(name);
        let max = match &window {
            Some(window) => window.max,
            None => sizes.and_then(|sizes| sizes.count).unwrap_or(own_rate),
        };
        What::Rate {
            name: name.into(),
            mode,
            window: window.map(Box::new),
            max,
            held_until: sizes
                .filter(|sizes| overrides_rate(Some(sizes)))
                .and_then(|sizes| sizes.expires_at),
            ahead: Vec::new(),
        }
    }

    fn bucket_of(&self, bucket: &Bucket, outlook: &Outlook, it: &Followed<'_>) -> What<'_> {
        let mut what = self.rate_of(&bucket.name, Some(bucket.mode), bucket.settings.rate, it.at);
        if let What::Rate { ahead, .. } = &mut what {
            *ahead = self.ahead_at(it.wants(), &bucket.name, outlook, it.at);
        }
        what
    }

    fn servers_of(&self, interned: &Interned) -> What<'_> {
        let weight = interned.rules.weight;
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
        What::Server {
            weight,
            servers: servers.collect(),
        }
    }
}
