//! HTTPS over a connection that is there already.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Adds TLS where the URL says so.
#[derive(Debug)]
pub(crate) struct Secured {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) whom: Whom,
}

/// Who has to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    /// A node of the cluster: the authority alone counts.
    ANode,
    /// Whose name is dialled.
    Named,
}

impl<In: Transport> Connector<In> for Secured {
    type Out = Either<In, Connection>;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let name = match self.whom {
            // It is not sent, and the certificate is not compared with it.
            Whom::ANode => "azekura",
            Whom::Named => details.uri.host().unwrap_or_default().trim_matches(['[', ']']),
        };
        let name = ServerName::try_from(name.to_owned()).map_err(|_| Error::BadUri("no name for TLS".to_owned()))?;
        let session = ClientConnection::new(Arc::clone(&self.config), name).map_err(|error| refused(&error))?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        let stream =
            StreamOwned::new(session, TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time)));
        Ok(Some(Either::B(Connection { stream, buffers })))
    }
}

fn refused(error: &rustls::Error) -> Error {
    Error::Io(std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()))
}

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
