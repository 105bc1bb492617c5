//! Targets with several logical units: sessions, with the front end behind them (decision 0060).
#![allow(clippy::unwrap_used)]

use crate::support::node::{BUSY, CHECK, FULL, GOOD, Host, Node, answer, answers};
use crate::support::{read_10, write_10};
use azekura_base::VolumeId;
use azekura_gateway::Op;
use azekura_model::{RegistrantName, ReservationCommand, ReservationKind, ReservationsRecord};

const TARGET: &str = "iqn.2026-01.io.azekura.targets:t";
const ME: &str = "iqn.2000-01.example:me";
const YOU: &str = "iqn.2000-01.example:you";
const TEST_UNIT_READY: [u8; 6] = [0; 6];
const REPORT_LUNS: [u8; 12] = [0xa0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
const SERIAL: [u8; 6] = [0x12, 1, 0x80, 0, 96, 0];
const ABORTED: Option<(u8, u8, u8)> = Some((0xb, 0, 0));
const ACCESS_CHANGED: Option<(u8, u8, u8)> = Some((6, 0x2a, 6));
const LUNS_CHANGED: Option<(u8, u8, u8)> = Some((6, 0x3f, 0x0e));
const RESET: Option<(u8, u8, u8)> = Some((6, 0x29, 3));
const NO_LUN: Option<(u8, u8, u8)> = Some((5, 0x25, 0));
const CONFLICT: u8 = 0x18;
const TASK_ABORTED: u8 = 0x40;
const ABORT_TASK_SET: u8 = 2;
const LOGICAL_UNIT_RESET: u8 = 5;

fn two() -> Node {
    Node::new(&["a", "b", "c"], &[(0, "a"), (3, "b")])
}

fn luns(node: &mut Node, host: &mut Host) -> Vec<u8> {
    let (bytes, status, _) = host.read(node, 0, &REPORT_LUNS, 1024);
    assert_eq!(status, GOOD);
    bytes[8..].chunks(8).map(|lun| lun[1]).collect()
}

/// What a unit holds first: each volume is full of its own number.
fn first(node: &mut Node, host: &mut Host, lun: u16) -> u8 {
    let (bytes, status, sense) = host.read(node, lun, &read_10(0, 1), 512);
    assert_eq!((bytes.len(), status, sense), (512, GOOD, None));
    bytes[0]
}

#[test]
fn each_unit_is_a_volume() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    assert_eq!(luns(&mut node, &mut host), [0, 3]);
    assert!(node.attachments.is_empty(), "nothing is opened before it is needed");
    assert_eq!(host.read(&mut node, 3, &SERIAL, 96).0[4..], *b"0000000000000002");
    assert!(node.attachments.is_empty());
    assert_eq!([first(&mut node, &mut host, 3), first(&mut node, &mut host, 0)], [2, 1]);
    assert_eq!(node.attachments.len(), 2);
    assert_eq!(host.read(&mut node, 1, &read_10(0, 1), 512).2, NO_LUN);
    host.write_at_last(&mut node, 3, &write_10(0, 1), &[7; 512]);
    assert_eq!((node.disks.bytes["a"][0], node.disks.bytes["b"][0]), (1, 7));
}

#[test]
fn unit_0_answers_whether_there_is_one_or_not() {
    let mut node = Node::new(&["a"], &[(5, "a")]);
    let mut host = Host::log_in(&mut node, ME, TARGET);
    let (bytes, status, _) = host.read(&mut node, 0, &INQUIRY, 96);
    assert_eq!((status, bytes[0], &bytes[8..16]), (GOOD, 0x7f, &b"AZEKURA "[..]));
    assert_eq!(luns(&mut node, &mut host), [5]);
    assert_eq!(host.read(&mut node, 0, &TEST_UNIT_READY, 0).2, NO_LUN);
}

