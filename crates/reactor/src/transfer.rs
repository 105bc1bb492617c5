//! The memory of a device read or write, and how far it has come.

use crate::{Token, WRITE_VECTORS_MAX, sending::advance_vectors};
use azekura_base::{BLOCK_SIZE, PageBuf};
use bytes::Bytes;
use std::io;

/// Times that one operation is tried again after the kernel asked for it, before that becomes its result.
const RETRIES_MAX: u32 = 64;

/// Where a finished submission leaves its operation.
pub(crate) enum Step {
    /// Not at its end: submit what is left.
    Again,
    /// At its end.
    Done(io::Result<()>),
}

/// A read into pages of its own.
pub(crate) struct DeviceRead {
    pub(crate) token: Token,
    offset: u64,
    buf: PageBuf,
    done: usize,
    retries: u32,
}

impl DeviceRead {
    pub(crate) fn new(token: Token, offset: u64, len: usize) -> DeviceRead {
        DeviceRead { token, offset, buf: PageBuf::new(len), done: 0, retries: 0 }
    }

    /// What is left to read: offset in the device, memory, length.
    pub(crate) fn remaining(&mut self) -> (u64, *mut u8, u32) {
        let rest = &mut self.buf[self.done..];
        (self.offset + self.done as u64, rest.as_mut_ptr(), rest.len() as u32)
    }

    pub(crate) fn step(&mut self, result: io::Result<u32>) -> Step {
        match result {
            Ok(0) => Step::Done(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the device ends before offset {}", self.offset + self.buf.len() as u64),
            ))),
            Ok(count) => {
                self.done += count as usize;
                assert!(self.done <= self.buf.len(), "the kernel read more than it was asked for");
                if self.done == self.buf.len() { Step::Done(Ok(())) } else { Step::Again }
            }
            Err(error) => retry(error, &mut self.retries),
        }
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.buf.freeze()
    }
}

/// A write of whole blocks from pieces that others may hold too.
pub(crate) struct DeviceWrite {
    pub(crate) token: Token,
    pub(crate) durable: bool,
    offset: u64,
    vectors: Vec<libc::iovec>,
    next: usize,
    retries: u32,
    /// Keeps the memory under `vectors` alive.
    _pieces: Vec<Bytes>,
}

impl DeviceWrite {
    /// A write of `pieces`, whose lengths must add up to whole blocks. Pieces that don't start on a page or aren't
    /// whole blocks are copied into pages first.
    pub(crate) fn new(token: Token, offset: u64, pieces: Vec<Bytes>, durable: bool) -> DeviceWrite {
        let pieces = if pieces.iter().all(is_aligned) { pieces } else { align(pieces) };
        let mut vectors: Vec<libc::iovec> = Vec::with_capacity(pieces.len());
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let start: *mut libc::c_void = piece.as_ptr().cast_mut().cast();
            match vectors.last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == start => last.iov_len += piece.len(),
                _ => vectors.push(libc::iovec { iov_base: start, iov_len: piece.len() }),
            }
        }
        DeviceWrite { token, durable, offset, vectors, next: 0, retries: 0, _pieces: pieces }
    }

    /// What is left to write, at most [`WRITE_VECTORS_MAX`] vectors of it: offset in the device and memory.
    pub(crate) fn remaining(&self) -> (u64, &[libc::iovec]) {
        let rest = &self.vectors[self.next..];
        (self.offset, &rest[..rest.len().min(WRITE_VECTORS_MAX)])
    }

    pub(crate) fn step(&mut self, result: io::Result<u32>) -> Step {
        match result {
            Ok(0) => Step::Done(Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("the device takes nothing at offset {}", self.offset),
            ))),
            Ok(count) => {
                self.offset += u64::from(count);
                self.next += advance_vectors(&mut self.vectors[self.next..], count as usize);
                if self.next == self.vectors.len() { Step::Done(Ok(())) } else { Step::Again }
            }
            Err(error) => retry(error, &mut self.retries),
        }
    }
}

