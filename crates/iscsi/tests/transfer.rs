//! Commands, their data and their order in the full feature phase.
#![allow(clippy::unwrap_used)]

use crate::support::{Peer, collect, command, data_out, read_10, write_10};
use azekura_frontend::Event;
use azekura_iscsi::pdu::initiator::{LOGOUT, NOP_OUT, SNACK, TASK_MANAGEMENT};
use azekura_iscsi::pdu::target::{LOGOUT_RESPONSE, NOP_IN, R2T, REJECT, SCSI_RESPONSE, TASK_MANAGEMENT_RESPONSE};
use azekura_iscsi::pdu::{Bhs, NO_TAG};
use proptest::prelude::*;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 512 + seed) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever was agreed on, what was written is read.
    #[test]
    fn data_goes_both_ways(burst in 512..100_000_u32, first_burst in 512..100_000_u32, segment in 512..20_000_usize,
        send_segment in 512..20_000_u32, blocks in 1..300_u16, immediate in any::<u32>(), digests in any::<bool>(),
        piece in 1..5000_usize) {
        let digest = if digests { "CRC32C" } else { "None" };
        let (burst, first_burst) = (burst.to_string(), first_burst.min(burst).to_string());
        let mut peer = Peer::logged_in(&[("MaxBurstLength", &burst), ("FirstBurstLength", &first_burst),
            ("MaxRecvDataSegmentLength", &send_segment.to_string()), ("ImmediateData", "Yes"),
            ("HeaderDigest", digest), ("DataDigest", digest)]);
        peer.piece = piece;
        let data = pattern(usize::from(blocks) * 512, 3);
        let most = data.len().min(first_burst.parse().unwrap()).min(65_536);
        let immediate = immediate as usize % (most + 1);
        prop_assert_eq!(peer.write(&write_10(40, blocks), &data, immediate, segment).0, 0);
        prop_assert_eq!(&peer.volume[40 * 512..][..data.len()], &data[..]);
        let (read, status, _) = peer.read(&read_10(40, blocks), data.len() as u32);
        prop_assert_eq!((status, read), (0, data));
        prop_assert!(peer.events.is_empty(), "{:?}", peer.events);
    }

    /// Bytes that make no sense end the connection, or are refused.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400), opcode in 0..64_u8,
        is_logged_in in any::<bool>(), is_short in any::<bool>()) {
        let mut peer = if is_logged_in { Peer::logged_in(&[("InitialR2T", "No")]) } else { Peer::new() };
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = opcode | 0x40;
        }
        if is_short && bytes.len() >= 8 {
            bytes[4..8].copy_from_slice(&[0, 0, 0, 16]);
        }
        peer.send_bytes(&bytes);
        peer.received();
    }

    /// A header that is right but for one byte of it does no harm.
    #[test]
    fn any_command_is_survived(cdb in any::<[u8; 16]>(), opcode in 0..35_usize, room in 0..5000_u32,
        data in proptest::collection::vec(any::<u8>(), 0..600), is_read in any::<bool>()) {
        const OPCODES: [u8; 35] = [0, 3, 8, 0xa, 0x12, 0x15, 0x1a, 0x1b, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x41,
            0x42, 0x55, 0x5a, 0x88, 0x8a, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xae, 0xaf, 0x89,
            0x83];
        let mut peer = Peer::logged_in(&[]);
        let mut cdb = cdb;
        cdb[0] = OPCODES[opcode];
        // Most addresses are far out of range: let half of them be near.
        if cdb[15] & 1 == 0 {
            cdb[2..6].fill(0);
        }
        if is_read {
            peer.read(&cdb, room);
        } else {
            peer.write(&cdb, &data, data.len(), 512);
        }
        prop_assert!(peer.events.is_empty(), "{:?}", peer.events);
        prop_assert_eq!(peer.read(&[0, 0, 0, 0, 0, 0], 0).1, 0, "the session goes on");
    }
}

