//! Who was heard when: leases, in the leader's memory (S41, S42, S46).
//!
//! Renewals are far more frequent than anything that follows from them, so they do not go
//! through the log. The log holds what must survive a leader: that a worker or caller was heard
//! for the first time under this claim, that a new incarnation came, and that somebody was silent
//! for too long. Between those, [`Leases`] remembers the moment of the last renewal, in the
//! leader's monotonic time.
//!
//! The table is data: it is told what was heard and what time it is, and says which leases ran
//! out ([`Leases::due`]). Whoever keeps it proposes the commands and tells it how they went. What
//! makes a renewal count, a majority that confirmed the leader after it arrived, is decided
//! before it comes here.
//!
//! Invariant: a renewal that was answered is never followed by the end of the lease that it
//! renewed before that lease has run out. It holds because a lease that was given to be ended
//! ([`Leases::due`]) is no longer seen: its next renewal is committed behind that end.
//!
//! A new leader takes the table from the pool, whose takeover gave a full lease anew to those
//! seen since the takeover before; for the others the deadline counts from where it did.
//!
//! Caveat: rows of callers whose jobs have ended are found out only when they run out, so the
//! table holds them for as long as a lease.

use fermata_pool::command::Holder;
use fermata_pool::query::LeaseView;
use fermata_pool::server::Server;
use fermata_pool::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Most leases that are given out in one go when they run out.
pub(crate) const DUE_MAX: usize = 1_000;

/// How long servers may be silent, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Until a server is offline.
    pub server_us: i64,
    /// How long after that its jobs are lost.
    pub job_us: i64,
}

/// What a renewal takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// It was noted; that is all.
    Noted,
    /// It must be committed first.
    Commit,
}

/// A lease that ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A server was silent until it is offline.
    Offline(Holder),
    /// A server was silent until its jobs are lost.
    Lost(Holder),
    /// A job's caller was silent.
    Expired(Box<str>),
}

/// How the end of a lease went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is committed.
    Committed,
    /// The pool refused it: there is nothing to end.
    Refused,
    /// It was not proposed, or nobody knows: it is given out again.
    NotMade,
}

/// Where a server's lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Online,
    Offline,
    /// Its end was given out and is on its way.
    Ending,
}

#[derive(Debug)]
struct ServerRow {
    incarnation: Box<str>,
    heard_us: i64,
    /// Whether a renewal was committed under this claim, and no end was given out since.
    seen: bool,
    phase: Phase,
}

#[derive(Debug)]
struct CallerRow {
    deadline_us: i64,
    lease_us: i64,
    seen: bool,
    ending: bool,
}

/// The leases of one claim.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    servers: BTreeMap<Box<str>, ServerRow>,
    /// By when they were heard: the first is the first to be offline.
    online: BTreeSet<(i64, Box<str>)>,
    /// By when they were heard: the first is the first to be lost.
    offline: BTreeSet<(i64, Box<str>)>,
    callers: BTreeMap<Box<str>, CallerRow>,
    /// By when they run out.
    expiring: BTreeSet<(i64, Box<str>)>,
}

impl Leases {
    /// Takes a server from the pool, as it stands right after the takeover at `at`, which is
    /// `now_us` in monotonic time.
    pub(crate) fn take_server(&mut self, server: &Server, at: Instant, now_us: i64) {
        let Some(incarnation) = server.incarnation.clone() else {
            return;
        };
        let phase = match (server.online, server.jobs) {
            (true, _) => Phase::Online,
            (false, 0) => return,
            (false, _) => Phase::Offline,
        };
        let row = ServerRow {
            incarnation,
            heard_us: now_us.saturating_sub(at.since_us(server.heard_at)),
            seen: false,
            phase,
        };
        self.put_server(Box::from(&*server.definition.id), row);
    }

    /// Takes a caller's lease from the pool, as [`Leases::take_server`].
    pub(crate) fn take_caller(&mut self, lease: &LeaseView<'_>, at: Instant, now_us: i64) {
        let heard_us = now_us.saturating_sub(at.since_us(lease.heard_at));
        self.put_caller(lease.job, lease.lease_s, heard_us, lease.seen);
    }

