//! Is this member still the leader? One question to a majority for all who ask (S41).
//!
//! Whoever wants to know waits for a round that *begins* after it came: those who come while a
//! round is under way share the next one. So any number of waiting renewals and reads costs one
//! round trip at a time.

use crate::ProposeError;
use crate::core::Core;
use openraft::ReadPolicy;
use openraft::error::{LinearizableReadError, RaftError};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Most that wait for a round.
const WAITING_MAX: usize = 65_536;

type Asker = oneshot::Sender<Result<(), ProposeError>>;

/// Where to ask.
#[derive(Clone)]
pub(crate) struct Confirmations {
    askers: mpsc::Sender<Asker>,
}

impl Confirmations {
    pub(crate) fn new() -> (Confirmations, Rounds) {
        let (askers, waiting) = mpsc::channel(WAITING_MAX);
        (Confirmations { askers }, Rounds { waiting })
    }

    /// Returns once a majority confirmed this leader after the call, and what was committed by
    /// then is applied here.
    pub(crate) async fn ask(&self) -> Result<(), ProposeError> {
        let (asker, answer) = oneshot::channel();
        self.askers.try_send(asker).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopping,
        })?;
        answer.await.unwrap_or(Err(ProposeError::Stopping))
    }
}

/// Those who wait for a round.
pub(crate) struct Rounds {
    waiting: mpsc::Receiver<Asker>,
}

impl Rounds {
    /// Holds one round after another for as long as it is polled.
    pub(crate) async fn hold(mut self, core: Arc<Core>) {
        let mut askers = Vec::new();
        while self.waiting.recv_many(&mut askers, WAITING_MAX).await > 0 {
            let confirmed = round(&core).await;
            for asker in askers.drain(..) {
                // Whoever asked may have gone meanwhile.
                let _ = asker.send(confirmed.clone());
            }
        }
    }
}

async fn round(core: &Core) -> Result<(), ProposeError> {
    let not_leader = |leader| Err(ProposeError::NotLeader { leader });
    match core.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
        Ok(_) => Ok(()),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => {
            not_leader(core.other_leader())
        }
        Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => not_leader(None),
        Err(RaftError::Fatal(_)) => Err(ProposeError::Stopping),
    }
}
