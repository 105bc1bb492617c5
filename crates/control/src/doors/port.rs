//! The port: HTTP and HTTPS on one number. The first byte of a connection tells which (a TLS handshake begins with 22,
//! RFC 8446, 5.1).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use azekura_base::PeerKey;
use azekura_transport::https::{Https, peer_of};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How a handshake begins.
const HANDSHAKE: u8 = 22;
/// Longest time until a connection's first request may begin.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that have not got as far, at most: more are closed.
const STRANGERS_MAX: usize = 512;
/// Pause when no connection can be accepted, because there are no descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) address: SocketAddr,
    /// Nobody else reads what is sent.
    pub(crate) secured: bool,
    /// The key that is proved, if one is.
    pub(crate) key: Option<PeerKey>,
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
}

macro_rules! either {
    ($own:expr, $stream:ident => $call:expr) => {
        match $own.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Stream::Secured(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, into))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}

/// The port, with what makes handshakes beside each other: nobody waits for another one's.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    arrived: mpsc::Receiver<(Stream, Arrival)>,
    accepting: JoinHandle<()>,
}

impl Port {
    pub(crate) fn open(listener: TcpListener, https: &Https) -> io::Result<Port> {
        let address = listener.local_addr()?;
        let (sender, arrived) = mpsc::channel(1);
        let acceptor = TlsAcceptor::from(https.accepting());
        Ok(Port { address, arrived, accepting: tokio::spawn(accept(listener, acceptor, sender)) })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Listener for Port {
    type Io = Stream;
    type Addr = Arrival;

    async fn accept(&mut self) -> (Stream, Arrival) {
        match self.arrived.recv().await {
            Some(arrived) => arrived,
            // Only when the process ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Arrival> {
        Ok(Arrival { address: self.address, secured: false, key: None })
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, arrived: mpsc::Sender<(Stream, Arrival)>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("the REST API can't accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&strangers).try_acquire_owned() else {
            tracing::warn!("API: {STRANGERS_MAX} connections have asked nothing yet; one from {address} is closed");
            continue;
        };
        tokio::spawn(greet(stream, address, acceptor.clone(), place, arrived.clone()));
    }
}

/// Brings a connection as far as its first request.
async fn greet(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    place: OwnedSemaphorePermit,
    arrived: mpsc::Sender<(Stream, Arrival)>,
) {
    match tokio::time::timeout(PATIENCE, begin(stream, address, &acceptor)).await {
        Ok(Ok(connection)) => {
            drop(place);
            // The receiver is gone when the process ends.
            let _ = arrived.send(connection).await;
        }
        Ok(Err(error)) => tracing::debug!("API: no connection from {address}: {error}"),
        Err(_) => tracing::debug!("API: nothing came from {address} within {} s", PATIENCE.as_secs()),
    }
}

async fn begin(stream: TcpStream, address: SocketAddr, acceptor: &TlsAcceptor) -> io::Result<(Stream, Arrival)> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if first[0] != HANDSHAKE {
        return Ok((Stream::Plain(stream), Arrival { address, secured: false, key: None }));
    }
    let stream = acceptor.accept(stream).await?;
    let key = peer_of(stream.get_ref().1.peer_certificates());
    Ok((Stream::Secured(Box::new(stream)), Arrival { address, secured: true, key }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_transport::NodeKey;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;

    async fn open() -> (Port, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Port::open(listener, &Https::new(&NodeKey::generate().unwrap()).unwrap()).unwrap(), address)
    }

    #[tokio::test]
    async fn the_first_byte_says_which_of_both_is_spoken() {
        let (mut port, address) = open().await;
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(b"GET /").await.unwrap();
        let (mut stream, arrival) = port.accept().await;
        assert!(!arrival.secured && arrival.key.is_none());
        let mut read = [0; 5];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"GET /", "the byte that was looked at is there");

        let key = NodeKey::generate().unwrap();
        let connector = TlsConnector::from(Https::new(&key).unwrap().dialling());
        let socket = TcpStream::connect(address).await.unwrap();
        let name = ServerName::IpAddress(address.ip().into());
        let dialled = tokio::spawn(async move {
            let mut stream = connector.connect(name, socket).await.unwrap();
            stream.write_all(b"GET /").await.unwrap();
            stream.flush().await.unwrap();
            stream
        });
        let (mut stream, arrival) = port.accept().await;
        assert_eq!((arrival.secured, arrival.key), (true, Some(key.name().unwrap())));
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"GET /");
        dialled.await.unwrap();
    }

    /// Who says nothing, and who begins a handshake and does not end it, keeps nobody out.
    #[tokio::test]
    async fn nobody_waits_for_a_silent_one() {
        let (mut port, address) = open().await;
        let mut silent = Vec::new();
        for beginning in [&b""[..], &[HANDSHAKE], &[HANDSHAKE, 3, 1, 0, 200, 1]] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(beginning).await.unwrap();
            silent.push(stream);
        }
        let mut rubbish = TcpStream::connect(address).await.unwrap();
        rubbish.write_all(&[HANDSHAKE; 64]).await.unwrap();
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(b"G").await.unwrap();
        let (_, arrival) = port.accept().await;
        assert_eq!(arrival.address, plain.local_addr().unwrap());
        let mut alert = Vec::new();
        rubbish.read_to_end(&mut alert).await.unwrap();
        assert_eq!(alert.first(), Some(&21), "an alert, and the end");
    }
}
