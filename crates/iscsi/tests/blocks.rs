//! A volume with logical blocks of 4 KiB: what it says of itself, and that every command counts in them.
#![allow(clippy::unwrap_used)]

use crate::support::{Peer, VOLUME_BYTES, collect, command, login, read_10, write_10};
use azekura_base::LogicalBlock;
use azekura_frontend::PathState;
use azekura_iscsi::scsi::{Disk, Plan, Range, Use, plan};
use proptest::prelude::*;

const BLOCK: usize = 4096;
const BLOCKS: u32 = (VOLUME_BYTES / BLOCK) as u32;
const CHECK: u8 = 2;

fn peer() -> Peer {
    let mut peer = Peer::new();
    peer.block = LogicalBlock::Bytes4096;
    peer.log_in(login(1, 3), &[])
}

/// Sense key, code and qualifier.
fn why(sense: &[u8]) -> (u8, u8, u8) {
    (sense[2], sense[12], sense[13])
}

/// A command of 16 bytes: its opcode, first block, and number of blocks.
fn long(opcode: u8, first: u64, count: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..10].copy_from_slice(&first.to_be_bytes());
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    cdb
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[test]
fn capacities_and_limits_are_in_its_blocks() {
    let mut peer = peer();
    let (data, ..) = peer.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    assert_eq!(data, [(BLOCKS - 1).to_be_bytes(), 4096_u32.to_be_bytes()].concat());
    let (data, ..) = peer.read(&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32], 32);
    assert_eq!((number(&data[..8]), number(&data[8..12])), (u64::from(BLOCKS - 1), 4096));
    assert_eq!((data[13], number(&data[14..16])), (0, 0xc000), "one is a physical one; aligned; thin, with zeros");
    let limits = peer.read(&[0x12, 1, 0xb0, 1, 0, 0], 256).0;
    let said = [5..6, 6..8, 8..12, 12..16, 20..24, 24..28, 28..32, 32..36, 36..44].map(|at| number(&limits[at]));
    assert_eq!(said, [1, 1, 8192, 256, 131_072, 256, 0, 0, 8192]);
    for (cdb, at) in [(&[0x1a, 0, 0x08, 0, 255, 0][..], 4), (&[0x5a, 0, 0x08, 0, 0, 0, 0, 0, 255, 0], 8)] {
        let data = peer.read(cdb, 255).0;
        assert_eq!((number(&data[at..at + 4]), number(&data[at + 4..at + 8])), (u64::from(BLOCKS), 4096), "short");
    }
    let data = peer.read(&[0x5a, 0x10, 0x08, 0, 0, 0, 0, 0, 255, 0], 255).0;
    assert_eq!((data[4], number(&data[8..16]), number(&data[20..24])), (1, u64::from(BLOCKS), 4096), "long");
}

#[test]
fn mode_select_knows_its_block() {
    let mut peer = peer();
    let mut list = peer.read(&[0x1a, 0, 0x08, 0, 255, 0], 255).0;
    (list[0], list[2]) = (0, 0);
    let select = [0x15, 0x10, 0, 0, list.len() as u8, 0];
    assert_eq!(peer.write(&select, &list, list.len(), 512).0, 0);
    list[8..12].copy_from_slice(&512_u32.to_be_bytes());
    assert_eq!(why(&peer.write(&select, &list, list.len(), 512).1), (5, 0x26, 0), "it is not formatted anew");
}

#[test]
fn reads_and_writes_count_in_it() {
    let mut peer = peer();
    let data: Vec<u8> = (0..3 * BLOCK).map(|at| (at / 512 + 1) as u8).collect();
    assert_eq!(peer.write(&write_10(2, 3), &data, BLOCK, 512).0, 0);
    assert_eq!(peer.volume[..6 * BLOCK], [&[0; 2 * BLOCK][..], &data, &[0; BLOCK]].concat());
    for cdb in [&read_10(3, 1)[..], &[8, 0, 0, 3, 1, 0], &long(0x88, 3, 1), &[0xa8, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0]] {
        assert_eq!(peer.read(cdb, BLOCK as u32).0, data[BLOCK..2 * BLOCK], "{cdb:?}");
    }
    // READ(6) of "0" blocks is one of 256: 1 MiB.
    assert_eq!(peer.read(&[8, 0, 0, 0, 0, 0], 1 << 20).0.len(), 1 << 20);
    assert_eq!(peer.read(&read_10(BLOCKS - 1, 1), 4096).1, 0);
    for (first, count) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u32::MAX, 1)] {
        assert_eq!(why(&peer.read(&read_10(first, count), 8192).2), (5, 0x21, 0), "{first} {count}");
    }
    // Of data that is cut off, whole blocks are written.
    let cut = vec![9; BLOCK + 512];
    assert_eq!(peer.write(&write_10(8, 2), &cut, cut.len(), 512).0, 0);
    assert_eq!(peer.volume[8 * BLOCK..10 * BLOCK], [[9; BLOCK], [0; BLOCK]].concat());
}