#[test]
fn unsolicited_data_comes_without_being_asked_for() {
    let mut peer = Peer::logged_in(&[("InitialR2T", "No"), ("FirstBurstLength", "4096")]);
    let data = pattern(8192, 1);
    let bhs = peer.command(&command(&write_10(0, 16), 0, 8192, false));
    assert!(peer.exchange(bhs, &data[..1024]).is_empty(), "the rest of the first burst is to come");
    assert!(peer.exchange(data_out(77, NO_TAG, 0, 1024, false), &data[1024..2048]).is_empty());
    let pdus = peer.exchange(data_out(77, NO_TAG, 1, 2048, true), &data[2048..4096]);
    assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.u32(40), pdus[0].bhs.u32(44)), (R2T, 4096, 4096));
    let pdus = peer.data_out(77, pdus[0].bhs.u32(20), 4096, &data[4096..], 1000);
    assert_eq!(collect(&pdus).1, 0);
    assert_eq!(peer.volume[..8192], data);
}

#[test]
fn data_that_was_not_asked_for_ends_the_session() {
    for tag in [9, NO_TAG] {
        let mut peer = Peer::logged_in(&[]);
        let bhs = peer.command(&command(&write_10(0, 4), 0, 2048, true));
        assert_eq!(peer.exchange(bhs, &[])[0].bhs.opcode(), R2T);
        peer.exchange(data_out(77, tag, 0, 0, false), &[1; 512]);
        assert!(matches!(peer.events[..], [Event::Violation(_)]), "{tag}");
        assert!(peer.volume.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn data_in_another_order_fails_its_command() {
    // DataSN and offset of two PDUs.
    for order in [[(0, 0), (0, 1024)], [(1, 0), (0, 1024)], [(0, 1024), (1, 0)], [(0, 0), (27, 1024)], [(0, 0), (1, 0)]]
    {
        let mut peer = Peer::logged_in(&[]);
        let bhs = peer.command(&command(&write_10(0, 4), 0, 2048, true));
        assert_eq!(peer.exchange(bhs, &[])[0].bhs.opcode(), R2T);
        let [first, second] = order.map(|(data_sn, offset)| data_out(77, 0, data_sn, offset, false));
        assert!(peer.exchange(first, &[1; 1024]).is_empty(), "{order:?}: the rest of the sequence is to come");
        let mut second = second;
        second.0[1] = 0x80;
        let (_, status, sense) = collect(&peer.exchange(second, &[1; 1024]));
        assert_eq!((status, sense[2], sense[12]), (2, 0xb, 0x4b), "{order:?}");
        assert!(peer.volume.iter().all(|byte| *byte == 0) && peer.rooms.is_empty());
        assert_eq!(peer.read(&[0, 0, 0, 0, 0, 0], 0).1, 0, "the session goes on");
    }
}

#[test]
fn commands_are_carried_out_in_the_order_of_their_numbers() {
    let mut peer = Peer::logged_in(&[]);
    let first = peer.command(&command(&write_10(0, 1), 0, 512, true));
    let second = peer.command(&crate::support::command(&write_10(0, 1), 0, 512, true));
    let mut second = second;
    second.put_u32(16, 78);
    assert!(peer.exchange(second, &[2; 512]).is_empty(), "it waits for the one before");
    assert!(peer.exchange(second, &[3; 512]).is_empty(), "what comes twice is ignored");
    assert_eq!(peer.exchange(first, &[1; 512]).len(), 2);
    assert_eq!(peer.volume[..512], [2; 512]);
    for cmd_sn in [0, 11, 12 + 128, 1 << 31] {
        let mut outside = second;
        outside.put_u32(24, cmd_sn);
        assert!(peer.exchange(outside, &[4; 512]).is_empty(), "{cmd_sn} is outside of the window");
    }
    assert_eq!(peer.volume[..512], [2; 512]);
}

#[test]
fn the_window_closes_while_tasks_are_under_way_and_opens_again() {
    let mut peer = Peer::logged_in(&[]);
    peer.hold = true;
    for itt in 0..128 {
        let mut bhs = peer.command(&command(&read_10(0, 1), 512, 0, true));
        bhs.put_u32(16, itt);
        assert!(peer.exchange(bhs, &[]).is_empty());
    }
    let mut late = peer.command(&command(&read_10(0, 1), 512, 0, true));
    late.put_u32(16, 500);
    peer.exchange(late, &[]);
    assert_eq!(peer.held.len(), 128, "a command too many is ignored");
    peer.let_go();
    let pdus = peer.received();
    assert_eq!(pdus.len(), 128);
    let last = pdus.last().unwrap();
    assert_eq!(last.bhs.u32(32).wrapping_sub(last.bhs.u32(28)), 127, "all places are free");
    peer.hold = false;
    assert_eq!(peer.exchange(late, &[]).len(), 1);
}

#[test]
fn what_waits_for_memory_lets_data_come() {
    let mut peer = Peer::logged_in(&[]);
    let first = peer.command(&command(&write_10(0, 8), 0, 4096, true));
    let r2t = peer.exchange(first, &[]);
    // The write has its memory; from now on nobody gets any.
    peer.has_room = false;
    let mut second = peer.command(&command(&read_10(0, 8), 4096, 0, true));
    second.put_u32(16, 78);
    assert!(peer.exchange(second, &[]).is_empty());
    let pdus = peer.data_out(77, r2t[0].bhs.u32(20), 0, &[5; 4096], 1024);
    assert_eq!(collect(&pdus).1, 0);
    peer.has_room = true;
    peer.run(&crate::support::One);
    assert_eq!(collect(&peer.received()).0, [5; 4096]);
}

/// A write of two blocks that comes with its data.
fn with_data(peer: &mut Peer, itt: u32, byte: u8) -> Vec<azekura_iscsi::pdu::reader::Pdu> {
    let mut bhs = peer.command(&command(&write_10(8, 2), 0, 1024, true));
    bhs.put_u32(16, itt);
    peer.exchange(bhs, &[byte; 1024])
}

#[test]
fn data_that_nobody_asked_for_is_not_taken_before_there_is_memory() {
    let mut peer = Peer::logged_in(&[]);
    peer.has_room = false;
    assert!(with_data(&mut peer, 78, 6).is_empty());
    assert!(!azekura_frontend::StreamProtocol::wants_bytes(&peer.conn), "nothing more is received");
    assert!(azekura_frontend::Protocol::wants_room(&peer.conn).is_some_and(|bytes| bytes > 1024));
    peer.has_room = true;
    peer.run(&crate::support::One);
    assert_eq!(collect(&peer.received()).1, 0);
    assert_eq!(peer.volume[8 * 512..10 * 512], [6; 1024]);
}

#[test]
fn a_command_without_memory_is_not_in_the_way_of_data_that_was_asked_for() {
    for digest in ["None", "CRC32C"] {
        let mut peer = Peer::logged_in(&[("DataDigest", digest)]);
        let first = peer.command(&command(&write_10(0, 8), 0, 4096, true));
        let r2t = peer.exchange(first, &[]);
        peer.has_room = false;
        let pdus = with_data(&mut peer, 78, 6);
        assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.0[3]), (SCSI_RESPONSE, 0x28), "TASK SET FULL");
        let pdus = peer.data_out(77, r2t[0].bhs.u32(20), 0, &[5; 4096], 1024);
        assert_eq!(collect(&pdus).1, 0);
        assert_eq!(peer.volume[..10 * 512], [[5; 4096].as_slice(), &[0; 1024]].concat());
        peer.has_room = true;
        assert_eq!(with_data(&mut peer, 78, 6)[0].bhs.0[3], 0, "the initiator tries again");
        assert!(peer.rooms.is_empty());
    }
}

/// Its tag is another command's when its header comes, so that its data is dropped; and free when all of it has come.
#[test]
fn a_command_whose_data_was_dropped_is_to_come_again() {
    let mut peer = Peer::logged_in(&[]);
    peer.hold = true;
    let read = peer.command(&command(&read_10(0, 8), 4096, 0, true));
    assert!(peer.exchange(read, &[]).is_empty());
    let mut write = peer.command(&command(&write_10(8, 2), 0, 1024, true));
    write.put(5, &[0, 4, 0]);
    let bytes = [write.0.as_slice(), &[6; 1024]].concat();
    peer.send_bytes(&bytes[..100]);
    peer.let_go();
    assert_eq!(collect(&peer.received()).1, 0);
    peer.send_bytes(&bytes[100..]);
    peer.let_go();
    let pdus = peer.received();
    assert_eq!((pdus.len(), pdus[0].bhs.opcode(), pdus[0].bhs.0[3]), (1, SCSI_RESPONSE, 0x08), "BUSY");
    assert_eq!(peer.volume, vec![0; peer.volume.len()]);
    peer.hold = false;
    assert_eq!(with_data(&mut peer, 77, 6)[0].bhs.0[3], 0);
    assert!(peer.rooms.is_empty());
}

#[test]
fn several_tasks_have_data_on_its_way() {
    let mut peer = Peer::logged_in(&[]);
    let mut asked = Vec::new();
    for itt in 0..3 {
        let mut bhs = peer.command(&command(&write_10(itt * 8, 8), 0, 4096, true));
        bhs.put_u32(16, itt);
        asked.extend(peer.exchange(bhs, &[]));
    }
    assert_eq!(asked.iter().map(|pdu| pdu.bhs.opcode()).collect::<Vec<_>>(), [R2T; 3]);
    for r2t in asked.iter().rev() {
        let itt = r2t.bhs.itt();
        assert_eq!(collect(&peer.data_out(itt, r2t.bhs.u32(20), 0, &[itt as u8 + 1; 4096], 512)).1, 0);
    }
    assert_eq!(peer.volume[..3 * 4096], [[1; 4096], [2; 4096], [3; 4096]].concat());
}

#[test]
fn large_tasks_have_their_data_come_one_after_the_other_and_reads_pass_them() {
    let mut peer = Peer::logged_in(&[]);
    let large = |peer: &mut Peer, itt| {
        let mut bhs = peer.command(&command(&write_10(0, 6144), 0, 3 << 20, true));
        bhs.put_u32(16, itt);
        peer.exchange(bhs, &[])
    };
    assert_eq!(large(&mut peer, 1)[0].bhs.opcode(), R2T);
    assert!(large(&mut peer, 2).is_empty());
    assert_eq!(peer.read(&read_10(0, 1), 512).1, 0);
    let pdus = peer.exchange(function(1, 1, 0), &[]);
    assert_eq!((pdus[0].bhs.opcode(), pdus[1].bhs.opcode()), (TASK_MANAGEMENT_RESPONSE, R2T), "the next one");
    assert_eq!(peer.rooms.len(), 1);
}

#[test]
fn requests_out_of_order_take_little_memory() {
    let mut peer = Peer::logged_in(&[("ImmediateData", "Yes")]);
    peer.cmd_sn += 1;
    for itt in 0..2 {
        let mut bhs = peer.command(&command(&write_10(0, 80), 0, 40_960, true));
        bhs.put_u32(16, itt);
        assert!(peer.exchange(bhs, &[1; 40_960]).is_empty());
    }
    assert!(matches!(&peer.events[..], [Event::Violation(text)] if text.contains("lower")), "{:?}", peer.events);
}

#[test]
fn who_does_not_take_answers_is_not_listened_to() {
    let mut peer = Peer::logged_in(&[]);
    let mut ping = Bhs::new(NOP_OUT | 0x40);
    (ping.0[1], ping.0[19]) = (0x80, 5);
    for _ in 0..100 {
        peer.send(ping, &[1; 65_536]);
    }
    let waiting = azekura_frontend::StreamProtocol::outbox_mut(&mut peer.conn).len();
    assert!((256 << 10..320 << 10).contains(&waiting), "{waiting} bytes wait");
    assert!(peer.received().len() < 40);
    peer.run(&crate::support::One);
    assert_eq!(peer.exchange(ping, &[1; 8]).last().map(|pdu| pdu.data.len()), Some(8));
}

fn function(function: u8, itt: u32, cmd_sn: u32) -> Bhs {
    let mut bhs = Bhs::new(TASK_MANAGEMENT | 0x40);
    bhs.0[1] = 0x80 | function;
    bhs.put_u32(16, 900);
    bhs.put_u32(20, itt);
    bhs.put_u32(32, cmd_sn);
    bhs
}

#[test]
fn an_aborted_write_that_is_under_way_is_over_before_the_abort_is_answered() {
    for what in [1, 2, 5, 6] {
        let mut peer = Peer::logged_in(&[]);
        peer.hold = true;
        let bhs = peer.command(&command(&write_10(0, 1), 0, 512, true));
        assert!(peer.exchange(bhs, &[1; 512]).is_empty());
        assert!(peer.exchange(function(what, 77, 0), &[]).is_empty(), "the write may still land");
        peer.let_go();
        let pdus = peer.received();
        assert_eq!(pdus.len(), 1, "the task itself has no answer");
        assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.itt(), pdus[0].bhs.0[2]), (TASK_MANAGEMENT_RESPONSE, 900, 0));
    }
}

