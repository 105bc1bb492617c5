//! Cuts a volume's byte range into the parts that one copy can serve.

use crate::ciphers::Cipher;
use crate::request::Op;
use crate::view::VolumeView;
use azekura_base::{BLOCK_SIZE, Body, CHUNK_SIZE, ChunkIndex, is_zero};
use azekura_wire::Expected;
use bytes::Bytes;

/// A byte range inside one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) chunk: ChunkIndex,
    /// First byte, counted from the chunk's start.
    pub(crate) offset: u32,
    /// Bytes.
    pub(crate) len: u32,
}

/// Cuts `len` bytes from `offset` of a volume at chunk borders.
pub(crate) fn chunks(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (chunk, offset) = VolumeView::locate(at);
        let len = (CHUNK_SIZE as u64 - u64::from(offset)).min(end - at) as u32;
        at += u64::from(len);
        Some(Part { chunk, offset, len })
    })
}

/// What is to be written to `part`: its bytes as copies get them and the checksums of that, or zeros where it is whole
/// blocks of zeros, so that zeros take no space.
pub(crate) fn data_body(part: Part, bytes: Bytes, cipher: &Cipher) -> Body {
    let aligned = (part.offset as usize).is_multiple_of(BLOCK_SIZE) && (part.len as usize).is_multiple_of(BLOCK_SIZE);
    if aligned && is_zero(&bytes) {
        return Body::Zero;
    }
    encrypted(part, bytes, cipher)
}

/// What `part` has to hold, as its copies hold it.
pub(crate) fn expected(part: Part, bytes: &Bytes, cipher: &Cipher) -> Expected {
    match cipher {
        Cipher::Plain => Expected::new(bytes.clone(), 0),
        Cipher::Encrypted(_) => {
            let expected = Expected::new(cipher.encrypt(part, bytes.clone()), Expected::zeros_of(bytes));
            expected.under(cipher.writing())
        }
    }
}

/// Whether it can be compared as one, if it is to be compared: one primary looks at one block.
pub(crate) fn may_compare(op: &Op) -> bool {
    let Op::CompareAndWrite { offset, expected, bytes } = op else { return true };
    let in_block = offset % BLOCK_SIZE as u64 + bytes.len() as u64;
    !bytes.is_empty() && expected.len() == bytes.len() && in_block <= BLOCK_SIZE as u64
}

/// Bytes as copies get them, and the checksums of these.
pub(crate) fn encrypted(part: Part, bytes: Bytes, cipher: &Cipher) -> Body {
    let (bytes, checksums) = cipher.seal(part, bytes);
    Body::Data { bytes, checksums }
}

/// Cuts zeros in one chunk at block borders: (part, whole blocks?).
pub(crate) fn zeros(part: Part) -> impl Iterator<Item = (Part, bool)> {
    let block = BLOCK_SIZE as u32;
    let end = part.offset + part.len;
    let body_start = part.offset.next_multiple_of(block).min(end);
    let body_end = (end / block * block).max(body_start);
    let piece = move |from: u32, to: u32| Part { chunk: part.chunk, offset: from, len: to - from };
    [(part.offset, body_start, false), (body_start, body_end, true), (body_end, end, false)]
        .into_iter()
        .filter(|(from, to, _)| from < to)
        .map(move |(from, to, whole)| (piece(from, to), whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::checksum;

    #[test]
    fn ranges_are_cut_at_chunk_borders() {
        let parts: Vec<_> = chunks(CHUNK_SIZE as u64 - 10, 20 + CHUNK_SIZE as u64).collect();
        let part = |chunk, offset, len| Part { chunk: ChunkIndex(chunk), offset, len };
        assert_eq!(parts, [part(0, CHUNK_SIZE as u32 - 10, 10), part(1, 0, CHUNK_SIZE as u32), part(2, 0, 10)]);
        assert_eq!(chunks(5, 0).count(), 0);
    }

    #[test]
    fn zeros_are_cut_at_block_borders() {
        let part = |offset, len| Part { chunk: ChunkIndex(3), offset, len };
        let cut = |offset, len| zeros(part(offset, len)).collect::<Vec<_>>();
        assert_eq!(cut(0, 8192), [(part(0, 8192), true)]);
        assert_eq!(cut(10, 20), [(part(10, 20), false)]);
        assert_eq!(cut(4000, 200), [(part(4000, 96), false), (part(4096, 104), false)]);
        assert_eq!(cut(4000, 8292), [(part(4000, 96), false), (part(4096, 8192), true), (part(12288, 4), false)]);
    }

    #[test]
    fn whole_blocks_of_zeros_take_no_space() {
        let part = |offset, len| Part { chunk: ChunkIndex(0), offset, len };
        assert_eq!(data_body(part(4096, 4096), Bytes::from(vec![0; 4096]), &Cipher::Plain), Body::Zero);
        let body = data_body(part(4095, 4098), Bytes::from(vec![0; 4098]), &Cipher::Plain);
        let Body::Data { checksums, .. } = body else { panic!("a partial block is data") };
        assert_eq!(checksums.as_slice(), [checksum(&[0]), checksum(&[0; 4096]), checksum(&[0])]);
    }
}
