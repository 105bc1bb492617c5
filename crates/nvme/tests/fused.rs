//! Compare, and Compare and Write as two fused commands (NVM sections 3.2.1 and 3.2.7).
#![allow(clippy::unwrap_used)]

use crate::support::host::*;
use azekura_frontend::{Event, Request};
use azekura_nvme::command::io::{Flags, Io};
use azekura_nvme::command::{Command, Entry, Sgl};
use azekura_nvme::pdu::reader::Received;
use azekura_nvme::pdu::{Digests, Pdu};
use azekura_nvme::{Controllers, Status};
use std::sync::Arc;

const NO: u8 = 0;
const FIRST: u8 = 1;
const SECOND: u8 = 2;

/// An I/O queue, with the admin queue that keeps its controller.
fn queue() -> (Host, Host) {
    let controllers = Arc::new(Controllers::new(1));
    let (admin, id) = Host::admin(&controllers);
    let io = Host::io(&controllers, id, 1, Digests::default());
    (admin, io)
}

fn compare(first: u64, len: usize) -> Command {
    Command::Io(Io::Compare(blocks(first, len), Flags::default()))
}

/// Sends a command as a part of a fused operation; its data is in its capsule, or is to be asked for.
fn part(host: &mut Host, fuse: u8, command: &Command, data: &[u8], is_asked: bool) -> u16 {
    let (id, len) = (host.next_id(), data.len() as u32);
    let sgl = if is_asked { Sgl::Transport { len } } else { Sgl::InCapsule { offset: 0, len } };
    let Entry(mut entry) = command.entry(id, &sgl);
    entry[1] |= fuse;
    host.send(&Pdu::Command(entry), if is_asked { &[] } else { data });
    id
}

/// How commands were completed, by their numbers, in order.
fn completed(host: &mut Host) -> Vec<(u16, Status)> {
    host.completions().iter().map(|done| (done.command, done.status)).collect()
}

#[test]
fn a_block_is_replaced_where_it_is_as_expected() {
    let (_admin, mut io) = queue();
    let first = part(&mut io, FIRST, &compare(3, 512), &[0; 512], false);
    assert!(io.received().is_empty() && io.rooms.is_empty(), "it waits for its second, without memory");
    let second = part(&mut io, SECOND, &write(3, 512), &[7; 512], false);
    assert_eq!(completed(&mut io), [(first, Status::SUCCESS), (second, Status::SUCCESS)]);
    assert_eq!(io.volume[..5 * 512], [&[0; 3 * 512][..], &[7; 512], &[0; 512]].concat());
    let first = part(&mut io, FIRST, &compare(3, 512), &[0; 512], false);
    let second = part(&mut io, SECOND, &write(3, 512), &[8; 512], false);
    assert_eq!(completed(&mut io), [(first, Status::COMPARE_FAILURE), (second, Status::FUSED_FAILED)]);
    assert_eq!(io.volume[3 * 512..4 * 512], [7; 512]);
    assert!(io.rooms.is_empty(), "all memory has become requests");
}

#[test]
fn data_of_both_is_asked_for_in_any_order() {
    for is_late in [false, true] {
        let (_admin, mut io) = queue();
        let first = part(&mut io, FIRST, &compare(0, 512), &[0; 512], true);
        let second = part(&mut io, SECOND, &write(0, 512), &[9; 512], true);
        let asked = io.received();
        let [Received { pdu: Pdu::ReadyToTransfer(one), .. }, Received { pdu: Pdu::ReadyToTransfer(two), .. }] =
            asked[..]
        else {
            panic!("{asked:?}")
        };
        assert_eq!((one.command, two.command), (first, second));
        let mut parts = [(one, [0; 512]), (two, [9; 512])];
        if is_late {
            parts.reverse();
        }
        for (r2t, data) in parts {
            assert!(io.received().is_empty());
            io.transfer(&r2t, &data, 100);
        }
        assert_eq!(completed(&mut io), [(first, Status::SUCCESS), (second, Status::SUCCESS)]);
        assert_eq!(io.volume[..512], [9; 512]);
    }
}

