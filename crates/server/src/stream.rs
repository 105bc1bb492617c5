//! What the event loop keeps for each connection.

use azekura_base::{Generation, Inbox, Outbox};
use azekura_gateway::Op;
use azekura_nbd::{RequestToken, Session};
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
    /// A request that waits for its turn.
    pub ready: Option<(RequestToken, Op)>,
    /// Bytes that had been received when it was looked at last.
    pub received_bytes: u64,
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
    /// Bytes of the outbox, as the node was told last.
    pub unsent_told: usize,
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
    /// A client that has just connected, with a receive buffer of at most so many bytes.
    #[must_use]
    pub fn nbd(stream_bytes_max: usize) -> Conn {
        let mut session = Session::metered();
        session.inbox_mut().limit_stream(stream_bytes_max);
        Conn::Nbd(Box::new(NbdConn { session, ready: None, received_bytes: 0, volume: None }))
    }

    /// A connection with another node.
    #[must_use]
    pub fn peer(key: ConnKey) -> Conn {
        let (inbox, outbox, decoder) = (Inbox::new(), Outbox::new(), Decoder::default());
        Conn::Peer(Box::new(PeerConn { key, inbox, outbox, decoder, unsent_told: 0 }))
    }
}
