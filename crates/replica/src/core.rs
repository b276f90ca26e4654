//! What all parts of a member share.
//!
//! One [`Core`] stands between the edge's calls ([`crate::Replica`]), the tasks of the leader
//! ([`crate::driver`]), the peers' connections and openraft. It holds no rule: it says who
//! belongs to the cluster, who leads and what time it is.

use crate::clock::{self, Clock, Clocks, Sight};
use crate::confirm::Confirmations;
use crate::driver::{HandOver, Queue};
use crate::leases::Leases;
use crate::peer::{Dialer, Forwards, Network};
use crate::raft::{StoredMembership, TypeConfig};
use crate::standing::{REPORT_AGE_US_MAX, Report};
use crate::state_machine::{Shared, StateMachine};
use crate::store::Recovery;
use crate::{ForwardedHandler, Leadership, Member, NodeId, Timing};
use fermata_calendar::Zone;
use fermata_pool::time::{Instant, Stamp};
use openraft::async_runtime::WatchReceiver;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Notify, mpsc, watch};

/// openraft over our log and our state machine.
pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// What another member's clock showed is taken into account for so long, in microseconds.
const OTHERS_CLOCK_AGE_US_MAX: i64 = 10_000_000;

/// What all parts of a member share.
pub(crate) struct Core {
    pub(crate) node: NodeId,
    pub(crate) cluster: u128,
    /// This member, as the others are to know it.
    pub(crate) own: Member,
    pub(crate) zone: Zone,
    pub(crate) timing: Timing,
    /// The newest format of the state that this member knows.
    pub(crate) format_max: u32,
    pub(crate) raft: Raft,
    pub(crate) state: Arc<Shared>,
    pub(crate) recovery: Recovery,
    /// Calls other members.
    pub(crate) dialer: Dialer,
    pub(crate) network: Network,
    pub(crate) forwards: Forwards,
    /// Who answers what others forward; set once.
    pub(crate) forwarded: OnceLock<ForwardedHandler>,
    pub(crate) time: Clocks,
    seen: Mutex<Seen>,
    /// What the others said of themselves, and when, in monotonic microseconds.
    reports: Mutex<BTreeMap<NodeId, (Report, i64)>>,
    /// Commands that wait to be proposed.
    pub(crate) queue: Queue,
    pub(crate) hand_over: mpsc::Sender<HandOver>,
    pub(crate) confirmations: Confirmations,
    pub(crate) leadership: watch::Sender<Leadership>,
    /// The leases of the claim in force; none while this member does not lead.
    leases: Mutex<Option<Leases>>,
    /// Rung when a lease came that may be the next to run out.
    pub(crate) leases_changed: Notify,
    pub(crate) stopping: AtomicBool,
    /// Rung when another member's state was found to differ from this one's.
    pub(crate) differs: Notify,
    /// When a leader was heard last, in monotonic microseconds.
    leader_heard_us: AtomicI64,
}

/// For how many leases a leader may be silent before it is no longer named.
const LEADER_SILENT_LEASES_MAX: u32 = 2;

/// This member's clock, and what the others' showed.
#[derive(Default)]
struct Seen {
    own: Clock,
    /// How far each is ahead of this member's monotonic time, and when it was asked.
    others: BTreeMap<NodeId, (i64, i64)>,
}

/// What [`Core`] is made of beside what begins empty.
pub(crate) struct Parts {
    pub(crate) cluster: u128,
    pub(crate) own: Member,
    pub(crate) zone: Zone,
    pub(crate) timing: Timing,
    pub(crate) format_max: u32,
    pub(crate) raft: Raft,
    pub(crate) state: Arc<Shared>,
    pub(crate) recovery: Recovery,
    pub(crate) dialer: Dialer,
    pub(crate) time: Clocks,
    pub(crate) network: Network,
    pub(crate) forwards: Forwards,
    pub(crate) queue: Queue,
    pub(crate) hand_over: mpsc::Sender<HandOver>,
    pub(crate) confirmations: Confirmations,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Core {
        Core {
            node: parts.own.node,
            cluster: parts.cluster,
            own: parts.own,
            zone: parts.zone,
            timing: parts.timing,
            format_max: parts.format_max,
            raft: parts.raft,
            state: parts.state,
            recovery: parts.recovery,
            dialer: parts.dialer,
            network: parts.network,
            forwards: parts.forwards,
            forwarded: OnceLock::new(),
            time: parts.time,
            seen: Mutex::default(),
            reports: Mutex::default(),
            queue: parts.queue,
            hand_over: parts.hand_over,
            confirmations: parts.confirmations,
            leadership: watch::Sender::new(Leadership::Unknown),
            leases: Mutex::new(None),
            leases_changed: Notify::new(),
            stopping: AtomicBool::new(false),
            differs: Notify::new(),
            leader_heard_us: AtomicI64::new(i64::MIN),
        }
    }

