//! `fermata dev`: a conductor and a worker on this machine, to try things with.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fermata_client::worker::Order;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::error::CommandError;
use crate::group::Warden;
use crate::logging::LogArgs;
use crate::node::{self, Addresses};
use crate::remote::RemoteArgs;
use crate::screen::{Screen, Tone};
use crate::settings::{Given, LISTEN_DEFAULT, PEER_LISTEN_DEFAULT};
use crate::worker::{self, Execution, Processes, Registration, Worker};

/// The worker's server.
const SERVER: &str = "dev";
/// How long a command has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Where, and what the worker executes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a folder, the state lies in a temporary one and is gone at the end. Without a command, a
job's output is its parameters.

Examples:
  fermata dev
  fermata dev --data ~/fermata-dev -- sh -c 'sleep 2; echo \"$FERMATA_JOB is done\"'")]
pub(crate) struct DevArgs {
    /// Keep the state in this folder
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Where clients reach it, on loopback. Port 0: any
    #[arg(long, value_name = "IP:PORT", default_value = LISTEN_DEFAULT)]
    listen: SocketAddr,
    /// Where peers would reach it, on loopback. Port 0: any
    #[arg(long, value_name = "IP:PORT", default_value = PEER_LISTEN_DEFAULT)]
    peer_listen: SocketAddr,
    /// The time zone of local rate windows; else the system's
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// Write the addresses in use to this file, as JSON, once the node serves
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// What the worker executes for each job
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: DevArgs, screen: Screen) -> Result<(), CommandError> {
    args.log.start()?;
    let (data, temporary) = match args.data {
        Some(data) => (data, None),
        None => temporary_folder()?,
    };
    let given = Given {
        time_zone: args.time_zone,
        ready_file: args.ready_file,
        ..Given::alone(data.clone(), args.listen, args.peer_listen)
    };
    let settings = given.settings()?;
    let mut command = args.command;
    if command.is_empty() {
        command.push("cat".into());
    }
    let execution = Execution {
        server: SERVER.to_owned(),
        processes: Processes::new(command, Warden::start()?),
        grace: GRACE,
        journal: None,
    };
    let registration = Registration {
        groups: vec!["main".to_owned()],
        max_jobs: None,
    };
    node::run(&settings, |addresses, ending| async move {
        let client = RemoteArgs::at(addresses.client_url.clone()).client()?;
        screen.show(&addresses, |screen| {
            welcome(&addresses, &data, temporary.is_some(), screen)
        })?;
        let worker = Worker {
            client,
            registration,
            execution,
            drain_timeout: None,
        };
        let worked = worker::work(worker, orders(ending)).await;
        drop(temporary);
        worked
    })
}

/// The worker drains when the node is to end; the next signal ends both at once.
fn orders(mut ending: watch::Receiver<bool>) -> watch::Receiver<Order> {
    let (order, orders) = watch::channel(Order::Work);
    tokio::spawn(async move {
        // Whoever could ask for it being gone asks for it.
        let _ = ending.wait_for(|is_ending| *is_ending).await;
        order.send_replace(Order::Drain);
        order.closed().await;
    });
    orders
}

fn temporary_folder() -> Result<(PathBuf, Option<TempDir>), CommandError> {
    let folder = tempfile::Builder::new().prefix("fermata-dev-").tempdir();
    let folder = folder.map_err(|source| CommandError::System {
        doing: "make a temporary folder",
        source,
    })?;
    Ok((folder.path().to_owned(), Some(folder)))
}

fn welcome(addresses: &Addresses, data: &Path, is_temporary: bool, screen: Screen) -> String {
    let url = &addresses.client_url;
    let kept = if is_temporary {
        " (gone at the end)"
    } else {
        ""
    };
    let strong = |text: &str| screen.paint(Tone::Strong, text);
    let with_url = if url == crate::remote::URL_DEFAULT {
        String::new()
    } else {
        format!(" --url {url}")
    };
    format!(
        "\
{title} {url}
state in {data}{kept}; worker `{SERVER}`, group `main`; Ctrl-C ends it

In another terminal:
  fermata job submit --params '{{\"hello\": \"world\"}}' --wait end{with_url}
  fermata job list{with_url}
  fermata event apply -f event.json{with_url}     {more}

",
        title = strong("fermata dev on"),
        data = data.display(),
        more = screen.paint(Tone::Faint, "see `fermata event apply --help`"),
    )
}
