//! Making and tuning sockets.

use crate::{ACCEPT_BACKLOG, KEEP_ALIVE_IDLE, KEEP_ALIVE_INTERVAL, PeerAddress, SILENCE_MAX, patience::patiently};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::{
    fs, io,
    net::{Shutdown, SocketAddr},
    os::unix::fs::FileTypeExt,
    path::Path,
    time::Duration,
};

/// Send buffer of unix sockets in bytes: what one side may be ahead of the other. The kernel doesn't size these by
/// itself as it does for TCP, and caps the wish at `net.core.wmem_max`.
const UNIX_SEND_BUFFER: usize = 4 << 20;
/// A congestion control that spaces packets out by timers. Between the nodes of one cluster that costs more processor
/// time than anything else in a large transfer, and delays it.
const PACED: &[u8] = b"bbr";
/// What is used in its stead; part of every kernel, unless left out on purpose.
const UNPACED: &[u8] = b"cubic";

/// A connection that this side made ends when the other one has not confirmed anything for so long; so does the making.
/// Left to itself the kernel goes on for minutes.
const CONNECT_SILENCE: Duration = Duration::from_secs(3);

/// When a connection that was accepted is given up because its peer's machine does not answer any more.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Silence after which the peer's machine is asked whether it is there.
    pub idle: Duration,
    /// Time between two such questions.
    pub interval: Duration,
    /// The connection ends when nothing was answered, or taken, for so long.
    pub silence_max: Duration,
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        KeepAlive { idle: KEEP_ALIVE_IDLE, interval: KEEP_ALIVE_INTERVAL, silence_max: SILENCE_MAX }
    }
}

/// Who else may listen on a TCP port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Nobody.
    Alone,
    /// Other sockets of this user.
    Shared,
}

/// A TCP socket that listens on `address`.
pub(crate) fn listen_tcp(address: SocketAddr, port: Port) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(port == Port::Shared)?;
    let name = |error: io::Error| io::Error::new(error.kind(), format!("can't listen on {address}: {error}"));
    patiently(is_in_use, || socket.bind(&address.into())).map_err(name)?;
    socket.listen(ACCEPT_BACKLOG).map_err(name)?;
    Ok(socket)
}

/// A unix socket that listens at `path`. A socket file that nobody listens on any more is replaced.
pub(crate) fn listen_unix(path: &Path) -> io::Result<Socket> {
    let name = |error: io::Error| io::Error::new(error.kind(), format!("can't listen on {}: {error}", path.display()));
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path).map_err(name)?;
    let bind = || match socket.bind(&address) {
        Err(error) if is_in_use(&error) && is_left_over(path) => {
            fs::remove_file(path)?;
            socket.bind(&address)
        }
        result => result,
    };
    patiently(is_in_use, bind).map_err(name)?;
    socket.listen(ACCEPT_BACKLOG).map_err(name)?;
    Ok(socket)
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Nobody listens there any more. Somebody who does not accept anybody does: a connection that is tried never waits.
fn is_left_over(path: &Path) -> bool {
    let is_refused = || -> io::Result<bool> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let tried = socket.connect(&SockAddr::unix(path)?);
        Ok(tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
    };
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) && is_refused().unwrap_or(false)
}

/// A socket for a connection to `address`.
pub(crate) fn for_connect(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    tune(&socket, !address.is_unix())?;
    if !address.is_unix() {
        socket.set_tcp_user_timeout(Some(CONNECT_SILENCE))?;
    }
    Ok(socket)
}

/// Tunes an accepted socket and tells who is at the other end.
pub(crate) fn accepted(socket: &Socket, keep_alive: &KeepAlive) -> io::Result<PeerAddress> {
    let peer = socket.peer_addr()?.as_socket().map_or(PeerAddress::Unix, PeerAddress::Tcp);
    tune(socket, peer != PeerAddress::Unix)?;
    if peer != PeerAddress::Unix {
        // Of the two, the user timeout ends the connection: with it the kernel does not count its questions.
        let questions = TcpKeepalive::new().with_time(keep_alive.idle).with_interval(keep_alive.interval);
        socket.set_tcp_keepalive(&questions)?;
        socket.set_tcp_user_timeout(Some(keep_alive.silence_max))?;
    }
    Ok(peer)
}

fn tune(socket: &Socket, tcp: bool) -> io::Result<()> {
    if !tcp {
        return socket.set_send_buffer_size(UNIX_SEND_BUFFER);
    }
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(PACED)) {
        // A kernel without it keeps its own choice: slower, but no reason to have no connection.
        let _ = socket.set_tcp_congestion(UNPACED);
    }
    socket.set_tcp_nodelay(true)
}

/// Ends the traffic of `socket` in both directions, so that operations on it complete. One that was never connected
/// has none.
pub(crate) fn shut(socket: &Socket) {
    let _ = socket.shutdown(Shutdown::Both);
}
