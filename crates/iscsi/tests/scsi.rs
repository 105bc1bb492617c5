//! What a volume says of itself as a logical unit, and what it refuses.
#![allow(clippy::unwrap_used)]

use crate::support::{Peer, VOLUME_BYTES, read_10, write_10};
use azekura_base::NodeId;
use azekura_frontend::{PathState, Portals};
use std::collections::BTreeMap;

const CHECK: u8 = 2;
const BLOCKS: u32 = (VOLUME_BYTES / 512) as u32;

/// Sense key, code and qualifier.
fn why(sense: &[u8]) -> (u8, u8, u8) {
    (sense[2], sense[12], sense[13])
}

fn inquiry(peer: &mut Peer, page: u8) -> Vec<u8> {
    let (data, status, _) = peer.read(&[0x12, 1, page, 1, 0, 0], 256);
    assert_eq!(status, 0, "{page:#x}");
    assert_eq!((data[1], usize::from(u16::from_be_bytes([data[2], data[3]])) + 4), (page, data.len()));
    data
}

#[test]
fn every_page_that_is_named_is_there() {
    let mut peer = Peer::logged_in(&[]);
    let pages = inquiry(&mut peer, 0)[4..].to_vec();
    assert_eq!(pages, [0, 0x80, 0x83, 0x86, 0x8f, 0xb0, 0xb1, 0xb2]);
    pages.iter().for_each(|page| assert!(inquiry(&mut peer, *page).len() >= 8));
    assert_eq!(why(&peer.read(&[0x12, 1, 0xc0, 1, 0, 0], 256).2), (5, 0x24, 0));
    assert_eq!(why(&peer.read(&[0x12, 0, 0x83, 1, 0, 0], 256).2), (5, 0x24, 0), "a page without EVPD");
    let standard = peer.read(&[0x12, 0, 0, 0, 36, 0], 255).0;
    assert_eq!((standard.len(), &standard[8..16], standard[4]), (36, &b"AZEKURA "[..], 91));
}

#[test]
fn capacities_are_those_of_the_volume() {
    let mut peer = Peer::logged_in(&[]);
    let (data, ..) = peer.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    assert_eq!(data, [(BLOCKS - 1).to_be_bytes(), 512_u32.to_be_bytes()].concat());
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    let (data, ..) = peer.read(&cdb, 32);
    assert_eq!(data[..8], u64::from(BLOCKS - 1).to_be_bytes());
    assert_eq!((data[13], data[14]), (3, 0xc0), "4 KiB inside; thin, and zeros where nothing is");
}

#[test]
fn ranges_end_where_the_volume_does() {
    let mut peer = Peer::logged_in(&[]);
    assert_eq!(peer.read(&read_10(BLOCKS, 0), 0).1, 0);
    for (first, count) in [(BLOCKS + 1, 0), (BLOCKS, 1), (BLOCKS - 1, 2), (u32::MAX, 1)] {
        assert_eq!(why(&peer.read(&read_10(first, count), 1024).2), (5, 0x21, 0), "{first} {count}");
        assert_eq!(why(&peer.write(&write_10(first, count), &[0; 1024], 1024, 512).1), (5, 0x21, 0));
    }
    let mut protected = read_10(0, 1);
    protected[1] = 0x20;
    assert_eq!(why(&peer.read(&protected, 512).2), (5, 0x24, 0));
}

#[test]
fn what_is_missing_is_refused_whole() {
    let mut peer = Peer::logged_in(&[]);
    // RESERVE, RELEASE, PERSISTENT RESERVE IN and OUT, and WRITE ATOMIC.
    for opcode in [0x16, 0x17, 0x5e, 0x5f, 0x9c] {
        let (data, status, sense) = peer.read(&[opcode, 0, 0, 0, 0, 0, 0, 0, 0, 0], 64);
        assert_eq!((data.len(), status, why(&sense)), (0, CHECK, (5, 0x20, 0)), "{opcode:#x}");
    }
}

