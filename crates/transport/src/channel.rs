//! A connection's bytes, with keys or without.

use crate::ChannelError;
use crate::tls::{Terms, Tls};
use azekura_base::{Inbox, Outbox, PeerKey};
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// Bytes that are encrypted ahead of the socket at the most, but for the last 64 KiB: what is encrypted can't be
/// overtaken by what is urgent.
pub const SEALED_AHEAD_MAX: usize = 256 << 10;

/// What [`Channel::open`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// All that has arrived.
    All,
    /// As much as the inbox is to hold: let the protocol take from it, then open again.
    Part,
    /// All, and the peer has said that it sends nothing more.
    Ended,
}

/// Stands between the buffers of a socket and the buffers of a protocol (`own`). One without keys passes the protocol's
/// to the socket.
#[derive(Debug)]
pub struct Channel(Option<Box<Tls>>);

impl Channel {
    /// A channel that changes no byte.
    #[must_use]
    pub fn plain() -> Channel {
        Channel(None)
    }

    pub(crate) fn client(config: Arc<ClientConfig>) -> Result<Channel, ChannelError> {
        Ok(Channel(Some(Box::new(Tls::client(config)?))))
    }

    pub(crate) fn server(config: Arc<ServerConfig>, terms: Terms) -> Result<Channel, ChannelError> {
        Ok(Channel(Some(Box::new(Tls::server(config, terms)?))))
    }

    /// A channel that has no keys.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.is_none()
    }

    /// The accepting end of a channel on whose connection this has come, before it was known that the peer speaks TLS.
    pub(crate) fn begun(mut self, own: &mut Inbox) -> Channel {
        if let Some(tls) = &mut self.0 {
            tls.begin_with(own);
        }
        self
    }

    /// Where the socket's bytes are to be received.
    pub fn inbox<'a>(&'a mut self, own: &'a mut Inbox) -> &'a mut Inbox {
        self.0.as_mut().map_or(own, |tls| &mut tls.inbox)
    }

    /// What is to be sent.
    pub fn outbox<'a>(&'a mut self, own: &'a mut Outbox) -> &'a mut Outbox {
        self.0.as_mut().map_or(own, |tls| &mut tls.outbox)
    }

    /// Decrypts what has arrived and appends it to `own`. To be called when something has, and again after
    /// [`Opened::Part`]; [`Channel::seal`] after it, for it may have something to answer. A socket whose channel has
    /// more for `own` is not to be read from.
    ///
    /// # Errors
    /// When the peer is to be cut off; what the outbox then has may still be sent, to tell the peer why.
    pub fn open(&mut self, own: &mut Inbox) -> Result<Opened, ChannelError> {
        self.0.as_mut().map_or(Ok(Opened::All), |tls| tls.open(own))
    }

    /// Encrypts what waits in `own`, at most [`SEALED_AHEAD_MAX`] ahead of the socket, which has taken `sending` bytes
    /// from the outbox and not sent them yet: to be called when there is something, and when something was sent. A
    /// client's first call begins its handshake, until whose end `own` waits.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn seal(&mut self, own: &mut Outbox, sending: usize) -> Result<(), ChannelError> {
        self.0.as_mut().map_or(Ok(()), |tls| tls.seal(own, SEALED_AHEAD_MAX.saturating_sub(sending)))
    }

    /// Encrypts all that waits in `own`: for a protocol in which nothing is urgent.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn seal_all(&mut self, own: &mut Outbox) -> Result<(), ChannelError> {
        self.0.as_mut().map_or(Ok(()), |tls| tls.seal(own, usize::MAX))
    }

    /// What waits in `own` is sent as it is, before anything of TLS: where a protocol goes over to TLS in its midst.
    pub fn send_first(&mut self, own: &mut Outbox) {
        if let Some(tls) = &mut self.0 {
            tls.send_first(own);
        }
    }

    /// The peer is welcome: its bytes may have more room than [`HANDSHAKE_BYTES_MAX`](crate::HANDSHAKE_BYTES_MAX).
    pub fn expect_much(&mut self) {
        self.expect(usize::MAX);
    }

    /// The same, with so many bytes of room, or those of a handshake where that is more.
    pub fn expect(&mut self, bytes: usize) {
        if let Some(tls) = &mut self.0 {
            tls.expect(bytes);
        }
    }

    /// The handshake has ended: what [`Channel::peer`] says is all that there will be. A plain one has none.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.0.as_ref().is_none_or(|tls| tls.stands())
    }

    /// Says to the peer that nothing more follows what was sealed.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn close(&mut self) -> Result<(), ChannelError> {
        self.0.as_mut().map_or(Ok(()), |tls| tls.close())
    }

    /// To be asked when the socket has no more to give: whether that was the peer's own end. Plain channels don't know,
    /// and believe it.
    ///
    /// # Errors
    /// [`ChannelError::Truncated`] when the peer has not said so.
    pub fn ended(&self) -> Result<(), ChannelError> {
        match &self.0 {
            Some(tls) if !tls.has_ended() => Err(ChannelError::Truncated),
            _ => Ok(()),
        }
    }

    /// The key that the peer has proved to have, from the end of the handshake on.
    #[must_use]
    pub fn peer(&self) -> Option<PeerKey> {
        self.0.as_ref().and_then(|tls| tls.peer())
    }

    /// Bytes that are not with the socket yet, `own`'s among them.
    #[must_use]
    pub fn unsent_bytes(&self, own: &Outbox) -> usize {
        own.len() + self.0.as_ref().map_or(0, |tls| tls.unsent_bytes())
    }
}
