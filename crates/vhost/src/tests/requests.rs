//! Requests of each kind, and what is wrong with some.

use super::*;
use crate::block::features::{EVENT_IDX, INDIRECT_DESC};
use azekura_base::IoStatus;
use azekura_frontend::Verbs;

#[test]
fn reads_and_writes_go_where_they_are_to_go() {
    let mut client = Client::started(0);
    client.memory.put(0x8000, &[7; 1024]);
    client.request(0, 1, 4, (0x8000, 1024), false);
    client.request(3, 0, 3, (0x9000, 2048), true);
    client.kick();
    assert_eq!(client.asked.len(), 2, "both are taken at one kick");
    // What the guest writes there now is too late.
    client.memory.put(0x8000, &[8; 1024]);
    client.answer_all();
    assert_eq!(client.used(), [(0, 1), (3, 2049)]);
    assert_eq!((client.status(0), client.status(3)), (0, 0));
    assert!(client.disk[2048..3072].iter().all(|byte| *byte == 7));
    let read: [u8; 2048] = client.memory.get(0x9000);
    assert_eq!(read[..], client.disk[1536..3584]);
    assert!(!client.called.is_empty());
}

#[test]
fn answers_may_come_in_another_order() {
    let mut client = Client::started(0);
    client.request(0, 0, 0, (0x8000, 512), true);
    client.request(3, 0, 1, (0x9000, 512), true);
    client.kick();
    client.answer(1);
    assert_eq!(client.used(), [(3, 513)]);
    client.answer(0);
    assert_eq!(client.used(), [(0, 513)]);
}

#[test]
fn data_may_be_in_any_pieces() {
    let mut client = Client::started(INDIRECT_DESC);
    client.header(DATA, 0, 0);
    let guest = |at: usize| GUEST + at as u64;
    // The header in two pieces; data in three, one of them empty; the status behind data.
    let table = 0x5000;
    let pieces =
        [(DATA, 10, 1), (DATA + 10, 6, 1), (0x8000, 500, 3), (0x8500, 0, 3), (0x8800, 12, 3), (0xa000, 513, 2)];
    for (index, (at, bytes, flags)) in pieces.into_iter().enumerate() {
        client.descriptor_at(table + index * 16, guest(at), bytes, flags, index as u16 + 1);
    }
    client.descriptor(5, guest(table), 6 * 16, 4, 0);
    client.make_available(5);
    client.kick();
    client.answer_all();
    assert_eq!(client.used(), [(5, 1025)]);
    let (first, second, third): ([u8; 500], [u8; 12], [u8; 512]) =
        (client.memory.get(0x8000), client.memory.get(0x8800), client.memory.get(0xa000));
    assert_eq!([&first[..], &second[..], &third[..]].concat(), client.disk[..1024]);
    assert_eq!(client.memory.get::<1>(0xa200), [0]);
}

#[test]
fn flushes_identities_and_what_is_not_known() {
    let mut client = Client::started(0);
    client.request(0, 8, 0, (0x8000, 20), true);
    client.request(3, 99, 0, (0x9000, 512), true);
    client.kick();
    assert_eq!(client.used(), [(0, 21), (3, 1)]);
    assert_eq!((client.status(0), client.status(3)), (0, 2));
    assert_eq!(&client.memory.get::<20>(0x8000), b"00000000abcd0007\0\0\0\0");
    // A flush has no data.
    client.header(DATA, 4, 0);
    client.descriptor(0, GUEST + DATA as u64, 16, 1, 1);
    client.descriptor(1, GUEST + DATA as u64 + 16, 1, 2, 0);
    client.make_available(0);
    client.kick();
    assert_eq!(client.asked[0].1, Request::Flush);
    client.answer_all();
    assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], 0));
}

#[test]
fn discards_and_zeroes_have_ranges() {
    let mut client = Client::started(0);
    let range = |sector: u64, sectors: u32, flags: u32| {
        let mut range = sector.to_le_bytes().to_vec();
        range.extend(sectors.to_le_bytes());
        range.extend(flags.to_le_bytes());
        range
    };
    let cases = [
        (11, range(8, 16, 0), Some(Request::Trim { offset: 4096, len: 8192 }), 0),
        (13, range(1, 3, 0), Some(Request::Zero { offset: 512, len: 1536 }), 0),
        (13, range(1, 3, 1), Some(Request::Zero { offset: 512, len: 1536 }), 0),
        (11, range(8, 16, 1), None, 2),
        (13, range(8, 16, 2), None, 2),
        (11, range(8, 0, 0), None, 1),
        (11, range(SIZE / 512, 1, 0), None, 1),
        (11, range(u64::MAX, 1, 0), None, 1),
        (13, range(0, u32::MAX, 0), None, 1),
    ];
    for (kind, bytes, expected, status) in cases {
        client.memory.put(0x8000, &bytes);
        client.request(0, kind, 0, (0x8000, 16), false);
        client.kick();
        assert_eq!(client.asked.first().map(|(_, request)| request.clone()), expected);
        client.answer_all();
        assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], status));
    }
    client.request(0, 11, 0, (0x8000, 32), false);
    client.kick();
    assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], 1), "two ranges");
}

