//! Messages to bytes.

use crate::codec::Writer;
use crate::message::{Hello, Message, Prepare, Repair, WriteRequest};
use crate::{HEADER_SIZE, MAGIC};
use azekura_base::{
    BlockRange, Body, Checksum, DeviceId, Extent, IoStatus, Outbox, RequestId, WriteHeader, checksum_append,
};
use bytes::Bytes;

/// Kinds of frames, as on the wire.
pub(crate) mod kind {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const WELCOME: u8 = 2;
    pub(crate) const WRITE: u8 = 3;
    pub(crate) const WRITE_DONE: u8 = 4;
    pub(crate) const READ: u8 = 5;
    pub(crate) const READ_DONE: u8 = 6;
    pub(crate) const STATUS: u8 = 7;
    pub(crate) const STATUS_DONE: u8 = 8;
    pub(crate) const PREPARE: u8 = 9;
    pub(crate) const PREPARE_OK: u8 = 10;
    pub(crate) const SYNC: u8 = 11;
    pub(crate) const SYNC_OK: u8 = 12;
    pub(crate) const HEARTBEAT: u8 = 13;
    pub(crate) const HEARTBEAT_OK: u8 = 14;
    pub(crate) const LEARN: u8 = 15;
    pub(crate) const COMPARE: u8 = 16;
    pub(crate) const COMPARE_OK: u8 = 17;
    pub(crate) const REPAIR: u8 = 18;
    pub(crate) const REPAIR_OK: u8 = 19;
    pub(crate) const LEARN_OK: u8 = 20;
    pub(crate) const DAMAGED: u8 = 21;
    pub(crate) const FETCH: u8 = 22;
    pub(crate) const FETCHED: u8 = 23;
    pub(crate) const LEAVING: u8 = 24;
    pub(crate) const HAND_OVER: u8 = 25;
    pub(crate) const FENCE: u8 = 26;
    pub(crate) const FENCE_DONE: u8 = 27;
    pub(crate) const FREEZE: u8 = 28;
    pub(crate) const LAYERS: u8 = 29;
}

/// Appends `message` to `out`; payloads go by reference.
pub fn encode(message: &Message, out: &mut Outbox) {
    let mut w = Writer { bytes: Vec::with_capacity(128) };
    w.bytes.resize(HEADER_SIZE, 0);
    let kind = body(message, &mut w);
    let payload_len: usize = payloads(message).map(Bytes::len).sum();
    let body_len = w.bytes.len() - HEADER_SIZE;
    let header = &mut w.bytes[..HEADER_SIZE];
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4] = kind;
    header[8..12].copy_from_slice(&(body_len as u32).to_le_bytes());
    header[12..16].copy_from_slice(&(payload_len as u32).to_le_bytes());
    let sum = frame_checksum(&w.bytes);
    w.bytes[16..20].copy_from_slice(&sum.0.to_le_bytes());
    if is_urgent(message) {
        out.put_urgent(&w.bytes);
        return;
    }
    out.put(&w.bytes);
    for payload in payloads(message) {
        out.put_payload(payload.clone());
    }
    out.end_frame();
}

/// Leases depend on it: it does not wait behind data. Every message may be overtaken by it, and it by every message
/// (docs/decisions/0024).
fn is_urgent(message: &Message) -> bool {
    matches!(message, Message::Heartbeat(_) | Message::HeartbeatOk(_))
}

/// The CRC-32C of a frame's header (with its checksum field as zeros) and body.
pub(crate) fn frame_checksum(header_and_body: &[u8]) -> Checksum {
    let sum = checksum_append(Checksum(0), &header_and_body[..16]);
    let sum = checksum_append(sum, &[0; 8]);
    checksum_append(sum, &header_and_body[HEADER_SIZE..])
}

fn payloads(message: &Message) -> impl Iterator<Item = &Bytes> {
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
    one.into_iter().chain(extents)
}

