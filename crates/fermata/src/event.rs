//! `fermata event`: definitions from which jobs are launched.

use std::path::PathBuf;

use clap::Subcommand;
use fermata_api::events::Event;
use fermata_client::Client;

use crate::definitions;
use crate::error::CommandError;
use crate::limits::{limit, limits};
use crate::remote::{ListArgs, RemoteArgs, block_on, more};
use crate::screen::{Screen, Tone, word};
use crate::table::{Cell, cell, facts, maybe, table};

/// What to do with events.
#[derive(Debug, clap::Args)]
pub(crate) struct EventArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    action: EventAction,
}

#[derive(Debug, Subcommand)]
enum EventAction {
    /// Create or replace events from files
    #[command(after_help = "\
A file holds one event, a list of them, or an object with the list `events`:

  {\"id\": \"salesforce\", \"title\": \"Sync contacts\", \"targets\": [\"main\"],
   \"limits\": [{\"type\": \"job\", \"amount\": 5, \"rate\": 100, \"window\": 60},
              {\"type\": \"queue\", \"amount\": 1000}]}

or, as TOML:

  id = \"salesforce\"
  [[limits]]
  type = \"job\"
  amount = 5

All files are read before the first event is sent. With a `revision`, an event is replaced only
if it still has that one.

Examples:
  fermata event apply -f salesforce.json
  fermata event apply -f events.toml -f more.json
  generate-events | fermata event apply -f -")]
    Apply {
        /// A file of JSON or TOML; `-` is standard input. May be repeated
        #[arg(short, long = "file", value_name = "FILE", required = true)]
        file: Vec<PathBuf>,
    },
    /// List events
    List(ListArgs),
    /// Show one event
    Show {
        /// The event
        id: String,
    },
    /// Delete events; jobs of theirs that wait are aborted
    Delete {
        /// The events
        #[arg(required = true)]
        id: Vec<String>,
    },
}

pub(crate) fn run(args: &EventArgs, screen: Screen) -> Result<(), CommandError> {
    let client = args.remote.client()?;
    block_on(async {
        match &args.action {
            EventAction::Apply { file } => apply(&client, file, screen).await,
            EventAction::List(list) => show_list(&client, list, screen).await,
            EventAction::Show { id } => {
                let event = client.event(id).await?;
                screen.show(&event, |screen| described(&event, screen))
            }
            EventAction::Delete { id } => {
                for id in id {
                    client.delete_event(id).await?;
                    let answer = serde_json::json!({ "deleted": id });
                    screen.show_next(&answer, |_| format!("{id} deleted\n"))?;
                }
                Ok(())
            }
        }
    })
}

async fn apply(client: &Client, files: &[PathBuf], screen: Screen) -> Result<(), CommandError> {
    let mut events = Vec::new();
    for file in files {
        events.extend(definitions::events(file)?);
    }
    for (id, event) in events {
        let event = client.put_event(&id, &event).await?;
        screen.show_next(&event, |screen| {
            let revision = event.revision.unwrap_or_default();
            let applied = screen.paint(Tone::Good, "applied");
            format!("{id} {applied}, revision {revision}\n")
        })?;
    }
    Ok(())
}

async fn show_list(client: &Client, list: &ListArgs, screen: Screen) -> Result<(), CommandError> {
    let page = list
        .gather_plain(async |query| client.events(&query).await)
        .await?;
    screen.show(&page, |screen| {
        let rows: Vec<_> = page.items.iter().map(row).collect();
        let heading = ["EVENT", "ENABLED", "LIMITS", "TARGETS", "CATEGORY", "TITLE"];
        table(screen, heading, &rows) + &more(&page)
    })
}

fn row(event: &Event) -> [Cell; 6] {
    [
        maybe(event.id.as_ref()),
        enabled(event.enabled),
        cell(limits(&event.limits)),
        cell(event.targets.join(",")),
        maybe(event.category.as_ref()),
        maybe(event.title.as_ref()),
    ]
}

/// Whether something is enabled.
pub(crate) fn enabled(is_enabled: bool) -> Cell {
    if is_enabled {
        Cell::new(Tone::Good, "yes")
    } else {
        Cell::new(Tone::Bad, "no")
    }
}

fn described(event: &Event, screen: Screen) -> String {
    let one = [
        ("event", Some(maybe(event.id.as_ref()))),
        ("title", event.title.as_ref().map(cell)),
        ("type", Some(cell(word(&event.r#type)))),
        ("enabled", Some(enabled(event.enabled))),
        ("revision", event.revision.map(cell)),
        ("category", event.category.as_ref().map(cell)),
        ("priority", Some(cell(event.priority.get()))),
        ("targets", Some(cell(event.targets.join(", ")))),
        ("algo", Some(cell(word(&event.algo)))),
        ("resolve_limits", Some(cell(word(&event.resolve_limits)))),
        (
            "params",
            event.params.as_ref().map(|p| cell(p.as_json().to_owned())),
        ),
    ];
    let limits = event.limits.iter().map(|l| ("limit", Some(cell(limit(l)))));
    let nodes = event.nodes.iter().map(|node| {
        let text = format!(
            "{}: {} {}",
            node.id,
            node.event.as_deref().unwrap_or_default(),
            crate::limits::limits(&node.limits)
        );
        ("node", Some(cell(text)))
    });
    facts(screen, one.into_iter().chain(limits).chain(nodes))
}