#[test]
fn a_write_is_taken_when_its_host_knows_that_the_unit_is_open() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    let before = host.exp_stat_sn;
    // It opens the unit, and is not carried out, whether its data comes with it or would have to be asked for.
    for immediate in [512, 0] {
        host.send_as_of(&mut node, before, 3, &write_10(0, 1), 0, (&[7; 512], immediate));
        assert_eq!(answer(&host.received(&mut node)).1, BUSY);
    }
    assert_eq!(first(&mut node, &mut host, 3), 2);
    // What was sent before the unit was open may be older than what the host wrote elsewhere.
    host.send_as_of(&mut node, before, 3, &write_10(0, 1), 0, (&[7; 512], 512));
    assert_eq!(answer(&host.received(&mut node)).1, GOOD, "what comes behind was sent behind");
    node.ends("b");
    let lost = host.exp_stat_sn;
    assert_eq!(first(&mut node, &mut host, 3), 7, "it is opened again");
    let late = host.exp_stat_sn;
    host.send_as_of(&mut node, lost, 3, &write_10(0, 1), 0, (&[8; 512], 512));
    assert_eq!(answer(&host.received(&mut node)).1, BUSY, "it was sent when the unit was open, and not when it is");
    assert!(late > lost);
    assert_eq!(host.write(&mut node, 3, &write_10(0, 1), &[9; 512]).1, GOOD);
    assert_eq!(node.disks.bytes["b"][0], 9);
}

#[test]
fn reads_wait_until_their_unit_is_open_and_those_of_others_do_not() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    node.slow.insert("b".to_owned());
    let read = host.send(&mut node, 3, &read_10(0, 1), 512);
    let ready = host.send(&mut node, 3, &TEST_UNIT_READY, 0);
    assert!(host.received(&mut node).is_empty());
    assert_eq!(first(&mut node, &mut host, 0), 1);
    assert_eq!(host.write(&mut node, 3, &write_10(0, 1), &[7; 512]).1, BUSY, "a write does not wait");
    node.attach_all();
    let answers = answers(host.received(&mut node));
    assert_eq!((answers[&read].0[0], answers[&ready].1), (2, GOOD));
    assert_eq!(node.disks.bytes["b"][0], 2);
}

#[test]
fn a_unit_that_another_has_is_not_ready_and_is_asked_for_again() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    node.refused.insert("b".to_owned());
    for cdb in [&read_10(0, 1)[..], &TEST_UNIT_READY] {
        assert_eq!(host.read(&mut node, 3, cdb, 512).2, Some((2, 4, 3)));
    }
    assert_eq!(first(&mut node, &mut host, 0), 1);
    node.refused.clear();
    assert_eq!(first(&mut node, &mut host, 3), 2);
}

#[test]
fn a_lost_unit_answers_when_nothing_of_it_is_under_way_and_others_go_on() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    assert_eq!([first(&mut node, &mut host, 3), first(&mut node, &mut host, 0)], [2, 1]);
    node.answers = false;
    let write = host.send_as_of(&mut node, host.exp_stat_sn, 3, &write_10(0, 1), 0, (&[7; 512], 512));
    // This one's data is still to be asked for.
    let waiting = host.send_as_of(&mut node, host.exp_stat_sn, 3, &write_10(8, 1), 0, (&[7; 512], 0));
    let other = host.send(&mut node, 0, &read_10(0, 1), 512);
    host.received(&mut node);
    node.ends("b");
    assert!(host.received(&mut node).is_empty(), "its write may still be carried out");
    node.answers = true;
    node.turn();
    let answers = answers(host.received(&mut node));
    assert_eq!((answers[&write].1, answers[&waiting].1, answers[&other].1), (BUSY, BUSY, GOOD));
    assert_eq!(node.disks.bytes["b"][0], 2);
    assert_eq!(first(&mut node, &mut host, 3), 2);
    assert!(node.closed.is_empty());
}