#[test]
fn an_aborted_write_whose_data_has_not_come_never_lands() {
    let mut peer = Peer::logged_in(&[]);
    let bhs = peer.command(&command(&write_10(0, 8), 0, 4096, true));
    let r2t = peer.exchange(bhs, &[]);
    let pdus = peer.exchange(function(1, 77, 0), &[]);
    assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.0[2]), (TASK_MANAGEMENT_RESPONSE, 0));
    assert!(peer.data_out(77, r2t[0].bhs.u32(20), 0, &[1; 4096], 4096).is_empty(), "its data is dropped");
    assert_eq!(peer.read(&read_10(0, 8), 4096).0, [0; 4096]);
    let answers =
        [function(1, 5, 0), function(8, 5, 0), function(3, 5, 0)].map(|bhs| peer.exchange(bhs, &[])[0].bhs.0[2]);
    assert_eq!(answers, [1, 4, 5], "no such task; no reassignment; not supported");
    let mut elsewhere = function(5, 0, 0);
    elsewhere.0[9] = 1;
    assert_eq!(peer.exchange(elsewhere, &[])[0].bhs.0[2], 2, "no such logical unit");
}

#[test]
fn who_resets_the_unit_is_told_so_by_its_next_command() {
    for what in [5, 6] {
        let mut peer = Peer::logged_in(&[]);
        assert_eq!(peer.exchange(function(what, 0, 0), &[])[0].bhs.0[2], 0);
        assert_eq!(peer.read(&[0x12, 0, 0, 0, 36, 0], 36).1, 0, "INQUIRY does not mind");
        let (_, status, sense) = peer.read(&read_10(0, 1), 512);
        assert_eq!((status, sense[2], sense[12], sense[13]), (2, 6, 0x29, 3));
        assert_eq!(peer.read(&read_10(0, 1), 512).1, 0, "once");
    }
}

