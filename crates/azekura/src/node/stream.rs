//! What the event loop keeps for each connection.

use azekura_base::{Generation, Inbox, Outbox};
use azekura_nbd::Session;
use azekura_node::ConnKey;
use azekura_reactor::Stream;
use azekura_wire::Decoder;
use std::sync::Arc;

/// A connection of this node.
pub enum Conn {
    /// A client.
    Nbd(Box<NbdConn>),
    /// Another node.
    Peer(Box<PeerConn>),
}

/// A client's connection.
pub struct NbdConn {
    /// The protocol.
    pub session: Session,
    /// The volume that it has opened, and the attachment that its requests carry.
    pub volume: Option<(Arc<str>, Generation)>,
}

/// A connection with another node.
pub struct PeerConn {
    /// Its name.
    pub key: ConnKey,
    /// Received bytes.
    pub inbox: Inbox,
    /// Bytes to send.
    pub outbox: Outbox,
    /// Where the last frame ended.
    pub decoder: Decoder,
}

impl Stream for Conn {
    fn inbox(&mut self) -> &mut Inbox {
        match self {
            Conn::Nbd(conn) => conn.session.inbox_mut(),
            Conn::Peer(conn) => &mut conn.inbox,
        }
    }

    fn outbox(&mut self) -> &mut Outbox {
        match self {
            Conn::Nbd(conn) => conn.session.outbox_mut(),
            Conn::Peer(conn) => &mut conn.outbox,
        }
    }
}

impl Conn {
    /// A client that has just connected.
    #[must_use]
    pub fn nbd() -> Conn {
        Conn::Nbd(Box::new(NbdConn { session: Session::new(), volume: None }))
    }

    /// A connection with another node.
    #[must_use]
    pub fn peer(key: ConnKey) -> Conn {
        Conn::Peer(Box::new(PeerConn { key, inbox: Inbox::new(), outbox: Outbox::new(), decoder: Decoder::default() }))
    }
}
