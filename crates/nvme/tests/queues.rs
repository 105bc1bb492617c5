//! I/O queues: commands and their data, memory, and hosts that do what they may not.
#![allow(clippy::unwrap_used)]

use crate::support::host::*;
use azekura_base::IoStatus;
use azekura_frontend::{Event, Protocol, StreamProtocol};
use azekura_gateway::Outcome;
use azekura_nvme::command::io::{Flags, Io, Range};
use azekura_nvme::command::{Command, Sgl};
use azekura_nvme::pdu::reader::Received;
use azekura_nvme::pdu::{Digests, Pdu, ReadyToTransfer};
use azekura_nvme::{Controllers, PARKED_BYTES_MAX, Status, TRANSFER_MAX};
use proptest::prelude::*;
use std::sync::Arc;

fn controllers() -> Arc<Controllers> {
    Arc::new(Controllers::new(1))
}

/// An I/O queue, with the admin queue that keeps its controller.
fn queue(digests: Digests) -> (Host, Host) {
    let controllers = controllers();
    let (admin, id) = Host::admin(&controllers);
    let io = Host::io(&controllers, id, 1, digests);
    (admin, io)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 512) as u8).collect()
}

fn asked(host: &mut Host) -> ReadyToTransfer {
    let pdus = host.received();
    let [Received { pdu: Pdu::ReadyToTransfer(r2t), .. }] = pdus[..] else { panic!("{pdus:?}") };
    r2t
}

#[test]
fn what_is_written_is_read() {
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let (_admin, mut io) = queue(digests);
        let data = pattern(64 << 10);
        assert_eq!(io.write(16, &data, 4096).status, Status::SUCCESS);
        let (done, _) = io.ask(&write(0, 4096), data[..4096].to_vec(), 0);
        assert_eq!(done.status, Status::SUCCESS);
        assert_eq!((&io.volume[8192..8192 + data.len()], &io.volume[..4096]), (&data[..], &data[..4096]));
        assert_eq!(io.ask(&read(16, data.len()), Vec::new(), data.len() as u32).1, data);
        assert_eq!(io.write(0, &pattern(TRANSFER_MAX as usize), 256 << 10).status, Status::SUCCESS);
        assert!(io.rooms.is_empty(), "all memory has become requests");
    }
}

#[test]
fn without_flow_control_data_completes_a_command() {
    let controllers = controllers();
    let (_admin, id) = Host::admin(&controllers);
    let mut io = Host::new(&controllers, Digests::default());
    let (done, _) = io.connect(1, 127, id, 4, SUBSYSTEM);
    assert_eq!((done.status, done.queue_head), (Status::SUCCESS, 0xffff));
    io.command(&read(0, 512), &[], 512);
    let pdus = io.received();
    let [Received { pdu: Pdu::ControllerData(header), .. }] = &pdus[..] else { panic!("{pdus:?}") };
    assert!(header.is_success && header.is_last);
}

#[test]
fn the_queue_head_goes_with_completions() {
    let (_admin, mut io) = queue(Digests::default());
    io.hold = true;
    let [first, second] = [1, 2].map(|_| io.command(&read(0, 512), &[], 512));
    assert!(io.received().is_empty());
    let (tag, request) = io.held.pop_back().unwrap();
    io.perform(tag, request);
    io.let_go();
    let heads: Vec<(u16, u16)> = io.completions().iter().map(|done| (done.command, done.queue_head)).collect();
    assert_eq!(heads, [(second, 2), (first, 3)], "one was Connect's");
}

