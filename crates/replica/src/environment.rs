//! What a member gets from the outside: how its peers are reached, and what its wall clock shows.
//!
//! On a machine that is TCP and the system's clock ([`Environment::machine`]). A simulation puts
//! its own in their place, so that the same member runs over a network that loses and delays, by
//! clocks that jump. Everything else that it uses comes from the runtime that it is opened on:
//! timers, tasks, and monotonic time, which is tokio's.

use socket2::{SockRef, TcpKeepalive};
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A connection on which nothing is heard is probed after this time.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
/// And given up after a few probes that far apart.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
/// So many.
const KEEPALIVE_PROBES: u32 = 3;

/// What comes of a call to the network, later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// One connection: what is read from, and what is written to.
pub struct Stream {
    /// What the peer sends.
    pub read: Box<dyn AsyncRead + Send + Sync + Unpin>,
    /// What is sent to the peer.
    pub write: Box<dyn AsyncWrite + Send + Sync + Unpin>,
}

/// How members reach each other.
pub trait Transport: Debug + Send + Sync {
    /// Connects to an address, `host:port`.
    fn connect<'a>(&'a self, address: &'a str) -> Later<'a, Stream>;

    /// Listens on an address; port 0: any.
    fn listen(&self, address: SocketAddr) -> Later<'_, Box<dyn Accept>>;
}

/// Where connections come in.
pub trait Accept: Send + Sync {
    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    fn address(&self) -> io::Result<SocketAddr>;

    /// The next connection.
    fn accept(&self) -> Later<'_, Stream>;
}

/// A clock on the wall: it may be wrong, and it may jump.
pub trait WallClock: Debug + Send + Sync {
    /// What it shows, in microseconds of Unix time.
    fn now_us(&self) -> i64;
}

/// What a member gets from the outside.
#[derive(Clone, Debug)]
pub struct Environment {
    /// How its peers are reached.
    pub transport: Arc<dyn Transport>,
    /// What its wall clock shows.
    pub wall: Arc<dyn WallClock>,
}

impl Environment {
    /// TCP, and the system's clock.
    #[must_use]
    pub fn machine() -> Environment {
        Environment {
            transport: Arc::new(Tcp),
            wall: Arc::new(SystemClock),
        }
    }
}

/// Connections of this machine.
#[derive(Debug)]
struct Tcp;

impl Transport for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> Later<'a, Stream> {
        Box::pin(async move { split(TcpStream::connect(address).await?) })
    }

    fn listen(&self, address: SocketAddr) -> Later<'_, Box<dyn Accept>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
            Ok(Box::new(listener) as Box<dyn Accept>)
        })
    }
}

impl Accept for TcpListener {
    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn accept(&self) -> Later<'_, Stream> {
        Box::pin(async move {
            let (stream, _) = TcpListener::accept(self).await?;
            split(stream)
        })
    }
}

/// Small frames must not wait for each other, and a peer that is gone must be noticed on a
/// connection that is seldom used.
fn split(stream: TcpStream) -> io::Result<Stream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_EVERY)
            .with_retries(KEEPALIVE_PROBES),
    )?;
    let (read, write) = stream.into_split();
    Ok(Stream {
        read: Box::new(read),
        write: Box::new(write),
    })
}

/// The clock of this machine.
#[derive(Debug)]
struct SystemClock;

impl WallClock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the member's clock, the one place that reads the wall clock"
    )]
    fn now_us(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, crate::clock::to_us)
    }
}
