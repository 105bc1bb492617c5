//! A namespace with logical blocks of 4 KiB.
#![allow(clippy::unwrap_used)]

use crate::support::host::*;
use azekura_base::LogicalBlock;
use azekura_frontend::Request;
use azekura_nvme::command::io::{Blocks, Flags, Io, Range};
use azekura_nvme::command::{Command, Entry, Sgl};
use azekura_nvme::pdu::{Digests, Pdu};
use azekura_nvme::{Controllers, Status};
use std::sync::Arc;

const BLOCK: usize = 4096;
const BLOCKS: u64 = (VOLUME_BYTES / BLOCK) as u64;

/// An admin queue and an I/O queue of such a volume.
fn queues() -> (Host, Host) {
    let controllers = Arc::new(Controllers::new(1));
    let connected = |queue, size, controller| {
        let mut host = Host::new(&controllers, Digests::default());
        host.one.block.set(LogicalBlock::Bytes4096);
        let (done, _) = host.connect(queue, size, controller, 0, SUBSYSTEM);
        assert_eq!(done.status, Status::SUCCESS);
        host.events.clear();
        (host, done.result as u16)
    };
    let (mut admin, id) = connected(0, 31, 0xffff);
    admin.enable();
    (admin, connected(1, 127, id).0)
}

fn blocks(first: u64, count: u32) -> Blocks {
    Blocks { namespace: 1, first, count }
}

fn write(first: u64, count: u32) -> Command {
    Command::Io(Io::Write(blocks(first, count), Flags::default()))
}

fn read(first: u64, count: u32) -> Command {
    Command::Io(Io::Read(blocks(first, count), Flags::default()))
}

#[test]
fn the_namespace_says_so() {
    let (mut admin, _io) = queues();
    let data = admin.ask(&identify(0, 1), Vec::new(), 4096).1;
    let number = |at: usize, len: usize| data[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    assert_eq!((number(0, 8), number(8, 8), number(16, 8)), (BLOCKS, BLOCKS, BLOCKS), "NSZE, NCAP, NUSE");
    assert_eq!((data[25], data[26]), (0, 0), "one LBA format, and it is this one");
    assert_eq!((number(128, 2), data[130], number(48, 8)), (0, 12, VOLUME_BYTES as u64), "MS, LBADS, NVMCAP");
    assert_eq!([64, 66, 68, 70].map(|at| number(at, 2)), [0; 4], "one block is as good as many");
}

#[test]
fn commands_count_in_it() {
    let (_admin, mut io) = queues();
    let data: Vec<u8> = (0..2 * BLOCK).map(|at| (at / 512 + 1) as u8).collect();
    assert_eq!(io.ask(&write(3, 2), data.clone(), 0).0.status, Status::SUCCESS);
    assert_eq!(io.volume[2 * BLOCK..6 * BLOCK], [&[0; BLOCK][..], &data, &[0; BLOCK]].concat());
    assert_eq!(io.ask(&read(4, 1), Vec::new(), BLOCK as u32).1, data[BLOCK..]);
    assert_eq!(io.ask(&read(4, 1), Vec::new(), 512).0.status, Status::SGL_LENGTH_INVALID);
    assert_eq!(io.ask(&read(BLOCKS - 1, 1), Vec::new(), BLOCK as u32).0.status, Status::SUCCESS);
    for (first, count) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (1 << 52, 1)] {
        let status = io.ask(&read(first, count), Vec::new(), count * BLOCK as u32).0.status;
        assert_eq!(status, Status::LBA_OUT_OF_RANGE, "{first} {count}");
    }
    let compare = |first, byte| (Command::Io(Io::Compare(blocks(first, 1), Flags::default())), vec![byte; BLOCK]);
    let (same, other) = (compare(5, 0), compare(5, 1));
    assert_eq!(io.ask(&same.0, same.1, 0).0.status, Status::SUCCESS);
    assert_eq!(io.ask(&other.0, other.1, 0).0.status, Status::COMPARE_FAILURE);
    // 256 blocks are as long as a transfer may be.
    assert_eq!(io.ask(&read(0, 256), Vec::new(), 1 << 20).0.status, Status::SUCCESS);
    assert_eq!(io.ask(&read(0, 257), Vec::new(), 257 * BLOCK as u32).0.status, Status::INVALID_FIELD);
}

