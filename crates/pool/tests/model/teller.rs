//! Makes entries of what was drawn: it has a meaning only where the story has come to.

use crate::draws::id;
use crate::history::{Model, Phase};
use crate::world::{JOBS_MAX, Leader, Passes, Sender, Story, Turn, Wish, ZONES};
use fermata_calendar::Zone;
use fermata_pool::command::{Claim, Command, Entry, Holder, Parent};
use fermata_pool::time::{Boundaries, Instant, Stamp};
use std::sync::LazyLock;

/// Farthest that an entry goes ahead, in seconds.
const AHEAD_S_MAX: u64 = 400 * 86_400;

/// A zone, made once: that takes longer than a story.
fn zone(name: &str) -> Zone {
    static MADE: LazyLock<Vec<Zone>> = LazyLock::new(|| {
        let made = |name: &&str| Zone::built_in(name).expect("a zone that is built in");
        ZONES.iter().map(made).collect()
    });
    let zone = MADE.iter().find(|zone| zone.name() == name);
    zone.expect("a zone of the list").clone()
}

/// Makes entries of what was drawn, as a leader would where the story has come to.
pub(crate) struct Teller {
    zone: Zone,
    claim: u64,
}

impl Teller {
    pub(crate) fn new(story: &Story) -> Teller {
        Teller {
            zone: zone(story.zone),
            claim: 0,
        }
    }

    pub(crate) fn stamp(&self, at: Instant) -> Stamp {
        let local = self.zone.boundaries_after(at.us());
        let boundaries = Boundaries {
            second: Instant::from_us(local.second_us),
            minute: Instant::from_us(local.minute_us),
            hour: Instant::from_us(local.hour_us),
            day: Instant::from_us(local.day_us),
        };
        Stamp { at, boundaries }
    }

    pub(crate) fn begin(&mut self, story: &Story) -> Entry {
        self.claim = 1;
        let mut commands = vec![Command::Takeover];
        commands.extend(story.given.iter().cloned());
        Entry {
            claim: Claim(self.claim),
            stamp: self.stamp(Instant::from_us(story.begins_us)),
            commands,
        }
    }

    pub(crate) fn entry(&mut self, turn: &Turn, model: &Model) -> Entry {
        let mut commands = Vec::new();
        let mut claim = self.claim;
        match turn.leader {
            Leader::Same => {}
            Leader::New { zone: name } => {
                self.claim += 1;
                claim = self.claim;
                self.zone = zone(name);
                commands.push(Command::Takeover);
            }
            Leader::Old { takes_over } => {
                claim -= 1;
                commands.extend(takes_over.then_some(Command::Takeover));
            }
        }
        let at = self.instant(&turn.passes, model);
        let launched = model.jobs().len();
        for wish in &turn.wishes {
            let ahead = commands
                .iter()
                .filter(|it| matches!(it, Command::Launch(_)));
            let next = launched + ahead.count();
            commands.extend(command(wish, model, next, at));
        }
        Entry {
            claim: Claim(claim),
            stamp: self.stamp(at),
            commands,
        }
    }

    fn instant(&self, passes: &Passes, model: &Model) -> Instant {
        let now = model.now();
        let (ahead, slip) = match passes {
            Passes::Us(us) => return now.plus_us(*us),
            Passes::ToDeadline(slip) => (model.next_deadline(), *slip),
            Passes::ToEnd(nth, slip) => {
                let windows = model.scopes();
                let windows = windows.iter().filter_map(|scope| model.window(scope));
                let mut ends: Vec<Instant> = windows.filter_map(|it| it.expires_at()).collect();
                ends.sort();
                let end = ends.get(usize::from(*nth) % ends.len().max(1));
                (end.copied(), *slip)
            }
        };
        // A bucket of a million tokens is full only after the last instant there is.
        let near = |ahead: &Instant| *ahead < now.plus_s(AHEAD_S_MAX);
        ahead.filter(near).map_or(now, |ahead| ahead.plus_us(slip))
    }
}

/// The place of a job in one of these states, if there is one; sometimes, and otherwise, of any.
fn meant(model: &Model, drawn: u8, fits: impl Fn(Phase) -> bool) -> Option<usize> {
    let jobs = model.jobs();
    let fitting: Vec<usize> = jobs
        .iter()
        .filter(|job| fits(job.phase))
        .map(|job| job.number)
        .collect();
    let drawn = usize::from(drawn);
    if fitting.is_empty() || drawn % 8 == 7 {
        return (!jobs.is_empty()).then(|| drawn / 8 % jobs.len());
    }
    Some(fitting[drawn / 8 % fitting.len()])
}

