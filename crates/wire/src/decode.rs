//! Bytes to messages.

use crate::codec::Reader;
use crate::encode::{HELD, frame_checksum, kind};
use crate::message::{
    Compare, CompareOk, CopyBeat, Damaged, Fence, FenceDone, Fetch, Fetched, Freeze, GroupBeat, HandOver, Heartbeat,
    HeartbeatOk, Hello, Layers, Learn, LearnOk, Leaving, Message, Prepare, PrepareHeld, PrepareOk, ReadDone,
    ReadRequest, Repair, RepairOk, Span, StatusDone, StatusRequest, Sync, SyncOk, WriteDone, WriteRequest,
};
use crate::{
    ATTACHMENTS_MAX, BODY_SIZE_MAX, DIGEST_SPAN_BLOCKS, DIGEST_SPANS, HEADER_SIZE, HEARTBEAT_GROUPS_MAX, LAYERS_MAX,
    MAGIC, NOTE_SIZE_MAX, PAYLOAD_SIZE_MAX,
};
use azekura_base::{
    BLOCK_SIZE, BlockIndex, BlockRange, Body, CHUNK_BLOCKS, CHUNK_SIZE, Checksum, Checksums, ChunkIndex, DeviceId,
    Epoch, Extent, Generation, Inbox, IoStatus, LayerId, NodeId, PgId, RequestId, Run, Sequence, SessionId, VolumeId,
    WriteHeader,
};
use bytes::Bytes;
use std::fmt;

/// What is wrong with received bytes. The connection is of no use afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The first bytes are not those of a frame: somebody speaks another protocol.
    Magic(u32),
    /// A length is over its limit.
    TooLong {
        /// Body length.
        body: u32,
        /// Payload length.
        payload: u32,
    },
    /// Header or body were damaged on the way.
    Checksum,
    /// The kind of message is unknown.
    Kind(u8),
    /// The body does not say what a message of its kind must.
    Malformed(u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Magic(found) => {
                write!(f, "not the Azekura node protocol (first bytes {:02x?})", found.to_le_bytes())
            }
            WireError::TooLong { body, payload } => {
                write!(f, "a frame of {body}+{payload} bytes is over the limit of {BODY_SIZE_MAX}+{PAYLOAD_SIZE_MAX}")
            }
            WireError::Checksum => f.write_str("a frame's checksum is wrong"),
            WireError::Kind(kind) => write!(f, "unknown message kind {kind}; is the peer newer?"),
            WireError::Malformed(kind) => write!(f, "malformed message of kind {kind}"),
        }
    }
}

impl std::error::Error for WireError {}

/// Cuts a connection's bytes into messages.
#[derive(Debug, Default)]
pub struct Decoder {
    /// A message whose payload has not all arrived, and the payload's length.
    partial: Option<(Message, usize)>,
}

impl Decoder {
    /// The next message in `inbox`, or `None` until more bytes have arrived.
    ///
    /// # Errors
    /// When the bytes are not a valid frame; the connection should be closed.
    pub fn next(&mut self, inbox: &mut Inbox) -> Result<Option<Message>, WireError> {
        if let Some((_, payload_len)) = &self.partial {
            let Some(payload) = inbox.take_payload(*payload_len) else { return Ok(None) };
            let Some((message, _)) = self.partial.take() else { return Ok(None) };
            return Ok(Some(attach(message, payload)));
        }
        let Some(header) = inbox.peek(HEADER_SIZE) else { return Ok(None) };
        let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (magic, kind, body_len, payload_len, sum) = (field(0), header[4], field(8), field(12), field(16));
        if magic != MAGIC {
            return Err(WireError::Magic(magic));
        }
        if body_len as usize > BODY_SIZE_MAX || payload_len as usize > PAYLOAD_SIZE_MAX {
            return Err(WireError::TooLong { body: body_len, payload: payload_len });
        }
        let frame_len = HEADER_SIZE + body_len as usize;
        let Some(frame) = inbox.peek(frame_len) else { return Ok(None) };
        if frame_checksum(frame) != Checksum(sum) {
            return Err(WireError::Checksum);
        }
        let mut reader = Reader { bytes: &frame[HEADER_SIZE..] };
        let message = body(kind, &mut reader).filter(|_| reader.bytes.is_empty());
        let Some(message) = message else {
            return Err(if (kind::HELLO..=kind::LAYERS).contains(&kind) {
                WireError::Malformed(kind)
            } else {
                WireError::Kind(kind)
            });
        };
        if payload_size(&message, payload_len as usize) != Some(payload_len as usize) {
            return Err(WireError::Malformed(kind));
        }
        inbox.consume(frame_len);
        if payload_len == 0 {
            return Ok(Some(message));
        }
        match inbox.take_payload(payload_len as usize) {
            Some(payload) => Ok(Some(attach(message, payload))),
            None => {
                self.partial = Some((message, payload_len as usize));
                Ok(None)
            }
        }
    }
}