#[test]
fn residual_counts_tell_what_was_too_long_or_too_short() {
    let mut peer = Peer::logged_in(&[]);
    let residual = |bhs: &Bhs| (bhs.0[1] & 6, bhs.u32(44));
    let bhs = peer.command(&command(&read_10(0, 1), 1024, 0, true));
    assert_eq!(residual(&peer.exchange(bhs, &[])[0].bhs), (2, 512));
    let bhs = peer.command(&command(&read_10(0, 2), 512, 0, true));
    let pdus = peer.exchange(bhs, &[]);
    assert_eq!((residual(&pdus[0].bhs), pdus[0].data.len()), ((4, 512), 512));
    let bhs = peer.command(&command(&write_10(0, 2), 0, 512, true));
    let pdus = peer.exchange(bhs, &[9; 512]);
    assert_eq!((pdus[0].bhs.opcode(), residual(&pdus[0].bhs)), (SCSI_RESPONSE, (4, 512)));
    assert_eq!(peer.volume[..1024], [[9; 512], [0; 512]].concat(), "only what came is written");
    let bhs = peer.command(&command(&write_10(0, 1), 0, 1024, true));
    let pdus = peer.exchange(bhs, &[8; 1024]);
    assert_eq!(residual(&pdus[0].bhs), (2, 512));
    assert_eq!(peer.volume[..1024], [[8; 512], [0; 512]].concat(), "no more is written than the command says");
}

