//! One case: a story on one cluster, replayed as the leader would log it.
//!
//! A step becomes one entry, stamped as a leader stamps: never earlier than the stamp before, with
//! the local boundaries of exactly that instant. What a case expects is compared key by key; only
//! what it names counts, except in the random ones (they cite no rule), which name everything.

#[path = "words.rs"]
mod words;

use fermata_calendar::Zone;
use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Entry, Holder, ServerDefinition};
use fermata_pool::job::Note;
use fermata_pool::limits::Style;
use fermata_pool::outcome::{Outcome, Standing};
use fermata_pool::time::{Boundaries, Instant, Stamp};
use serde_json::{Value, json};
use std::sync::Arc;
use words::{
    Fault, attempt, category, event, instant, launch, list, object, settings, sizes, text, texts,
};

/// Replays a case; gives the log that it came to, which begins with what is given.
///
/// # Errors
/// Every difference between what was expected and what came, or why the case cannot be read.
pub(crate) fn replay(text: &str) -> Result<Vec<Entry>, Vec<String>> {
    let case: Value = serde_json::from_str(text).map_err(|fault| vec![fault.to_string()])?;
    let mut story = Story::begin(&case).map_err(|fault| vec![fault])?;
    let steps = case["steps"]
        .as_array()
        .ok_or_else(|| vec!["no steps".to_string()])?;
    let whole = case["rules"].as_array().is_none_or(Vec::is_empty);
    let mut differences = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match story.step(step) {
            Err(fault) => {
                differences.push(format!("step {number}: {fault}"));
                break;
            }
            Ok(rejected) => {
                let found = story.compare(&step["expect"], rejected.as_deref(), whole);
                differences.extend(
                    found
                        .into_iter()
                        .map(|it| format!("step {number} at {}: {it}", step["at"])),
                );
            }
        }
    }
    if differences.is_empty() {
        Ok(story.log)
    } else {
        Err(differences)
    }
}

struct Story {
    pool: Pool,
    zone: Zone,
    claim: u64,
    log: Vec<Entry>,
}

impl Story {
    fn begin(case: &Value) -> Result<Story, Fault> {
        let zone = zone(case["time_zone"].as_str().unwrap_or("UTC"))?;
        let given = &case["given"];
        let settings = settings(&given["settings"])?;
        let mut story = Story {
            pool: Pool::new(),
            zone,
            claim: 1,
            log: Vec::new(),
        };
        let settings = Command::PutSettings {
            settings: Box::new(settings),
            if_revision: None,
        };
        let mut commands = vec![Command::Takeover, settings];
        for it in list(&given["categories"]) {
            commands.push(Command::PutCategory {
                category: Box::new(category(it)?),
                if_revision: None,
            });
        }
        for it in list(&given["events"]) {
            commands.push(Command::PutEvent {
                event: Box::new(event(it)?),
                if_revision: None,
            });
        }
        for it in list(&given["servers"]) {
            commands.extend(story.put_server(it)?);
        }
        if let Some(refused) = story.apply(Instant::EPOCH, commands)? {
            return Err(format!("what is given is refused: {refused}"));
        }
        Ok(story)
    }

