//! `fermata demo`: the two-minute proof.

use crate::error::CommandError;

/// Three nodes and two workers on this machine, a killed leader, and an audit of every start.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Repeat a run's random choices; each run prints its seed
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Keep the folder with the nodes' state, their logs and the workers' journals
    #[arg(long)]
    pub(crate) keep: bool,
}

pub(crate) fn run(args: DemoArgs) -> Result<(), CommandError> {
    let _ = args;
    Ok(())
}
