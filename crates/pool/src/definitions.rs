//! Definitions: events, categories, servers, settings and overrides, as they are put and deleted.

use crate::command::{
    ACTION_TIMEOUT_S_MAX, CATEGORIES_MAX, Category, EVENTS_MAX, Event, EventKind, GROUPS_MAX,
    HEADER_BYTES_MAX, HEADERS_MAX, NODES_MAX, OVERRIDES_MAX, Override, PARAMS_BYTES_MAX,
    SERVERS_MAX, ServerDefinition, Settings, StartAction, TITLE_BYTES_MAX, URL_BYTES_MAX,
};
use crate::id::{check_id, check_scope_name};
use crate::job::{ScopeNumber, ServerNumber};
use crate::launch::{check_params, check_priority, check_targets};
use crate::limits::{
    AMOUNT_MAX, DURATION_S_MAX, InvalidField, RATE_MAX, WEIGHT_MAX, WINDOW_S_MAX, validate, within,
};
use crate::outcome::{Outcome, Refusal};
use crate::server::Server;
use crate::state::{Pool, StoredCategory, StoredEvent};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::format;

fn check_title(field: &str, title: &str) -> Result<(), InvalidField> {
    if title.len() <= TITLE_BYTES_MAX {
        return Ok(());
    }
    let allowed = format!("at most {TITLE_BYTES_MAX} bytes");
    Err(InvalidField::new(
        field,
        format!("{} bytes", title.len()),
        allowed,
    ))
}

impl Event {
    /// Checks a definition (S6, S11).
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&self, params_bytes_max: u32) -> Result<(), InvalidField> {
        check_id("id", &self.id)?;
        check_title("title", &self.title)?;
        if let Some(category) = &self.category {
            check_id("category", category)?;
        }
        validate("limits", &self.limits)?;
        check_targets("targets", &self.targets)?;
        check_priority(self.priority)?;
        check_params(self.params.as_deref(), params_bytes_max)?;
        if let Some(action) = &self.on_start {
            action.check().map_err(|fault| fault.under("on_start"))?;
        }
        if self.kind == EventKind::Event && !self.nodes.is_empty() {
            return Err(InvalidField::new(
                "nodes",
                "given",
                "absent unless type is workflow",
            ));
        }
        if self.nodes.len() > NODES_MAX {
            let given = format!("{} nodes", self.nodes.len());
            return Err(InvalidField::new(
                "nodes",
                given,
                format!("at most {NODES_MAX}"),
            ));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let here = format!("nodes[{at}]");
            check_id("id", &node.id)
                .and_then(|()| check_title("title", &node.title))
                .and_then(|()| {
                    node.event
                        .as_ref()
                        .map_or(Ok(()), |it| check_id("event", it))
                })
                .and_then(|()| validate("limits", &node.limits))
                .map_err(|fault| fault.under(&here))?;
            if self.nodes[..at].iter().any(|other| other.id == node.id) {
                let field = format!("{here}.id");
                return Err(InvalidField::new(
                    field,
                    &node.id,
                    "an id of its own for each node",
                ));
            }
        }
        Ok(())
    }
}

impl StartAction {
    /// Checks its bounds (S6); whether the URL and the headers are well-formed the edge knows.
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&self) -> Result<(), InvalidField> {
        let url = &*self.url;
        if !url.starts_with("http://") || url.len() > URL_BYTES_MAX {
            let given = format!("{} bytes, {url:.64?}", url.len());
            let allowed = format!("http://HOST[:PORT]/PATH of at most {URL_BYTES_MAX} bytes");
            return Err(InvalidField::new("url", given, allowed));
        }
        if self.headers.len() > HEADERS_MAX {
            let given = format!("{} headers", self.headers.len());
            let allowed = format!("at most {HEADERS_MAX}");
            return Err(InvalidField::new("headers", given, allowed));
        }
        for header in &self.headers {
            let longest = header.name.len().max(header.value.len());
            if longest > HEADER_BYTES_MAX {
                let allowed = format!("names and values of at most {HEADER_BYTES_MAX} bytes");
                let given = format!("{longest} bytes");
                return Err(InvalidField::new("headers", given, allowed));
            }
        }
        let timeout_s = u64::from(self.timeout_s);
        within("timeout_s", timeout_s, 1, ACTION_TIMEOUT_S_MAX)
    }
}

impl Category {
    /// Checks a definition (S6, S11).
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&self) -> Result<(), InvalidField> {
        check_id("id", &self.id)?;
        check_title("title", &self.title)?;
        validate("limits", &self.limits)
    }
}

