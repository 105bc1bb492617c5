//! Bytes to messages.

use crate::frame::{attach, frame_checksum, get_body, is_known, payload_size};
use crate::message::Message;
use crate::{BODY_SIZE_MAX, HEADER_SIZE, MAGIC, PAYLOAD_SIZE_MAX};
use azekura_base::{Checksum, Inbox};
use std::fmt;

/// What is wrong with received bytes. The connection is of no use afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The first bytes are not those of a frame: somebody speaks another protocol.
    Magic(u32),
    /// A length is over its limit.
    TooLong {
        /// Body length.
        body: u32,
        /// Payload length.
        payload: u32,
    },
    /// Header or body were damaged on the way.
    Checksum,
    /// The kind of message is unknown.
    Kind(u8),
    /// The body does not say what a message of its kind must.
    Malformed(u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Magic(found) => {
                write!(f, "not the Azekura node protocol (first bytes {:02x?})", found.to_le_bytes())
            }
            WireError::TooLong { body, payload } => {
                write!(f, "a frame of {body}+{payload} bytes is over the limit of {BODY_SIZE_MAX}+{PAYLOAD_SIZE_MAX}")
            }
            WireError::Checksum => f.write_str("a frame's checksum is wrong"),
            WireError::Kind(kind) => write!(f, "unknown message kind {kind}; is the peer newer?"),
            WireError::Malformed(kind) => write!(f, "malformed message of kind {kind}"),
        }
    }
}

impl std::error::Error for WireError {}

/// Cuts a connection's bytes into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    /// A message whose payload has not all arrived, and the payload's length.
    partial: Option<(Message, usize)>,
}

impl Decoder {
    /// The next message in `inbox`, or `None` until more bytes have arrived.
    ///
    /// # Errors
    /// When the bytes are not a valid frame; the connection should be closed.
    pub fn next(&mut self, inbox: &mut Inbox) -> Result<Option<Message>, WireError> {
        if let Some((_, payload_len)) = &self.partial {
            let Some(payload) = inbox.take_payload(*payload_len) else { return Ok(None) };
            let Some((mut message, _)) = self.partial.take() else { return Ok(None) };
            attach(&mut message, payload);
            return Ok(Some(message));
        }
        let Some(header) = inbox.peek(HEADER_SIZE) else { return Ok(None) };
        let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (magic, kind, body_len, payload_len, sum) = (field(0), header[4], field(8), field(12), field(16));
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        if body_len as usize > BODY_SIZE_MAX || payload_len as usize > PAYLOAD_SIZE_MAX {
            return Err(WireError::TooLong { body: body_len, payload: payload_len });
        }
        let frame_len = HEADER_SIZE + body_len as usize;
        let Some(frame) = inbox.peek(frame_len) else { return Ok(None) };
        if frame_checksum(frame) != Checksum(sum) {
            return Err(WireError::Checksum);
        }
        let Some(mut message) = get_body(kind, &frame[HEADER_SIZE..]) else {
            return Err(if is_known(kind) { WireError::Malformed(kind) } else { WireError::Kind(kind) });
        };
        let payload_len = payload_len as usize;
        if payload_size(&message, payload_len) != Some(payload_len) {
            return Err(WireError::Malformed(kind));
        }
        inbox.consume(frame_len);
        if payload_len == 0 {
            return Ok(Some(message));
        }
        match inbox.take_payload(payload_len) {
            Some(payload) => {
                attach(&mut message, payload);
                Ok(Some(message))
            }
            None => {
                self.partial = Some((message, payload_len));
                Ok(None)
            }
        }
    }
}
