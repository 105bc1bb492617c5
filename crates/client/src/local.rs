//! A node's own socket instead of a port.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, time::Duration,
};

/// The longest name of a socket's file, in bytes (unix(7)), without the zero at its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Connects to a socket, whatever the URL says.
#[derive(Debug)]
pub(crate) struct Socket(pub(crate) PathBuf);

impl Socket {
    fn open(&self) -> io::Result<UnixStream> {
        let path = &self.0;
        match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX => {
                // The kernel takes no longer name, but one that leads there.
                let folder = File::open(folder)?;
                UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
            }
            _ => UnixStream::connect(path),
        }
    }
}

impl Connector for Socket {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Connection>, Error> {
        let stream = self.open()?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers }))
    }
}

/// There is no name to look up.
#[derive(Debug)]
pub(crate) struct NoNames;

impl Resolver for NoNames {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(([127, 0, 0, 1], 0).into());
        Ok(addresses)
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

fn told(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

fn limit(timeout: NextTimeout) -> Option<std::time::Duration> {
    timeout.not_zero().map(|limit: Duration| *limit)
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(limit(timeout))?;
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(|error| told(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(limit(timeout))?;
        let read = self.stream.read(self.buffers.input_append_buf()).map_err(|error| told(error, timeout))?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    /// A connection is used again only if nothing has come or ended meanwhile, which nobody can know without reading.
    fn is_open(&mut self) -> bool {
        false
    }
}
