//! Greetings of whatever version say who speaks.

#![allow(clippy::unwrap_used)]

mod support;

use azekura_base::*;
use azekura_wire::*;
use proptest::prelude::*;
use support::{bytes_of, decode, frame, hello};

/// Bytes of a greeting that stand in the same places in all versions.
const HELLO_COMMON: usize = 2 + 16 + 4 + 4 + 8 + 8;

/// A Hello of node 0x62 to node 0x63 in version 4, which knew of no shards.
const VERSION_4: &str = "415a4b77010000002a000000000000008dcbf1cf000000000400616000000000000000000000000000006200000063000000\
    64000000000000006500000000000000";

#[test]
fn a_node_from_before_shards_is_understood() {
    let byte = |at: usize| u8::from_str_radix(&VERSION_4[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..VERSION_4.len()).step_by(2).map(byte).collect();
    let (from, to) = (Endpoint::first(NodeId(0x62)), Endpoint::first(NodeId(0x63)));
    let hello = Hello { version: 4, cluster: 0x6061, from, to, incarnation: 0x64, connection: 0x65 };
    assert_eq!(decode(&bytes, &[4096]).unwrap(), [Message::Hello(hello)]);
}

proptest! {
    #[test]
    fn greetings_of_other_versions_say_who_speaks(
        hello in hello(),
        version in any::<u16>(),
        more in proptest::collection::vec(any::<u8>(), 0..64),
        answers in any::<bool>(),
    ) {
        prop_assume!(version != VERSION);
        let mut body = bytes_of(&[Message::Hello(hello)])[HEADER_SIZE..][..HELLO_COMMON].to_vec();
        body[0..2].copy_from_slice(&version.to_le_bytes());
        body.extend(more);
        let (from, to) = (Endpoint::first(hello.from.node), Endpoint::first(hello.to.node));
        let expected = Hello { version, from, to, ..hello };
        let (kind, expected) = if answers { (2, Message::Welcome(expected)) } else { (1, Message::Hello(expected)) };
        prop_assert_eq!(decode(&frame(kind, &body), &[4096]).unwrap(), [expected]);
        prop_assert!(decode(&frame(kind, &body[..HELLO_COMMON - 1]), &[4096]).is_err(), "it does not say who speaks");
    }

    #[test]
    fn greetings_of_this_version_are_of_one_length(hello in hello(), more in 1usize..9) {
        let frame_of = |body: &[u8]| decode(&frame(1, body), &[4096]);
        let body = bytes_of(&[Message::Hello(hello)])[HEADER_SIZE..].to_vec();
        prop_assert_eq!(frame_of(&body).unwrap(), [Message::Hello(hello)]);
        prop_assert!(frame_of(&body[..body.len() - more]).is_err());
        prop_assert!(frame_of(&[body, vec![0; more]].concat()).is_err());
    }
}
