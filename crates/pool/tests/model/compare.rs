//! Everything in which the pool and the list differ.

use crate::commands::Answer;
use crate::history::{Fact, Gate, Lease, Model, Scope};
use crate::terms;
use fermata_pool::Pool;
use fermata_pool::command::{Claim, Command, Executor};
use fermata_pool::job::Note;
use fermata_pool::outcome::{Move, NotLeader, Outcome, Reason};
use fermata_pool::scope as pool_scope;
use fermata_pool::time::Instant;
use std::fmt::Debug;

/// The first difference, in words.
pub(crate) type Differs = Result<(), String>;

#[expect(
    clippy::needless_pass_by_value,
    reason = "what is compared is made on the spot"
)]
fn same<T: PartialEq + Debug>(what: impl Into<String>, model: T, pool: T) -> Differs {
    if model == pool {
        return Ok(());
    }
    let what = what.into();
    Err(format!(
        "{what}: the list says {model:?}, the pool {pool:?}"
    ))
}

/// Compares what was answered.
pub(crate) fn answers(
    model: &Result<Vec<Answer>, Claim>,
    pool: &Result<Vec<Outcome>, NotLeader>,
) -> Differs {
    let pool = match pool {
        Ok(outcomes) => Ok(outcomes.iter().map(answer).collect::<Vec<_>>()),
        Err(refused) => Err(refused.claim),
    };
    same("answers", model, &pool)
}

fn answer(outcome: &Outcome) -> Answer {
    match outcome {
        Outcome::Done => Answer::Done,
        Outcome::Stored { revision } => Answer::Stored(*revision),
        Outcome::Refused(refusal) => Answer::Refused(refusal.code()),
        Outcome::Job(job) => Answer::Job {
            job: Box::from(&*job.job),
            standing: job.standing.clone(),
            repeated: job.repeated,
        },
    }
}

/// Compares everything that can be seen of the state.
pub(crate) fn states(model: &Model, pool: &Pool) -> Differs {
    same("now", model.now(), pool.stamp().at)?;
    same("claim", model.claim(), pool.claim())?;
    same("takeovers", model.takeovers() as u64, pool.takeovers())?;
    jobs(model, pool)?;
    queues(model, pool)?;
    windows(model, pool)?;
    servers(model, pool)?;
    leases(model, pool)?;
    stats(model, pool)?;
    same("next deadline", model.next_deadline(), pool.next_deadline())?;
    pool.check_invariants()
}

fn jobs(model: &Model, pool: &Pool) -> Differs {
    let jobs = model.jobs();
    let kept: Vec<_> = jobs.iter().filter(|job| !job.forgotten).collect();
    let ended = kept.iter().filter(|job| job.is_final()).count();
    let counts = ((kept.len() - ended) as u64, ended as u64);
    let now = pool.job_counts();
    let unfinished = now.delayed + now.queued + now.starting + now.active;
    same(
        "unfinished and finished jobs",
        counts,
        (unfinished, now.finished),
    )?;
    for job in kept {
        let id = job.id();
        let standing = Some(model.standing(job.number));
        same(format!("standing of {id}"), standing, pool.standing(id))?;
        let view = pool.job(id).ok_or("no view of a job that stands")?;
        same(format!("attempts of {id}"), job.attempt, view.job.attempt)?;
        same(format!("retries of {id}"), job.retries, view.job.retries)?;
        if !job.is_final() {
            same(format!("timeouts of {id}"), job.timeouts, view.job.timeouts)?;
            same(
                format!("limits of {id}"),
                job.limits.map(<[_]>::to_vec),
                Some(&view.terms.limits)
                    .filter(|_| view.job.unresolved.is_none())
                    .map(|limits| limits.iter().map(|it| it.limit.clone()).collect()),
            )?;
            let name = job.limits.map(|_| terms::pool_of(job).to_string());
            same(format!("pool of {id}"), name, pool.pool_name(&view))?;
        }
        let mut warned: Vec<&str> = Vec::new();
        let mut left_out = false;
        for line in &view.job.meta {
            match &line.note {
                Note::Differs(difference) => {
                    warned.push(&difference.what);
                    let with = job
                        .warnings
                        .iter()
                        .find(|(what, _)| *what == &*difference.what);
                    let named = |other: &usize| jobs[*other].id() == &*difference.job;
                    if !with.is_some_and(|(_, differing)| differing.iter().any(named)) {
                        return Err(format!(
                            "{id} warns of {difference:?}, which does not differ"
                        ));
                    }
                }
                Note::LinesLeftOut => left_out = true,
                _ => {}
            }
        }
        let warns: Vec<&str> = job.warnings.iter().map(|(what, _)| *what).collect();
        if !left_out {
            same(format!("warnings of {id}"), warns, warned)?;
        }
    }
    Ok(())
}

