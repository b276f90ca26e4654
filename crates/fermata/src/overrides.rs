//! `fermata override`: sizes set from above, until they are lifted or until an instant (S33).

use clap::{ArgGroup, Subcommand};
use fermata_api::pools::{Override, OverrideView};
use fermata_api::time::Timestamp;
use fermata_client::Client;

use crate::error::CommandError;
use crate::moment::{self, Until};
use crate::remote::{ListArgs, RemoteArgs, block_on, more};
use crate::screen::{Screen, Tone, printable};
use crate::table::{Cell, cell, maybe, table};

/// What to do with overrides.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An override stands above every limit of a pool (`cap:KEY`, `event:ID`, `node:NODE@JOB`,
`job:ID`) or rate bucket (`rate:KEY`). It acts at once, on what waits too, and never gives back
what was used. What runs goes on.

Examples:
  fermata override set cap:salesforce --amount 0 --until 14:00   close this key until 14:00
  fermata override set rate:mail --count 10 --for 2h --note 'incident 7'
  fermata override clear cap:salesforce
  fermata override list")]
pub(crate) struct OverrideArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    action: OverrideAction,
}

#[derive(Debug, Subcommand)]
enum OverrideAction {
    /// Set the override of a pool or rate bucket, in place of the one that is there
    Set(SetArgs),
    /// Lift overrides
    Clear {
        /// The pools or rate buckets
        #[arg(required = true)]
        id: Vec<String>,
    },
    /// List overrides
    List(ListArgs),
}

/// What is set.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("size").required(true).multiple(true).args(["count", "window_s", "amount"]),
    group = ArgGroup::new("end").args(["until", "duration_s"]),
    after_help = "\
Examples:
  fermata override set cap:salesforce --amount 0 --until 14:00   close this key until 14:00
  fermata override set cap:salesforce --count 20                 20 starts per window, until cleared"
)]
struct SetArgs {
    /// The pool or rate bucket
    id: String,
    /// Starts per window, and the burst; 0: none that uses the rate starts
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
    /// Length of the window, in seconds
    #[arg(long, value_name = "SECONDS")]
    window_s: Option<u64>,
    /// Jobs at once, of a pool; 0: none of the pool starts
    #[arg(long, value_name = "NUMBER")]
    amount: Option<u64>,
    /// Until then: a time of day here, as in 14:00 (tomorrow's where today's is past), or an RFC 3339
    /// instant; else until cleared
    #[arg(long, value_name = "INSTANT", value_parser = moment::until)]
    until: Option<Until>,
    /// For so long: a number with s, m, h or d
    #[arg(long = "for", id = "duration_s", value_name = "DURATION", value_parser = moment::duration_s)]
    duration_s: Option<u64>,
    /// Why, for others to read
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub(crate) fn run(args: &OverrideArgs, screen: Screen) -> Result<(), CommandError> {
    let client = args.remote.client()?;
    block_on(async {
        match &args.action {
            OverrideAction::Set(set) => {
                let body = Override {
                    count: set.count,
                    window_s: set.window_s,
                    amount: set.amount,
                    expires_at: expires_at(set)?,
                    note: set.note.clone(),
                };
                let view = client.put_override(&set.id, &body).await?;
                screen.show(&view, |screen| {
                    let done = screen.paint(Tone::Good, "overridden");
                    let OverrideView { id, r#override } = &view;
                    format!("{id} {done}: {}\n", printable(&sizes(r#override)))
                })
            }
            OverrideAction::Clear { id } => {
                for id in id {
                    client.delete_override(id).await?;
                    let answer = serde_json::json!({ "cleared": id });
                    screen.show_next(&answer, |_| format!("{id} cleared\n"))?;
                }
                Ok(())
            }
            OverrideAction::List(list) => show_list(&client, list, screen).await,
        }
    })
}

fn expires_at(set: &SetArgs) -> Result<Option<Timestamp>, CommandError> {
    Ok(match (set.until, set.duration_s) {
        (Some(Until::At(at)), _) => Some(at),
        (Some(Until::Clock(time)), _) => {
            let at = moment::next_here(time).map_err(|error| CommandError::Setting {
                name: "--until",
                given: time.to_string(),
                allowed: format!("an RFC 3339 instant is allowed here: {error}"),
            })?;
            Some(at)
        }
        (None, Some(duration_s)) => Some(moment::after_s(duration_s)),
        (None, None) => None,
    })
}

async fn show_list(client: &Client, list: &ListArgs, screen: Screen) -> Result<(), CommandError> {
    let page = list
        .gather_plain(async |query| client.overrides(&query).await)
        .await?;
    screen.show(&page, |screen| {
        let rows: Vec<_> = page.items.iter().map(row).collect();
        let heading = ["ID", "COUNT", "WINDOW", "AMOUNT", "EXPIRES AT", "NOTE"];
        table(screen, heading, &rows) + &more(&page)
    })
}

fn row(view: &OverrideView) -> [Cell; 6] {
    let sizes = &view.r#override;
    [
        cell(&view.id),
        maybe(sizes.count),
        maybe(sizes.window_s.map(|s| format!("{s} s"))),
        maybe(sizes.amount),
        maybe(sizes.expires_at),
        maybe(sizes.note.as_ref()),
    ]
}

/// An override in a few words.
pub(crate) fn sizes(sizes: &Override) -> String {
    let parts = [
        sizes.count.map(|count| format!("count {count}")),
        sizes
            .window_s
            .map(|window_s| format!("window {window_s} s")),
        sizes.amount.map(|amount| format!("amount {amount}")),
        Some(match sizes.expires_at {
            Some(at) => format!("until {at}"),
            None => "until it is cleared".to_owned(),
        }),
        sizes.note.as_ref().map(|note| format!("({note})")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
