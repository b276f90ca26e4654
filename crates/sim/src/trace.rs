//! Everything that happened, as one hash: two runs of one seed must agree in it.
//!
//! Every message that is sent, every write to a disk, every entry that is applied and every outcome
//! that a client sees goes into it, each with the host and the simulated time. With `--trace` each
//! is printed, so that the place where two runs part can be found.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Bytes that a host sends.
    Message,
    /// Something that a host writes to its disk.
    Write,
    /// An entry that a host applies.
    Entry,
    /// What a client is answered.
    Outcome,
    /// What is done to the cluster.
    Fault,
}

/// The trace of one run; a clone is the same one.
#[derive(Clone, Debug)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    hash: Sha256,
    counts: BTreeMap<Kind, u64>,
    prints: bool,
}

impl Trace {
    /// Begins; `prints`: each thing that is noted.
    pub(crate) fn new(prints: bool) -> Trace {
        Trace(Arc::new(Mutex::new(Inner {
            hash: Sha256::new(),
            counts: BTreeMap::new(),
            prints,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something that a host does now.
    pub(crate) fn note(&self, kind: Kind, host: &str, what: &[u8]) {
        let at = turmoil::sim_elapsed().unwrap_or(Duration::ZERO);
        self.note_at(at, kind, host, what);
    }

    /// Notes something at a time.
    pub(crate) fn note_at(&self, at: Duration, kind: Kind, host: &str, what: &[u8]) {
        let mut inner = self.lock();
        *inner.counts.entry(kind).or_default() += 1;
        inner.hash.update(at.as_nanos().to_le_bytes());
        inner.hash.update([kind as u8]);
        inner.hash.update(host.as_bytes());
        inner.hash.update((what.len() as u64).to_le_bytes());
        inner.hash.update(what);
        if inner.prints {
            let (seconds, sum) = (at.as_secs_f64(), hex(&Sha256::digest(what)));
            let text = String::from_utf8_lossy(what);
            let text = match kind {
                Kind::Message | Kind::Write => "",
                Kind::Entry | Kind::Outcome | Kind::Fault => &text,
            };
            println!("{seconds:>9.3} {host:<8} {kind:?} {sum} {text}");
        }
    }

    /// How many of a kind were noted.
    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.lock().counts.get(&kind).copied().unwrap_or(0)
    }

    /// The hash so far.
    pub(crate) fn hash(&self) -> String {
        hex(&self.lock().hash.clone().finalize())
    }
}

/// The first 64 bits, as 16 digits.
fn hex(hash: &[u8]) -> String {
    hash.iter().take(8).fold(String::new(), |mut text, byte| {
        // A string takes whatever is written.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
