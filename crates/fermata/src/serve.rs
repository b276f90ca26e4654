//! `fermata serve`: one node of a cluster.

use std::path::PathBuf;

use crate::error::CommandError;
use crate::node;
use crate::screen::{Format, Screen, print};
use crate::settings::{Given, Settings};

/// Which node, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every setting is a flag, a variable FERMATA_NAME, or a key of the file with the flag's name and
underscores (`peer_listen`); flags go first, the file last. With neither --bootstrap nor --join
the node goes on with the cluster that its folder knows.

The first SIGTERM or SIGINT ends the node in order: it hands leadership over, answers what it has
at hand and stops. The second ends it at once, which loses nothing that was answered.

Examples:
  fermata serve --id 1 --data /var/lib/fermata --bootstrap
  fermata serve --id 2 --data n2 --listen 127.0.0.1:7410 --peer-listen 127.0.0.1:7411 \\
      --join 127.0.0.1:7401
  fermata serve --config /etc/fermata.toml --check")]
pub(crate) struct ServeArgs {
    /// A file with settings, in TOML
    #[arg(long, env = "FERMATA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings in force as such a file, and do nothing else
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    given: Given,
}

pub(crate) fn run(args: ServeArgs, screen: Screen) -> Result<(), CommandError> {
    let in_file = args.config.as_deref().map(Given::read).transpose()?;
    let settings = args.given.or(in_file.unwrap_or_default()).settings()?;
    if args.check {
        return show(&settings, screen);
    }
    settings.log().start()?;
    node::run(&settings, |_, mut ending| async move {
        // Whoever would end it being gone ends it.
        let _ = ending.wait_for(|is_ending| *is_ending).await;
        Ok(())
    })
}

fn show(settings: &Settings, screen: Screen) -> Result<(), CommandError> {
    match screen.format {
        Format::Json => screen.show(settings, |_| String::new()),
        Format::Text => {
            let text = toml::to_string(settings)
                .map_err(|error| CommandError::Answer(std::io::Error::other(error)))?;
            print(&text)
        }
    }
}
