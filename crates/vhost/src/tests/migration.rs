//! A guest that is moved: what is written to its memory is logged, its volume is left when its rings stand, and a
//! client that comes before its guest does uses nothing of the volume.

use super::*;
use crate::message::{HEADER_BYTES, features};
use proptest::prelude::*;

const LOG_ALL: u64 = features::LOG_ALL;
/// Where what was used is, as the guest has it.
const USED_LOG: u64 = GUEST + USED as u64;

fn opened() -> Event {
    Event::Opened { name: "v".into() }
}

impl Client {
    fn share_log(&mut self) {
        self.conn.descriptors().push_back(some_file());
        self.send(6, &longs(&[LOG_BYTES as u64, 0]));
    }

    /// As QEMU does it while a ring runs.
    fn begin_to_log(&mut self, others: u64) {
        self.share_log();
        self.negotiate(others | LOG_ALL);
        self.locate_ring(Some(USED_LOG));
    }

    /// The pages that are logged, by number in the guest's memory; and clears the log.
    fn take_logged(&mut self) -> Vec<u64> {
        let pages =
            (0..LOG_BYTES as u64 * 8).filter(|page| self.log.get::<1>(*page as usize / 8)[0] >> (page % 8) & 1 == 1);
        let pages: Vec<u64> = pages.collect();
        self.log.put(0, &[0; LOG_BYTES]);
        pages.into_iter().map(|page| page.checked_sub(GUEST / 4096).expect("no page of the guest's")).collect()
    }

    fn stop_ring(&mut self) {
        self.send(11, &words(&[0, 0]));
    }
}

/// Pages of the memory that differ.
fn changed(before: &[u8], after: &[u8]) -> Vec<u64> {
    let pages = before.chunks(4096).zip(after.chunks(4096)).enumerate();
    pages.filter(|(_, (before, after))| before != after).map(|(page, _)| page as u64).collect()
}

#[test]
fn all_that_is_written_is_logged_from_the_log_on() {
    let mut client = Client::started(0);
    client.request(0, 0, 0, (0x8ffe, 1024), true);
    client.kick();
    client.answers();
    client.begin_to_log(0);
    let answers = client.answers();
    assert_eq!(answers[..HEADER_BYTES + 8], [words(&[6, 5, 8]), longs(&[0])].concat(), "the log is answered");
    assert_eq!(client.take_logged(), [USED as u64 / 4096], "what was used before may have been cut off");
    // A read that had begun before is logged as well.
    client.answer_all();
    assert_eq!(client.take_logged(), [USED / 4096, DATA / 4096, 8, 9].map(|page| page as u64));
    client.request(3, 1, 0, (0xa000, 512), false);
    client.kick();
    client.answer_all();
    assert_eq!(client.take_logged(), [USED / 4096, DATA / 4096].map(|page| page as u64), "a write reads memory");
    // And no more when the guest stays.
    client.used();
    client.negotiate(0);
    client.locate_ring(None);
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    client.answer_all();
    assert!(client.take_logged().is_empty() && client.ended.is_none());
}

#[test]
fn nothing_is_taken_while_there_is_no_log() {
    // As QEMU comes anew while it moves its guest: the log is the last.
    let mut client = Client::connected(volume());
    client.negotiate(LOG_ALL);
    client.share_memory();
    client.request(0, 0, 0, (0x8000, 512), true);
    client.start_ring_logging(Some(USED_LOG));
    client.kick();
    assert!(client.asked.is_empty());
    client.share_log();
    assert_eq!(client.asked.len(), 1);
    client.answer_all();
    assert_eq!(client.take_logged(), [USED / 4096, DATA / 4096, 8].map(|page| page as u64));
}

#[test]
fn the_eventfd_of_the_log_is_rung() {
    let mut client = Client::started(0);
    client.begin_to_log(0);
    client.conn.descriptors().push_back(some_file());
    client.send(7, &[]);
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    client.called.clear();
    client.answer_all();
    assert_eq!(client.called, [0, 64]);
}