impl ServerDefinition {
    /// Checks a definition (S3, S11).
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&self) -> Result<(), InvalidField> {
        check_id("id", &self.id)?;
        if self.groups.len() > GROUPS_MAX {
            let given = format!("{} groups", self.groups.len());
            return Err(InvalidField::new(
                "groups",
                given,
                format!("at most {GROUPS_MAX}"),
            ));
        }
        for (at, group) in self.groups.iter().enumerate() {
            check_id(&format!("groups[{at}]"), group)?;
        }
        within(
            "max_jobs",
            self.max_jobs.map_or(1, u64::from),
            1,
            WEIGHT_MAX,
        )
    }
}

impl Settings {
    /// Checks the settings (S6, S51).
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&self) -> Result<(), InvalidField> {
        validate("universal_limits.default", &self.universal_event_limits)?;
        validate("universal_limits.workflow", &self.universal_workflow_limits)?;
        for (field, seconds) in [
            ("start_timeout_s", self.start_timeout_s),
            ("server_timeout_s", self.server_timeout_s),
            ("job_timeout_s", self.job_timeout_s),
            ("lease_s", self.lease_s),
            ("retention_s", self.retention_s),
            ("max_clock_step_s", self.max_clock_step_s),
        ] {
            within(field, u64::from(seconds), 1, DURATION_S_MAX)?;
        }
        within(
            "max_start_attempts",
            u64::from(self.max_start_attempts),
            1,
            1_000,
        )?;
        within("finished_max", u64::from(self.finished_max), 1, 10_000_000)?;
        within(
            "unfinished_max",
            u64::from(self.unfinished_max),
            1,
            10_000_000,
        )?;
        within(
            "params_bytes_max",
            u64::from(self.params_bytes_max),
            0,
            PARAMS_BYTES_MAX as u64,
        )
    }
}

impl Override {
    /// Checks an override of the scope named (S33).
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&self, scope: &str) -> Result<(), InvalidField> {
        check_scope_name("id", scope)?;
        check_title("note", &self.note)?;
        within("count", self.count.map_or(0, u64::from), 0, RATE_MAX)?;
        within(
            "window_s",
            self.window_s.map_or(1, u64::from),
            1,
            WINDOW_S_MAX,
        )?;
        within("amount", self.amount.map_or(0, u64::from), 0, AMOUNT_MAX)?;
        if self.amount.is_some() && scope.starts_with("rate:") {
            let allowed = "absent: a rate bucket has no concurrency";
            return Err(InvalidField::new("amount", "given", allowed));
        }
        if self.count.is_none() && self.window_s.is_none() && self.amount.is_none() {
            let allowed = "at least one of count, window_s and amount";
            return Err(InvalidField::new("count", "absent", allowed));
        }
        Ok(())
    }
}

fn check_revision(wanted: Option<u64>, revision: u64) -> Result<(), Refusal> {
    match wanted {
        Some(wanted) if wanted != revision => Err(Refusal::RevisionConflict { revision }),
        _ => Ok(()),
    }
}

fn check_count(known: bool, count: usize, most: usize) -> Result<(), Refusal> {
    if known || count < most {
        Ok(())
    } else {
        Err(Refusal::TooMany { most: most as u64 })
    }
}

impl Pool {
    pub(crate) fn put_event(
        &mut self,
        event: &Event,
        if_revision: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        event
            .check(self.header.settings.params_bytes_max)
            .map_err(Refusal::Invalid)?;
        if let Some(category) = &event.category
            && self.categories.get(category).is_none()
        {
            let fault = InvalidField::new("category", category, "a category that exists");
            return Err(Refusal::Invalid(fault));
        }
        let old = self.events.get(&event.id);
        let revision = old.map_or(0, |old| old.revision);
        check_revision(if_revision, revision)?;
        check_count(old.is_some(), self.events.len(), EVENTS_MAX)?;
        let last_pick = old.and_then(|old| old.last_pick.clone());
        let stored = StoredEvent {
            event: event.clone(),
            revision: revision + 1,
            last_pick,
        };
        self.events.insert(event.id.clone(), Box::new(stored));
        self.index.plain.clear();
        Ok(Outcome::Stored {
            revision: revision + 1,
        })
    }

    pub(crate) fn delete_event(
        &mut self,
        event: &str,
        if_revision: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        let key: Box<str> = event.into();
        let old = self.events.get(&key).ok_or(Refusal::EventMissing)?;
        check_revision(if_revision, old.revision)?;
        self.events.remove(&key);
        self.index.plain.clear();
        self.part_with_event(event);
        Ok(Outcome::Done)
    }

    pub(crate) fn put_category(
        &mut self,
        category: &Category,
        if_revision: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        category.check().map_err(Refusal::Invalid)?;
        let old = self.categories.get(&category.id);
        let revision = old.map_or(0, |old| old.revision);
        check_revision(if_revision, revision)?;
        check_count(old.is_some(), self.categories.len(), CATEGORIES_MAX)?;
        let stored = StoredCategory {
            category: category.clone(),
            revision: revision + 1,
        };
        self.categories
            .insert(category.id.clone(), Box::new(stored));
        self.index.plain.clear();
        Ok(Outcome::Stored {
            revision: revision + 1,
        })
    }

