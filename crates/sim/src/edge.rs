//! What a node answers to those who use the cluster, and how they ask.
//!
//! The real edge speaks HTTP and knows JSON; this one does what it does for launches, workers and
//! callers in a few messages, over the same replica. A question is one connection: a frame there, a
//! frame back.

use crate::clock::true_us;
use crate::network::Network;
use bincode::Options;
use fermata_audit::{Begin, LogPlace, Record};
use fermata_pool::Pool;
use fermata_pool::command::{Command, Holder};
use fermata_pool::job::{Attempt, State};
use fermata_pool::outcome::{Outcome, Refusal, Standing};
use fermata_pool::query::JobView;
use fermata_replica::environment::{Stream, Transport};
use fermata_replica::{HeardError, Leadership, ProposeError, Replica};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Where nodes listen for those who use the cluster.
pub(crate) const CLIENT_PORT: u16 = 7400;
/// Most bytes of a frame.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// How long one node may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before the next node is asked.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Have this committed.
    Propose(Command),
    /// A worker is there: what is for it?
    Poll(Holder),
    /// A caller is there.
    Heartbeat(String),
    /// How does a job stand?
    Show(String),
    /// How many starts does the window of a pool count?
    Count(String),
    /// Give leadership away.
    Transfer,
    /// Take a snapshot, on the node that is asked.
    Snapshot,
    /// Take a member out.
    Remove(u64),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is committed.
    Done(Outcome),
    /// What a worker is to do, and for how long it may count on its lease, from when it asked.
    Offers { lease_ms: u64, offers: Vec<Offer> },
    /// How a job stands.
    Job(Option<Shown>),
    /// Starts that a window counts.
    Count(u64),
    /// It was refused.
    Refused(Refusal),
    /// Ask another node.
    NotLeader(Option<u64>),
    /// It may happen or not.
    Unknown,
    /// Not now.
    Later,
}

/// An attempt, with the committed place of its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) job: String,
    pub(crate) pool: String,
    pub(crate) attempt: u32,
    pub(crate) start_us: i64,
    pub(crate) index: u64,
    pub(crate) ordinal: u32,
}

impl Offer {
    fn of(pool: &Pool, view: &JobView<'_>, attempt: &Attempt) -> Offer {
        Offer {
            job: view.job.id.to_string(),
            pool: pool.pool_name(view).unwrap_or_default(),
            attempt: view.job.attempt,
            start_us: attempt.at.us(),
            index: attempt.index,
            ordinal: attempt.ordinal,
        }
    }

    /// That its execution begins now, as whoever executes it records it.
    pub(crate) fn begun(&self, worker: &str, incarnation: u64) -> Record {
        Record::Begin(Begin {
            job: self.job.clone(),
            attempt: self.attempt,
            pool: self.pool.clone(),
            worker: worker.to_owned(),
            incarnation,
            start_us: self.start_us,
            start_index: LogPlace {
                index: self.index,
                ordinal: self.ordinal,
            },
            at_us: true_us(),
        })
    }
}

/// How a job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) standing: Standing,
    pub(crate) attempt: u32,
    pub(crate) number: u64,
    pub(crate) launched_us: i64,
    pub(crate) ended_us: Option<i64>,
    pub(crate) offer: Option<Offer>,
}

fn codec() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_limit(u64::from(FRAME_BYTES_MAX))
}

