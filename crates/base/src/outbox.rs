//! Bytes on their way out: small headers gathered into one buffer, payloads by reference.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Headers are gathered in buffers of this many bytes.
const GATHER_SIZE: usize = 16 << 10;
/// Payloads up to this size are copied behind their header rather than sent as a piece of their own.
const COPY_MAX: usize = 512;

/// The sending half of a connection: a queue of byte pieces.
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl Outbox {
    /// An empty outbox.
    #[must_use]
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Appends a copy of `bytes`: for headers.
    pub fn put(&mut self, bytes: &[u8]) {
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            self.seal();
            self.tail.reserve(GATHER_SIZE.max(bytes.len()));
        }
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends `payload` by reference.
    pub fn put_payload(&mut self, payload: Bytes) {
        if payload.len() <= COPY_MAX {
            self.put(&payload);
            return;
        }
        self.seal();
        self.len += payload.len();
        self.pieces.push_back(payload);
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves at most `pieces_max` pieces and about `bytes_max` bytes (at least one piece) into `into`, in order.
    pub fn take(&mut self, into: &mut Vec<Bytes>, pieces_max: usize, bytes_max: usize) {
        self.seal();
        let mut bytes = 0;
        while into.len() < pieces_max && bytes < bytes_max {
            let Some(piece) = self.pieces.pop_front() else { break };
            bytes += piece.len();
            into.push(piece);
        }
        self.len -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_length_are_kept() {
        let mut out = Outbox::new();
        let mut expected = Vec::new();
        for i in 0..200usize {
            let header = vec![i as u8; 1 + i % 40];
            let payload = vec![!(i as u8); (i * 37) % 3000];
            out.put(&header);
            out.put_payload(Bytes::from(payload.clone()));
            expected.extend(header);
            expected.extend(payload);
        }
        assert_eq!(out.len(), expected.len());
        let mut got = Vec::new();
        while !out.is_empty() {
            let mut pieces = Vec::new();
            out.take(&mut pieces, 8, 10_000);
            assert!(!pieces.is_empty() && pieces.len() <= 8);
            pieces.iter().for_each(|p| got.extend_from_slice(p));
        }
        assert_eq!(got, expected);
    }
}
