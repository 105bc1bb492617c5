//! What [`Reactor::wait`](crate::Reactor::wait) reports.

use crate::{BellId, ConnId, ListenerId};
use bytes::Bytes;
use std::{fmt, io, net::SocketAddr};

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A listener has a new connection. Nothing is received on it before [`Reactor::install`](crate::Reactor::install).
    Accepted {
        /// The listener.
        listener: ListenerId,
        /// The new connection.
        conn: ConnId,
        /// Who connected.
        peer: PeerAddress,
    },
    /// An outgoing connection stands.
    Connected {
        /// The connection.
        conn: ConnId,
    },
    /// An outgoing connection could not be made. The last event of `conn`.
    ConnectFailed {
        /// The connection; its id is void from the next wait on.
        conn: ConnId,
        /// Why.
        error: io::Error,
    },
    /// The inbox has more bytes. [`Reactor::kick`](crate::Reactor::kick) asks for the next ones.
    Received {
        /// The connection.
        conn: ConnId,
    },
    /// The outbox fell below [`SEND_LOW_WATER`](crate::SEND_LOW_WATER) after having been above it. (What was never
    /// above makes no event: one would cost each small answer a turn of its own.)
    Sent {
        /// The connection.
        conn: ConnId,
    },
    /// The connection has ended, and its stream can still be reached until the next wait. The last event of `conn`.
    Closed {
        /// The connection; its id is void from the next wait on.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
    /// A device read ended.
    DeviceRead {
        /// The token that the caller gave.
        token: Token,
        /// All bytes asked for, page-aligned, or what went wrong.
        result: io::Result<Bytes>,
    },
    /// A device write ended.
    DeviceWritten {
        /// The token that the caller gave.
        token: Token,
        /// Success when every byte was taken (and, for a durable write, is on stable storage).
        result: io::Result<()>,
    },
    /// A device sync ended.
    DeviceSynced {
        /// The token that the caller gave.
        token: Token,
        /// Success when all that had been written before is on stable storage.
        result: io::Result<()>,
    },
    /// Another process has written to an eventfd that is watched, once or more often.
    Rung {
        /// The bell.
        bell: BellId,
    },
    /// A [`Waker`](crate::Waker) was used since the last wait.
    Woken,
}

/// The caller's name for a device operation: it comes back with the operation's end as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Whose operation it is.
    pub owner: u32,
    /// Which of the owner's.
    pub number: u64,
}

/// For callers with one owner.
impl From<u64> for Token {
    fn from(number: u64) -> Token {
        Token { owner: 0, number }
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub enum CloseReason {
    /// The peer closed its side; a half-closed connection counts as closed.
    Eof,
    /// The connection broke.
    Error(io::Error),
    /// This side closed it.
    Local,
}

/// The far end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A process on this machine, through a unix socket.
    Unix,
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Tcp(address) => write!(f, "{address}"),
            PeerAddress::Unix => f.write_str("unix"),
        }
    }
}
