//! Messages of the control connection.

use super::*;
use crate::block;
use crate::message::{HEADER_BYTES, features};

fn number(client: &mut Client, request: u32) -> u64 {
    client.send(request, &[]);
    let answer = client.answers();
    assert_eq!(answer.len(), HEADER_BYTES + 8);
    assert_eq!(answer[..8], words(&[request, 5]));
    u64::from_ne_bytes(answer[HEADER_BYTES..].try_into().unwrap())
}

#[test]
fn what_is_offered_is_answered() {
    let mut client = Client::connected(volume());
    let offered = number(&mut client, 1);
    assert_eq!(offered, block::offered(&volume()) | features::PROTOCOL_FEATURES | features::LOG_ALL);
    assert_eq!(number(&mut client, 15), features::OFFERED);
    assert_eq!(number(&mut client, 17), 64);
    client.send(3, &[]);
    client.send(2, &longs(&[offered]));
    assert_eq!(client.ended, None);
    client.send(2, &longs(&[1 << 11]));
    assert!(client.ended.unwrap().contains("0x800"), "a cache that can be switched");
}

#[test]
fn the_configuration_space_has_the_volume() {
    let mut client = Client::connected(volume());
    let mut ask = words(&[0, 64, 0]);
    ask.extend([0; 64]);
    client.send(24, &ask);
    let answer = client.answers();
    let space = &answer[HEADER_BYTES + 12..];
    assert_eq!(space.len(), 64);
    let word = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
    assert_eq!(space[..8], (SIZE / 512).to_le_bytes());
    assert_eq!((word(12), word(20), space[24]), (126, 512, 3));
    assert_eq!([word(36), word(40), word(44), word(48), word(52)], [2 << 20, 1, 8, 2 << 20, 1]);
    assert_eq!((space[34], space[56], &space[60..]), (64, 1, &[0; 4][..]));
    assert_eq!(space[26..28], [8, 0], "the least that is good, in blocks");
    // One of larger blocks: sectors are what they were.
    client.exports.0.logical_block = azekura_base::LogicalBlock::Bytes4096;
    client.send(24, &ask);
    let large = &client.answers()[HEADER_BYTES + 12..];
    assert_eq!((&large[..8], &large[20..24]), (&(SIZE / 512).to_le_bytes()[..], &4096_u32.to_le_bytes()[..]));
    assert_eq!((large[24], &large[26..28], &large[34..]), (0, &[1, 0][..], &space[34..]));
    // A volume that has grown.
    client.exports.0.size = 2 * SIZE;
    client.send(24, &ask);
    assert_eq!(client.answers()[HEADER_BYTES + 12..][..8], (SIZE / 256).to_le_bytes());
    // It is read and not written.
    client.negotiate(0);
    client.answers();
    client.send(25, &ask);
    assert_eq!(client.answers()[HEADER_BYTES..], longs(&[1]));
}

#[test]
fn messages_are_acknowledged_when_they_have_taken_effect() {
    let mut client = Client::connected(volume());
    client.send(3, &[]);
    assert!(client.answers().is_empty(), "before it was negotiated");
    client.negotiate(0);
    client.answers();
    client.share_memory();
    assert_eq!(client.answers(), [words(&[5, 5, 8]), longs(&[0])].concat());
}

#[test]
fn a_ring_stands_when_nothing_of_it_is_under_way() {
    let mut client = Client::started(0);
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    client.answers();
    client.send(11, &words(&[0, 0]));
    // The next request is not taken any more, and no message either.
    client.request(3, 0, 0, (0x9000, 512), true);
    client.kick();
    assert!(client.answers().is_empty() && !client.conn.wants_bytes());
    client.answer_all();
    assert_eq!(client.answers(), words(&[11, 5, 8, 0, 1]));
    assert!(client.conn.wants_bytes());
    // It goes on from there.
    client.used();
    client.start_ring();
    assert_eq!(client.asked.len(), 1);
    client.answer_all();
    assert_eq!(client.used(), [(3, 513)]);
}

#[test]
fn a_queue_that_is_not_enabled_is_left_alone() {
    let mut client = Client::started(0);
    client.send(18, &words(&[0, 0]));
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    assert!(client.asked.is_empty());
    client.send(18, &words(&[0, 1]));
    assert_eq!(client.asked.len(), 1);
}

#[test]
fn messages_that_can_not_be_end_the_connection() {
    let ends = |what: &str, bytes: Vec<u8>| {
        let mut client = Client::started(0);
        client.send_bytes(&bytes);
        assert!(client.ended.as_ref().is_some_and(|ended| ended.contains(what)), "{what}: {:?}", client.ended);
    };
    ends("version 0", words(&[1, 0, 0]));
    ends("message 99", message(99, &[]));
    ends("message 34", message(34, &[]));
    ends("8 bytes", message(1, &[0; 8]));
    ends("file descriptor", message(12, &longs(&[1])));
    ends("polled", message(12, &longs(&[1 << 8])));
    ends("no queue 64", message(18, &words(&[64, 1])));
    ends("a ring of 3 entries", message(8, &words(&[1, 3])));
    ends("a ring of 2048 entries", message(8, &words(&[1, 2048])));
    ends("ring 0 runs", message(8, &words(&[0, 8])));
    ends("ring 0 runs", message(10, &words(&[0, 8])));
    ends("goes on at 65536", message(10, &words(&[1, 65536])));
    let region = |numbers: [u64; 4]| message(5, &[words(&[1, 0]), longs(&numbers)].concat());
    ends("whole pages", region([4096, 100, 4096, 0]));
    ends("region of 0 bytes", region([4096, 0, 4096, 0]));
    ends("region of", region([u64::MAX - 4095, 8192, 4096, 0]));
    ends("file descriptor", region([4096, 4096, 4096, 0]));
    let addresses = |flags, at| message(9, &[words(&[0, flags]), longs(&[at, USER, USER, 0])].concat());
    ends("out of the memory", addresses(0, 16));
    ends("aligned", addresses(0, 8));
    ends("unknown flags 0x2", addresses(2, USER));
    ends("file descriptor", message(6, &longs(&[4096, 0])));
    ends("file descriptor", message(7, &[]));
    ends("file descriptor", message(21, &[]));
}

#[test]
fn memory_and_eventfds_that_are_of_no_use_end_the_connection() {
    let mut client = Client::started(0);
    client.conn.refused(0, "no eventfd".into());
    client.poll();
    assert!(client.ended.unwrap().contains("no eventfd"));
    let mut client = Client::started(0);
    client.conn.mapped(0, Err("not sealed".into()));
    client.poll();
    assert!(client.ended.unwrap().contains("memory-backend-memfd"));
}

#[test]
fn a_socket_of_no_volume_says_so() {
    let mut client = Client::connected(volume());
    client.exports.0.name = "w".into();
    client.poll();
    assert!(client.ended.unwrap().contains("no such volume"));
}
