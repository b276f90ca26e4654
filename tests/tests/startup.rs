//! Starts that must fail: a clear message, exit 1 or 2, and nothing changed.

use std::path::Path;

use fermata_e2e::{Cluster, DEADLINE, Exit, Process, contents};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

/// Starts what must not come up, and answers how it ended.
async fn fails(cluster: &Cluster, name: &str, command: Command) -> Exit {
    let exit = Process::start(name, command, cluster.folder());
    let exit = exit.ended(DEADLINE).await;
    let code = exit.status.code();
    assert!(matches!(code, Some(1 | 2)), "{code:?}: {}", exit.output);
    exit
}

/// Two nodes of one cluster have each its own: with the other's log a node would vote in its name.
#[tokio::test]
async fn the_folder_of_another_node_is_refused() {
    let mut cluster = Cluster::of(2).await;
    cluster.stop(2).await;
    let theirs = contents(&cluster.node(2).data);

    let command = serve(&cluster, 1, &cluster.node(2).data, &[]);
    let exit = fails(&cluster, "stranger", command).await;

    let file = cluster.node(2).data.join("log/IDENTITY");
    let file = file.display().to_string();
    assert!(exit.output.contains(&file), "{}", exit.output);
    assert!(exit.output.contains("node 2, not 1"), "{}", exit.output);
    assert_eq!(contents(&cluster.node(2).data), theirs);
    cluster.start_node(2).await;
    cluster.leader().await;
}

/// The command that starts a node of the cluster, with another folder and a port of its own.
fn serve(cluster: &Cluster, id: u64, data: &Path, origin: &[&str]) -> Command {
    let address = cluster.node(1).client.ip();
    let mut command = cluster.node(1).place.command();
    command.args(["serve", "--id", &id.to_string()]);
    command.arg("--data").arg(data);
    command.args(["--listen", &format!("{address}:0")]);
    command.args(["--peer-listen", &format!("{address}:0")]);
    command.args(origin);
    command
}

#[tokio::test]
async fn the_folder_of_another_cluster_is_refused() {
    let mut other = Cluster::of(1).await;
    other.define_event("theirs", json!({})).await;
    other.stop(1).await;
    let theirs = contents(&other.node(1).data);

    let cluster = Cluster::of(1).await;
    let peer = cluster.node(1).peer.to_string();
    let data = &other.node(1).data;
    // Under the id that it has, and under a new one.
    for id in [1, 2] {
        let command = serve(&cluster, id, data, &["--join", &peer]);
        let exit = fails(&cluster, &format!("stranger-{id}"), command).await;
        let folder = data.display().to_string();
        assert!(exit.output.contains(&folder), "{}", exit.output);
        assert_eq!(contents(data), theirs, "something was changed");
    }

    let view = cluster.view(1).await.expect("the node goes on");
    assert_eq!(view.nodes.len(), 1, "nobody was let in: {view:?}");
    other.start_node(1).await;
    let event = other.client().event("theirs").await;
    event.expect("their folder is as it was");
}

#[tokio::test]
async fn a_second_node_with_the_same_folder_is_refused() {
    let cluster = Cluster::of(1).await;
    cluster.define_event("mine", json!({})).await;
    let data = &cluster.node(1).data;

    let exit = fails(&cluster, "second", serve(&cluster, 1, data, &[])).await;

    assert!(
        exit.output.contains(&data.display().to_string()),
        "{}",
        exit.output
    );
    let event = cluster.client().event("mine").await;
    event.expect("the first node goes on");
    cluster.define_event("mine-too", json!({})).await;
}

#[tokio::test]
async fn a_taken_port_is_told_and_nothing_is_changed() {
    let cluster = Cluster::of(1).await;
    let address = cluster.node(1).client.ip();
    let taken = TcpListener::bind((address, 0)).await.expect("a port");
    let taken = taken.local_addr().expect("its address").to_string();
    for flag in ["--listen", "--peer-listen"] {
        let data = cluster.folder().join(format!("new{flag}"));
        let mut command = cluster.node(1).place.command();
        command.args(["serve", "--id", "1", "--bootstrap"]);
        command.arg("--data").arg(&data);
        for other in ["--listen", "--peer-listen"] {
            let own = format!("{address}:0");
            command.args([other, if other == flag { &taken } else { &own }]);
        }
        let exit = fails(&cluster, &format!("taken{flag}"), command).await;
        assert!(exit.output.contains(&taken), "{}", exit.output);
        let is_empty = !data.exists() || contents(&data).is_empty();
        assert!(is_empty, "{flag}: {:?}", contents(&data).keys());
    }
}

#[tokio::test]
async fn flags_that_cannot_be_are_told_by_name() {
    let cluster = Cluster::of(1).await;
    let data = cluster.folder().join("new");
    let cases: [(&[&str], &str); 6] = [
        (&["--listen", "nowhere"], "--listen"),
        (&["--listen", "192.0.2.1:0"], "--insecure"),
        (&["--time-zone", "Mars/Olympus"], "--time-zone"),
        (&["--join", "127.0.0.1:1", "--bootstrap"], "--bootstrap"),
        (&["--id", "0"], "--id"),
        (&["--advertise", "gopher://x"], "--advertise"),
    ];
    for (number, (flags, named)) in cases.into_iter().enumerate() {
        let mut command = cluster.node(1).place.command();
        command.arg("serve").arg("--data").arg(&data);
        if !flags.contains(&"--id") {
            command.args(["--id", "1"]);
        }
        command.args(flags);
        let exit = fails(&cluster, &format!("flags-{number}"), command).await;
        assert_eq!(exit.status.code(), Some(2), "{flags:?}: {}", exit.output);
        assert!(exit.output.contains(named), "{flags:?}: {}", exit.output);
        assert!(!data.exists(), "{flags:?} made a folder");
    }
}
