//! The layouts in docs/formats/log.md and docs/formats/map.md, byte by byte: they must not change within a version.
//! With GOLDEN=write in the environment the files are written anew.
#![allow(clippy::unwrap_used)]

use crate::common::*;
use azekura_base::{
    BlockIndex, BlockRange, Body, Checksum, ChunkIndex, Epoch, KeyGeneration, LayerId, PgId, Prepared, RequestId,
    Sequence, SessionId, Write, WriteHeader,
};
use azekura_store::{
    BatchInfo, DeviceError, Entry, GroupRow, Inspector, Job, Leaf, LeafKey, Mark, PendingRow, Position, ReadDevice,
    Repair, Requests, Root, SegmentRow, Store,
};
use bytes::Bytes;

/// Compares with the golden file, in which each line has 32 bytes, and lines of zeros are left out.
fn golden(name: &str, bytes: &[u8]) {
    let path = format!("{}/tests/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    let mut text = format!("{} bytes\n", bytes.len());
    for (index, line) in bytes.chunks(32).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{:06x} {hex}\n", index * 32);
        }
    }
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{name}");
    assert_eq!(from_golden(&text), bytes);
}

fn read_golden(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    from_golden(&std::fs::read_to_string(path).unwrap())
}

fn from_golden(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let len: usize = lines.next().unwrap().split(' ').next().unwrap().parse().unwrap();
    let mut bytes = vec![0; len];
    for line in lines {
        let (at, hex) = line.split_once(' ').unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (index, byte) in hex.as_bytes().chunks(2).enumerate() {
            bytes[at + index] = u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap();
        }
    }
    bytes
}

struct Image(Vec<u8>);

impl ReadDevice for Image {
    fn read(&self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        let at = offset as usize;
        Ok(azekura_base::copy_to_pages(&self.0[at..at + len]))
    }
}

#[test]
fn superblock() {
    let format = Store::format(&tiny(), &IDENTITY).unwrap();
    let bytes = format.pieces.concat();
    golden("superblock", &bytes);
    let inspector = Inspector::open(Image(bytes)).unwrap();
    assert_eq!((inspector.superblock().device, inspector.superblock().segments), (7, 16));
}

