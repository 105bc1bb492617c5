//! Structures of Identify, at the offsets where Linux's nvme_id_ctrl and nvme_id_ns have their fields.
#![allow(clippy::unwrap_used)]

use azekura_nvme::identify::{Controller, ControllerType, Namespace, descriptors, namespace_list};

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn controller(controller_type: ControllerType) -> Controller {
    Controller {
        controller_type,
        serial: "0123456789abcdef".into(),
        model: "Azekura é".into(),
        firmware: "0.1.0-longer".into(),
        subsystem: "nqn.2026-01.io.azekura:vol1".into(),
        id: 0x0102,
        multipath: 0x0b,
        transfer_power: 8,
        shutdown_seconds: 60,
        events: 0x0900,
        attributes: 0x40,
        event_requests: 3,
        keep_alive_steps: 10,
        access_seconds: 30,
        access_states: 0x1f,
        access_groups: 0x0708,
        commands_max: 128,
        namespaces: 1024,
        optional_commands: 0x8d,
        fused: 1,
        write_cache: 1,
        capsule_data: 8192,
    }
}

#[test]
fn controllers() {
    let bytes = controller(ControllerType::Io).bytes();
    assert_eq!(bytes.len(), 4096);
    assert_eq!(&bytes[4..24], b"0123456789abcdef    ");
    assert_eq!(&bytes[24..64], b"Azekura ?                               ");
    assert_eq!(&bytes[64..72], b"0.1.0-lo");
    let numbers = [
        ("cmic", 76, 1, 0x0b),
        ("mdts", 77, 1, 8),
        ("cntlid", 78, 2, 0x0102),
        ("ver", 80, 4, 0x0002_0000),
        ("rtd3e", 88, 4, 60_000_000),
        ("oaes", 92, 4, 0x0900),
        ("ctratt", 96, 4, 0x40),
        ("cntrltype", 111, 1, 1),
        ("acl", 258, 1, 3),
        ("aerl", 259, 1, 3),
        ("frmw", 260, 1, 3),
        ("lpa", 261, 1, 6),
        ("kas", 320, 2, 10),
        ("anatt", 342, 1, 30),
        ("anacap", 343, 1, 0x1f),
        ("anagrpmax", 344, 4, 0x0708),
        ("nanagrpid", 348, 4, 0x0708),
        ("sqes", 512, 1, 0x66),
        ("cqes", 513, 1, 0x44),
        ("maxcmd", 514, 2, 128),
        ("nn", 516, 4, 1024),
        ("oncs", 520, 2, 0x8d),
        ("fuses", 522, 2, 1),
        ("vwc", 525, 1, 1),
        ("sgls", 536, 4, 0x0030_0001),
        ("mnan", 540, 4, 1024),
        ("ioccsz", 1792, 4, 516),
        ("iorcsz", 1796, 4, 1),
        ("icdoff", 1800, 2, 0),
        ("msdbd", 1803, 1, 1),
    ];
    for (name, at, len, expected) in numbers {
        assert_eq!(number(&bytes, at, len), expected, "{name}");
    }
    assert_eq!(&bytes[768..796], b"nqn.2026-01.io.azekura:vol1\0");
    // Linux takes a controller for I/O whose capsules are smaller than an entry for a broken one.
    assert_eq!(number(&controller(ControllerType::Discovery).bytes(), 1792, 4), 0);
    let long = Controller { subsystem: "n".repeat(300), ..controller(ControllerType::Io) };
    assert_eq!(long.bytes()[1023], 0);
}

#[test]
fn namespaces() {
    let namespace = Namespace {
        blocks: 0x0001_0000,
        used_blocks: 0x0102,
        block_power: 9,
        features: 0x11,
        is_shared: true,
        reservations: 0xff,
        deallocated: 9,
        compare_and_write: 7,
        preferred_blocks: 8,
        access_group: 0x0304,
        is_read_only: true,
        nguid: *b"0123456789abcdef",
    };
    let bytes = namespace.bytes();
    assert_eq!(bytes.len(), 4096);
    let numbers = [
        ("nsze", 0, 8, 0x0001_0000),
        ("ncap", 8, 8, 0x0001_0000),
        ("nuse", 16, 8, 0x0102),
        ("nsfeat", 24, 1, 0x13),
        ("nlbaf", 25, 1, 0),
        ("flbas", 26, 1, 0),
        ("nmic", 30, 1, 1),
        ("rescap", 31, 1, 0xff),
        ("dlfeat", 33, 1, 9),
        ("nacwu", 38, 2, 7),
        ("nvmcap", 48, 8, 0x0200_0000),
        ("npwg", 64, 2, 7),
        ("npwa", 66, 2, 7),
        ("npdg", 68, 2, 7),
        ("npda", 70, 2, 7),
        ("anagrpid", 92, 4, 0x0304),
        ("nsattr", 99, 1, 1),
        ("lbaf[0].ms", 128, 2, 0),
        ("lbaf[0].ds", 130, 1, 9),
    ];
    for (name, at, len, expected) in numbers {
        assert_eq!(number(&bytes, at, len), expected, "{name}");
    }
    assert_eq!(&bytes[104..120], b"0123456789abcdef");
    let plain = Namespace { features: 1, compare_and_write: 0, ..namespace }.bytes();
    assert_eq!((plain[24], number(&plain, 64, 8)), (1, 0), "what is not said to be there is zero");
    let huge = Namespace { blocks: u64::MAX, block_power: 12, ..namespace }.bytes();
    assert_eq!((number(&huge, 48, 8), number(&huge, 56, 8)), (u64::MAX << 12, 0xfff));
}

#[test]
fn names_of_a_namespace() {
    let bytes = descriptors(&[1; 16], &[2; 16]);
    assert_eq!(bytes.len(), 4096);
    assert_eq!((&bytes[..5], &bytes[19..25]), (&[2, 16, 0, 0, 1][..], &[1, 3, 16, 0, 0, 2][..]));
    assert_eq!(bytes[39..47], [2, 4, 1, 0, 0, 0, 0, 0], "the command set, and then the end");
    assert!(bytes[44..].iter().all(|byte| *byte == 0));
}

#[test]
fn lists_of_namespaces() {
    let bytes = namespace_list(1..=2000, 3);
    assert_eq!((bytes.len(), number(&bytes, 0, 4), number(&bytes, 4092, 4)), (4096, 4, 1027));
    let bytes = namespace_list([5, 7], 5);
    assert_eq!((number(&bytes, 0, 4), number(&bytes, 4, 4)), (7, 0));
}