    fn apply(&mut self, at: Instant, commands: Vec<Command>) -> Result<Option<String>, Fault> {
        let at = at.max(self.pool.stamp().at);
        let local = self.zone.boundaries_after(at.us());
        let boundaries = Boundaries {
            second: Instant::from_us(local.second_us),
            minute: Instant::from_us(local.minute_us),
            hour: Instant::from_us(local.hour_us),
            day: Instant::from_us(local.day_us),
        };
        let stamp = Stamp { at, boundaries };
        let entry = Entry {
            claim: Claim(self.claim),
            stamp,
            commands,
        };
        let applied = self.pool.apply(self.log.len() as u64 + 1, &entry);
        self.log.push(entry);
        let outcomes = applied.outcomes.map_err(|fault| format!("{fault:?}"))?;
        self.pool.check_invariants()?;
        Ok(outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Refused(refusal) => Some(refusal.code().to_string()),
            _ => None,
        }))
    }

    /// Does one step, and gives the code with which it was refused, if it was.
    fn step(&mut self, step: &Value) -> Result<Option<String>, Fault> {
        let at = instant(&step["at"])?;
        let step = object(step)?;
        let mut done = step
            .iter()
            .filter(|(key, _)| *key != "at" && *key != "expect");
        let (key, value) = done.next().ok_or("a step does nothing")?;
        if done.next().is_some() {
            return Err("a step does more than one thing".to_string());
        }
        let commands = match key.as_str() {
            "launch" => vec![Command::Launch(Box::new(launch(value)?))],
            "started" => {
                let (job, attempt) = attempt(value)?;
                vec![Command::Started {
                    job,
                    attempt,
                    from: None,
                }]
            }
            "completed" => {
                let (job, attempt) = attempt(value)?;
                let code = value["code"].as_i64().and_then(|it| i32::try_from(it).ok());
                let code = code.ok_or("completed has no code")?;
                vec![Command::Completed {
                    job,
                    attempt,
                    code,
                    description: "".into(),
                    from: None,
                }]
            }
            "cancel" => vec![Command::Cancel { job: text(value)? }],
            "put_event" => {
                let event = Box::new(event(value)?);
                vec![Command::PutEvent {
                    event,
                    if_revision: None,
                }]
            }
            "delete_event" => {
                vec![Command::DeleteEvent {
                    event: text(value)?,
                    if_revision: None,
                }]
            }
            "put_server" => self.put_server(value)?,
            "server_lost" => vec![Command::ServerLost(holder(&text(value)?))],
            "reset" => vec![Command::Reset {
                scope: text(value)?,
            }],
            "reset_all" => vec![Command::ResetAll],
            "override" => {
                vec![Command::PutOverride {
                    scope: text(&value["id"])?,
                    sizes: sizes(value)?,
                }]
            }
            "clear_override" => vec![Command::DeleteOverride {
                scope: text(value)?,
            }],
            "takeover" => {
                if let Some(name) = value["time_zone"].as_str() {
                    self.zone = zone(name)?;
                }
                self.claim += 1;
                vec![Command::Takeover]
            }
            "tick" => Vec::new(),
            other => return Err(format!("unknown step {other:?}")),
        };
        self.apply(at, commands)
    }

    /// A server's definition merged over the one that is there, and whether it is online.
    fn put_server(&self, value: &Value) -> Result<Vec<Command>, Fault> {
        let id = text(&value["id"])?;
        let there = self.pool.server(&id);
        let mut definition = there.map_or_else(
            || ServerDefinition {
                id: Arc::from(&*id),
                enabled: true,
                ..ServerDefinition::default()
            },
            |server| server.definition.clone(),
        );
        if !value["groups"].is_null() {
            definition.groups = texts(&value["groups"])?;
        }
        if let Some(max_jobs) = value["max_jobs"].as_u64() {
            definition.max_jobs = Some(u32::try_from(max_jobs).map_err(|it| it.to_string())?);
        }
        definition.enabled = value["enabled"].as_bool().unwrap_or(definition.enabled);
        let online = value["online"]
            .as_bool()
            .or(there.is_none().then_some(true));
        let mut commands = Vec::new();
        let put = Command::PutServer(definition);
        match online {
            None => commands.push(put),
            Some(true) => commands.extend([put, Command::ServerSeen(holder(&id))]),
            Some(false) => {
                commands.push(put);
                // One that was never heard is offline already.
                commands.extend(there.map(|_| Command::ServerOffline(holder(&id))));
            }
        }
        Ok(commands)
    }

    /// Everything in which the state is not what is expected.
    fn compare(&self, expect: &Value, rejected: Option<&str>, whole: bool) -> Vec<String> {
        let mut differences = Vec::new();
        let mut differ = |what: &str, expected: &Value, came: &Value| {
            if expected != came {
                differences.push(format!("{what}: expected {expected}, came {came}"));
            }
        };
        if whole || !expect["rejected"].is_null() {
            differ("rejected", &expect["rejected"], &json!(rejected));
        }
        if let Some(jobs) = expect["jobs"].as_object() {
            for (id, expected) in jobs {
                differ(id, expected, &self.job(id));
            }
        }
        if let Some(windows) = expect["windows"].as_object() {
            if whole || windows.is_empty() {
                let open: Vec<&str> = self
                    .pool
                    .windows("", Instant::EPOCH)
                    .map(|window| window.name)
                    .collect();
                differ(
                    "windows",
                    &json!(windows.keys().collect::<Vec<_>>()),
                    &json!(open),
                );
            }
            for (id, expected) in windows {
                let came = self.window(id);
                for (key, expected) in expected.as_object().into_iter().flatten() {
                    differ(&format!("window {id} {key}"), expected, &came[key]);
                }
            }
        }
        if let Some(queues) = expect["queues"].as_object() {
            if whole {
                let waiting: Vec<&str> = self
                    .pool
                    .pools("", Instant::EPOCH)
                    .filter(|pool| pool.waiting > 0)
                    .map(|pool| pool.name)
                    .collect();
                differ(
                    "queues",
                    &json!(queues.keys().collect::<Vec<_>>()),
                    &json!(waiting),
                );
            }
            for (id, expected) in queues {
                let came: Vec<&str> = self.pool.queue(id).collect();
                differ(&format!("queue {id}"), expected, &json!(came));
            }
        }
        for (id, expected) in expect["warnings"].as_object().into_iter().flatten() {
            differ(
                &format!("warnings of {id}"),
                expected,
                &json!(self.warnings(id)),
            );
        }
        if let Some(expected) = expect.get("wakes_at") {
            let came = self.pool.next_deadline().map(|at| at.to_string());
            differ("wakes_at", expected, &json!(came));
        }
        differences
    }

    fn job(&self, id: &str) -> Value {
        let at = |kind: &str, attempt: u32, server: Option<Arc<str>>| match server {
            Some(server) => json!(format!("{kind}#{attempt}@{server}")),
            None => json!(format!("{kind}#{attempt}")),
        };
        match self.pool.standing(id) {
            None => Value::Null,
            Some(Standing::Delayed) => json!("delayed"),
            Some(Standing::Queued) => json!("queued"),
            Some(Standing::Starting { attempt, server }) => at("starting", attempt, server),
            Some(Standing::Active { attempt, server }) => at("active", attempt, server),
            Some(Standing::Complete { code }) => json!(format!("complete:{code}")),
            Some(Standing::Aborted { reason }) => json!(format!("aborted:{}", reason.code())),
        }
    }

    fn window(&self, id: &str) -> Value {
        self.pool
            .window(id, Instant::EPOCH)
            .map_or(Value::Null, |window| {
                let count = match window.settings.style {
                    Style::TokenBucket => "tokens",
                    Style::Fixed | Style::Sliding => "count",
                };
                json!({
                    count: window.count,
                    "max": window.max,
                    "expires_at": window.expires_at.map(|at| at.to_string()),
                })
            })
    }

    fn warnings(&self, id: &str) -> usize {
        let meta = self.pool.job(id).map(|view| &view.job.meta);
        let lines = meta.into_iter().flatten();
        lines
            .filter(|line| matches!(line.note, Note::Differs(_)))
            .count()
    }
}

fn zone(name: &str) -> Result<Zone, Fault> {
    Zone::named(name).map_err(|fault| fault.to_string())
}

fn holder(server: &str) -> Holder {
    Holder {
        server: server.into(),
        incarnation: "first".into(),
    }
}