/// One batch with a record of each kind that a caller can ask for.
#[test]
fn batch() {
    let mut rig = Rig::format(&tiny());
    rig.store.start_epoch(1, PgId(1), Epoch(3), Sequence(0));
    let write = |sequence: u64, body: Body| {
        let range = BlockRange { layer: LayerId(10), chunk: ChunkIndex(5), first: BlockIndex(6), count: 2 };
        let header = WriteHeader {
            pg: PgId(1),
            epoch: Epoch(3),
            sequence: Sequence(sequence),
            commit: Sequence(0),
            session: SessionId(0x1111),
            request: RequestId(0x2222 + sequence),
            range,
        };
        Write { header, body }
    };
    rig.store.append(2, write(1, filled_plain(1, 2)));
    rig.store.append(3, write(2, Body::Zero));
    let (pg, layer, chunk) = (PgId(2), LayerId(11), ChunkIndex(9));
    let (first, sequence) = (BlockIndex(1), Sequence(0));
    rig.store.append(
        4,
        Repair { pg, sequence, range: BlockRange { layer, chunk, first, count: 1 }, body: filled_plain(2, 1) },
    );
    rig.store.append(5, Repair { pg, sequence, range: BlockRange { layer, chunk, first, count: 3 }, body: Body::Zero });
    rig.store.append(6, Mark { pg, sequence, layer, chunk });
    rig.store.set_note(7, PgId(1), Bytes::from_static(b"a note"));
    rig.store.rejoin(8, PgId(3), Epoch(4), Sequence(77));
    rig.store.set_complete(9, PgId(3));
    rig.store.merge_layer(10, LayerId(20), LayerId(21));
    rig.store.forget_group(11, PgId(4));
    rig.store.drop_layer(12, LayerId(30));
    rig.store.pump();
    rig.take_effects();
    let (_, offset, bytes) = rig.disk.waiting[0].clone();
    assert_eq!((offset, rig.disk.waiting.len()), (256 * 4096, 1));
    golden("batch-header", &bytes[..4096]);
    // The golden header with this payload is read as what was asked for.
    let mut image = rig.disk.image.clone();
    image[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
    let segment = Inspector::open(Image(image)).unwrap().segment(0).unwrap();
    let kinds: Vec<_> = segment.batches[0].records.iter().map(|record| record.kind).collect();
    let expected = [
        "drop-layer",
        "epoch",
        "write",
        "write-zero",
        "repair",
        "repair-zero",
        "mark",
        "note",
        "epoch",
        "complete",
        "merge-layer",
        "forget-group",
    ];
    assert_eq!(kinds, expected);
    assert!(segment.batches[0].payload_whole);
}

/// The summary at the end of a full segment: its header block, and its last block.
#[test]
fn summary() {
    let mut rig = Rig::format(&tiny());
    while rig.store.statistics().log_bytes < 64 * 4096 {
        rig.write(1, 10, 0, 0, filled_plain(1, 12), 12);
    }
    let segment = Inspector::open(Image(rig.disk.image.clone())).unwrap().segment(0).unwrap();
    assert!(segment.summary);
    let batch = segment.batches.last().unwrap();
    let at = (256 + batch.block as usize) * 4096;
    golden("summary-header", &rig.disk.image[at..at + 4096]);
    golden("summary-payload", &rig.disk.image[at + 4096..(256 + 64) * 4096]);
}

/// Moved blocks in a segment of their own, and the record in the log that says where they are.
#[test]
fn moved() {
    let mut rig = Rig::format(&tiny());
    let mut next = 1u64;
    loop {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = (next >> 33) % 500;
        rig.write(1, 10, 0, block as u16, filled_plain(next, 1), 1);
        let segments: Vec<_> = Inspector::open(Image(rig.disk.image.clone())).unwrap().segments().flatten().collect();
        let is_moved = |batch: &&BatchInfo| batch.records.iter().any(|record| record.kind == "moved");
        let record = segments.iter().find_map(|s| Some((s.segment, s.batches.iter().find(is_moved)?.block)));
        let apart = segments.iter().find(|s| s.apart);
        let (Some((segment, block)), Some(apart)) = (record, apart) else { continue };
        assert!(!apart.summary && apart.batches.iter().all(|batch| batch.payload_whole));
        let header = |segment: u32, block: u32| {
            let at = (256 + segment as usize * 64 + block as usize) * 4096;
            rig.disk.image[at..at + 4096].to_vec()
        };
        golden("moves-header", &header(apart.segment, 0));
        golden("batch-header-with-moved", &header(segment, block));
        return;
    }
}

#[test]
fn leaf() {
    let mut leaf = Leaf { modified: Sequence(9), log_upto: 0x30_0002, repaired_upto: 0x20_0001, ..Leaf::default() };
    leaf.entries.set(0, Entry::own(300, Checksum(0xdead_beef)));
    leaf.entries.set(9, Entry::own(301, Checksum(0x0bad_cafe)).inherited());
    leaf.entries.set(1023, Entry::own(302, Checksum(0x1234_5678)));
    let key = LeafKey { layer: LayerId(10), chunk: ChunkIndex(5), pg: PgId(1) };
    let image = leaf.encode(&key);
    golden("leaf", &image);
    let (read, decoded) = Leaf::decode(&image).unwrap();
    assert_eq!(decoded.encode(&read), image);
}

/// So is one that does not know where some of its blocks are.
#[test]
fn leaf_with_an_unknown_block() {
    let mut leaf = Leaf { modified: Sequence(9), log_upto: 0x30_0002, repaired_upto: 0x20_0001, ..Leaf::default() };
    leaf.entries.set(0, Entry::own(300, Checksum(0xdead_beef)));
    leaf.entries.set(9, Entry::unknown());
    let key = LeafKey { layer: LayerId(10), chunk: ChunkIndex(5), pg: PgId(1) };
    let image = leaf.encode(&key);
    golden("leaf-with-unknown", &image);
    assert_eq!(Leaf::decode(&image), Ok((key, leaf)));
}

/// So is one in which some of that is an ancestor's.
#[test]
fn leaf_with_an_unknown_block_of_an_ancestor() {
    let mut leaf = Leaf { modified: Sequence(9), log_upto: 0x30_0002, repaired_upto: 0x20_0001, ..Leaf::default() };
    leaf.entries.set(0, Entry::unknown());
    leaf.entries.set(9, Entry::unknown().inherited());
    let key = LeafKey { layer: LayerId(10), chunk: ChunkIndex(5), pg: PgId(1) };
    let image = leaf.encode(&key);
    golden("leaf-with-inherited-unknown", &image);
    assert_eq!(Leaf::decode(&image), Ok((key, leaf.clone())));
    assert!(leaf.entries[0].hides_ancestors() && !leaf.entries[9].hides_ancestors());
    assert!(leaf.child().entries.present().all(|(_, entry)| *entry == Entry::unknown().inherited()));
    // Another version has no such entries.
    let mut older = image;
    older[4] = 4;
    older[8..12].fill(0);
    let crc = azekura_base::checksum(&older).0.to_le_bytes();
    older[8..12].copy_from_slice(&crc);
    assert!(matches!(Leaf::decode(&older), Err(azekura_store::LeafError::Damaged(_))));
}

/// A leaf with blocks under another key is of a version that older programs refuse: they would give them out as if they
/// were under the first.
#[test]
fn leaf_with_keys() {
    let mut leaf = Leaf { modified: Sequence(9), log_upto: 0x30_0002, repaired_upto: 0x20_0001, ..Leaf::default() };
    let (third, last) = (KeyGeneration::new(3).unwrap(), KeyGeneration::new(15).unwrap());
    leaf.entries.set(0, Entry::own(300, Checksum(0xdead_beef)));
    leaf.entries.set(9, Entry::own(301, Checksum(0x0bad_cafe)).under(last));
    leaf.entries.set(10, leaf.entries[9].under(third).inherited());
    let key = LeafKey { layer: LayerId(10), chunk: ChunkIndex(5), pg: PgId(1) };
    let image = leaf.encode(&key);
    golden("leaf-with-keys", &image);
    assert_eq!(Leaf::decode(&image), Ok((key, leaf.clone())));
    let keys = [0, 9, 10].map(|block| leaf.entries[block].key());
    assert_eq!(keys, [KeyGeneration::FIRST, last, third]);
    assert!(leaf.entries[9].is_own() && !leaf.entries[10].is_own() && !leaf.entries[10].is_lost());
    assert_eq!(leaf.child().entries[9].key(), last);
}

/// A leaf with a block that is lost is of a version that older programs refuse.
#[test]
fn leaf_with_a_lost_block() {
    let mut leaf = Leaf { modified: Sequence(9), log_upto: 0x30_0002, repaired_upto: 0x20_0001, ..Leaf::default() };
    leaf.entries.set(0, Entry::own(300, Checksum(0xdead_beef)));
    leaf.entries.set(9, Entry { flags: Entry::LOST, ..Entry::own(301, Checksum(0x0bad_cafe)) });
    leaf.entries.set(10, leaf.entries[9].inherited());
    let key = LeafKey { layer: LayerId(10), chunk: ChunkIndex(5), pg: PgId(1) };
    let image = leaf.encode(&key);
    golden("leaf-with-lost", &image);
    let (read, decoded) = Leaf::decode(&image).unwrap();
    assert_eq!(decoded.encode(&read), image);
    assert!(decoded.entries[9].is_lost() && decoded.entries[9].is_own() && decoded.entries[10].is_lost());
    // The flag in a leaf of the older version, with a right checksum.
    let mut older = image.clone();
    older[4] = 2;
    older[8..12].fill(0);
    let crc = azekura_base::checksum(&older).0.to_le_bytes();
    older[8..12].copy_from_slice(&crc);
    assert!(Leaf::decode(&older).unwrap_err().to_string().contains("flags"), "{:?}", Leaf::decode(&older));
}

#[test]
fn batch_with_a_lost_block() {
    let mut rig = Rig::format(&tiny());
    let (pg, layer, chunk, first) = (PgId(2), LayerId(11), ChunkIndex(9), BlockIndex(1));
    let body = Body::Lost { checksums: [Checksum(0xdead_beef), Checksum(0x0bad_cafe)][..].into() };
    rig.store
        .append(4, Repair { pg, sequence: Sequence(0), range: BlockRange { layer, chunk, first, count: 2 }, body });
    rig.store.pump();
    rig.take_effects();
    let (_, offset, bytes) = rig.disk.waiting[0].clone();
    golden("batch-header-with-lost", &bytes[..4096]);
    assert_eq!((bytes.len(), bytes[4096..].iter().position(|byte| *byte != 0)), (3 * 4096, None));
    let mut image = rig.disk.image.clone();
    image[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
    let segment = Inspector::open(Image(image)).unwrap().segment(0).unwrap();
    assert_eq!(segment.batches[0].records[0].kind, "repair-lost");
    assert!(segment.batches[0].payload_whole);
}

#[test]
fn root() {
    let header = WriteHeader {
        pg: PgId(1),
        epoch: Epoch(3),
        sequence: Sequence(41),
        commit: Sequence(0),
        session: SessionId(6),
        request: RequestId(7),
        range: BlockRange { layer: LayerId(10), chunk: ChunkIndex(5), first: BlockIndex(2), count: 2 },
    };
    let info = Prepared { header, zero: false, durable: true };
    let sums = [Checksum(0xaaaa_aaaa), Checksum(0xbbbb_bbbb)];
    let data = PendingRow { info, log: 70, generation: 4, address: Some(400), checksums: Some(sums[..].into()) };
    let zero = Prepared { header: WriteHeader { sequence: Sequence(42), ..header }, zero: true, ..info };
    let zero = PendingRow { info: zero, log: 71, generation: 4, address: None, checksums: None };
    let mut requests = Requests::default();
    [(6, 3), (6, 4), (6, 90), (9, 1 << 40)]
        .iter()
        .for_each(|(session, request)| requests.committed(SessionId(*session), RequestId(*request)));
    let group = GroupRow {
        pg: PgId(1),
        epoch: Epoch(3),
        committed: Sequence(40),
        complete: Some(Sequence(30)),
        unproven: false,
        note_version: 2,
        note: Bytes::from_static(b"a note"),
        pending: vec![data, zero],
        requests,
    };
    let root = Root {
        identity: IDENTITY,
        incarnation: 5,
        durable: 72,
        position: Position { generation: 4, segment: 3, sequence: 66, previous: 0xcccc_cccc },
        groups: vec![group],
        jobs: vec![
            Job::DropLayer(LayerId(8)),
            Job::MergeLayer { layer: LayerId(9), into: LayerId(10) },
            Job::ForgetGroup(PgId(2)),
        ],
    };
    let image = root.encode();
    golden("root", &image);
    assert_eq!(Root::decode(&image).unwrap(), root);
    let mut unproven = root.clone();
    unproven.groups.iter_mut().for_each(|group| (group.unproven, group.complete) = (true, Some(Sequence(0))));
    golden("root-5", &unproven.encode());
    assert_eq!(Root::decode(&unproven.encode()).unwrap(), unproven);
    let mut earlier = root;
    earlier.groups.iter_mut().for_each(|group| group.requests.clear());
    assert_eq!(Root::decode(&read_golden("root-3")).unwrap(), earlier, "the version before named no requests");
    let row = SegmentRow { generation: 4, live: 17, used: true };
    golden("segment-row", &row.encode());
    assert_eq!(SegmentRow::decode(&row.encode()), Some(row));
}
