//! Requests that one member's edge hands to another's: opaque bytes, many at a time on one
//! connection, answered as they are done.
//!
//! What matters to the asker is whether its request may have been carried out. It certainly was
//! not while it has not been written; once a byte of it may have left, a missing answer leaves
//! that open ([`ForwardError::Unanswered`]).
//!
//! A connection is given up when a request went unanswered for its whole deadline and nothing
//! else was heard meanwhile: the peer may have vanished without a word.

use super::connection::{Connection, Dialer, PeerError, Writer};
use crate::core::Core;
use crate::format::wire::{Answer, FORWARDED_BYTES_MAX, Purpose, Request};
use crate::{ForwardError, Member};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

/// Most requests that wait for an answer at a time, per connection and on either side.
const IN_FLIGHT_MAX: usize = 4_096;
/// Most answers that wait to be written.
const ANSWERS_WAITING_MAX: usize = 64;

type Answered = Result<Vec<u8>, ForwardError>;
type Waiting = oneshot::Sender<Answered>;

/// The connections on which requests are handed on.
pub(crate) struct Forwards {
    dialer: Dialer,
    runtime: tokio::runtime::Handle,
    /// One at a time: requests go to the leader.
    link: Mutex<Option<Handle>>,
}

/// Whoever holds one keeps the connection: the last one that goes ends it.
#[derive(Clone)]
struct Handle {
    link: Arc<Link>,
    outgoing: mpsc::Sender<Outgoing>,
}

/// One connection, and who waits on it.
struct Link {
    to: Member,
    pending: Mutex<BTreeMap<u64, Waiting>>,
    numbers: AtomicU64,
    /// Counts the answers, to see whether any came.
    heard: AtomicU64,
    closed: AtomicBool,
}

struct Outgoing {
    number: u64,
    deadline: Duration,
    request: Vec<u8>,
}

impl Forwards {
    pub(crate) fn new(dialer: Dialer, runtime: tokio::runtime::Handle) -> Forwards {
        Forwards {
            dialer,
            runtime,
            link: Mutex::new(None),
        }
    }

    /// Hands a request to a member and waits for its answer.
    pub(crate) async fn ask(&self, to: &Member, request: Vec<u8>, deadline: Duration) -> Answered {
        if request.len() > FORWARDED_BYTES_MAX as usize {
            return Err(ForwardError::TooLarge {
                given: request.len() as u64,
                most: u64::from(FORWARDED_BYTES_MAX),
            });
        }
        let Handle {
            link,
            outgoing: queue,
        } = self.handle(to);
        let heard_before = link.heard.load(Ordering::Relaxed);
        let (number, answer) = link.wait_for()?;
        let outgoing = Outgoing {
            number,
            deadline,
            request,
        };
        if queue.try_send(outgoing).is_err() {
            link.forget(number);
            return Err(ForwardError::Overloaded);
        }
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) => Err(ForwardError::Unanswered),
            Err(_) => {
                link.forget(number);
                if link.heard.load(Ordering::Relaxed) == heard_before {
                    self.give_up(&link);
                }
                Err(ForwardError::Unanswered)
            }
        }
    }

    fn handle(&self, to: &Member) -> Handle {
        let mut place = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = place.as_ref()
            && handle.link.to == *to
            && !handle.link.closed.load(Ordering::Relaxed)
        {
            return handle.clone();
        }
        let (outgoing, requests) = mpsc::channel(IN_FLIGHT_MAX);
        let link = Arc::new(Link {
            to: to.clone(),
            pending: Mutex::default(),
            numbers: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        });
        self.runtime
            .spawn(carry(self.dialer.clone(), Arc::clone(&link), requests));
        let handle = Handle { link, outgoing };
        *place = Some(handle.clone());
        handle
    }

    fn give_up(&self, link: &Arc<Link>) {
        let mut place = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if place
            .as_ref()
            .is_some_and(|kept| Arc::ptr_eq(&kept.link, link))
        {
            *place = None;
        }
    }
}

