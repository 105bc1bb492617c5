//! Frames: which kind of frame each message is, and what travels behind its body.

use crate::codec::Layout;
use crate::message::{Message, Prepare, Repair, WriteRequest};
use crate::{HEADER_SIZE, NOTE_SIZE_MAX};
use azekura_base::{
    BLOCK_SIZE, BlockRange, Body, CHUNK_BLOCKS, CHUNK_SIZE, Checksum, Checksums, Extent, checksum_append,
};
use bytes::Bytes;

/// The kinds of frames, as on the wire. Where a kind has two messages, they are told apart by their bodies.
macro_rules! kinds {
    ($($kind:literal $($message:ident)|+,)+) => {
        /// Puts the body of `message` behind what is there; answers its kind.
        pub(crate) fn put_body(message: &Message, out: &mut Vec<u8>) -> u8 {
            match message {
                $($(Message::$message(m) => {
                    m.put(out);
                    $kind
                })+)+
            }
        }

        /// The message of a kind whose body is all of `body`.
        pub(crate) fn get_body(kind: u8, body: &[u8]) -> Option<Message> {
            match kind {
                $($kind => {
                    $(if let Some(message) = whole(body) {
                        return Some(Message::$message(message));
                    })+
                    None
                })+
                _ => None,
            }
        }

        /// There is such a kind.
        pub(crate) fn is_known(kind: u8) -> bool {
            [$($kind),+].contains(&kind)
        }
    };
}

kinds! {
    1 Hello,
    2 Welcome,
    3 Write,
    4 WriteDone,
    5 Read,
    6 ReadDone,
    7 Status,
    8 StatusDone,
    9 Prepare | PrepareHeld,
    10 PrepareOk,
    11 NewEpoch,
    12 NewEpochOk,
    13 Heartbeat,
    14 HeartbeatOk,
    15 Learn,
    16 Compare,
    17 CompareOk,
    18 Repair,
    19 RepairOk,
    20 LearnOk,
    21 Damaged,
    22 Fetch,
    23 Fetched,
    24 Leaving,
    25 HandOver,
    26 Fence,
    27 FenceDone,
    28 Freeze,
    29 Layers,
}

#[inline]
fn whole<T: Layout>(mut body: &[u8]) -> Option<T> {
    let value = T::get(&mut body)?;
    body.is_empty().then_some(value)
}

/// The CRC-32C of a frame's header (with its checksum field as zeros) and body.
pub(crate) fn frame_checksum(header_and_body: &[u8]) -> Checksum {
    let sum = checksum_append(Checksum(0), &header_and_body[..16]);
    let sum = checksum_append(sum, &[0; 8]);
    checksum_append(sum, &header_and_body[HEADER_SIZE..])
}

/// Leases depend on it: it does not wait behind data. Every message may be overtaken by it, and it by every message
/// (docs/decisions/0024).
#[must_use]
pub fn is_urgent(message: &Message) -> bool {
    matches!(message, Message::Heartbeat(_) | Message::HeartbeatOk(_))
}

/// Bytes that travel behind the body.
pub(crate) fn payload_bytes(message: &Message) -> usize {
    payloads(message).map(Bytes::len).sum()
}

/// What travels behind the body, in order.
pub(crate) fn payloads(message: &Message) -> impl Iterator<Item = &Bytes> {
    let expected = match message {
        Message::Write(WriteRequest { expected: Some(expected), .. }) => Some(&expected.bytes),
        _ => None,
    };
    let (one, many): (Option<&Bytes>, &[Extent]) = match message {
        Message::Write(WriteRequest { body: Body::Data { bytes, .. }, .. })
        | Message::Prepare(Prepare { body: Body::Data { bytes, .. }, .. })
        | Message::Repair(Repair { body: Body::Data { bytes, .. }, .. }) => (Some(bytes), &[]),
        Message::Learn(learn) => (Some(&learn.note), &[]),
        Message::ReadDone(done) => (None, done.result.as_deref().unwrap_or(&[])),
        Message::Fetched(fetched) => (None, fetched.extents.as_deref().unwrap_or(&[])),
        _ => (None, &[]),
    };
    let extents = many.iter().filter_map(|extent| match extent {
        Extent::Data { bytes, .. } => Some(bytes),
        Extent::Zero { .. } => None,
    });
    expected.into_iter().chain(one).chain(extents)
}

