//! Connections with TLS, of nodes alone. Strangers get a handshake in which they have to prove a key, and the end of
//! the connection if it is no node's: no word of HTTP/2 before that. They have a time for it, and a number of places.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use azekura_base::PeerKey;
use azekura_transport::https::{Https, peer_of};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::admission::{Admission, Proved};
use super::limits::{ACCEPT_PAUSE, COMPLAINT_INTERVAL, HANDSHAKE_WAIT, STRANGERS_MAX};

/// What a server that speaks TLS shows.
#[derive(Clone, Debug)]
pub struct ServerTls {
    https: Https,
    own: PeerKey,
}

impl ServerTls {
    /// The certificate of `https`, whose key is called `own`.
    #[must_use]
    pub fn new(https: &Https, own: PeerKey) -> ServerTls {
        ServerTls { https: https.clone(), own }
    }

    pub(super) fn own(&self) -> PeerKey {
        self.own
    }
}

/// A node's connection, for as long as the node is let in.
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    proved: Proved,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
}

impl Connection {
    /// An error from the moment on in which the node is not let in any more; who reads or writes is woken then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.is_over && self.ended.as_mut().poll(cx).is_ready() {
            self.is_over = true;
        }
        if self.is_over {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the key is no node's any more"));
        }
        Ok(())
    }
}

impl Connected for Connection {
    type ConnectInfo = Proved;

    fn connect_info(&self) -> Proved {
        self.proved
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

type Arrived = mpsc::Sender<io::Result<Connection>>;

/// Why a connection came to nothing.
#[derive(Debug)]
enum Refusal {
    /// It had no handshake, or none that ended.
    Handshake(io::Error),
    /// It has proved a key that is no node's.
    Unknown(PeerKey),
    /// It was too slow.
    Late,
}

/// Accepts connections until it is aborted; those of nodes arrive.
pub(super) async fn accept(listener: TcpListener, tls: ServerTls, admission: Admission, arrived: Arrived) {
    let acceptor = TlsAcceptor::from(tls.https.accepting_nodes());
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let complaints = Arc::new(std::sync::Mutex::new(Complaints::default()));
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("the configuration server can't accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Who finds no place is closed at once.
        let Ok(place) = Arc::clone(&strangers).try_acquire_owned() else { continue };
        let (acceptor, admission, arrived) = (acceptor.clone(), admission.clone(), arrived.clone());
        let complaints = Arc::clone(&complaints);
        tokio::spawn(async move {
            if let Err(refusal) = greet(stream, &acceptor, admission, place, arrived).await {
                complaints.lock().unwrap_or_else(std::sync::PoisonError::into_inner).tell(address, &refusal);
            }
        });
    }
}

async fn greet(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    admission: Admission,
    place: OwnedSemaphorePermit,
    arrived: Arrived,
) -> Result<(), Refusal> {
    let begin = async {
        stream.set_nodelay(true).map_err(Refusal::Handshake)?;
        let mut stream = acceptor.accept(stream).await.map_err(Refusal::Handshake)?;
        let none = || Refusal::Handshake(io::Error::other("it has shown no key"));
        let key = peer_of(stream.get_ref().1.peer_certificates()).ok_or_else(none)?;
        if admission.admits(key) {
            return Ok((stream, key));
        }
        // An end that nobody on the way can make: so a node knows that it is meant.
        stream.shutdown().await.map_err(Refusal::Handshake)?;
        Err(Refusal::Unknown(key))
    };
    let (stream, key) = tokio::time::timeout(HANDSHAKE_WAIT, begin).await.unwrap_or(Err(Refusal::Late))?;
    drop(place);
    let ended = Box::pin(admission.ended(key));
    // Nobody receives when the server stops.
    let _ = arrived.send(Ok(Connection { stream, proved: Proved(key), ended, is_over: false })).await;
    Ok(())
}

/// Tells people of refusals, so that a node with a wrong option is found, and not so often that strangers fill the log.
#[derive(Debug, Default)]
struct Complaints {
    last: Option<Instant>,
    untold: u64,
}

impl Complaints {
    fn tell(&mut self, address: SocketAddr, refusal: &Refusal) {
        if self.last.is_some_and(|last| last.elapsed() < COMPLAINT_INTERVAL) {
            self.untold += 1;
            return;
        }
        let why = match refusal {
            Refusal::Handshake(error) => format!("no TLS with a node's key ({error}); a node asks with https://"),
            Refusal::Unknown(key) => format!("its key {key} is no node's"),
            Refusal::Late => "its handshake has not ended in time".to_owned(),
        };
        let before = std::mem::take(&mut self.untold);
        tracing::warn!("the configuration was not shown to {}: {why}; {before} more since the last one", address.ip());
        self.last = Some(Instant::now());
    }
}
