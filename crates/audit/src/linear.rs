//! Whether the answers that clients got can be explained by one order of what they asked.
//!
//! A history is linearizable if every operation can be given an instant between its question and
//! its answer, so that the pool, taking them one by one in that order ([`crate::ration`]), gives each
//! the answer that it got. Operations that were never answered may have happened at any time after
//! they were asked, or not at all.
//!
//! The order is searched for, depth first: of those that may come next (asked before any that must
//! still come was answered) each is tried, and what led nowhere is remembered, so that it is tried
//! once. Where answers name the index of the log that they reflect, an answer that came before a
//! question was sent must not reflect a later entry than the answer to that question; that is looked
//! at for every history, however long.
//!
//! # Caveats
//!
//! - The search is bounded by [`STEPS_MAX`]: a history beyond it is counted as undecided, not as
//!   wrong. Few clients at once and a few hundred operations are far below it.
//! - Clients on different machines need clocks that agree; on one machine they do.

use std::collections::HashSet;

use crate::ration::{Answer, Answered, Ask, Event, Operation, State};

/// Most steps of one search.
pub const STEPS_MAX: usize = 200_000;

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is such an order.
    Explained,
    /// There is none.
    Unexplained {
        /// How many operations could be put in order at most.
        ordered: usize,
        /// One that could not be next then.
        stuck: Operation,
    },
    /// It would take too long to say.
    Undecided,
}

/// One operation, as the search has it.
struct Step<'a> {
    operation: &'a Operation,
    event: Event,
    /// Of it and those that were asked later, which was answered first, and when.
    first_answer: Option<(usize, i64)>,
}

impl Step<'_> {
    fn answer(&self) -> Option<Answer> {
        self.operation.answer.map(|answered| answered.answer)
    }

    fn answered_us(&self) -> Option<i64> {
        self.operation.answer.map(|answered| answered.at_us)
    }
}

/// A point of the search: what has happened, and the pool then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    /// Those before it have happened, but for the `open` ones.
    next: usize,
    /// Operations that were asked and have not happened.
    open: Vec<usize>,
    state: State,
}

/// Searches for an order of the operations on one pool.
pub(crate) fn search(rate: u64, operations: &[&Operation]) -> Verdict {
    let steps = steps(operations);
    let first = Node {
        next: 0,
        open: Vec::new(),
        state: State::default(),
    };
    let mut best = (0, 0);
    let mut known = HashSet::from([first.clone()]);
    let mut frontier = vec![first];
    while let Some(node) = frontier.pop() {
        let until = first_answer(&steps, &node);
        let done = node.next - node.open.len();
        match until {
            None => return Verdict::Explained,
            Some((stuck, _)) if done >= best.0 => best = (done, stuck),
            Some(_) => {}
        }
        for following in followers(rate, &steps, &node, until.map(|(_, us)| us)) {
            if known.len() >= STEPS_MAX {
                return Verdict::Undecided;
            }
            if known.insert(following.clone()) {
                frontier.push(following);
            }
        }
    }
    Verdict::Unexplained {
        ordered: best.0,
        stuck: steps[best.1].operation.clone(),
    }
}

/// The operations in the order of their questions, with their jobs numbered.
fn steps<'a>(operations: &[&'a Operation]) -> Vec<Step<'a>> {
    let mut sorted = operations.to_vec();
    sorted.sort_by_key(|operation| operation.sent_us);
    let mut jobs: Vec<&str> = Vec::new();
    let mut steps = Vec::with_capacity(sorted.len());
    for operation in sorted {
        let mut number = |job: &'a str| {
            let known = jobs.iter().position(|other| *other == job);
            let place = known.unwrap_or_else(|| {
                jobs.push(job);
                jobs.len() - 1
            });
            u32::try_from(place).unwrap_or(u32::MAX)
        };
        let event = match &operation.ask {
            Ask::Launch(job) => Event::Launch(number(job)),
            Ask::Confirm(job) => Event::Confirm(number(job)),
            Ask::Cancel(job) => Event::Cancel(number(job)),
            Ask::Reset => Event::Reset,
            Ask::Count => Event::Count,
        };
        steps.push(Step {
            operation,
            event,
            first_answer: None,
        });
    }
    let mut first = None;
    for (place, step) in steps.iter_mut().enumerate().rev() {
        let own = step.answered_us().map(|us| (place, us));
        first = [own, first].into_iter().flatten().min_by_key(|(_, us)| *us);
        step.first_answer = first;
    }
    steps
}

/// Which operation was answered first of those that must still happen, and when; none: all have.
fn first_answer(steps: &[Step<'_>], node: &Node) -> Option<(usize, i64)> {
    let open = node.open.iter();
    let open = open.filter_map(|&place| Some((place, steps[place].answered_us()?)));
    let unasked = steps.get(node.next).and_then(|step| step.first_answer);
    open.chain(unasked)
        .min_by_key(|(_, answered_us)| *answered_us)
}

/// What can happen next: operations that were asked before that answer, and jobs that start again.
fn followers(rate: u64, steps: &[Step<'_>], node: &Node, until_us: Option<i64>) -> Vec<Node> {
    let mut followers = Vec::new();
    for job in node.state.unsettled() {
        if let Some(state) = node.state.after(rate, Event::Again(job), None) {
            followers.push(Node {
                state,
                ..node.clone()
            });
        }
    }
    let asked = steps[node.next..]
        .iter()
        .take_while(|step| until_us.is_none_or(|us| step.operation.sent_us <= us));
    let asked = node.next + asked.count();
    let candidates: Vec<usize> = node.open.iter().copied().chain(node.next..asked).collect();
    // What is tried first stands last: who asked first was mostly first.
    for &place in candidates.iter().rev() {
        let step = &steps[place];
        if let Some(state) = node.state.after(rate, step.event, step.answer()) {
            let next = node.next.max(place + 1);
            let skipped = node.next..next;
            let open = node.open.iter().copied().chain(skipped);
            followers.push(Node {
                next,
                open: open.filter(|other| *other != place).collect(),
                state,
            });
        }
    }
    followers
}

/// Answers that reflect less of the log than an answer that came before their question was sent.
pub(crate) fn index_goes_back<'a>(operations: &[&'a Operation]) -> Vec<(&'a Operation, u64)> {
    let indexed = |operation: &&'a Operation| {
        let Answered { at_us, index, .. } = operation.answer?;
        Some((at_us, index?))
    };
    let mut answered: Vec<(i64, u64)> = operations.iter().filter_map(indexed).collect();
    answered.sort_unstable();
    let mut sent = operations.to_vec();
    sent.sort_by_key(|operation| operation.sent_us);
    let mut answered = answered.into_iter().peekable();
    let mut highest = 0;
    let mut wrong = Vec::new();
    for operation in sent {
        while let Some((_, index)) = answered.next_if(|(at_us, _)| *at_us < operation.sent_us) {
            highest = highest.max(index);
        }
        if indexed(&operation).is_some_and(|(_, index)| index < highest) {
            wrong.push((operation, highest));
        }
    }
    wrong
}
