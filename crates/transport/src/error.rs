//! Why a channel ends.

use thiserror::Error;

/// Why there is no channel, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The key's file is none that this program has written.
    #[error("the key can't be read: {0}")]
    Key(String),
    /// What arrived is no TLS 1.3, was altered, or comes from somebody without a key.
    #[error("the peer's TLS is refused: {0}")]
    Tls(String),
    /// The other end speaks TLS, but not with a node.
    #[error("the peer does not speak {}", String::from_utf8_lossy(crate::PROTOCOL))]
    Protocol,
    /// [`HANDSHAKE_BYTES_MAX`](crate::HANDSHAKE_BYTES_MAX) came, and the handshake has not ended.
    #[error("the peer's handshake is longer than {} KiB", crate::HANDSHAKE_BYTES_MAX >> 10)]
    TooLong,
    /// The connection has ended without the peer having said so: somebody may have cut off its end.
    #[error("the connection was cut off: the peer has not said that it ends")]
    Truncated,
}

impl From<rustls::Error> for ChannelError {
    fn from(error: rustls::Error) -> ChannelError {
        ChannelError::Tls(error.to_string())
    }
}
