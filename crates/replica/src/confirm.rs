//! Is this member still the leader? One question to a majority for all who ask (S41).
//!
//! Whoever wants to know waits for a round that *begins* after it came: those who come while a
//! round is under way share the next one. So any number of waiting renewals and reads costs one
//! round trip at a time.
//!
//! Who is in no hurry lets others come first: the round that it is in begins when somebody in a
//! hurry asks, or after [`UNHURRIED_WAIT`]. So the renewals of any number of idle workers cost a
//! bounded number of rounds a second.

use crate::ProposeError;
use crate::core::Core;
use openraft::ReadPolicy;
use openraft::error::{LinearizableReadError, RaftError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Most that wait for a round.
const WAITING_MAX: usize = 65_536;
/// How long those who are in no hurry wait for others before their round begins.
const UNHURRIED_WAIT: Duration = Duration::from_millis(50);

/// How soon an answer is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hurry {
    /// At once.
    AtOnce,
    /// A moment later does as well: [`UNHURRIED_WAIT`].
    None,
}

struct Asker {
    hurry: Hurry,
    answer: oneshot::Sender<Result<(), ProposeError>>,
}

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
    pub(crate) async fn ask(&self, hurry: Hurry) -> Result<(), ProposeError> {
        let (answer, answered) = oneshot::channel();
        let asker = Asker { hurry, answer };
        self.askers.try_send(asker).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => ProposeError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => ProposeError::Stopping,
        })?;
        answered.await.unwrap_or(Err(ProposeError::Stopping))
    }
}

/// Those who wait for a round.
pub(crate) struct Rounds {
    waiting: mpsc::Receiver<Asker>,
}

impl Rounds {
    /// Holds one round after another for as long as it is polled.
    pub(crate) async fn hold(mut self, round: impl AsyncFn() -> Result<(), ProposeError>) {
        let mut askers = Vec::new();
        while self.gather(&mut askers).await {
            let confirmed = round().await;
            for asker in askers.drain(..) {
                // Whoever asked may have gone meanwhile.
                let _ = asker.answer.send(confirmed.clone());
            }
        }
    }

    /// Gathers askers until their round is to begin; false when nobody is left who could ask.
    async fn gather(&mut self, askers: &mut Vec<Asker>) -> bool {
        let mut begins: Option<Instant> = None;
        while askers.len() < WAITING_MAX {
            let before = askers.len();
            let room = WAITING_MAX - before;
            let wait = begins.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                came = self.waiting.recv_many(askers, room) => if came == 0 { break },
                () = sleep_until(wait), if begins.is_some() => break,
            }
            if askers[before..]
                .iter()
                .any(|asker| asker.hurry == Hurry::AtOnce)
            {
                break;
            }
            begins.get_or_insert_with(|| Instant::now() + UNHURRIED_WAIT);
        }
        !askers.is_empty()
    }
}

/// Asks a majority whether this member leads.
pub(crate) async fn round(core: &Core) -> Result<(), ProposeError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
    use tokio::task::LocalSet;

    /// How long a round takes here.
    const ROUND: Duration = Duration::from_millis(7);

    /// Three timers stand between a question and its answer, each up to 1 ms late.
    const TIMERS_LATE: Duration = Duration::from_millis(3);

    /// Time passes. It is paused in these tests: it jumps, and nobody waits.
    async fn passes(time: Duration) {
        sleep_until(Instant::now() + time).await;
    }

    /// When each round began.
    type Begun = Rc<RefCell<Vec<Instant>>>;

    /// Rounds that are held from now on, in time that passes when all wait.
    fn held() -> (Confirmations, Begun) {
        let (confirmations, rounds) = Confirmations::new();
        let begun = Begun::default();
        let seen = Rc::clone(&begun);
        tokio::task::spawn_local(rounds.hold(async move || {
            seen.borrow_mut().push(Instant::now());
            passes(ROUND).await;
            Ok(())
        }));
        (confirmations, begun)
    }

    /// Asks, and checks that a round counts only if it began after that (S41). How long it took.
    async fn asked(confirmations: &Confirmations, begun: &Begun, hurry: Hurry) -> Duration {
        let came = Instant::now();
        let before = begun.borrow().len();
        assert_eq!(confirmations.ask(hurry).await, Ok(()));
        let later = begun.borrow()[before..].to_vec();
        assert!(
            later.iter().any(|began| *began + ROUND <= Instant::now()),
            "asked at {came:?}; begun since {later:?}"
        );
        came.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn those_in_no_hurry_share_few_rounds() {
        let all = async {
            let (confirmations, begun) = held();
            let mut asking = tokio::task::JoinSet::new();
            for _ in 0..1_000 {
                let (confirmations, begun) = (confirmations.clone(), Rc::clone(&begun));
                asking.spawn_local(async move { asked(&confirmations, &begun, Hurry::None).await });
                passes(Duration::from_millis(1)).await;
            }
            while let Some(took) = asking.join_next().await {
                let took = took.expect("no panic");
                let most = UNHURRIED_WAIT + 2 * ROUND + TIMERS_LATE;
                assert!(took <= most, "{took:?}");
            }
            let rounds = begun.borrow().len();
            assert!((15..=21).contains(&rounds), "{rounds} rounds in a second");
        };
        LocalSet::new().run_until(all).await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_in_a_hurry_takes_along_those_who_are_not() {
        let all = async {
            let (confirmations, begun) = held();
            let unhurried = asked(&confirmations, &begun, Hurry::None);
            let hurried = async {
                passes(Duration::from_millis(3)).await;
                asked(&confirmations, &begun, Hurry::AtOnce).await
            };
            let (unhurried, hurried) = tokio::join!(unhurried, hurried);
            assert_eq!(hurried, ROUND, "it waited for nobody");
            assert_eq!(unhurried, ROUND + Duration::from_millis(3));
            assert_eq!(begun.borrow().len(), 1);
        };
        LocalSet::new().run_until(all).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_under_way_counts_for_nobody_who_comes() {
        let all = async {
            let (confirmations, begun) = held();
            let first = asked(&confirmations, &begun, Hurry::AtOnce);
            let later = |hurry| {
                let (confirmations, begun) = (&confirmations, &begun);
                async move {
                    passes(Duration::from_millis(2)).await;
                    asked(confirmations, begun, hurry).await
                }
            };
            let (first, hurried, unhurried) =
                tokio::join!(first, later(Hurry::AtOnce), later(Hurry::None));
            assert_eq!(first, ROUND);
            let both = ROUND * 2 - Duration::from_millis(2);
            assert_eq!((hurried, unhurried), (both, both));
            assert_eq!(begun.borrow().len(), 2);
        };
        LocalSet::new().run_until(all).await;
    }
}
