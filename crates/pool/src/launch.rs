//! Launching: from a request to a job that started, waits, is delayed or was aborted.

use crate::apply::Answer;
use crate::command::{
    Event, EventKind, Executor, Launch, Node, PARAMS_BYTES_MAX, Parent, ResolveLimits, TARGETS_MAX,
};
use crate::consideration::Considered;
use crate::digest::hash_of;
use crate::id::check_id;
use crate::job::{
    Difference, Job, JobNumber, Lease, Note, Params, ScopeNumber, State, TermsNumber, Unresolved,
};
use crate::limits::validate;
use crate::limits::{DURATION_S_MAX, InvalidField, LIMITS_MAX, Limit, LimitKind, within};
use crate::members::Interned;
use crate::outcome::{Reason, Refusal};
use crate::queue::order;
use crate::state::{Pool, Turn};
use crate::terms::{Source, SourcedLimit, Terms, by_precedence};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Least and greatest priority (S19).
pub const PRIORITY_MIN: i8 = -100;
/// See [`PRIORITY_MIN`].
pub const PRIORITY_MAX: i8 = 100;

/// Refuses targets that are no names, or too many of them.
pub(crate) fn check_targets(field: &str, targets: &[Box<str>]) -> Result<(), InvalidField> {
    if targets.len() > TARGETS_MAX {
        let given = format!("{} targets", targets.len());
        return Err(InvalidField::new(
            field,
            given,
            format!("at most {TARGETS_MAX}"),
        ));
    }
    targets
        .iter()
        .enumerate()
        .try_for_each(|(at, it)| check_id(&format!("{field}[{at}]"), it))
}

/// Refuses a priority out of range.
pub(crate) fn check_priority(priority: i8) -> Result<(), InvalidField> {
    if (PRIORITY_MIN..=PRIORITY_MAX).contains(&priority) {
        return Ok(());
    }
    Err(InvalidField::new(
        "priority",
        priority,
        format!("{PRIORITY_MIN} to {PRIORITY_MAX}"),
    ))
}

/// Refuses parameters that are longer than allowed.
pub(crate) fn check_params(params: Option<&[u8]>, bytes_max: u32) -> Result<(), InvalidField> {
    let most = usize::try_from(bytes_max)
        .unwrap_or(usize::MAX)
        .min(PARAMS_BYTES_MAX);
    match params {
        Some(params) if params.len() > most => Err(InvalidField::new(
            "params",
            format!("{} bytes", params.len()),
            format!("at most {most} bytes"),
        )),
        _ => Ok(()),
    }
}

impl Launch {
    /// What tells this request from another under the same id (S40).
    pub(crate) fn fingerprint(&self) -> u64 {
        self.request_hash.unwrap_or_else(|| {
            hash_of(&(
                (
                    &self.event,
                    self.priority,
                    &self.params,
                    &self.limits,
                    &self.targets,
                ),
                (self.delay_s, &self.parent, self.executor, self.lease_s),
            ))
        })
    }

    /// Checks everything that can be checked without the state (S6, S11).
    ///
    /// # Errors
    /// The first field that breaks a rule.
    pub fn check(&self, params_bytes_max: u32) -> Result<(), InvalidField> {
        check_id("id", &self.id)?;
        if let Some(event) = &self.event {
            check_id("event", event)?;
        }
        check_priority(self.priority.unwrap_or(0))?;
        check_params(self.params.as_deref(), params_bytes_max)?;
        validate("limits", &self.limits)?;
        check_targets("targets", self.targets.as_deref().unwrap_or(&[]))?;
        within("delay_s", self.delay_s.unwrap_or(0), 0, DURATION_S_MAX)?;
        within("lease_s", self.lease_s.unwrap_or(1), 1, DURATION_S_MAX)?;
        if let Some(parent) = &self.parent {
            check_id("workflow.job", &parent.job)?;
            check_id("workflow.node", &parent.node)?;
        }
        Ok(())
    }
}

/// The definition that a launch refers to.
struct Definition<'a> {
    event: Option<&'a Event>,
    node: Option<&'a Node>,
}