#[test]
fn a_log_without_a_place_for_what_is_written_ends_the_connection() {
    let mut client = Client::started(0);
    client.conn.descriptors().push_back(some_file());
    client.send(6, &longs(&[GUEST / 4096 / 8, 0]));
    client.negotiate(LOG_ALL);
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    client.answer_all();
    client.poll();
    assert!(client.ended.unwrap().contains("written at 0x108000"));
    for size in [0, 6, u64::MAX] {
        let mut client = Client::started(0);
        client.conn.descriptors().push_back(some_file());
        client.send(6, &longs(&[size, 0]));
        assert!(client.ended.unwrap().contains("a log of"), "{size}");
    }
    let mut client = Client::started(0);
    client.begin_to_log(0);
    client.locate_ring(Some(u64::MAX));
    assert!(client.ended.unwrap().contains("no place"));
}

#[test]
fn a_client_that_comes_early_uses_nothing() {
    let mut client = Client::connected(volume());
    client.exports.1 = true;
    client.negotiate(0);
    client.share_memory();
    let mut ask = words(&[0, 60, 0]);
    ask.extend([0; 60]);
    client.answers();
    client.send(24, &ask);
    assert_eq!(client.answers()[HEADER_BYTES + 12..][..8], (SIZE / 512).to_le_bytes());
    assert_eq!(client.said, [Event::Stays]);
    // Its guest has come.
    client.request(0, 0, 0, (0x8000, 512), true);
    client.start_ring();
    client.kick();
    assert_eq!(client.said[1], Event::Wanted { name: "v".into() });
    assert!(client.asked.is_empty() && !client.said.contains(&opened()));
    assert!(client.conn.wants_bytes(), "who waits for a volume may still say something");
    // The volume is here, and then the earlier client of the socket is gone.
    (client.exports.1, client.exports.2) = (false, true);
    client.poll();
    assert!(matches!(client.said.last(), Some(Event::WantsNexus { .. })) && client.asked.is_empty());
    client.exports.2 = false;
    client.poll();
    assert_eq!((client.said.last(), client.asked.len()), (Some(&opened()), 1));
    client.answer_all();
    assert_eq!(client.used(), [(0, 513)]);
}

#[test]
fn the_volume_is_left_when_the_guest_goes_and_not_before() {
    let mut client = Client::started(0);
    client.begin_to_log(0);
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    client.said.clear();
    client.stop_ring();
    assert!(client.said.is_empty(), "a request is under way");
    client.answer_all();
    assert_eq!(client.said, [Event::Leaves]);
    client.request(3, 0, 0, (0x9000, 512), true);
    client.kick();
    assert!(client.asked.is_empty());
    // It could not go, and goes on here.
    client.used();
    client.negotiate(0);
    client.share_memory();
    client.start_ring();
    assert_eq!((client.said.pop(), client.asked.len()), (Some(opened()), 1));
    client.answer_all();
    assert_eq!(client.used(), [(3, 513)]);
}

#[test]
fn who_goes_before_the_volume_has_come_leaves_it_as_well() {
    let mut client = Client::connected(volume());
    client.exports.1 = true;
    client.share_log();
    client.start(LOG_ALL);
    assert_eq!(client.said.last(), Some(&Event::Wanted { name: "v".into() }));
    client.stop_ring();
    assert_eq!(client.said.last(), Some(&Event::Leaves));
    client.exports.1 = false;
    client.poll();
    assert_eq!(client.said.last(), Some(&Event::Leaves));
    client.start_ring();
    assert_eq!(client.said.last(), Some(&opened()));
}

#[test]
fn a_guest_that_is_paused_keeps_its_volume() {
    let mut client = Client::started(0);
    client.stop_ring();
    assert_eq!(client.said, [Event::Stays, opened()]);
    client.start_ring();
    client.request(0, 0, 0, (0x8000, 512), true);
    client.kick();
    assert_eq!((client.said.len(), client.asked.len()), (2, 1));
}

#[test]
fn a_volume_that_is_another_one_by_now_is_not_opened() {
    let mut client = Client::connected(volume());
    client.negotiate(0);
    client.share_memory();
    client.exports.0.id = VolumeId(8);
    client.start_ring();
    assert!(client.ended.unwrap().contains("another volume"));
}

