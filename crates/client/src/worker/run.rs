//! What an executor gets, and what it answers.

use fermata_api::bounds::DESCRIPTION_BYTES_MAX;
use fermata_api::servers::Offer;
use tokio::sync::watch;

/// The code of an attempt whose executor gave none: it panicked, or was dropped at the end of the
/// lease.
pub const CODE_KILLED: i32 = -1;

/// One attempt to execute. It is confirmed: it runs now, and nowhere else.
#[derive(Debug)]
pub struct Run {
    /// The attempt, with its committed start and its parameters.
    pub offer: Offer,
    /// The worker's incarnation.
    pub incarnation: u64,
    /// Tells when to stop.
    pub stop: StopSignal,
}

/// The end of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The exit code; 0 is success.
    pub code: i32,
    /// What there is to say; only the last [`DESCRIPTION_BYTES_MAX`] bytes are kept.
    pub description: Option<String>,
}

impl Ending {
    pub(super) fn killed(description: &str) -> Self {
        Self {
            code: CODE_KILLED,
            description: Some(description.to_owned()),
        }
    }

    /// The description's tail that may be sent.
    pub(super) fn into_tail(self) -> Option<String> {
        let mut description = self.description?;
        let mut start = description.len().saturating_sub(DESCRIPTION_BYTES_MAX);
        while !description.is_char_boundary(start) {
            start += 1;
        }
        description.drain(..start);
        Some(description)
    }
}

/// Why an execution must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The job was cancelled (S48).
    Cancelled,
    /// The job was active for too long (S50).
    TimeLimit,
    /// The attempt belongs to nobody any more (S14); its slot may be in other hands.
    Stale,
    /// The worker's lease is about to end (S41).
    LeaseExpired,
    /// The worker was superseded, or its server is unknown.
    Dismissed,
    /// The worker drains, and has waited long enough. The end is reported.
    DrainEnded,
    /// The worker must end at once. The end is reported.
    Shutdown,
}

impl Stop {
    /// Whether the execution may take a moment to end in order. Else it must be gone at once.
    #[must_use]
    pub fn has_grace(self) -> bool {
        matches!(self, Self::Cancelled | Self::TimeLimit | Self::DrainEnded)
    }
}

/// Tells an executor when to stop.
#[derive(Clone, Debug)]
pub struct StopSignal {
    signal: watch::Receiver<Option<Stop>>,
}

impl StopSignal {
    pub(super) fn new(signal: watch::Receiver<Option<Stop>>) -> Self {
        Self { signal }
    }

    /// Ready when there is a reason to stop; called again, when there is a further, more urgent
    /// one. Cancel safe.
    pub async fn requested(&mut self) -> Stop {
        loop {
            if self.signal.changed().await.is_err() {
                // The worker is gone, and drops this executor with it.
                std::future::pending::<()>().await;
            }
            if let Some(stop) = *self.signal.borrow_and_update() {
                return stop;
            }
        }
    }
}