#[test]
fn a_write_where_the_host_reads_closes_its_unit_alone() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    node.reads_only.insert("b".to_owned());
    assert_eq!([first(&mut node, &mut host, 3), first(&mut node, &mut host, 0)], [2, 1]);
    // REPORT TARGET PORT GROUPS tells how good a path it is.
    let groups = |node: &mut Node, host: &mut Host, lun| {
        host.read(node, lun, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], 64).0[4] & 0xf
    };
    assert_eq!([groups(&mut node, &mut host, 3), groups(&mut node, &mut host, 0)], [1, 0]);
    assert_eq!(host.write(&mut node, 3, &write_10(0, 1), &[7; 512]).1, BUSY, "it is not carried out");
    assert_eq!(node.to_write, ["b"]);
    assert_eq!((node.disks.bytes["b"][0], node.closed.len()), (2, 0));
    node.reads_only.clear();
    node.ends("b");
    assert_eq!(first(&mut node, &mut host, 3), 2);
    assert_eq!(host.read(&mut node, 3, &TEST_UNIT_READY, 0).2, ACCESS_CHANGED);
    host.write_at_last(&mut node, 3, &write_10(0, 1), &[7; 512]);
    assert_eq!((node.disks.bytes["b"][0], groups(&mut node, &mut host, 3)), (7, 0));
}

#[test]
fn units_come_and_go_and_hosts_hear_of_it_once() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    assert_eq!([first(&mut node, &mut host, 3), first(&mut node, &mut host, 0)], [2, 1]);
    node.set_units(&[(0, "a"), (3, "b"), (4, "c")]);
    assert_eq!(host.read(&mut node, 3, &TEST_UNIT_READY, 0).2, LUNS_CHANGED);
    assert_eq!(host.read(&mut node, 0, &TEST_UNIT_READY, 0).1, GOOD, "it is told once");
    assert_eq!(luns(&mut node, &mut host), [0, 3, 4]);
    assert_eq!(first(&mut node, &mut host, 4), 3);
    node.answers = false;
    let read = host.send(&mut node, 3, &read_10(0, 1), 512);
    node.set_units(&[(0, "a"), (4, "c")]);
    assert_eq!(luns(&mut node, &mut host), [0, 4]);
    assert_eq!(host.read(&mut node, 0, &TEST_UNIT_READY, 0).1, GOOD, "REPORT LUNS has told it");
    assert_eq!(host.read(&mut node, 3, &TEST_UNIT_READY, 0).2, NO_LUN);
    node.answers = true;
    node.turn();
    assert_eq!(answers(host.received(&mut node))[&read].1, CHECK);
    assert_eq!(first(&mut node, &mut host, 4), 3);
    // A volume that is deleted goes, too, before the target says so.
    node.delete("c");
    assert_eq!(host.read(&mut node, 4, &read_10(0, 1), 512).2, NO_LUN);
    assert_eq!(luns(&mut node, &mut host), [0]);
    node.set_units(&[]);
    assert_eq!(luns(&mut node, &mut host), [] as [u8; 0]);
    node.set_units(&[(9, "b")]);
    assert_eq!(luns(&mut node, &mut host), [9]);
    assert_eq!(first(&mut node, &mut host, 9), 2);
}

#[test]
fn a_host_sees_what_it_may_open() {
    let mut node = two();
    node.admit(false, &[(ME, &["b"]), (YOU, &["a", "b"])]);
    let (mut me, mut you) = (Host::log_in(&mut node, ME, TARGET), Host::log_in(&mut node, YOU, TARGET));
    assert_eq!((luns(&mut node, &mut me), luns(&mut node, &mut you)), (vec![3], vec![0, 3]));
    assert_eq!(me.read(&mut node, 0, &read_10(0, 1), 512).2, NO_LUN);
    assert_eq!(first(&mut node, &mut you, 0), 1);
    node.admit(false, &[(ME, &["a", "b"]), (YOU, &["b"])]);
    assert_eq!(you.read(&mut node, 0, &read_10(0, 1), 512).2, NO_LUN);
    assert_eq!(me.read(&mut node, 3, &TEST_UNIT_READY, 0).2, LUNS_CHANGED);
    assert_eq!((luns(&mut node, &mut me), first(&mut node, &mut me, 0)), (vec![0, 3], 1));
    node.admit(false, &[(YOU, &["c"])]);
    assert!(node.closed.contains(&me.conn), "who may nothing has no session");
    assert_eq!(luns(&mut node, &mut you), [] as [u8; 0]);
    let (_, status) = Host::try_log_in(&mut node, YOU, TARGET);
    assert_eq!(status, Some(0x0203), "who sees no unit sees no target");
}

