//! The rules a second time, naively: one list of everything that happened, and questions that are
//! answered by reading it. It was written from the text of the rules and shares nothing with the
//! pool but the types of commands and outcomes. Random stories on small worlds are told to both,
//! and everything that can be seen is compared after every entry.
//!
//! - [`history`] is the list, and what it says of jobs and definitions; [`windows`] what it says of
//!   windows; [`terms`] what limits come to.
//! - [`gates`] considers jobs; [`rules`] lets time pass; [`commands`] and [`definitions`] carry
//!   commands out.
//! - [`world`] draws stories of what [`draws`] has, [`crowd`] those in which many pools want the
//!   same few things; [`teller`] makes entries of them; [`compare`] finds what differs,
//!   [`invariants`] checks the list alone, and [`foresight`] what is foretold of those who wait.
//!
//! Now and then the pool is made anew of the rows of its snapshot: it must go on as it was.
//!
//! `FERMATA_MODEL_CASES` is the number of random stories, `FERMATA_MODEL_SEED` their seed; a
//! failure is shrunk and says how to see it again.

#![expect(
    clippy::expect_used,
    reason = "a fault of the model itself is a failed test"
)]

mod commands;
mod compare;
mod crowd;
mod definitions;
mod draws;
mod foresight;
mod gates;
mod history;
mod invariants;
mod rules;
#[path = "../../examples/run_cases/story.rs"]
mod story;
mod teller;
mod terms;
mod windows;
mod world;

use fermata_pool::Pool;
use fermata_pool::command::{Command, Entry, Launch};
use fermata_pool::outcome::Standing;
use fermata_pool::snapshot::{Restore, Row};
use history::Model;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};
use teller::Teller;
use world::Story;

/// Random stories of a run that is not told how many.
const STORIES: u64 = 700;
/// And of crowds.
const CROWDS: u64 = 500;
/// After how many entries each the pool is made anew of its snapshot.
const ENTRIES_PER_SNAPSHOT: usize = 7;
/// And of rivals.
const RIVALS: u64 = 400;
/// After how many entries each it is checked what the pool foretells of every job that waits.
const ENTRIES_PER_FORESIGHT: usize = 25;
/// The same in stories of rivals.
const RIVAL_ENTRIES_PER_FORESIGHT: usize = 6;

/// A story as it is told to both.
struct Telling {
    model: Model,
    pool: Pool,
    told: Vec<Entry>,
    openings: Vec<(usize, u64)>,
}

impl Telling {
    fn new() -> Telling {
        Telling {
            model: Model::default(),
            pool: Pool::new(),
            told: Vec::new(),
            openings: Vec::new(),
        }
    }

    fn tell(&mut self, entry: Entry) -> Result<(), String> {
        let index = self.told.len() as u64 + 1;
        let answers = self.model.apply(index, &entry);
        let applied = self.pool.apply(index, &entry);
        self.told.push(entry);
        if self.told.len().is_multiple_of(ENTRIES_PER_SNAPSHOT) {
            self.pool = made_anew(&mut self.pool)?;
        }
        compare::answers(&answers, &applied.outcomes)
            .and_then(|()| compare::states(&self.model, &self.pool))
            .and_then(|()| compare::moves(&applied.moves, &self.pool))
            .and_then(|()| compare::openings(&mut self.openings, &self.model, &self.pool))
            .map_err(|fault| format!("{fault}\n{}", self.so_far()))
    }

    /// Compares what the pool foretells with what would come.
    fn foresee(&mut self, every: usize, calendar: foresight::Calendar<'_>) -> Result<(), String> {
        let index = self.told.len() as u64;
        let last = self.told.last().and_then(|entry| entry.commands.last());
        let aborted = last.and_then(|command| match command {
            Command::Launch(launch) => Some(launch).filter(|it| self.has_aborted(it)),
            _ => None,
        });
        let mut holds = foresight::rates(&self.model, &self.pool, calendar);
        if let Some(launch) = aborted {
            let mut retry = || foresight::retry(&mut self.pool, index, calendar, launch);
            holds = holds.and_then(|()| retry());
        }
        if self.told.len().is_multiple_of(every) {
            let mut jobs = || foresight::jobs(&mut self.pool, index, calendar);
            holds = holds.and_then(|()| jobs());
        }
        holds.map_err(|fault| format!("{fault}\n{}", self.so_far()))
    }

    /// True where this launch made the last job, and that was aborted.
    fn has_aborted(&self, launch: &Launch) -> bool {
        let standing = self.pool.standing(&launch.id);
        let commands = self.told.iter().flat_map(|entry| &entry.commands);
        // The same again makes no job: by then its event may be another one than it was made by.
        let launches = commands
            .filter(|it| matches!(it, Command::Launch(other) if other.id == launch.id))
            .count();
        let jobs = self.model.jobs();
        let made = launches == 1 && jobs.last().is_some_and(|job| job.request == launch);
        made && matches!(standing, Some(Standing::Aborted { .. }))
    }