/// The payload that `message` must be followed by, or `None` when the message contradicts itself. `announced` is what
/// the header says, which the checksum covers.
fn payload_size(message: &Message, announced: usize) -> Option<usize> {
    match message {
        Message::Learn(_) => (announced <= NOTE_SIZE_MAX).then_some(announced),
        Message::Write(m) => {
            let end = (m.offset as usize).checked_add(m.len as usize)?;
            if m.len == 0 || end > CHUNK_SIZE {
                return None;
            }
            match &m.body {
                Body::Zero => Some(0),
                Body::Data { checksums, .. } => {
                    let blocks = end.div_ceil(BLOCK_SIZE) - m.offset as usize / BLOCK_SIZE;
                    (checksums.len() == blocks).then_some(m.len as usize)
                }
                Body::Lost { .. } => None,
            }
        }
        Message::Read(m) => m.range.is_valid().then_some(0),
        Message::Prepare(m) if matches!(m.body, Body::Lost { .. }) => None,
        Message::Prepare(m) => body_size(&m.header.range, &m.body),
        Message::PrepareHeld(m) => {
            let range = &m.header.range;
            (range.is_valid() && m.checksums.len() == usize::from(range.count)).then_some(0)
        }
        Message::Repair(m) => body_size(&m.range, &m.body),
        Message::Damaged(m) => m.range.is_valid().then_some(0),
        Message::Fetch(m) => m.range.is_valid().then_some(0),
        Message::Fetched(m) => extents_size(m.extents.as_deref().unwrap_or(&[])),
        Message::ReadDone(m) => extents_size(m.result.as_deref().unwrap_or(&[])),
        Message::StatusDone(m) => {
            let blocks: usize = m.result.as_deref().unwrap_or(&[]).iter().map(|run| run.count as usize).sum();
            (m.result.is_err() || blocks == CHUNK_BLOCKS).then_some(0)
        }
        _ => Some(0),
    }
}

fn extents_size(extents: &[Extent]) -> Option<usize> {
    let (mut blocks, mut payload) = (0, 0);
    for extent in extents {
        match extent {
            Extent::Zero { count } => blocks += *count as usize,
            Extent::Data { checksums, .. } => {
                blocks += checksums.len();
                payload += checksums.len() * BLOCK_SIZE;
            }
        }
    }
    (blocks <= CHUNK_BLOCKS).then_some(payload)
}

/// The payload of whole blocks.
fn body_size(range: &BlockRange, body: &Body) -> Option<usize> {
    let (sums, payload) = match body {
        Body::Zero => (None, 0),
        Body::Data { checksums, .. } => (Some(checksums), usize::from(range.count) * BLOCK_SIZE),
        Body::Lost { checksums } => (Some(checksums), 0),
    };
    let fits = range.is_valid() && sums.is_none_or(|sums| sums.len() == usize::from(range.count));
    fits.then_some(payload)
}