#[test]
fn resets_are_of_one_unit_in_all_sessions() {
    let mut node = two();
    let (mut me, mut you) = (Host::log_in(&mut node, ME, TARGET), Host::log_in(&mut node, YOU, TARGET));
    for host in [&mut me, &mut you] {
        assert_eq!([first(&mut node, host, 3), first(&mut node, host, 0)], [2, 1]);
    }
    node.answers = false;
    let (mine, yours) = (me.send(&mut node, 0, &read_10(0, 1), 512), you.send(&mut node, 0, &read_10(0, 1), 512));
    let ended = you.send(&mut node, 3, &read_10(0, 1), 512);
    assert_eq!(me.function(&mut node, LOGICAL_UNIT_RESET, 3, 0), None, "another session has a task of it");
    node.answers = true;
    node.turn();
    let (of_me, of_you) = (me.received(&mut node), answers(you.received(&mut node)));
    assert_eq!(of_me.iter().filter(|pdu| pdu.bhs.itt() == mine).count(), 1, "unit 0 was not reset");
    assert_eq!([yours, ended].map(|tag| of_you[&tag].1), [GOOD, TASK_ABORTED]);
    for host in [&mut me, &mut you] {
        assert_eq!(host.read(&mut node, 3, &TEST_UNIT_READY, 0).2, RESET);
        assert_eq!(host.read(&mut node, 0, &TEST_UNIT_READY, 0).1, GOOD);
    }
    assert_eq!(me.function(&mut node, ABORT_TASK_SET, 5, 0), Some(2), "there is no such unit");
    assert_eq!(me.function(&mut node, ABORT_TASK_SET, 3, 0), Some(0));
}

/// A command that may have been carried out, and would come to something else when it is repeated, says so.
#[test]
fn what_can_not_be_repeated_is_told_when_its_unit_is_lost() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    assert_eq!(first(&mut node, &mut host, 3), 2);
    node.answers = false;
    let compare: [u8; 16] = [0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    let both = [[2; 512], [7; 512]].concat();
    let task = host.send_as_of(&mut node, host.exp_stat_sn, 3, &compare, 0, (&both, 1024));
    node.ends("b");
    node.answers = true;
    node.turn();
    assert_eq!(answers(host.received(&mut node))[&task].2, ABORTED);
}

/// What a function has ended is not answered before it can't happen any more, also where its unit is lost meanwhile.
#[test]
fn a_function_waits_for_what_a_lost_unit_had() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    assert_eq!(first(&mut node, &mut host, 3), 2);
    node.answers = false;
    host.send_as_of(&mut node, host.exp_stat_sn, 3, &write_10(0, 1), 0, (&[7; 512], 512));
    assert_eq!(host.function(&mut node, ABORT_TASK_SET, 3, 0), None);
    node.ends("b");
    assert!(host.functions(&mut node).is_empty());
    node.answers = true;
    node.turn();
    assert_eq!(host.functions(&mut node), [0]);
}

#[test]
fn one_unit_does_not_take_all_commands() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    assert_eq!([first(&mut node, &mut host, 3), first(&mut node, &mut host, 0)], [2, 1]);
    node.answers = false;
    for _ in 0..64 {
        host.send(&mut node, 3, &read_10(0, 1), 512);
    }
    assert!(host.received(&mut node).is_empty());
    assert_eq!(host.read(&mut node, 3, &read_10(0, 1), 512).1, FULL);
    assert_eq!(host.write(&mut node, 3, &write_10(0, 1), &[7; 512]).1, FULL);
    let other = host.send(&mut node, 0, &read_10(0, 1), 512);
    node.answers = true;
    node.turn();
    let answers = answers(host.received(&mut node));
    assert_eq!((answers.len(), answers[&other].0[0]), (65, 1));
    node.set_units(&[(3, "b")]);
    assert_eq!(luns(&mut node, &mut host), [3]);
    node.answers = false;
    for _ in 0..100 {
        host.send(&mut node, 3, &read_10(0, 1), 512);
    }
    assert!(host.received(&mut node).is_empty(), "where it is alone it may have all");
}

