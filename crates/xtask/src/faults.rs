//! Known faults, each of which a test must catch: the proof that the nets hold.
//!
//! A fault is a patch in `tests/faults`, with lines before it that say what it is and which test
//! catches it:
//!
//! ```text
//! Fault: a window lasts one instant too long
//! Rule: S25
//! Test: fermata-pool --test cases every_case_gives_what_it_expects
//! ```
//!
//! Each is applied to a copy of the tree in `target/faults`, which must still compile, and the test
//! that it names must fail there. A patch that no longer applies is a failure, too, and `tidy` finds
//! it: whoever changes the code brings its faults along.
//!
//! What others made is built once: the copy shares the tree's build folder. What it links itself goes
//! to a folder of its own, so that nothing with a fault in it lies where it would be taken for ours.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::cargo;

/// Where the patches are.
const FOLDER: &str = "tests/faults";
/// Where the copy is, below the target folder.
const COPY: &str = "target/faults/tree";
/// Where what the copy links is put.
const COPY_TARGET: &str = "target/faults/target";
/// Where everything is built, here and in the copy.
const BUILD_FOLDER: &str = "target";

/// One known fault.
struct Fault {
    /// The name of its file, without the ending.
    name: String,
    patch: PathBuf,
    what: String,
    rule: String,
    package: String,
    /// `--lib`, or `--test NAME`.
    target: Vec<String>,
    test: String,
}

/// Runs the faults whose names contain one of `wanted`; all, where none is given.
pub(crate) fn run(root: &Path, wanted: &[&str]) -> bool {
    let faults = match read(root) {
        Ok(faults) => faults,
        Err(why) => {
            eprintln!("{FOLDER}: {why}");
            return false;
        }
    };
    let is_wanted =
        |fault: &&Fault| wanted.is_empty() || wanted.iter().any(|part| fault.name.contains(part));
    let chosen: Vec<&Fault> = faults.iter().filter(is_wanted).collect();
    if chosen.is_empty() {
        eprintln!("no fault in {FOLDER} has a name like {}", wanted.join(", "));
        return false;
    }
    let mut missed = 0;
    for fault in &chosen {
        let begun = Instant::now();
        let caught = prove(root, fault);
        let seconds = begun.elapsed().as_secs();
        match caught {
            Ok(()) => println!("caught: {} ({seconds} s)", fault.name),
            Err(why) => {
                missed += 1;
                println!(
                    "MISSED: {}, {} ({}): {why}",
                    fault.name, fault.what, fault.rule
                );
            }
        }
    }
    println!("{} faults, {missed} missed", chosen.len());
    missed == 0
}

/// Tells of every fault, and which test is to catch it.
pub(crate) fn list(root: &Path) -> bool {
    match read(root) {
        Ok(faults) => {
            for fault in faults {
                let Fault {
                    name, what, rule, ..
                } = &fault;
                println!("{name}: {what} ({rule}); {} {}", fault.package, fault.test);
            }
            true
        }
        Err(why) => {
            eprintln!("{FOLDER}: {why}");
            false
        }
    }
}

/// What is wrong with the patches of a tree, as `(path, what)`: one that says too little, or does
/// not apply. A tree without any is fine.
pub(crate) fn flaws(root: &Path) -> Vec<(String, String)> {
    if !root.join(FOLDER).exists() {
        return Vec::new();
    }
    let faults = match read(root) {
        Ok(faults) => faults,
        Err(why) => return vec![(FOLDER.to_owned(), why.to_string())],
    };
    let does_not_apply = |fault: Fault| {
        let why = apply(root, &fault, &["--check"]).err()?;
        let path = format!("{FOLDER}/{}.patch", fault.name);
        Some((path, format!("it does not apply: {why}")))
    };
    faults.into_iter().filter_map(does_not_apply).collect()
}

fn read(root: &Path) -> io::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for file in fs::read_dir(root.join(FOLDER))? {
        let patch = fs::canonicalize(file?.path())?;
        if patch.extension().is_some_and(|ending| ending == "patch") {
            faults.push(parse(patch)?);
        }
    }
    faults.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(faults)
}

