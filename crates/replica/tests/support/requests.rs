//! Requests of a client.

use super::{ATTACHMENT, LAYER, PG, SESSION, VOLUME};
use azekura_base::*;
use azekura_wire::{Expected, WriteRequest};

/// A write of whole blocks, filled with the request's number.
pub fn blocks(request: u64, block: u16, count: u16) -> WriteRequest {
    bytes(request, u32::from(block) * BLOCK_SIZE as u32, u32::from(count) * BLOCK_SIZE as u32)
}

/// A write of bytes, filled with the request's number.
pub fn bytes(request: u64, offset: u32, len: u32) -> WriteRequest {
    let payload = vec![request as u8; len as usize];
    let head = (BLOCK_SIZE - offset as usize % BLOCK_SIZE).min(payload.len());
    let pieces = std::iter::once(&payload[..head]).chain(payload[head..].chunks(BLOCK_SIZE));
    let checksums = pieces.map(checksum).collect();
    let body = Body::Data { bytes: payload.into(), checksums };
    request_of(request, offset, len, body)
}

/// Zeros over whole blocks.
pub fn zeros(request: u64, block: u16, count: u16) -> WriteRequest {
    let block_size = BLOCK_SIZE as u32;
    request_of(request, u32::from(block) * block_size, u32::from(count) * block_size, Body::Zero)
}

fn request_of(request: u64, offset: u32, len: u32, body: Body) -> WriteRequest {
    WriteRequest {
        session: SESSION,
        request: RequestId(request),
        oldest: RequestId(0),
        pg: PG,
        volume: VOLUME,
        attachment: ATTACHMENT,
        layer: LAYER,
        chunk: ChunkIndex(0),
        offset,
        len,
        expected: None,
        body,
    }
}

/// A write of bytes that is carried out where all of them are `expected`.
pub fn compared(request: u64, offset: u32, len: u32, expected: u8) -> WriteRequest {
    let expected = Some(Box::new(Expected::new(vec![expected; len as usize].into(), 0)));
    WriteRequest { expected, ..bytes(request, offset, len) }
}