/// Writes the body of `message`; returns its kind.
fn body(message: &Message, w: &mut Writer) -> u8 {
    match message {
        Message::Hello(m) => hello(m, w, kind::HELLO),
        Message::Welcome(m) => hello(m, w, kind::WELCOME),
        Message::Write(m) => {
            w.put_u64(m.session.0);
            w.put_u64(m.request.0);
            w.put_u64(m.oldest.0);
            w.put_u32(m.pg.0);
            w.put_u64(m.volume.0);
            w.put_u64(m.attachment.0);
            w.put_u64(m.layer.0);
            w.put_u32(m.chunk.0);
            w.put_u32(m.offset);
            w.put_u32(m.len);
            put_body(&m.body, w);
            kind::WRITE
        }
        Message::WriteDone(m) => {
            w.put_u32(m.pg.0);
            w.put_u64(m.request.0);
            w.put_u8(status(m.result));
            kind::WRITE_DONE
        }
        Message::Read(m) => {
            w.put_u64(m.request.0);
            w.put_u32(m.pg.0);
            w.put_u64(m.volume.0);
            w.put_u64(m.attachment.0);
            put_range(&m.range, w);
            kind::READ
        }
        Message::ReadDone(m) => {
            w.put_u64(m.request.0);
            w.put_u8(status(m.result.as_ref().map(|_| ()).map_err(|e| *e)));
            put_extents(m.result.as_deref().unwrap_or(&[]), w);
            kind::READ_DONE
        }
        Message::Status(m) => {
            w.put_u64(m.request.0);
            w.put_u32(m.pg.0);
            w.put_u64(m.volume.0);
            w.put_u64(m.attachment.0);
            w.put_u64(m.layer.0);
            w.put_u32(m.chunk.0);
            kind::STATUS
        }
        Message::StatusDone(m) => {
            w.put_u64(m.request.0);
            w.put_u8(status(m.result.as_ref().map(|_| ()).map_err(|e| *e)));
            let runs = m.result.as_deref().unwrap_or(&[]);
            w.put_u16(runs.len() as u16);
            for run in runs {
                w.put_u16(run.count);
                w.put_u8(u8::from(run.data));
            }
            kind::STATUS_DONE
        }
        Message::Prepare(m) => {
            put_header(m.device, m.oldest, &m.header, w);
            put_body(&m.body, w);
            kind::PREPARE
        }
        Message::PrepareHeld(m) => {
            put_header(m.device, m.oldest, &m.header, w);
            w.put_u8(HELD);
            put_sums(&m.checksums, w);
            kind::PREPARE
        }
        Message::PrepareOk(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.sequence.0);
            w.put_u8(u8::from(m.full));
            kind::PREPARE_OK
        }
        Message::Sync(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.committed.0);
            w.put_u8(u8::from(m.opens_at.is_some()));
            w.put_u64(m.opens_at.map_or(0, |at| at.0));
            w.put_u64(m.recorded.0);
            w.put_u64(m.ended.0);
            kind::SYNC
        }
        Message::SyncOk(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.prepared.0);
            w.put_u8(u8::from(m.open));
            w.put_u8(u8::from(m.full));
            w.put_u64(m.recorded.0);
            w.put_u64(m.committed.0);
            kind::SYNC_OK
        }
        Message::Learn(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.since.0);
            w.put_u64(m.base.0);
            w.put_u32(m.note_checksum.0);
            kind::LEARN
        }
        Message::Leaving(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            kind::LEAVING
        }
        Message::HandOver(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.committed.0);
            kind::HAND_OVER
        }
        Message::Damaged(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            put_range(&m.range, w);
            kind::DAMAGED
        }
        Message::Fetch(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.commit.0);
            w.put_u64(m.id);
            put_range(&m.range, w);
            kind::FETCH
        }
        Message::Fetched(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.id);
            w.put_u8(u8::from(m.extents.is_some()));
            put_extents(m.extents.as_deref().unwrap_or(&[]), w);
            kind::FETCHED
        }
        Message::LearnOk(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.base.0);
            w.put_u64(m.complete.0);
            kind::LEARN_OK
        }
        Message::Compare(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.id);
            w.put_u64(m.layer.0);
            w.put_u32(m.chunk.0);
            w.put_u8(u8::from(m.light));
            m.spans.iter().for_each(|digest| w.put_u64(*digest));
            kind::COMPARE
        }
        Message::CompareOk(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.id);
            w.put_u8(u8::from(m.unreadable) | u8::from(m.gone) << 1);
            w.put_u8(m.differing.len() as u8);
            for span in &m.differing {
                w.put_u8(span.index);
                span.blocks.iter().for_each(|digest| w.put_u64(*digest));
            }
            kind::COMPARE_OK
        }
        Message::Repair(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.commit.0);
            w.put_u64(m.id);
            put_range(&m.range, w);
            put_body(&m.body, w);
            kind::REPAIR
        }
        Message::RepairOk(m) => {
            w.put_u32(m.pg.0);
            w.put_u32(m.device.0);
            w.put_u64(m.epoch.0);
            w.put_u64(m.id);
            kind::REPAIR_OK
        }
        Message::Heartbeat(m) => {
            w.put_u64(m.stamp_us);
            w.put_u64(m.echo_us);
            w.put_u16(m.groups.len() as u16);
            for group in &m.groups {
                w.put_u32(group.pg.0);
                w.put_u32(group.device.0);
                w.put_u64(group.epoch.0);
                w.put_u64(group.commit.0);
                w.put_u64(group.low_watermark.0);
            }
            kind::HEARTBEAT
        }
        Message::HeartbeatOk(m) => {
            w.put_u64(m.echo_us);
            w.put_u64(m.stamp_us);
            w.put_u64(m.revision);
            w.put_u16(m.copies.len() as u16);
            for copy in &m.copies {
                w.put_u32(copy.pg.0);
                w.put_u32(copy.device.0);
                w.put_u8(u8::from(copy.full));
            }
            kind::HEARTBEAT_OK
        }
        Message::Fence(m) => {
            w.put_u64(m.request.0);
            w.put_u32(m.pg.0);
            w.put_u64(m.volume.0);
            w.put_u64(m.generation.0);
            w.put_u16(m.attachments.len() as u16);
            m.attachments.iter().for_each(|attachment| w.put_u64(attachment.0));
            kind::FENCE
        }
        Message::FenceDone(m) => {
            w.put_u64(m.request.0);
            w.put_u8(status(m.result));
            kind::FENCE_DONE
        }
        Message::Freeze(m) => {
            w.put_u64(m.request.0);
            w.put_u32(m.pg.0);
            w.put_u64(m.volume.0);
            w.put_u64(m.head.0);
            w.put_u64(m.revision);
            kind::FREEZE
        }
        Message::Layers(m) => {
            w.put_u64(m.revision);
            let pair = |w: &mut Writer, a: u64, b: u64| {
                w.put_u64(a);
                w.put_u64(b);
            };
            w.put_u16(m.heads.len() as u16);
            m.heads.iter().for_each(|(volume, layer)| pair(w, volume.0, layer.0));
            w.put_u16(m.parents.len() as u16);
            m.parents.iter().for_each(|(layer, parent)| pair(w, layer.0, parent.0));
            kind::LAYERS
        }
    }
}