#[test]
fn commands_that_change_blocks() {
    let (_admin, mut io) = queue(Digests::default());
    io.volume.fill(1);
    let zeroes = Command::Io(Io::WriteZeroes(blocks(8, 4096), Flags::default()));
    assert_eq!(io.ask(&zeroes, Vec::new(), 0).0.status, Status::SUCCESS);
    assert!(io.volume[4096..8192].iter().all(|byte| *byte == 0) && io.volume[8192] == 1);
    let ranges = [Range { first: 0, count: 1 }, Range { first: 100, count: 0 }, Range { first: 64, count: 8 }];
    let mut data = ranges.map(|range| range.bytes()).concat();
    data.resize(4096, 0xff);
    let dsm = |deallocates| Command::Io(Io::DatasetManagement { namespace: 1, ranges: 3, deallocates });
    assert_eq!(io.ask(&dsm(false), data.clone(), 0).0.status, Status::SUCCESS);
    assert_eq!(io.volume[0], 1, "a hint");
    assert_eq!(io.ask(&dsm(true), data.clone(), 0).0.status, Status::SUCCESS);
    let is_zero = |at: usize, len: usize| io.volume[at..at + len].iter().all(|byte| *byte == 0);
    assert!(is_zero(0, 512) && io.volume[512] == 1 && is_zero(32768, 4096) && io.volume[51200] == 1);
    data[40..48].fill(0x7f);
    assert_eq!(io.ask(&dsm(true), data, 0).0.status, Status::LBA_OUT_OF_RANGE);
    for command in
        [Command::Io(Io::Flush { namespace: 1 }), Command::Io(Io::Verify(blocks(0, 2 << 20), Flags::default()))]
    {
        assert_eq!(io.ask(&command, Vec::new(), 0).0.status, Status::SUCCESS);
    }
    assert!(io.rooms.is_empty());
}

#[test]
fn all_of_a_command_is_asked_for_without_waiting_for_answers() {
    let (_admin, mut io) = queue(Digests::default());
    io.hold = true;
    let verify = io.command(&Command::Io(Io::Verify(blocks(0, 3 << 20), Flags::default())), &[], 0);
    assert_eq!(io.held.len(), 3, "an answer has nobody look for more");
    while let Some((tag, request)) = io.held.pop_front() {
        assert!(io.received().is_empty());
        io.perform(tag, request);
    }
    assert_eq!(io.completed(verify).0.status, Status::SUCCESS);
    // The first failure stands, and the command is completed once.
    let verify = io.command(&Command::Io(Io::Verify(blocks(0, 2 << 20), Flags::default())), &[], 0);
    for (tag, _) in std::mem::take(&mut io.held) {
        io.conn.reply(tag, Outcome::Failed(IoStatus::Io));
    }
    io.run();
    assert_eq!(io.completed(verify).0.status, Status::READ_ERROR);
    assert!(io.rooms.is_empty());
}

#[test]
fn what_a_command_may_not() {
    let (_admin, mut io) = queue(Digests::default());
    let end = VOLUME_BYTES as u64 / 512;
    let namespace = |namespace| {
        Command::Io(Io::Read(azekura_nvme::command::io::Blocks { namespace, ..blocks(0, 512) }, Flags::default()))
    };
    for (command, room, status) in [
        (read(end, 512), 512, Status::LBA_OUT_OF_RANGE),
        (read(u64::MAX, 1024), 1024, Status::LBA_OUT_OF_RANGE),
        (read(0, 512), 1024, Status::SGL_LENGTH_INVALID),
        (read(0, 2 << 20), 2 << 20, Status::INVALID_FIELD),
        (namespace(2), 512, Status::INVALID_NAMESPACE),
        (Command::Io(Io::Compare(blocks(0, 512), Flags::default())), 1024, Status::SGL_LENGTH_INVALID),
        (Host::connect_entry(1, 31, 0), 0, Status::SEQUENCE_ERROR),
    ] {
        assert_eq!(io.ask(&command, Vec::new(), room).0.status, status, "{command:?}");
    }
}

#[test]
fn a_read_only_volume_takes_no_writes() {
    let controllers = controllers();
    let (_admin, id) = Host::admin(&controllers);
    let mut io = Host::new(&controllers, Digests::default());
    io.one.is_read_only.set(true);
    assert_eq!(io.connect(1, 31, id, 0, SUBSYSTEM).0.status, Status::SUCCESS);
    assert_eq!(io.ask(&write(0, 512), vec![1; 512], 0).0.status, Status::WRITE_PROTECTED);
    assert_eq!(io.ask(&read(0, 512), Vec::new(), 512).0.status, Status::SUCCESS);
}