fn retry(error: io::Error, retries: &mut u32) -> Step {
    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) && *retries < RETRIES_MAX {
        *retries += 1;
        return Step::Again;
    }
    Step::Done(Err(error))
}

fn is_aligned(piece: &Bytes) -> bool {
    piece.len().is_multiple_of(BLOCK_SIZE) && (piece.as_ptr() as usize).is_multiple_of(BLOCK_SIZE)
}

/// The same bytes in aligned pieces: each run of pieces that begins with an unaligned one and ends on a block boundary
/// is copied, the others stay.
fn align(pieces: Vec<Bytes>) -> Vec<Bytes> {
    let mut aligned = Vec::with_capacity(pieces.len());
    let mut run: Vec<Bytes> = Vec::new();
    let mut run_len = 0;
    for piece in pieces {
        if run.is_empty() && is_aligned(&piece) {
            aligned.push(piece);
            continue;
        }
        run_len += piece.len();
        run.push(piece);
        if run_len.is_multiple_of(BLOCK_SIZE) {
            let mut buf = PageBuf::new(run_len);
            let mut at = 0;
            for piece in run.drain(..) {
                buf[at..at + piece.len()].copy_from_slice(&piece);
                at += piece.len();
            }
            aligned.push(buf.freeze());
            run_len = 0;
        }
    }
    assert!(run.is_empty(), "a write of {run_len} bytes more than whole blocks");
    aligned
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::copy_to_pages;

    fn bytes(write: &DeviceWrite) -> usize {
        write.remaining().1.iter().map(|v| v.iov_len).sum()
    }

    #[test]
    fn adjacent_pieces_become_one_vector() {
        let pages = copy_to_pages(&[1; 5 * BLOCK_SIZE]);
        let other = copy_to_pages(&[2; BLOCK_SIZE]);
        let block = |n: usize| pages.slice(n * BLOCK_SIZE..(n + 1) * BLOCK_SIZE);
        let write = DeviceWrite::new(0.into(), 0, vec![block(0), block(1), block(3), block(4), other, block(2)], false);
        assert_eq!(write.remaining().1.len(), 4);
        assert_eq!(bytes(&write), 6 * BLOCK_SIZE);
    }

    #[test]
    fn unaligned_pieces_are_copied_and_the_others_are_not() {
        let pages = copy_to_pages(&(0..4 * BLOCK_SIZE).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>());
        let cuts = [0, BLOCK_SIZE, BLOCK_SIZE + 100, 2 * BLOCK_SIZE, 3 * BLOCK_SIZE - 1, 4 * BLOCK_SIZE];
        let pieces: Vec<Bytes> = cuts.windows(2).map(|cut| pages.slice(cut[0]..cut[1])).collect();
        let aligned = align(pieces);
        assert!(aligned.iter().all(is_aligned));
        assert_eq!(aligned[0].as_ptr(), pages.as_ptr());
        assert_eq!(aligned.concat(), pages);
    }

    #[test]
    fn short_and_interrupted_writes_go_on() {
        let mut write = DeviceWrite::new(7.into(), 8192, vec![copy_to_pages(&[1; 3 * BLOCK_SIZE])], false);
        assert!(matches!(write.step(Ok(BLOCK_SIZE as u32)), Step::Again));
        assert_eq!((write.remaining().0, bytes(&write)), (8192 + 4096, 2 * BLOCK_SIZE));
        assert!(matches!(write.step(Err(io::ErrorKind::Interrupted.into())), Step::Again));
        assert!(matches!(write.step(Ok(2 * BLOCK_SIZE as u32)), Step::Done(Ok(()))));
        assert!(matches!(write.step(Err(io::Error::from_raw_os_error(5))), Step::Done(Err(_))));
    }

    #[test]
    fn a_read_past_the_end_is_an_error() {
        let mut read = DeviceRead::new(0.into(), 0, 2 * BLOCK_SIZE);
        assert!(matches!(read.step(Ok(BLOCK_SIZE as u32)), Step::Again));
        assert!(matches!(read.step(Ok(0)), Step::Done(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof));
    }
}