#[test]
fn what_can_not_be_done_has_a_status() {
    let mut client = Client::started(0);
    let sectors = SIZE / 512;
    let cases = [
        (0, sectors, 512, true),
        (0, sectors - 1, 1024, true),
        (0, u64::MAX, 512, true),
        (0, u64::MAX / 512, 512, true),
        (0, 0, 511, true),
        (1, 0, 513, false),
        // The wrong direction.
        (0, 0, 512, false),
        (1, 0, 512, true),
        (8, 0, 512, true),
    ];
    for (kind, sector, bytes, is_in) in cases {
        client.request(0, kind, sector, (0x8000, bytes), is_in);
        client.kick();
        assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], 1), "{kind} {sector} {bytes} {is_in}");
    }
    // Data that is nowhere.
    for (kind, is_in) in [(0, true), (1, false)] {
        client.request(0, kind, 0, (MEMORY_BYTES - 256, 512), is_in);
        client.kick();
        assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], 1));
    }
    // More than a request may have; what the volume refuses.
    client.request(0, 1, 0, (0x8000, (33 << 20) as u32), false);
    client.kick();
    assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], 1));
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    let (tag, _) = client.asked.remove(0);
    client.conn.reply(tag, Outcome::Failed(IoStatus::Io));
    assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], 1));
    assert_eq!(client.ended, None);
}

#[test]
fn nobody_writes_to_a_snapshot() {
    let mut client = Client::connected(Export { verbs: Verbs::READ_ONLY, ..volume() });
    client.start(0);
    for (kind, bytes, status) in [(1, 512, 1), (11, 16, 2), (13, 16, 2)] {
        client.request(0, kind, 0, (0x8000, bytes), false);
        client.kick();
        assert_eq!((client.used(), client.status(0)), (vec![(0, 1)], status));
    }
}

#[test]
fn a_ring_that_is_broken_ends_the_connection() {
    let guest = GUEST + DATA as u64;
    let broken = |what: &str, prepare: &dyn Fn(&mut Client)| {
        let mut client = Client::started(INDIRECT_DESC);
        prepare(&mut client);
        client.kick();
        assert!(client.ended.as_ref().is_some_and(|ended| ended.contains(what)), "{what}: {:?}", client.ended);
        client.kick();
    };
    broken("does not end", &|client| {
        client.descriptor(0, guest, 16, 1, 1);
        client.descriptor(1, guest, 16, 1, 0);
        client.make_available(0);
    });
    broken("no descriptor 9", &|client| {
        client.descriptor(0, guest, 16, 1, 9);
        client.make_available(0);
    });
    broken("no descriptor 8", &|client| client.make_available(8));
    broken("no byte for its status", &|client| {
        client.descriptor(0, guest, 16, 0, 0);
        client.make_available(0);
    });
    broken("out of the memory", &|client| {
        client.descriptor(0, guest, 16, 1, 1);
        client.descriptor(1, u64::MAX, 1, 2, 0);
        client.make_available(0);
    });
    broken("9 requests are available", &|client| client.memory.put(AVAILABLE + 2, &9u16.to_le_bytes()));
    broken("its length", &|client| {
        client.descriptor(0, guest, 17, 4, 0);
        client.make_available(0);
    });
    broken("in a table itself", &|client| {
        client.descriptor_at(0x5000, guest, 16, 4, 0);
        client.descriptor(0, GUEST + 0x5000, 16, 4, 0);
        client.make_available(0);
    });
    broken("does not end", &|client| {
        client.descriptor_at(0x5000, guest, 16, 1, 0);
        client.descriptor(0, GUEST + 0x5000, 16, 4, 0);
        client.make_available(0);
    });
    broken("under way", &|client| {
        client.request(0, 0, 0, (0x8000, 512), true);
        client.make_available(0);
    });
}

#[test]
fn kicks_and_calls_are_left_out_where_nobody_waits() {
    let mut client = Client::started(0);
    client.request(0, 0, 0, (0x8000, 512), true);
    client.memory.put(AVAILABLE, &1u16.to_le_bytes());
    client.kick();
    assert_eq!(client.memory.short(USED), 0, "it waits for a kick");
    client.answer_all();
    assert!(client.called.is_empty(), "the driver wants no call");

    let mut client = Client::started(EVENT_IDX);
    let event = |client: &Client| client.memory.short(USED + 4 + 8 * usize::from(ENTRIES));
    client.request(0, 0, 0, (0x8000, 512), true);
    client.request(3, 0, 0, (0x9000, 512), true);
    // A call for the second one.
    client.memory.put(AVAILABLE + 4 + 2 * usize::from(ENTRIES), &1u16.to_le_bytes());
    client.kick();
    assert_eq!(event(&client), 2);
    client.answer(0);
    assert!(client.called.is_empty());
    client.answer(0);
    assert_eq!(client.called, [0]);
}

#[test]
fn requests_wait_for_memory() {
    let mut client = Client::started(0);
    client.gives_room = false;
    client.request(0, 1, 0, (0x8000, 1024), false);
    client.request(3, 0, 0, (0x9000, 512), true);
    client.kick();
    assert!(client.asked.is_empty());
    assert_eq!(client.conn.wants_room(), Some(1024));
    client.gives_room = true;
    client.poll();
    assert_eq!(client.asked.len(), 2);
}

#[test]
fn a_guest_that_asks_for_nothing_without_end_lets_others_work() {
    let mut client = Client::started(0);
    for round in 0..40 {
        for head in [0, 3] {
            client.request(head, 99, 0, (0x8000, 512), true);
        }
        client.conn.rung(0);
        let mut polls = 0;
        while client.memory.short(USED + 2) != client.available {
            polls += 1;
            assert!(polls < 3, "round {round}");
            assert_eq!(client.conn.poll(&client.exports), None);
            client.grant();
        }
    }
    assert_eq!(client.used().len(), 80);
}
