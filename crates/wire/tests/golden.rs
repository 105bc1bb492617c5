//! The layouts in docs/formats/wire.md, byte by byte, of every kind of frame: they must not change within a version.
//! With GOLDEN=write in the environment the file is written anew.

#![allow(clippy::unwrap_used)]

use azekura_base::*;
use azekura_wire::*;
use bytes::Bytes;

const PG: PgId = PgId(0x0102_0304);
const DEVICE: DeviceId = DeviceId(77);
const EPOCH: Epoch = Epoch(0x0506);

fn range() -> BlockRange {
    BlockRange { layer: LayerId(0x1011), chunk: ChunkIndex(0x1213), first: BlockIndex(0x0115), count: 2 }
}

fn header() -> WriteHeader {
    let (sequence, commit) = (Sequence(0x2021), Sequence(0x2223));
    let (session, request) = (SessionId(0x2425), RequestId(0x2627));
    WriteHeader { pg: PG, epoch: EPOCH, sequence, commit, session, request, range: range() }
}

fn sums() -> Checksums {
    [Checksum(0xdead_beef), Checksum(0x0bad_cafe)][..].into()
}

fn data() -> Body {
    Body::Data { bytes: Bytes::from(vec![0xaa; 2 * BLOCK_SIZE]), checksums: sums() }
}

fn extents() -> Vec<Extent> {
    let bytes = Bytes::from(vec![0xbb; 2 * BLOCK_SIZE]);
    vec![Extent::Zero { count: 3 }, Extent::Data { bytes, checksums: sums() }]
}

fn write_of(offset: u32, len: u32, expected: Option<Box<Expected>>, body: Body) -> Message {
    let BlockRange { layer, chunk, .. } = range();
    Message::Write(WriteRequest {
        session: SessionId(0x3031),
        request: RequestId(0x3233),
        oldest: RequestId(0x3435),
        pg: PG,
        volume: VolumeId(0x3637),
        attachment: Generation(0x3839),
        layer,
        chunk,
        offset,
        len,
        expected,
        body,
    })
}

fn clients() -> Vec<Message> {
    let request = RequestId(0x3233);
    let (volume, attachment) = (VolumeId(0x3637), Generation(0x3839));
    let BlockRange { layer, chunk, .. } = range();
    let write = |body| write_of(4096, 2 * BLOCK_SIZE as u32, None, body);
    let compared = || {
        let bytes = Bytes::from(vec![0xcc; 1024]);
        let checksums = [Checksum(0x0bad_cafe)][..].into();
        let expected = Some(Box::new(Expected::new(Bytes::from(vec![0xdd; 1024]), 0b10)));
        write_of(4608, 1024, expected, Body::Data { bytes, checksums })
    };
    let runs = vec![Run { count: 24, data: Some(KeyGeneration::FIRST) }, Run { count: 1000, data: None }];
    vec![
        write(data()),
        write(Body::Zero),
        Message::WriteDone(WriteDone { pg: PG, request, result: Ok(()) }),
        Message::WriteDone(WriteDone { pg: PG, request, result: Err(IoStatus::Fenced) }),
        Message::Read(ReadRequest { request, pg: PG, volume, attachment, range: range() }),
        Message::ReadDone(ReadDone { request, result: Ok(extents()) }),
        Message::ReadDone(ReadDone { request, result: Err(IoStatus::Stale) }),
        Message::Status(StatusRequest { request, pg: PG, volume, attachment, layer, chunk }),
        Message::StatusDone(StatusDone { request, result: Ok(runs) }),
        Message::StatusDone(StatusDone { request, result: Err(IoStatus::Redirect) }),
        Message::Fence(Fence {
            request,
            pg: PG,
            volume,
            generation: Generation(9),
            attachments: vec![Generation(7), Generation(9)],
        }),
        Message::FenceDone(FenceDone { request, result: Err(IoStatus::Redirect) }),
        Message::Freeze(Freeze { request, pg: PG, volume, head: layer, revision: 0x4041 }),
        Message::Layers(Layers {
            revision: 0x4041,
            heads: vec![(volume, LayerId(12))],
            parents: vec![(LayerId(12), LayerId(10)), (LayerId(10), LayerId(3))],
        }),
        compared(),
        Message::WriteDone(WriteDone { pg: PG, request, result: Err(IoStatus::Miscompare(0x0142)) }),
    ]
}

/// What says under which generation of a key blocks are.
fn keyed() -> Vec<Message> {
    let (request, key) = (RequestId(0x1a1b), KeyGeneration::new(0xd).unwrap());
    let bytes = Bytes::from(vec![0xcc; BLOCK_SIZE]);
    let body = Body::data(bytes.clone()).under(key);
    let Body::Data { checksums, .. } = body.clone() else { panic!("it is data") };
    let expected = Expected::new(Bytes::from(vec![0xdd; BLOCK_SIZE]), 0).under(KeyGeneration::new(0xc).unwrap());
    let extents = vec![Extent::Data { bytes, checksums: checksums.clone() }, Extent::Zero { count: 2 }];
    let runs = vec![Run { count: 24, data: Some(key) }, Run { count: 1000, data: None }];
    let name = std::num::NonZeroU64::new(7);
    vec![
        write_of(4096, BLOCK_SIZE as u32, Some(Box::new(expected)), body),
        Message::WriteDone(WriteDone { pg: PG, request, result: Err(IoStatus::OtherKey) }),
        Message::ReadDone(ReadDone { request, result: Ok(extents) }),
        Message::StatusDone(StatusDone { request, result: Ok(runs) }),
        Message::PrepareHeld(PrepareHeld {
            device: DEVICE,
            oldest: request,
            header: WriteHeader { range: BlockRange { count: 1, ..range() }, ..header() },
            checksums: checksums.clone(),
        }),
        Message::Repair(Repair {
            pg: PG,
            device: DEVICE,
            epoch: EPOCH,
            commit: Sequence(9),
            id: name,
            range: BlockRange { count: 1, ..range() },
            body: Body::Lost { checksums },
        }),
    ]
}