fn attach(message: Message, payload: Bytes) -> Message {
    match message {
        Message::Write(mut m) => {
            if let Body::Data { bytes, .. } = &mut m.body {
                *bytes = payload;
            }
            Message::Write(m)
        }
        Message::Prepare(mut m) => {
            if let Body::Data { bytes, .. } = &mut m.body {
                *bytes = payload;
            }
            Message::Prepare(m)
        }
        Message::Learn(mut m) => {
            m.note = payload;
            Message::Learn(m)
        }
        Message::Repair(mut m) => {
            if let Body::Data { bytes, .. } = &mut m.body {
                *bytes = payload;
            }
            Message::Repair(m)
        }
        Message::ReadDone(mut m) => {
            fill(m.result.as_deref_mut().unwrap_or(&mut []), &payload);
            Message::ReadDone(m)
        }
        Message::Fetched(mut m) => {
            fill(m.extents.as_deref_mut().unwrap_or(&mut []), &payload);
            Message::Fetched(m)
        }
        other => other,
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

fn body(kind: u8, r: &mut Reader<'_>) -> Option<Message> {
    Some(match kind {
        kind::HELLO => Message::Hello(hello(r)?),
        kind::WELCOME => Message::Welcome(hello(r)?),
        kind::WRITE => Message::Write(WriteRequest {
            session: SessionId(r.u64()?),
            request: RequestId(r.u64()?),
            oldest: RequestId(r.u64()?),
            pg: PgId(r.u32()?),
            volume: VolumeId(r.u64()?),
            attachment: Generation(r.u64()?),
            layer: LayerId(r.u64()?),
            chunk: ChunkIndex(r.u32()?),
            offset: r.u32()?,
            len: r.u32()?,
            body: contents(r.u8()?, r)?,
        }),
        kind::WRITE_DONE => {
            Message::WriteDone(WriteDone { pg: PgId(r.u32()?), request: RequestId(r.u64()?), result: status(r)? })
        }
        kind::READ => Message::Read(ReadRequest {
            request: RequestId(r.u64()?),
            pg: PgId(r.u32()?),
            volume: VolumeId(r.u64()?),
            attachment: Generation(r.u64()?),
            range: range(r)?,
        }),
        kind::READ_DONE => {
            let request = RequestId(r.u64()?);
            let result = status(r)?;
            let extents = extents(r)?;
            Message::ReadDone(ReadDone { request, result: result.map(|()| extents) })
        }
        kind::STATUS => Message::Status(StatusRequest {
            request: RequestId(r.u64()?),
            pg: PgId(r.u32()?),
            volume: VolumeId(r.u64()?),
            attachment: Generation(r.u64()?),
            layer: LayerId(r.u64()?),
            chunk: ChunkIndex(r.u32()?),
        }),
        kind::STATUS_DONE => {
            let request = RequestId(r.u64()?);
            let result = status(r)?;
            let count = r.u16()?;
            if count as usize > CHUNK_BLOCKS {
                return None;
            }
            let runs =
                (0..count).map(|_| Some(Run { count: r.u16()?, data: r.u8()? != 0 })).collect::<Option<Vec<_>>>()?;
            Message::StatusDone(StatusDone { request, result: result.map(|()| runs) })
        }
        kind::PREPARE => prepare(r)?,
        kind::PREPARE_OK => Message::PrepareOk(PrepareOk {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            sequence: Sequence(r.u64()?),
            full: r.u8()? != 0,
        }),
        kind::SYNC => Message::Sync(Sync {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            committed: Sequence(r.u64()?),
            opens_at: {
                let (opens, at) = (r.u8()? != 0, r.u64()?);
                opens.then_some(Sequence(at))
            },
            recorded: Epoch(r.u64()?),
            ended: Epoch(r.u64()?),
        }),
        kind::SYNC_OK => Message::SyncOk(SyncOk {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            prepared: Sequence(r.u64()?),
            open: r.u8()? != 0,
            full: r.u8()? != 0,
            recorded: Epoch(r.u64()?),
            committed: Sequence(r.u64()?),
        }),
        kind::LEARN => Message::Learn(Learn {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            since: Sequence(r.u64()?),
            base: Sequence(r.u64()?),
            note_checksum: Checksum(r.u32()?),
            note: Bytes::new(),
        }),
        kind::LEAVING => {
            Message::Leaving(Leaving { pg: PgId(r.u32()?), device: DeviceId(r.u32()?), epoch: Epoch(r.u64()?) })
        }
        kind::HAND_OVER => Message::HandOver(HandOver {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            committed: Sequence(r.u64()?),
        }),
        kind::DAMAGED => Message::Damaged(Damaged {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            range: range(r)?,
        }),
        kind::FETCH => Message::Fetch(Fetch {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            commit: Sequence(r.u64()?),
            id: r.u64()?,
            range: range(r)?,
        }),
        kind::FETCHED => Message::Fetched(Fetched {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            id: r.u64()?,
            extents: {
                let given = r.u8()? != 0;
                let extents = extents(r)?;
                given.then_some(extents)
            },
        }),
        kind::LEARN_OK => Message::LearnOk(LearnOk {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            base: Sequence(r.u64()?),
            complete: Sequence(r.u64()?),
        }),
        kind::COMPARE => Message::Compare(Compare {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            id: r.u64()?,
            layer: LayerId(r.u64()?),
            chunk: ChunkIndex(r.u32()?),
            light: r.u8()? != 0,
            spans: (0..DIGEST_SPANS).map(|_| r.u64()).collect::<Option<Vec<_>>>()?,
        }),
        kind::COMPARE_OK => {
            let (pg, device, epoch, id) = (PgId(r.u32()?), DeviceId(r.u32()?), Epoch(r.u64()?), r.u64()?);
            let flags = r.u8().filter(|flags| *flags < 4)?;
            let (unreadable, gone) = (flags & 1 != 0, flags & 2 != 0);
            Message::CompareOk(CompareOk { pg, device, epoch, id, unreadable, gone, differing: differing(r)? })
        }
        kind::REPAIR => Message::Repair(Repair {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            commit: Sequence(r.u64()?),
            id: r.u64()?,
            range: range(r)?,
            body: contents(r.u8()?, r)?,
        }),
        kind::REPAIR_OK => Message::RepairOk(RepairOk {
            pg: PgId(r.u32()?),
            device: DeviceId(r.u32()?),
            epoch: Epoch(r.u64()?),
            id: r.u64()?,
        }),
        kind::HEARTBEAT => {
            let (stamp_us, echo_us, count) = (r.u64()?, r.u64()?, r.u16()?);
            if count as usize > HEARTBEAT_GROUPS_MAX {
                return None;
            }
            let beat = |_| {
                Some(GroupBeat {
                    pg: PgId(r.u32()?),
                    device: DeviceId(r.u32()?),
                    epoch: Epoch(r.u64()?),
                    commit: Sequence(r.u64()?),
                    low_watermark: Sequence(r.u64()?),
                })
            };
            let groups = (0..count).map(beat).collect::<Option<Vec<_>>>()?;
            Message::Heartbeat(Heartbeat { stamp_us, echo_us, groups })
        }
        kind::HEARTBEAT_OK => {
            let (echo_us, stamp_us, revision, count) = (r.u64()?, r.u64()?, r.u64()?, r.u16()?);
            if count as usize > HEARTBEAT_GROUPS_MAX {
                return None;
            }
            let copy = |_| Some(CopyBeat { pg: PgId(r.u32()?), device: DeviceId(r.u32()?), full: r.u8()? != 0 });
            let copies = (0..count).map(copy).collect::<Option<Vec<_>>>()?;
            Message::HeartbeatOk(HeartbeatOk { echo_us, stamp_us, revision, copies })
        }
        kind::FENCE => Message::Fence(Fence {
            request: RequestId(r.u64()?),
            pg: PgId(r.u32()?),
            volume: VolumeId(r.u64()?),
            generation: Generation(r.u64()?),
            attachments: {
                let count = r.u16().filter(|count| usize::from(*count) <= ATTACHMENTS_MAX)?;
                (0..count).map(|_| r.u64().map(Generation)).collect::<Option<Vec<_>>>()?
            },
        }),
        kind::FREEZE => Message::Freeze(Freeze {
            request: RequestId(r.u64()?),
            pg: PgId(r.u32()?),
            volume: VolumeId(r.u64()?),
            head: LayerId(r.u64()?),
            revision: r.u64()?,
        }),
        kind::LAYERS => {
            let revision = r.u64()?;
            let heads = pairs(r)?.into_iter().map(|(volume, layer)| (VolumeId(volume), LayerId(layer))).collect();
            let parents = pairs(r)?;
            // A layer is always younger than the one that it lies on: there are no loops.
            if parents.iter().any(|(layer, parent)| layer <= parent) {
                return None;
            }
            let parents = parents.into_iter().map(|(layer, parent)| (LayerId(layer), LayerId(parent))).collect();
            Message::Layers(Layers { revision, heads, parents })
        }
        kind::FENCE_DONE => Message::FenceDone(FenceDone { request: RequestId(r.u64()?), result: status(r)? }),
        _ => return None,
    })
}

fn prepare(r: &mut Reader<'_>) -> Option<Message> {
    let (pg, device, epoch) = (PgId(r.u32()?), DeviceId(r.u32()?), Epoch(r.u64()?));
    let (sequence, commit) = (Sequence(r.u64()?), Sequence(r.u64()?));
    let (session, request) = (SessionId(r.u64()?), RequestId(r.u64()?));
    let (oldest, range) = (RequestId(r.u64()?), range(r)?);
    let header = WriteHeader { pg, epoch, sequence, commit, session, request, range };
    Some(match r.u8()? {
        HELD => Message::PrepareHeld(PrepareHeld { device, oldest, header, checksums: sums(r)? }),
        kind => Message::Prepare(Prepare { device, oldest, header, body: contents(kind, r)? }),
    })
}

fn range(r: &mut Reader<'_>) -> Option<BlockRange> {
    Some(BlockRange {
        layer: LayerId(r.u64()?),
        chunk: ChunkIndex(r.u32()?),
        first: BlockIndex(r.u16()?),
        count: r.u16()?,
    })
}

fn contents(kind: u8, r: &mut Reader<'_>) -> Option<Body> {
    Some(match kind {
        0 => Body::Zero,
        1 => Body::Data { bytes: Bytes::new(), checksums: sums(r)? },
        3 => Body::Lost { checksums: sums(r)? },
        _ => return None,
    })
}

/// A count, at most [`LAYERS_MAX`], and as many pairs of numbers.
fn pairs(r: &mut Reader<'_>) -> Option<Vec<(u64, u64)>> {
    let count = r.u16().filter(|count| usize::from(*count) <= LAYERS_MAX)?;
    (0..count).map(|_| Some((r.u64()?, r.u64()?))).collect()
}

fn differing(r: &mut Reader<'_>) -> Option<Vec<Span>> {
    let count = r.u8()? as usize;
    if count > DIGEST_SPANS {
        return None;
    }
    let span = |_| {
        let index = r.u8().filter(|index| usize::from(*index) < DIGEST_SPANS)?;
        Some(Span { index, blocks: (0..DIGEST_SPAN_BLOCKS).map(|_| r.u64()).collect::<Option<Vec<_>>>()? })
    };
    (0..count).map(span).collect()
}

fn hello(r: &mut Reader<'_>) -> Option<Hello> {
    Some(Hello {
        version: r.u16()?,
        cluster: r.u128()?,
        node: NodeId(r.u32()?),
        to: NodeId(r.u32()?),
        incarnation: r.u64()?,
        connection: r.u64()?,
    })
}

fn extents(r: &mut Reader<'_>) -> Option<Vec<Extent>> {
    let count = r.u16()?;
    if count as usize > CHUNK_BLOCKS {
        return None;
    }
    (0..count).map(|_| extent(r)).collect()
}

fn extent(r: &mut Reader<'_>) -> Option<Extent> {
    match r.u8()? {
        0 => Some(Extent::Zero { count: r.u16().filter(|count| (1..=CHUNK_BLOCKS as u16).contains(count))? }),
        1 => Some(Extent::Data { bytes: Bytes::new(), checksums: sums(r)? }),
        _ => None,
    }
}

/// At most one checksum a block of a chunk.
fn sums(r: &mut Reader<'_>) -> Option<Checksums> {
    let count = usize::from(r.u16()?);
    if count == 0 || count > CHUNK_BLOCKS {
        return None;
    }
    let (sums, rest) = r.bytes.split_at_checked(count * 4)?;
    r.bytes = rest;
    Some(sums.as_chunks::<4>().0.iter().map(|sum| Checksum(u32::from_le_bytes(*sum))).collect())
}

fn status(r: &mut Reader<'_>) -> Option<Result<(), IoStatus>> {
    match r.u8()? {
        0 => Some(Ok(())),
        code => IoStatus::from_code(code).map(Err),
    }
}