#[test]
fn unmapped_blocks_read_as_zeros() {
    let mut peer = Peer::logged_in(&[]);
    assert_eq!(peer.write(&write_10(0, 64), &[7; 32768], 32768, 512).0, 0);
    // Blocks 8 to 15, and 17: not whole blocks of ours.
    let descriptor = |first: u64, count: u32| [&first.to_be_bytes()[..], &count.to_be_bytes(), &[0; 4]].concat();
    let list = [&[0, 38, 0, 32, 0, 0, 0, 0][..], &descriptor(8, 8), &descriptor(17, 1)].concat();
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0];
    assert_eq!(peer.write(&unmap, &list, list.len(), 512).0, 0);
    let mut expected = vec![7; 32768];
    expected[8 * 512..16 * 512].fill(0);
    expected[17 * 512..18 * 512].fill(0);
    assert_eq!(peer.volume[..32768], expected);
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x12, 8 + 3 * 16);
    let (data, status, _) = peer.read(&cdb, 256);
    let runs: Vec<(u8, u8, u8)> = data[8..].chunks(16).map(|run| (run[7], run[11], run[12])).collect();
    assert_eq!((status, runs), (0, vec![(0, 8, 0), (8, 8, 1), (16, 8, 0)]));
    let beyond = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &descriptor(u64::from(BLOCKS), 1)].concat();
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 0, beyond.len() as u8, 0];
    assert_eq!(why(&peer.write(&unmap, &beyond, beyond.len(), 512).1), (5, 0x21, 0));
}

#[test]
fn one_block_is_written_all_over_a_range() {
    let mut peer = Peer::logged_in(&[]);
    let mut cdb = write_10(3, 5);
    cdb[0] = 0x41;
    assert_eq!(peer.write(&cdb, &[6; 512], 512, 512).0, 0);
    assert_eq!(peer.volume[..9 * 512], [&[0; 3 * 512][..], &[6; 5 * 512], &[0; 512]].concat());
    cdb[1] = 8;
    assert_eq!(peer.write(&cdb, &[0; 512], 512, 512).0, 0);
    assert!(peer.volume.iter().all(|byte| *byte == 0));
    for bytes in [256, 1024] {
        assert_eq!(why(&peer.write(&cdb, &vec![0; bytes], bytes, 512).1), (5, 0x24, 0), "{bytes} bytes are no block");
    }
    cdb[7..9].fill(0);
    assert_eq!(why(&peer.write(&cdb, &[0; 512], 512, 512).1), (5, 0x24, 0), "WSNZ");
}

#[test]
fn a_block_is_replaced_where_it_is_as_expected() {
    let mut peer = Peer::logged_in(&[]);
    assert_eq!(inquiry(&mut peer, 0xb0)[5], 1, "the longest, in blocks");
    let mut cdb = [0; 16];
    (cdb[0], cdb[9], cdb[13]) = (0x89, 3, 1);
    let data = |expected, new| [[expected; 512], [new; 512]].concat();
    assert_eq!(peer.write(&cdb, &data(0, 6), 1024, 512).0, 0);
    assert_eq!(peer.volume[..5 * 512], [&[0; 3 * 512][..], &[6; 512], &[0; 512]].concat());
    // The place of what differs is in the INFORMATION field, which is valid.
    let mut almost = data(6, 7);
    almost[300] = 1;
    let (status, sense) = peer.write(&cdb, &almost, 1024, 512);
    assert_eq!((status, why(&sense)), (CHECK, (0xe, 0x1d, 0)));
    assert_eq!((sense[0] & 0x80, &sense[3..7]), (0x80, &300_u32.to_be_bytes()[..]));
    assert_eq!(peer.volume[3 * 512..4 * 512], [6; 512]);
    for bytes in [1000, 512, 2048] {
        assert_eq!(
            why(&peer.write(&cdb, &vec![6; bytes], bytes, 512).1),
            (5, 0x24, 0),
            "{bytes} bytes are no two blocks"
        );
    }
    cdb[13] = 2;
    assert_eq!(why(&peer.write(&cdb, &[6; 2048], 2048, 512).1), (5, 0x24, 0), "more than one block");
    cdb[13] = 0;
    assert_eq!(peer.write(&cdb, &[], 0, 512).0, 0, "nothing is compared");
    assert_eq!(why(&peer.write(&cdb, &data(6, 7), 1024, 512).1), (5, 0x24, 0), "two blocks are not none");
    (cdb[2], cdb[13]) = (1, 1);
    assert_eq!(why(&peer.write(&cdb, &data(6, 7), 1024, 512).1), (5, 0x21, 0));
}

