//! Connections with TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use azekura_transport::https::OutsideRefusal;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::servers::{Address, TlsFiles};

/// Longest wait for the first word of a server that may have something against this end's certificate: with TLS 1.3
/// that comes after the handshake. A server of HTTP/2 speaks at once (RFC 9113, 3.4).
const FIRST_WORD_WAIT: Duration = Duration::from_millis(500);

/// Makes connections to one server. What is in the files counts for the next one.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    address: Arc<Address>,
    files: Arc<TlsFiles>,
}

impl Connector {
    pub(super) fn new(address: Address, files: &TlsFiles) -> Connector {
        Connector { address: Arc::new(address), files: Arc::new(files.clone()) }
    }

    async fn connect(self) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        let Address { url, authority, name, .. } = self.address.as_ref();
        let name = name.clone().ok_or_else(|| io::Error::other(format!("{url} is no address for TLS")))?;
        let files = Arc::clone(&self.files);
        let config = tokio::task::spawn_blocking(move || files.config()).await;
        let config = config.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        let told = |error: io::Error| io::Error::other(self.explain(&error));
        let mut stream = TlsConnector::from(config).connect(name, stream).await.map_err(told)?;
        match tokio::time::timeout(FIRST_WORD_WAIT, stream.fill_buf()).await {
            Ok(Ok([])) => Err(io::Error::other(format!("{url} has closed the connection after the handshake"))),
            Ok(Err(error)) => Err(told(error)),
            // What it said stays to be read.
            Ok(Ok(_)) | Err(_) => Ok(TokioIo::new(stream)),
        }
    }

    /// What an error of TLS means, and what to do about it.
    fn explain(&self, error: &io::Error) -> String {
        let (url, ca) = (&self.address.url, self.files.authorities.display());
        let shown = self.files.shown.as_ref().map(|shown| shown.certificate.display().to_string());
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