    fn put_server(&mut self, id: Box<str>, row: ServerRow) {
        self.forget_server(&id);
        match row.phase {
            Phase::Online => self.online.insert((row.heard_us, id.clone())),
            Phase::Offline => self.offline.insert((row.heard_us, id.clone())),
            Phase::Ending => false,
        };
        self.servers.insert(id, row);
    }

    fn forget_server(&mut self, id: &str) {
        if let Some(row) = self.servers.remove(id) {
            let place = (row.heard_us, Box::from(id));
            self.online.remove(&place);
            self.offline.remove(&place);
        }
    }

    /// A worker was heard at `arrived_us`, and a majority confirmed the leader since. `stands`:
    /// the pool has this very incarnation, online.
    pub(crate) fn hear_server(
        &mut self,
        holder: &Holder,
        arrived_us: i64,
        stands: bool,
    ) -> Renewal {
        let Some(row) = self.servers.get_mut(&holder.server) else {
            return Renewal::Commit;
        };
        if row.incarnation != holder.incarnation {
            return Renewal::Commit;
        }
        if row.heard_us < arrived_us {
            // In every phase: what is committed next must not be followed by an older end.
            let before = (row.heard_us, holder.server.clone());
            row.heard_us = arrived_us;
            for set in [&mut self.online, &mut self.offline] {
                if set.remove(&before) {
                    set.insert((arrived_us, holder.server.clone()));
                }
            }
        }
        if row.seen && row.phase == Phase::Online && stands {
            Renewal::Noted
        } else {
            Renewal::Commit
        }
    }

    /// Whether a renewal of this very worker was committed under this claim, and it is online.
    pub(crate) fn has_online(&self, holder: &Holder) -> bool {
        self.servers.get(&holder.server).is_some_and(|row| {
            row.incarnation == holder.incarnation && row.seen && row.phase == Phase::Online
        })
    }

    /// That a worker was heard is committed.
    pub(crate) fn server_seen(&mut self, holder: &Holder, arrived_us: i64) {
        let heard_us = match self.servers.get(&holder.server) {
            Some(row) if row.incarnation == holder.incarnation => row.heard_us.max(arrived_us),
            _ => arrived_us,
        };
        let row = ServerRow {
            incarnation: holder.incarnation.clone(),
            heard_us,
            seen: true,
            phase: Phase::Online,
        };
        self.put_server(holder.server.clone(), row);
    }

    /// How the end of a lease that was given out went.
    pub(crate) fn ended(&mut self, due: &Due, end: End) {
        let (holder, phase) = match (due, end) {
            (Due::Offline(holder), End::Committed) => (holder, Some(Phase::Offline)),
            (Due::Offline(holder), End::NotMade) => (holder, Some(Phase::Online)),
            (Due::Lost(holder), End::NotMade) => (holder, Some(Phase::Offline)),
            (Due::Lost(holder), End::Committed)
            | (Due::Offline(holder) | Due::Lost(holder), End::Refused) => (holder, None),
            (Due::Expired(job), end) => return self.caller_ended(job, end),
        };
        let Some(row) = self.servers.get(&holder.server) else {
            return;
        };
        if row.incarnation != holder.incarnation || row.phase != Phase::Ending {
            return;
        }
        let heard_us = row.heard_us;
        self.forget_server(&holder.server);
        if let Some(phase) = phase {
            let row = ServerRow {
                incarnation: holder.incarnation.clone(),
                heard_us,
                seen: false,
                phase,
            };
            self.put_server(holder.server.clone(), row);
        }
    }

    /// A job whose caller holds a lease was launched, or its caller's renewal is committed.
    pub(crate) fn caller_seen(&mut self, job: &str, lease_s: u32, arrived_us: i64) {
        self.put_caller(job, lease_s, arrived_us, true);
    }

