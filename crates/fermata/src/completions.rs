//! `fermata completions`: what a shell needs to complete the commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::CommandError;
use crate::screen::print;

/// For which shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  fermata completions bash > ~/.local/share/bash-completion/completions/fermata
  fermata completions fish > ~/.config/fish/completions/fermata.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fermata", &mut script);
    print(&String::from_utf8_lossy(&script))
}
