//! The message of one send: pieces of an outbox and the vectors that point at them.
#![allow(unsafe_code)]

use bytes::Bytes;
use std::{io, os::fd::RawFd, ptr::null_mut};

/// What one send transmits. It stays in one place in memory (its owner boxes it), for the kernel reads the header.
pub(crate) struct Sending {
    pieces: Vec<Bytes>,
    vectors: Vec<libc::iovec>,
    header: libc::msghdr,
    /// The first vector that is not yet sent.
    next: usize,
}

/// The memory that is left to transmit.
pub(crate) enum Remaining {
    /// One stretch: its start and length.
    One(*const u8, usize),
    /// Several, described by a message header inside the `Sending`.
    Many(*const libc::msghdr),
}

impl Sending {
    pub(crate) fn new() -> Box<Sending> {
        // SAFETY: `msghdr` is a C struct of integers and pointers, for which all zeros is a value.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Sending { pieces: Vec::new(), vectors: Vec::new(), header, next: 0 })
    }

    /// Where the pieces of the next send go; the last ones have been dropped.
    pub(crate) fn refill(&mut self) -> &mut Vec<Bytes> {
        self.clear();
        &mut self.pieces
    }

    /// Drops the pieces.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.vectors.clear();
        self.next = 0;
    }

    /// Points the vectors at the pieces.
    pub(crate) fn seal(&mut self) {
        self.vectors.extend(
            self.pieces
                .iter()
                .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }),
        );
    }

    /// What is left to send; the pointers hold until the `Sending` is changed or dropped.
    pub(crate) fn remaining(&mut self) -> Remaining {
        match &mut self.vectors[self.next..] {
            [one] => Remaining::One(one.iov_base.cast(), one.iov_len),
            many => {
                self.header.msg_name = null_mut();
                self.header.msg_iov = many.as_mut_ptr();
                self.header.msg_iovlen = many.len() as _;
                Remaining::Many(&raw const self.header)
            }
        }
    }

    /// Bytes that are left to send.
    pub(crate) fn bytes_left(&self) -> usize {
        self.vectors[self.next..].iter().map(|vector| vector.iov_len).sum()
    }

    /// Sends what `socket` takes without waiting. True when that was all.
    pub(crate) fn send_now(&mut self, socket: RawFd) -> io::Result<bool> {
        const FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let sent = match self.remaining() {
            // SAFETY: start and length are those of a piece that `self` holds.
            Remaining::One(start, len) => unsafe { libc::send(socket, start.cast(), len, FLAGS) },
            // SAFETY: the header is in `self`, and its vectors point at pieces that `self` holds.
            Remaining::Many(header) => unsafe { libc::sendmsg(socket, header, FLAGS) },
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(self.advance(sent))
    }

    /// Notes that `count` more bytes have been sent. True when that was all.
    pub(crate) fn advance(&mut self, count: usize) -> bool {
        self.next += advance_vectors(&mut self.vectors[self.next..], count);
        self.next == self.vectors.len()
    }
}

/// Moves the start of `vectors` by `count` bytes; returns how many of them are used up.
pub(crate) fn advance_vectors(vectors: &mut [libc::iovec], mut count: usize) -> usize {
    for (used, vector) in vectors.iter_mut().enumerate() {
        if count < vector.iov_len {
            vector.iov_base = vector.iov_base.wrapping_byte_add(count);
            vector.iov_len -= count;
            return used;
        }
        count -= vector.iov_len;
    }
    assert_eq!(count, 0, "the kernel took more than it was given");
    vectors.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_send_goes_on_where_it_stopped() {
        let mut sending = Sending::new();
        let pieces: Vec<Bytes> = [3usize, 5, 7].iter().map(|len| Bytes::from(vec![1u8; *len])).collect();
        sending.refill().extend(pieces.iter().cloned());
        sending.seal();
        assert!(matches!(sending.remaining(), Remaining::Many(_)));
        assert!(!sending.advance(4));
        assert_eq!(sending.bytes_left(), 11);
        assert_eq!(sending.vectors[1].iov_base.cast_const().cast(), pieces[1][1..].as_ptr());
        assert!(!sending.advance(4));
        assert!(matches!(sending.remaining(), Remaining::One(start, 7) if start == pieces[2].as_ptr()));
        assert!(sending.advance(7));
    }
}