fn parse(patch: PathBuf) -> io::Result<Fault> {
    let name = patch.file_stem().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let text = fs::read_to_string(&patch)?;
    let line = |key: &str| {
        let head = text.lines().take_while(|line| !line.starts_with("--- "));
        let found = head.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        let found = found.map(str::to_owned).next();
        found.ok_or_else(|| {
            io::Error::other(format!("{FOLDER}/{name}.patch has no line `{key}: …`"))
        })
    };
    let (what, rule, test) = (line("Fault")?, line("Rule")?, line("Test")?);
    let mut words: Vec<String> = test.split_whitespace().map(str::to_owned).collect();
    if words.len() < 3 {
        let why = format!("{FOLDER}/{name}.patch: `Test:` names a package, a target and a test");
        return Err(io::Error::other(why));
    }
    Ok(Fault {
        what,
        rule,
        package: words.remove(0),
        test: words.pop().unwrap_or_default(),
        target: words,
        name,
        patch,
    })
}

/// Fails unless the fault's test fails where the fault is.
fn prove(root: &Path, fault: &Fault) -> io::Result<()> {
    let copy = copy(root)?;
    apply(&copy, fault, &[])?;
    let proved = is_caught(root, &copy, fault);
    // Left as it was, so that the next fault builds only what it changes.
    apply(&copy, fault, &["--reverse"])?;
    proved
}

fn is_caught(root: &Path, copy: &Path, fault: &Fault) -> io::Result<()> {
    let mut arguments = vec!["test", "--locked", "--package", &fault.package];
    arguments.extend(fault.target.iter().map(String::as_str));
    let cargo_test = || {
        let mut command = cargo(copy, &arguments);
        command
            .env("CARGO_TARGET_DIR", root.join(COPY_TARGET))
            .env("CARGO_BUILD_BUILD_DIR", root.join(BUILD_FOLDER));
        command
    };
    let built = cargo_test().arg("--no-run").output()?;
    if !built.status.success() {
        return Err(failed("with it nothing compiles", &built));
    }
    let ran = cargo_test().args(["--", "--exact", &fault.test]).output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if !said.contains("running 1 test") {
        let why = format!("there is no test {}", fault.test);
        return Err(failed(&why, &ran));
    }
    if ran.status.success() {
        let why = format!("{} passes all the same", fault.test);
        return Err(io::Error::other(why));
    }
    Ok(())
}

fn failed(what: &str, output: &Output) -> io::Error {
    let said = String::from_utf8_lossy(&output.stderr);
    io::Error::other(format!("{what}:\n{said}"))
}

fn apply(tree: &Path, fault: &Fault, options: &[&str]) -> io::Result<()> {
    let tree = fs::canonicalize(tree)?;
    // Git takes the tree for a folder, not for a part of a repository around it.
    let around = tree.parent().unwrap_or(&tree);
    let output = Command::new("git")
        .current_dir(&tree)
        .env("GIT_CEILING_DIRECTORIES", around)
        .arg("apply")
        .args(options)
        .arg(&fault.patch)
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }
}

/// Brings the copy up to date. Files that are as they were are left alone, so that they are not
/// built again.
fn copy(root: &Path) -> io::Result<PathBuf> {
    let listed = Command::new("git")
        .current_dir(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()?;
    if !listed.status.success() {
        return Err(failed("the files cannot be listed", &listed));
    }
    let copy = root.join(COPY);
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    for name in &names {
        let (from, to) = (root.join(name), copy.join(name));
        // One that was deleted is still listed until that is committed.
        let Ok(bytes) = fs::read(&from) else {
            continue;
        };
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&to, bytes)?;
        }
    }
    remove_others(&copy, &copy, &names)?;
    Ok(copy)
}

/// Removes files of the copy that the tree no longer has.
fn remove_others(copy: &Path, folder: &Path, names: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(copy, &path, names)?;
        } else {
            let name = path.strip_prefix(copy).unwrap_or(&path).to_string_lossy();
            if !names.contains(&&*name) {
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}
