//! Bytes on their way out: small headers gathered into one buffer, payloads by reference.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Headers are gathered in buffers of this many bytes.
const GATHER_SIZE: usize = 16 << 10;
/// Payloads up to this size are copied behind their header rather than sent as a piece of their own.
const COPY_MAX: usize = 512;

/// Urgent bytes go ahead of others at borders that are so far apart, or farther where frames are larger
/// (decision 0024).
const BORDER_BYTES: u64 = 64 << 10;

/// The sending half of a connection: a queue of byte pieces.
///
/// Bytes may be urgent ([`Outbox::put_urgent`]): they go ahead of all that waits, but never into the midst of a frame.
/// Where frames end, the caller says ([`Outbox::end_frame`]).
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
    urgent: BytesMut,
    /// Ends of frames, counted in bytes that were ever put and are not urgent. Each is the end of a piece.
    borders: VecDeque<u64>,
    /// Such bytes that were put, and that were taken.
    put: u64,
    taken: u64,
    /// The last border.
    border: u64,
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
        self.put += bytes.len() as u64;
    }

    /// Appends whole frames that go ahead of all others of which nothing has been taken.
    pub fn put_urgent(&mut self, frames: &[u8]) {
        self.urgent.extend_from_slice(frames);
        self.len += frames.len();
    }

    /// What was put until now, urgent bytes apart, is whole frames.
    pub fn end_frame(&mut self) {
        if self.put - self.border >= BORDER_BYTES {
            self.seal();
            self.border = self.put;
            self.borders.push_back(self.put);
        }
    }

    /// Appends `payload` by reference.
    pub fn put_payload(&mut self, payload: Bytes) {
        if payload.len() <= COPY_MAX {
            self.put(&payload);
            return;
        }
        self.seal();
        self.len += payload.len();
        self.put += payload.len() as u64;
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
            let piece = if !self.urgent.is_empty() && self.is_at_a_border() {
                self.urgent.split().freeze()
            } else {
                let Some(piece) = self.pieces.pop_front() else { break };
                self.taken += piece.len() as u64;
                while self.borders.front().is_some_and(|border| *border < self.taken) {
                    self.borders.pop_front();
                }
                piece
            };
            bytes += piece.len();
            into.push(piece);
        }
        self.len -= bytes;
    }

    /// What was taken ends with a frame.
    fn is_at_a_border(&self) -> bool {
        self.taken == 0 || self.pieces.is_empty() || self.borders.front() == Some(&self.taken)
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

    /// A frame: its length, and a byte that says what it is.
    fn frame(len: u32, kind: u8) -> Vec<u8> {
        let mut frame = vec![kind; len as usize];
        frame[..4].copy_from_slice(&len.to_le_bytes());
        frame
    }

    #[test]
    fn urgent_frames_go_ahead_at_the_borders_of_others() {
        let mut out = Outbox::new();
        let (mut stream, mut orders, mut n) = (Vec::new(), 0, 0u32);
        for round in 0..300u32 {
            for _ in 0..round % 9 {
                n += 1;
                let bytes = frame(8 + n * 7919 % 90_000, 0);
                if n.is_multiple_of(3) {
                    out.put(&bytes);
                } else {
                    out.put(&bytes[..8]);
                    out.put_payload(Bytes::copy_from_slice(&bytes[8..]));
                }
                out.end_frame();
            }
            if round.is_multiple_of(4) {
                orders += 1;
                out.put_urgent(&frame(8 + round, orders as u8));
            }
            let mut pieces = Vec::new();
            out.take(&mut pieces, 1 + round as usize % 5, 100_000);
            pieces.iter().for_each(|piece| stream.extend_from_slice(piece));
        }
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        pieces.iter().for_each(|piece| stream.extend_from_slice(piece));
        assert!(out.is_empty() && out.borders.len() <= 1);
        let (mut at, mut data, mut urgent) = (0, 0, 0);
        while at < stream.len() {
            let len = u32::from_le_bytes(stream[at..at + 4].try_into().expect("four bytes")) as usize;
            let kind = stream[at + 4];
            assert!(stream[at + 4..at + len].iter().all(|byte| *byte == kind), "a frame was torn");
            if kind == 0 {
                data += 1;
            } else {
                urgent += 1;
                assert_eq!(kind, urgent as u8, "urgent frames keep their order");
            }
            at += len;
        }
        assert_eq!((data, urgent), (n, orders));
    }

    #[test]
    fn an_urgent_frame_waits_for_little() {
        let mut out = Outbox::new();
        for _ in 0..1000 {
            out.put(&[0; 100]);
            out.put_payload(Bytes::from(vec![0; 20_000]));
            out.end_frame();
        }
        let mut pieces = Vec::new();
        out.take(&mut pieces, 1, usize::MAX);
        out.put_urgent(&[1; 50]);
        let mut before = 0;
        loop {
            pieces.clear();
            out.take(&mut pieces, 1, usize::MAX);
            if pieces[0][0] == 1 {
                break;
            }
            before += pieces[0].len();
        }
        assert!(before < 90_000, "{before}");
    }
}