    pub(crate) fn delete_category(
        &mut self,
        category: &str,
        if_revision: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        let key: Box<str> = category.into();
        let old = self.categories.get(&key).ok_or(Refusal::UnknownCategory)?;
        check_revision(if_revision, old.revision)?;
        self.categories.remove(&key);
        self.index.plain.clear();
        Ok(Outcome::Done)
    }

    pub(crate) fn put_settings(
        &mut self,
        settings: &Settings,
        if_revision: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        settings.check().map_err(Refusal::Invalid)?;
        check_revision(if_revision, self.header.settings_revision)?;
        self.header.settings = settings.clone();
        self.header.settings_revision += 1;
        self.index.plain.clear();
        self.forget_finished();
        Ok(Outcome::Stored {
            revision: self.header.settings_revision,
        })
    }

    pub(crate) fn put_server(&mut self, definition: &ServerDefinition) -> Result<Outcome, Refusal> {
        definition.check().map_err(Refusal::Invalid)?;
        let known = self.index.fleet.number(&definition.id);
        check_count(known.is_some(), self.servers.len(), SERVERS_MAX)?;
        let number = known.unwrap_or_else(|| {
            self.header.last.server += 1;
            let number = ServerNumber(self.header.last.server);
            self.servers.insert(number, Box::<Server>::default());
            number
        });
        let groups = self
            .servers
            .get(&number)
            .map(|server| server.definition.groups.clone());
        let groups = groups.unwrap_or_default();
        self.index.fleet.define(number, &groups, &definition.groups);
        let mut revision = 0;
        self.change_server(number, |server| {
            server.definition = definition.clone();
            server.revision += 1;
            // Who enables a server wants it to work; a worker that leaves says so again.
            server.draining &= !definition.enabled;
            revision = server.revision;
        });
        self.offer_server(number);
        Ok(Outcome::Stored { revision })
    }

    pub(crate) fn put_override(
        &mut self,
        name: &str,
        sizes: &Override,
    ) -> Result<Outcome, Refusal> {
        sizes.check(name).map_err(Refusal::Invalid)?;
        if let Some(expires_at) = sizes.expires_at
            && expires_at <= self.now()
        {
            let allowed = format!("later than now, {}", self.now());
            let fault = InvalidField::new("expires_at", expires_at, allowed);
            return Err(Refusal::Invalid(fault));
        }
        let known = self.override_of(name).is_some();
        check_count(known, self.index.overrides.len(), OVERRIDES_MAX)?;
        let scope = self.scope_of(name);
        self.change_override(scope, Some(sizes.clone()));
        Ok(Outcome::Done)
    }

    /// Removes an override; where none is, nothing happens.
    pub(crate) fn delete_override(&mut self, name: &str) -> Outcome {
        let scope = self.index.scope_names.get(name).copied();
        if let Some(scope) = scope.filter(|_| self.override_of(name).is_some()) {
            self.change_override(scope, None);
            self.drop_unused_scope(scope);
        }
        Outcome::Done
    }

    /// Removes a window with its count (S32); where none is, nothing happens.
    pub(crate) fn reset(&mut self, name: &str) -> Result<Outcome, Refusal> {
        check_scope_name("id", name).map_err(Refusal::Invalid)?;
        if let Some(scope) = self.index.scope_names.get(name).copied() {
            self.reset_scope(scope);
        }
        Ok(Outcome::Done)
    }

    /// Removes every window (S32). One that is overridden and never expires is among them.
    pub(crate) fn reset_all(&mut self) -> Outcome {
        let open: alloc::vec::Vec<_> = self
            .scopes
            .iter()
            .filter(|(_, scope)| scope.window.is_some())
            .map(|(number, _)| *number)
            .collect();
        for scope in open {
            self.reset_scope(scope);
        }
        Outcome::Done
    }

    fn reset_scope(&mut self, scope: ScopeNumber) {
        let (now, row) = (self.now(), self.scopes.get(&scope));
        let was_open = row.is_some_and(|scope| self.live_window(scope, now).is_some());
        self.close_window(scope);
        self.settle_rate(scope);
        if was_open {
            self.wake_rate_waiters(scope);
        }
        self.drop_unused_scope(scope);
    }

    /// Lets overrides go whose time is over (S36).
    pub(crate) fn end_overrides(&mut self) {
        let now: Instant = self.now();
        while let Some((at, scope)) = self.index.override_ends.first().copied() {
            if at > now {
                break;
            }
            self.change_override(scope, None);
            self.drop_unused_scope(scope);
        }
    }
}
