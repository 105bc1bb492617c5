//! Commands and completions: entries and what they say.
#![allow(clippy::unwrap_used)]

use azekura_model::{ReservationCommand, ReservationKind};
use azekura_nvme::command::admin::Admin;
use azekura_nvme::command::fabrics::{CONNECT_DATA_SIZE, ConnectData, Fabrics};
use azekura_nvme::command::io::{Blocks, Flags, Io, Range};
use azekura_nvme::command::reservation::{self, Acquire, Register, Release, Reservation};
use azekura_nvme::command::{Entry, Fuse, Queue, Sgl};
use azekura_nvme::{Command, Completion, Status};
use bytes::Bytes;
use proptest::prelude::*;

fn fabrics() -> impl Strategy<Value = Command> {
    (any::<(u32, bool, u64, u16, u16, u8)>(), 0..4_u8).prop_map(
        |((number, is_long, value, queue, size, byte), which)| {
            Command::Fabrics(match which {
                0 => {
                    let value = if is_long { value } else { value & 0xffff_ffff };
                    Fabrics::PropertySet { offset: number, is_long, value }
                }
                1 => Fabrics::Connect { queue, size, attributes: byte, keep_alive_ms: number },
                2 => Fabrics::PropertyGet { offset: number, is_long },
                _ => Fabrics::Disconnect,
            })
        },
    )
}

fn admin() -> impl Strategy<Value = Command> {
    (any::<(u32, u32, u64, u16, u16, u8, bool)>(), 0..7_u8).prop_map(|(any, which)| {
        let (namespace, value, offset, queue, command, byte, flag) = any;
        Command::Admin(match which {
            0 => Admin::GetLogPage {
                namespace,
                page: byte,
                specific: queue as u8 & 0x7f,
                retains_event: flag,
                len: (u64::from(value) + 1) * 4,
                offset,
            },
            1 => Admin::Identify { namespace, structure: byte, controller: queue, command_set: command as u8 },
            2 => Admin::Abort { queue, command },
            3 => Admin::SetFeatures { namespace, feature: byte, saves: flag, value },
            4 => Admin::GetFeatures { namespace, feature: byte, select: queue as u8 & 7, value },
            5 => Admin::AsynchronousEvent,
            _ => Admin::KeepAlive,
        })
    })
}

fn io() -> impl Strategy<Value = Command> {
    let blocks = (any::<u32>(), any::<u64>(), 1..65537_u32);
    (blocks, any::<(bool, bool, bool)>(), 1..257_u16, 0..7_u8).prop_map(|(blocks, flags, ranges, which)| {
        let (namespace, first, count) = blocks;
        let blocks = Blocks { namespace, first, count };
        let flags = Flags { is_hasty: flags.0, is_durable: flags.1, deallocates: flags.2 && which == 4 };
        Command::Io(match which {
            0 => Io::Flush { namespace },
            1 => Io::Write(blocks, flags),
            2 => Io::Read(blocks, flags),
            3 => Io::Compare(blocks, flags),
            4 => Io::WriteZeroes(blocks, flags),
            5 => Io::Verify(blocks, flags),
            _ => Io::DatasetManagement { namespace, ranges, deallocates: flags.is_durable },
        })
    })
}

fn sgl() -> impl Strategy<Value = Sgl> {
    any::<(bool, u64, u32)>().prop_map(|(is_in_capsule, offset, len)| {
        if is_in_capsule { Sgl::InCapsule { offset, len } } else { Sgl::Transport { len } }
    })
}

