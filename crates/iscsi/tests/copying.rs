//! EXTENDED COPY, what RECEIVE COPY RESULTS tells of it, and ORWRITE.
#![allow(clippy::unwrap_used)]

use crate::support::{Peer, VOLUME_BYTES, collect, command};
use azekura_base::IoStatus;
use azekura_frontend::{Protocol, Request};
use azekura_gateway::Outcome;
use azekura_iscsi::pdu::Bhs;
use azekura_iscsi::pdu::initiator::{ScsiCommand, TASK_MANAGEMENT};

const GOOD: u8 = 0;
const CHECK: u8 = 2;
const PIECE: u64 = 512 << 10;

/// Sense key, code and qualifier.
fn why(sense: &[u8]) -> (u8, u8, u8) {
    (sense[2], sense[12], sense[13])
}

/// Segments of a list: first block, first block of the copy, blocks.
fn list(id: u8, segments: &[(u64, u64, u16)]) -> Vec<u8> {
    let mut bytes = vec![0; 16];
    bytes[0] = id;
    bytes[3] = 32;
    bytes[11] = 28 * segments.len() as u8;
    let mut target = vec![0; 32];
    (target[0], target[4], target[5], target[7], target[30]) = (0xe4, 1, 3, 8, 2);
    target[8..16].copy_from_slice(&(3 << 60 | 7_u64).to_be_bytes());
    bytes.extend(target);
    for (from, to, count) in segments {
        bytes.extend([&[2, 0, 0, 24, 0, 0, 0, 0, 0, 0][..], &count.to_be_bytes()].concat());
        bytes.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
    }
    bytes
}

fn copy(list: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    cdb
}

/// RECEIVE COPY STATUS of this list: the state, segments, and bytes.
fn status(peer: &mut Peer, id: u8) -> Result<(u8, u16, u32), (u8, u8, u8)> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[2], cdb[13]) = (0x84, id, 12);
    let bhs = peer.command(&ScsiCommand { itt: 99, ..command(&cdb, 12, 0, true) });
    let (data, status, sense) = collect(&peer.exchange(bhs, &[]));
    if status == GOOD {
        assert_eq!((data.len(), data[3], data[7]), (12, 8, 0), "bytes are counted");
        Ok((data[4], u16::from_be_bytes([data[5], data[6]]), u32::from_be_bytes(data[8..].try_into().unwrap())))
    } else {
        Err(why(&sense))
    }
}

#[test]
fn segments_are_copied_one_after_the_other() {
    let mut peer = Peer::logged_in(&[]);
    peer.volume.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512 % 251) as u8);
    let mut expected = peer.volume.clone();
    // The second one copies what the first one has made, the third one overlaps itself.
    let segments = [(1, 3000, 2000), (3500, 17, 5), (100, 105, 1500), (0, 0, 0)];
    for (from, to, count) in segments {
        let from = from as usize * 512;
        expected.copy_within(from..from + usize::from(count) * 512, to as usize * 512);
    }
    let list = list(5, &segments);
    assert_eq!(peer.write(&copy(&list), &list, list.len(), 512).0, GOOD);
    assert!(peer.volume == expected);
    assert_eq!(status(&mut peer, 5), Ok((0x81, 4, 3505 * 512)), "done");
    assert_eq!(status(&mut peer, 6), Err((5, 0x24, 0)), "there is no such copy");
    assert_eq!(peer.rooms, [0_usize; 0], "all memory is given back");
}

#[test]
fn a_copy_goes_piece_by_piece_and_ends_where_it_is_aborted() {
    let mut peer = Peer::logged_in(&[]);
    peer.hold = true;
    let list = list(5, &[(0, 4096, 3000)]);
    let bhs = peer.command(&command(&copy(&list), 0, list.len() as u32, true));
    assert!(peer.exchange(bhs, &list).is_empty());
    let piece = |number: u64| {
        let len = PIECE.min(3000 * 512 - number * PIECE);
        Request::Copy { from: number * PIECE, to: 4096 * 512 + number * PIECE, len }
    };
    for number in 0..2 {
        assert_eq!(peer.held.iter().map(|(_, request)| request.clone()).collect::<Vec<_>>(), [piece(number)]);
        assert_eq!(status(&mut peer, 5), Ok((0x80, 0, (number * PIECE) as u32)), "it goes on");
        if number == 0 {
            let (tag, request) = peer.held.pop_front().unwrap();
            peer.perform(tag, request);
            peer.go_on();
        }
    }
    // Another copy of that name has to wait for it.
    let bhs = peer.command(&ScsiCommand { itt: 78, ..command(&copy(&list), 0, list.len() as u32, true) });
    assert_eq!(why(&collect(&peer.exchange(bhs, &list)).2), (5, 0, 0x16));
    let mut abort = Bhs::new(TASK_MANAGEMENT | 0x40);
    abort.0[1] = 0x81;
    abort.put_u32(16, 900);
    abort.put_u32(20, 77);
    assert!(peer.exchange(abort, &[]).is_empty(), "a piece may still land");
    peer.let_go();
    let pdus = peer.received();
    assert_eq!((pdus.len(), pdus[0].bhs.itt(), pdus[0].bhs.0[2]), (1, 900, 0));
    assert!(peer.held.is_empty(), "no further piece is given out");
    assert_eq!(status(&mut peer, 5), Err((5, 0x24, 0)));
    assert_eq!(peer.rooms, [0_usize; 0]);
}