fn queues(model: &Model, pool: &Pool) -> Differs {
    let jobs = model.jobs();
    let mut names: Vec<Scope> = jobs
        .iter()
        .filter(|job| job.limits.is_some())
        .map(terms::pool_of)
        .collect();
    names.sort();
    names.dedup();
    let heads = model.heads();
    for name in &names {
        let queue = model.queue(name);
        let waiting: Vec<&str> = queue.iter().map(|it| jobs[*it].id()).collect();
        let found: Vec<&str> = pool.queue(name).collect();
        same(format!("queue of {name}"), waiting, found)?;
        let view = pool.pool(name, Instant::EPOCH);
        let running = view.as_ref().map_or(0, |view| view.running as usize);
        same(format!("running in {name}"), model.running(name), running)?;
        let head = heads
            .iter()
            .find(|head| terms::pool_of(&jobs[**head]) == *name);
        let gate = head.map(|head| (jobs[*head].id(), model.waits_for(*head)));
        let found = view.as_ref().and_then(|view| view.head).map(|(id, gate)| {
            let gate = match gate {
                pool_scope::Gate::Due => None,
                pool_scope::Gate::Slot => Some(Gate::Slot),
                pool_scope::Gate::Server => Some(Gate::Server),
                pool_scope::Gate::Rate(number) => {
                    pool.scope_name(number).map(|name| Gate::Rate(name.into()))
                }
            };
            (id, gate)
        });
        same(format!("head of {name}"), gate, found)?;
    }
    for view in pool.pools("", Instant::EPOCH) {
        if view.waiting > 0 && !names.iter().any(|name| **name == *view.name) {
            return Err(format!("{} has a queue that nobody is in", view.name));
        }
    }
    Ok(())
}

fn windows(model: &Model, pool: &Pool) -> Differs {
    let open: Vec<_> = model
        .scopes()
        .into_iter()
        .filter_map(|scope| model.window(&scope).map(|window| (scope, window)))
        .filter(|(_, window)| window.is_shown())
        .collect();
    let names: Vec<&str> = open.iter().map(|(scope, _)| &**scope).collect();
    let found: Vec<&str> = pool.windows("", Instant::EPOCH).map(|it| it.name).collect();
    same("windows", names, found)?;
    for (scope, window) in &open {
        let found = pool
            .window(scope, Instant::EPOCH)
            .ok_or("a listed window")?;
        let what = |what: &str| format!("{what} of {scope}");
        same(what("count"), window.count(), found.count as usize)?;
        same(what("max"), window.max(), found.max)?;
        same(what("length"), window.window_s(), found.settings.window_s)?;
        same(what("style"), window.settings.style, found.settings.style)?;
        same(what("expires_at"), window.expires_at(), found.expires_at)?;
    }
    let overrides: Vec<_> = model
        .scopes()
        .into_iter()
        .filter_map(|scope| Some((scope.to_string(), model.override_of(&scope)?.clone())))
        .collect();
    let found: Vec<_> = pool
        .overrides("")
        .map(|(name, sizes)| (name.to_string(), sizes.clone()))
        .collect();
    same("overrides", overrides, found)
}

fn servers(model: &Model, pool: &Pool) -> Differs {
    let servers = model.servers();
    let jobs = model.jobs();
    let ids: Vec<&str> = servers.iter().map(|it| &*it.definition.id).collect();
    let found: Vec<&str> = pool.servers("").map(|it| &*it.definition.id).collect();
    same("servers", ids, found)?;
    for server in &servers {
        let id = &*server.definition.id;
        let held: Vec<&str> = jobs
            .iter()
            .filter(|job| job.server() == Some(id))
            .map(crate::history::Job::id)
            .collect();
        let found: Vec<&str> = pool.held_by(id).map(|view| &*view.job.id).collect();
        same(format!("held by {id}"), held, found)?;
        let view = pool.server(id).ok_or("a listed server")?;
        same(format!("{id} online"), server.online, view.online)?;
        same(format!("{id} draining"), server.draining, view.draining)?;
        same(format!("{id} heard"), server.lease.heard_at, view.heard_at)?;
        let seen_under = server.lease.seen_under as u64;
        same(format!("{id} seen"), seen_under, view.seen_under)?;
    }
    Ok(())
}

