//! Bytes on their way in: a stream cut into small headers and large payloads, with each payload page-aligned.
//!
//! Whoever owns the socket asks [`Inbox::take_fill`] for a place to receive into, and returns it with
//! [`Inbox::filled`]. The protocol looks at headers with [`Inbox::peek`], drops them with [`Inbox::consume`], and
//! takes payloads with [`Inbox::take_payload`]. A small payload is copied once out of the stream buffer; a large one
//! is received straight into its own pages.

use crate::PageBuf;
use bytes::Bytes;

/// Bytes of the stream buffer of a connection on which much arrives: one receive takes at most this many.
const STREAM_SIZE: usize = 256 << 10;
/// Bytes of the stream buffer of a connection on which little arrives, which most connections are most of the time.
const STREAM_SIZE_MIN: usize = 4 << 10;
/// A stream buffer that is too small, or larger than it need be, is replaced by one so many times as large or small.
const STREAM_STEP: usize = 8;
/// Receives in a row for which a smaller stream buffer would have done, before there is one.
const SMALL_FILLS_MAX: u32 = 32;
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
    /// Bytes that the next stream buffer has.
    stream_size: usize,
    /// Bytes that it is to grow to at the most, but for a header that is longer.
    stream_max: usize,
    /// Bytes that have come in all.
    received: u64,
    /// Receives since one that the next smaller stream buffer would have been too small for.
    small_fills: u32,
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
        Inbox {
            stream: None,
            start: 0,
            end: 0,
            payload: None,
            filling: false,
            stream_size: STREAM_SIZE_MIN,
            stream_max: STREAM_SIZE,
            received: 0,
            small_fills: 0,
        }
    }

    /// Bytes that have come since it was made.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// Where there are very many connections: the stream buffer does not grow above `bytes`, however much arrives.
    pub fn limit_stream(&mut self, bytes: usize) {
        self.stream_max = bytes.clamp(STREAM_SIZE_MIN, STREAM_SIZE);
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
        let mut buf = self.stream.take().unwrap_or_else(|| PageBuf::new(self.stream_size));
        let waiting = self.end - self.start;
        if waiting == buf.len() {
            // A header that is longer than the buffer.
            let most = if buf.len() < self.stream_max { self.stream_max } else { STREAM_SIZE };
            self.stream_size = self.stream_size.max(buf.len() * STREAM_STEP).min(most);
        }
        let resize = buf.len() < self.stream_size || buf.len() > self.stream_size && waiting == 0;
        if resize {
            let mut other = PageBuf::new(self.stream_size);
            other[..waiting].copy_from_slice(&buf[self.start..self.end]);
            (buf, self.start, self.end) = (other, 0, waiting);
        } else if waiting == 0 {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && buf.len() - self.end < buf.len() / 2 {
            buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, waiting);
        }
        assert!(self.end < buf.len(), "a header longer than the stream buffer was waited for");
        Fill { buf, at: self.end }
    }

    /// `count` bytes have come into a stream buffer at `at`: the next one may have to be larger, or can be smaller.
    fn note_fill(&mut self, buf_len: usize, at: usize, count: usize) {
        let smaller = buf_len / STREAM_STEP;
        if at + count == buf_len {
            self.stream_size = (buf_len * STREAM_STEP).min(self.stream_max).max(buf_len);
            self.small_fills = 0;
        } else if smaller < STREAM_SIZE_MIN || count >= smaller {
            self.small_fills = 0;
        } else {
            self.small_fills += 1;
            if self.small_fills >= SMALL_FILLS_MAX {
                (self.stream_size, self.small_fills) = (smaller, 0);
            }
        }
    }

    /// Bytes of memory that it holds, or has given out to be filled.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let out = if self.filling { self.stream_size } else { 0 };
        self.stream.as_ref().map_or(out, |stream| stream.len()) + self.payload.as_ref().map_or(0, |payload| payload.len)
    }

    /// Gives `fill` back with `count` more bytes in it.
    ///
    /// # Panics
    /// When it was not taken, or `count` is more than had room.
    pub fn filled(&mut self, fill: Fill, count: usize) {
        assert!(self.filling, "gave back what was not taken");
        assert!(fill.at + count <= fill.buf.len());
        self.filling = false;
        self.received += count as u64;
        match &mut self.payload {
            Some(payload) if payload.filled < payload.len => {
                payload.filled += count;
                payload.buf = Some(fill.buf);
            }
            _ => {
                self.end += count;
                self.note_fill(fill.buf.len(), fill.at, count);
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

    /// The same, to be decrypted where they are.
    #[must_use]
    pub fn available_mut(&mut self) -> &mut [u8] {
        match &mut self.stream {
            Some(stream) => &mut stream[self.start..self.end],
            None => &mut [],
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

    fn feed_in_small_pieces(inbox: &mut Inbox, count: usize) {
        for _ in 0..count {
            feed(inbox, &mut &[0; 28][..], 28);
            inbox.consume(28);
        }
    }

    #[test]
    fn the_stream_buffer_grows_under_load_and_shrinks_after_it() {
        let mut inbox = Inbox::new();
        feed_in_small_pieces(&mut inbox, 200);
        assert_eq!(inbox.memory_bytes(), STREAM_SIZE_MIN);
        for _ in 0..3 {
            feed(&mut inbox, &mut &vec![0; STREAM_SIZE][..], STREAM_SIZE);
            inbox.consume(inbox.available().len());
        }
        assert_eq!(inbox.memory_bytes(), STREAM_SIZE);
        feed_in_small_pieces(&mut inbox, 2 * SMALL_FILLS_MAX as usize + 2);
        assert_eq!(inbox.memory_bytes(), STREAM_SIZE_MIN);
    }

    #[test]
    fn the_stream_buffer_keeps_to_its_limit() {
        let mut inbox = Inbox::new();
        inbox.limit_stream(10_000);
        for _ in 0..9 {
            feed(&mut inbox, &mut &vec![0; STREAM_SIZE][..], STREAM_SIZE);
            inbox.consume(inbox.available().len());
        }
        assert_eq!(inbox.memory_bytes(), 10_000);
    }

    #[test]
    fn a_header_longer_than_the_first_buffer_is_waited_for() {
        let mut inbox = Inbox::new();
        let header: Vec<u8> = (0..Inbox::PEEK_MAX).map(|at| at as u8).collect();
        let mut stream = &header[..];
        while inbox.peek(Inbox::PEEK_MAX).is_none() {
            feed(&mut inbox, &mut stream, 1000);
        }
        assert_eq!(inbox.available(), header);
    }

    proptest! {
        /// Whatever the cutting of the stream, headers and payloads come out as they went in, page-aligned.
        #[test]
        fn any_cut_gives_the_same_messages(
            lens in proptest::collection::vec(prop_oneof![0usize..200, 4096usize..4097, 30_000usize..400_000], 1..40),
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