#[test]
fn a_copy_that_fails_says_so() {
    for (failure, says) in [
        (IoStatus::Io, Some((0xa, 0x0d, 1))),
        (IoStatus::NoSpace, Some((0xa, 0x0d, 1))),
        (IoStatus::Fenced, Some((2, 4, 0x0c))),
        (IoStatus::Stale, None),
    ] {
        let mut peer = Peer::logged_in(&[]);
        peer.hold = true;
        let list = list(9, &[(0, 8, 8), (16, 24, 2000)]);
        let bhs = peer.command(&command(&copy(&list), 0, list.len() as u32, true));
        assert!(peer.exchange(bhs, &list).is_empty());
        let (tag, request) = peer.held.pop_front().unwrap();
        peer.perform(tag, request);
        peer.go_on();
        let (tag, _) = peer.held.pop_front().unwrap();
        peer.conn.reply(tag, Outcome::Failed(failure));
        peer.go_on();
        let (_, told, sense) = collect(&peer.received());
        assert_eq!((told, (told == CHECK).then(|| why(&sense))), (if says.is_some() { CHECK } else { 8 }, says));
        assert_eq!(status(&mut peer, 9), Ok((0x82, 1, 4096)), "one segment was copied");
    }
}

#[test]
fn lists_are_refused_before_anything_is_copied() {
    let mut peer = Peer::logged_in(&[]);
    peer.volume[..512].fill(1);
    let good = list(0, &[(0, 8, 1)]);
    let bad = list(0, &[(0, 8, 1), (0, VOLUME_BYTES as u64 / 512, 1)]);
    assert_eq!(why(&peer.write(&copy(&bad), &bad, bad.len(), 512).1), (0xa, 0, 0));
    assert_eq!(why(&peer.write(&copy(&good[..75]), &good[..75], 75, 512).1), (5, 0x1a, 0), "cut off");
    let mut other = good.clone();
    other[23] = 7;
    assert_eq!(why(&peer.write(&copy(&other), &other, other.len(), 512).1), (0xa, 0x0d, 2), "another volume");
    assert!(peer.volume[512..].iter().all(|byte| *byte == 0));
    assert_eq!(peer.write(&copy(&[]), &[], 0, 512).0, GOOD, "nothing is to be copied");
    let mut lid4 = copy(&good);
    lid4[1] = 1;
    assert_eq!(why(&peer.write(&lid4, &good, good.len(), 512).1), (5, 0x24, 0), "LID4");
    assert_eq!(peer.write(&copy(&good), &good, good.len(), 512).0, GOOD);
    assert_eq!(peer.volume[8 * 512..9 * 512], [1; 512]);
}

#[test]
fn copies_are_announced() {
    let mut peer = Peer::logged_in(&[]);
    assert_eq!(peer.read(&[0x12, 0, 0, 0, 36, 0], 36).0[5] & 8, 8, "3PC");
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x84, 3, 255);
    let (data, status, _) = peer.read(&cdb, 255);
    assert_eq!((status, data.len(), &data[43..]), (GOOD, 46, &[2, 2, 0xe4][..]));
    cdb[1] = 4;
    assert_eq!(why(&peer.read(&cdb, 255).2), (5, 0x24, 0), "FAILURE DETAILS");
}

#[test]
fn bits_are_set_in_what_is_there() {
    let mut peer = Peer::logged_in(&[]);
    peer.volume[..2048].fill(0x81);
    let mut cdb = [0; 16];
    (cdb[0], cdb[9], cdb[13]) = (0x8b, 1, 2);
    assert_eq!(peer.write(&cdb, &[0x18; 1024], 1024, 512).0, GOOD);
    assert_eq!(peer.volume[..2048], [&[0x81; 512][..], &[0x99; 1024], &[0x81; 512]].concat());
    cdb[13] = 0;
    assert_eq!(peer.write(&cdb, &[], 0, 512).0, GOOD, "of no blocks");
    (cdb[1], cdb[13]) = (0x20, 1);
    assert_eq!(why(&peer.write(&cdb, &[0; 512], 512, 512).1), (5, 0x24, 0), "protection");
    (cdb[1], cdb[2]) = (0, 1);
    assert_eq!(why(&peer.write(&cdb, &[0; 512], 512, 512).1), (5, 0x21, 0));
}