#[test]
fn unmap_and_what_is_mapped_count_in_it() {
    let mut peer = peer();
    peer.volume.fill(7);
    let descriptor = |first: u64, count: u32| [&first.to_be_bytes()[..], &count.to_be_bytes(), &[0; 4]].concat();
    let list = [&[0, 38, 0, 32, 0, 0, 0, 0][..], &descriptor(1, 2), &descriptor(5, 1)].concat();
    assert_eq!(peer.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0], &list, 40, 512).0, 0);
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let zeros: Vec<bool> = peer.volume.chunks(BLOCK).take(8).map(is_zero).collect();
    assert_eq!(zeros, [false, true, true, false, false, true, false, false]);
    let mut status = long(0x9e, 1, 8 + 4 * 16);
    status[1] = 0x12;
    let (data, ..) = peer.read(&status, 256);
    let runs: Vec<_> = data[8..].chunks(16).map(|run| (number(&run[..8]), number(&run[8..12]), run[12])).collect();
    assert_eq!(runs, [(1, 1, 1), (2, 1, 1), (3, 1, 0), (4, 1, 0)], "as the volume in memory tells them, one by one");
    let beyond = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &descriptor(u64::from(BLOCKS), 1)].concat();
    assert_eq!(why(&peer.write(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &beyond, 24, 512).1), (5, 0x21, 0));
}

#[test]
fn patterns_and_what_is_compared_are_whole_blocks() {
    let mut peer = peer();
    let (six, seven) = (vec![6; BLOCK], vec![7; BLOCK]);
    let same = long(0x93, 3, 2);
    assert_eq!(peer.write(&same, &six, BLOCK, 512).0, 0);
    assert_eq!(peer.volume[2 * BLOCK..6 * BLOCK], [&[0; BLOCK][..], &six, &six, &[0; BLOCK]].concat());
    assert_eq!(why(&peer.write(&same, &[6; 512], 512, 512).1), (5, 0x24, 0), "512 bytes are no block");

    let mut compare = long(0x89, 3, 0);
    compare[13] = 1;
    assert_eq!(peer.write(&compare, &[&six[..], &seven].concat(), BLOCK, 512).0, 0);
    assert_eq!(peer.volume[3 * BLOCK..5 * BLOCK], [&seven[..], &six].concat());
    let mut almost = [&seven[..], &six].concat();
    almost[4000] = 1;
    let (status, sense) = peer.write(&compare, &almost, BLOCK, 512);
    assert_eq!((status, why(&sense), number(&sense[3..7])), (CHECK, (0xe, 0x1d, 0), 4000));
    compare[13] = 2;
    assert_eq!(why(&peer.write(&compare, &[0; 4 * BLOCK], BLOCK, 512).1), (5, 0x24, 0), "more than one block");

    let mut verify = long(0x8f, 4, 1);
    for (bytchk, data, result) in [(1, &six, (0, 0, 0)), (1, &seven, (0xe, 0x1d, 0)), (3, &six, (0, 0, 0))] {
        verify[1] = bytchk << 1;
        let (status, sense) = peer.write(&verify, data, BLOCK, 512);
        assert_eq!(if status == 0 { (0, 0, 0) } else { why(&sense) }, result, "{bytchk}");
    }
    assert_eq!(peer.write(&long(0x8b, 4, 1), &vec![1; BLOCK], BLOCK, 512).0, 0, "ORWRITE");
    assert_eq!(peer.volume[4 * BLOCK..6 * BLOCK], [&seven[..], &[0; BLOCK]].concat());
}

