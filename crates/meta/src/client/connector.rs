//! Connections to the servers, with TLS and without.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use azekura_base::PeerKey;
use azekura_model::EtcdError;
use azekura_transport::https::OutsideRefusal;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::cluster_tls::ClusterTls;
use super::servers::{Address, Servers, TlsFiles};
use super::{CONNECT_TIMEOUT, SILENCE, UNACKNOWLEDGED_MAX};

/// Longest wait for the first word of a server that may have something against this end's certificate: with TLS 1.3
/// that comes after the handshake. A server of HTTP/2 speaks at once (RFC 9113, 3.4).
const FIRST_WORD_WAIT: Duration = Duration::from_millis(500);

/// By what both ends know each other.
#[derive(Clone, Debug)]
pub(super) enum Proof {
    /// The operator's certificates. What is in the files counts for the next connection.
    Files(TlsFiles),
    /// The keys of the cluster's nodes.
    Cluster(ClusterTls),
}

impl Proof {
    /// That of these servers, if they speak TLS.
    pub(super) fn of(servers: &Servers) -> Option<Proof> {
        match (&servers.cluster, &servers.tls) {
            (Some(cluster), _) => Some(Proof::Cluster(cluster.clone())),
            (None, Some(files)) => Some(Proof::Files(files.clone())),
            (None, None) => None,
        }
    }
}

/// A connection of which the kernel notices when the other machine is gone.
async fn dial(authority: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(stream)
}

/// Makes connections to one server, without TLS.
#[derive(Clone, Debug)]
pub(super) struct PlainConnector(Arc<Address>);

impl PlainConnector {
    pub(super) fn new(address: Address) -> PlainConnector {
        PlainConnector(Arc::new(address))
    }
}

impl Service<Uri> for PlainConnector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let address = Arc::clone(&self.0);
        Box::pin(async move { dial(&address.authority).await.map(TokioIo::new) })
    }
}

/// Makes connections to one server, with TLS.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    address: Arc<Address>,
    proof: Arc<Proof>,
}

/// A handshake has ended, and what came then.
enum First {
    /// A word, which stays to be read.
    Word,
    /// Nothing yet.
    Silence,
    /// The end.
    End,
}

impl Connector {
    pub(super) fn new(address: Address, proof: Proof) -> Connector {
        Connector { address: Arc::new(address), proof: Arc::new(proof) }
    }

