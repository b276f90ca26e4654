//! Starts in the queue's order, within each pool.
//!
//! > S19: priority (higher first), then launch order, oldest first. S17: a new job never overtakes.
//! > S20, S21: only the head of a queue is considered; everything behind it waits.
//!
//! The starts are replayed in the log's order: whenever a job starts, nobody who waits comes before
//! it. A job waits from its launch on: surely so if that was committed at an earlier instant than the
//! start, or before the launch of the job that starts. A delayed job waits from when it fell due. A job
//! whose first recorded attempt is not its first one was put back meanwhile; from when it waited
//! again, nobody recorded, so it is not asked to have started before others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::executions;
use crate::history::{Attempt, Execution, History};
use crate::record::{Launch, LaunchPlace};
use crate::report::{Invariant, Report};

/// A place in a queue: the least comes first.
type Place = (Reverse<i8>, u64);

#[derive(Default)]
struct Queue<'a> {
    waiting: BTreeMap<Place, &'a str>,
    /// Delayed jobs, by when they fall due.
    delayed: BTreeSet<(i64, Place, &'a str)>,
}

/// A launch whose place among all launches is known.
#[derive(Clone, Copy)]
struct Placed<'a> {
    at: LaunchPlace,
    launch: &'a Launch,
}

impl Placed<'_> {
    fn place(&self) -> Place {
        (Reverse(self.launch.priority), self.at.number)
    }
}

pub(super) fn check(history: &History, report: &mut Report) {
    let mut launches: Vec<Placed<'_>> = history.launches.values().filter_map(placed).collect();
    launches.sort_by_key(|placed| placed.at.number);
    let mut launches = launches.into_iter().peekable();

    let mut starts: Vec<(&Execution, Placed<'_>)> = executions(history)
        .filter_map(|run| Some((run, placed(history.launches.get(&run.begin.job)?)?)))
        .collect();
    starts.sort_by_key(|(run, _)| run.begin.start_index);

    let mut queues: BTreeMap<&str, Queue<'_>> = BTreeMap::new();
    for (run, starting) in starts {
        let (start_us, number) = (run.begin.start_us, starting.at.number);
        let waits = |placed: &Placed<'_>| placed.at.at_us < start_us || placed.at.number <= number;
        while let Some(placed) = launches.next_if(waits) {
            if has_first_attempt(history, placed.launch) {
                report.counts.ordered += 1;
                queues.entry(&placed.launch.pool).or_default().join(placed);
            }
        }
        let queue = queues.entry(&starting.launch.pool).or_default();
        started(queue, run, starting, report);
    }
}

impl<'a> Queue<'a> {
    fn join(&mut self, placed: Placed<'a>) {
        let (place, job) = (placed.place(), placed.launch.job.as_str());
        match placed.launch.due_us {
            Some(due_us) => {
                self.delayed.insert((due_us, place, job));
            }
            None => {
                self.waiting.insert(place, job);
            }
        }
    }

    fn leave(&mut self, placed: Placed<'a>) {
        let place = placed.place();
        if let Some(due_us) = placed.launch.due_us {
            self.delayed.remove(&(due_us, place, &placed.launch.job));
        }
        self.waiting.remove(&place);
    }

    /// Who falls due in this very instant may come before or after what happens in it.
    fn fall_due_before(&mut self, at_us: i64) {
        while let Some(&(due_us, place, job)) = self.delayed.first()
            && due_us < at_us
        {
            self.delayed.pop_first();
            self.waiting.insert(place, job);
        }
    }
}

fn started<'a>(queue: &mut Queue<'a>, run: &Execution, starting: Placed<'a>, report: &mut Report) {
    queue.leave(starting);
    queue.fall_due_before(run.begin.start_us);
    if let Some((first, job)) = queue.waiting.first_key_value()
        && *first < starting.place()
    {
        let launch = starting.launch;
        report.breach(
            Invariant::QueueOrder,
            format!(
                "{}: {} attempt {} (priority {}) started while {job} (priority {}) waited before it",
                launch.pool, launch.job, run.begin.attempt, launch.priority, first.0.0
            ),
        );
    }
}

fn placed(launch: &Launch) -> Option<Placed<'_>> {
    let at = launch.place?;
    Some(Placed { at, launch })
}

fn has_first_attempt(history: &History, launch: &Launch) -> bool {
    history.executions.contains_key(&Attempt {
        job: launch.job.clone(),
        number: 1,
    })
}