/// A volume does not change what it is counted in: a growing one is counted in the same blocks.
#[test]
fn a_volume_that_has_grown_is_counted_in_the_same_blocks() {
    struct Grown;
    impl azekura_frontend::Exports for Grown {
        fn find(&self, name: &str) -> Option<azekura_frontend::Export> {
            let export = azekura_frontend::Exports::find(&crate::support::One, name)?;
            let size = 2 * VOLUME_BYTES as u64;
            Some(azekura_frontend::Export { size, logical_block: LogicalBlock::Bytes4096, ..export })
        }
        fn listing(&self, _: &'static str, _: &azekura_frontend::MakeListing<'_>) -> azekura_frontend::Listing {
            None
        }
    }
    let mut peer = peer();
    for (cdb, expected) in [(&[0; 6][..], None), (&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Some(2 * BLOCKS - 1))] {
        let bhs = peer.command(&command(cdb, 8, 0, true));
        peer.queue(bhs, &[]);
        peer.run(&Grown);
        let (data, _, sense) = collect(&peer.received());
        match expected {
            Some(last) => assert_eq!(data, [last.to_be_bytes(), 4096_u32.to_be_bytes()].concat()),
            None => assert_eq!(why(&sense), (6, 0x2a, 9)),
        }
    }
}

fn disk(block: LogicalBlock, bytes: u64) -> Disk {
    Disk {
        name: "vol1".to_owned(),
        target: "iqn.2026-01.io.azekura:vol1".to_owned(),
        id: 7,
        block,
        blocks: bytes >> block.power(),
        is_read_only: false,
        reserves: false,
        compares: true,
        path: PathState::Optimized,
        port: 1,
    }
}

/// What a plan does to which bytes, whatever the size of a pattern is.
fn bytes_of(plan: Plan) -> Plan {
    match plan {
        Plan::Take(_, what @ (Use::Same(_) | Use::VerifySame(_))) => Plan::Take(0, what),
        plan => plan,
    }
}

proptest! {
    /// READ, WRITE, WRITE AND VERIFY, VERIFY, WRITE SAME, ORWRITE, PRE-FETCH and SYNCHRONIZE CACHE of 16 bytes: of so
    /// many blocks of 4 KiB from some on they do what they do of eight times as many from eight times as far.
    #[test]
    fn a_large_block_is_eight_small_ones(
        opcode in prop::sample::select(vec![0x88, 0x8a, 0x8e, 0x8f, 0x93, 0x8b, 0x90, 0x91_u8]),
        flags in prop::sample::select(vec![0, 0x01, 0x02, 0x06, 0x08, 0x10, 0x20_u8]),
        blocks in 1..1_u64 << 34,
        first in prop_oneof![0..1_u64 << 20, any::<u64>().prop_map(|first| first >> 4)],
        count in prop_oneof![0..20_000_u32, Just(131_072), Just(131_073), 0..1_u32 << 28],
    ) {
        let of = |block: LogicalBlock| {
            let more = 1 << block.physical_power();
            let mut cdb = long(opcode, first * more, count * more as u32);
            cdb[1] = flags;
            bytes_of(plan(&disk(block, blocks * 4096), [0; 8], &cdb))
        };
        prop_assert_eq!(of(LogicalBlock::Bytes4096), of(LogicalBlock::Bytes512));
    }

    /// Whatever bytes come, what they come to lies inside of the disk and on its blocks.
    #[test]
    fn all_that_is_planned_is_whole_blocks(cdb in any::<[u8; 16]>(), opcode in any::<u8>(), blocks in 1..1_u64 << 34) {
        let mut cdb = cdb;
        // Half of the time the first block is a small number.
        if cdb[15] & 1 == 0 {
            (cdb[0], cdb[1]) = (opcode, cdb[1] & 0x1f);
            cdb[2..8].fill(0);
        }
        let disk = disk(LogicalBlock::Bytes4096, blocks * 4096);
        let range = match plan(&disk, [0; 8], &cdb) {
            Plan::Read(range) | Plan::Scan(range) | Plan::Zero(range) | Plan::Cache(range) => range,
            Plan::Status(range, _) => range,
            Plan::Take(_, Use::Same(range) | Use::Verify(range) | Use::VerifySame(range)) => range,
            Plan::Take(len, Use::Write(offset) | Use::Or(offset)) => Range { offset, len: u64::from(len) },
            Plan::Take(len, Use::CompareAndWrite(offset)) => Range { offset, len: u64::from(len / 2) },
            _ => return Ok(()),
        };
        prop_assert!(range.offset.is_multiple_of(4096) && range.len.is_multiple_of(4096), "{range:?}");
        prop_assert!(range.offset + range.len <= blocks * 4096, "{range:?}");
    }
}