async fn send<T: Serialize>(stream: &mut Stream, message: &T) -> io::Result<()> {
    let body = codec().serialize(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    stream.write.write_all(&length.to_le_bytes()).await?;
    stream.write.write_all(&body).await?;
    stream.write.flush().await
}

async fn receive<T: DeserializeOwned>(stream: &mut Stream) -> io::Result<T> {
    let length = stream.read.read_u32_le().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut body = vec![0; length as usize];
    stream.read.read_exact(&mut body).await?;
    codec().deserialize(&body).map_err(io::Error::other)
}

/// Answers questions for as long as it is polled.
pub(crate) async fn serve(replica: Replica, network: Network) -> io::Result<()> {
    let listener = network.listen(([0, 0, 0, 0], CLIENT_PORT).into()).await?;
    loop {
        let mut stream = listener.accept().await?;
        let replica = replica.clone();
        tokio::spawn(async move {
            // Who asked and is gone gets no answer.
            let answering = async {
                let question = receive(&mut stream).await?;
                let answer = answer(&replica, question).await;
                send(&mut stream, &answer).await
            };
            let _: Result<io::Result<()>, _> = timeout(ANSWER_TIMEOUT * 2, answering).await;
        });
    }
}

async fn answer(replica: &Replica, question: Question) -> Answer {
    match question {
        Question::Propose(command) => match replica.propose(command).await {
            Ok(Outcome::Refused(refusal)) => Answer::Refused(refusal),
            Ok(outcome) => Answer::Done(outcome),
            Err(error) => not_proposed(&error),
        },
        Question::Poll(holder) => poll(replica, holder).await,
        Question::Heartbeat(job) => match replica.caller_heard(&job).await {
            Ok(()) => show(replica, &job),
            Err(error) => not_heard(error),
        },
        Question::Show(job) => match replica.confirm().await {
            Ok(()) => show(replica, &job),
            Err(error) => not_proposed(&error),
        },
        Question::Count(pool) => match replica.confirm().await {
            Ok(()) => {
                let now = replica.now();
                let window = |state: &Pool| state.window(&pool, now).map(|window| window.count);
                Answer::Count(replica.read(window).unwrap_or(0).into())
            }
            Err(error) => not_proposed(&error),
        },
        Question::Transfer => match replica.transfer(None).await {
            Ok(_) => Answer::Done(Outcome::Done),
            Err(_) => Answer::Later,
        },
        Question::Snapshot => match replica.take_snapshot().await {
            Ok(_) => Answer::Done(Outcome::Done),
            Err(_) => Answer::Later,
        },
        Question::Remove(node) => match replica.remove_member(node).await {
            Ok(()) => Answer::Done(Outcome::Done),
            Err(_) => match &*replica.leadership().borrow() {
                Leadership::Follower { leader } => Answer::NotLeader(Some(leader.node)),
                _ => Answer::Later,
            },
        },
    }
}

fn not_proposed(error: &ProposeError) -> Answer {
    match error {
        ProposeError::NotLeader { leader } => {
            Answer::NotLeader(leader.as_ref().map(|leader| leader.node))
        }
        ProposeError::Unknown => Answer::Unknown,
        _ => Answer::Later,
    }
}

fn not_heard(error: HeardError) -> Answer {
    match error {
        HeardError::Propose(error) => not_proposed(&error),
        HeardError::Refused(refusal) => Answer::Refused(refusal),
    }
}

async fn poll(replica: &Replica, holder: Holder) -> Answer {
    let server = holder.server.clone();
    let lease = match replica.server_heard(holder).await {
        Ok(lease) => lease,
        Err(error) => return not_heard(error),
    };
    let offers = replica.read(|pool| {
        let held = pool.held_by(&server);
        held.filter_map(|view| match &view.job.state {
            State::Starting(attempt) => Some(Offer::of(pool, &view, attempt)),
            _ => None,
        })
        .collect()
    });
    Answer::Offers {
        lease_ms: u64::try_from(lease.whole().as_millis()).unwrap_or(u64::MAX),
        offers,
    }
}

fn show(replica: &Replica, job: &str) -> Answer {
    Answer::Job(replica.read(|pool| {
        let view = pool.job(job)?;
        let standing = pool.standing(job)?;
        let attempt = view.job.current();
        let offer = attempt.map(|attempt| Offer::of(pool, &view, attempt));
        let ended_us = match &view.job.state {
            State::Ended(end) => Some(end.at.us()),
            _ => None,
        };
        Some(Shown {
            standing,
            attempt: view.job.attempt,
            number: view.number.0,
            launched_us: view.job.launched_at.us(),
            ended_us,
            offer,
        })
    }))
}

/// Asks one node.
pub(crate) async fn ask_node(
    network: &Network,
    node: u64,
    question: &Question,
) -> io::Result<Answer> {
    let asking = async {
        let address = format!("n{node}:{CLIENT_PORT}");
        let mut stream = network.connect(&address).await?;
        send(&mut stream, question).await?;
        receive(&mut stream).await
    };
    timeout(ANSWER_TIMEOUT, asking)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Asks the cluster until there is a definite answer, or the time is over: then nobody knows.
pub(crate) async fn ask(
    network: &Network,
    first: u64,
    question: &Question,
    within: Duration,
) -> Answer {
    let until = Instant::now() + within;
    let mut node = first;
    while Instant::now() < until {
        let answer = timeout_at(until, ask_node(network, node, question)).await;
        node = match answer {
            Ok(Ok(Answer::NotLeader(Some(leader)))) if leader != node => leader,
            Ok(Ok(Answer::NotLeader(_) | Answer::Unknown | Answer::Later) | Err(_)) => {
                node % crate::NODES + 1
            }
            Ok(Ok(definite)) => return definite,
            Err(_) => break,
        };
        sleep(ASK_AGAIN_AFTER).await;
    }
    Answer::Unknown
}