#[test]
fn verify_compares() {
    let mut peer = Peer::logged_in(&[]);
    let mut data = vec![4; 2048];
    assert_eq!(peer.write(&write_10(0, 4), &data, 2048, 512).0, 0);
    let mut verify = write_10(0, 4);
    (verify[0], verify[1]) = (0x2f, 2);
    assert_eq!(peer.write(&verify, &data, 2048, 512).0, 0);
    data[2047] = 5;
    assert_eq!(why(&peer.write(&verify, &data, 2048, 512).1), (0xe, 0x1d, 0));
    verify[1] = 0;
    assert_eq!(peer.read(&verify, 0).1, 0);
    peer.hold = true;
    let bhs = peer.command(&crate::support::command(
        &{
            let mut all = write_10(0, 4096);
            all[0] = 0x2f;
            all
        },
        0,
        0,
        true,
    ));
    assert!(peer.exchange(bhs, &[]).is_empty());
    let read: Vec<_> = peer.held.iter().map(|(_, request)| request.clone()).collect();
    let read_of = |offset| azekura_frontend::Request::Read { offset, len: 1 << 20 };
    assert_eq!(read, [read_of(0), read_of(1 << 20)], "it is read to see that it can be");
    let (tag, _) = peer.held.pop_front().unwrap();
    azekura_frontend::Protocol::reply(
        &mut peer.conn,
        tag,
        azekura_gateway::Outcome::Failed(azekura_base::IoStatus::Io),
    );
    peer.let_go();
    assert_eq!(why(&crate::support::collect(&peer.received()).2), (3, 0x11, 0));
    peer.hold = false;
    verify[1] = 6;
    assert_eq!(peer.write(&verify, &[4; 512], 512, 512).0, 0, "one block, for each");
    assert_eq!(why(&peer.write(&verify, &[5; 512], 512, 512).1), (0xe, 0x1d, 0));
}

#[test]
fn mode_pages_are_told_and_can_be_set_to_what_they_are() {
    let mut peer = Peer::logged_in(&[]);
    let (data, status, _) = peer.read(&[0x1a, 0, 0x3f, 0, 255, 0], 255);
    assert_eq!((status, usize::from(data[0]) + 1, data[3]), (0, data.len(), 8));
    assert_eq!([data[12], data[32], data[44]], [0x08, 0x0a, 0x1c]);
    let mut caching = [&[0, 0, 0, 0][..], &data[12..32]].concat();
    assert_eq!(peer.write(&[0x15, 0x10, 0, 0, 24, 0], &caching, 24, 512).0, 0);
    caching[6] |= 4;
    assert_eq!(why(&peer.write(&[0x15, 0x10, 0, 0, 24, 0], &caching, 24, 512).1), (5, 0x26, 0), "no write cache");
}

#[test]
fn commands_are_listed_one_and_all() {
    let mut peer = Peer::logged_in(&[]);
    let report = |options: u8, opcode: u8, action: u8| [0xa3, 0x0c, options, opcode, 0, action, 0, 0, 16, 0, 0, 0];
    let (data, ..) = peer.read(&report(0, 0, 0), 4096);
    assert_eq!(data.len() - 4, u32::from_be_bytes([data[0], data[1], data[2], data[3]]) as usize);
    for command in data[4..].chunks(8) {
        let options = if command[5] & 1 == 0 { 1 } else { 2 };
        let (one, status, _) = peer.read(&report(options, command[0], command[3]), 64);
        assert_eq!((status, one[1], one[4]), (0, 3, command[0]));
        assert_eq!(one[2..4], command[6..8]);
        assert_eq!(one.len(), 4 + usize::from(command[7]));
    }
    assert_eq!(peer.read(&report(1, 0x9c, 0), 64).0[1], 1, "WRITE ATOMIC is not there");
}

#[test]
fn other_logical_units_are_not_there() {
    let mut peer = Peer::logged_in(&[]);
    let mut ask = |cdb: &[u8]| {
        let mut command = crate::support::command(cdb, 96, 0, true);
        command.lun[1] = 1;
        let bhs = peer.command(&command);
        crate::support::collect(&peer.exchange(bhs, &[]))
    };
    assert_eq!(ask(&[0x12, 0, 0, 0, 96, 0]).0[0], 0x7f);
    assert_eq!(why(&ask(&[0, 0, 0, 0, 0, 0]).2), (5, 0x25, 0));
    assert_eq!(ask(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]).0, [&[0, 0, 0, 8][..], &[0; 12]].concat());
}

