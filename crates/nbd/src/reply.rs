//! Replies of the transmission phase: how they are encoded.

use crate::error::ErrorCode;
use crate::numbers::{
    BASE_ALLOCATION_ID, REPLY_FLAG_DONE, REPLY_TYPE_BLOCK_STATUS, REPLY_TYPE_ERROR, REPLY_TYPE_NONE,
    REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_OFFSET_HOLE, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRUCTURED_REPLY_MAGIC,
};
use crate::request::RequestToken;
use crate::text::cut;
use crate::{EXTENTS_MAX, STRING_MAX};
use azekura_base::Outbox;
use bytes::Bytes;

/// A part of what was read. The parts of a reply follow each other without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPiece {
    /// These bytes.
    Data(Bytes),
    /// This many zero bytes.
    Hole(u32),
}

impl ReadPiece {
    /// Bytes of the export that the piece stands for.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            ReadPiece::Data(data) => data.len(),
            ReadPiece::Hole(length) => *length as usize,
        }
    }

    /// True when the piece stands for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A run of bytes in the same state (*`base:allocation` metadata context*). Extents of a reply follow each other
/// without gaps, from the request's offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// No space is allocated for it.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
}

impl Extent {
    fn flags(&self) -> u32 {
        let hole = if self.hole { STATE_HOLE } else { 0 };
        hole | if self.zero { STATE_ZERO } else { 0 }
    }
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

fn put_zeros(out: &mut Outbox, mut count: usize) {
    while count > 0 {
        let part = count.min(ZEROS.len());
        out.put_payload(Bytes::from_static(&ZEROS[..part]));
        count -= part;
    }
}

fn put_piece(out: &mut Outbox, piece: ReadPiece) {
    match piece {
        ReadPiece::Data(data) => out.put_payload(data),
        ReadPiece::Hole(length) => put_zeros(out, length as usize),
    }
}

/// *Simple reply message*, without its data.
pub(crate) fn put_simple(out: &mut Outbox, cookie: u64, error: u32) {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    out.put(&bytes);
}

/// *Structured reply chunk message*: header and the fixed part of the payload in one go; `more` bytes will follow.
fn put_chunk<const N: usize>(out: &mut Outbox, done: bool, kind: u16, cookie: u64, fixed: [u8; N], more: u32) {
    let flags = if done { REPLY_FLAG_DONE } else { 0 };
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&(N as u32 + more).to_be_bytes());
    out.put(&bytes);
    out.put(&fixed);
}

/// The successful reply to a READ of at least one byte, by simple reply.
pub(crate) fn put_read_simple(out: &mut Outbox, token: &RequestToken, pieces: &mut Vec<ReadPiece>) {
    put_simple(out, token.cookie, 0);
    pieces.drain(..).for_each(|piece| put_piece(out, piece));
}

/// The successful reply to a READ by structured reply: a chunk for each run of data or of zeroes, or one chunk with
/// everything if `whole` (*Request types*, `NBD_CMD_READ`).
pub(crate) fn put_read_structured(out: &mut Outbox, token: &RequestToken, whole: bool, pieces: &mut Vec<ReadPiece>) {
    let is_hole = |piece: &ReadPiece| matches!(piece, ReadPiece::Hole(_));
    pieces.retain(|piece| !piece.is_empty());
    let mixed = pieces.iter().any(is_hole) && !pieces.iter().all(is_hole);
    let (mut offset, end) = (token.offset, token.offset + u64::from(token.length));
    while let Some(first) = pieces.first() {
        let hole = is_hole(first) && !(whole && mixed);
        let run = if whole { pieces.len() } else { pieces.iter().take_while(|piece| is_hole(piece) == hole).count() };
        let length: usize = pieces[..run].iter().map(ReadPiece::len).sum();
        let length = length as u32; // No longer than the request.
        let done = offset + u64::from(length) == end;
        if hole {
            let [a, b, c, d, e, f, g, h] = offset.to_be_bytes();
            let [i, j, k, l] = length.to_be_bytes();
            let fixed = [a, b, c, d, e, f, g, h, i, j, k, l];
            put_chunk(out, done, REPLY_TYPE_OFFSET_HOLE, token.cookie, fixed, 0);
            pieces.drain(..run);
        } else {
            put_chunk(out, done, REPLY_TYPE_OFFSET_DATA, token.cookie, offset.to_be_bytes(), length);
            pieces.drain(..run).for_each(|piece| put_piece(out, piece));
        }
        offset += u64::from(length);
    }
}

/// A structured reply that says no more than that all is well.
pub(crate) fn put_none(out: &mut Outbox, cookie: u64) {
    put_chunk(out, true, REPLY_TYPE_NONE, cookie, [], 0);
}

/// A structured reply with an error and a sentence for people.
pub(crate) fn put_error(out: &mut Outbox, cookie: u64, code: ErrorCode, message: &str) {
    let message = cut(message, STRING_MAX);
    let [a, b, c, d] = (code as u32).to_be_bytes();
    let [e, f] = (message.len() as u16).to_be_bytes();
    put_chunk(out, true, REPLY_TYPE_ERROR, cookie, [a, b, c, d, e, f], message.len() as u32);
    out.put(message.as_bytes());
}

/// The successful reply to a `BLOCK_STATUS`: neighbours in the same state become one extent, and what reaches behind
/// the request is cut off. Where nothing is known, "allocated, unknown contents" is always right to say (*Request
/// types*, `NBD_CMD_BLOCK_STATUS`).
pub(crate) fn put_block_status(out: &mut Outbox, token: &RequestToken, one: bool, extents: &[Extent]) {
    let extents_max = if one { 1 } else { EXTENTS_MAX };
    let mut descriptors: Vec<(u32, u32)> = Vec::with_capacity(extents.len().min(extents_max));
    let mut left = token.length;
    for extent in extents {
        let length = extent.length.min(u64::from(left)) as u32;
        if length == 0 {
            continue;
        }
        let full = descriptors.len() == extents_max;
        match descriptors.last_mut() {
            Some((last, flags)) if *flags == extent.flags() => *last += length,
            _ if full => break,
            _ => descriptors.push((length, extent.flags())),
        }
        left -= length;
    }
    if descriptors.is_empty() {
        descriptors.push((token.length, 0));
    }
    let more = descriptors.len() as u32 * 8;
    put_chunk(out, true, REPLY_TYPE_BLOCK_STATUS, token.cookie, BASE_ALLOCATION_ID.to_be_bytes(), more);
    for (length, flags) in descriptors {
        out.put(&length.to_be_bytes());
        out.put(&flags.to_be_bytes());
    }
}