#[test]
fn a_host_that_logs_in_anew_waits_unit_by_unit() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    assert_eq!([first(&mut node, &mut host, 3), first(&mut node, &mut host, 0)], [2, 1]);
    node.answers = false;
    host.send_as_of(&mut node, host.exp_stat_sn, 3, &write_10(0, 1), 0, (&[7; 512], 512));
    let mut again = Host::log_in(&mut node, ME, TARGET);
    assert!(node.closed.contains(&host.conn));
    let waits = again.send(&mut node, 3, &read_10(0, 1), 512);
    let goes = again.send(&mut node, 0, &read_10(0, 1), 512);
    let is_write = |op: &Op| matches!(op, Op::Write { .. });
    let mut asked: Vec<_> = node.disks.asked.values().map(|(of, _, op)| (of.as_str(), is_write(op))).collect();
    asked.sort_unstable();
    assert_eq!(asked, [("a", false), ("b", true)], "unit 3 waits for what the former session has written");
    node.answers = true;
    node.turn();
    let answers = answers(again.received(&mut node));
    assert_eq!((answers[&waits].0[0], answers[&goes].0[0]), (7, 1));
}

#[test]
fn a_session_of_the_volume_itself_goes_beside() {
    let mut node = two();
    let mut one = Host::log_in(&mut node, ME, "iqn.2026-01.io.azekura:b");
    let mut all = Host::log_in(&mut node, YOU, TARGET);
    assert_eq!([first(&mut node, &mut one, 0), first(&mut node, &mut all, 3)], [2, 2]);
    assert_eq!(one.write(&mut node, 0, &write_10(0, 1), &[7; 512]).1, GOOD);
    assert_eq!(first(&mut node, &mut all, 3), 7);
    assert_eq!(one.function(&mut node, LOGICAL_UNIT_RESET, 0, 0), Some(0));
    assert_eq!(all.read(&mut node, 3, &TEST_UNIT_READY, 0).2, RESET);
    let (_, status) = Host::try_log_in(&mut node, ME, "iqn.2026-01.io.azekura.targets:b");
    assert_eq!(status, Some(0x0203), "no target is called so");
}

/// A volume's number, and a block of it.
type At = (u64, u64);

/// EXTENDED COPY of these segments (from where, to where, blocks): its command and list.
fn copy(segments: &[(At, At, u16)]) -> (Vec<u8>, Vec<u8>) {
    let mut list = vec![0; 16];
    (list[0], list[3], list[11]) = (5, 64 * segments.len() as u8, 28 * segments.len() as u8);
    for volume in segments.iter().flat_map(|((from, _), (to, _), _)| [*from, *to]) {
        let mut target = vec![0; 32];
        (target[0], target[4], target[5], target[7], target[30]) = (0xe4, 1, 3, 8, 2);
        target[8..16].copy_from_slice(&(3 << 60 | volume).to_be_bytes());
        list.extend(target);
    }
    for (index, ((_, from), (_, to), count)) in (0_u8..).zip(segments) {
        list.extend([&[2, 0, 0, 24, 0, 2 * index, 0, 2 * index + 1, 0, 0][..], &count.to_be_bytes()].concat());
        list.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
    }
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    (cdb, list)
}