#[test]
fn pings_farewells_and_what_is_not_known() {
    let mut peer = Peer::logged_in(&[]);
    let request = |opcode: u8, cmd_sn: u32| {
        let mut bhs = Bhs::new(opcode);
        bhs.0[1] = 0x80;
        bhs.put_u32(16, 5);
        bhs.put_u32(24, cmd_sn);
        bhs
    };
    let pdus = peer.exchange(request(NOP_OUT, 10), b"ping");
    assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.itt(), &pdus[0].data[..]), (NOP_IN, 5, &b"ping"[..]));
    for opcode in [SNACK, 0x1c] {
        let pdus = peer.exchange(request(opcode, 11), &[]);
        assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.u32(16), pdus[0].data.len()), (REJECT, NO_TAG, 48));
    }
    let mut recovery = request(LOGOUT, 11);
    recovery.0[1] = 0x82;
    assert_eq!(peer.exchange(recovery, &[])[0].bhs.0[2], 2, "connections are not recovered");
    let pdus = peer.exchange(request(LOGOUT, 12), &[]);
    assert_eq!((pdus[0].bhs.opcode(), pdus[0].bhs.0[2]), (LOGOUT_RESPONSE, 0));
    assert_eq!(peer.events, [Event::Closed]);
}

#[test]
fn a_farewell_is_answered_when_nothing_of_the_session_can_land_any_more() {
    for opcode in [LOGOUT, TASK_MANAGEMENT] {
        let mut peer = Peer::logged_in(&[]);
        peer.hold = true;
        let bhs = peer.command(&command(&write_10(0, 1), 0, 512, true));
        assert!(peer.exchange(bhs, &[1; 512]).is_empty());
        // Of LOGOUT: this session; of task management: a cold reset.
        let mut farewell = function(if opcode == LOGOUT { 0 } else { 7 }, 0, 0);
        farewell.0[0] = opcode | 0x40;
        assert!(peer.exchange(farewell, &[]).is_empty(), "the write may still land");
        assert!(with_data(&mut peer, 80, 3).is_empty() && peer.events.is_empty());
        peer.let_go();
        assert_eq!(peer.received().iter().map(|pdu| pdu.bhs.opcode()).collect::<Vec<_>>(), [opcode | 0x20]);
        assert_eq!(peer.events, [Event::Closed]);
    }
}