fn reservations() -> impl Strategy<Value = Command> {
    (any::<(u32, u32, bool)>(), 1..7_u8, proptest::option::of(any::<bool>()), 0..9_u8).prop_map(
        |((namespace, dwords, flag), kind, persists, which)| {
            let kind = ReservationKind::from_nvme(kind).unwrap();
            let register = |action| Reservation::Register { action, ignores_key: flag, persists };
            let command = match which {
                0 => register(Register::Register),
                1 => register(Register::Unregister),
                2 => register(Register::Replace),
                3 => Reservation::Acquire { action: Acquire::Acquire, kind },
                4 => Reservation::Acquire { action: Acquire::Preempt, kind },
                5 => Reservation::Acquire { action: Acquire::PreemptAndAbort, kind },
                6 => Reservation::Release(Release::Release(kind)),
                7 => Reservation::Release(Release::Clear),
                _ => Reservation::Report { len: (u64::from(dwords) + 1) * 4, is_extended: flag },
            };
            Command::Io(Io::Reservation { namespace, command })
        },
    )
}

/// The queue that a command is for.
fn queue_of(command: &Command) -> Queue {
    if matches!(command, Command::Io(_)) { Queue::Io } else { Queue::Admin }
}

proptest! {
    #[test]
    fn commands_come_as_they_were_put(command in prop_oneof![fabrics(), admin(), io(), reservations()], id in any::<u16>(),
        sgl in sgl()) {
        let entry = command.entry(id, &sgl);
        prop_assert_eq!(Command::of(&entry, queue_of(&command)), Ok(command));
        prop_assert_eq!((entry.id(), entry.sgl(), entry.fuse()), (id, Ok(sgl), Ok(Fuse::No)));
    }

    #[test]
    fn any_entry_is_survived(bytes in proptest::collection::vec(any::<u8>(), 64), opcode in 0..0x20_u8,
        is_fabrics in any::<bool>()) {
        let mut bytes: [u8; 64] = bytes.try_into().unwrap();
        bytes[0] = if is_fabrics { 0x7f } else { opcode };
        bytes[4] %= 10;
        let entry = Entry(bytes);
        for queue in [Queue::Admin, Queue::Io] {
            // What is understood is put again as the same.
            if let (Ok(command), Ok(sgl)) = (Command::of(&entry, queue), entry.sgl()) {
                let again = command.entry(entry.id(), &sgl);
                prop_assert_eq!(Command::of(&again, queue), Ok(command));
            }
        }
        let _ = entry.fuse();
    }

    /// Of any bytes: what is taken names a kind that there is, and asks for what its keys say or for nothing.
    #[test]
    fn any_command_of_reservations_is_survived(bytes in proptest::collection::vec(any::<u8>(), 64), which in 0..4_usize,
        ten in 0..0x800_u32, is_small in any::<bool>(), data in proptest::collection::vec(any::<u8>(), 0..24)) {
        let mut bytes: [u8; 64] = bytes.try_into().unwrap();
        bytes[0] = reservation::OPCODES[which];
        if is_small {
            bytes[40..44].copy_from_slice(&ten.to_le_bytes());
        }
        let Ok(Command::Io(Io::Reservation { command, .. })) = Command::of(&Entry(bytes), Queue::Io) else { return Ok(()) };
        let (first, second) = (data.get(..8), data.get(8..16));
        let number = |key: Option<&[u8]>| key.map(|key| u64::from_le_bytes(key.try_into().unwrap()));
        match (command, command.with_keys(&data)) {
            (Reservation::Report { len, .. }, asked) => {
                prop_assert_eq!(asked, Ok(None));
                prop_assert!(len.is_multiple_of(4) && (4..=1 << 34).contains(&len));
            }
            (_, Err(status)) => {
                prop_assert_eq!(status, Status::SGL_LENGTH_INVALID);
                prop_assert!(data.len() < command.key_bytes());
            }
            (Reservation::Acquire { kind, .. }, Ok(Some(ReservationCommand::Preempt { key, victim, kind: of, .. }))) => {
                prop_assert_eq!((Some(key), Some(victim), kind), (number(first), number(second), of));
                prop_assert_eq!(bytes[41], kind.nvme());
            }
            (_, asked) => prop_assert!(matches!(asked, Ok(Some(_)))),
        }
    }

    #[test]
    fn data_in_a_capsule_is_found_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), offset in 0..300_u64,
        len in 0..300_u32, is_far in any::<bool>()) {
        let offset = if is_far { u64::MAX - offset } else { offset };
        let capsule = Bytes::from(bytes);
        let found = Sgl::InCapsule { offset, len }.in_capsule(&capsule);
        match usize::try_from(offset).ok().filter(|begin| *begin <= capsule.len()) {
            None => prop_assert_eq!(found, Err(Status::SGL_OFFSET_INVALID)),
            Some(begin) if begin + len as usize > capsule.len() => {
                prop_assert_eq!(found, Err(Status::SGL_LENGTH_INVALID));
            }
            Some(begin) => prop_assert_eq!(found, Ok(Some(capsule.slice(begin..begin + len as usize)))),
        }
    }

    #[test]
    fn connect_data_comes_as_it_was_put(host_id in any::<[u8; 16]>(), controller in any::<u16>(),
        subsystem in "[a-z.:0-9-]{1,223}", host in "[a-z.:0-9-]{1,223}") {
        let data = ConnectData { host_id, controller, subsystem, host };
        prop_assert_eq!(ConnectData::of(&data.bytes()), Ok(data));
    }

    #[test]
    fn any_connect_data_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..1100)) {
        let _ = ConnectData::of(&bytes);
        let _ = Range::list(&bytes, 256);
    }

    #[test]
    fn completions_come_as_they_were_put(result in any::<u64>(), numbers in any::<[u16; 3]>(), code in 0..0x800_u16,
        do_not_retry in any::<bool>()) {
        let [queue_head, queue, command] = numbers;
        let completion = Completion { result, queue_head, queue, command, status: Status { code, do_not_retry } };
        prop_assert_eq!(Completion::of(&completion.entry()), completion);
    }
}

