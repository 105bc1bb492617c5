//! What a message takes in memory, for links that hand messages on as they are.

use crate::frame::payload_bytes;
use crate::message::{Message, PrepareHeld, ReadDone, WriteRequest};
use crate::{Fetched, Prepare, Repair};
use azekura_base::{Body, Checksum, Checksums, Extent};

/// Bytes that a message has beside its fixed part: blocks, and lists of whatever there is one for each of many.
#[must_use]
pub fn held_bytes(message: &Message) -> usize {
    payload_bytes(message) + listed_bytes(message)
}

fn listed_bytes(message: &Message) -> usize {
    match message {
        Message::Write(WriteRequest { body, .. })
        | Message::Prepare(Prepare { body, .. })
        | Message::Repair(Repair { body, .. }) => match body {
            Body::Data { checksums, .. } | Body::Lost { checksums } => sums(checksums),
            Body::Zero => 0,
        },
        Message::PrepareHeld(PrepareHeld { checksums, .. }) => sums(checksums),
        Message::ReadDone(ReadDone { result, .. }) => extents(result.as_deref().unwrap_or(&[])),
        Message::Fetched(Fetched { extents: found, .. }) => extents(found.as_deref().unwrap_or(&[])),
        Message::StatusDone(done) => size_of_val(done.result.as_deref().unwrap_or(&[])),
        Message::Compare(compare) => size_of_val(&*compare.spans),
        Message::CompareOk(ok) => ok.differing.iter().map(|span| size_of_val(span) + size_of_val(&*span.blocks)).sum(),
        Message::Heartbeat(heartbeat) => size_of_val(&*heartbeat.groups),
        Message::HeartbeatOk(ok) => size_of_val(&*ok.copies),
        Message::Fence(fence) => size_of_val(&*fence.attachments),
        Message::Layers(layers) => size_of_val(&*layers.heads) + size_of_val(&*layers.parents),
        Message::Hello(_)
        | Message::Welcome(_)
        | Message::WriteDone(_)
        | Message::Read(_)
        | Message::Status(_)
        | Message::PrepareOk(_)
        | Message::NewEpoch(_)
        | Message::NewEpochOk(_)
        | Message::Learn(_)
        | Message::LearnOk(_)
        | Message::RepairOk(_)
        | Message::Leaving(_)
        | Message::HandOver(_)
        | Message::Damaged(_)
        | Message::Fetch(_)
        | Message::FenceDone(_)
        | Message::Freeze(_) => 0,
    }
}

fn sums(checksums: &Checksums) -> usize {
    checksums.len() * size_of::<Checksum>()
}

fn extents(extents: &[Extent]) -> usize {
    let sums_of = |extent: &Extent| match extent {
        Extent::Data { checksums, .. } => sums(checksums),
        Extent::Zero { .. } => 0,
    };
    size_of_val(extents) + extents.iter().map(sums_of).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layers, NewEpoch};
    use azekura_base::{
        BLOCK_SIZE, BlockIndex, BlockRange, ChunkIndex, DeviceId, Epoch, LayerId, PgId, RequestId, Sequence, SessionId,
        VolumeId, WriteHeader, block_checksums,
    };
    use bytes::Bytes;

    #[test]
    fn blocks_and_lists_count() {
        let bytes = Bytes::from(vec![1; 3 * BLOCK_SIZE]);
        let checksums: Checksums = block_checksums(&bytes).collect();
        let extents = vec![Extent::Zero { count: 1 }, Extent::Data { bytes, checksums: checksums.clone() }];
        let read = Message::ReadDone(ReadDone { request: RequestId(1), result: Ok(extents) });
        assert_eq!(held_bytes(&read), 3 * (BLOCK_SIZE + 4) + 2 * size_of::<Extent>());
        let range = BlockRange { layer: LayerId(1), chunk: ChunkIndex(0), first: BlockIndex(0), count: 3 };
        let header = WriteHeader {
            pg: PgId(1),
            epoch: Epoch(1),
            sequence: Sequence(1),
            commit: Sequence(0),
            session: SessionId(1),
            request: RequestId(1),
            range,
        };
        let held = PrepareHeld { device: DeviceId(1), oldest: RequestId(1), header, checksums };
        assert_eq!(held_bytes(&Message::PrepareHeld(held)), 3 * 4);
        let heads = vec![(VolumeId(1), LayerId(1)); 7];
        assert_eq!(held_bytes(&Message::Layers(Layers { revision: 1, heads, parents: vec![] })), 7 * 16);
        let (pg, device, epoch) = (PgId(1), DeviceId(1), Epoch(1));
        let (committed, opens_at, recorded) = (Sequence(1), None, epoch);
        let short = NewEpoch { pg, device, epoch, committed, opens_at, recorded, ended: Epoch::BEFORE_ALL };
        assert_eq!(held_bytes(&Message::NewEpoch(short)), 0);
    }
}
