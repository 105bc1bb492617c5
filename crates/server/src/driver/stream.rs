//! What the event loop keeps for each connection.

use azekura_base::{Inbox, Outbox};
use azekura_frontend::Client;
use azekura_node::ConnKey;
use azekura_reactor::Stream;
use azekura_wire::Decoder;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// A connection of this node.
pub enum Conn {
    /// A client.
    Client(Box<Client>),
    /// Another node.
    Peer(Box<PeerConn>),
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
    pub unsent_reported: usize,
}

impl Stream for Conn {
    fn inbox(&mut self) -> &mut Inbox {
        match self {
            Conn::Client(client) => client.protocol().inbox_mut(),
            Conn::Peer(conn) => &mut conn.inbox,
        }
    }

    fn outbox(&mut self) -> &mut Outbox {
        match self {
            Conn::Client(client) => client.protocol().outbox_mut(),
            Conn::Peer(conn) => &mut conn.outbox,
        }
    }

    fn descriptors(&mut self) -> Option<&mut VecDeque<OwnedFd>> {
        match self {
            Conn::Client(client) => Some(client.protocol().sharing()?.descriptors()),
            Conn::Peer(_) => None,
        }
    }
}

impl Conn {
    /// A connection with another node.
    #[must_use]
    pub fn peer(key: ConnKey) -> Conn {
        let (inbox, outbox, decoder) = (Inbox::new(), Outbox::new(), Decoder::default());
        Conn::Peer(Box::new(PeerConn { key, inbox, outbox, decoder, unsent_reported: 0 }))
    }
}