/// As Linux's structures nvme_rw_command and nvme_common_command have them.
#[test]
fn bytes_of_a_write() {
    let blocks = Blocks { namespace: 0x0403_0201, first: 0x0807_0605_0403_0201, count: 8 };
    let flags = Flags { is_durable: true, ..Flags::default() };
    let entry = Command::Io(Io::Write(blocks, flags)).entry(0x0605, &Sgl::InCapsule { offset: 0, len: 0x1000 });
    let mut expected = [0; 64];
    expected[..8].copy_from_slice(&[1, 0x40, 5, 6, 1, 2, 3, 4]);
    expected[32..40].copy_from_slice(&[0, 0x10, 0, 0, 0, 0, 0, 0x01]);
    expected[40..52].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 7, 0, 0, 0x40]);
    assert_eq!(entry.0, expected);
}

/// As Linux's nvmf_connect_command and nvmf_connect_data have them.
#[test]
fn bytes_of_a_connect() {
    let connect = Fabrics::Connect { queue: 3, size: 127, attributes: 4, keep_alive_ms: 0x0001_1170 };
    let entry = Command::Fabrics(connect).entry(1, &Sgl::InCapsule { offset: 0, len: CONNECT_DATA_SIZE as u32 });
    assert_eq!(entry.0[..8], [0x7f, 0x40, 1, 0, 1, 0, 0, 0]);
    assert_eq!(entry.0[40..52], [0, 0, 3, 0, 127, 0, 4, 0, 0x70, 0x11, 1, 0]);
    let data = ConnectData { host_id: [7; 16], controller: 0xffff, subsystem: "nqn.a".into(), host: "nqn.b".into() };
    let mut bytes = data.bytes();
    assert_eq!(
        (bytes.len(), &bytes[14..19], &bytes[256..262], &bytes[512..518]),
        (1024, &[7, 7, 255, 255, 0][..], &b"nqn.a\0"[..], &b"nqn.b\0"[..])
    );
    // What is wrong is named by its offset.
    assert_eq!(ConnectData::of(&bytes[..1023]), Err(1023));
    bytes[512] = 0;
    assert_eq!(ConnectData::of(&bytes), Err(512));
    bytes[256..512].fill(b'n');
    assert_eq!(ConnectData::of(&bytes), Err(256));
}

