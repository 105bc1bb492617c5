//! Messages survive the wire, whatever the cutting; hostile bytes are refused without panic.

#![allow(clippy::unwrap_used)]

mod support;

use azekura_base::*;
use azekura_wire::*;
use bytes::Bytes;
use proptest::prelude::*;
use support::{bytes_of, decode, frame, hello};

/// It goes ahead of others that wait.
fn is_heartbeat(message: &Message) -> bool {
    matches!(message, Message::Heartbeat(_) | Message::HeartbeatOk(_))
}

fn sums(n: usize) -> Checksums {
    let sums: Checksums = (0..n as u32).map(|i| Checksum(i.wrapping_mul(0x9e37_79b9))).collect();
    sums.under(KeyGeneration::of_bits(n as u16))
}

#[test]
fn zeros_of_no_blocks_are_refused() {
    let done = |count| Message::ReadDone(ReadDone { request: RequestId(1), result: Ok(vec![Extent::Zero { count }]) });
    assert!(decode(&bytes_of(&[done(1)]), &[4096]).is_ok());
    for count in [0, 1025, u16::MAX] {
        assert!(decode(&bytes_of(&[done(count)]), &[4096]).is_err(), "{count}");
    }
}

fn status() -> impl Strategy<Value = IoStatus> {
    prop_oneof![
        (1u8..=8).prop_map(|code| IoStatus::from_code(code).unwrap()),
        any::<u16>().prop_map(IoStatus::Miscompare),
        Just(IoStatus::OtherKey)
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let write = (any::<u64>(), 0u32..CHUNK_SIZE as u32, prop_oneof![1u32..4096, 1u32..200_000], any::<bool>())
        .prop_map(|(n, offset, len, zero)| {
            let len = len.min(CHUNK_SIZE as u32 - offset);
            let blocks = ((offset + len) as usize).div_ceil(BLOCK_SIZE) - offset as usize / BLOCK_SIZE;
            let bytes = Bytes::from(vec![n as u8; len as usize]);
            // What is compared lies in one block.
            let expected = (blocks == 1 && !zero && n % 2 == 0)
                .then(|| Box::new(Expected::new(Bytes::from(vec![!n as u8; len as usize]), n as u8)));
            let body = if zero { Body::Zero } else { Body::Data { bytes, checksums: sums(blocks) } };
            Message::Write(WriteRequest {
                session: SessionId(n),
                request: RequestId(!n),
                oldest: RequestId(n / 2),
                pg: PgId(n as u32),
                volume: VolumeId(n ^ 3),
                attachment: Generation(n ^ 4),
                layer: LayerId(n ^ 5),
                chunk: ChunkIndex(7),
                offset,
                len,
                expected,
                body,
            })
        });
    let prepare = (any::<u64>(), 0u16..1024, 1u16..64, 0u8..3).prop_map(|(n, first, count, kind)| {
        let count = count.min(1024 - first);
        let bytes = Bytes::from(vec![n as u8; count as usize * BLOCK_SIZE]);
        let checksums = sums(count as usize);
        let header = WriteHeader {
            pg: PgId(n as u32),
            epoch: Epoch(n),
            sequence: Sequence(!n),
            commit: Sequence(n / 3),
            session: SessionId(n / 5),
            request: RequestId(n / 7),
            range: BlockRange { layer: LayerId(1), chunk: ChunkIndex(2), first: BlockIndex(first), count },
        };
        let (device, oldest) = (DeviceId(77), RequestId(n / 9));
        match kind {
            0 => Message::Prepare(Prepare { device, oldest, header, body: Body::Zero }),
            1 => Message::Prepare(Prepare { device, oldest, header, body: Body::Data { bytes, checksums } }),
            _ => Message::PrepareHeld(PrepareHeld { device, oldest, header, checksums }),
        }
    });
    let extents = proptest::collection::vec(
        prop_oneof![
            (1u16..100).prop_map(|count| Extent::Zero { count }),
            (1usize..20)
                .prop_map(|n| Extent::Data { bytes: Bytes::from(vec![n as u8; n * BLOCK_SIZE]), checksums: sums(n) })
        ],
        0..9,
    );
    let read_done = (any::<u64>(), prop_oneof![extents.prop_map(Ok), status().prop_map(Err)])
        .prop_map(|(n, result)| Message::ReadDone(ReadDone { request: RequestId(n), result }));
    let beat = proptest::collection::vec((any::<u32>(), any::<u64>()), 0..50).prop_map(|groups| {
        let groups = groups
            .into_iter()
            .map(|(pg, n)| GroupBeat {
                pg: PgId(pg),
                device: DeviceId(77),
                epoch: Epoch(n),
                commit: Sequence(!n),
                low_watermark: Sequence(n / 2),
            })
            .collect();
        Message::Heartbeat(Heartbeat { stamp_us: 1, echo_us: std::num::NonZeroU64::new(2), groups })
    });
    prop_oneof![
        hello().prop_map(Message::Hello),
        hello().prop_map(Message::Welcome),
        write,
        prepare,
        read_done,
        beat,
        (any::<u64>(), any::<bool>()).prop_map(|(n, ok)| Message::WriteDone(WriteDone {
            pg: PgId(n as u32),
            request: RequestId(n),
            result: if ok { Ok(()) } else { Err(IoStatus::Miscompare(n as u16)) }
        })),
        (0u16..1024, any::<u32>()).prop_map(|(first, n)| Message::Read(ReadRequest {
            request: RequestId(1),
            pg: PgId(n),
            volume: VolumeId(u64::from(n)),
            attachment: Generation(7),
            range: BlockRange {
                layer: LayerId(3),
                chunk: ChunkIndex(n),
                first: BlockIndex(first),
                count: 1024 - first
            }
        })),
        (any::<u32>()).prop_map(|n| Message::Status(StatusRequest {
            request: RequestId(1),
            pg: PgId(n),
            volume: VolumeId(u64::from(n)),
            attachment: Generation(7),
            layer: LayerId(3),
            chunk: ChunkIndex(n)
        })),
        (1u16..1024).prop_map(|n| Message::StatusDone(StatusDone {
            request: RequestId(9),
            result: Ok(vec![
                Run { count: n, data: Some(KeyGeneration::of_bits(n)) },
                Run { count: 1024 - n, data: None }
            ])
        })),
        (any::<u32>(), any::<u64>(), any::<bool>()).prop_map(|(pg, n, full)| Message::PrepareOk(PrepareOk {
            pg: PgId(pg),
            device: DeviceId(77),
            epoch: Epoch(n),
            sequence: Sequence(!n),
            full
        })),
        (any::<u32>(), any::<u64>()).prop_map(|(pg, n)| Message::NewEpoch(NewEpoch {
            pg: PgId(pg),
            device: DeviceId(77),
            epoch: Epoch(n),
            committed: Sequence(!n),
            opens_at: (n % 2 == 1).then_some(Sequence(n / 5)),
            recorded: Epoch(n / 3),
            ended: Epoch(n / 7)
        })),
        (any::<u32>(), any::<u64>()).prop_map(|(pg, n)| Message::NewEpochOk(NewEpochOk {
            pg: PgId(pg),
            device: DeviceId(77),
            epoch: Epoch(n),
            prepared: Sequence(!n),
            open: n % 3 == 0,
            full: n % 2 == 0,
            recorded: Epoch(n / 3),
            committed: Sequence(n / 5)
        })),
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..300)).prop_map(|(n, note)| Message::Learn(Learn {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            since: Sequence(n / 3),
            base: Sequence(!n),
            note_checksum: checksum(&note),
            note: note.into()
        })),
        any::<u64>().prop_map(|n| Message::LearnOk(LearnOk {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            base: Sequence(!n),
            complete: Sequence(n / 2)
        })),
        any::<u64>().prop_map(|n| Message::Leaving(Leaving { pg: PgId(1), device: DeviceId(77), epoch: Epoch(n) })),
        any::<u64>().prop_map(|n| Message::HandOver(HandOver {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            committed: Sequence(!n)
        })),
        any::<u64>().prop_map(|n| Message::Damaged(Damaged {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            range: BlockRange { layer: LayerId(!n), chunk: ChunkIndex(9), first: BlockIndex(1000), count: 24 }
        })),
        any::<u64>().prop_map(|n| Message::Fetch(Fetch {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            commit: Sequence(n / 2),
            id: !n,
            range: BlockRange { layer: LayerId(n), chunk: ChunkIndex(9), first: BlockIndex(3), count: 2 }
        })),
        (any::<u64>(), proptest::option::of(1u16..20)).prop_map(|(n, count)| Message::Fetched(Fetched {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            id: !n,
            extents: count.map(|count| {
                let bytes = Bytes::from(vec![n as u8; count as usize * BLOCK_SIZE]);
                vec![Extent::Zero { count }, Extent::Data { checksums: block_checksums(&bytes).collect(), bytes }]
            })
        })),
        any::<u64>().prop_map(|n| Message::Compare(Compare {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            id: !n,
            layer: LayerId(n),
            chunk: ChunkIndex(9),
            light: n % 2 == 1,
            spans: (0..DIGEST_SPANS as u64).map(|span| span.wrapping_mul(n)).collect()
        })),
        (any::<u64>(), 0u8..=32).prop_map(|(n, spans)| Message::CompareOk(CompareOk {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            id: !n,
            unreadable: n % 2 == 1,
            gone: n % 3 == 1,
            differing: (0..spans).map(|index| Span { index, blocks: vec![n; DIGEST_SPAN_BLOCKS] }).collect()
        })),
        (any::<u64>(), 1u16..40, any::<bool>()).prop_map(|(n, count, zero)| Message::Repair(Repair {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            commit: Sequence(!n),
            id: std::num::NonZeroU64::new(n),
            range: BlockRange { layer: LayerId(n), chunk: ChunkIndex(9), first: BlockIndex(3), count },
            body: if zero {
                if n % 2 == 0 { Body::Zero } else { Body::Lost { checksums: sums(count as usize) } }
            } else {
                let bytes = Bytes::from(vec![n as u8; count as usize * BLOCK_SIZE]);
                Body::Data { checksums: block_checksums(&bytes).collect(), bytes }
            }
        })),
        any::<u64>().prop_map(|n| Message::RepairOk(RepairOk {
            pg: PgId(1),
            device: DeviceId(77),
            epoch: Epoch(n),
            id: std::num::NonZeroU64::new(!n)
        })),
        any::<u64>().prop_map(|n| Message::HeartbeatOk(HeartbeatOk {
            echo_us: n,
            stamp_us: !n,
            revision: n / 7,
            copies: vec![CopyBeat { pg: PgId(1), device: DeviceId(3), full: true }]
        })),
        (any::<u64>(), proptest::collection::vec(any::<u64>(), 0..ATTACHMENTS_MAX)).prop_map(|(n, standing)| {
            Message::Fence(Fence {
                request: RequestId(n),
                pg: PgId(!n as u32),
                volume: VolumeId(n / 3),
                generation: Generation(!n),
                attachments: standing.into_iter().map(Generation).collect(),
            })
        }),
        (any::<u64>(), proptest::option::of(status())).prop_map(|(n, refusal)| Message::FenceDone(FenceDone {
            request: RequestId(n),
            result: refusal.map_or(Ok(()), Err)
        })),
        any::<u64>().prop_map(|n| Message::Freeze(Freeze {
            request: RequestId(n),
            pg: PgId(!n as u32),
            volume: VolumeId(n / 3),
            head: LayerId(n / 5),
            revision: !n,
        })),
        (any::<u64>(), proptest::collection::vec(0u64..1 << 62, 0..LAYERS_MAX)).prop_map(|(n, layers)| {
            Message::Layers(Layers {
                revision: n,
                heads: layers.iter().take(2).map(|layer| (VolumeId(n), LayerId(*layer))).collect(),
                parents: layers.into_iter().map(|layer| (LayerId(layer + 1 + n % 9), LayerId(layer))).collect(),
            })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn messages_survive_any_cut(
        messages in proptest::collection::vec(message(), 1..8),
        pieces in proptest::collection::vec(1usize..60_000, 1..8),
    ) {
        let mut expected = messages.clone();
        expected.sort_by_key(|message| !is_heartbeat(message));
        prop_assert_eq!(decode(&bytes_of(&messages), &pieces).unwrap(), expected);
    }

    #[test]
    fn a_flipped_bit_in_header_or_body_is_noticed(message in message(), at in any::<usize>(), bit in 0u8..8) {
        let mut bytes = bytes_of(std::slice::from_ref(&message));
        let body_len = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let at = at % (HEADER_SIZE + body_len);
        // The four bytes behind the checksum are reserved and not looked at.
        prop_assume!(!(20..24).contains(&at));
        bytes[at] ^= 1 << bit;
        match decode(&bytes, &[1 << 20]) {
            Err(_) => {}
            // A length that grew makes the decoder wait for bytes that never come.
            Ok(messages) => prop_assert!(messages.is_empty()),
        }
    }

}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..4096), kind in 0u8..64) {
        let _ = decode(&noise, &[100]);
        // With a valid header and checksum, so that the body's parser sees the noise.
        let _ = decode(&frame(kind, &noise), &[4096]);
    }
}

