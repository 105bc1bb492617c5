//! What the event loop keeps for each connection.

use crate::driver::peers::conn::PeerConn;
use azekura_base::{Inbox, Outbox};
use azekura_frontend::Client;
use azekura_reactor::Stream;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// A connection of this node.
pub enum Conn {
    /// A client.
    Client(Box<Client>),
    /// Another node.
    Peer(Box<PeerConn>),
}

impl Stream for Conn {
    fn inbox(&mut self) -> &mut Inbox {
        match self {
            Conn::Client(client) => client.protocol().inbox_mut(),
            Conn::Peer(conn) => conn.channel.inbox(&mut conn.inbox),
        }
    }

    fn outbox(&mut self) -> &mut Outbox {
        match self {
            Conn::Client(client) => client.protocol().outbox_mut(),
            Conn::Peer(conn) => conn.channel.outbox(&mut conn.outbox),
        }
    }

    fn descriptors(&mut self) -> Option<&mut VecDeque<OwnedFd>> {
        match self {
            Conn::Client(client) => Some(client.protocol().sharing()?.descriptors()),
            Conn::Peer(_) => None,
        }
    }
}
