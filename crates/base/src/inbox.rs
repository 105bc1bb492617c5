//! Bytes on their way in: a stream cut into small headers and large payloads, with each payload page-aligned.
//!
//! Whoever owns the socket asks [`Inbox::take_fill`] for a place to receive into, and returns it with
//! [`Inbox::filled`]. The protocol looks at headers with [`Inbox::peek`], drops them with [`Inbox::consume`], and
//! takes payloads with [`Inbox::take_payload`]. A small payload is copied once out of the stream buffer; a large one
//! is received straight into its own pages.

use crate::PageBuf;
use bytes::Bytes;

/// Bytes of the stream buffer: one receive takes at most this many.
const STREAM_SIZE: usize = 256 << 10;
/// Payloads of at least this many bytes still missing are received in place.
const IN_PLACE_MIN: usize = 32 << 10;

/// A place to receive into: bytes `at..` of `buf`.
#[derive(Debug)]
pub struct Fill {
    /// The buffer; owned by whoever is receiving until it is given back.
    pub buf: PageBuf,
    /// Where the next byte goes.
    pub at: usize,
}

#[derive(Debug)]
struct Payload {
    /// Absent while it is out being filled.
    buf: Option<PageBuf>,
    len: usize,
    filled: usize,
}

/// The receiving half of a connection. See the module's description.
#[derive(Debug)]
pub struct Inbox {
    /// Absent while it is out being filled.
    stream: Option<PageBuf>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    filling: bool,
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox::new()
    }
}

impl Inbox {
    /// An empty inbox.
    #[must_use]
    pub fn new() -> Inbox {
        Inbox { stream: None, start: 0, end: 0, payload: None, filling: false }
    }

    /// A place for the next bytes; the caller receives into it and gives it back with [`Inbox::filled`].
    ///
    /// # Panics
    /// When the last one has not been given back.
    pub fn take_fill(&mut self) -> Fill {
        assert!(!self.filling, "one receive at a time");
        self.filling = true;
        if let Some(payload) = &mut self.payload
            && payload.filled < payload.len
            && let Some(buf) = payload.buf.take()
        {
            return Fill { buf, at: payload.filled };
        }
        let mut buf = self.stream.take().unwrap_or_else(|| PageBuf::new(STREAM_SIZE));
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && buf.len() - self.end < STREAM_SIZE / 2 {
            buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        assert!(self.end < buf.len(), "a header longer than the stream buffer was waited for");
        Fill { buf, at: self.end }
    }

    /// Gives `fill` back with `count` more bytes in it.
    ///
    /// # Panics
    /// When it was not taken, or `count` is more than had room.
    pub fn filled(&mut self, fill: Fill, count: usize) {
        assert!(self.filling, "gave back what was not taken");
        assert!(fill.at + count <= fill.buf.len());
        self.filling = false;
        match &mut self.payload {
            Some(payload) if payload.filled < payload.len => {
                payload.filled += count;
                payload.buf = Some(fill.buf);
            }
            _ => {
                self.end += count;
                self.stream = Some(fill.buf);
            }
        }
    }

    /// True while a place is out being filled.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.filling
    }

    /// The next `count` bytes, if they have arrived. `count` must be at most [`Inbox::PEEK_MAX`].
    #[must_use]
    pub fn peek(&self, count: usize) -> Option<&[u8]> {
        debug_assert!(count <= Self::PEEK_MAX);
        let available = self.available();
        (available.len() >= count).then(|| &available[..count])
    }

    /// The longest header that [`Inbox::peek`] can wait for.
    pub const PEEK_MAX: usize = STREAM_SIZE / 2;

    /// All bytes of the stream that have arrived and are not consumed.
    #[must_use]
    pub fn available(&self) -> &[u8] {
        match &self.stream {
            Some(stream) => &stream[self.start..self.end],
            None => &[],
        }
    }

    /// Drops the next `count` bytes, which have been peeked at.
    ///
    /// # Panics
    /// When fewer have arrived.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start);
        self.start += count;
    }

    /// Takes the next `len` bytes as a page-aligned payload, or `None` until they have all arrived: ask again, with
    /// the same `len`, after the next [`Inbox::filled`]. In between nothing else may be taken from the inbox.
    ///
    /// # Panics
    /// When asked again with another length.
    pub fn take_payload(&mut self, len: usize) -> Option<Bytes> {
        if len == 0 {
            return Some(Bytes::new());
        }
        // While a receive is under way, what it will bring belongs to the place that it was given.
        if self.filling {
            return None;
        }
        if let Some(payload) = &self.payload {
            assert_eq!(payload.len, len, "one payload at a time");
            if payload.filled < payload.len {
                return None;
            }
            return self.payload.take()?.buf.map(PageBuf::freeze);
        }
        let available = self.available();
        if available.len() >= len {
            let mut buf = PageBuf::new(len);
            buf.copy_from_slice(&available[..len]);
            self.consume(len);
            return Some(buf.freeze());
        }
        if len - available.len() >= IN_PLACE_MIN || len > Self::PEEK_MAX {
            let mut buf = PageBuf::new(len);
            let filled = available.len();
            buf[..filled].copy_from_slice(available);
            self.consume(filled);
            self.payload = Some(Payload { buf: Some(buf), len, filled });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `stream` in pieces of the given sizes.
    fn feed(inbox: &mut Inbox, stream: &mut &[u8], piece: usize) {
        let mut fill = inbox.take_fill();
        let count = piece.min(stream.len()).min(fill.buf.len() - fill.at);
        fill.buf[fill.at..fill.at + count].copy_from_slice(&stream[..count]);
        *stream = &stream[count..];
        inbox.filled(fill, count);
    }

    proptest! {
        /// Whatever the cutting of the stream, headers and payloads come out as they went in, page-aligned.
        #[test]
        fn any_cut_gives_the_same_messages(
            lens in proptest::collection::vec(prop_oneof![0usize..200, 4096usize..4097, 30_000usize..400_000], 1..12),
            pieces in proptest::collection::vec(1usize..100_000, 1..20),
        ) {
            let mut bytes = Vec::new();
            for (i, len) in lens.iter().enumerate() {
                bytes.extend_from_slice(&(*len as u32).to_le_bytes());
                bytes.extend((0..*len).map(|b| (b * 7 + i) as u8));
            }
            let mut stream = &bytes[..];
            let mut inbox = Inbox::new();
            let mut piece = pieces.iter().cycle();
            let mut header: Option<usize> = None;
            let mut got = 0;
            while got < lens.len() {
                if header.is_none() && let Some(h) = inbox.peek(4) {
                    header = Some(u32::from_le_bytes(h.try_into().unwrap()) as usize);
                    inbox.consume(4);
                }
                if let Some(len) = header && let Some(payload) = inbox.take_payload(len) {
                    prop_assert_eq!(len, lens[got]);
                    prop_assert!(len == 0 || (payload.as_ptr() as usize).is_multiple_of(4096));
                    prop_assert!(payload.iter().enumerate().all(|(b, v)| *v == (b * 7 + got) as u8));
                    got += 1;
                    header = None;
                    continue;
                }
                feed(&mut inbox, &mut stream, *piece.next().unwrap());
            }
            prop_assert!(stream.is_empty());
        }
    }
}