#[test]
fn another_protocol_is_named() {
    let error = decode(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", &[9]).unwrap_err();
    assert!(error.to_string().contains("not the Azekura node protocol"), "{error}");
}

/// The layout in docs/formats/wire.md, byte by byte: it must not change within a version.
#[test]
fn golden_prepare() {
    let header = WriteHeader {
        pg: PgId(0x0102_0304),
        epoch: Epoch(5),
        sequence: Sequence(6),
        commit: Sequence(7),
        session: SessionId(8),
        request: RequestId(9),
        range: BlockRange { layer: LayerId(10), chunk: ChunkIndex(11), first: BlockIndex(12), count: 1 },
    };
    let body = Body::Data { bytes: Bytes::from(vec![0xaa; 4096]), checksums: Checksum(0xdead_beef).into() };
    let message = Message::Prepare(Prepare { device: DeviceId(77), oldest: RequestId(8), header, body });
    let bytes = bytes_of(&[message]);
    let hex: String = bytes[..24 + 79].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden/prepare.hex").trim());
    assert_eq!(bytes.len(), 24 + 79 + 4096);
}

#[test]
fn golden_write_done() {
    let message = Message::WriteDone(WriteDone { pg: PgId(0x0102_0304), request: RequestId(9), result: Ok(()) });
    let hex: String = bytes_of(&[message]).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden/write_done.hex").trim());
}

#[test]
fn golden_learn() {
    let learn = Learn {
        pg: PgId(0x0102_0304),
        device: DeviceId(77),
        epoch: Epoch(5),
        since: Sequence(6),
        base: Sequence(7),
        note_checksum: Checksum(0xdead_beef),
        note: Bytes::from_static(&[1, 2, 3]),
    };
    let hex: String = bytes_of(&[Message::Learn(learn)]).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden/learn.hex").trim());
}

#[test]
fn a_note_of_any_length_within_the_limit_comes_whole() {
    let learn = |len: usize| {
        let note = Bytes::from((0..len).map(|i| i as u8).collect::<Vec<_>>());
        let (epoch, since, base) = (Epoch(5), Sequence(6), Sequence(7));
        Message::Learn(Learn {
            pg: PgId(1),
            device: DeviceId(77),
            epoch,
            since,
            base,
            note_checksum: checksum(&note),
            note,
        })
    };
    for len in [0, 1, 70_000, NOTE_SIZE_MAX] {
        assert_eq!(decode(&bytes_of(&[learn(len)]), &[40_000]).unwrap(), [learn(len)]);
    }
    assert!(decode(&bytes_of(&[learn(NOTE_SIZE_MAX + 1)]), &[40_000]).is_err());
}

#[test]
fn golden_fence() {
    let message = Message::Fence(Fence {
        request: RequestId(1),
        pg: PgId(0x0102_0304),
        volume: VolumeId(5),
        generation: Generation(9),
        attachments: vec![Generation(7), Generation(9)],
    });
    let hex: String = bytes_of(&[message]).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden/fence.hex").trim());
}

#[test]
fn golden_freeze() {
    let message = Message::Freeze(Freeze {
        request: RequestId(1),
        pg: PgId(0x0102_0304),
        volume: VolumeId(5),
        head: LayerId(10),
        revision: 0x0a0b,
    });
    let hex: String = bytes_of(&[message]).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden/freeze.hex").trim());
}

#[test]
fn golden_layers() {
    let message = Message::Layers(Layers {
        revision: 0x0a0b,
        heads: vec![(VolumeId(5), LayerId(12))],
        parents: vec![(LayerId(12), LayerId(10)), (LayerId(10), LayerId(3))],
    });
    let hex: String = bytes_of(&[message]).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden/layers.hex").trim());
}

#[test]
fn a_layer_that_lies_on_a_younger_one_is_refused() {
    let layers = Layers { revision: 1, heads: Vec::new(), parents: vec![(LayerId(3), LayerId(3))] };
    assert!(decode(&bytes_of(&[Message::Layers(layers)]), &[4096]).is_err());
}

#[test]
fn golden_compare() {
    let message = Message::Compare(Compare {
        pg: PgId(0x0102_0304),
        device: DeviceId(77),
        epoch: Epoch(5),
        id: 6,
        layer: LayerId(10),
        chunk: ChunkIndex(11),
        light: true,
        spans: (0..DIGEST_SPANS as u64).map(|span| span * 0x0101_0101_0101_0101).collect(),
    });
    let hex: String = bytes_of(&[message]).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden/compare.hex").trim());
}

#[test]
fn a_fence_ends_what_came_before_it_and_does_not_stand() {
    let fence = Fence {
        request: RequestId(1),
        pg: PgId(1),
        volume: VolumeId(5),
        generation: Generation(9),
        attachments: vec![Generation(7)],
    };
    let ends = |volume, attachment| fence.ends(VolumeId(volume), Generation(attachment));
    assert!(ends(5, 0) && ends(5, 6) && ends(5, 9));
    assert!(!ends(5, 7), "it stands");
    assert!(!ends(5, 10), "it is newer");
    assert!(!ends(4, 6), "another volume");
}
