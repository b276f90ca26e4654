//! Applying an entry: first time passes, then its commands happen, in one fixed order (S36).
//!
//! `apply` is total: every command has an outcome, a refusal changes nothing, and an entry of
//! another claim than the one in force changes nothing at all (S39). It reads no clock, no zone and
//! no random source; what it needs of them stands in the entry.
//!
//! Caveat: within one entry at most [`MOVES_PER_ENTRY_MAX`] heads and due jobs are considered. What
//! is left is due at once: [`Pool::next_deadline`] says so.

use crate::audit::nested_actor;
use crate::command::{Command, Entry, Holder};
use crate::job::{JobNumber, Note, PutBackCause, ServerNumber, State};
use crate::outcome::{Applied, JobOutcome, NotLeader, Outcome, Reason, Refusal};
use crate::query::Stats;
use crate::server::SUPERSEDED_MAX;
use crate::state::{FORMAT_FIRST, Pool, Turn};
use crate::time::{Instant, Stamp};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Most heads and due jobs that one entry considers (S20); part of the format version.
pub const MOVES_PER_ENTRY_MAX: usize = 10_000;

/// What is known of a command's outcome before the queues are examined.
pub(crate) enum Answer {
    /// All of it.
    Plain(Outcome),
    /// Which job it concerns, and whether it had been carried out before (S40).
    Job(JobNumber, bool),
}

impl Answer {
    /// A command about this job was carried out.
    pub(crate) fn first(number: JobNumber) -> Answer {
        Answer::Job(number, false)
    }

    /// It had been carried out before.
    pub(crate) fn again(number: JobNumber) -> Answer {
        Answer::Job(number, true)
    }
}

impl Pool {
    /// An empty state, before the first entry.
    #[must_use]
    pub fn new() -> Pool {
        let mut pool = Pool::default();
        pool.header.format = FORMAT_FIRST;
        pool
    }

    /// Whether the rates that decide about starts are told of in [`Applied::checks`]. It is no part
    /// of the state: off, it costs nothing.
    pub fn record_rate_checks(&mut self, recorded: bool) {
        self.records_rate_checks = recorded;
    }

    /// Applies one entry of the log, which stands there at `index`.
    pub fn apply(&mut self, index: u64, entry: &Entry) -> Applied {
        let mut turn = Turn {
            index,
            starts: 0,
            budget: MOVES_PER_ENTRY_MAX,
            moves: Vec::with_capacity(entry.commands.len()),
            checks: Vec::new(),
        };
        let takes_over = matches!(entry.commands.first(), Some(Command::Takeover))
            && entry.claim > self.header.claim;
        let outcomes = if takes_over || entry.claim == self.header.claim {
            self.pass_time(entry.stamp, &mut turn);
            if takes_over {
                self.take_over(entry, &mut turn);
            }
            let outcomes = self.carry_out(&entry.commands, &mut turn);
            self.forget_finished();
            Ok(outcomes)
        } else {
            Err(NotLeader {
                claim: self.header.claim,
            })
        };
        self.seal();
        Applied {
            index,
            at: self.now(),
            outcomes,
            moves: turn.moves,
            checks: turn.checks,
        }
    }