/// Puts what came behind the body into its places.
pub(crate) fn attach(message: &mut Message, mut payload: Bytes) {
    match message {
        Message::Write(WriteRequest { expected: Some(expected), body: Body::Data { bytes, .. }, len, .. }) => {
            expected.bytes = payload.split_to(*len as usize);
            *bytes = payload;
        }
        Message::Write(WriteRequest { body: Body::Data { bytes, .. }, .. })
        | Message::Prepare(Prepare { body: Body::Data { bytes, .. }, .. })
        | Message::Repair(Repair { body: Body::Data { bytes, .. }, .. }) => *bytes = payload,
        Message::Learn(learn) => learn.note = payload,
        Message::ReadDone(done) => fill(done.result.as_deref_mut().unwrap_or(&mut []), &payload),
        Message::Fetched(fetched) => fill(fetched.extents.as_deref_mut().unwrap_or(&mut []), &payload),
        _ => {}
    }
}

/// Gives each extent its part of the payload.
fn fill(extents: &mut [Extent], payload: &Bytes) {
    let mut at = 0;
    for extent in extents {
        if let Extent::Data { bytes, checksums } = extent {
            let len = checksums.len() * BLOCK_SIZE;
            *bytes = payload.slice(at..at + len);
            at += len;
        }
    }
}

/// The length of what must travel behind `message`, or `None` when the message contradicts itself. `announced` is what
/// the header says, which the checksum covers.
pub(crate) fn payload_size(message: &Message, announced: usize) -> Option<usize> {
    match message {
        Message::Learn(_) => (announced <= NOTE_SIZE_MAX).then_some(announced),
        Message::Write(m) => {
            let end = (m.offset as usize).checked_add(m.len as usize)?;
            if m.len == 0 || end > CHUNK_SIZE {
                return None;
            }
            match (&m.body, &m.expected) {
                (Body::Zero, None) => Some(0),
                (Body::Data { checksums, .. }, expected) => {
                    let range = BlockRange::of_bytes(m.layer, m.chunk, m.offset, m.len);
                    let fits = is_one_each(checksums, &range) && (expected.is_none() || range.count == 1);
                    let len = m.len as usize;
                    fits.then_some(if expected.is_some() { 2 * len } else { len })
                }
                _ => None,
            }
        }
        Message::Read(m) => m.range.is_valid().then_some(0),
        Message::Prepare(m) if matches!(m.body, Body::Lost { .. }) => None,
        Message::Prepare(m) => body_size(&m.header.range, &m.body),
        Message::PrepareHeld(m) => is_one_each(&m.checksums, &m.header.range).then_some(0),
        Message::Repair(m) => body_size(&m.range, &m.body),
        Message::Damaged(m) => m.range.is_valid().then_some(0),
        Message::Fetch(m) => m.range.is_valid().then_some(0),
        Message::Fetched(m) => extents_size(m.extents.as_deref().unwrap_or(&[])),
        Message::ReadDone(m) => extents_size(m.result.as_deref().unwrap_or(&[])),
        Message::StatusDone(m) => {
            let blocks: usize = m.result.as_deref().unwrap_or(&[]).iter().map(|run| run.count as usize).sum();
            (m.result.is_err() || blocks == CHUNK_BLOCKS).then_some(0)
        }
        // A layer is always younger than the one that it lies on: there are no loops.
        Message::Layers(m) => m.parents.iter().all(|(layer, parent)| layer > parent).then_some(0),
        _ => Some(0),
    }
}

fn is_one_each(checksums: &Checksums, range: &BlockRange) -> bool {
    range.is_valid() && checksums.len() == usize::from(range.count)
}

/// The payload of whole blocks.
fn body_size(range: &BlockRange, body: &Body) -> Option<usize> {
    let (fits, payload) = match body {
        Body::Zero => (range.is_valid(), 0),
        Body::Data { checksums, .. } => (is_one_each(checksums, range), usize::from(range.count) * BLOCK_SIZE),
        Body::Lost { checksums } => (is_one_each(checksums, range), 0),
    };
    fits.then_some(payload)
}

fn extents_size(extents: &[Extent]) -> Option<usize> {
    let blocks: usize = extents.iter().map(|extent| usize::from(extent.count())).sum();
    let payload = |extent: &Extent| match extent {
        Extent::Data { checksums, .. } => checksums.len() * BLOCK_SIZE,
        Extent::Zero { .. } => 0,
    };
    (blocks <= CHUNK_BLOCKS).then(|| extents.iter().map(payload).sum())
}
