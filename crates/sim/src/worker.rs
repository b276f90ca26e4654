//! A worker, through all its lives: polls, confirms, executes, reports, and stops what it runs when
//! its lease is over.

use crate::clock::true_us;
use crate::edge::{Answer, Offer, Question, ask};
use crate::invariants::Seen;
use crate::network::Network;
use fermata_audit::{End, Record};
use fermata_pool::command::{Command, Holder};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How often it polls.
const POLL_EVERY: Duration = Duration::from_millis(300);
/// How long it tries to have something committed at a time.
const PATIENCE: Duration = Duration::from_secs(5);

/// A worker; a clone is the same one.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) server: String,
    pub(crate) network: Network,
    pub(crate) seen: Seen,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    random: StdRng,
    incarnation: u64,
    kept_until: Option<Instant>,
    /// The attempts that it knows, and whether they run.
    known: BTreeMap<(String, u32), bool>,
}

impl Worker {
    pub(crate) fn new(number: u64, network: Network, seen: Seen, seed: u64) -> Worker {
        Worker {
            server: format!("w{number}"),
            network,
            seen,
            inner: Arc::new(Mutex::new(Inner {
                random: StdRng::seed_from_u64(seed),
                incarnation: 0,
                kept_until: None,
                known: BTreeMap::new(),
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which life it is.
    pub(crate) fn incarnation(&self) -> u64 {
        self.lock().incarnation
    }

    fn holder(&self) -> Holder {
        Holder {
            server: self.server.as_str().into(),
            incarnation: format!("{:020}", self.lock().incarnation).into(),
        }
    }

    /// What it ran ends with it, at this instant; for whoever kills it.
    pub(crate) fn killed(&self, at_us: i64) {
        let running: Vec<(String, u32)> = {
            let mut inner = self.lock();
            let known = std::mem::take(&mut inner.known);
            known
                .into_iter()
                .filter(|(_, runs)| *runs)
                .map(|(it, _)| it)
                .collect()
        };
        for (job, attempt) in running {
            self.record_end(&job, attempt, at_us, -9);
        }
    }

    fn record_end(&self, job: &str, attempt: u32, at_us: i64, code: i32) {
        self.seen.record(Record::End(End {
            job: job.to_owned(),
            attempt,
            worker: self.server.clone(),
            incarnation: self.lock().incarnation,
            at_us,
            code,
        }));
    }

    /// One life.
    pub(crate) async fn live(self) -> turmoil::Result {
        {
            let mut inner = self.lock();
            inner.incarnation += 1;
            inner.kept_until = None;
        }
        loop {
            let sent = Instant::now();
            let poll = Question::Poll(self.holder());
            if let Answer::Offers { lease_ms, offers } =
                ask(&self.network, 1, &poll, POLL_EVERY * 4).await
            {
                // Counted from when it was sent (S41), with a little to spare for stopping.
                let lease = Duration::from_millis(lease_ms.saturating_sub(100));
                self.lock().kept_until = Some(sent + lease);
                for offer in offers {
                    self.take(offer);
                }
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// Takes what it does not know yet: the same attempt is offered until it is confirmed.
    fn take(&self, offer: Offer) {
        let attempt = (offer.job.clone(), offer.attempt);
        let is_new = match self.lock().known.entry(attempt) {
            Entry::Vacant(place) => {
                place.insert(false);
                true
            }
            Entry::Occupied(_) => false,
        };
        if is_new {
            let worker = self.clone();
            tokio::spawn(async move { worker.execute(offer).await });
        }
    }

    fn keeps_its_lease(&self) -> bool {
        self.lock()
            .kept_until
            .is_some_and(|until| Instant::now() < until)
    }

    async fn execute(self, offer: Offer) {
        let started = Question::Propose(Command::Started {
            job: offer.job.as_str().into(),
            attempt: offer.attempt,
            from: Some(self.holder()),
        });
        loop {
            match ask(&self.network, 1, &started, PATIENCE).await {
                Answer::Done(_) if self.keeps_its_lease() => break,
                // Once the lease is renewed it is asked again whether the attempt still stands.
                Answer::Done(_) => sleep(POLL_EVERY).await,
                Answer::Unknown => {}
                _ => return,
            }
        }
        self.begin(&offer);
        let length = Duration::from_millis(self.lock().random.random_range(50..1_500));
        let ends = Instant::now() + length;
        let code = loop {
            let Some(kept_until) = self.lock().kept_until else {
                break -15;
            };
            let now = Instant::now();
            if now >= kept_until {
                break -15;
            }
            if now >= ends {
                break 0;
            }
            sleep_until(ends.min(kept_until)).await;
        };
        self.lock()
            .known
            .insert((offer.job.clone(), offer.attempt), false);
        self.record_end(&offer.job, offer.attempt, true_us(), code);
        let completed = Question::Propose(Command::Completed {
            job: offer.job.as_str().into(),
            attempt: offer.attempt,
            code,
            description: "".into(),
            from: Some(self.holder()),
        });
        while let Answer::Unknown = ask(&self.network, 1, &completed, PATIENCE).await {}
    }

    fn begin(&self, offer: &Offer) {
        self.lock()
            .known
            .insert((offer.job.clone(), offer.attempt), true);
        let incarnation = self.lock().incarnation;
        self.seen.record(offer.begun(&self.server, incarnation));
    }
}