    fn put_caller(&mut self, job: &str, lease_s: u32, heard_us: i64, seen: bool) {
        let lease_us = i64::from(lease_s) * 1_000_000;
        let mut deadline_us = heard_us.saturating_add(lease_us);
        if let Some(before) = self.callers.remove(job) {
            self.expiring.remove(&(before.deadline_us, Box::from(job)));
            deadline_us = deadline_us.max(before.deadline_us);
        }
        self.expiring.insert((deadline_us, Box::from(job)));
        let row = CallerRow {
            deadline_us,
            lease_us,
            seen,
            ending: false,
        };
        self.callers.insert(Box::from(job), row);
    }

    /// A caller was heard at `arrived_us`, and a majority confirmed the leader since.
    pub(crate) fn hear_caller(&mut self, job: &str, arrived_us: i64) -> Renewal {
        let Some(row) = self.callers.get_mut(job).filter(|row| !row.ending) else {
            return Renewal::Commit;
        };
        let deadline_us = arrived_us.saturating_add(row.lease_us);
        if deadline_us > row.deadline_us {
            self.expiring.remove(&(row.deadline_us, Box::from(job)));
            row.deadline_us = deadline_us;
            self.expiring.insert((deadline_us, Box::from(job)));
        }
        if row.seen {
            Renewal::Noted
        } else {
            Renewal::Commit
        }
    }

    fn caller_ended(&mut self, job: &str, end: End) {
        let Some(row) = self.callers.get_mut(job).filter(|row| row.ending) else {
            return;
        };
        if end == End::NotMade {
            row.ending = false;
            self.expiring.insert((row.deadline_us, Box::from(job)));
        } else {
            self.callers.remove(job);
        }
    }

    /// Gives out the leases that ran out by `now_us`, at most [`DUE_MAX`] in one go, the oldest
    /// of each kind first. Each is given once, until its end is told.
    pub(crate) fn due(&mut self, now_us: i64, timeouts: Timeouts) -> Vec<Due> {
        let mut due = Vec::new();
        let offline_before = now_us.saturating_sub(timeouts.server_us);
        let lost_before = offline_before.saturating_sub(timeouts.job_us);
        while due.len() < DUE_MAX
            && let Some(holder) = end_first(&mut self.offline, &mut self.servers, lost_before)
        {
            due.push(Due::Lost(holder));
        }
        while due.len() < DUE_MAX
            && let Some(holder) = end_first(&mut self.online, &mut self.servers, offline_before)
        {
            due.push(Due::Offline(holder));
        }
        while due.len() < DUE_MAX
            && let Some((_, job)) = take_first(&mut self.expiring, now_us)
        {
            if let Some(row) = self.callers.get_mut(&job) {
                row.ending = true;
                due.push(Due::Expired(job));
            }
        }
        due
    }

    /// When the next lease runs out, in monotonic time.
    pub(crate) fn next_due_us(&self, timeouts: Timeouts) -> Option<i64> {
        let offline = self.online.first().map(|(us, _)| us + timeouts.server_us);
        let lost = self
            .offline
            .first()
            .map(|(us, _)| us + timeouts.server_us + timeouts.job_us);
        let expired = self.expiring.first().map(|(us, _)| *us);
        [offline, lost, expired].into_iter().flatten().min()
    }
}

fn take_first(set: &mut BTreeSet<(i64, Box<str>)>, until_us: i64) -> Option<(i64, Box<str>)> {
    if set.first()?.0 > until_us {
        return None;
    }
    set.pop_first()
}

fn end_first(
    set: &mut BTreeSet<(i64, Box<str>)>,
    servers: &mut BTreeMap<Box<str>, ServerRow>,
    until_us: i64,
) -> Option<Holder> {
    let (_, server) = take_first(set, until_us)?;
    let row = servers.get_mut(&server)?;
    row.phase = Phase::Ending;
    row.seen = false;
    Some(Holder {
        incarnation: row.incarnation.clone(),
        server,
    })
}

#[cfg(test)]
mod tests;
