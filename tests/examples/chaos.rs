//! One story of `scripts/chaos`, which builds what it needs and runs it.

use std::process::ExitCode;
use std::time::Duration;

use fermata_e2e::{ChaosOptions, Story, chaos, load};

/// What the command line says.
struct Given {
    story: Story,
    seconds: u64,
    seed: u64,
}

fn given(mut words: impl Iterator<Item = String>) -> Result<Given, String> {
    let name = words
        .next()
        .ok_or("which story? scripts/chaos/run --help names them")?;
    let story = Story::named(&name)
        .ok_or_else(|| format!("no such story: {name}; see scripts/chaos/run --help"))?;
    let mut given = Given {
        story,
        seconds: 60,
        seed: rand::random(),
    };
    while let Some(flag) = words.next() {
        let value = words.next().unwrap_or_default();
        let place = match flag.as_str() {
            "--seconds" => &mut given.seconds,
            "--seed" => &mut given.seed,
            _ => return Err(format!("{flag} is not known; --seconds and --seed are")),
        };
        let number = value.parse();
        *place = number.map_err(|_| format!("{flag}: {value:?} was given; it is a number"))?;
    }
    Ok(given)
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.peek().is_some_and(|word| word == "--list") {
        for story in Story::ALL {
            println!("{}\t{}\t{}", story.name(), story.injects(), story.needs());
        }
        return ExitCode::SUCCESS;
    }
    let given = match given(words) {
        Ok(given) => given,
        Err(why) => {
            eprintln!("scripts/chaos: {why}");
            return ExitCode::from(2);
        }
    };
    let name = given.story.name();
    println!(
        "REPRODUCE WITH: scripts/chaos/{name} --seconds {} --seed {}",
        given.seconds, given.seed
    );
    println!("load before: {}", load());
    let options = ChaosOptions {
        rounds_min: 1,
        duration: Duration::from_secs(given.seconds),
        seed: given.seed,
    };
    let report = chaos(given.story, options).await;
    println!("{report}");
    println!("load after: {}", load());
    if report.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