#[test]
fn a_volume_that_has_grown_is_written_at_its_end() {
    let (_admin, mut io) = queue(Digests::default());
    let end = VOLUME_BYTES as u64 / 512;
    assert_eq!(io.ask(&write(end, 512), vec![1; 512], 0).0.status, Status::LBA_OUT_OF_RANGE);
    io.one.size.set(2 * VOLUME_BYTES as u64);
    io.volume.resize(2 * VOLUME_BYTES, 0);
    assert_eq!(io.ask(&write(end, 512), vec![1; 512], 0).0.status, Status::SUCCESS);
    assert_eq!(io.volume[VOLUME_BYTES], 1);
}

#[test]
fn wrong_data_fails_its_command_and_nothing_else() {
    let (_admin, mut io) = queue(Digests { header: false, data: true });
    let data = pattern(8192);
    let id = io.command(&write(0, 8192), &[], 8192);
    let r2t = asked(&mut io);
    let header = azekura_nvme::pdu::DataHeader {
        command: id,
        transfer: r2t.transfer,
        offset: 0,
        len: 4096,
        is_last: false,
        is_success: false,
    };
    let mut bytes = crate::support::sent(&[(Pdu::HostData(header), vec![data[..4096].to_vec().into()])], &io.terms);
    *bytes.last_mut().unwrap() ^= 1;
    io.send_bytes(&bytes);
    let rest = ReadyToTransfer { offset: 4096, len: 4096, ..r2t };
    io.transfer(&rest, &data, 4096);
    assert_eq!(io.completed(id).0.status, Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(io.volume.iter().all(|byte| *byte == 0) && io.rooms.is_empty());
    assert_eq!(io.write(0, &data, 8192).status, Status::SUCCESS);
}

#[test]
fn data_that_was_not_asked_for_ends_the_connection() {
    let (_admin, mut io) = queue(Digests::default());
    let r2t = ReadyToTransfer { command: 77, transfer: 5, offset: 0, len: 512 };
    io.transfer(&r2t, &[0; 512], 512);
    assert!(matches!(io.events.pop(), Some(Event::Violation(_))));
    let last = io.received().pop().unwrap();
    assert!(matches!(last.pdu, Pdu::ControllerTerminates(_)));
}

#[test]
fn a_queue_has_so_many_entries() {
    let controllers = controllers();
    let (_admin, id) = Host::admin(&controllers);
    let mut io = Host::new(&controllers, Digests::default());
    io.connect(1, 3, id, 0, SUBSYSTEM);
    io.hold = true;
    for _ in 0..4 {
        io.command(&read(0, 512), &[], 512);
    }
    assert!(!io.events.iter().any(|event| matches!(event, Event::Violation(_))));
    io.command(&read(0, 512), &[], 512);
    assert!(matches!(io.events.pop(), Some(Event::Violation(_))));
}

#[test]
fn capsules_wait_when_there_is_no_memory() {
    let (_admin, mut io) = queue(Digests::default());
    io.has_room = false;
    let data = pattern(8192);
    let sent = PARKED_BYTES_MAX / 8192;
    for at in 0..sent {
        io.command(&write(at as u64 * 16, 8192), &data, 0);
    }
    assert!(io.conn.wants_bytes());
    let id = io.next_id();
    let capsule = Pdu::Command(write(sent as u64 * 16, 8192).entry(id, &Sgl::InCapsule { offset: 0, len: 8192 }).0);
    let bytes = crate::support::sent(&[(capsule, vec![data.clone().into()])], &io.terms);
    assert!(io.send_bytes(&bytes) > 0 || !io.conn.wants_bytes(), "it waits in the stream");
    io.has_room = true;
    io.run();
    assert!(io.completions().len() >= sent);
}

#[test]
fn what_was_asked_for_comes_through_behind_capsules_that_wait() {
    let (_admin, mut io) = queue(Digests::default());
    let data = pattern(16 << 10);
    let large = io.command(&write(0, data.len()), &[], data.len() as u32);
    let r2t = asked(&mut io);
    // From now on others have all memory, until this write is done.
    io.has_room = false;
    let most = 4 * PARKED_BYTES_MAX / 8192;
    for at in 0..most + 3 {
        io.command(&write(64 + at as u64 * 16, 8192), &data[..8192], 0);
    }
    let refused = io.completions();
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused.iter().all(|done| done.status == Status::INTERRUPTED));
    io.transfer(&r2t, &data, 4096);
    assert_eq!(io.completed(large).0.status, Status::SUCCESS);
    io.has_room = true;
    io.run();
    assert_eq!(io.completions().len(), most);
}

