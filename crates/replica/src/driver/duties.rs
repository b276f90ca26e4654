//! What a leader does beside proposing: it ends leases that ran out.

use crate::Proposed;
use crate::clock;
use crate::core::Core;
use crate::leases::{Due, End, Leases, Timeouts};
use fermata_pool::Pool;
use fermata_pool::command::{Command, Holder};
use fermata_pool::outcome::{JobOutcome, Outcome};
use fermata_pool::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// How long a lease whose end could not be committed waits to be ended again.
const END_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Takes the leases from the pool, right after the takeover at `at` was applied.
pub(super) fn take_leases(core: &Core, at: Instant) {
    let now_us = core.time.monotonic_us();
    let mut leases = Leases::default();
    core.state.read(|pool| {
        for server in pool.servers("") {
            leases.take_server(server, at, now_us);
        }
        for lease in pool.leases() {
            leases.take_caller(&lease, at, now_us);
        }
    });
    *core.leases() = Some(leases);
}

/// Notes the leases of callers whose jobs were launched: launching is the first renewal.
pub(super) fn note_callers(core: &Core, outcomes: &[Outcome]) {
    let now_us = core.time.monotonic_us();
    let launched = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Job(job) if !job.repeated && !job.standing.is_final() => Some(job),
        _ => None,
    });
    let held: Vec<(&JobOutcome, u32)> = core.state.read(|pool| {
        launched
            .filter_map(|job| Some((job, lease_s(pool, &job.job)?)))
            .collect()
    });
    if held.is_empty() {
        return;
    }
    if let Some(leases) = core.leases().as_mut() {
        for (job, lease_s) in held {
            leases.caller_seen(&job.job, lease_s, now_us);
        }
    }
    core.leases_changed.notify_one();
}

/// First renewals under a claim, in an entry that is on its way.
///
/// They are noted when the entry is applied and not by whoever waits for them: nobody may wait
/// any longer, and a lease that the pool has and the leader forgot would never run out.
pub(super) struct Renewals {
    /// Where in the entry each is.
    places: Vec<(usize, Command)>,
    /// Not before they arrived: their leases end late rather than early.
    arrived_us: i64,
}

impl Renewals {
    /// Those among the commands of an entry.
    pub(super) fn among(commands: &[Command], now_us: i64) -> Renewals {
        let renews = |command: &Command| {
            matches!(command, Command::ServerSeen(_) | Command::CallerSeen { .. })
        };
        let commands = commands.iter().enumerate();
        let renewals = commands.filter(|(_, command)| renews(command));
        Renewals {
            places: renewals
                .map(|(place, command)| (place, command.clone()))
                .collect(),
            arrived_us: now_us,
        }
    }

    /// Notes those that were taken.
    pub(super) fn note(self, core: &Core, outcomes: &[Outcome]) {
        if self.places.is_empty() {
            return;
        }
        if let Some(leases) = core.leases().as_mut() {
            for (place, command) in self.places {
                if matches!(outcomes.get(place), None | Some(Outcome::Refused(_))) {
                    continue;
                }
                match command {
                    Command::ServerSeen(holder) => leases.server_seen(&holder, self.arrived_us),
                    Command::CallerSeen { job } => {
                        if let Some(lease_s) = core.state.read(|pool| lease_s(pool, &job)) {
                            leases.caller_seen(&job, lease_s, self.arrived_us);
                        }
                    }
                    _ => {}
                }
            }
        }
        core.leases_changed.notify_one();
    }
}

/// How long the caller of an unfinished job may be silent; none: it has none.
fn lease_s(pool: &Pool, job: &str) -> Option<u32> {
    let view = pool.job(job)?;
    let lease = view.job.lease.as_ref()?;
    Some(lease.lease_s)
}

/// How long servers may be silent, by the settings in force.
fn timeouts(pool: &Pool) -> Timeouts {
    let settings = pool.settings();
    Timeouts {
        server_us: i64::from(settings.server_timeout_s) * 1_000_000,
        job_us: i64::from(settings.job_timeout_s) * 1_000_000,
    }
}

/// Ends leases as they run out.
pub(super) async fn keep_leases(core: &Arc<Core>) {
    loop {
        let timeouts = core.state.read(timeouts);
        let now_us = core.time.monotonic_us();
        let (proposed, next_us) = match core.leases().as_mut() {
            Some(leases) => {
                // Proposed under the lock: a renewal that comes later is committed later.
                let due = leases.due(now_us, timeouts);
                (end(core, leases, due), leases.next_due_us(timeouts))
            }
            None => (None, None),
        };
        if let Some((due, answers)) = proposed {
            finish(core, &due, answers).await;
            continue;
        }
        let wait = next_us.map(|us| clock::from_us(us - now_us));
        tokio::select! {
            () = super::at(wait) => {}
            () = core.leases_changed.notified() => {}
        }
    }
}

type Answers = Vec<tokio::sync::oneshot::Receiver<super::queue::Answered>>;

/// Leaves the commands that end leases; none: there is nothing to end.
fn end(core: &Core, leases: &mut Leases, due: Vec<Due>) -> Option<(Vec<Due>, Option<Answers>)> {
    let mut to_end = Vec::new();
    core.state.read(|pool| {
        for due in due {
            match ended_already(pool, &due) {
                Some(end) => leases.ended(&due, end),
                None => to_end.push(due),
            }
        }
    });
    if to_end.is_empty() {
        return None;
    }
    let commands = to_end.iter().map(to_command).collect();
    Some((to_end, core.queue.leave(commands).ok()))
}

/// How a lease ended before; none: its end would change something. An idle cluster writes
/// nothing.
fn ended_already(pool: &Pool, due: &Due) -> Option<End> {
    let server = |holder: &Holder| {
        let row = pool.server(&holder.server);
        row.filter(|row| row.incarnation.as_ref() == Some(&holder.incarnation))
    };
    match due {
        Due::Offline(holder) => match server(holder) {
            Some(row) if row.online => None,
            Some(_) => Some(End::Committed),
            None => Some(End::Refused),
        },
        Due::Lost(holder) => match server(holder) {
            Some(row) if row.jobs > 0 => None,
            _ => Some(End::Refused),
        },
        Due::Expired(job) => match pool.standing(job) {
            Some(standing) if !standing.is_final() && lease_s(pool, job).is_some() => None,
            _ => Some(End::Refused),
        },
    }
}

fn to_command(due: &Due) -> Command {
    match due {
        Due::Offline(holder) => Command::ServerOffline(holder.clone()),
        Due::Lost(holder) => Command::ServerLost(holder.clone()),
        Due::Expired(job) => Command::LeaseExpired { job: job.clone() },
    }
}

/// Waits for the ends of leases and notes how they went.
async fn finish(core: &Core, due: &[Due], answers: Option<Answers>) {
    let mut outcomes = Vec::new();
    for answer in answers.unwrap_or_default() {
        match answer.await {
            Ok(Ok(Proposed { outcomes: own, .. })) => outcomes.extend(own.into_iter().map(Some)),
            _ => break,
        }
    }
    let failed = outcomes.len() < due.len();
    outcomes.resize(due.len(), None);
    if let Some(leases) = core.leases().as_mut() {
        for (due, outcome) in due.iter().zip(outcomes) {
            let end = match outcome {
                Some(Outcome::Refused(_)) => End::Refused,
                Some(_) => End::Committed,
                None => End::NotMade,
            };
            leases.ended(due, end);
        }
    }
    if failed {
        tokio::time::sleep(END_AGAIN_AFTER).await;
    }
}
