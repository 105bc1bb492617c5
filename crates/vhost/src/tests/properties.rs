//! Whatever comes, from the control connection or in a ring: no panic, no loop without end, bounded memory.

use super::*;
use crate::block::features::{EVENT_IDX, INDIRECT_DESC};
use proptest::prelude::*;

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![0u64..70, Just(USER), Just(GUEST), Just(4096), any::<u64>()];
    let payload = prop_oneof![
        proptest::collection::vec(small, 0..6).prop_map(|numbers| longs(&numbers)),
        (0u32..66, 0u32..20).prop_map(|(queue, number)| words(&[queue, number])),
        proptest::collection::vec(any::<u8>(), 0..80),
    ];
    prop_oneof![
        8 => (0u32..41, payload).prop_map(|(request, payload)| message(request, &payload)),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

/// Descriptors that often make sense.
fn any_descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let address = prop_oneof![
        6 => (0..MEMORY_BYTES as u64).prop_map(|at| GUEST + at),
        1 => any::<u64>(),
    ];
    let bytes = prop_oneof![Just(0u32), Just(1), Just(16), Just(512), Just(1024), 0u32..5000, any::<u32>()];
    (address, bytes, 0u16..8, 0u16..10)
}

proptest! {
    #[test]
    fn any_messages(messages in proptest::collection::vec(any_message(), 0..12), started: bool, files in 0usize..12) {
        let mut client = Client::connected(volume());
        if started {
            client.start(EVENT_IDX | INDIRECT_DESC);
        }
        client.conn.descriptors().extend((0..files).map(|_| some_file()));
        for message in messages {
            if client.ended.is_some() || !client.conn.wants_bytes() {
                break;
            }
            client.send_bytes(&message);
            client.answer_all();
        }
        prop_assert!(client.answers().len() < 1 << 16);
    }

    #[test]
    fn any_rings(
        descriptors in proptest::collection::vec(any_descriptor(), 16),
        heads in proptest::collection::vec(0u16..9, 1..20),
        kinds in proptest::collection::vec(prop_oneof![0u32..15, any::<u32>()], 8),
        sectors in proptest::collection::vec(prop_oneof![0u64..3000, any::<u64>()], 8),
        steps in proptest::collection::vec(0usize..4, 1..40),
        event_idx: bool,
    ) {
        let features = INDIRECT_DESC | if event_idx { EVENT_IDX } else { 0 };
        let mut client = Client::started(features);
        for (index, (at, bytes, flags, next)) in descriptors.iter().enumerate() {
            client.descriptor(index as u16, *at, *bytes, *flags, *next);
        }
        for (index, (kind, sector)) in kinds.iter().zip(&sectors).enumerate() {
            client.header(DATA + index * 1024, *kind, *sector);
        }
        let mut heads = heads.into_iter();
        for step in steps {
            match step {
                0 | 1 => heads.next().into_iter().for_each(|head| client.make_available(head)),
                2 => client.kick(),
                _ if !client.asked.is_empty() => client.answer(client.asked.len() / 2),
                _ => {}
            }
            prop_assert!(client.asked.len() <= ENTRIES.into(), "more than the ring has");
        }
        client.kick();
        client.answer_all();
    }

    /// A ring that is used as it should be gives each chain back once, in any order of answers, over many rounds.
    #[test]
    fn sound_rings(steps in proptest::collection::vec((0usize..3, 0usize..8), 1..300), event_idx: bool) {
        let mut client = Client::started(if event_idx { EVENT_IDX } else { 0 });
        let mut free = vec![0u16, 3];
        let mut done = 0;
        for (step, number) in steps {
            match step {
                0 if !free.is_empty() => {
                    let head = free.remove(number % free.len());
                    client.request(head, 0, number as u64, (0x8000 + 0x1000 * usize::from(head), 1024), true);
                    client.kick();
                }
                1 if !client.asked.is_empty() => client.answer(number % client.asked.len()),
                _ => {
                    for (head, written) in client.used() {
                        prop_assert!(written == 1025 && !free.contains(&(head as u16)));
                        free.push(head as u16);
                        done += 1;
                    }
                }
            }
        }
        client.answer_all();
        done += client.used().len();
        prop_assert_eq!(done, usize::from(client.available));
        prop_assert_eq!(client.ended, None);
    }
}