    fn end(&self) -> Result<usize, String> {
        invariants::check(&self.model).map_err(|fault| format!("{fault}\n{}", self.so_far()))?;
        Ok(self.told.iter().map(|entry| entry.commands.len()).sum())
    }

    fn so_far(&self) -> String {
        let mut text = String::from("The story:\n");
        for entry in &self.told {
            let at = entry.stamp.at;
            let _ = writeln!(text, "{at} ({} us) {:?}", at.us(), entry.claim);
            for command in &entry.commands {
                let _ = writeln!(text, "    {command:?}");
            }
        }
        text
    }
}

/// A pool of the rows of another.
fn made_anew(pool: &mut Pool) -> Result<Pool, String> {
    let mut restore = Restore::default();
    let mut fault = None;
    pool.begin_walk().map_err(|fault| fault.to_string())?;
    while pool.walk(1_000, &mut |row: &Row<'_>| {
        fault = fault.or(restore.push(row.clone()).err());
    }) {}
    match fault {
        Some(fault) => Err(fault.to_string()),
        None => restore.finish().map_err(|fault| fault.to_string()),
    }
}

/// Tells one random story, and checks after so many entries each what is foretold; gives the number
/// of its commands.
fn tell(story: &Story, foreseen_every: usize) -> Result<usize, String> {
    let mut telling = Telling::new();
    let mut teller = Teller::new(story);
    telling.tell(teller.begin(story))?;
    for turn in &story.turns {
        let entry = teller.entry(turn, &telling.model);
        telling.tell(entry)?;
        telling.foresee(foreseen_every, &|at| teller.stamp(at).boundaries)?;
    }
    telling.end()
}

/// Tells so many random stories, and the shortest like the first that fails.
fn tell_many(test: &str, drawn: &impl Strategy<Value = Story>, seed: u64, stories: u64) {
    let foreseen_every = match test {
        "random_rivals" => RIVAL_ENTRIES_PER_FORESIGHT,
        _ => ENTRIES_PER_FORESIGHT,
    };
    let config = Config {
        cases: stories.try_into().expect("a number of stories"),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let commands = Cell::new(0);
    let ran = runner.run(drawn, |story| {
        let told = tell(&story, foreseen_every).map_err(TestCaseError::fail)?;
        commands.set(commands.get() + told);
        Ok(())
    });
    println!(
        "{stories} stories, {} commands, seed {seed}",
        commands.get()
    );
    if let Err(TestError::Fail(why, _)) = ran {
        panic!(
            "{why}\nReproduce with:\nFERMATA_MODEL_SEED={seed} FERMATA_MODEL_CASES={stories} \
             cargo test -p fermata-pool --test model {test}"
        );
    }
}

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A seed that was asked for, or another in every run; and how many stories.
fn any_seed(stories: u64) -> (u64, u64) {
    let any = || RandomState::new().build_hasher().finish();
    (
        asked("FERMATA_MODEL_SEED").unwrap_or_else(any),
        asked("FERMATA_MODEL_CASES").unwrap_or(stories),
    )
}

/// The same stories in every run, so that one that passed here passes everywhere.
#[test]
fn stories_of_a_fixed_seed_agree() {
    tell_many("random_stories", &world::story(), 1, STORIES);
}

/// Other stories in every run.
#[test]
fn random_stories_agree() {
    let (seed, stories) = any_seed(STORIES);
    tell_many("random_stories", &world::story(), seed, stories);
}

/// The same crowds in every run.
#[test]
fn crowds_of_a_fixed_seed_agree() {
    tell_many("random_crowds", &crowd::story(), 1, CROWDS);
}

/// Other crowds in every run.
#[test]
fn random_crowds_agree() {
    let (seed, stories) = any_seed(CROWDS);
    tell_many("random_crowds", &crowd::story(), seed, stories);
}

/// The same rivals in every run.
#[test]
fn rivals_of_a_fixed_seed_agree() {
    tell_many("random_rivals", &crowd::rivals(), 1, RIVALS);
}

/// Other rivals in every run.
#[test]
fn random_rivals_agree() {
    let (seed, stories) = any_seed(RIVALS);
    tell_many("random_rivals", &crowd::rivals(), seed, stories);
}

/// The cases, which were written by others, told to both.
#[test]
fn the_cases_agree() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    for file in std::fs::read_dir(folder).expect("the cases are there") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable case");
        let entries = story::replay(&text).expect("a case that passes");
        let mut telling = Telling::new();
        let told = entries
            .into_iter()
            .try_for_each(|entry| telling.tell(entry));
        let ended = told.and_then(|()| telling.end());
        assert!(ended.is_ok(), "{}: {ended:?}", path.display());
    }
}