impl Link {
    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, Waiting>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self) -> Result<(u64, oneshot::Receiver<Answered>), ForwardError> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (waiting, answer) = oneshot::channel();
        let mut pending = self.pending();
        if pending.len() >= IN_FLIGHT_MAX {
            // Those whose asker was dropped wait for nothing.
            pending.retain(|_, waiting| !waiting.is_closed());
            if pending.len() >= IN_FLIGHT_MAX {
                return Err(ForwardError::Overloaded);
            }
        }
        pending.insert(number, waiting);
        Ok((number, answer))
    }

    fn forget(&self, number: u64) {
        self.pending().remove(&number);
    }

    fn answer(&self, number: u64, answer: Answered) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        if let Some(waiting) = self.pending().remove(&number) {
            // Whoever asked may have gone meanwhile.
            let _ = waiting.send(answer);
        }
    }

    /// Those that were written are open; those that were not certainly did not arrive.
    fn close(&self, mut unwritten: mpsc::Receiver<Outgoing>, why: &str) {
        self.closed.store(true, Ordering::Relaxed);
        unwritten.close();
        while let Ok(outgoing) = unwritten.try_recv() {
            let error = ForwardError::Unreachable(why.to_owned());
            self.answer(outgoing.number, Err(error));
        }
        self.pending().clear();
    }
}

/// Connects, and carries requests until the connection breaks or nobody has a use for it.
async fn carry(dialer: Dialer, link: Arc<Link>, mut requests: mpsc::Receiver<Outgoing>) {
    let to = &link.to;
    let opened = dialer
        .open(&to.peer, Some(to.node), Purpose::Forwards)
        .await;
    let Connection { mut reader, writer } = match opened {
        Ok(connection) => connection,
        Err(error) => return link.close(requests, &error.to_string()),
    };
    let answers = async {
        loop {
            match reader.next::<Answer>().await? {
                (Answer::Forwarded { number }, tail) => link.answer(number, Ok(tail)),
                (Answer::NotForwarded { number }, _) => {
                    let why = "its edge does not answer yet".to_owned();
                    link.answer(number, Err(ForwardError::Unreachable(why)));
                }
                (other, _) => return Err::<(), _>(PeerError::unexpected(&other)),
            }
        }
    };
    let ended = tokio::select! {
        ended = answers => ended,
        ended = write_all(writer, &mut requests) => ended,
    };
    let why = match ended {
        Ok(()) => "it is no longer the leader".to_owned(),
        Err(error) => error.to_string(),
    };
    link.close(requests, &why);
}

async fn write_all(
    mut writer: Writer,
    requests: &mut mpsc::Receiver<Outgoing>,
) -> Result<(), PeerError> {
    while let Some(outgoing) = requests.recv().await {
        let request = Request::Forward {
            number: outgoing.number,
            deadline_ms: u64::try_from(outgoing.deadline.as_millis()).unwrap_or(u64::MAX),
        };
        writer.send(&request, &outgoing.request).await?;
    }
    Ok(())
}

/// Has the edge answer what comes on a connection, many at a time.
pub(crate) async fn answer(core: &Arc<Core>, connection: Connection) -> Result<(), PeerError> {
    let Connection { mut reader, writer } = connection;
    let (answers, answered) = mpsc::channel(ANSWERS_WAITING_MAX);
    let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let mut at_work = JoinSet::new();
    let requests = async {
        loop {
            let (request, tail) = reader.next::<Request>().await?;
            let Request::Forward {
                number,
                deadline_ms,
            } = request
            else {
                let why = "a connection for forwarded requests carries nothing else";
                return Err(PeerError::Unexpected(why.to_owned()));
            };
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return Ok(());
            };
            while at_work.try_join_next().is_some() {}
            let (core, answers) = (Arc::clone(core), answers.clone());
            at_work.spawn(async move {
                if let Some(answer) = carry_out(&core, number, deadline_ms, tail).await {
                    // The connection may be gone: then the asker knows.
                    let _ = answers.send(answer).await;
                }
                drop(place);
            });
        }
    };
    tokio::select! {
        ended = requests => ended,
        ended = write_answers(writer, answered) => ended,
    }
}

/// None: it took longer than anybody waits.
async fn carry_out(
    core: &Core,
    number: u64,
    deadline_ms: u64,
    request: Vec<u8>,
) -> Option<(Answer, Vec<u8>)> {
    let Some(handler) = core.forwarded.get() else {
        return Some((Answer::NotForwarded { number }, Vec::new()));
    };
    let deadline = Duration::from_millis(deadline_ms);
    let answer = tokio::time::timeout(deadline, handler(request))
        .await
        .ok()?;
    Some((Answer::Forwarded { number }, answer))
}

async fn write_answers(
    mut writer: Writer,
    mut answers: mpsc::Receiver<(Answer, Vec<u8>)>,
) -> Result<(), PeerError> {
    while let Some((answer, tail)) = answers.recv().await {
        writer.send(&answer, &tail).await?;
    }
    Ok(())
}