#[test]
fn bytes_of_a_log_page_and_of_identify() {
    let page = Admin::GetLogPage {
        namespace: u32::MAX,
        page: 0x0c,
        specific: 1,
        retains_event: true,
        len: 0x8_0000,
        offset: 0x1_0000_0000,
    };
    let entry = Command::Admin(page).entry(1, &Sgl::Transport { len: 0x8_0000 });
    assert_eq!(entry.0[32..40], [0, 0, 8, 0, 0, 0, 0, 0x5a]);
    assert_eq!(entry.0[40..56], [0x0c, 0x81, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    let identify = Admin::Identify { namespace: 1, structure: 3, controller: 0x0201, command_set: 0 };
    let entry = Command::Admin(identify).entry(1, &Sgl::Transport { len: 4096 });
    assert_eq!((entry.0[0], &entry.0[40..44]), (0x06, &[3, 0, 1, 2][..]));
}

#[test]
fn what_is_not_known_is_refused() {
    let transport = Sgl::Transport { len: 0 };
    let entry = |opcode| Entry::new(opcode, 1, &transport);
    assert_eq!(Command::of(&entry(0x05), Queue::Admin), Err(Status::INVALID_OPCODE));
    assert_eq!(Command::of(&entry(0x06), Queue::Io), Err(Status::INVALID_OPCODE));
    let changed = |opcode, at: usize, byte| {
        let mut entry = entry(opcode);
        entry.0[at] = byte;
        entry
    };
    assert_eq!(Command::of(&changed(0x7f, 4, 9), Queue::Io), Err(Status::INVALID_OPCODE));
    let mut connect = changed(0x7f, 4, 1);
    connect.0[40] = 1;
    assert_eq!(Command::of(&connect, Queue::Io), Err(Status::CONNECT_FORMAT));
    let mut property = changed(0x7f, 4, 4);
    property.0[40] = 2;
    assert_eq!(Command::of(&property, Queue::Admin), Err(Status::INVALID_FIELD));
    assert_eq!(changed(1, 1, 0x00).sgl(), Err(Status::INVALID_FIELD), "PRPs");
    assert_eq!(changed(1, 39, 0x40).sgl(), Err(Status::SGL_TYPE_INVALID), "a keyed descriptor");
    assert_eq!(changed(1, 1, 0x43).fuse(), Err(Status::INVALID_FIELD));
    assert_eq!((changed(5, 1, 0x41).fuse(), changed(1, 1, 0x42).fuse()), (Ok(Fuse::First), Ok(Fuse::Second)));
    // An offset of a log page as an index.
    assert_eq!(Command::of(&changed(0x02, 58, 0x80), Queue::Admin), Err(Status::INVALID_FIELD));
}

/// As Linux's nvme_pr_register, nvme_pr_reserve, nvme_pr_preempt, nvme_pr_clear and nvme-cli's resv-report send them.
#[test]
fn bytes_of_commands_of_reservations() {
    let bytes = |command| {
        let entry =
            Command::Io(Io::Reservation { namespace: 1, command }).entry(1, &Sgl::InCapsule { offset: 0, len: 16 });
        let ten = u32::from_le_bytes(entry.0[40..44].try_into().unwrap());
        (entry.0[0], entry.0[4], ten, entry.0[44])
    };
    let kind = ReservationKind::WriteExclusiveRegistrantsOnly;
    let register = |action, ignores_key, persists| Reservation::Register { action, ignores_key, persists };
    assert_eq!(bytes(register(Register::Register, false, Some(true))), (0x0d, 1, 0xc000_0000, 0));
    assert_eq!(bytes(register(Register::Replace, true, Some(true))), (0x0d, 1, 0xc000_000a, 0));
    assert_eq!(bytes(register(Register::Unregister, true, Some(false))), (0x0d, 1, 0x8000_0009, 0));
    assert_eq!(bytes(Reservation::Acquire { action: Acquire::Acquire, kind }), (0x11, 1, 0x300, 0));
    assert_eq!(bytes(Reservation::Acquire { action: Acquire::PreemptAndAbort, kind }), (0x11, 1, 0x302, 0));
    assert_eq!(bytes(Reservation::Release(Release::Release(kind))), (0x15, 1, 0x300, 0));
    assert_eq!(bytes(Reservation::Release(Release::Clear)), (0x15, 1, 1, 0));
    assert_eq!(bytes(Reservation::Report { len: 4096, is_extended: true }), (0x0e, 1, 1023, 1));
    let keys = reservation::keys(0x0807_0605_0403_0201, 0x0f0e);
    assert_eq!(keys, [1, 2, 3, 4, 5, 6, 7, 8, 0x0e, 0x0f, 0, 0, 0, 0, 0, 0]);
    let acquire = Reservation::Acquire { action: Acquire::Preempt, kind };
    let preempt = ReservationCommand::Preempt { key: 0x0807_0605_0403_0201, victim: 0x0f0e, kind, abort: false };
    assert_eq!(acquire.with_keys(&keys), Ok(Some(preempt)));
    let unregister = register(Register::Unregister, true, None);
    assert_eq!(unregister.with_keys(&keys), Ok(Some(ReservationCommand::Unregister { key: None })));
}

#[test]
fn fields_of_commands_of_reservations_that_are_refused() {
    // Reserved actions, kinds and states of PTPL; and IEKEY where nobody may ignore a key.
    let refused = [
        (reservation::REGISTER, 3),
        (reservation::REGISTER, 1 << 30),
        (reservation::ACQUIRE, 0x103),
        (reservation::ACQUIRE, 0x000),
        (reservation::ACQUIRE, 0x700),
        (reservation::ACQUIRE, 0x108),
        (reservation::RELEASE, 0x102),
        (reservation::RELEASE, 0x000),
        (reservation::RELEASE, 0x009),
    ];
    for (opcode, ten) in refused {
        let mut entry = Entry::new(opcode, 1, &Sgl::InCapsule { offset: 0, len: 16 });
        entry.0[40..44].copy_from_slice(&u32::to_le_bytes(ten));
        assert_eq!(Command::of(&entry, Queue::Io), Err(Status::INVALID_FIELD), "{opcode:#x} {ten:#x}");
    }
}

#[test]
fn ranges() {
    let ranges = [Range { first: 0x0102, count: 8 }, Range { first: u64::MAX, count: u32::MAX }];
    let bytes = ranges.map(|range| range.bytes()).concat();
    assert_eq!(bytes[..16], [0, 0, 0, 0, 8, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Range::list(&bytes, 2), Ok(ranges.to_vec()));
    assert_eq!(Range::list(&bytes, 1).unwrap().len(), 1);
    assert_eq!(Range::list(&bytes, 3), Err(Status::SGL_LENGTH_INVALID));
}

/// Linux takes the status field without its lowest bit: bits 10:0 are type and code, bit 14 is DNR.
#[test]
fn bytes_of_a_completion() {
    let completion =
        Completion { result: 0x0102, queue_head: 3, queue: 0, command: 0x0504, status: Status::INVALID_FIELD };
    assert_eq!(completion.entry(), [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 5, 0x04, 0x80]);
    for (status, linux) in [
        (Status::SUCCESS, 0x0),
        (Status::INVALID_OPCODE, 0x4001),
        (Status::TRANSIENT_TRANSPORT_ERROR, 0x22),
        (Status::LBA_OUT_OF_RANGE, 0x4080),
        (Status::RESERVATION_CONFLICT, 0x4083),
        (Status::CONNECT_INVALID, 0x4182),
        (Status::COMPARE_FAILURE, 0x4285),
        (Status::ACCESS_TRANSITION, 0x303),
    ] {
        let entry = Completion { status, ..completion }.entry();
        assert_eq!(u16::from_le_bytes([entry[14], entry[15]]) >> 1, linux);
    }
}