fn copies() -> Vec<Message> {
    let (pg, device, epoch, id, commit) = (PG, DEVICE, EPOCH, 0x5051, Sequence(0x5253));
    let BlockRange { layer, chunk, .. } = range();
    let oldest = RequestId(0x5455);
    let prepare = |body| Message::Prepare(Prepare { device, oldest, header: header(), body });
    let name = std::num::NonZeroU64::new(id);
    let repair = |body| Message::Repair(Repair { pg, device, epoch, commit, id: name, range: range(), body });
    let news = |opens_at| {
        let (recorded, ended) = (Epoch(0x56), Epoch(0x57));
        Message::NewEpoch(NewEpoch { pg, device, epoch, committed: commit, opens_at, recorded, ended })
    };
    let note = Bytes::from_static(&[1, 2, 3]);
    let digests = |seed: u64| (0..32).map(|n| seed << 32 | n).collect::<Vec<u64>>();
    vec![
        prepare(data()),
        prepare(Body::Zero),
        Message::PrepareHeld(PrepareHeld { device, oldest, header: header(), checksums: sums() }),
        Message::PrepareOk(PrepareOk { pg, device, epoch, sequence: commit, full: true }),
        news(None),
        news(Some(Sequence(0x58))),
        Message::NewEpochOk(NewEpochOk {
            pg,
            device,
            epoch,
            prepared: Sequence(0x59),
            open: true,
            full: false,
            recorded: Epoch(0x5a),
            committed: commit,
        }),
        Message::Learn(Learn {
            pg,
            device,
            epoch,
            since: Sequence(0x5b),
            base: commit,
            note_checksum: checksum(&note),
            note,
        }),
        Message::LearnOk(LearnOk { pg, device, epoch, base: commit, complete: Sequence(0x5c) }),
        Message::Compare(Compare { pg, device, epoch, id, layer, chunk, light: true, spans: digests(3) }),
        Message::CompareOk(CompareOk {
            pg,
            device,
            epoch,
            id,
            differing: vec![Span { index: 31, blocks: digests(4) }],
            unreadable: false,
            gone: true,
        }),
        repair(data()),
        repair(Body::Zero),
        repair(Body::Lost { checksums: sums() }),
        Message::RepairOk(RepairOk { pg, device, epoch, id: name }),
        Message::Leaving(Leaving { pg, device, epoch }),
        Message::HandOver(HandOver { pg, device, epoch, committed: commit }),
        Message::Damaged(Damaged { pg, device, epoch, range: range() }),
        Message::Fetch(Fetch { pg, device, epoch, commit, id, range: range() }),
        Message::Fetched(Fetched { pg, device, epoch, id, extents: Some(extents()) }),
        Message::Fetched(Fetched { pg, device, epoch, id, extents: None }),
    ]
}

fn nodes() -> Vec<Message> {
    let hello = Hello {
        version: VERSION,
        cluster: 0x6061,
        from: Endpoint { node: NodeId(0x62), shard: Shard(0x60) },
        to: Endpoint { node: NodeId(0x63), shard: Shard(0x5f) },
        incarnation: 0x64,
        connection: 0x65,
    };
    let (commit, low_watermark) = (Sequence(0x67), Sequence(0x66));
    vec![
        Message::Hello(hello),
        Message::Welcome(hello),
        Message::Heartbeat(Heartbeat {
            stamp_us: 0x68,
            echo_us: std::num::NonZeroU64::new(0x69),
            groups: vec![GroupBeat { pg: PG, device: DEVICE, epoch: EPOCH, commit, low_watermark }],
        }),
        Message::HeartbeatOk(HeartbeatOk {
            echo_us: 0x6a,
            stamp_us: 0x6b,
            revision: 0x6c,
            copies: vec![CopyBeat { pg: PG, device: DEVICE, full: true }],
        }),
    ]
}

#[test]
fn every_kind_of_frame() {
    let mut text = String::new();
    let mut kinds = std::collections::BTreeSet::new();
    for message in [clients(), copies(), nodes(), keyed()].concat() {
        let mut out = Outbox::new();
        encode(&message, &mut out);
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        let frame = pieces.concat();
        let body_len = u32::from_le_bytes(frame[8..12].try_into().unwrap()) as usize;
        let hex: String = frame[..HEADER_SIZE + body_len].iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{hex} and {} bytes\n", frame.len() - HEADER_SIZE - body_len);
        kinds.insert(frame[4]);
        let (mut inbox, mut decoder) = (Inbox::new(), Decoder::default());
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let mut fill = inbox.take_fill();
            let count = rest.len().min(fill.buf.len() - fill.at);
            fill.buf[fill.at..fill.at + count].copy_from_slice(&rest[..count]);
            inbox.filled(fill, count);
            rest = &rest[count..];
            if let Some(decoded) = decoder.next(&mut inbox).unwrap() {
                assert_eq!((decoded, rest.len()), (message.clone(), 0));
            }
        }
    }
    assert!(kinds.into_iter().eq(1..=29), "a kind is missing");
    let path = format!("{}/tests/golden/frames.hex", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
