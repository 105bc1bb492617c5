//! An end of a channel with the buffers that a socket and a protocol would have.

use azekura_base::{Inbox, Outbox, PeerKey};
use azekura_transport::{Channel, ChannelError, Credentials, NodeKey, Opened};
use std::sync::LazyLock;

pub struct End {
    pub channel: Channel,
    pub own_out: Outbox,
    own_in: Inbox,
    /// All that the protocol was given.
    pub got: Vec<u8>,
}

impl End {
    pub fn new(channel: Channel) -> End {
        End { channel, own_out: Outbox::new(), own_in: Inbox::new(), got: Vec::new() }
    }

    /// What has come is the beginning of TLS.
    pub fn begun_as(mut self, credentials: &Credentials) -> End {
        End::new(credentials.accept_begun(&mut self.own_in).unwrap())
    }

    pub fn seal(&mut self) -> Result<(), ChannelError> {
        self.channel.seal(&mut self.own_out, 0)
    }

    /// What the socket takes.
    pub fn sent(&mut self) -> Vec<u8> {
        let mut pieces = Vec::new();
        self.channel.outbox(&mut self.own_out).take(&mut pieces, usize::MAX, usize::MAX);
        pieces.concat()
    }

    /// The socket has received this, which the buffer must have room for.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let inbox = self.channel.inbox(&mut self.own_in);
        let mut fill = inbox.take_fill();
        let count = bytes.len().min(fill.buf.len() - fill.at);
        fill.buf[fill.at..fill.at + count].copy_from_slice(&bytes[..count]);
        inbox.filled(fill, count);
        count
    }

    /// The socket receives this, at most `piece` bytes at a time, and the protocol takes all.
    pub fn receive(&mut self, bytes: &[u8], piece: usize) -> Result<Opened, ChannelError> {
        let mut rest = bytes;
        loop {
            let count = self.fill(&rest[..rest.len().min(piece)]);
            rest = &rest[count..];
            loop {
                let opened = self.channel.open(&mut self.own_in)?;
                let available = self.own_in.available();
                self.got.extend_from_slice(available);
                self.own_in.consume(self.own_in.available().len());
                if opened != Opened::Part {
                    if rest.is_empty() {
                        return Ok(opened);
                    }
                    break;
                }
            }
        }
    }

    /// Of the socket's buffer.
    pub fn memory_bytes(&mut self) -> usize {
        self.channel.inbox(&mut self.own_in).memory_bytes()
    }
}

pub fn credentials() -> (PeerKey, Credentials) {
    let key = NodeKey::generate().unwrap();
    (key.name().unwrap(), Credentials::new(&key).unwrap())
}

/// A client and a server that have not met.
pub fn pair() -> (End, End) {
    static BOTH: LazyLock<[Credentials; 2]> = LazyLock::new(|| [credentials().1, credentials().1]);
    (End::new(BOTH[0].connect().unwrap()), End::new(BOTH[1].accept().unwrap()))
}

/// Until both know each other, and all that waited has arrived.
pub fn shake_hands(client: &mut End, server: &mut End) {
    for _ in 0..3 {
        client.seal().unwrap();
        server.receive(&client.sent(), usize::MAX).unwrap();
        server.seal().unwrap();
        client.receive(&server.sent(), usize::MAX).unwrap();
    }
    assert!(client.channel.peer().is_some() && server.channel.peer().is_some());
}

pub fn pattern(len: usize, number: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + number * 31) as u8).collect()
}
