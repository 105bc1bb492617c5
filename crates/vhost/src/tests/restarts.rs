//! Requests that an earlier process or connection has taken and not given back.

use super::*;
use crate::inflight::{self, Inflight};
use crate::message::InflightAt;

const INFLIGHT_AT: InflightAt = InflightAt { size: 0, offset: 0, queues: 1, entries: ENTRIES, padded: true };

impl Client {
    fn share_inflight(&mut self) {
        self.conn.descriptors().push_back(some_file());
        let at = InflightAt { size: inflight::bytes(1, ENTRIES), ..INFLIGHT_AT };
        self.send(32, &crate::message::inflight(&at));
    }

    /// The process has ended, and another one has come. The client is the same.
    fn again(self) -> Client {
        let fresh = Client::connected(volume());
        let mut client = Client { conn: fresh.conn, asked: Vec::new(), ended: None, ..self };
        client.negotiate(0);
        client.share_inflight();
        client.share_memory();
        // As QEMU says it, who knows nothing better.
        client.start_ring();
        client
    }

    fn first() -> Client {
        let mut client = Client::connected(volume());
        client.negotiate(0);
        client.answers();
        client.send(31, &crate::message::inflight(&INFLIGHT_AT));
        client.share_inflight();
        client.share_memory();
        client.start_ring();
        client
    }

    fn offsets(&self) -> Vec<u64> {
        let offset = |(_, request): &(Tag, Request)| match request {
            Request::Read { offset, .. } => *offset / 512,
            other => panic!("{other:?}"),
        };
        self.asked.iter().map(offset).collect()
    }
}

#[test]
fn memory_for_the_record_is_lent() {
    let mut client = Client::connected(volume());
    client.negotiate(0);
    client.answers();
    client.send(31, &crate::message::inflight(&INFLIGHT_AT));
    assert_eq!(client.lent, 1);
    let answer = client.answers();
    assert_eq!(answer[..20], [words(&[31, 5, 24]), longs(&[inflight::bytes(1, ENTRIES)])].concat());
}

#[test]
fn what_was_not_given_back_is_taken_again_in_its_order() {
    let mut client = Client::first();
    for (head, sector) in [(3, 1), (0, 2)] {
        client.request(head, 0, sector, (0x8000, 512), true);
    }
    client.kick();
    assert_eq!(client.offsets(), [1, 2]);
    // The second is answered first; then the process ends.
    client.answer(1);
    assert_eq!(client.used(), [(0, 513)]);
    client.request(0, 0, 4, (0x9000, 512), true);
    let mut client = client.again();
    assert_eq!(client.offsets(), [1, 4], "what was taken, and then what has come since");
    client.answer_all();
    assert_eq!(client.used(), [(3, 513), (0, 513)]);
    let mut client = client.again();
    assert!(client.offsets().is_empty());
    client.request(0, 0, 5, (0x9000, 512), true);
    client.kick();
    assert_eq!(client.offsets(), [5]);
}

#[test]
fn an_end_between_two_steps_of_giving_back_is_noticed() {
    let record = || {
        let memory = Shared::new(4096);
        let inflight = Inflight::new(&INFLIGHT_AT, Box::new(memory));
        assert_eq!(inflight.recover(0, ENTRIES, 10), (vec![], 0));
        inflight.begin(0, 5, 1);
        inflight.begin(0, 2, 2);
        inflight
    };
    let inflight = record();
    inflight.ending(0, 2);
    assert_eq!(inflight.recover(0, ENTRIES, 10), (vec![5, 2], 2), "the ring does not have it");
    assert_eq!(record().recover(0, ENTRIES, 10), (vec![5, 2], 2));
    let inflight = record();
    inflight.ending(0, 2);
    assert_eq!(inflight.recover(0, ENTRIES, 11), (vec![5], 1), "the ring has it");
    inflight.ending(0, 5);
    inflight.ended(0, 5, 12);
    assert_eq!(inflight.recover(0, ENTRIES, 12), (vec![], 0));
}

#[test]
fn a_record_that_is_too_small_is_refused() {
    let mut client = Client::connected(volume());
    client.negotiate(0);
    client.conn.descriptors().push_back(some_file());
    client.send(32, &crate::message::inflight(&InflightAt { size: 100, ..INFLIGHT_AT }));
    assert!(client.ended.unwrap().contains("take 192"));
    let mut client = Client::connected(volume());
    client.negotiate(0);
    client.conn.descriptors().push_back(some_file());
    let at = InflightAt { size: inflight::bytes(1, 4), entries: 4, ..INFLIGHT_AT };
    client.send(32, &crate::message::inflight(&at));
    client.share_memory();
    client.start_ring();
    assert!(client.ended.unwrap().contains("requests in flight"));
}
