//! `fermata pool`: what runs and waits together, and its rate window.

use clap::{ArgGroup, Subcommand};
use fermata_api::pools::{Gate, LimitsInForce, PoolView, RateInForce, WindowView};
use fermata_client::Client;

use crate::error::CommandError;
use crate::overrides;
use crate::remote::{ListArgs, RemoteArgs, block_on, more};
use crate::screen::{Screen, Tone, word};
use crate::table::{Cell, cell, facts, maybe, table};

/// What to do with pools.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A pool is named by what its jobs share: `cap:KEY`, `event:ID`, `node:NODE@JOB` or `job:ID`; a
rate bucket is named `rate:KEY`.

Examples:
  fermata pool list
  fermata pool show event:salesforce
  fermata pool reset event:salesforce   start its window anew, with its full rate")]
pub(crate) struct PoolArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    action: PoolAction,
}

#[derive(Debug, Subcommand)]
enum PoolAction {
    /// List pools
    List(ListArgs),
    /// Show one pool
    Show {
        /// The pool
        id: String,
    },
    /// Remove a rate window with its count: the next start opens a new one
    #[command(group = ArgGroup::new("which").required(true).args(["id", "all"]))]
    Reset {
        /// The pools or rate buckets
        id: Vec<String>,
        /// Reset every window and bucket
        #[arg(long)]
        all: bool,
    },
}

pub(crate) fn run(args: &PoolArgs, screen: Screen) -> Result<(), CommandError> {
    let client = args.remote.client()?;
    block_on(async {
        match &args.action {
            PoolAction::List(list) => show_list(&client, list, screen).await,
            PoolAction::Show { id } => {
                let pool = client.pool(id).await?;
                screen.show(&pool, |screen| described(&pool, screen))
            }
            PoolAction::Reset { all: true, .. } => {
                client.reset_windows().await?;
                let answer = serde_json::json!({ "reset": "all" });
                screen.show_next(&answer, |_| "all windows reset\n".to_owned())
            }
            PoolAction::Reset { id, .. } => {
                for id in id {
                    client.reset_window(id).await?;
                    let answer = serde_json::json!({ "reset": id });
                    screen.show_next(&answer, |_| format!("{id} reset\n"))?;
                }
                Ok(())
            }
        }
    })
}

async fn show_list(client: &Client, list: &ListArgs, screen: Screen) -> Result<(), CommandError> {
    let page = list
        .gather_plain(async |query| client.pools(&query).await)
        .await?;
    screen.show(&page, |screen| {
        let rows: Vec<_> = page.items.iter().map(row).collect();
        let heading = [
            "POOL",
            "RUNNING",
            "WAITING",
            "DELAYED",
            "STARTS",
            "WINDOW ENDS",
            "WAITS FOR",
        ];
        table(screen, heading, &rows) + &more(&page)
    })
}

fn row(pool: &PoolView) -> [Cell; 7] {
    let LimitsInForce { amount, queue, .. } = pool.limits;
    [
        cell(&pool.id),
        of(pool.running, amount),
        of(pool.waiting, queue),
        cell(pool.delayed),
        pool.window.as_ref().map(starts).unwrap_or_default(),
        maybe(pool.window.as_ref().and_then(|window| window.expires_at)),
        pool.waits_for.as_ref().map(gate).unwrap_or_default(),
    ]
}

/// A number beside its limit, if it has one.
fn of(count: u64, most: Option<u64>) -> Cell {
    match most {
        Some(most) if count >= most => Cell::new(Tone::Busy, format!("{count}/{most}")),
        Some(most) => cell(format!("{count}/{most}")),
        None => cell(count),
    }
}

fn starts(window: &WindowView) -> Cell {
    of(window.count, Some(window.max))
}

fn gate(gate: &Gate) -> Cell {
    let text = match gate {
        Gate::Slot => "a slot",
        Gate::Window => "its rate",
        Gate::Rate { id } => id,
        Gate::Server => "a server",
    };
    Cell::new(Tone::Busy, text)
}

fn described(pool: &PoolView, screen: Screen) -> String {
    let LimitsInForce {
        amount,
        queue,
        rate,
    } = pool.limits;
    let window = pool.window.as_ref();
    let set = pool.r#override.as_ref();
    facts(
        screen,
        [
            ("pool", Some(cell(&pool.id))),
            ("running", Some(of(pool.running, amount))),
            ("waiting", Some(of(pool.waiting, queue))),
            ("delayed", Some(cell(pool.delayed))),
            ("rate", rate.map(|rate| cell(rate_in_force(&rate)))),
            ("head", pool.head.as_ref().map(cell)),
            ("waits for", pool.waits_for.as_ref().map(gate)),
            ("override", set.map(|set| cell(overrides::sizes(set)))),
            ("starts", window.map(starts)),
            (
                "expires at",
                window.and_then(|window| window.expires_at).map(cell),
            ),
            (
                "next at",
                window.and_then(|window| window.next_at).map(cell),
            ),
        ],
    )
}

fn rate_in_force(rate: &RateInForce) -> String {
    let RateInForce {
        count, window_s, ..
    } = rate;
    let align = rate
        .align
        .as_ref()
        .map_or_else(String::new, |align| format!(", {}", word(align)));
    format!("{count} per {window_s} s ({}{align})", word(&rate.style))
}
