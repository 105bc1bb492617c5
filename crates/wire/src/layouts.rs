//! What stands in the body of each message, in the order of the wire.

use crate::codec::{Layout, get_held, layout, put_held};
use crate::message::{
    Compare, CompareOk, CopyBeat, Damaged, Fence, FenceDone, Fetch, Fetched, Freeze, GroupBeat, HandOver, Heartbeat,
    HeartbeatOk, Hello, Layers, Learn, LearnOk, Leaving, NewEpoch, NewEpochOk, Prepare, PrepareHeld, PrepareOk,
    ReadDone, ReadRequest, Repair, RepairOk, Span, StatusDone, StatusRequest, WriteDone, WriteRequest,
};
use crate::{DIGEST_SPANS, VERSION};
use azekura_base::{DeviceId, Endpoint, RequestId, Shard, WriteHeader};

layout!(WriteRequest { session, request, oldest, pg, volume, attachment, layer, chunk, offset, len, expected, body });
layout!(WriteDone { pg, request, result });
layout!(ReadRequest { request, pg, volume, attachment, range });
layout!(ReadDone { request, result });
layout!(StatusRequest { request, pg, volume, attachment, layer, chunk });
layout!(StatusDone { request, result });
layout!(PrepareOk { pg, device, epoch, sequence, full });
layout!(NewEpoch { pg, device, epoch, committed, opens_at, recorded, ended });
layout!(NewEpochOk { pg, device, epoch, prepared, open, full, recorded, committed });
layout!(Learn { pg, device, epoch, since, base, note_checksum, note });
layout!(LearnOk { pg, device, epoch, base, complete });
layout!(Compare { pg, device, epoch, id, layer, chunk, light, spans });
layout!(Repair { pg, device, epoch, commit, id, range, body });
layout!(RepairOk { pg, device, epoch, id });
layout!(Leaving { pg, device, epoch });
layout!(HandOver { pg, device, epoch, committed });
layout!(Damaged { pg, device, epoch, range });
layout!(Fetch { pg, device, epoch, commit, id, range });
layout!(Fetched { pg, device, epoch, id, extents });
layout!(GroupBeat { pg, device, epoch, commit, low_watermark });
layout!(Heartbeat { stamp_us, echo_us, groups });
layout!(HeartbeatOk { echo_us, stamp_us, revision, copies });
layout!(CopyBeat { pg, device, full });
layout!(Fence { request, pg, volume, generation, attachments });
layout!(FenceDone { request, result });
layout!(Freeze { request, pg, volume, head, revision });
layout!(Layers { revision, heads, parents });

/// A greeting of another version says who speaks, in fields that stand in the same places in all of them; what follows
/// these is not looked at. So whoever is refused is told of by name.
impl Layout for Hello {
    fn put(&self, out: &mut Vec<u8>) {
        let Hello { version, cluster, from, to, incarnation, connection } = *self;
        (version, cluster, from.node, to.node, incarnation, connection).put(out);
        (from.shard, to.shard).put(out);
    }

    fn get(rest: &mut &[u8]) -> Option<Hello> {
        let (version, cluster, from, to, incarnation, connection) = Layout::get(rest)?;
        let shards: (Shard, Shard) = if version == VERSION { Layout::get(rest)? } else { Default::default() };
        if version != VERSION {
            *rest = &[];
        }
        let from = Endpoint { node: from, shard: shards.0 };
        let to = Endpoint { node: to, shard: shards.1 };
        Some(Hello { version, cluster, from, to, incarnation, connection })
    }
}

impl Layout for Prepare {
    fn put(&self, out: &mut Vec<u8>) {
        put_header(self.device, self.oldest, &self.header, out);
        self.body.put(out);
    }

    #[inline]
    fn get(from: &mut &[u8]) -> Option<Prepare> {
        let (device, oldest, header) = get_header(from)?;
        Some(Prepare { device, oldest, header, body: Layout::get(from)? })
    }
}

impl Layout for PrepareHeld {
    fn put(&self, out: &mut Vec<u8>) {
        put_header(self.device, self.oldest, &self.header, out);
        put_held(&self.checksums, out);
    }

    fn get(from: &mut &[u8]) -> Option<PrepareHeld> {
        let (device, oldest, header) = get_header(from)?;
        Some(PrepareHeld { device, oldest, header, checksums: get_held(from)? })
    }
}

/// A prepared write's header with the two fields that are not a part of it, in their places.
fn put_header(device: DeviceId, oldest: RequestId, header: &WriteHeader, out: &mut Vec<u8>) {
    let WriteHeader { pg, epoch, sequence, commit, session, request, range } = *header;
    (pg, device, epoch, sequence, commit, session, request, oldest, range).put(out);
}

#[inline]
fn get_header(from: &mut &[u8]) -> Option<(DeviceId, RequestId, WriteHeader)> {
    let (pg, device, epoch, sequence, commit, session, request, oldest, range) = Layout::get(from)?;
    Some((device, oldest, WriteHeader { pg, epoch, sequence, commit, session, request, range }))
}

impl Layout for CompareOk {
    fn put(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.unreadable) | u8::from(self.gone) << 1;
        (self.pg, self.device, self.epoch, self.id, flags).put(out);
        self.differing.put(out);
    }

    fn get(from: &mut &[u8]) -> Option<CompareOk> {
        let (pg, device, epoch, id, flags): (_, _, _, _, u8) = Layout::get(from)?;
        let (unreadable, gone) = (flags & 1 != 0, flags & 2 != 0);
        (flags < 4).then_some(())?;
        Some(CompareOk { pg, device, epoch, id, unreadable, gone, differing: Layout::get(from)? })
    }
}

impl Layout for Span {
    fn put(&self, out: &mut Vec<u8>) {
        self.index.put(out);
        self.blocks.put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Span> {
        let index = u8::get(from).filter(|index| usize::from(*index) < DIGEST_SPANS)?;
        Some(Span { index, blocks: Layout::get(from)? })
    }
}
