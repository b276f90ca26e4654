//! Who may import whom: the table of the house as data, checked on the manifests.
//!
//! What a manifest does not name, no line of code can import; so the arrows between crates are
//! checked there and not in the code. Where only some files of a crate may use what its manifest
//! names, the words in the code are looked at.

use super::{Findings, Tree};

/// One row: a package of ours and what it may see.
struct Row {
    package: &'static str,
    /// The packages of ours that it may import.
    may: &'static [&'static str],
    /// Those that only its tests and examples may import as well.
    tests_may: &'static [&'static str],
    /// What it must never import of others', nor through its manifest's target tables. What its
    /// tests use is their own affair.
    never: &'static [&'static str],
}

const TABLE: &[Row] = &[
    Row {
        package: "fermata-pool",
        may: &[],
        tests_may: &["fermata-calendar"],
        never: &[
            "tokio",
            "tracing",
            "log",
            "rand",
            "getrandom",
            "chrono",
            "chrono-tz",
            "jiff",
            "time",
        ],
    },
    Row {
        package: "fermata-calendar",
        may: &[],
        tests_may: &[],
        never: &["tokio"],
    },
    Row {
        package: "fermata-api",
        may: &[],
        tests_may: &[],
        never: &[],
    },
    Row {
        package: "fermata-replica",
        may: &["fermata-pool", "fermata-calendar"],
        tests_may: &[],
        never: &["axum", "serde_json"],
    },
    Row {
        package: "fermata-client",
        may: &["fermata-api"],
        tests_may: &[],
        never: &[],
    },
    Row {
        package: "fermata-server",
        may: &["fermata-api", "fermata-pool", "fermata-replica"],
        tests_may: &[],
        never: &[],
    },
    Row {
        package: "fermata-audit",
        may: &[],
        tests_may: &[],
        never: &["tokio"],
    },
    Row {
        package: "fermata",
        may: &[
            "fermata-api",
            "fermata-client",
            "fermata-server",
            "fermata-audit",
            "fermata-replica",
        ],
        tests_may: &[],
        never: &[],
    },
    Row {
        package: "fermata-sim",
        may: &[
            "fermata-pool",
            "fermata-calendar",
            "fermata-replica",
            "fermata-audit",
        ],
        tests_may: &[],
        never: &[],
    },
    Row {
        package: "fermata-e2e",
        may: &["fermata-api", "fermata-client", "fermata-audit"],
        tests_may: &[],
        never: &[],
    },
    Row {
        package: "fermata-xtask",
        may: &[],
        tests_may: &[],
        never: &[],
    },
];

/// Others' packages that only one of ours may import, in tests too.
const SOLE_USERS: &[(&str, &str)] = &[
    ("sled", "fermata-replica"),
    ("chrono-tz", "fermata-calendar"),
];

/// A word that, within a folder, only some files may have in their code.
struct NamedOnlyIn {
    word: &'static str,
    folder: &'static str,
    files: &'static [&'static str],
}

const NAMED_ONLY_IN: &[NamedOnlyIn] = &[
    NamedOnlyIn {
        word: "sled",
        folder: "crates/",
        files: &["crates/replica/src/store/recovery.rs"],
    },
    NamedOnlyIn {
        word: "fermata_replica",
        folder: "crates/fermata/",
        files: &[
            "crates/fermata/src/inspect.rs",
            "crates/fermata/src/backup.rs",
            "crates/fermata/src/recover.rs",
        ],
    },
];

/// The crates that are built without the standard library, by their roots.
const NO_STD: &[&str] = &["crates/pool/src/lib.rs"];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for (path, text) in &tree.manifests {
        match toml::from_str::<toml::Table>(text) {
            Ok(manifest) => check_manifest(path, &manifest, findings),
            Err(error) => findings.fault(path, None, &error.to_string()),
        }
    }
    for source in &tree.sources {
        for rule in NAMED_ONLY_IN {
            if source.path.starts_with(rule.folder) && !rule.files.contains(&source.path.as_str()) {
                for at in source.words(rule.word) {
                    let what = format!("only {} may name {}", rule.files.join(", "), rule.word);
                    findings.fault(&source.path, Some(source.line_of(at)), &what);
                }
            }
        }
        if NO_STD.contains(&source.path.as_str()) {
            let code = String::from_utf8_lossy(&source.code);
            if !code.lines().any(|line| line.trim() == "#![no_std]") {
                findings.fault(&source.path, None, "#![no_std] is missing");
            }
        }
    }
}

fn check_manifest(path: &str, manifest: &toml::Table, findings: &mut Findings) {
    // The root has a workspace and no package.
    let Some(package) = text_at(manifest, &["package", "name"]) else {
        return;
    };
    let Some(row) = TABLE.iter().find(|row| row.package == package) else {
        findings.fault(
            path,
            None,
            &format!("{package} has no row in the import table"),
        );
        return;
    };
    if manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        != Some(&true.into())
    {
        findings.fault(path, None, "the workspace's lints are not taken on");
    }
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets.into_iter().flat_map(|targets| targets.values());
    for table in tables.filter_map(toml::Value::as_table).chain([manifest]) {
        for (kind, for_tests) in [
            ("dependencies", false),
            ("build-dependencies", false),
            ("dev-dependencies", true),
        ] {
            for dependency in dependencies(table, kind) {
                if let Some(why) = refusal(row, &dependency, for_tests) {
                    findings.fault(path, None, &format!("{kind}: {dependency}: {why}"));
                }
            }
        }
    }
}

/// Why a package may not import another, if it may not.
fn refusal(row: &Row, dependency: &str, for_tests: bool) -> Option<String> {
    let package = row.package;
    if TABLE.iter().any(|row| row.package == dependency) {
        let allowed =
            row.may.contains(&dependency) || (for_tests && row.tests_may.contains(&dependency));
        return (!allowed).then(|| match row.may {
            [] => format!("{package} may import none of ours"),
            may => format!("of ours {package} may import {} only", may.join(", ")),
        });
    }
    if !for_tests && row.never.contains(&dependency) {
        return Some(format!("{package} must never import it"));
    }
    let (_, sole_user) = SOLE_USERS.iter().find(|(name, _)| *name == dependency)?;
    (*sole_user != package).then(|| format!("only {sole_user} may import it"))
}

/// The packages that a table of dependencies names, by their own names.
fn dependencies(manifest: &toml::Table, kind: &str) -> Vec<String> {
    let table = manifest.get(kind).and_then(toml::Value::as_table);
    let named = table.into_iter().flatten().map(|(name, dependency)| {
        let renamed = dependency.get("package").and_then(toml::Value::as_str);
        renamed.unwrap_or(name).to_owned()
    });
    named.collect()
}

fn text_at<'a>(table: &'a toml::Table, path: &[&str]) -> Option<&'a str> {
    let (first, rest) = path.split_first()?;
    let mut value = table.get(*first)?;
    for part in rest {
        value = value.get(part)?;
    }
    value.as_str()
}