/// What a host may do with a queue.
#[derive(Clone, Debug)]
enum Step {
    Read(u64, usize),
    Capsule(u64, usize),
    Write(u64, usize, usize),
    Zero(u64, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0..VOLUME_BYTES as u64 / 512 - 256;
    let step = prop_oneof![
        (at.clone(), 1..64_usize).prop_map(|(at, count)| Step::Read(at, count * 512)),
        (at.clone(), 1..=16_usize).prop_map(|(at, count)| Step::Capsule(at, count * 512)),
        (at.clone(), 1..128_usize, 1..40_usize).prop_map(|(at, count, step)| Step::Write(at, count * 512, step * 512)),
        (at, 1..128_usize).prop_map(|(at, count)| Step::Zero(at, count * 512)),
    ];
    proptest::collection::vec(step, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However TCP cuts the stream, a volume is what was written to it.
    #[test]
    fn any_cut_of_the_stream_comes_to_the_same(steps in steps(), piece in 1..3000_usize, header: bool, data: bool) {
        let (_admin, mut io) = queue(Digests { header, data });
        io.piece = piece;
        let mut model = vec![0; VOLUME_BYTES];
        for (number, step) in steps.iter().enumerate() {
            let bytes = |len: usize| (0..len).map(|at| (at + number * 31) as u8).collect::<Vec<u8>>();
            let done = match *step {
                Step::Read(at, len) => {
                    let (done, read) = io.ask(&read(at, len), Vec::new(), len as u32);
                    prop_assert_eq!(&read[..], &model[at as usize * 512..][..len]);
                    done
                }
                Step::Capsule(at, len) => {
                    model[at as usize * 512..][..len].copy_from_slice(&bytes(len));
                    io.ask(&write(at, len), bytes(len), 0).0
                }
                Step::Write(at, len, step) => {
                    model[at as usize * 512..][..len].copy_from_slice(&bytes(len));
                    io.write(at, &bytes(len), step)
                }
                Step::Zero(at, len) => {
                    model[at as usize * 512..][..len].fill(0);
                    io.ask(&Command::Io(Io::WriteZeroes(blocks(at, len), Flags::default())), Vec::new(), 0).0
                }
            };
            prop_assert_eq!(done.status, Status::SUCCESS);
        }
        prop_assert!(io.volume == model);
    }

    /// Whatever entries come, on whichever queue, nothing breaks, and memory that was given comes back.
    #[test]
    fn no_entry_does_harm(
        entries in proptest::collection::vec((any::<[u8; 32]>(), any::<[u8; 32]>(), any::<bool>(), any::<u8>()), 1..30),
        is_admin: bool,
    ) {
        let (mut admin, mut io) = queue(Digests::default());
        let host = if is_admin { &mut admin } else { &mut io };
        for (low, high, is_plausible, opcode) in entries {
            let mut bytes: [u8; 64] = [low, high].concat().try_into().unwrap();
            if is_plausible {
                (bytes[0], bytes[1], bytes[39]) = (opcode % 0x1a, 0x40, 0x5a);
                bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
                bytes[41..48].fill(0);
                bytes[50..56].fill(0);
            }
            host.send(&Pdu::Command(entry(&bytes).0), &[]);
            host.received();
        }
    }

    /// Whatever bytes come after a beginning, nothing breaks.
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400), has_connected: bool) {
        let (_admin, mut io) = queue(Digests::default());
        if !has_connected {
            io = Host::new(&controllers(), Digests::default());
        }
        io.send_bytes(&bytes);
        io.run();
    }
}