#[test]
fn what_is_not_fused_as_it_should_be_is_told() {
    let (_admin, mut io) = queue();
    let first = part(&mut io, FIRST, &compare(0, 512), &[0; 512], false);
    let other = part(&mut io, NO, &write(8, 512), &[1; 512], false);
    assert_eq!(completed(&mut io), [(first, Status::FUSED_MISSING), (other, Status::SUCCESS)]);
    let second = part(&mut io, SECOND, &write(0, 512), &[1; 512], false);
    assert_eq!(completed(&mut io), [(second, Status::FUSED_MISSING)]);
    // Two firsts.
    let one = part(&mut io, FIRST, &compare(0, 512), &[0; 512], false);
    let two = part(&mut io, FIRST, &compare(0, 512), &[0; 512], false);
    let three = part(&mut io, SECOND, &write(0, 512), &[2; 512], false);
    let done = [(one, Status::FUSED_MISSING), (two, Status::SUCCESS), (three, Status::SUCCESS)];
    assert_eq!(completed(&mut io), done);
    // Other blocks.
    let first = part(&mut io, FIRST, &compare(0, 512), &[2; 512], false);
    let second = part(&mut io, SECOND, &write(1, 512), &[3; 512], false);
    assert_eq!(completed(&mut io), [(first, Status::FUSED_FAILED), (second, Status::INVALID_FIELD)]);
    // More blocks than are one.
    let first = part(&mut io, FIRST, &compare(0, 1024), &[2; 1024], false);
    let second = part(&mut io, SECOND, &write(0, 1024), &[3; 1024], false);
    assert_eq!(completed(&mut io), [(first, Status::INVALID_FIELD), (second, Status::FUSED_FAILED)]);
    // A first one outside of the volume.
    let first = part(&mut io, FIRST, &compare(1 << 40, 512), &[2; 512], false);
    let second = part(&mut io, SECOND, &write(0, 512), &[3; 512], false);
    assert_eq!(completed(&mut io), [(first, Status::LBA_OUT_OF_RANGE), (second, Status::FUSED_FAILED)]);
    // Other commands.
    for (fuse, command) in [(FIRST, write(0, 512)), (SECOND, compare(0, 512))] {
        let id = part(&mut io, fuse, &command, &[2; 512], false);
        let told = completed(&mut io);
        assert!(matches!(told[..], [(done, why)] if done == id && why != Status::SUCCESS), "{told:?}");
    }
    assert_eq!(io.volume[..512], [2; 512]);
    let first = part(&mut io, FIRST, &compare(0, 512), &[2; 512], false);
    let second = part(&mut io, SECOND, &write(0, 512), &[4; 512], false);
    assert_eq!(completed(&mut io), [(first, Status::SUCCESS), (second, Status::SUCCESS)], "the queue goes on");
    assert!(!io.events.iter().any(|event| matches!(event, Event::Violation(_))), "{:?}", io.events);
}

#[test]
fn a_compare_reads_and_changes_nothing() {
    let (_admin, mut io) = queue();
    let data: Vec<u8> = (0..4096).map(|at| at as u8).collect();
    io.volume[4096..8192].copy_from_slice(&data);
    assert_eq!(io.ask(&compare(8, 4096), data.clone(), 0).0.status, Status::SUCCESS);
    let mut other = data.clone();
    other[4095] ^= 1;
    assert_eq!(io.ask(&compare(8, 4096), other, 0).0.status, Status::COMPARE_FAILURE);
    assert_eq!(io.volume[4096..8192], data);
    io.hold = true;
    io.command(&compare(8, 4096), &data, 0);
    assert!(matches!(io.held.front(), Some((_, Request::Read { offset: 4096, len: 4096 }))), "{:?}", io.held);
}