#[test]
fn who_has_sent_a_socket_is_told_that_the_volume_has_grown() {
    let mut client = Client::connected(volume());
    client.negotiate(0);
    client.conn.descriptors().push_back(some_file());
    client.send(21, &[]);
    client.share_memory();
    client.exports.0.size = 2 * SIZE;
    client.poll();
    assert!(client.told.is_empty(), "before it uses the volume");
    client.start_ring();
    client.poll();
    assert_eq!(client.told, [words(&[2, 1, 0])], "it has read the size before that");
    client.exports.0.size = 3 * SIZE;
    (0..2).for_each(|_| client.poll());
    assert_eq!(client.told.len(), 2, "once");
    // Another one has the name.
    (client.exports.0.id, client.exports.0.size) = (VolumeId(8), SIZE);
    client.poll();
    assert_eq!((client.told.len(), client.ended.take()), (2, None));
    client.conn.refused(65, "no socket".into());
    client.poll();
    assert!(client.ended.unwrap().contains("for messages can't be used: no socket"));
}

/// What a client may do to its volume, in any order.
#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    Stop,
    Log(bool),
    Ask,
    Answer,
    /// The volume is somebody else's, or is not any more.
    Held(bool),
    Waits(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Start),
        3 => Just(Step::Stop),
        2 => any::<bool>().prop_map(Step::Log),
        3 => Just(Step::Ask),
        3 => Just(Step::Answer),
        1 => any::<bool>().prop_map(Step::Held),
        1 => any::<bool>().prop_map(Step::Waits),
    ]
}

proptest! {
    /// Requests are made of a volume that is opened, and it is left when none is under way. Whatever changes in the
    /// guest's memory while that is logged is in the log.
    #[test]
    fn no_request_without_the_volume_and_no_page_without_its_bit(
        steps in proptest::collection::vec(any_step(), 1..60),
        event_idx: bool,
    ) {
        let others = if event_idx { crate::block::features::EVENT_IDX } else { 0 };
        let mut client = Client::connected(volume());
        client.negotiate(others);
        client.share_memory();
        let (mut runs, mut logs, mut free) = (false, false, vec![0u16, 3]);
        let (mut is_open, mut heard) = (false, 0);
        for step in steps {
            let before = client.memory.0.borrow().clone();
            client.take_logged();
            match step {
                Step::Start if !runs && client.conn.wants_bytes() => {
                    client.start_ring_logging(logs.then_some(USED_LOG));
                    runs = true;
                }
                Step::Stop if runs => {
                    client.stop_ring();
                    runs = false;
                }
                Step::Log(wanted) if client.conn.wants_bytes() => {
                    if wanted && !logs {
                        client.share_log();
                    }
                    logs = wanted;
                    client.negotiate(others | if logs { LOG_ALL } else { 0 });
                    client.locate_ring(logs.then_some(USED_LOG));
                }
                Step::Ask if !free.is_empty() => {
                    let head = free.pop().unwrap();
                    client.request(head, 0, 4, (0x8000 + 0x1000 * usize::from(head), 1024), true);
                    client.kick();
                    let own = changed(&before, &client.memory.0.borrow());
                    prop_assert!(own.iter().all(|page| *page <= DATA as u64 / 4096), "the driver writes there");
                    continue;
                }
                Step::Answer if !client.asked.is_empty() => client.answer(0),
                Step::Held(held) if !is_open => client.exports.1 = held,
                Step::Waits(waits) if !is_open => client.exports.2 = waits,
                _ => {}
            }
            client.poll();
            prop_assert_eq!(&client.ended, &None);
            for event in client.said.drain(heard..) {
                match event {
                    Event::Opened { .. } => prop_assert!(!std::mem::replace(&mut is_open, true)),
                    // It may have been about to open.
                    Event::Leaves => is_open = false,
                    _ => {}
                }
            }
            heard = client.said.len();
            prop_assert!(is_open || client.asked.is_empty(), "a request without its volume");
            let pages = changed(&before, &client.memory.0.borrow());
            let logged = client.take_logged();
            prop_assert!(!logs || pages.iter().all(|page| logged.contains(page)), "{:?} of {:?}", logged, pages);
            free.extend(client.used().into_iter().map(|(head, _)| head as u16));
        }
    }
}
