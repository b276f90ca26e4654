//! The rules a second time, naively: a list of everything that happened, and questions that scan
//! it. Random stories on small worlds are told to both, and every state is compared after every
//! entry.
//!
//! `FERMATA_MODEL_CASES` is the number of stories, `FERMATA_MODEL_SEED` the seed of the first.

mod compare;
mod gates;
mod history;
mod rules;
mod terms;
mod windows;
mod world;

use fermata_pool::Pool;
use fermata_pool::command::Entry;
use history::Model;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::fmt::Write;
use world::{Story, Teller, story};

/// Tells one story to both; gives the number of commands.
fn tell(story: &Story) -> Result<usize, String> {
    let mut model = Model::default();
    let mut pool = Pool::new();
    let mut teller = Teller::new(story);
    let mut commands = 0;
    let mut told: Vec<Entry> = Vec::new();
    let first = teller.begin(story);
    let mut step = |index: u64, entry: Entry, model: &mut Model| -> Result<(), String> {
        commands += entry.commands.len();
        let model_answers = model.apply(index, &entry);
        let applied = pool.apply(index, &entry);
        told.push(entry);
        compare::answers(&model_answers, &applied.outcomes)
            .and_then(|()| compare::states(model, &pool))
            .map_err(|fault| {
                let mut text = format!("{fault}\nThe story, in zone {}:\n", story.zone);
                for entry in &told {
                    let at = entry.stamp.at;
                    let _ = writeln!(text, "{at} ({} us) {:?}", at.us(), entry.claim);
                    for command in &entry.commands {
                        let _ = writeln!(text, "    {command:?}");
                    }
                }
                text
            })
    };
    step(1, first, &mut model)?;
    for (index, turn) in (2..).zip(&story.turns) {
        let entry = teller.entry(turn, &model);
        step(index, entry, &mut model)?;
    }
    Ok(commands)
}

/// Tells so many random stories.
fn tell_many(seed: u64, cases: u32) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let commands = Cell::new(0);
    let ran = runner.run(&story(), |story| {
        let told = tell(&story).map_err(TestCaseError::fail)?;
        commands.set(commands.get() + told);
        Ok(())
    });
    println!("{cases} stories, {} commands, seed {seed}", commands.get());
    if let Err(TestError::Fail(why, _)) = ran {
        panic!(
            "{why}\nReproduce with:\nFERMATA_MODEL_SEED={seed} FERMATA_MODEL_CASES={cases} \
             cargo test -p fermata-pool --test model"
        );
    }
}

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn random_stories_agree() {
    let cases = asked("FERMATA_MODEL_CASES").unwrap_or(200);
    let seed = asked("FERMATA_MODEL_SEED").unwrap_or(1);
    tell_many(seed, cases.try_into().expect("a number of stories"));
}