    fn carry_out(&mut self, commands: &[Command], turn: &mut Turn) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            let answer = self.audited(command, turn);
            self.examine(turn);
            outcomes.push(match answer {
                Ok(Answer::Plain(outcome)) => outcome,
                Ok(Answer::Job(number, repeated)) => self.outcome_of(number, repeated),
                Err(refusal) => Outcome::Refused(refusal),
            });
            #[cfg(debug_assertions)]
            self.assert_invariants_if_small(turn);
        }
        outcomes
    }

    /// How a job stands, as an outcome.
    fn outcome_of(&self, number: JobNumber, repeated: bool) -> Outcome {
        match self.jobs.get(&number) {
            Some(job) => Outcome::Job(JobOutcome {
                job: Arc::clone(&job.id),
                standing: self.standing_of(job),
                repeated,
            }),
            None => Outcome::Refused(Refusal::UnknownJob),
        }
    }

    /// Lets time pass to a stamp, in one step (S36).
    fn pass_time(&mut self, stamp: Stamp, turn: &mut Turn) {
        if stamp.at >= self.now() {
            self.header.stamp = stamp;
        }
        let now = self.now();
        self.sweep_windows();
        self.end_overrides();
        self.sweep_windows();
        self.forget_finished();
        self.time_out_starts(now, turn);
        self.stop_aged(now, turn);
        self.offer_opened_rates();
        self.examine(turn);
        self.consider_due(now, turn);
        self.examine(turn);
    }

    fn time_out_starts(&mut self, now: Instant, turn: &mut Turn) {
        while let Some((_, number)) = self
            .index
            .starting
            .first()
            .copied()
            .filter(|(deadline, _)| *deadline <= now)
        {
            let timeouts = self.jobs.change(&number, |job| {
                job.timeouts += 1;
                job.timeouts
            });
            if timeouts.is_none_or(|it| it >= self.header.settings.max_start_attempts) {
                self.end(number, Err(Reason::StartTimeout), "".into(), turn);
            } else {
                self.put_back(number, PutBackCause::StartTimeout, turn);
            }
        }
    }

    /// Active jobs that are too old are told to stop (S50).
    fn stop_aged(&mut self, now: Instant, turn: &mut Turn) {
        while let Some(aged) = self.index.aging.first().copied().filter(|it| it.0 <= now) {
            let (_, number) = aged;
            self.index.aging.remove(&aged);
            self.stop(number, Reason::TimeLimit, turn);
        }
    }

    /// Tells the executor of an active job to stop, whose age then no longer matters; a
    /// cancellation stands above a time limit.
    fn stop(&mut self, number: JobNumber, reason: Reason, turn: &mut Turn) {
        let now = self.now();
        let deadline = self.jobs.change(&number, |job| {
            let State::Active(attempt) = &mut job.state else {
                return None;
            };
            if attempt.stop.is_some() && reason != Reason::Cancelled {
                return attempt.deadline.take();
            }
            attempt.stop = Some(reason);
            let deadline = attempt.deadline.take();
            job.say(now, Note::Stopping(reason));
            deadline
        });
        if let Some(deadline) = deadline.flatten() {
            self.index.aging.remove(&(deadline, number));
        }
        self.moved(number, turn);
    }

    /// Delayed jobs that are due are considered in launch order (S12).
    fn consider_due(&mut self, now: Instant, turn: &mut Turn) {
        let due = self.index.delayed.iter().take_while(|(due, _)| *due <= now);
        let due: Vec<(Instant, JobNumber)> = due.take(turn.budget).copied().collect();
        let mut numbers: Vec<JobNumber> = due.iter().map(|(_, number)| *number).collect();
        due.iter().for_each(|it| {
            self.index.delayed.remove(it);
        });
        numbers.sort_unstable();
        turn.budget -= numbers.len();
        for number in numbers {
            self.fall_due(number, turn);
        }
    }

    /// A new leader begins (S39): what was starting is put back, and those who were heard under
    /// the leader before get a full lease anew (S41).
    fn take_over(&mut self, entry: &Entry, turn: &mut Turn) {
        let before = self.header.takeovers;
        let now = self.now();
        self.header.claim = entry.claim;
        self.header.takeovers += 1;
        if before == 0 {
            self.header.stats.since = now;
        }
        let starting: Vec<JobNumber> = self
            .index
            .starting
            .iter()
            .map(|(_, number)| *number)
            .collect();
        for number in starting {
            self.put_back(number, PutBackCause::Takeover, turn);
        }
        let servers: Vec<ServerNumber> = self
            .servers
            .iter()
            .filter(|(_, server)| server.online && server.seen_under == before)
            .map(|(number, _)| *number)
            .collect();
        for number in servers {
            self.servers.change(&number, |server| server.heard_at = now);
        }
        let leased: Vec<JobNumber> = self.index.leased.iter().copied().collect();
        for number in leased {
            let lease = self.jobs.get(&number).and_then(|job| job.lease.as_deref());
            if lease.is_some_and(|lease| lease.seen_under == before) {
                self.jobs.change(&number, |job| {
                    if let Some(lease) = &mut job.lease {
                        lease.heard_at = now;
                    }
                });
            }
        }
        self.examine(turn);
    }

    pub(crate) fn command(
        &mut self,
        command: &Command,
        turn: &mut Turn,
    ) -> Result<Answer, Refusal> {
        match command {
            Command::By { .. } => Err(nested_actor()),
            Command::Launch(launch) => self.launch(launch, turn),
            Command::Started { job, attempt, from } => {
                self.started(job, *attempt, from.as_ref(), turn)
            }
            Command::Completed {
                job,
                attempt,
                code,
                description,
                from,
            } => self.completed(job, *attempt, *code, description, from.as_ref(), turn),
            Command::Cancel { job } => self.cancel(job, turn),
            Command::AttemptMissing { job, attempt, from } => {
                self.attempt_missing(job, *attempt, from, turn)
            }
            Command::CallerSeen { job } => self.caller_seen(job),
            Command::LeaseExpired { job } => self.lease_expired(job, turn),
            Command::StartActionFailed {
                job,
                attempt,
                description,
            } => self.start_action_failed(job, *attempt, description, turn),
            other => self.command_beside_jobs(other, turn).map(Answer::Plain),
        }
    }

    /// Carries out a command that names no job.
    fn command_beside_jobs(
        &mut self,
        command: &Command,
        turn: &mut Turn,
    ) -> Result<Outcome, Refusal> {
        match command {
            Command::PutEvent { event, if_revision } => self.put_event(event, *if_revision),
            Command::DeleteEvent { event, if_revision } => self.delete_event(event, *if_revision),
            Command::PutCategory {
                category,
                if_revision,
            } => self.put_category(category, *if_revision),
            Command::DeleteCategory {
                category,
                if_revision,
            } => self.delete_category(category, *if_revision),
            Command::PutSettings {
                settings,
                if_revision,
            } => self.put_settings(settings, *if_revision),
            Command::PutServer(definition) => self.put_server(definition),
            Command::DeleteServer { server } => self.delete_server(server, turn),
            Command::ServerSeen(holder) => self.server_seen(holder, turn),
            Command::ServerOffline(holder) => self.server_offline(holder, turn),
            Command::ServerLost(holder) => self.server_lost(holder, turn),
            Command::Reset { scope } => self.reset(scope),
            Command::ResetAll => Ok(self.reset_all()),
            Command::PutOverride { scope, sizes } => self.put_override(scope, sizes),
            Command::DeleteOverride { scope } => Ok(self.delete_override(scope)),
            Command::ResetStats => {
                self.header.stats = Stats {
                    since: self.now(),
                    ..Stats::default()
                };
                Ok(Outcome::Done)
            }
            Command::RaiseFormat { to } => {
                self.header.format = self.header.format.max(*to);
                Ok(Outcome::Done)
            }
            Command::DrainServer { server } => self.drain_server(server, turn),
            Command::ServerDraining(holder) => {
                let number = self.current_life(holder)?;
                Ok(self.drain(number, turn))
            }
            // A takeover has happened before the entry's commands, a change of members elsewhere;
            // the rest name jobs or wrap what does not.
            Command::Takeover
            | Command::MembersChanged(_)
            | Command::By { .. }
            | Command::Launch(_)
            | Command::Started { .. }
            | Command::Completed { .. }
            | Command::Cancel { .. }
            | Command::AttemptMissing { .. }
            | Command::CallerSeen { .. }
            | Command::LeaseExpired { .. }
            | Command::StartActionFailed { .. } => Ok(Outcome::Done),
        }
    }

    /// The job and whether the attempt named is its current one, which its sender holds (S14).
    pub(crate) fn attempt_of(
        &self,
        job: &str,
        attempt: u32,
        from: Option<&Holder>,
    ) -> Result<JobNumber, Refusal> {
        let number = self.number_of_job(job).ok_or(Refusal::UnknownJob)?;
        let sender = from.map(|holder| self.current_life(holder)).transpose()?;
        let job = self.jobs.get(&number).ok_or(Refusal::UnknownJob)?;
        if job.attempt != attempt || matches!(job.state, State::Queued | State::Delayed { .. }) {
            return Err(Refusal::StaleAttempt);
        }
        match (sender, job.current()) {
            (Some(server), Some(current)) if current.server != Some(server) => {
                Err(Refusal::StaleAttempt)
            }
            _ => Ok(number),
        }
    }

    /// The server whose current incarnation this is (S42).
    fn current_life(&self, holder: &Holder) -> Result<ServerNumber, Refusal> {
        let number = self
            .index
            .fleet
            .number(&holder.server)
            .ok_or(Refusal::UnknownServer)?;
        let server = self.servers.get(&number).ok_or(Refusal::UnknownServer)?;
        if server.incarnation.as_ref() == Some(&holder.incarnation) {
            Ok(number)
        } else {
            Err(Refusal::Superseded)
        }
    }

    fn started(
        &mut self,
        job: &str,
        attempt: u32,
        from: Option<&Holder>,
        turn: &mut Turn,
    ) -> Result<Answer, Refusal> {
        let number = self.attempt_of(job, attempt, from)?;
        let now = self.now();
        let Some(job) = self.jobs.get(&number) else {
            return Err(Refusal::UnknownJob);
        };
        match &job.state {
            State::Ended(_) => return Err(Refusal::Final),
            State::Active(_) => return Ok(Answer::again(number)),
            State::Starting(current) => {
                if let Some(deadline) = current.deadline {
                    self.index.starting.remove(&(deadline, number));
                }
            }
            State::Queued | State::Delayed { .. } => return Err(Refusal::StaleAttempt),
        }
        let time_s = self.interned(job).rules.time_s;
        let deadline = time_s.map(|time_s| now.plus_s(u64::from(time_s)));
        self.jobs.change(&number, |job| {
            let state = core::mem::replace(&mut job.state, State::Queued);
            if let State::Starting(mut current) = state {
                current.confirmed_at = Some(now);
                current.deadline = deadline;
                job.state = State::Active(current);
            }
            job.say(now, Note::Confirmed { attempt });
        });
        self.index
            .aging
            .extend(deadline.map(|deadline| (deadline, number)));
        self.header.stats.confirmed += 1;
        self.moved(number, turn);
        Ok(Answer::first(number))
    }

    fn completed(
        &mut self,
        job: &str,
        attempt: u32,
        code: i32,
        description: &str,
        from: Option<&Holder>,
        turn: &mut Turn,
    ) -> Result<Answer, Refusal> {
        let number = self.attempt_of(job, attempt, from)?;
        let Some(job) = self.jobs.get(&number) else {
            return Err(Refusal::UnknownJob);
        };
        match &job.state {
            State::Ended(_) => Ok(Answer::again(number)),
            State::Active(_) => {
                self.end(number, Ok(code), cut(description), turn);
                Ok(Answer::first(number))
            }
            State::Starting(_) => Err(Refusal::NotActive),
            State::Queued | State::Delayed { .. } => Err(Refusal::StaleAttempt),
        }
    }

    fn cancel(&mut self, job: &str, turn: &mut Turn) -> Result<Answer, Refusal> {
        let number = self.number_of_job(job).ok_or(Refusal::UnknownJob)?;
        let Some(job) = self.jobs.get(&number) else {
            return Err(Refusal::UnknownJob);
        };
        match &job.state {
            State::Ended(_) => return Err(Refusal::Final),
            State::Active(attempt) if attempt.stop == Some(Reason::Cancelled) => {
                return Ok(Answer::again(number));
            }
            State::Active(_) => self.stop(number, Reason::Cancelled, turn),
            State::Delayed { .. } | State::Queued | State::Starting(_) => {
                self.end(number, Err(Reason::Cancelled), "".into(), turn);
            }
        }
        Ok(Answer::first(number))
    }

    /// The attempts that a server holds, in launch order.
    fn held_numbers(&self, server: ServerNumber) -> Vec<JobNumber> {
        let all = (server, JobNumber(0))..=(server, JobNumber(u64::MAX));
        self.index
            .held
            .range(all)
            .map(|(_, number)| *number)
            .collect()
    }

    /// Puts back what a server holds in `starting`.
    pub(crate) fn put_back_starting(
        &mut self,
        server: ServerNumber,
        cause: PutBackCause,
        turn: &mut Turn,
    ) {
        for number in self.held_numbers(server) {
            if self
                .jobs
                .get(&number)
                .is_some_and(|job| matches!(job.state, State::Starting(_)))
            {
                self.put_back(number, cause, turn);
            }
        }
    }

    /// Gives up what a server holds `active`.
    fn give_up_active(&mut self, server: ServerNumber, turn: &mut Turn) {
        for number in self.held_numbers(server) {
            if self
                .jobs
                .get(&number)
                .is_some_and(|job| matches!(job.state, State::Active(_)))
            {
                self.end(number, Err(Reason::ServerLost), "".into(), turn);
            }
        }
    }

    fn server_seen(&mut self, holder: &Holder, turn: &mut Turn) -> Result<Outcome, Refusal> {
        crate::id::check_id("incarnation", &holder.incarnation).map_err(Refusal::Invalid)?;
        let number = self
            .index
            .fleet
            .number(&holder.server)
            .ok_or(Refusal::UnknownServer)?;
        let server = self.servers.get(&number).ok_or(Refusal::UnknownServer)?;
        if server.superseded.contains(&holder.incarnation) {
            return Err(Refusal::Superseded);
        }
        if server.incarnation.as_ref() != Some(&holder.incarnation) {
            // Offline first, so that what the old life held does not come back to it.
            self.change_server(number, |server| server.online = false);
            self.put_back_starting(number, PutBackCause::ServerOffline, turn);
            self.give_up_active(number, turn);
        }
        let (now, takeovers) = (self.now(), self.header.takeovers);
        self.change_server(number, |server| {
            let life = Some(holder.incarnation.clone());
            if server.incarnation != life {
                server.draining = false;
                server
                    .superseded
                    .extend(core::mem::replace(&mut server.incarnation, life));
                let surplus = server.superseded.len().saturating_sub(SUPERSEDED_MAX);
                server.superseded.drain(..surplus);
            }
            server.online = true;
            server.seen_under = takeovers;
            server.heard_at = now;
        });
        self.offer_server(number);
        Ok(Outcome::Done)
    }

    fn server_offline(&mut self, holder: &Holder, turn: &mut Turn) -> Result<Outcome, Refusal> {
        let number = self.current_life(holder)?;
        self.change_server(number, |server| server.online = false);
        self.put_back_starting(number, PutBackCause::ServerOffline, turn);
        Ok(Outcome::Done)
    }

    fn server_lost(&mut self, holder: &Holder, turn: &mut Turn) -> Result<Outcome, Refusal> {
        self.server_offline(holder, turn)?;
        let number = self.current_life(holder)?;
        self.give_up_active(number, turn);
        Ok(Outcome::Done)
    }

    fn delete_server(&mut self, server: &str, turn: &mut Turn) -> Result<Outcome, Refusal> {
        let number = self
            .index
            .fleet
            .number(server)
            .ok_or(Refusal::UnknownServer)?;
        self.change_server(number, |server| server.online = false);
        self.put_back_starting(number, PutBackCause::ServerOffline, turn);
        self.give_up_active(number, turn);
        if let Some(gone) = self.servers.remove(&number) {
            self.index
                .fleet
                .define(number, &gone.definition.groups, &[]);
        }
        self.index.fleet.place(server, number, None);
        Ok(Outcome::Done)
    }

    fn attempt_missing(
        &mut self,
        job: &str,
        attempt: u32,
        from: &Holder,
        turn: &mut Turn,
    ) -> Result<Answer, Refusal> {
        let number = self.attempt_of(job, attempt, Some(from))?;
        match self.jobs.get(&number).map(|job| &job.state) {
            Some(State::Active(_)) => {
                self.end(number, Err(Reason::ServerLost), "".into(), turn);
                Ok(Answer::first(number))
            }
            Some(State::Ended(_)) => Err(Refusal::Final),
            _ => Err(Refusal::NotActive),
        }
    }

    /// The unfinished job that a caller keeps (S46).
    fn leased_job(&self, job: &str) -> Result<JobNumber, Refusal> {
        let number = self.number_of_job(job).ok_or(Refusal::UnknownJob)?;
        let job = self.jobs.get(&number).ok_or(Refusal::UnknownJob)?;
        match (&job.state, &job.lease) {
            (State::Ended(_), _) => Err(Refusal::Final),
            (_, None) => Err(Refusal::UnknownJob),
            (_, Some(_)) => Ok(number),
        }
    }

    fn caller_seen(&mut self, job: &str) -> Result<Answer, Refusal> {
        let number = self.leased_job(job)?;
        let (now, takeovers) = (self.now(), self.header.takeovers);
        self.jobs.change(&number, |job| {
            if let Some(lease) = &mut job.lease {
                lease.seen_under = takeovers;
                lease.heard_at = now;
            }
        });
        Ok(Answer::first(number))
    }

    fn lease_expired(&mut self, job: &str, turn: &mut Turn) -> Result<Answer, Refusal> {
        let number = self.leased_job(job)?;
        self.end(number, Err(Reason::LeaseExpired), "".into(), turn);
        Ok(Answer::first(number))
    }
}

/// A description, cut where it is too long.
pub(crate) fn cut(description: &str) -> Box<str> {
    let most = crate::command::DESCRIPTION_BYTES_MAX;
    let end = (0..=most.min(description.len()))
        .rev()
        .find(|at| description.is_char_boundary(*at));
    description[..end.unwrap_or(0)].into()
}
