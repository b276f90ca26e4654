//! One connection to a peer: frames, the handshake, and one question at a time.

use crate::NodeId;
use crate::environment::{Stream, Transport};
use crate::format::FormatError;
use crate::format::wire::{self, Answer, FRAME_HEADER_BYTES, Greeting, Hello, Purpose, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// How long a peer takes to accept a connection and to greet, at most.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Who this member is, as it tells its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its cluster; none before it has one.
    pub cluster: Option<u128>,
    /// Its id.
    pub node: NodeId,
}

/// Why a peer did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// There is no connection, and nothing was asked.
    #[error("cannot connect to {address}: {cause}")]
    Unreachable {
        /// Where it was tried.
        address: String,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// It was reached, and wants nothing to do with us; nothing was asked.
    #[error("{address} refused the connection: {why}")]
    Refused {
        /// Where.
        address: String,
        /// Its words.
        why: String,
    },
    /// It has lost what it had acknowledged.
    #[error(
        "node {node} lacks entry {lacks}, though it had acknowledged entry {acknowledged}: its folder \
         was put back to an earlier state, or its disk has lost what it had synced. It must not be \
         counted: stop it, remove it from the cluster, and let it join again with an empty folder \
         under a new node id"
    )]
    PutBack {
        /// Which member.
        node: NodeId,
        /// The last entry that it had acknowledged.
        acknowledged: u64,
        /// An entry that it says it lacks.
        lacks: u64,
    },
    /// The connection broke; the question may have arrived.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// What came is not what a peer says.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It answered something else.
    #[error("the peer's answer does not fit the question: {0}")]
    Unexpected(String),
}

impl PeerError {
    /// For an answer that belongs to another question.
    pub(crate) fn unexpected(answer: &Answer) -> PeerError {
        match answer {
            Answer::Refused { why } => PeerError::Unexpected(why.clone()),
            other => PeerError::Unexpected(format!("{other:?}").chars().take(200).collect()),
        }
    }
}

/// The half that is written to.
pub(crate) struct Writer {
    half: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    tail_bytes_max: u32,
}

impl Writer {
    /// Sends a message.
    pub(crate) async fn send<T: Serialize>(
        &mut self,
        message: &T,
        tail: &[u8],
    ) -> Result<(), PeerError> {
        let frame = wire::frame(message, tail, self.tail_bytes_max)?;
        write(&mut self.half, &frame).await
    }
}

/// The half that is read from.
pub(crate) struct Reader {
    half: BufReader<Box<dyn AsyncRead + Send + Sync + Unpin>>,
    tail_bytes_max: u32,
}

impl Reader {
    /// Reads the next message and its tail. Not to be dropped midway and asked again.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<u8>), PeerError> {
        read(&mut self.half, self.tail_bytes_max).await
    }
}

/// Calls peers, in the name of this member.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(crate) own: Identity,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Dialer {
    /// The same, as a member of a cluster.
    pub(crate) fn of(&self, cluster: u128) -> Dialer {
        Dialer {
            own: Identity {
                cluster: Some(cluster),
                ..self.own
            },
            transport: Arc::clone(&self.transport),
        }
    }

    /// The same, in the name of a member that knows no cluster.
    pub(crate) fn stranger(&self, node: NodeId) -> Dialer {
        Dialer {
            own: Identity {
                cluster: None,
                node,
            },
            transport: Arc::clone(&self.transport),
        }
    }

    /// Connects to a peer, for one purpose. `to`: who must be there; none: whoever is.
    pub(crate) async fn open(
        &self,
        address: &str,
        to: Option<NodeId>,
        purpose: Purpose,
    ) -> Result<Connection, PeerError> {
        let unreachable = |cause| PeerError::Unreachable {
            address: address.to_owned(),
            cause,
        };
        let greeting = async {
            let stream = self.transport.connect(address).await;
            let mut connection = Connection::over(stream.map_err(unreachable)?, purpose);
            let hello = Hello {
                cluster: self.own.cluster,
                from: self.own.node,
                to,
                purpose,
            };
            connection.writer.send(&hello, &[]).await?;
            let (greeting, _) = connection.reader.next::<Greeting>().await?;
            Ok((connection, greeting))
        };
        // A peer that greets badly was not asked anything: that is as good as not reached.
        let (connection, greeting) = match tokio::time::timeout(CONNECT_TIMEOUT, greeting).await {
            Ok(Ok(greeted)) => greeted,
            Ok(Err(PeerError::Unreachable { address, cause })) => {
                return Err(PeerError::Unreachable { address, cause });
            }
            Ok(Err(error)) => return Err(unreachable(io::Error::other(error))),
            Err(_) => return Err(unreachable(io::ErrorKind::TimedOut.into())),
        };
        match greeting {
            Greeting::Welcome { .. } => Ok(connection),
            Greeting::Refused { why } => Err(PeerError::Refused {
                address: address.to_owned(),
                why,
            }),
        }
    }
}

/// A connection to a peer that greeted.
pub(crate) struct Connection {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

impl Connection {
    /// Frames over a stream.
    pub(crate) fn over(stream: Stream, purpose: Purpose) -> Connection {
        let tail_bytes_max = purpose.tail_bytes_max();
        Connection {
            reader: Reader {
                half: BufReader::new(stream.read),
                tail_bytes_max,
            },
            writer: Writer {
                half: stream.write,
                tail_bytes_max,
            },
        }
    }

    /// From now on for this purpose: its bounds.
    pub(crate) fn serves(&mut self, purpose: Purpose) {
        self.reader.tail_bytes_max = purpose.tail_bytes_max();
        self.writer.tail_bytes_max = purpose.tail_bytes_max();
    }

    /// Asks, and waits for the answer. A connection on which this was dropped or failed is out of
    /// step: it must be dropped too.
    pub(crate) async fn ask(
        &mut self,
        request: &Request,
        tail: &[u8],
    ) -> Result<Answer, PeerError> {
        self.writer.send(request, tail).await?;
        let (answer, _) = self.reader.next().await?;
        Ok(answer)
    }
}

async fn write(half: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> Result<(), PeerError> {
    half.write_all(frame).await?;
    Ok(half.flush().await?)
}

async fn read<T: DeserializeOwned>(
    half: &mut (impl AsyncRead + Unpin),
    tail_bytes_max: u32,
) -> Result<(T, Vec<u8>), PeerError> {
    let mut header = [0; FRAME_HEADER_BYTES];
    half.read_exact(&mut header).await?;
    let (header, sum) = wire::Header::parse(&header, tail_bytes_max)?;
    let mut head = vec![0; header.head_bytes as usize];
    half.read_exact(&mut head).await?;
    let mut tail = vec![0; header.tail_bytes as usize];
    half.read_exact(&mut tail).await?;
    let message = header.decode(sum, &head, &tail)?;
    Ok((message, tail))
}