fn leases(model: &Model, pool: &Pool) -> Differs {
    let takeovers = model.takeovers();
    let leased: Vec<_> = model
        .jobs()
        .iter()
        .filter(|job| !job.is_final())
        .filter(|job| job.plan.executor == Executor::Caller)
        .map(|job| {
            let Lease {
                heard_at,
                seen_under,
            } = job.lease;
            let id = job.id().to_string();
            (id, job.plan.lease_s, heard_at, seen_under == takeovers)
        })
        .collect();
    let found: Vec<_> = pool
        .leases()
        .map(|it| (it.job.to_string(), it.lease_s, it.heard_at, it.seen))
        .collect();
    same("leases", leased, found)
}

/// Compares what is counted with how often it happened since the last reset (S44).
fn stats(model: &Model, pool: &Pool) -> Differs {
    let reset = |fact: &Fact| matches!(fact, Fact::Told(Command::ResetStats));
    let since = model.facts.iter().rposition(reset).unwrap_or(0);
    let facts = &model.facts[since..];
    let count =
        |counts: &dyn Fn(&Fact) -> bool| facts.iter().filter(|fact| counts(fact)).count() as u64;
    let ended = |wanted: &dyn Fn(&Result<i32, Reason>) -> bool| {
        count(&|fact| matches!(fact, Fact::Ended { result, .. } if wanted(result)))
    };
    let stats = pool.stats();
    let taken = |fact: &Fact| match fact {
        Fact::Started(start) => start.taken.len() as u64,
        _ => 0,
    };
    let counted = [
        (
            "launched",
            count(&|it| matches!(it, Fact::Launched { .. })),
            stats.launched,
        ),
        (
            "started",
            count(&|it| matches!(it, Fact::Started(_))),
            stats.started,
        ),
        (
            "confirmed",
            count(&|it| matches!(it, Fact::Confirmed(_))),
            stats.confirmed,
        ),
        (
            "put back",
            count(&|it| matches!(it, Fact::PutBack { .. })),
            stats.put_back,
        ),
        ("succeeded", ended(&|it| *it == Ok(0)), stats.succeeded),
        (
            "failed",
            ended(&|it| matches!(it, Ok(code) if *code != 0)),
            stats.failed,
        ),
        ("acquired", facts.iter().map(taken).sum(), stats.acquired),
        (
            "throttled",
            count(&|it| matches!(it, Fact::Throttled)),
            stats.throttled,
        ),
    ];
    for (what, model, pool) in counted {
        same(format!("count of {what}"), model, pool)?;
    }
    for (reason, pool) in Reason::ALL.into_iter().zip(stats.aborted) {
        same(reason.code(), ended(&|it| *it == Err(reason)), pool)?;
    }
    Ok(())
}

/// The last move of each job in an entry is how it stands (S36: moves are hints).
pub(crate) fn moves(moves: &[Move], pool: &Pool) -> Differs {
    for (place, last) in moves.iter().enumerate() {
        if moves[place + 1..].iter().all(|later| later.job != last.job)
            && let Some(standing) = pool.standing(&last.job)
        {
            same(
                format!("last move of {}", last.job),
                standing,
                last.standing.clone(),
            )?;
        }
    }
    Ok(())
}

/// A window keeps its number while it is open, and no other opening ever has it (S26).
pub(crate) fn openings(known: &mut Vec<(usize, u64)>, model: &Model, pool: &Pool) -> Differs {
    for scope in model.scopes() {
        let (Some(window), Some(found)) = (model.window(&scope), pool.window(&scope, model.now()))
        else {
            continue;
        };
        let pair = (window.number, found.number);
        let clashes = |it: &&(usize, u64)| (it.0 == pair.0) != (it.1 == pair.1);
        if let Some(other) = known.iter().find(clashes) {
            return Err(format!(
                "{scope} is opening {pair:?}, but {other:?} was seen before"
            ));
        }
        if !known.contains(&pair) {
            known.push(pair);
        }
    }
    Ok(())
}