#[test]
fn functions_that_wait_are_so_many() {
    let mut peer = Peer::logged_in(&[]);
    peer.hold = true;
    let bhs = peer.command(&command(&write_10(0, 1), 0, 512, true));
    assert!(peer.exchange(bhs, &[1; 512]).is_empty());
    let answers: Vec<_> = (0..17).flat_map(|_| peer.exchange(function(2, 0, 0), &[])).collect();
    assert_eq!(answers.iter().map(|pdu| pdu.bhs.0[2]).collect::<Vec<_>>(), [255], "rejected");
    peer.let_go();
    assert_eq!(peer.received().len(), 16);
}

#[test]
fn a_wrong_digest_ends_the_session() {
    for at in [20, 60] {
        let mut peer = Peer::logged_in(&[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
        let bhs = peer.command(&command(&write_10(0, 1), 0, 512, true));
        let mut out = azekura_base::Outbox::new();
        azekura_iscsi::pdu::target::put(&mut out, peer.digests, bhs, &[vec![1; 512].into()]);
        let mut pieces = Vec::new();
        out.take(&mut pieces, usize::MAX, usize::MAX);
        let mut bytes = pieces.concat();
        bytes[at] ^= 1;
        peer.send_bytes(&bytes);
        assert!(matches!(&peer.events[..], [Event::Violation(text)] if text.contains("digest")), "{:?}", peer.events);
        assert!(peer.volume.iter().all(|byte| *byte == 0));
    }
}
