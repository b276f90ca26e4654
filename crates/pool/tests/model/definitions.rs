//! Commands about definitions, servers, windows and overrides.

use crate::commands::Answer;
use crate::history::{Fact, Model, Phase};
use fermata_pool::command::{Command, Holder, Override};
use fermata_pool::outcome::Reason;

impl Model {
    /// Does what a command says, and examines the queues.
    pub(crate) fn command_about_no_job(&mut self, command: &Command) -> Answer {
        let answer = match command {
            Command::PutEvent { event, if_revision } => {
                let category = event.category.as_deref();
                if category.is_some_and(|id| self.category(id).is_none()) {
                    return Answer::Refused("invalid_request");
                }
                let revision = self.event(&event.id).map_or(0, |(_, revision)| revision);
                self.store(command, *if_revision, revision)
            }
            Command::DeleteEvent { event, if_revision } => match self.event(event) {
                None => Answer::Refused("event_missing"),
                Some((_, revision)) if if_revision.is_some_and(|it| it != revision) => {
                    Answer::Refused("revision_conflict")
                }
                Some(_) => self.told(command),
            },
            Command::PutCategory {
                category,
                if_revision,
            } => {
                let revision = self.category(&category.id).map_or(0, |(_, it)| it);
                self.store(command, *if_revision, revision)
            }
            Command::DeleteCategory {
                category,
                if_revision,
            } => match self.category(category) {
                None => Answer::Refused("unknown_category"),
                Some((_, revision)) if if_revision.is_some_and(|it| it != revision) => {
                    Answer::Refused("revision_conflict")
                }
                Some(_) => self.told(command),
            },
            Command::PutServer(server) => {
                let revision = self.server_definition(&server.id).map_or(0, |(_, it)| it);
                self.store(command, None, revision)
            }
            Command::PutSettings { if_revision, .. } => {
                let (_, revision) = self.stored_settings();
                let answer = self.store(command, *if_revision, revision);
                self.forget();
                answer
            }
            Command::DeleteServer { server } => {
                if self.server(server).is_none() {
                    return Answer::Refused("unknown_server");
                }
                self.lose(server, true);
                self.told(command)
            }
            Command::ServerSeen(holder) => self.about_server(holder, true, Model::seen),
            Command::ServerOffline(holder) => self.about_server(holder, false, |model, holder| {
                model.lose(&holder.server, false);
                model.push(Fact::Offline(holder.server.clone()));
            }),
            Command::ServerLost(holder) => self.about_server(holder, false, |model, holder| {
                model.lose(&holder.server, true);
                model.push(Fact::Offline(holder.server.clone()));
            }),
            Command::DrainServer { server } => self.drain(server),
            Command::ServerDraining(holder) => self.about_server(holder, false, |model, holder| {
                model.push(Fact::Draining(holder.server.clone()));
                model.lose(&holder.server, false);
            }),
            Command::Reset { scope } => self.reset(|name| *name == **scope),
            Command::ResetAll => self.reset(|_| true),
            Command::PutOverride { scope, sizes } => {
                if is_valid_override(scope, sizes) {
                    self.told(command)
                } else {
                    Answer::Refused("invalid_request")
                }
            }
            // Where none is, none is removed.
            Command::DeleteOverride { scope } if self.override_of(scope).is_none() => Answer::Done,
            Command::DeleteOverride { .. } | Command::ResetStats => self.told(command),
            _ => Answer::Done,
        };
        self.examine_queues();
        answer
    }

    /// Removes the open windows among these; where none is open, nobody waits for it (S32).
    fn reset(&mut self, meant: impl Fn(&str) -> bool) -> Answer {
        for scope in self.scopes() {
            if meant(&scope) && self.window(&scope).is_some() {
                self.push(Fact::Reset(scope));
            }
        }
        Answer::Done
    }

    /// Disables a server and has it take nothing new.
    fn drain(&mut self, id: &str) -> Answer {
        let Some((definition, _)) = self.server_definition(id) else {
            return Answer::Refused("unknown_server");
        };
        if definition.enabled {
            let mut disabled = definition.clone();
            disabled.enabled = false;
            self.tell(&Command::PutServer(disabled));
        }
        self.push(Fact::Draining(id.into()));
        self.lose(id, false);
        Answer::Done
    }

    fn told(&mut self, command: &Command) -> Answer {
        self.tell(command);
        Answer::Done
    }

    fn store(&mut self, command: &Command, asked: Option<u64>, revision: u64) -> Answer {
        if asked.is_some_and(|it| it != revision) {
            return Answer::Refused("revision_conflict");
        }
        self.tell(command);
        Answer::Stored(revision + 1)
    }

    /// Does something to a server, unless the word is of another life of it than the last; of a
    /// new one, if it is `seen`.
    fn about_server(
        &mut self,
        holder: &Holder,
        seen: bool,
        then: impl FnOnce(&mut Model, &Holder),
    ) -> Answer {
        let Some(server) = self.server(&holder.server) else {
            return Answer::Refused("unknown_server");
        };
        let lives = &server.incarnations;
        let is_new = !lives.contains(&&*holder.incarnation);
        if lives.last() != Some(&&*holder.incarnation) && !(seen && is_new) {
            return Answer::Refused("superseded");
        }
        then(self, holder);
        Answer::Done
    }

    fn seen(&mut self, holder: &Holder) {
        let last = self.server(&holder.server);
        let last = last.and_then(|server| server.incarnations.last().map(|it| (*it).to_string()));
        if last.is_some_and(|last| *last != *holder.incarnation) {
            self.lose(&holder.server, true);
        }
        self.push(Fact::Seen {
            server: holder.server.clone(),
            incarnation: holder.incarnation.clone(),
        });
    }

    /// What a server held in `starting` is put back; what it held `active` ends, if it is `lost`.
    fn lose(&mut self, server: &str, lost: bool) {
        for number in self.unfinished() {
            let job = self.job(number);
            if job.server() != Some(server) {
                continue;
            }
            match job.phase {
                Phase::Starting => self.put_back(number, false),
                Phase::Active if lost => self.end(number, Err(Reason::ServerLost)),
                _ => {}
            }
        }
    }
}

fn is_valid_override(scope: &str, sizes: &Override) -> bool {
    let some = sizes.count.is_some() || sizes.window_s.is_some() || sizes.amount.is_some();
    let bounded = sizes.count.is_none_or(|count| count <= 1_000_000)
        && sizes.window_s.is_none_or(|it| (1..=604_800).contains(&it))
        && sizes.amount.is_none_or(|amount| amount <= 10_000_000);
    some && bounded && (sizes.amount.is_none() || !scope.starts_with("rate:"))
}
