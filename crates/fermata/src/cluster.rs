//! `fermata cluster`: the nodes, and changes of them.

use clap::Subcommand;
use fermata_api::cluster::{ClusterView, MemberBody, NodeView, Role};

use crate::error::CommandError;
use crate::remote::{RemoteArgs, block_on};
use crate::screen::{Screen, Tone, printable, word};
use crate::table::{Cell, cell, maybe, table};

/// What to do with the cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    action: ClusterAction,
}

#[derive(Debug, Subcommand)]
enum ClusterAction {
    /// Show the nodes, who leads, and how far each is
    Status,
    /// Add a node: `fermata serve --join` does the same by itself
    #[command(after_help = "\
Example:
  fermata cluster add --id 4 --peer 10.0.0.4:7401 --client-url http://10.0.0.4:7400")]
    Add {
        /// Its id, which no node of this cluster ever had
        #[arg(long, value_name = "NUMBER")]
        id: u64,
        /// Where the other nodes reach it
        #[arg(long, value_name = "HOST:PORT")]
        peer: String,
        /// Where clients reach it
        #[arg(long, value_name = "URL")]
        client_url: String,
    },
    /// Remove a node, which may be dead
    Remove {
        /// The node
        id: u64,
    },
    /// Hand leadership over
    Transfer {
        /// The node that shall lead; else the one that is furthest
        #[arg(long, value_name = "NODE")]
        to: Option<u64>,
    },
}

pub(crate) fn run(args: &ClusterArgs, screen: Screen) -> Result<(), CommandError> {
    let client = args.remote.client()?;
    block_on(async {
        let view = match &args.action {
            ClusterAction::Status => client.cluster().await?,
            ClusterAction::Add {
                id,
                peer,
                client_url,
            } => {
                let member = MemberBody {
                    id: *id,
                    peer_address: peer.clone(),
                    client_url: client_url.clone(),
                };
                client.add_member(&member).await?
            }
            ClusterAction::Remove { id } => {
                client.remove_member(*id).await?;
                client.cluster().await?
            }
            ClusterAction::Transfer { to } => client.transfer(*to).await?,
        };
        screen.show(&view, |screen| described(&view, screen))
    })
}

fn described(view: &ClusterView, screen: Screen) -> String {
    let leader = match view.leader {
        Some(leader) => screen.paint(Tone::Good, &format!("node {leader} leads")),
        None => screen.paint(Tone::Bad, "nobody leads"),
    };
    let quorum = if view.has_quorum {
        "a majority confirms it"
    } else {
        "no majority confirms it"
    };
    let head = format!(
        "cluster {}, term {}, format {}: {leader}, {quorum} (as node {} sees it)\n\n",
        view.cluster_id, view.term, view.format, view.node
    );
    let rows: Vec<_> = view.nodes.iter().map(row).collect();
    let heading = [
        "NODE", "ROLE", "VOTES", "TERM", "LOG", "APPLIED", "LAG", "CLIENTS", "PEERS", "ZONE",
        "TZDB", "SKEW", "VERSION",
    ];
    let warnings: String = view
        .warnings
        .iter()
        .map(|warning| {
            let word = screen.paint(Tone::Bad, "warning");
            format!("\n{word}: {}", printable(&warning.detail))
        })
        .collect();
    let end = if warnings.is_empty() { "" } else { "\n" };
    head + &table(screen, heading, &rows) + &warnings + end
}

fn row(node: &NodeView) -> [Cell; 13] {
    let tone = match node.role {
        Role::Leader => Tone::Good,
        Role::Follower => Tone::Plain,
        Role::Candidate | Role::Learner => Tone::Busy,
        Role::Unreachable => Tone::Bad,
    };
    [
        cell(node.id),
        Cell::new(tone, word(&node.role)),
        cell(if node.voter { "yes" } else { "no" }),
        maybe(node.term),
        maybe(node.last_index),
        maybe(node.applied),
        maybe(node.lag),
        maybe(node.client_url.as_ref()),
        cell(&node.peer_address),
        maybe(node.time_zone.as_ref()),
        maybe(node.tzdb.as_ref()),
        maybe(node.clock_skew_ms.map(|skew_ms| format!("{skew_ms} ms"))),
        maybe(node.version.as_ref()),
    ]
}
