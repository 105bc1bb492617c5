//! A connection with another node: between the socket's buffers and the protocol's stands its channel.

use azekura_base::{Inbox, Outbox};
use azekura_node::ConnKey;
use azekura_reactor::Released;
use azekura_transport::{Channel, ChannelError, Opened};
use azekura_wire::{Decoder, Hello};
use std::net::IpAddr;
use std::sync::Arc;

/// Memory of a connection whose other end has not greeted yet, at the most; a little more while it is being looked at.
pub const UNGREETED_BYTES_MAX: usize = 64 << 10;
/// What a TLS connection begins with: a record of its handshake (RFC 8446, 5.1). A frame of the protocol does not.
const HANDSHAKE_RECORD: u8 = 22;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Accepted; nothing has come.
    Silent,
    /// A handshake of TLS is under way.
    ShakingHands,
    /// Accepted; the other end is yet to say who it is.
    Ungreeted,
    /// It has said so, or was dialled.
    Greeted,
    /// It is being closed; what still comes is nobody's.
    Ended,
}

/// A connection with another node.
pub struct PeerConn {
    /// Its name.
    pub key: ConnKey,
    /// Who has connected, where that is known.
    pub from: Option<IpAddr>,
    /// This node has dialled.
    pub is_dialled: bool,
    /// How far it is.
    pub stage: Stage,
    /// What stands between the socket and what follows.
    pub channel: Channel,
    /// Received bytes.
    pub inbox: Inbox,
    /// Bytes to send.
    pub outbox: Outbox,
    /// Where the last frame ended.
    pub decoder: Decoder,
    /// Bytes of the outbox, as the node was told last.
    pub unsent_reported: usize,
}

/// A connection that another shard has accepted, and whose other end has greeted this one.
pub struct Handed {
    /// The socket.
    pub released: Released,
    /// Who has connected.
    pub from: Option<IpAddr>,
    /// The channel, with what is still in it.
    pub channel: Channel,
    /// The greeting.
    pub hello: Hello,
    /// A place among those that wait for the shard.
    pub place: Arc<()>,
}

impl PeerConn {
    fn new(key: ConnKey, from: Option<IpAddr>, stage: Stage, channel: Channel) -> PeerConn {
        let (inbox, outbox, decoder) = (Inbox::new(), Outbox::new(), Decoder::default());
        PeerConn { key, from, is_dialled: false, stage, channel, inbox, outbox, decoder, unsent_reported: 0 }
    }

    /// One that was accepted; its first byte will tell what it speaks.
    #[must_use]
    pub fn accepted(key: ConnKey, from: Option<IpAddr>) -> PeerConn {
        let mut conn = PeerConn::new(key, from, Stage::Silent, Channel::plain());
        conn.inbox.limit_stream(UNGREETED_BYTES_MAX);
        conn
    }

    /// One that was dialled, and speaks through this channel.
    #[must_use]
    pub fn dialled(key: ConnKey, channel: Channel) -> PeerConn {
        let stage = if channel.is_plain() { Stage::Greeted } else { Stage::ShakingHands };
        PeerConn { is_dialled: true, ..PeerConn::new(key, None, stage, channel) }
    }

    /// One that another shard has accepted, with its channel, and whose other end has greeted.
    #[must_use]
    pub fn handed(key: ConnKey, from: Option<IpAddr>, mut channel: Channel) -> PeerConn {
        channel.expect_much();
        PeerConn::new(key, from, Stage::Greeted, channel)
    }

    /// What the first byte says; `None` when it is not there yet.
    pub fn speaks_tls(&self) -> Option<bool> {
        self.inbox.peek(1).map(|first| first == [HANDSHAKE_RECORD])
    }

    /// The other end has greeted, or was dialled and has proved its key: from now on it may send much.
    pub fn greeted(&mut self) {
        self.stage = Stage::Greeted;
        self.inbox.limit_stream(usize::MAX);
        self.channel.expect_much();
    }

    /// Whoever is at the other end holds more memory here than a greeting needs.
    pub fn is_too_much(&self) -> bool {
        self.stage == Stage::Ungreeted && self.inbox.memory_bytes() > UNGREETED_BYTES_MAX
    }

    /// Decrypts what has come.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn open(&mut self) -> Result<Opened, ChannelError> {
        self.channel.open(&mut self.inbox)
    }

    /// Encrypts what waits, and tells how many bytes are on their way on both sides of the channel. Of `unsent`, as the
    /// reactor counts them, some are in the outbox that the reactor sees.
    ///
    /// # Errors
    /// As [`Channel::seal`].
    pub fn seal(&mut self, unsent: usize) -> Result<usize, ChannelError> {
        if self.channel.is_plain() {
            return Ok(unsent);
        }
        let sending = unsent - self.channel.outbox(&mut self.outbox).len();
        self.channel.seal(&mut self.outbox, sending)?;
        Ok(sending + self.channel.unsent_bytes(&self.outbox))
    }
}