impl Definition<'_> {
    fn is_first_start(&self) -> bool {
        self.event
            .is_some_and(|event| event.resolve == ResolveLimits::FirstStart)
    }

    /// True where the limits of a launch are not fixed with it, but when it falls due (S8).
    fn is_late(&self, launch: &Launch) -> bool {
        self.is_first_start() && launch.delay_s.unwrap_or(0) > 0
    }

    fn is_workflow(&self) -> bool {
        self.event
            .is_some_and(|event| event.kind == EventKind::Workflow)
    }
}

/// What a launch would come to.
pub(crate) struct Prospect {
    pub(crate) interned: Interned,
    pub(crate) priority: i8,
    pub(crate) pool_name: String,
    /// Its limits are fixed when it falls due (S8).
    pub(crate) is_late: bool,
}

/// The name of the pool of a job with this parent and id (S9).
fn pool_name<'a>(interned: &'a Interned, parent: Option<&Parent>, id: &str) -> Cow<'a, str> {
    match (parent, &interned.pool_name) {
        (Some(parent), _) if interned.rules.cap_key.is_none() => {
            Cow::Owned(format!("node:{}@{}", parent.node, parent.job))
        }
        (_, Some(shared)) => Cow::Borrowed(shared),
        (_, None) => Cow::Owned(format!("job:{id}")),
    }
}

impl Pool {
    /// Whether the launch's id is that of a job which another request launched (S40).
    #[must_use]
    pub fn is_id_conflict(&self, launch: &Launch) -> bool {
        let known = self.number_of_job(&launch.id);
        known
            .and_then(|number| self.jobs.get(&number))
            .is_some_and(|job| job.fingerprint != launch.fingerprint())
    }

    pub(crate) fn launch(&mut self, launch: &Launch, turn: &mut Turn) -> Result<Answer, Refusal> {
        let fingerprint = launch.fingerprint();
        if let Some(number) = self.number_of_job(&launch.id) {
            return if self.is_id_conflict(launch) {
                Err(Refusal::IdConflict)
            } else {
                Ok(Answer::again(number))
            };
        }
        let definition = self.check_launch(launch)?;
        let event = definition.event;
        let late = definition.is_late(launch);
        let priority = launch
            .priority
            .or(event.map(|event| event.priority))
            .unwrap_or(0);
        let params = launch.params.clone().or_else(|| event?.params.clone());
        let unresolved = late.then(|| {
            let node = definition
                .node
                .map(|node| node.limits.clone())
                .unwrap_or_default();
            Box::new(Unresolved {
                launch: launch.limits.clone(),
                node,
            })
        });
        let terms = match self.known_terms(launch, &definition) {
            Some(known) => known,
            None => {
                let mut terms = self.terms_of(launch, &definition)?;
                if late {
                    terms.limits.clear();
                }
                self.intern(terms, launch)
            }
        };
        self.header.stats.launched += 1;
        self.header.last.job += 1;
        let number = JobNumber(self.header.last.job);
        let interned = self.refer(terms);
        let mut job = self.new_job(launch, fingerprint, terms, &interned);
        (job.priority, job.unresolved) = (priority, unresolved);
        let pool = self.create(number, job, params, &interned);
        match (launch.delay_s, pool) {
            (Some(delay_s), _) if delay_s > 0 => self.delay(number, delay_s, turn),
            (_, None) => self.consider(number, turn),
            (_, Some(pool)) => {
                let considered = Considered {
                    number,
                    pool,
                    interned: &interned,
                    order: order(priority, number),
                    put_back: false,
                };
                self.consider_now(&considered, turn);
            }
        }
        Ok(Answer::first(number))
    }

