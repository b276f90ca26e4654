//! `fermata server`: where jobs are executed.

use std::time::Duration;

use clap::Subcommand;
use fermata_api::servers::{ServerBody, ServerView};
use fermata_client::Client;
use tokio::time::{Instant, sleep};

use crate::error::CommandError;
use crate::event::enabled;
use crate::remote::{ListArgs, RemoteArgs, block_on, more};
use crate::screen::{Screen, Tone};
use crate::table::{Cell, cell, maybe, table};

/// How often a server that drains is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What to do with servers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fermata server list
  fermata server disable w1           let it end what it runs, and take nothing new
  fermata server drain w1 --wait      the same; its worker leaves; come back when it is gone
  fermata server enable w1            when the machine is back")]
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
    /// Empty servers: they are disabled, their workers finish what runs, and leave
    ///
    /// What a worker was offered and has not confirmed starts elsewhere. A worker that is started
    /// again gets nothing until its server is enabled.
    Drain {
        /// The servers
        #[arg(required = true)]
        id: Vec<String>,
        /// Wait until they have no jobs and their workers are gone
        #[arg(long)]
        wait: bool,
        /// Give up the wait after so many seconds, with exit code 7
        #[arg(
            long,
            value_name = "SECONDS",
            requires = "wait",
            value_parser = clap::value_parser!(u64).range(1..)
        )]
        timeout: Option<u64>,
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
            ServerAction::Drain { id, wait, timeout } => {
                for id in id {
                    client.drain_server(id).await?;
                }
                let end = Patience {
                    since: Instant::now(),
                    timeout_s: *timeout,
                };
                for id in id {
                    show_drained(&client, id, wait.then_some(end), screen).await?;
                }
                Ok(())
            }
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

/// How long a drain is waited for.
#[derive(Clone, Copy)]
struct Patience {
    since: Instant,
    timeout_s: Option<u64>,
}

async fn show_drained(
    client: &Client,
    id: &str,
    patience: Option<Patience>,
    screen: Screen,
) -> Result<(), CommandError> {
    let mut server = client.server(id).await?;
    let is_over = |server: &ServerView| server.starting + server.active == 0 && !server.online;
    if let Some(Patience { since, timeout_s }) = patience {
        while !is_over(&server) {
            if let Some(timeout_s) = timeout_s
                && since.elapsed() >= Duration::from_secs(timeout_s)
            {
                return Err(CommandError::NotDrained {
                    server: Box::new(server),
                    timeout_s,
                });
            }
            sleep(LOOK_EVERY).await;
            server = client.server(id).await?;
        }
    }
    screen.show_next(&server, |_| {
        if is_over(&server) {
            format!("{id} drained\n")
        } else {
            let running = server.starting + server.active;
            format!("{id} drains: {running} jobs to finish\n")
        }
    })
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
        match server.draining {
            true => Cell::new(Tone::Busy, "draining"),
            false => Cell::new(Tone::Good, "yes"),
        }
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
