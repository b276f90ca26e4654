//! One case: a story on one cluster, replayed as the leader would log it.
//!
//! A step becomes one entry, stamped as a leader stamps: never earlier than the stamp before, with
//! the local boundaries of exactly that instant. What a case expects is compared key by key; only
//! what it names counts, except in the random ones (they cite no rule), which name everything.

use fermata_calendar::Zone;
use fermata_pool::Pool;
use fermata_pool::command::{
    Algo, Category, Claim, Command, Entry, Event, EventKind, Executor, Holder, Launch, Node,
    Override, Parent, ResolveLimits, ServerDefinition, Settings,
};
use fermata_pool::job::Note;
use fermata_pool::limits::{
    Align, JobLimit, Limit, LimitKind, Mode, QueueLimit, RateLimit, RetryLimit, Style, TimeLimit,
};
use fermata_pool::outcome::{Outcome, Standing};
use fermata_pool::time::{Boundaries, Instant, Stamp};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;
type Fault = String;

/// Replays a case; gives the number of its steps.
///
/// # Errors
/// Every difference between what was expected and what came, or why the case cannot be read.
pub(crate) fn replay(text: &str) -> Result<usize, Vec<String>> {
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
        Ok(steps.len())
    } else {
        Err(differences)
    }
}

struct Story {
    pool: Pool,
    zone: Zone,
    claim: u64,
    index: u64,
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
            index: 0,
        };
        let mut commands = vec![Command::Takeover, Command::PutSettings(Box::new(settings))];
        for it in list(&given["categories"]) {
            commands.push(Command::PutCategory(category(it)?));
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
        self.index += 1;
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
        let applied = self.pool.apply(self.index, &entry);
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
                id: id.clone(),
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
            Some(false) => commands.extend([put, Command::ServerOffline(holder(&id))]),
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
        let at = |kind: &str, attempt: u32, server: Option<Box<str>>| match server {
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

fn object(value: &Value) -> Result<&Object, Fault> {
    value
        .as_object()
        .ok_or_else(|| format!("{value} is no object"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Result<Box<str>, Fault> {
    value
        .as_str()
        .map(Into::into)
        .ok_or_else(|| format!("{value} is no text"))
}

fn texts(value: &Value) -> Result<Vec<Box<str>>, Fault> {
    list(value).map(text).collect()
}

fn optional_text(value: &Value) -> Result<Option<Box<str>>, Fault> {
    if value.is_null() {
        Ok(None)
    } else {
        text(value).map(Some)
    }
}

fn small(value: &Value) -> Result<Option<u32>, Fault> {
    match value.as_u64() {
        None => Ok(None),
        Some(number) => u32::try_from(number).map(Some).map_err(|it| it.to_string()),
    }
}

/// `2026-03-02T12:00:17.000Z`
fn instant(value: &Value) -> Result<Instant, Fault> {
    let text = value
        .as_str()
        .ok_or_else(|| format!("{value} is no instant"))?;
    let parse = || -> Option<i64> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let mut date = date.splitn(3, '-').map(|it| it.parse::<i64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let mut clock = clock.splitn(3, ':').map(|it| it.parse::<i64>().ok());
        let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
        let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        // Days since 1970 in a calendar whose year begins in March.
        let (year, month) = if month <= 2 {
            (year - 1, month + 9)
        } else {
            (year, month - 3)
        };
        let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = 365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468;
        Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
    };
    parse()
        .map(Instant::from_us)
        .ok_or_else(|| format!("{text:?} is no instant"))
}

fn attempt(value: &Value) -> Result<(Box<str>, u32), Fault> {
    let attempt = small(&value["attempt"])?.ok_or("no attempt")?;
    Ok((text(&value["job"])?, attempt))
}

fn priority(value: &Value) -> Result<Option<i8>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(high) => Ok(Some(i8::from(*high))),
        other => {
            let number = other.as_i64().and_then(|it| i8::try_from(it).ok());
            number
                .map(Some)
                .ok_or_else(|| format!("{other} is no priority"))
        }
    }
}

fn launch(value: &Value) -> Result<Launch, Fault> {
    let parent = match &value["workflow"] {
        Value::Null => None,
        parent => Some(Parent {
            job: text(&parent["job"])?,
            node: text(&parent["node"])?,
        }),
    };
    let executor = match value["executor"].as_str() {
        None => None,
        Some("server") => Some(Executor::Server),
        Some("caller") => Some(Executor::Caller),
        Some(other) => return Err(format!("unknown executor {other:?}")),
    };
    Ok(Launch {
        id: text(&value["id"])?,
        event: optional_text(&value["event"])?,
        priority: priority(&value["priority"])?,
        params: value
            .get("params")
            .map(|params| params.to_string().into_bytes().into()),
        limits: limits(&value["limits"])?,
        targets: value.get("targets").map(texts).transpose()?,
        delay_s: value["delay_s"].as_u64(),
        parent,
        executor,
        lease_s: value["lease_s"].as_u64(),
    })
}

fn event(value: &Value) -> Result<Event, Fault> {
    let kind = match value["type"].as_str() {
        None | Some("event") => EventKind::Event,
        Some("workflow") => EventKind::Workflow,
        Some(other) => return Err(format!("unknown type {other:?}")),
    };
    let algo = match value["algo"].as_str() {
        None | Some("fewest_jobs") => Algo::FewestJobs,
        Some("round_robin") => Algo::RoundRobin,
        Some("prefer_first") => Algo::PreferFirst,
        Some("prefer_last") => Algo::PreferLast,
        Some("random") => Algo::Random,
        Some(other) => return Err(format!("unknown algo {other:?}")),
    };
    let resolve = match value["resolve_limits"].as_str() {
        None | Some("launch") => ResolveLimits::Launch,
        Some("first_start") => ResolveLimits::FirstStart,
        Some(other) => return Err(format!("unknown resolve_limits {other:?}")),
    };
    let node = |value: &Value| -> Result<Node, Fault> {
        Ok(Node {
            id: text(&value["id"])?,
            title: optional_text(&value["title"])?.unwrap_or_default(),
            event: optional_text(&value["event"])?,
            limits: limits(&value["limits"])?,
        })
    };
    Ok(Event {
        id: text(&value["id"])?,
        title: optional_text(&value["title"])?.unwrap_or_default(),
        kind,
        enabled: value["enabled"].as_bool().unwrap_or(true),
        category: optional_text(&value["category"])?,
        limits: limits(&value["limits"])?,
        targets: texts(&value["targets"])?,
        algo,
        priority: priority(&value["priority"])?.unwrap_or(0),
        params: None,
        nodes: list(&value["nodes"]).map(node).collect::<Result<_, _>>()?,
        resolve,
    })
}

fn category(value: &Value) -> Result<Category, Fault> {
    let title = optional_text(&value["title"])?.unwrap_or_default();
    Ok(Category {
        id: text(&value["id"])?,
        title,
        limits: limits(&value["limits"])?,
    })
}

fn settings(value: &Value) -> Result<Settings, Fault> {
    let mut settings = Settings {
        // Leases do not run out in cases, and nothing is forgotten.
        retention_s: 366 * 86_400,
        ..Settings::default()
    };
    if let Some(seconds) = small(&value["start_timeout_s"])? {
        settings.start_timeout_s = seconds;
    }
    if let Some(attempts) = small(&value["max_start_attempts"])? {
        settings.max_start_attempts = attempts;
    }
    let universal = &value["universal_limits"];
    settings.universal_event_limits = limits(&universal["default"])?;
    settings.universal_workflow_limits = limits(&universal["workflow"])?;
    Ok(settings)
}

fn sizes(value: &Value) -> Result<Override, Fault> {
    let expires_at = match &value["expires_at"] {
        Value::Null => None,
        at => Some(instant(at)?),
    };
    Ok(Override {
        count: small(&value["count"])?,
        window_s: small(&value["window_s"])?,
        amount: small(&value["amount"])?,
        expires_at,
        note: "".into(),
    })
}

fn limits(value: &Value) -> Result<Vec<Limit>, Fault> {
    list(value).map(limit).collect()
}

fn limit(value: &Value) -> Result<Limit, Fault> {
    let style = match value["style"].as_str() {
        None => None,
        Some("fixed") => Some(Style::Fixed),
        Some("sliding") => Some(Style::Sliding),
        Some("token_bucket") => Some(Style::TokenBucket),
        Some(other) => return Err(format!("unknown style {other:?}")),
    };
    let align = match value["align"].as_str() {
        None => None,
        Some("local") => Some(Align::Local),
        Some("utc") => Some(Align::Utc),
        Some(other) => return Err(format!("unknown align {other:?}")),
    };
    let mode = match value["mode"].as_str() {
        None => None,
        Some("wait") => Some(Mode::Wait),
        Some("skip") => Some(Mode::Skip),
        Some(other) => return Err(format!("unknown mode {other:?}")),
    };
    let number = |key: &str| value[key].as_u64();
    let needed = |key: &str| number(key).ok_or_else(|| format!("a limit without {key}"));
    let kind = match value["type"].as_str() {
        Some("job") => LimitKind::Job(JobLimit {
            amount: number("amount").unwrap_or(0),
            rate: number("rate").unwrap_or(0),
            window: number("window"),
            cap_key: optional_text(&value["cap_key"])?,
            style,
            align,
            burst: number("burst"),
            mode,
            weight: number("weight"),
        }),
        Some("queue") => LimitKind::Queue(QueueLimit {
            amount: number("amount").unwrap_or(0),
        }),
        Some("rate") => LimitKind::Rate(RateLimit {
            key: text(&value["key"])?,
            count: needed("count")?,
            per_seconds: needed("per_seconds")?,
            style,
            burst: number("burst"),
            mode,
        }),
        Some("time") => LimitKind::Time(TimeLimit {
            duration: needed("duration")?,
        }),
        Some("retry") => LimitKind::Retry(RetryLimit {
            amount: needed("amount")?,
            duration: number("duration").unwrap_or(0),
            backoff: number("backoff"),
        }),
        other => return Err(format!("unknown type of limit {other:?}")),
    };
    Ok(Limit {
        enabled: value["enabled"].as_bool().unwrap_or(true),
        kind,
    })
}