#[test]
fn zeros_and_discards_count_in_it() {
    let (_admin, mut io) = queues();
    io.volume.fill(7);
    let zeroes = Command::Io(Io::WriteZeroes(blocks(1, 2), Flags::default()));
    assert_eq!(io.ask(&zeroes, Vec::new(), 0).0.status, Status::SUCCESS);
    let ranges = [Range { first: 4, count: 1 }, Range { first: BLOCKS - 1, count: 1 }];
    let deallocate = Command::Io(Io::DatasetManagement { namespace: 1, ranges: 2, deallocates: true });
    let data: Vec<u8> = ranges.iter().flat_map(Range::bytes).collect();
    assert_eq!(io.ask(&deallocate, data, 0).0.status, Status::SUCCESS);
    let zeros = io.volume.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().all(|byte| *byte == 0));
    assert_eq!(zeros.map(|(at, _)| at as u64).collect::<Vec<_>>(), [1, 2, 4, BLOCKS - 1]);
    assert!(io.volume.chunks(BLOCK).all(|block| block.iter().all(|byte| *byte == block[0])), "whole blocks");
    let beyond = Range { first: BLOCKS, count: 1 }.bytes().to_vec();
    let deallocate = Command::Io(Io::DatasetManagement { namespace: 1, ranges: 1, deallocates: true });
    assert_eq!(io.ask(&deallocate, beyond, 0).0.status, Status::LBA_OUT_OF_RANGE);
    // Verify reads them.
    io.hold = true;
    io.command(&Command::Io(Io::Verify(blocks(2, 3), Flags::default())), &[], 0);
    let asked: Vec<Request> = io.held.iter().map(|(_, request)| request.clone()).collect();
    assert_eq!(asked, [Request::Read { offset: 2 * BLOCK as u64, len: 3 * BLOCK as u64 }]);
}

#[test]
fn one_block_is_compared_and_written() {
    let (_admin, mut io) = queues();
    let mut fused = |count: u32, expected: u8, byte: u8| {
        let len = count as usize * BLOCK;
        let compare = Command::Io(Io::Compare(blocks(9, count), Flags::default()));
        for (fuse, command, byte) in [(1, compare, expected), (2, write(9, count), byte)] {
            let (id, sgl) = (io.next_id(), Sgl::InCapsule { offset: 0, len: len as u32 });
            let Entry(mut entry) = command.entry(id, &sgl);
            entry[1] |= fuse;
            io.send(&Pdu::Command(entry), &vec![byte; len]);
        }
        let statuses: Vec<Status> = io.completions().iter().map(|done| done.status).collect();
        (statuses, io.volume[9 * BLOCK])
    };
    assert_eq!(fused(1, 0, 5), (vec![Status::SUCCESS; 2], 5));
    assert_eq!(fused(1, 0, 6), (vec![Status::COMPARE_FAILURE, Status::FUSED_FAILED], 5));
    assert_eq!(fused(2, 5, 6), (vec![Status::INVALID_FIELD, Status::FUSED_FAILED], 5), "more than are one");
}

#[test]
fn a_volume_that_has_grown_is_counted_in_the_same_blocks() {
    let (mut admin, mut io) = queues();
    for host in [&admin, &io] {
        host.one.size.set(2 * VOLUME_BYTES as u64);
    }
    // The volume in memory is as it was: the request is looked at, and not performed.
    io.hold = true;
    io.command(&read(BLOCKS, 1), &[], BLOCK as u32);
    let asked: Vec<Request> = io.held.iter().map(|(_, request)| request.clone()).collect();
    assert_eq!(asked, [Request::Read { offset: VOLUME_BYTES as u64, len: BLOCK as u64 }]);
    let data = admin.ask(&identify(0, 1), Vec::new(), 4096).1;
    assert_eq!(data[..8], (2 * BLOCKS).to_le_bytes());
}
