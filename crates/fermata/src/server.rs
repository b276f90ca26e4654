//! `fermata server`: where jobs are executed.

use clap::Subcommand;
use fermata_api::servers::{ServerBody, ServerView};
use fermata_client::Client;

use crate::error::CommandError;
use crate::event::enabled;
use crate::remote::{ListArgs, RemoteArgs, block_on, more};
use crate::screen::{Screen, Tone};
use crate::table::{Cell, cell, maybe, table};

/// What to do with servers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fermata server list
  fermata server disable w1     let it end what it runs, and take nothing new")]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    action: ServerAction,
}

#[derive(Debug, Subcommand)]
enum ServerAction {
    /// List servers
    List(ListArgs),
    /// Let servers take new jobs
    Enable {
        /// The servers
        #[arg(required = true)]
        id: Vec<String>,
    },
    /// Let servers take no new jobs; what they run goes on
    Disable {
        /// The servers
        #[arg(required = true)]
        id: Vec<String>,
    },
}

pub(crate) fn run(args: &ServerArgs, screen: Screen) -> Result<(), CommandError> {
    let client = args.remote.client()?;
    block_on(async {
        match &args.action {
            ServerAction::List(list) => show_list(&client, list, screen).await,
            ServerAction::Enable { id } => set_enabled(&client, id, true, screen).await,
            ServerAction::Disable { id } => set_enabled(&client, id, false, screen).await,
        }
    })
}

async fn set_enabled(
    client: &Client,
    ids: &[String],
    is_enabled: bool,
    screen: Screen,
) -> Result<(), CommandError> {
    for id in ids {
        let server = client.server(id).await?;
        let body = ServerBody {
            groups: server.groups,
            max_jobs: server.max_jobs,
            enabled: is_enabled,
        };
        let server = client.put_server(id, &body).await?;
        screen.show_next(&server, |_| {
            let state = if is_enabled { "enabled" } else { "disabled" };
            format!("{id} {state}\n")
        })?;
    }
    Ok(())
}

async fn show_list(client: &Client, list: &ListArgs, screen: Screen) -> Result<(), CommandError> {
    let page = list
        .gather_plain(async |query| client.servers(&query).await)
        .await?;
    screen.show(&page, |screen| {
        let rows: Vec<_> = page.items.iter().map(row).collect();
        let heading = [
            "SERVER", "ONLINE", "ENABLED", "GROUPS", "STARTING", "ACTIVE", "CAPACITY", "SEEN",
        ];
        table(screen, heading, &rows) + &more(&page)
    })
}

fn row(server: &ServerView) -> [Cell; 8] {
    let online = if server.online {
        Cell::new(Tone::Good, "yes")
    } else {
        Cell::new(Tone::Bad, "no")
    };
    let capacity = match server.max_jobs {
        Some(most) => format!("{}/{most}", server.weight),
        None => server.weight.to_string(),
    };
    [
        cell(&server.id),
        online,
        enabled(server.enabled),
        cell(server.groups.join(",")),
        cell(server.starting),
        cell(server.active),
        cell(capacity),
        maybe(server.seen_at),
    ]
}
