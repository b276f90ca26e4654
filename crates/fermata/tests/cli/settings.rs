//! A node's settings: which place goes before which, and what is refused.

use crate::harness::{fermata, run, say};

/// The settings that `--check` prints.
fn check(args: &[&str], env: &[(&str, &str)]) -> toml::Table {
    let mut command = fermata();
    command.args(["serve", "--check"]).args(args);
    let said = say(command.envs(env.iter().copied()));
    assert_eq!(said.code, Some(0), "{said:?}");
    toml::from_str(&said.out).expect("TOML")
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fermata.toml");
    std::fs::write(&path, text).expect("a file");
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn flags_go_before_variables_before_the_file_before_defaults() {
    let (_folder, path) =
        file("id = 3\ndata = \"f\"\nlisten = \"127.0.0.1:3\"\ntime_zone = \"UTC\"");
    let in_file = check(&["--config", &path], &[]);
    assert_eq!(in_file["listen"].as_str(), Some("127.0.0.1:3"));
    assert_eq!(in_file["peer_listen"].as_str(), Some("127.0.0.1:7401"));
    assert_eq!(in_file["advertise"].as_str(), Some("http://127.0.0.1:3"));
    assert_eq!(in_file["profile"].as_str(), Some("fast"));
    assert_eq!(in_file["log_format"].as_str(), Some("text"));

    let variables = [
        ("FERMATA_LISTEN", "127.0.0.1:2"),
        ("FERMATA_PEER_LISTEN", "127.0.0.1:22"),
        ("FERMATA_LOG_FORMAT", "json"),
        ("FERMATA_LOG", "debug"),
        ("FERMATA_CONFIG", &path),
    ];
    let variable = check(&[], &variables);
    assert_eq!(variable["listen"].as_str(), Some("127.0.0.1:2"));
    assert_eq!(variable["peer_listen"].as_str(), Some("127.0.0.1:22"));
    assert_eq!(variable["log_format"].as_str(), Some("json"));
    assert_eq!(variable["log"].as_str(), Some("debug"));
    assert_eq!(variable["id"].as_integer(), Some(3));

    let flag = check(&["--listen", "127.0.0.1:1", "--log", "warn"], &variables);
    assert_eq!(flag["listen"].as_str(), Some("127.0.0.1:1"));
    assert_eq!(flag["peer_listen"].as_str(), Some("127.0.0.1:22"));
    assert_eq!(flag["log"].as_str(), Some("warn"));
}

#[test]
fn where_the_cluster_comes_from_is_one_setting() {
    let (_folder, path) = file("id = 1\ndata = \"f\"\nbootstrap = true\ntime_zone = \"UTC\"");
    let joined = check(&["--config", &path, "--join", "a:1,b:2"], &[]);
    assert_eq!(joined["bootstrap"].as_bool(), Some(false));
    assert_eq!(joined["join"].as_array().map(Vec::len), Some(2));
    let founded = check(&["--config", &path], &[("FERMATA_INSECURE", "yes")]);
    assert_eq!(founded["bootstrap"].as_bool(), Some(true));
    assert_eq!(founded["insecure"].as_bool(), Some(true));
}

#[test]
fn what_is_printed_is_a_file_that_says_the_same() {
    let args = [
        "--id",
        "7",
        "--data",
        "d",
        "--join",
        "a:1,b:2",
        "--time-zone",
        "Europe/Berlin",
        "--listen",
        "10.1.1.1:7400",
        "--peer-listen",
        "10.1.1.1:7401",
        "--insecure",
        "--ready-file",
        "r",
    ];
    let printed = check(&args, &[]);
    assert_eq!(printed["profile"].as_str(), Some("standard"));
    let (_folder, path) = file(&printed.to_string());
    assert_eq!(check(&["--config", &path], &[]), printed);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let base = ["serve", "--check", "--data", "d", "--id"];
    let refused: &[(&[&str], &str)] = &[
        (&["0"], "--id"),
        (&["x"], "--id"),
        (
            &["1", "--listen", "0.0.0.0:7400", "--advertise", "http://h:1"],
            "--insecure",
        ),
        (&["1", "--peer-listen", "10.0.0.1:7401"], "--insecure"),
        (
            &["1", "--listen", "0.0.0.0:7400", "--insecure"],
            "--advertise",
        ),
        (&["1", "--listen", "localhost:7400"], "--listen"),
        (&["1", "--advertise", "https://h:1"], "http://HOST:PORT"),
        (&["1", "--time-zone", "Mars/Phobos"], "Mars/Phobos"),
        (&["1", "--profile", "slow"], "fast, standard"),
        (&["1", "--bootstrap", "--join", "a:1"], "--bootstrap"),
    ];
    for (args, names) in refused {
        run(&[&base, *args].concat()).ends(2, names);
    }
    run(&["serve", "--check"]).ends(2, "--id is missing");
    run(&["serve", "--check", "--id", "1"]).ends(2, "--data is missing");
    run(&["serve", "--config", "/nowhere.toml"]).ends(2, "/nowhere.toml");
    let files = [
        ("idd = 1", "idd"),
        ("id = \"x\"", "line 1"),
        (
            "id = 1\ndata = \"d\"\nbootstrap = true\njoin = [\"a:1\"]",
            "--join",
        ),
        (
            "id = 1\ndata = \"d\"\nlisten = \"0.0.0.0:1\"\nadvertise = \"http://h:1\"",
            "--insecure",
        ),
    ];
    for (text, names) in files {
        let (_folder, path) = file(text);
        run(&["serve", "--check", "--config", &path]).ends(2, names);
    }
}