#[test]
fn sixteen_byte_commands_name_their_blocks() {
    let mut peer = Peer::logged_in(&[]);
    let cdb = |opcode: u8, first: u64, count: u32| {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        cdb[2..10].copy_from_slice(&first.to_be_bytes());
        cdb[10..14].copy_from_slice(&count.to_be_bytes());
        cdb
    };
    let end = u64::from(BLOCKS);
    for count in [1, 2, 255, 256, 300] {
        let data = vec![count as u8; count as usize * 512];
        assert_eq!(peer.write(&cdb(0x8a, end - u64::from(count), count), &data, 0, 4096).0, 0);
        let (read, status, _) = peer.read(&cdb(0x88, end - u64::from(count), count), count * 512);
        assert_eq!((status, read), (0, data));
        for first in [end + 1 - u64::from(count), 1 << 63, u64::MAX] {
            assert_eq!(why(&peer.read(&cdb(0x88, first, count), count * 512).2), (5, 0x21, 0), "{first} {count}");
        }
    }
}

#[test]
fn a_volume_that_has_grown_is_noticed() {
    struct Grown(u64);
    impl azekura_frontend::Exports for Grown {
        fn find(&self, name: &str) -> Option<azekura_frontend::Export> {
            azekura_frontend::Exports::find(&crate::support::One, name)
                .map(|export| azekura_frontend::Export { size: self.0, ..export })
        }
        fn listing(&self, _: &'static str, _: &azekura_frontend::MakeListing<'_>) -> azekura_frontend::Listing {
            None
        }
    }
    let mut peer = Peer::logged_in(&[]);
    let ask = |peer: &mut Peer, cdb: &[u8], room| {
        let bhs = peer.command(&crate::support::command(cdb, room, 0, true));
        peer.queue(bhs, &[]);
        peer.run(&Grown(2 * VOLUME_BYTES as u64));
        crate::support::collect(&peer.received())
    };
    assert_eq!(why(&ask(&mut peer, &[0; 6], 0).2), (6, 0x2a, 9), "a unit attention, once");
    assert_eq!(ask(&mut peer, &[0; 6], 0).1, 0);
    let (data, ..) = ask(&mut peer, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    assert_eq!(data[..4], (2 * BLOCKS - 1).to_be_bytes());
}

/// REPORT TARGET PORT GROUPS with so much room, by length alone or with the extended header.
fn port_groups(format: u8, room: u8) -> [u8; 12] {
    [0xa3, format << 5 | 0x0a, 0, 0, 0, 0, 0, 0, 0, room, 0, 0]
}

#[test]
fn an_initiator_learns_which_path_is_the_better_one() {
    let mut peer = Peer::logged_in(&[]);
    assert_eq!(peer.read(&[0x12, 0, 0, 0, 36, 0], 36).0[5] & 0x30, 0x10, "TPGS: implicit");
    let (data, ..) = peer.read(&port_groups(0, 255), 255);
    assert_eq!(data, [0, 0, 0, 12, 0, 0x83, 0, 1, 0, 2, 0, 1, 0, 0, 0, 1], "optimized");
    let (data, ..) = peer.read(&port_groups(1, 255), 255);
    assert_eq!((data[..8].to_vec(), data.len()), (vec![0, 0, 0, 16, 0x10, 30, 0, 0], 20));
    assert_eq!(peer.read(&port_groups(0, 6), 6).0, [0, 0, 0, 12, 0, 0x83], "no more than there is room for");
    assert_eq!(why(&peer.read(&port_groups(2, 255), 255).2), (5, 0x24, 0), "no such format");
}

#[test]
fn each_node_is_a_port_of_its_own() {
    let mut peer = Peer::new();
    (peer.portals, peer.path) = (Portals::of(NodeId(3)), PathState::NonOptimized);
    let mut peer = peer.log_in(crate::support::login(1, 3), &[]);
    let (data, ..) = peer.read(&port_groups(0, 255), 255);
    assert_eq!(data[4..], [1, 0x83, 0, 3, 0, 2, 0, 1, 0, 0, 0, 3], "not optimized, group 3, port 3");
    let page = inquiry(&mut peer, 0x83);
    let mut descriptors = BTreeMap::new();
    let mut rest = &page[4..];
    while let [_, kind, _, len, behind @ ..] = rest {
        let (id, behind) = behind.split_at(usize::from(*len));
        descriptors.insert(*kind, id.to_vec());
        rest = behind;
    }
    assert_eq!((&descriptors[&0x94][..], &descriptors[&0x95][..]), (&[0, 0, 0, 3][..], &[0, 0, 0, 3][..]));
    assert!(descriptors[&0x98].starts_with(b"iqn.2026-01.io.azekura:vol1,t,0x0003\0"));
}
