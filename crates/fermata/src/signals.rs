//! SIGTERM and SIGINT: the first asks a process to end in order, the second to end at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CommandError;

/// The signals that end a process.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on the signals do not end the process by themselves. Needs a runtime.
    pub(crate) fn new() -> Result<Self, CommandError> {
        let listen = |kind| {
            signal(kind).map_err(|source| CommandError::System {
                doing: "listen for signals",
                source,
            })
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// The name of the next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