#[test]
fn blocks_are_copied_from_unit_to_unit() {
    let mut node = two();
    let mut host = Host::log_in(&mut node, ME, TARGET);
    let blocks = 1100;
    // The first goes from one to the other, the second back, and the command may be sent to either.
    let (cdb, list) = copy(&[((1, 0), (2, 8), blocks), ((2, 7), (1, 2000), 2)]);
    for lun in [3, 0] {
        host.write_at_last(&mut node, lun, &cdb, &list);
        let [a, b] = ["a", "b"].map(|name| &node.disks.bytes[name]);
        let end = 512 * (8 + usize::from(blocks));
        assert_eq!((b[512 * 8 - 1], b[512 * 8], b[end - 1], b[end]), (2, 1, 1, 2));
        assert_eq!((a[2000 * 512 - 1], a[2000 * 512], a[2001 * 512], a[2002 * 512]), (1, 2, 1, 1));
        for name in ["a", "b"] {
            let byte = if name == "a" { 1 } else { 2 };
            node.disks.bytes.get_mut(name).unwrap().fill(byte);
        }
    }
    let (cdb, list) = copy(&[((1, 0), (3, 0), 8)]);
    assert_eq!(host.write(&mut node, 0, &cdb, &list).2, Some((0xa, 0x0d, 2)), "a volume that is no unit of the target");
}

#[test]
fn a_copy_ends_when_the_unit_that_it_reads_or_writes_is_lost() {
    for lost in ["a", "b"] {
        let mut node = two();
        let mut host = Host::log_in(&mut node, ME, TARGET);
        let (cdb, list) = copy(&[((1, 0), (2, 0), 8)]);
        host.write_at_last(&mut node, 0, &cdb, &list);
        node.answers = false;
        let (cdb, list) = copy(&[((1, 0), (2, 0), 2048)]);
        let task = host.send_as_of(&mut node, host.exp_stat_sn, 0, &cdb, 0, (&list, list.len()));
        assert!(host.received(&mut node).is_empty());
        node.ends(lost);
        assert!(host.received(&mut node).is_empty(), "something of it may still be carried out");
        node.answers = true;
        node.turn();
        let (_, status, sense) = answers(host.received(&mut node))[&task].clone();
        assert!(status == CHECK && sense == ABORTED, "{lost}: {status} {sense:?}");
        // The other unit is as it was, and the lost one opens again.
        assert_eq!(first(&mut node, &mut host, 0), 1);
        first(&mut node, &mut host, 3);
    }
}

/// Rights are those of the moment in which a write enters: what waits in a session is not let in by rights from before
/// a reservation that its fence was answered for.
#[test]
fn what_waits_for_a_unit_is_barred_by_a_reservation_that_comes_meanwhile() {
    let mut node = two();
    node.set_reservations(ReservationsRecord::none(VolumeId(1)));
    let mut host = Host::log_in(&mut node, ME, TARGET);
    host.write_at_last(&mut node, 0, &write_10(0, 1), &[7; 512]);
    node.disks.stuck.insert("a".to_owned());
    let ask = |node: &mut Node, host: &mut Host, block: u32| {
        let data = [8; 512];
        host.send_as_of(node, host.exp_stat_sn, 0, &write_10(block, 1), 0, (&data, data.len()))
    };
    let tags = [1, 2, 3].map(|block| ask(&mut node, &mut host, block));
    // Other units do not wait.
    host.write_at_last(&mut node, 3, &write_10(0, 1), &[7; 512]);
    let other = RegistrantName::Nvme { host: 5 };
    let record = ReservationsRecord::none(VolumeId(1));
    let record = record.carry_out(&other, &ReservationCommand::RegisterNew { new: 7 }, 1).1.unwrap();
    let reserve = ReservationCommand::Reserve { key: 7, kind: ReservationKind::WriteExclusive };
    let record = record.carry_out(&other, &reserve, 2).1.unwrap();
    node.set_reservations(record);
    assert!(node.heeded.is_empty(), "a write of before waits");
    node.disks.stuck.clear();
    node.turn();
    assert_eq!(node.heeded, [2]);
    let ends = answers(host.received(&mut node));
    assert_eq!(tags.map(|tag| ends[&tag].1), [GOOD, CONFLICT, CONFLICT]);
    assert_eq!([512, 1024, 1536].map(|at| node.disks.bytes["a"][at]), [8, 1, 1]);
    assert_eq!(first(&mut node, &mut host, 0), 7);
}
