//! What the rules give, as data: every file in `tests/cases`, replayed as the leader would log it.

#[path = "../examples/run_cases/story.rs"]
mod story;

#[test]
fn every_case_gives_what_it_expects() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut replayed = 0;
    for file in std::fs::read_dir(folder).expect("the cases are there") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable case");
        let outcome = story::replay(&text);
        assert!(outcome.is_ok(), "{}: {outcome:#?}", path.display());
        replayed += 1;
    }
    assert!(replayed >= 50, "only {replayed} cases were found");
}

#[test]
fn a_case_that_expects_something_else_fails() {
    let text = include_str!("cases/rate-zero-is-no-rate.json");
    let wrong = text.replace("starting#1@s1", "queued");
    assert_ne!(text, wrong);
    assert!(story::replay(&wrong).is_err());
}
