//! The simulated network, as members and clients use it.

use crate::trace::{Kind, Trace};
use fermata_replica::environment::{Accept, Later, Stream, Transport};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use turmoil::net::{TcpListener, TcpStream};

/// Connections of one host; what it sends is noted.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) host: String,
    pub(crate) trace: Trace,
}

impl Network {
    fn split(&self, stream: TcpStream) -> Stream {
        let (read, write) = stream.into_split();
        Stream {
            read: Box::new(read),
            write: Box::new(Traced {
                write,
                network: self.clone(),
            }),
        }
    }
}

impl Transport for Network {
    fn connect<'a>(&'a self, address: &'a str) -> Later<'a, Stream> {
        Box::pin(async move { Ok(self.split(TcpStream::connect(address).await?)) })
    }

    fn listen(&self, address: SocketAddr) -> Later<'_, Box<dyn Accept>> {
        Box::pin(async move {
            let listener = TcpListener::bind(address).await?;
            let network = self.clone();
            Ok(Box::new(Listening { listener, network }) as Box<dyn Accept>)
        })
    }
}

struct Listening {
    listener: TcpListener,
    network: Network,
}

impl Accept for Listening {
    fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn accept(&self) -> Later<'_, Stream> {
        Box::pin(async move {
            let (stream, _) = self.listener.accept().await?;
            Ok(self.network.split(stream))
        })
    }
}

/// Notes what is written.
struct Traced {
    write: turmoil::net::tcp::OwnedWriteHalf,
    network: Network,
}

impl AsyncWrite for Traced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write(context, bytes);
        if let Poll::Ready(Ok(length)) = &written {
            let Network { host, trace } = &self.network;
            trace.note(Kind::Message, host, bytes.get(..*length).unwrap_or(bytes));
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}
