//! TLS to servers that are not the cluster's: their certificates count, and the names in them.

use crate::{SecretsError, private_file};
use azekura_transport::https::{OutsideError, ShownPem, outside};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fmt;
use std::io::{Error as IoError, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// The longest file with certificates that is read, bytes: more than any system's authorities have.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;
/// The longest file with a private key that is read, bytes.
const PRIVATE_KEY_BYTES_MAX: u64 = 64 << 10;

/// Who a client is: files with its certificate, the chain behind that, and its private key, in PEM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    pub(crate) certificate: &'a Path,
    pub(crate) private_key: &'a Path,
}

/// TLS with servers whose certificates an authority of this file has signed.
///
/// # Errors
/// When a file is not to be had, or has something else in it.
pub(crate) fn config(authorities: &Path, identity: Option<Identity<'_>>) -> Result<Arc<ClientConfig>, SecretsError> {
    let pem = private_file::read_public("the file of authorities", authorities, CERTIFICATES_BYTES_MAX)?;
    let shown = match identity {
        None => None,
        Some(Identity { certificate, private_key }) => Some((
            private_file::read_public("the client's certificate", certificate, CERTIFICATES_BYTES_MAX)?,
            private_file::read("the private key", private_key, PRIVATE_KEY_BYTES_MAX)?,
        )),
    };
    let shown = shown.as_ref().map(|(certificate, key)| ShownPem { certificate, key: key.as_bytes() });
    outside(&pem, shown, &[]).map_err(|error| {
        let (what, path) = match (&error, identity) {
            (OutsideError::Certificate(_), Some(shown)) => ("the client's certificate", shown.certificate),
            (OutsideError::Key(_) | OutsideError::Mismatch, Some(shown)) => ("the private key", shown.private_key),
            _ => ("the file of authorities", authorities),
        };
        let what = format!("{what} {} can't be used", path.display());
        SecretsError::Setup { what, reason: error.to_string() }
    })
}

/// Adds TLS to a connection of HTTP where the URL says so.
#[derive(Debug)]
pub(crate) struct Secured(pub(crate) Arc<ClientConfig>);

impl<In: Transport> Connector<In> for Secured {
    type Out = Either<In, Connection>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|_| Error::BadUri("no name for TLS".to_owned()))?;
        let session = ClientConnection::new(Arc::clone(&self.0), name)
            .map_err(|error| Error::Io(IoError::new(ErrorKind::InvalidData, error.to_string())))?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        let adapter = TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        Ok(Some(Either::B(Connection { stream: StreamOwned::new(session, adapter), buffers })))
    }
}

/// TLS over a connection of HTTP.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(self.stream.flush()?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let read = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