    /// The membership in force here, committed or not.
    pub(crate) fn members(&self) -> Arc<StoredMembership> {
        let metrics = self.raft.server_metrics();
        Arc::clone(&metrics.borrow_watched().membership_config)
    }

    /// How a member is reached.
    pub(crate) fn member(&self, node: NodeId) -> Option<Member> {
        self.members()
            .membership()
            .get_node(&node)
            .map(|at| Member::at(node, at))
    }

    /// Who leads, as far as is known here: this member too, once it was elected.
    pub(crate) fn leader(&self) -> Option<Member> {
        let metrics = self.raft.server_metrics();
        let leader = metrics.borrow_watched().current_leader;
        self.member(leader?)
    }

    /// A leader was heard: it sent what this member took.
    pub(crate) fn leader_heard(&self) {
        let now_us = self.time.monotonic_us();
        self.leader_heard_us.store(now_us, Ordering::Relaxed);
    }

    /// Who is to be asked instead of this member. Not one that has been silent for so long that
    /// the others would elect another: openraft goes on naming it while there is no majority.
    pub(crate) fn other_leader(&self) -> Option<Member> {
        let heard_us = self.leader_heard_us.load(Ordering::Relaxed);
        let silent_us = self.time.monotonic_us().saturating_sub(heard_us);
        let silent = clock::from_us(silent_us) > self.timing.lease() * LEADER_SILENT_LEASES_MAX;
        self.leader()
            .filter(|leader| leader.node != self.node && !silent)
    }

    /// The leases of the claim in force.
    pub(crate) fn leases(&self) -> MutexGuard<'_, Option<Leases>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the clock by which this member would stamp: microseconds of Unix time.
    pub(crate) fn clock_us(&self) -> i64 {
        self.with_clock(|clock, sight| clock.read(sight))
    }

    /// A new leader's clock goes on from the last stamp.
    pub(crate) fn resume_clock(&self) {
        self.with_clock(|clock, sight| clock.resume(sight));
    }

    fn with_clock<R>(&self, act: impl FnOnce(&mut Clock, &Sight<'_>) -> R) -> R {
        let voters: Vec<NodeId> = self.members().voter_ids().collect();
        let (last_stamp, step_s) = self
            .state
            .read(|pool| (pool.stamp().at, pool.settings().max_clock_step_s));
        let mut seen = self.seen();
        let monotonic_us = self.time.monotonic_us();
        seen.others.retain(|node, (_, asked_us)| {
            voters.contains(node) && monotonic_us - *asked_us <= OTHERS_CLOCK_AGE_US_MAX
        });
        let ahead = seen.others.values().map(|(ahead_us, _)| *ahead_us);
        let others_us: Vec<i64> = ahead.map(|us| us.saturating_add(monotonic_us)).collect();
        let sight = Sight {
            wall_us: self.time.wall_us(),
            monotonic_us,
            last_stamp_us: last_stamp.us(),
            step_us_max: i64::from(step_s) * 1_000_000,
            others_us: &others_us,
            voters: voters.len(),
        };
        act(&mut seen.own, &sight)
    }

    /// Notes that another member's wall clock showed `wall_us` at `monotonic_us` of this
    /// member's monotonic time.
    pub(crate) fn note_clock(&self, node: NodeId, wall_us: i64, monotonic_us: i64) {
        let ahead_us = wall_us.saturating_sub(monotonic_us);
        self.seen().others.insert(node, (ahead_us, monotonic_us));
    }

    /// Notes what another member said of itself at `monotonic_us` of this member's time.
    pub(crate) fn note_report(&self, node: NodeId, report: Report, monotonic_us: i64) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        // Members that are gone are not kept.
        reports.retain(|_, (_, at_us)| monotonic_us - *at_us <= REPORT_AGE_US_MAX);
        reports.insert(node, (report, monotonic_us));
    }

    /// What another member said of itself, if that is not too long ago.
    pub(crate) fn report(&self, node: NodeId) -> Option<Report> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let (report, at_us) = reports.get(&node)?;
        (self.time.monotonic_us() - at_us <= REPORT_AGE_US_MAX).then(|| report.clone())
    }

    /// Whether a member has said how it stands within the last so many microseconds.
    pub(crate) fn has_report(&self, node: NodeId, age_us_max: i64) -> bool {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let said = reports.get(&node);
        said.is_some_and(|(_, at_us)| self.time.monotonic_us() - at_us <= age_us_max)
    }

    /// The leader's stamp for an entry that is made now.
    pub(crate) fn stamp(&self) -> Stamp {
        clock::stamp(&self.zone, self.clock_us())
    }

    /// The instant that it is now, to whoever looks at this member: the leader's own clock, else
    /// the wall clock, and never less than what was applied.
    pub(crate) fn now(&self) -> Instant {
        if matches!(*self.leadership.borrow(), Leadership::Leader { .. }) {
            return Instant::from_us(self.clock_us());
        }
        let wall = Instant::from_us(self.time.wall_us());
        self.state.read(|pool| pool.stamp().at).max(wall)
    }
}