    async fn connect(self) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        match self.begin().await? {
            (_, First::End) => Err(io::Error::other(self.shut_door())),
            (stream, First::Word | First::Silence) => Ok(TokioIo::new(stream)),
        }
    }

    /// Makes a connection, and waits a moment for what the server says.
    async fn begin(&self) -> io::Result<(TlsStream<TcpStream>, First)> {
        let Address { url, authority, name, .. } = self.address.as_ref();
        let name = name.clone().ok_or_else(|| io::Error::other(format!("{url} is no address for TLS")))?;
        let config = match self.proof.as_ref() {
            Proof::Cluster(cluster) => Arc::clone(&cluster.config),
            Proof::Files(files) => {
                let files = files.clone();
                let config = tokio::task::spawn_blocking(move || files.config()).await;
                config.map_err(io::Error::other)?.map_err(io::Error::other)?
            }
        };
        let stream = dial(authority).await?;
        let told = |error: io::Error| io::Error::other(self.explain(&error));
        let mut stream = TlsConnector::from(config).connect(name, stream).await.map_err(told)?;
        if let Proof::Cluster(cluster) = self.proof.as_ref() {
            let known = cluster.check(stream.get_ref().1.peer_certificates());
            known.map_err(|stranger| io::Error::other(unknown(url, stranger)))?;
        }
        let first = match tokio::time::timeout(FIRST_WORD_WAIT, stream.fill_buf()).await {
            Ok(Ok([])) => First::End,
            Ok(Ok(_)) => First::Word,
            Ok(Err(error)) => return Err(told(error)),
            Err(_) => First::Silence,
        };
        Ok((stream, first))
    }

    /// What it means that a server ends a connection after the handshake.
    fn shut_door(&self) -> String {
        let url = &self.address.url;
        match self.proof.as_ref() {
            Proof::Files(_) => format!("{url} has closed the connection after the handshake"),
            Proof::Cluster(ClusterTls { own, .. }) => format!(
                "{url} does not know this machine's key {own}: one that is no node yet needs a join token (--join and \
                 --token-file); a node that was shut out, or has lost its key, is let in at another node ('azekura node \
                 shut-out NAME', then 'azekura node let-in NAME --key {own}')"
            ),
        }
    }

    /// What an error of TLS means, and what to do about it.
    fn explain(&self, error: &io::Error) -> String {
        match self.proof.as_ref() {
            Proof::Files(files) => self.explain_outside(files, error),
            Proof::Cluster(_) => match OutsideRefusal::of(error) {
                OutsideRefusal::Plain => format!(
                    "{} does not speak TLS: has the node there --serve-config-transport tls? Else write http://",
                    self.address.url
                ),
                refusal => format!(
                    "no TLS with {}, which without --config-ca is to be a node's --serve-config: {refusal:?}",
                    self.address.url
                ),
            },
        }
    }

    /// The same of servers that are not the cluster's.
    fn explain_outside(&self, files: &TlsFiles, error: &io::Error) -> String {
        let (url, ca) = (&self.address.url, files.authorities.display());
        let shown = files.shown.as_ref().map(|shown| shown.certificate.display().to_string());
        match OutsideRefusal::of(error) {
            OutsideRefusal::Stranger => format!(
                "{url} shows a certificate that no authority in {ca} (--config-ca) has signed: is it the file of etcd's \
                 --trusted-ca-file, or the authority of its --cert-file?"
            ),
            OutsideRefusal::Ended => format!(
                "the certificate of {url} has ended: give etcd a new one (--cert-file); if it has one, is this machine's \
                 clock right?"
            ),
            OutsideRefusal::Unborn => {
                format!(
                    "the certificate of {url} is not valid yet: are this machine's clock and that of its maker right?"
                )
            }
            OutsideRefusal::OtherName => format!(
                "the certificate of {url} is for other names: it needs this one among its subject alternative names; or \
                 write one of its names in --config"
            ),
            OutsideRefusal::Unsuitable(why) => format!(
                "the certificate of {url} is of no use ({why}): it has to be one of a server, of X.509 version 3, and \
                 signed by an authority in {ca} (--config-ca)"
            ),
            OutsideRefusal::Refused(alert) => match shown {
                Some(path) => format!(
                    "{url} does not take the certificate in {path} (--config-cert): {alert}; is it signed by etcd's \
                     --trusted-ca-file, for clients, and has it not ended?"
                ),
                None => format!("{url} wants a certificate ({alert}): give --config-cert and --config-key"),
            },
            OutsideRefusal::Plain => {
                format!("{url} does not speak TLS: has etcd --cert-file and --key-file? Else write http://")
            }
            OutsideRefusal::Other(why) => format!("no TLS with {url}: {why}"),
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// What is said of a server that is not the cluster's, as far as this node knows.
fn unknown(url: &str, key: Option<PeerKey>) -> String {
    let Some(key) = key else { return format!("{url} shows no key") };
    format!(
        "{url} shows the key {key}, which no node has that this one knows, and was told nothing: is it the right address? If \
         that node's key was replaced (--replace-key there) or another machine serves the configuration now, compare the key \
         with that in its log, and start this node once with --config-fingerprint {key}; for etcd, give --config-ca FILE"
    )
}

/// Whether a node that serves the configuration lets this one in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It knows the key that this end has proved.
    Known,
    /// It does not.
    Unknown,
}

/// Asks the first of these servers that answers whether it knows this end's key. Without TLS, and in etcd, nobody is
/// asked for such a key: all are known.
///
/// # Errors
/// A sentence that says why none has said it.
pub async fn admission(servers: &Servers) -> Result<Admission, EtcdError> {
    let Some(cluster) = &servers.cluster else { return Ok(Admission::Known) };
    let mut reason = SILENCE.to_owned();
    for address in servers.addresses()? {
        let connector = Connector::new(address, Proof::Cluster(cluster.clone()));
        match tokio::time::timeout(CONNECT_TIMEOUT, connector.begin()).await {
            Ok(Ok((_, First::Word))) => return Ok(Admission::Known),
            Ok(Ok((_, First::End))) => return Ok(Admission::Unknown),
            Ok(Ok((_, First::Silence))) | Err(_) => {}
            Ok(Err(error)) => reason = error.to_string(),
        }
    }
    Err(EtcdError::Unreachable { endpoints: servers.endpoints.join(", "), reason })
}
