//! Payloads and headers, sound and broken.

use super::*;
use proptest::prelude::*;

#[test]
fn lengths_are_those_of_the_protocol() {
    assert_eq!(Message::read(1, &[]), Ok(Message::GetFeatures));
    assert_eq!(Message::read(1, &[0; 8]), Err(Violation::Length { name: "GET_FEATURES", bytes: 8 }));
    assert_eq!(Message::read(2, &7u64.to_ne_bytes()), Ok(Message::SetFeatures(7)));
    assert_eq!(Message::read(34, &[]), Err(Violation::Unknown(34)));
    let mut table = vec![0; 8 + 2 * REGION_BYTES];
    table[0] = 2;
    table[8] = 9;
    let Ok(Message::SetMemory(regions)) = Message::read(5, &table) else { panic!() };
    assert_eq!((regions.len(), regions[0].guest), (2, 9));
    table[0] = 3;
    assert_eq!(Message::read(5, &table), Err(Violation::Length { name: "SET_MEM_TABLE", bytes: 72 }));
    table[0] = 9;
    assert!(Message::read(5, &table).is_err_and(|error| error.to_string().contains("9 regions")));
}

#[test]
fn values_that_can_not_be_are_named() {
    let state = |queue: u32, number: u32| [queue, number].into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<_>>();
    assert!(Message::read(8, &state(64, 1)).is_err_and(|error| error.to_string().contains("no queue 64")));
    assert!(Message::read(18, &state(0, 2)).is_err_and(|error| error.to_string().contains("neither 0 nor 1")));
    assert!(Message::read(12, &(1u64 << 9).to_ne_bytes()).is_err());
    let kick = Message::read(12, &(3 | NO_DESCRIPTOR).to_ne_bytes());
    assert_eq!(kick, Ok(Message::SetKick { queue: 3, has_descriptor: false }));
    let config = |offset: u32, size: u32| {
        let mut bytes: Vec<u8> = [offset, size, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.resize(CONFIG_HEAD + 60, 0);
        Message::read(24, &bytes)
    };
    assert_eq!(config(0, 60), Ok(Message::GetConfig(ConfigAt { offset: 0, size: 60, flags: 0 })));
    assert!(config(200, 60).is_err() && config(u32::MAX, u32::MAX).is_err() && config(0, 61).is_err());
}

#[test]
fn headers_are_of_version_1_and_no_answers() {
    let header = |request: u32, flags: u32, size: u32| {
        let bytes: Vec<u8> = [request, flags, size].into_iter().flat_map(u32::to_ne_bytes).collect();
        Header::read(&bytes.try_into().unwrap())
    };
    assert_eq!(header(1, 9, 0), Ok(Header { request: 1, needs_reply: true, payload_bytes: 0 }));
    assert_eq!(header(1, 2, 0), Err(Violation::Version(2)));
    assert!(header(1, 5, 0).is_err() && header(1, 1, 1025).is_err() && header(0, 1, 0).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_a_breach(
        request in prop_oneof![0u32..45, any::<u32>()],
        bytes in proptest::collection::vec(any::<u8>(), 0..PAYLOAD_MAX),
    ) {
        if let Err(violation) = Message::read(request, &bytes) {
            prop_assert!(!violation.to_string().is_empty());
        }
    }

    #[test]
    fn inflight_comes_back_as_it_was_sent(size: u64, offset: u64, queues in 1u16..=64, entries in 1u16..=1024, padded: bool) {
        let at = InflightAt { size, offset, queues, entries, padded };
        prop_assert_eq!(Message::read(31, &inflight(&at)), Ok(Message::GetInflight(at)));
    }
}
