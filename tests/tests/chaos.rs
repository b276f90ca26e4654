//! One round of every story of `scripts/chaos`, each with its load and its audit.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use fermata_e2e::{ChaosOptions, Story, chaos};

/// Sets a run's random choices; a failure prints the one that it had.
const SEED_VARIABLE: &str = "FERMATA_SEED";

async fn holds(story: Story) {
    let given = std::env::var(SEED_VARIABLE).ok();
    let given = given.and_then(|text| text.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    println!("REPRODUCE WITH: {SEED_VARIABLE}={seed}");
    let options = ChaosOptions {
        rounds_min: 1,
        duration: Duration::ZERO,
        seed,
    };
    let report = chaos(story, options).await;
    println!("{report}");
    assert!(report.holds(), "seed {seed}: {report}");
    assert!(report.audit.counts.ends > 0, "{report}");
    assert!(report.audit.counts.operations > 0, "{report}");
    assert_eq!(report.audit.counts.undecided, 0, "{report}");
    assert!(!report.injected.is_empty(), "{report}");
}

/// A test for each story, so that they run beside each other; together they are all of them.
macro_rules! stories {
    ($($test:ident: $story:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            holds(Story::$story).await;
        })*

        #[test]
        fn every_story_has_a_test() {
            assert_eq!(Story::ALL, [$(Story::$story),*]);
        }
    };
}

stories! {
    a_killed_leader: KillLeader,
    a_killed_follower: KillFollower,
    all_killed: KillAll,
    a_paused_leader: PauseLeader,
    a_leader_that_is_cut_off: CutLeader,
    a_follower_that_is_cut_off: CutFollower,
    a_cut_in_one_direction: CutOneWay,
    clocks_that_step: ClockSteps,
    a_slow_disk: SlowDisk,
    a_full_disk: FullDisk,
    a_rolling_restart: RollingRestart,
    leadership_that_moves: MoveLeadership,
    a_worker_cut_off_with_the_leader: CutWorker,
    a_worker_paused_past_its_lease: PauseWorker,
}

#[test]
fn every_story_has_a_script() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/chaos");
    let files = std::fs::read_dir(folder).expect("the folder of the scripts");
    let files = files.map(|file| file.expect("listed").file_name().into_string());
    let files: BTreeSet<String> = files.map(|name| name.expect("UTF-8")).collect();
    let stories = Story::ALL.map(Story::name);
    let wanted = stories.iter().chain(&["all", "run", "README.md"]);
    assert_eq!(files, wanted.map(|name| (*name).to_owned()).collect());
}
