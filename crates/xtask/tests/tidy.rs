//! `tidy` on small trees: a sound one is fine, and each way to break a rule is found.

#![expect(
    clippy::expect_used,
    reason = "what a test expects and does not find is its failure"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A file that is put into the sound tree, and where.
struct File {
    path: &'static str,
    text: String,
}

/// What is found when files are added to the sound tree; `Ok` where nothing but notes is.
fn tidy(files: &[File]) -> Result<String, String> {
    let tree = TempDir::new().expect("a temporary folder");
    for (path, text) in SOUND {
        write(tree.path(), path, text);
    }
    for file in files {
        write(tree.path(), file.path, &file.text);
    }
    let output = Command::new(env!("CARGO_BIN_EXE_fermata-xtask"))
        .arg("tidy")
        .arg(tree.path())
        .output()
        .expect("tidy runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    }
}

fn write(tree: &Path, path: &str, text: &str) {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a written file");
}

/// Asserts that one file makes exactly one fault, and that it says this.
fn assert_found(path: &'static str, text: impl Into<String>, expected: &str) {
    let text = text.into();
    let found = tidy(&[File {
        path,
        text: text.clone(),
    }]);
    let found = found.expect_err(&format!("{path} with {text}\nshould give {expected}"));
    let faults: Vec<&str> = found
        .lines()
        .filter(|line| line.starts_with("fault: "))
        .collect();
    assert_eq!(faults.len(), 1, "{path} with {text}\n{found}");
    assert!(
        faults[0].contains(path) && faults[0].contains(expected),
        "{faults:?}"
    );
}

fn assert_fine(path: &'static str, text: impl Into<String>) {
    let text = text.into();
    let found = tidy(&[File {
        path,
        text: text.clone(),
    }]);
    assert!(found.is_ok(), "{path} with {text}\n{found:?}");
}

const SOUND: &[(&str, &str)] = &[
    ("Cargo.toml", "[workspace]\nmembers = [\"crates/*\"]\n"),
    ("README.md", "# A tree\n"),
    (
        "crates/pool/Cargo.toml",
        "[package]\nname = \"fermata-pool\"\n[dependencies]\nserde = \"1\"\n\
         [dev-dependencies]\nfermata-calendar.workspace = true\nserde_json = \"1\"\n\
         [lints]\nworkspace = true\n",
    ),
    ("crates/pool/src/lib.rs", "//! The rules.\n#![no_std]\n"),
    ("crates/replica/src/store/recovery.rs", "use sled::Db;\n"),
    ("target/debug/util.rs", "fn sled() {}\n"),
    (".tool/common.rs", "fn sled() {}\n"),
];

fn manifest(package: &str, dependencies: &str) -> String {
    format!("[package]\nname = \"{package}\"\n{dependencies}\n[lints]\nworkspace = true\n")
}

#[test]
fn a_sound_tree_is_fine() {
    assert_eq!(tidy(&[]), Ok(String::new()));
}

#[test]
fn a_tree_that_is_not_there_is_a_fault() {
    let output = Command::new(env!("CARGO_BIN_EXE_fermata-xtask"))
        .args(["tidy", "/nowhere"])
        .output()
        .expect("tidy runs");
    assert!(!output.status.success());
}

/// A package, what its manifest says, and a part of what is found.
const ARROWS_REFUSED: &[(&str, &str, &str)] = &[
    (
        "fermata-pool",
        "[dependencies]\nfermata-calendar.workspace = true",
        "none of ours",
    ),
    (
        "fermata-pool",
        "[dev-dependencies]\nfermata-api.workspace = true",
        "none of ours",
    ),
    (
        "fermata-calendar",
        "[dependencies]\nfermata-pool = { path = \"../pool\" }",
        "none of ours",
    ),
    (
        "fermata-api",
        "[dependencies]\nfermata-pool.workspace = true",
        "none of ours",
    ),
    (
        "fermata-replica",
        "[dependencies]\nfermata-api.workspace = true",
        "fermata-calendar only",
    ),
    (
        "fermata-client",
        "[dev-dependencies]\nfermata-server.workspace = true",
        "fermata-api only",
    ),
    (
        "fermata-server",
        "[build-dependencies]\nfermata-audit.workspace = true",
        "fermata-server may import",
    ),
    (
        "fermata-audit",
        "[dependencies]\nfermata-pool.workspace = true",
        "none of ours",
    ),
    (
        "fermata",
        "[dependencies]\nfermata-pool.workspace = true",
        "fermata may import",
    ),
    (
        "fermata-sim",
        "[dependencies]\nfermata-server.workspace = true",
        "fermata-sim may import",
    ),
    (
        "fermata-e2e",
        "[dependencies]\nfermata-replica.workspace = true",
        "fermata-e2e may import",
    ),
    (
        "fermata-xtask",
        "[dependencies]\nfermata-api.workspace = true",
        "none of ours",
    ),
    ("fermata-other", "", "no row in the import table"),
    (
        "fermata-api",
        "[dependencies]\nrules = { package = \"fermata-pool\", path = \"../pool\" }",
        "none of ours",
    ),
    (
        "fermata-api",
        "[target.'cfg(unix)'.dependencies]\nfermata-pool.workspace = true",
        "none of ours",
    ),
];

const ARROWS_ALLOWED: &[(&str, &str)] = &[
    (
        "fermata-calendar",
        "[dependencies]\nchrono-tz = \"1\"\njiff = \"1\"",
    ),
    (
        "fermata-replica",
        "[dependencies]\nfermata-pool = \"0\"\nfermata-calendar = \"0\"\nsled = \"0\"",
    ),
    ("fermata-replica", "[dev-dependencies]\nserde_json = \"1\""),
    (
        "fermata-server",
        "[dependencies]\nfermata-api = \"0\"\nfermata-pool = \"0\"\nfermata-replica = \"0\"",
    ),
    (
        "fermata",
        "[dependencies]\nfermata-replica = \"0\"\nfermata-audit = \"0\"",
    ),
    (
        "fermata-e2e",
        "[dependencies]\nfermata-client = \"0\"\ntokio = \"1\"",
    ),
];

#[test]
fn arrows_between_our_crates_follow_the_table() {
    for (package, dependencies, expected) in ARROWS_REFUSED {
        assert_found(
            "crates/it/Cargo.toml",
            manifest(package, dependencies),
            expected,
        );
    }
    for (package, dependencies) in ARROWS_ALLOWED {
        assert_fine("crates/it/Cargo.toml", manifest(package, dependencies));
    }
}

#[test]
fn what_a_crate_must_never_import_is_found() {
    let faults = [
        ("fermata-pool", "tokio", "never"),
        ("fermata-pool", "tracing", "never"),
        ("fermata-pool", "rand", "never"),
        ("fermata-pool", "jiff", "never"),
        ("fermata-calendar", "tokio", "never"),
        ("fermata-replica", "axum", "never"),
        ("fermata-replica", "serde_json", "never"),
        ("fermata-audit", "tokio", "never"),
        ("fermata-server", "sled", "only fermata-replica"),
        ("fermata", "sled", "only fermata-replica"),
        ("fermata-api", "chrono-tz", "only fermata-calendar"),
    ];
    for (package, dependency, expected) in faults {
        let text = manifest(
            package,
            &format!("[dependencies]\n{dependency}.workspace = true"),
        );
        assert_found("crates/it/Cargo.toml", text, expected);
    }
}

#[test]
fn manifests_are_read_and_take_on_the_lints() {
    assert_found("crates/it/Cargo.toml", "[package\n", "");
    assert_found(
        "crates/it/Cargo.toml",
        "[package]\nname = \"fermata-api\"\n",
        "lints",
    );
    let not_taken_on = "[package]\nname = \"fermata-api\"\n[lints]\nworkspace = false\n";
    assert_found("crates/it/Cargo.toml", not_taken_on, "lints");
}

#[test]
fn names_stand_only_where_they_may() {
    assert_found(
        "crates/replica/src/store/log.rs",
        "use sled::Db;\n",
        ":1: only crates/replica",
    );
    assert_found(
        "crates/server/src/lib.rs",
        "\nfn f() { sled::open(); }\n",
        ":2: only crates/replica",
    );
    assert_found(
        "crates/fermata/src/serve.rs",
        "use fermata_replica::Replica;\n",
        "only crates/fermata",
    );
    assert_fine(
        "crates/fermata/src/inspect.rs",
        "use fermata_replica::Replica;\n",
    );
    assert_fine(
        "crates/server/src/lib.rs",
        "use fermata_replica::Replica;\n",
    );
    assert_fine(
        "crates/server/src/a.rs",
        "//! sled\n/* sled /* */ sled */ fn unsled() { \"sled\"; }\n",
    );
}

#[test]
fn the_pool_stays_without_the_standard_library() {
    assert_found(
        "crates/pool/src/lib.rs",
        "//! #![no_std]\n",
        "#![no_std] is missing",
    );
}

#[test]
fn folders_and_files_have_names_that_say_something() {
    let found = tidy(&[File {
        path: "docs/guide.md",
        text: String::new(),
    }]);
    let found = found.expect_err("a folder of another name");
    assert!(found.contains("docs: not a folder of ours"), "{found}");
    for path in [
        "crates/pool/src/util.rs",
        "crates/pool/src/utils.rs",
        "crates/pool/src/helpers.rs",
        "crates/pool/tests/common/mod.rs",
        "scripts/misc.sh",
        "tests/src/helper.rs",
    ] {
        assert_found(path, "", "says nothing");
    }
    assert_fine("crates/pool/src/utility_of_names.rs", "");
}

#[test]
fn sizes_are_noted_and_then_faults() {
    let file = |lines: usize| "const A: u8 = 1;\n// free\n\n".repeat(lines);
    let function = |lines: usize| {
        format!(
            "fn long<'a>() -> [u8; 2] {{\n{}}}\n",
            "    // free\n    call();\n".repeat(lines - 2)
        )
    };
    assert_fine("crates/pool/src/a.rs", file(700));
    assert_found("crates/pool/src/a.rs", file(701), "the file has 701 lines");
    assert_fine("crates/pool/tests/a.rs", file(701));
    assert_fine("crates/pool/src/a.rs", function(100));
    assert_found(
        "crates/pool/src/a.rs",
        function(101),
        ":1: the function long has 101 lines",
    );
    assert_found(
        "crates/pool/tests/a.rs",
        function(101),
        "the function long has 101 lines",
    );

    let noted = |text| {
        tidy(&[File {
            path: "crates/pool/src/a.rs",
            text,
        }])
        .expect("a note")
    };
    assert_eq!(noted(file(500)), "");
    assert!(noted(file(501)).starts_with("note: crates/pool/src/a.rs: the file has 501"));
    assert_eq!(noted(function(70)), "");
    assert!(noted(function(71)).starts_with("note: crates/pool/src/a.rs:1: the function long"));
}

#[test]
fn brackets_in_literals_and_comments_do_not_count() {
    let body = "    call();\n".repeat(97);
    for odd in [
        "'{'",
        "'\\''",
        "\"{\\\"\"",
        "r#\"{\"{\"#",
        "b'{'",
        "br\"{\"",
        "'é'",
        "{ /* { */ }",
    ] {
        let text = format!("fn odd<'a>() {{\n    {odd};\n{body}}}\nfn next() {{}}\n");
        assert_fine("crates/pool/src/a.rs", text.clone());
        let text = text.replace("    call();\n", "    call();\n    call();\n");
        assert_found(
            "crates/pool/src/a.rs",
            text,
            "the function odd has 197 lines",
        );
    }
}

#[test]
fn tests_that_are_switched_off_are_found() {
    for attribute in [
        "#[ignore]",
        "#[ignore = \"slow\"]",
        "#[cfg_attr(unix, ignore)]",
    ] {
        let text = format!("#[test]\n{attribute}\nfn it() {{}}\n");
        assert_found(
            "crates/pool/tests/a.rs",
            text,
            ":2: a test that is switched off",
        );
    }
    assert_fine(
        "crates/pool/tests/a.rs",
        "// #[ignore]\nfn ignore() { ignore(); }\n",
    );
}

#[test]
fn tests_do_not_sleep_but_where_a_harness_waits() {
    let sleeps = "fn wait() { std::thread::sleep(it); }\n";
    for call in [
        "std::thread::sleep(it)",
        "tokio::time::sleep(it).await",
        "sleep (it)",
    ] {
        let text = format!("fn wait() {{ {call}; }}\n");
        assert_found(
            "crates/pool/tests/a.rs",
            text.clone(),
            ":1: a test that sleeps",
        );
        assert_found("tests/src/a.rs", text.clone(), ":1: a test that sleeps");
        let module = format!("#[cfg(test)]\nmod tests {{\n    {text}}}\n");
        assert_found("crates/pool/src/a.rs", module, ":3: a test that sleeps");
        // The lints look after code that is no test.
        assert_fine("crates/pool/src/a.rs", text);
    }
    let listed = |text: &str| {
        let waits = "# why\n\ntests/src/wait.rs\n".to_owned();
        tidy(&[
            File {
                path: "crates/xtask/waits.txt",
                text: waits,
            },
            File {
                path: "tests/src/wait.rs",
                text: text.to_owned(),
            },
        ])
    };
    assert_eq!(listed(sleeps), Ok(String::new()));
    assert!(
        listed(&sleeps.repeat(2))
            .expect_err("two places")
            .contains("wait.rs:2: a test that")
    );
    assert!(
        listed("fn wait() {}\n")
            .expect_err("no place")
            .contains("does not sleep")
    );
}

#[test]
fn a_fault_says_what_it_is_and_applies() {
    assert_found("tests/faults/a.patch", "Fault: something\n", "`Rule: …`");
    let head = "Fault: something\nRule: S1\nTest: fermata-pool --lib a\n\n";
    let hunk = "--- a/crates/pool/none.rs\n+++ b/crates/pool/none.rs\n@@ -1 +1 @@\n-a\n+b\n";
    let elsewhere = format!("{head}{hunk}");
    assert_found("tests/faults/a.patch", elsewhere, "does not apply");
}
