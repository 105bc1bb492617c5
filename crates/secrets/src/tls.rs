//! TLS to servers that are not the cluster's: their certificates count, and the names in them.

use crate::{SecretsError, private_file};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
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

/// TLS 1.2 or 1.3 with servers whose certificates an authority of this file has signed.
///
/// # Errors
/// When a file is not to be had, or has something else in it.
pub(crate) fn config(authorities: &Path, identity: Option<Identity<'_>>) -> Result<Arc<ClientConfig>, SecretsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("the file of authorities", authorities)? {
        // A system's bundle may have some that nobody can use any more.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(unusable("the file of authorities", authorities, "none of its certificates is an authority's"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| SecretsError::Setup { what: "TLS".to_owned(), reason: error.to_string() })?
        .with_root_certificates(roots);
    let Some(Identity { certificate, private_key }) = identity else {
        return Ok(Arc::new(config.with_no_client_auth()));
    };
    let chain = certificates("the client's certificate", certificate)?;
    let pem = private_file::read("the private key", private_key, PRIVATE_KEY_BYTES_MAX)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| unusable("the private key", private_key, &error.to_string()))?;
    let config = config.with_client_auth_cert(chain, key);
    Ok(Arc::new(config.map_err(|error| unusable("the client's certificate", certificate, &error.to_string()))?))
}

fn unusable(what: &str, path: &Path, reason: &str) -> SecretsError {
    SecretsError::Setup { what: format!("{what} {} can't be used", path.display()), reason: reason.to_owned() }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SecretsError> {
    let pem = private_file::read_public(what, path, CERTIFICATES_BYTES_MAX)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unusable(what, path, "there is no certificate in it (PEM)")),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(what, path, &error.to_string())),
    }
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
