//! `fermata audit`: who changed what, and when.

use fermata_api::audit::AuditRecord;

use crate::error::CommandError;
use crate::remote::{ListArgs, RemoteArgs, block_on, more};
use crate::screen::Screen;
use crate::table::{Cell, cell, maybe, table};

/// Which changes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every edit of an event, category, server or the settings, every override, reset and change of the
nodes leaves a record. The newest come first; the cluster keeps the last 10000.

Examples:
  fermata audit
  fermata audit --limit 1000 --output json")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) fn run(args: &AuditArgs, screen: Screen) -> Result<(), CommandError> {
    let client = args.remote.client()?;
    let page = block_on(
        args.list
            .gather_plain(async |query| client.audit(&query).await),
    )?;
    screen.show(&page, |screen| {
        let rows: Vec<_> = page.items.iter().map(row).collect();
        let heading = ["AT", "WHO", "WHAT", "TARGET", "REVISION", "CHANGE"];
        table(screen, heading, &rows) + &more(&page)
    })
}

fn row(record: &AuditRecord) -> [Cell; 6] {
    [
        cell(record.at),
        maybe(record.actor.as_ref()),
        cell(record.action.words()),
        maybe(record.target.as_ref()),
        maybe(record.revision),
        maybe(record.change.as_ref()),
    ]
}