fn unfinished(phase: Phase) -> bool {
    !matches!(phase, Phase::Ended(_))
}

/// The job that is meant, the attempt that is named, and who names it.
fn about_attempt(
    model: &Model,
    job: u8,
    fits: Phase,
    attempt: i8,
    from: Sender,
) -> Option<(Box<str>, u32, Option<Holder>)> {
    let job = model.job(meant(model, job, |phase| phase == fits)?);
    let attempt = job.attempt.saturating_add_signed(attempt.into());
    let server = match from {
        Sender::Unnamed => None,
        Sender::Holder => job.server().map(Into::into),
        Sender::Other(number) => Some(id("s", number % 3)),
    };
    let from = server.map(|server: Box<str>| {
        let known = model.server(&server);
        let lives = known.map_or(Vec::new(), |it| it.incarnations);
        let incarnation = match from {
            Sender::Other(number) if number > 127 => lives.first(),
            _ => lives.last(),
        };
        let incarnation = incarnation.map_or("i0", |it| it).into();
        Holder {
            server,
            incarnation,
        }
    });
    let job: Box<str> = job.id().into();
    Some((job, attempt, from))
}

fn command(wish: &Wish, model: &Model, next: usize, at: Instant) -> Option<Command> {
    let named = |job: &u8| {
        let number = meant(model, *job, unfinished)?;
        Some(model.job(number).id().into())
    };
    let about = |job: &u8, fits: Phase, attempt: i8, from: Sender| {
        about_attempt(model, *job, fits, attempt, from)
    };
    Some(match wish {
        Wish::Plain(command) => command.clone(),
        Wish::Launch(_, _) if next >= JOBS_MAX => return None,
        Wish::Launch(launch, parent) => {
            let mut launch = launch.clone();
            launch.id = format!("j{next}").into();
            launch.parent = parent.and_then(|(job, node)| {
                let parents = model.jobs();
                let parents: Vec<_> = parents.iter().filter(|it| it.plan.workflow).collect();
                let parent = parents.get(usize::from(job) % parents.len().max(1))?;
                Some(Parent {
                    job: parent.id().into(),
                    node: id("n", node),
                })
            });
            Command::Launch(launch)
        }
        Wish::LaunchAgain { job, other } => {
            let number = usize::from(*job) % model.jobs().len().max(1);
            let jobs = model.jobs();
            let mut launch = jobs.get(number)?.request.clone();
            if *other {
                launch.delay_s = Some(launch.delay_s.map_or(3, |it| it + 1));
            }
            Command::Launch(Box::new(launch))
        }
        Wish::Started { job, attempt, from } => {
            let (job, attempt, from) = about(job, Phase::Starting, *attempt, *from)?;
            Command::Started { job, attempt, from }
        }
        Wish::Completed {
            job,
            attempt,
            code,
            from,
        } => {
            let (job, attempt, from) = about(job, Phase::Active, *attempt, *from)?;
            Command::Completed {
                job,
                attempt,
                code: *code,
                description: "".into(),
                from,
            }
        }
        Wish::Missing { job, attempt, from } => {
            let (job, attempt, from) = about(job, Phase::Active, *attempt, *from)?;
            Command::AttemptMissing {
                job,
                attempt,
                from: from?,
            }
        }
        Wish::StartActionFailed { job, attempt } => {
            let (job, attempt, _) = about(job, Phase::Starting, *attempt, Sender::Unnamed)?;
            Command::StartActionFailed {
                job,
                attempt,
                description: "".into(),
            }
        }
        Wish::Cancel(job) => Command::Cancel { job: named(job)? },
        Wish::CallerSeen(job) => Command::CallerSeen { job: named(job)? },
        Wish::LeaseExpired(job) => Command::LeaseExpired { job: named(job)? },
        Wish::Override {
            scope,
            sizes,
            ends_ms,
        } => {
            let mut sizes = sizes.clone();
            let now = at.max(model.now());
            sizes.expires_at = ends_ms.map(|ms| now.plus_us(ms * 1_000));
            Command::PutOverride {
                scope: scope.clone(),
                sizes,
            }
        }
    })
}