    /// Checks a launch against its own rules and the state, and finds what it refers to.
    fn check_launch(&self, launch: &Launch) -> Result<Definition<'_>, Refusal> {
        let settings = &self.header.settings;
        launch
            .check(settings.params_bytes_max)
            .map_err(Refusal::Invalid)?;
        if self.header.unfinished >= u64::from(settings.unfinished_max) {
            return Err(Refusal::ClusterFull);
        }
        let definition = self.definition_of(launch)?;
        if definition.is_workflow() && launch.executor == Some(Executor::Server) {
            let allowed = "`caller`, or nothing: a workflow is executed by whoever launched it";
            let wrong = InvalidField::new("executor", "`server`", allowed);
            return Err(Refusal::Invalid(wrong));
        }
        Ok(definition)
    }

    /// What a launch would come to, with the definitions of now.
    pub(crate) fn prospect(&self, launch: &Launch) -> Result<Prospect, Refusal> {
        let definition = self.check_launch(launch)?;
        let priority = launch
            .priority
            .or(definition.event.map(|event| event.priority));
        let terms = Arc::new(self.terms_of(launch, &definition)?);
        let interned = Interned::of(terms);
        let pool_name = pool_name(&interned, launch.parent.as_ref(), &launch.id).into_owned();
        Ok(Prospect {
            interned,
            priority: priority.unwrap_or(0),
            pool_name,
            is_late: definition.is_late(launch),
        })
    }

    /// The terms of a plain launch like one before, while no definition has changed since.
    fn known_terms(&self, launch: &Launch, definition: &Definition<'_>) -> Option<TermsNumber> {
        let event = definition.event.filter(|event| is_plain(launch, event))?;
        let known = self.index.plain.get(&event.id)?;
        self.index.interner.get(*known).map(|_| *known)
    }

    fn definition_of(&self, launch: &Launch) -> Result<Definition<'_>, Refusal> {
        let mut node = None;
        if let Some(parent) = &launch.parent {
            let number = self
                .number_of_job(&parent.job)
                .ok_or(Refusal::UnknownParent)?;
            let job = self.jobs.get(&number).ok_or(Refusal::UnknownParent)?;
            if matches!(job.state, State::Ended(_)) {
                return Err(Refusal::UnknownParent);
            }
            let terms = self.terms.get(&job.terms).ok_or(Refusal::UnknownParent)?;
            let found = terms.nodes.iter().find(|node| node.id == parent.node);
            node = Some(found.ok_or(Refusal::UnknownNode)?);
        }
        let event_id = launch.event.as_ref().or_else(|| node?.event.as_ref());
        let event = match event_id {
            None => None,
            Some(id) => Some(&self.events.get(id).ok_or(Refusal::EventMissing)?.event),
        };
        if event.is_some_and(|event| !event.enabled) {
            return Err(Refusal::EventDisabled);
        }
        Ok(Definition { event, node })
    }

    /// What a launch comes to with the definitions of now (S7).
    fn terms_of(&self, launch: &Launch, definition: &Definition<'_>) -> Result<Terms, Refusal> {
        let first_start = definition.is_first_start();
        let Definition { event, node } = definition;
        let node_limits = node.map_or(&[][..], |node| &node.limits);
        let limits = self.resolve(&launch.limits, *event, node_limits);
        if !first_start {
            check_resolved(&limits)?;
        }
        let workflow = definition.is_workflow();
        let targets = launch
            .targets
            .clone()
            .filter(|targets| !targets.is_empty())
            .or_else(|| Some(event.as_ref()?.targets.clone()));
        Ok(Terms {
            event: event.map(|event| event.id.clone()),
            limits,
            targets: targets.unwrap_or_default(),
            algo: event.map(|event| event.algo).unwrap_or_default(),
            executor: if workflow {
                Executor::Caller
            } else {
                launch.executor.unwrap_or_default()
            },
            nodes: event.map(|event| event.nodes.clone()).unwrap_or_default(),
            on_start: event.and_then(|event| event.on_start.clone()),
        })
    }

    fn resolve(
        &self,
        launch: &[Limit],
        event: Option<&Event>,
        node: &[Limit],
    ) -> Vec<SourcedLimit> {
        let settings = &self.header.settings;
        let category = event
            .and_then(|event| event.category.as_ref())
            .and_then(|category| self.categories.get(category))
            .map_or(&[][..], |stored| &stored.category.limits);
        let universal = match event.map(|event| event.kind) {
            Some(EventKind::Workflow) => &settings.universal_workflow_limits,
            _ => &settings.universal_event_limits,
        };
        by_precedence(&[
            (Source::Launch, launch),
            (Source::Event, event.map_or(&[][..], |event| &event.limits)),
            (Source::Node, node),
            (Source::Category, category),
            (Source::Universal, universal),
        ])
    }

    /// The number of a launch's terms, made known if they are not.
    fn intern(&mut self, terms: Terms, launch: &Launch) -> TermsNumber {
        let event = terms
            .event
            .as_ref()
            .and_then(|event| self.events.get(event));
        let plain = event.filter(|stored| is_plain(launch, &stored.event));
        let plain = plain.map(|stored| stored.event.id.clone());
        let number = self.number_of_terms(terms);
        self.index.plain.extend(plain.map(|event| (event, number)));
        number
    }

    /// One more job refers to terms.
    fn refer(&mut self, terms: TermsNumber) -> Arc<Interned> {
        match self.index.interner.refer(terms) {
            Some(interned) => interned,
            None => unreachable!("terms are known before a job refers to them"),
        }
    }

    fn number_of_terms(&mut self, terms: Terms) -> TermsNumber {
        if let Some(number) = self.index.interner.find(&terms) {
            return number;
        }
        self.header.last.terms += 1;
        let number = TermsNumber(self.header.last.terms);
        let terms = Arc::new(terms);
        self.terms.insert(number, Arc::clone(&terms));
        self.index.interner.insert(number, terms);
        number
    }

    /// A job that was launched now, with what its request says by itself.
    fn new_job(
        &self,
        launch: &Launch,
        fingerprint: u64,
        terms: TermsNumber,
        interned: &Interned,
    ) -> Job {
        Job {
            id: Arc::from(&*launch.id),
            terms,
            pool: None,
            priority: 0,
            put_back: false,
            attempt: 0,
            timeouts: 0,
            retries: 0,
            fingerprint,
            launched_at: self.now(),
            state: State::Queued,
            parent: launch.parent.clone().map(Box::new),
            lease: self.first_lease(launch, interned),
            unresolved: None,
            meta: Vec::new(),
        }
    }

    /// The lease of a caller that has just launched a job (S46).
    fn first_lease(&self, launch: &Launch, interned: &Interned) -> Option<Box<Lease>> {
        if interned.terms.executor != Executor::Caller {
            return None;
        }
        let own = u64::from(self.header.settings.lease_s);
        Some(Box::new(Lease {
            lease_s: u32::try_from(launch.lease_s.unwrap_or(own)).unwrap_or(u32::MAX),
            seen_under: self.header.takeovers,
            heard_at: self.now(),
        }))
    }

    /// Puts a new job into the tables, a member of its pool if its limits are fixed.
    fn create(
        &mut self,
        number: JobNumber,
        mut job: Job,
        params: Option<Box<[u8]>>,
        interned: &Interned,
    ) -> Option<ScopeNumber> {
        if job.lease.is_some() {
            self.index.leased.insert(number);
        }
        if job.unresolved.is_none() {
            let name = Pool::pool_name_of(&job, interned);
            let (pool, differences) = self.join_pool(number, &name, job.terms, interned);
            job.belong_to(pool, self.now(), differences);
        }
        let pool = job.pool;
        self.index.job_ids.insert(hash_of(&*job.id), number);
        self.jobs.insert(number, Box::new(job));
        if let Some(params) = params {
            self.params.insert(number, Params(params));
        }
        self.header.unfinished += 1;
        pool
    }

    /// The name of a job's pool (S9).
    pub(crate) fn pool_name_of<'a>(job: &Job, interned: &'a Interned) -> Cow<'a, str> {
        pool_name(interned, job.parent.as_deref(), &job.id)
    }

    /// Makes a job a member of the pool of this name, and finds the members that differ (S35).
    fn join_pool(
        &mut self,
        number: JobNumber,
        name: &str,
        terms: TermsNumber,
        interned: &Interned,
    ) -> (ScopeNumber, Vec<Difference>) {
        let pool = self.scope_of(name);
        let rules = &interned.rules;
        let differences = self.index.members.differences(pool, terms, rules);
        self.index.members.join(pool, terms, rules, number);
        self.scopes.change(&pool, |scope| scope.members += 1);
        let named = |(other, mut difference): (JobNumber, Difference)| {
            if let Some(other) = self.jobs.get(&other) {
                difference.job = Arc::clone(&other.id);
            }
            difference
        };
        (pool, differences.into_iter().map(named).collect())
    }

    fn delay(&mut self, number: JobNumber, delay_s: u64, turn: &mut Turn) {
        let now = self.now();
        let due = now.plus_s(delay_s);
        self.index.delayed.insert((due, number));
        let pool = self.jobs.change(&number, |job| {
            job.state = State::Delayed { due };
            job.say(now, Note::Delayed);
            job.pool
        });
        self.change_delayed(pool.flatten(), 1);
        self.moved(number, turn);
    }

    /// A delayed job is due: it is considered for the first time, or, if it was there before, goes
    /// back to its place (S12, S49).
    pub(crate) fn fall_due(&mut self, number: JobNumber, turn: &mut Turn) {
        let pool = self.jobs.change(&number, |job| {
            job.state = State::Queued;
            job.pool
        });
        self.change_delayed(pool.flatten(), -1);
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        if self.event_is_missing(&self.interned(job)) {
            self.end(number, Err(Reason::EventMissing), "".into(), turn);
            return;
        }
        if job.unresolved.is_some() {
            self.resolve_late(number);
        }
        self.consider(number, turn);
    }

    /// Fixes the limits of a job that first falls due (S8). It is too late to refuse more of them
    /// than a launch may have, and none is left out: there are at most as many as five lists hold.
    fn resolve_late(&mut self, number: JobNumber) {
        let unresolved = self
            .jobs
            .change(&number, |job| job.unresolved.take())
            .flatten();
        let Some(unresolved) = unresolved else { return };
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let old = job.terms;
        let mut terms = Terms::clone(&self.interned(job).terms);
        let event = terms
            .event
            .as_ref()
            .and_then(|event| self.events.get(event));
        let event = event.map(|stored| &stored.event);
        terms.limits = self.resolve(&unresolved.launch, event, &unresolved.node);
        let new = self.number_of_terms(terms);
        let interned = self.refer(new);
        let Some(job) = self.jobs.get(&number) else {
            return;
        };
        let name = Pool::pool_name_of(job, &interned);
        let (pool, differences) = self.join_pool(number, &name, new, &interned);
        let now = self.now();
        self.jobs.change(&number, |job| {
            job.terms = new;
            job.belong_to(pool, now, differences);
        });
        self.release_terms(old);
    }
}

/// True where a launch takes everything from its event.
fn is_plain(launch: &Launch, event: &Event) -> bool {
    launch.limits.is_empty()
        && launch.targets.is_none()
        && launch.parent.is_none()
        && launch.executor.is_none()
        && event.resolve == ResolveLimits::Launch
}

/// Refuses resolved limits that do not go together (S4).
fn check_resolved(limits: &[SourcedLimit]) -> Result<(), Refusal> {
    if limits.len() > LIMITS_MAX {
        let given = format!("{} limits from all sources", limits.len());
        let allowed = format!("at most {LIMITS_MAX} limits a job");
        return Err(Refusal::Invalid(InvalidField::new(
            "limits", given, allowed,
        )));
    }
    let has_queue = limits
        .iter()
        .any(|it| matches!(&it.limit.kind, LimitKind::Queue(queue) if queue.amount > 0));
    let has_gate = limits
        .iter()
        .any(|it| matches!(it.limit.kind, LimitKind::Job(_) | LimitKind::Rate(_)));
    if has_queue && !has_gate {
        return Err(Refusal::Invalid(InvalidField::new(
            "limits",
            "a queue limit alone",
            "a queue limit together with an enabled job or rate limit",
        )));
    }
    Ok(())
}
