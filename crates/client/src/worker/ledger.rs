//! What a worker has in hand: every attempt from its offer to the acknowledgement of its end.
//!
//! ```text
//! offered ──confirmed──► running ──ended──► ended ──acknowledged──► forgotten
//!    └────────discard───────┴───────────────────────────────────────────┘
//! ```
//!
//! Attempts of a job only grow. So the latest attempt of each job is remembered for a while after
//! it was forgotten, and what is offered at or below it is dropped: an offer that was on its way
//! for long cannot make an attempt run twice.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fermata_api::bounds::POLL_ENTRIES_MAX;
use fermata_api::servers::{AttemptRef, Completion, Offer};

use super::run::Ending;

/// Jobs whose latest attempt is remembered.
const REMEMBERED_JOBS_MAX: usize = POLL_ENTRIES_MAX;

#[derive(Default)]
pub(super) struct Ledger {
    in_hand: BTreeMap<AttemptRef, Hand>,
    /// The latest attempt of each remembered job; `order` has the same jobs, oldest first.
    latest: HashMap<String, u32>,
    order: VecDeque<String>,
}

enum Hand {
    Offered {
        offer: Box<Offer>,
        /// Whether its confirmation was sent: it may have been accepted.
        is_sent: bool,
    },
    Running {
        /// Whether the end is still anybody's business.
        is_reported: bool,
    },
    Ended(Completion),
}

impl Ledger {
    /// Whether the offer is new; else it is dropped.
    pub(super) fn offered(&mut self, offer: Offer) -> bool {
        let is_old = self
            .latest
            .get(&offer.job)
            .is_some_and(|latest| offer.attempt <= *latest);
        if is_old || self.in_hand.len() >= POLL_ENTRIES_MAX {
            return false;
        }
        self.remember(&offer.job, offer.attempt);
        let attempt = AttemptRef {
            job: offer.job.clone(),
            attempt: offer.attempt,
        };
        let hand = Hand::Offered {
            offer: Box::new(offer),
            is_sent: false,
        };
        self.in_hand.insert(attempt, hand);
        true
    }

    /// The offer, now that it may be executed: once.
    pub(super) fn confirmed(&mut self, attempt: &AttemptRef) -> Option<Offer> {
        let hand = self.in_hand.get_mut(attempt)?;
        if !matches!(hand, Hand::Offered { .. }) {
            return None;
        }
        let running = Hand::Running { is_reported: true };
        match std::mem::replace(hand, running) {
            Hand::Offered { offer, .. } => Some(*offer),
            Hand::Running { .. } | Hand::Ended(_) => None,
        }
    }

    pub(super) fn ended(&mut self, attempt: &AttemptRef, ending: Ending) {
        match self.in_hand.get_mut(attempt) {
            Some(hand @ Hand::Running { is_reported: true }) => {
                *hand = Hand::Ended(Completion {
                    job: attempt.job.clone(),
                    attempt: attempt.attempt,
                    code: ending.code,
                    description: ending.into_tail(),
                });
            }
            Some(Hand::Running { .. }) => {
                self.in_hand.remove(attempt);
            }
            Some(Hand::Offered { .. } | Hand::Ended(_)) | None => {}
        }
    }

    /// The cluster has heard of an end.
    pub(super) fn acknowledged(&mut self, attempt: &AttemptRef) {
        if let Some(Hand::Ended(_)) = self.in_hand.get(attempt) {
            self.in_hand.remove(attempt);
        }
    }

    /// Whether the attempt is in hand.
    pub(super) fn has(&self, attempt: &AttemptRef) -> bool {
        self.in_hand.contains_key(attempt)
    }

    /// Nobody is interested in the attempt any more. Whether that is news.
    pub(super) fn discard(&mut self, attempt: &AttemptRef) -> bool {
        match self.in_hand.get_mut(attempt) {
            Some(Hand::Running { is_reported }) => std::mem::replace(is_reported, false),
            Some(Hand::Offered { .. } | Hand::Ended(_)) => self.in_hand.remove(attempt).is_some(),
            None => false,
        }
    }

    /// Lets go of what was offered. Where a confirmation was sent it may have been accepted, so the
    /// attempt is kept until the answer is definite.
    pub(super) fn discard_offers(&mut self) {
        self.in_hand
            .retain(|_, hand| !matches!(hand, Hand::Offered { is_sent: false, .. }));
    }

    pub(super) fn holds(&self) -> Vec<AttemptRef> {
        self.in_hand.keys().cloned().collect()
    }

    /// The attempts to confirm. One whose job still runs here as another attempt waits for its
    /// end, so that a job never runs twice at once in one place.
    pub(super) fn confirm(&mut self) -> Vec<AttemptRef> {
        let attempts: Vec<AttemptRef> = self.confirmable().cloned().collect();
        for attempt in &attempts {
            if let Some(Hand::Offered { is_sent, .. }) = self.in_hand.get_mut(attempt) {
                *is_sent = true;
            }
        }
        attempts
    }

    pub(super) fn completions(&self) -> Vec<Completion> {
        self.in_hand
            .values()
            .filter_map(|hand| match hand {
                Hand::Ended(completion) => Some(completion.clone()),
                Hand::Offered { .. } | Hand::Running { .. } => None,
            })
            .collect()
    }

    pub(super) fn has_reports(&self) -> bool {
        let has_ended = |hand: &Hand| matches!(hand, Hand::Ended(_));
        self.in_hand.values().any(has_ended) || self.confirmable().next().is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_hand.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.in_hand.len()
    }

    fn confirmable(&self) -> impl Iterator<Item = &AttemptRef> {
        self.in_hand.iter().filter_map(|(attempt, hand)| {
            let is_offered = matches!(hand, Hand::Offered { .. });
            (is_offered && !self.runs(&attempt.job)).then_some(attempt)
        })
    }

    fn runs(&self, job: &str) -> bool {
        let first = AttemptRef {
            job: job.to_owned(),
            attempt: 0,
        };
        self.in_hand
            .range(first..)
            .take_while(|(attempt, _)| attempt.job == job)
            .any(|(_, hand)| matches!(hand, Hand::Running { .. }))
    }

    fn remember(&mut self, job: &str, attempt: u32) {
        if self.latest.insert(job.to_owned(), attempt).is_some() {
            return;
        }
        self.order.push_back(job.to_owned());
        while self.order.len() > REMEMBERED_JOBS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.latest.remove(&oldest);
            }
        }
    }
}
