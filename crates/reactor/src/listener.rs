//! Listening sockets.

use crate::{
    ConnId, Event, ListenerId, Reactor, Stream,
    ring::{Operation, Ticket},
    socket::{self, Port},
};
use socket2::Socket;
use std::{
    fs, io,
    net::SocketAddr,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time until accepting is tried again after it failed; each further failure in a row doubles it.
const ACCEPT_RETRY: Duration = Duration::from_millis(1);
/// The most of that.
const ACCEPT_RETRY_MAX: Duration = Duration::from_secs(1);
/// The same after the process or machine was out of file descriptors.
const SHORTAGE_RETRY: Duration = Duration::from_millis(100);

/// The pause after so many failures in a row.
fn pause_after(failures: u32) -> Duration {
    (ACCEPT_RETRY * 2u32.saturating_pow(failures.saturating_sub(1))).min(ACCEPT_RETRY_MAX)
}

pub(crate) struct Listener {
    socket: Socket,
    /// The socket file, to be removed at the end: its path, device and inode.
    file: Option<(PathBuf, u64, u64)>,
    accepting: Option<Ticket>,
    closing: bool,
    /// When to accept again, after it failed.
    retry_at: Option<Instant>,
    /// How often it has failed in a row.
    failures: u32,
}

/// A unix socket that clients can connect to, and at which nobody accepts them yet. To make one may take a moment, and
/// files: it can be done by another thread than the reactor's. Its file is removed when it is dropped.
pub struct UnixDoor(Listener);

impl UnixDoor {
    /// Listens at `path`. A socket file whose owner is gone is replaced.
    ///
    /// # Errors
    /// When another process listens there, or the file can't be made.
    pub fn open(path: &Path) -> io::Result<UnixDoor> {
        let socket = socket::listen_unix(path)?;
        let file = fs::symlink_metadata(path)?;
        Ok(UnixDoor(Listener::new(socket, Some((path.to_owned(), file.dev(), file.ino())))))
    }
}

impl Listener {
    fn new(socket: Socket, file: Option<(PathBuf, u64, u64)>) -> Listener {
        Listener { socket, file, accepting: None, closing: false, retry_at: None, failures: 0 }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, device, inode)) = &self.file
            && fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == (*device, *inode))
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl<S: Stream> Reactor<S> {
    /// Listens on a TCP address; port 0 takes a free one ([`Reactor::local_address`] tells which).
    ///
    /// # Errors
    /// When the address is in use or not this machine's.
    pub fn listen_tcp(&mut self, address: SocketAddr) -> io::Result<ListenerId> {
        let socket = socket::listen_tcp(address, Port::Alone)?;
        Ok(self.add_listener(Listener::new(socket, None)))
    }

    /// The same beside other listeners of this user on the same address, which listen in this way, too: the kernel
    /// deals connections out to them (`SO_REUSEPORT`).
    ///
    /// # Errors
    /// When the address is not this machine's, or somebody listens there who does not share it.
    pub fn listen_tcp_shared(&mut self, address: SocketAddr) -> io::Result<ListenerId> {
        let socket = socket::listen_tcp(address, Port::Shared)?;
        Ok(self.add_listener(Listener::new(socket, None)))
    }

    /// Listens on a unix socket at `path`. A socket file whose owner is gone is replaced; the file is removed when the
    /// listener is closed or dropped.
    ///
    /// # Errors
    /// When another process listens there, or the file can't be made.
    pub fn listen_unix(&mut self, path: &Path) -> io::Result<ListenerId> {
        Ok(self.listen_at(UnixDoor::open(path)?))
    }

    /// Accepts clients at a unix socket that listens. Its file is removed when the listener is closed or dropped.
    pub fn listen_at(&mut self, door: UnixDoor) -> ListenerId {
        self.add_listener(door.0)
    }

    fn add_listener(&mut self, listener: Listener) -> ListenerId {
        let id = ListenerId(self.listeners.insert(listener));
        let index = self.listeners.index(id.0).expect("just inserted");
        self.accept(index);
        id
    }

    /// The address of this side of a connection over TCP: where the other side has found it.
    #[must_use]
    pub fn own_address(&mut self, conn: ConnId) -> Option<SocketAddr> {
        let index = self.connections.index(conn.0)?;
        self.connections.at(index).socket.local_addr().ok()?.as_socket()
    }

    /// The address of the other side of a connection over TCP.
    #[must_use]
    pub fn peer_address(&mut self, conn: ConnId) -> Option<SocketAddr> {
        let index = self.connections.index(conn.0)?;
        self.connections.at(index).socket.peer_addr().ok()?.as_socket()
    }

    /// The address of a TCP listener.
    #[must_use]
    pub fn local_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.listeners.get(listener.0)?.socket.local_addr().ok()?.as_socket()
    }

    /// Listens no more. Connections that were accepted stay; [`Event::Accepted`] may still come for those that were
    /// accepted before this call.
    pub fn close_listener(&mut self, listener: ListenerId) {
        let Some(index) = self.listeners.index(listener.0) else { return };
        let listener = self.listeners.at(index);
        listener.closing = true;
        match listener.accepting {
            Some(ticket) => {
                socket::shut(&listener.socket);
                self.ring.cancel(ticket);
                self.listeners.void(index);
            }
            None => drop(self.listeners.take(index)),
        }
    }

    fn accept(&mut self, index: u32) {
        let listener = self.listeners.at(index);
        listener.retry_at = None;
        let socket = listener.socket.as_raw_fd();
        listener.accepting = Some(self.ring.start(Operation::Accept { listener: index, socket }));
    }

    pub(crate) fn on_accept(&mut self, index: u32, result: io::Result<Socket>, more: bool) {
        let id = ListenerId(self.listeners.token(index));
        let listener = self.listeners.at(index);
        let mut retry_at = None;
        listener.failures = if result.is_ok() { 0 } else { listener.failures.saturating_add(1) };
        let failures = listener.failures;
        match result {
            Ok(socket) if listener.closing || self.connections.len() >= self.options.connections_max => drop(socket),
            Ok(socket) => {
                // A peer that is gone already needs no event.
                if let Ok(peer) = socket::accepted(&socket, &self.options.keep_alive) {
                    let conn = self.add_accepted(socket);
                    self.ready.push(Event::Accepted { listener: id, conn, peer });
                }
            }
            Err(error) if is_shortage(&error) => retry_at = Some(Instant::now() + SHORTAGE_RETRY),
            // A peer that gave up before it was accepted is no reason to keep others waiting; what fails again and
            // again is.
            Err(_) => retry_at = Some(Instant::now() + pause_after(failures)),
        }
        if more {
            return;
        }
        let listener = self.listeners.at(index);
        listener.accepting = None;
        if listener.closing {
            self.listeners.take(index);
        } else if retry_at.is_some() {
            listener.retry_at = retry_at;
            self.short_listeners += 1;
        } else {
            self.accept(index);
        }
    }

    /// Accepts again where the time for it has come. Returns the time until the next such moment.
    pub(crate) fn retry_accepts(&mut self) -> Option<Duration> {
        if self.short_listeners == 0 {
            return None;
        }
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        self.short_listeners = 0;
        for index in self.listeners.indexes().collect::<Vec<_>>() {
            match self.listeners.at(index).retry_at {
                Some(at) if at <= now => self.accept(index),
                Some(at) => {
                    self.short_listeners += 1;
                    next = Some(next.map_or(at, |next| next.min(at)));
                }
                None => {}
            }
        }
        next.map(|at| at - now)
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use azekura_base::{Inbox, Outbox};

    #[test]
    fn an_accept_that_fails_for_good_is_tried_ever_more_rarely() {
        let mut reactor = Reactor::<(Inbox, Outbox)>::new(Options::default()).unwrap();
        let id = reactor.listen_tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let index = reactor.listeners.index(id.0).unwrap();
        socket::shut(&reactor.listeners.at(index).socket);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(200) {
            reactor.wait(Some(Duration::from_millis(10)), &mut Vec::new()).unwrap();
        }
        let failures = reactor.listeners.at(index).failures;
        assert!((2..=9).contains(&failures), "{failures} failures in 200 ms");
        assert_eq!(pause_after(1), ACCEPT_RETRY);
        assert_eq!(pause_after(4), 8 * ACCEPT_RETRY);
        assert_eq!(pause_after(u32::MAX), ACCEPT_RETRY_MAX);
    }
}