fn hello(m: &Hello, w: &mut Writer, kind: u8) -> u8 {
    w.put_u16(m.version);
    w.put_u128(m.cluster);
    w.put_u32(m.node.0);
    w.put_u32(m.to.0);
    w.put_u64(m.incarnation);
    w.put_u64(m.connection);
    kind
}

/// In the place of a body's kind: the receiver has the blocks.
pub(crate) const HELD: u8 = 2;

fn put_header(device: DeviceId, oldest: RequestId, header: &WriteHeader, w: &mut Writer) {
    w.put_u32(header.pg.0);
    w.put_u32(device.0);
    w.put_u64(header.epoch.0);
    w.put_u64(header.sequence.0);
    w.put_u64(header.commit.0);
    w.put_u64(header.session.0);
    w.put_u64(header.request.0);
    w.put_u64(oldest.0);
    put_range(&header.range, w);
}

fn put_range(range: &BlockRange, w: &mut Writer) {
    w.put_u64(range.layer.0);
    w.put_u32(range.chunk.0);
    w.put_u16(range.first.0);
    w.put_u16(range.count);
}

/// 0 for zeros, 1 and checksums for data, 3 and checksums for what is lost.
fn put_body(body: &Body, w: &mut Writer) {
    match body {
        Body::Zero => w.put_u8(0),
        Body::Data { checksums, .. } => {
            w.put_u8(1);
            put_sums(checksums, w);
        }
        Body::Lost { checksums } => {
            w.put_u8(3);
            put_sums(checksums, w);
        }
    }
}

fn put_extents(extents: &[Extent], w: &mut Writer) {
    w.put_u16(extents.len() as u16);
    for extent in extents {
        match extent {
            Extent::Zero { count } => {
                w.put_u8(0);
                w.put_u16(*count);
            }
            Extent::Data { checksums, .. } => {
                w.put_u8(1);
                put_sums(checksums, w);
            }
        }
    }
}

fn put_sums(sums: &[Checksum], w: &mut Writer) {
    w.put_u16(sums.len() as u16);
    sums.iter().for_each(|sum| w.put_u32(sum.0));
}

fn status(result: Result<(), IoStatus>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(status) => status as u8,
    }
}
