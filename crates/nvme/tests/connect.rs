//! Connect, and what an admin queue says: properties, Identify, features, log pages, events.
#![allow(clippy::unwrap_used)]

use crate::support::host::{ENABLE, HOST, Host, One, SUBSYSTEM, identify as ask_for, log as ask_log, read, write};
use azekura_base::{GrantId, HostName, NodeId};
use azekura_frontend::{Admittance, Event, Named, Opening, PathState, Portal, Protocol};
use azekura_nvme::command::Command;
use azekura_nvme::command::admin::Admin;
use azekura_nvme::command::fabrics::ConnectData;
use azekura_nvme::names::{DISCOVERY, PREFIX};
use azekura_nvme::pdu::Digests;
use azekura_nvme::properties::{CC, CSTS};
use azekura_nvme::{Controllers, Status, identify, log};
use std::rc::Rc;
use std::sync::Arc;

fn controllers() -> Arc<Controllers> {
    let controllers = Arc::new(Controllers::new(1));
    controllers.set_cluster(0xabc << 64);
    controllers
}

fn fresh(controllers: &Arc<Controllers>) -> Host {
    Host::new(controllers, Digests::default())
}

#[test]
fn a_connection_becomes_a_queue() {
    let controllers = controllers();
    let mut admin = fresh(&controllers);
    admin.one.has_nexus.set(false);
    let connect = admin.command(&Host::connect_entry(0, 31, 0), &Host::connect_data(0xffff, SUBSYSTEM).bytes(), 0);
    let Some(Event::Leads { party, export, .. }) = admin.events.pop() else { panic!("{:?}", admin.events) };
    assert_eq!((export.as_str(), admin.received().len()), ("vol1", 0));
    admin.run();
    assert!(matches!(admin.events.pop(), Some(Event::Leads { party: again, .. }) if again == party));
    admin.one.has_nexus.set(true);
    admin.run();
    let (done, _) = admin.completed(connect);
    assert_eq!((done.status, done.queue_head), (Status::SUCCESS, 1));
    let opened = Event::Opened { name: "vol1".to_owned() };
    let patience = Event::Patience(Some(std::time::Duration::from_secs(5)));
    assert_eq!(admin.events, [opened, patience]);
    let id = done.result as u16;
    let mut io = fresh(&controllers);
    assert_eq!(io.connect(1, 31, id, 0, SUBSYSTEM).0.status, Status::SEQUENCE_ERROR, "it is not enabled");
    admin.enable();
    let mut io = fresh(&controllers);
    io.one.has_nexus.set(false);
    io.command(&Host::connect_entry(1, 31, 0), &Host::connect_data(id, SUBSYSTEM).bytes(), 0);
    assert!(matches!(io.events.pop(), Some(Event::Follows { party: same, .. }) if same == party));
    drop(admin);
    let mut io = fresh(&controllers);
    assert_eq!(io.connect(2, 31, id, 0, SUBSYSTEM).0.status, Status::CONNECT_INVALID, "the controller is gone");
}

#[test]
fn what_connect_refuses() {
    let controllers = controllers();
    let (_admin, id) = Host::admin(&controllers);
    let long = format!("{SUBSYSTEM}0");
    for (queue, size, controller, subsystem, at) in [
        (0, 0, 0xffff, SUBSYSTEM, 44),
        (0, 256, 0xffff, SUBSYSTEM, 44),
        (0, 31, id, SUBSYSTEM, 1 << 16 | 16),
        (1, 31, 0xffff, SUBSYSTEM, 1 << 16 | 16),
        (1, 31, id ^ 1, SUBSYSTEM, 1 << 16 | 16),
        (65, 31, id, SUBSYSTEM, 42),
        (0, 31, 0xffff, long.as_str(), 1 << 16 | 256),
        (0, 31, 0xffff, "nqn.2000-01.example:other", 1 << 16 | 256),
        (1, 31, 3, DISCOVERY, 42),
    ] {
        let (done, _) = fresh(&controllers).connect(queue, size, controller, 0, subsystem);
        assert_eq!(
            (done.status, done.result),
            (Status::CONNECT_INVALID, at),
            "{queue} {size} {controller} {subsystem}"
        );
    }
    let other = ConnectData { host: format!("{HOST}2"), ..Host::connect_data(id, SUBSYSTEM) };
    let same_name = ConnectData { host_id: [1; 16], ..Host::connect_data(id, SUBSYSTEM) };
    for data in [other, same_name] {
        let (done, _) = fresh(&controllers).ask(&Host::connect_entry(1, 31, 0), data.bytes(), 0);
        assert_eq!(done.status, Status::CONNECT_INVALID_HOST);
    }
    let (done, _) = fresh(&controllers).ask(&read(0, 512), Vec::new(), 512);
    assert_eq!(done.status, Status::SEQUENCE_ERROR, "Connect comes first");
    let mut late = fresh(&controllers);
    *late.one.opening.borrow_mut() = Some(Opening::Refused("it is attached elsewhere".to_owned()));
    assert_eq!(late.connect(0, 31, 0xffff, 0, SUBSYSTEM).0.status, Status::CONNECT_BUSY);
    assert_eq!(controllers.len(), 1, "nothing is left of those that were refused");
}

#[test]
fn a_host_is_let_in_before_it_hears_of_what_there_is() {
    let controllers = controllers();
    let none = "nqn.2026-01.io.azekura:none";
    for (said, status) in
        [(Admittance::Refused, Status::CONNECT_INVALID_HOST), (Admittance::NotYet, Status::CONNECT_BUSY)]
    {
        for subsystem in [SUBSYSTEM, none, DISCOVERY] {
            let mut host = fresh(&controllers);
            *host.one.admittance.borrow_mut() = said.clone();
            assert_eq!(host.connect(0, 31, 0xffff, 0, subsystem).0.status, status, "{subsystem}");
            assert_eq!((host.named, &host.events[..]), (None, &[Event::Closed][..]), "{subsystem}");
        }
    }
    let mut host = fresh(&controllers);
    *host.one.admittance.borrow_mut() = Admittance::Granted(Some(GrantId(5)));
    assert_eq!(host.connect(0, 31, 0xffff, 0, SUBSYSTEM).0.status, Status::SUCCESS);
    assert_eq!(host.named, Some(Named { host: HostName::of_nvme_host(HOST), grant: Some(GrantId(5)) }));
}

#[test]
fn a_queue_connects_once() {
    let controllers = controllers();
    let (mut admin, id) = Host::admin(&controllers);
    drop(Host::io(&controllers, id, 1, Digests::default()));
    assert_eq!(fresh(&controllers).connect(1, 31, id, 0, SUBSYSTEM).0.status, Status::CONNECT_INVALID);
    // A reset lets it connect again.
    assert_eq!(admin.set(CC, 0), Status::SUCCESS);
    assert_eq!(admin.get(CSTS), 0);
    assert_eq!(fresh(&controllers).connect(1, 31, id, 0, SUBSYSTEM).0.status, Status::SEQUENCE_ERROR);
    admin.enable();
    drop(Host::io(&controllers, id, 1, Digests::default()));
}

#[test]
fn a_reset_is_over_when_the_queues_are() {
    let controllers = controllers();
    let (mut admin, id) = Host::admin(&controllers);
    let mut io = Host::io(&controllers, id, 1, Digests::default());
    admin.hold = true;
    admin.events.clear();
    assert_eq!(admin.set(CC, ENABLE | 1 << 14), Status::SUCCESS);
    let Some(Event::Disbands(token)) = admin.events.pop() else { panic!("{:?}", admin.events) };
    assert_eq!((admin.get(CSTS), admin.get(CSTS)), (1 | 1 << 2, 1 | 1 << 2), "the shutdown goes on");
    assert_eq!(io.ask(&write(0, 512), vec![1; 512], 0).0.status, Status::SEQUENCE_ERROR);
    assert_eq!(admin.ask(&ask_for(identify::CONTROLLER, 0), Vec::new(), 4096).0.status, Status::SEQUENCE_ERROR);
    admin.conn.swept(token);
    assert_eq!(admin.get(CSTS), 1 | 2 << 2);
}

#[test]
fn what_a_controller_says_of_itself() {
    let controllers = controllers();
    let (mut admin, id) = Host::admin(&controllers);
    let mut ask = |structure, namespace| admin.ask(&ask_for(structure, namespace), Vec::new(), 4096);
    let (_, controller) = ask(identify::CONTROLLER, 0);
    assert_eq!(controller[78..80], id.to_le_bytes());
    assert_eq!(&controller[768..768 + SUBSYSTEM.len()], SUBSYSTEM.as_bytes());
    let (_, namespace) = ask(identify::NAMESPACE, 1);
    assert_eq!((namespace[..8].to_vec(), namespace[130]), (8192_u64.to_le_bytes().to_vec(), 9));
    let (_, list) = ask(identify::NAMESPACE_LIST, 0);
    assert_eq!(list[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let (_, names) = ask(identify::DESCRIPTORS, 1);
    // NGUID, UUID and command set, as names.rs has them for volume 7.
    assert_eq!((names[0], names[11], names[20], names[39], names[40]), (2, 7, 3, 7, 4));
    assert_eq!(namespace[104..120], names[4..20]);
    for structure in [identify::SET_NAMESPACE, identify::SET_CONTROLLER, identify::INDEPENDENT_NAMESPACE] {
        assert_eq!(ask(structure, 1).0.status, Status::SUCCESS);
    }
    for (structure, namespace, status) in [
        (identify::NAMESPACE, 2, Status::INVALID_NAMESPACE),
        (identify::NAMESPACE, u32::MAX, Status::INVALID_NAMESPACE),
        (identify::NAMESPACE_LIST, u32::MAX, Status::INVALID_NAMESPACE),
        (0x55, 1, Status::INVALID_FIELD),
    ] {
        assert_eq!(ask(structure, namespace).0.status, status, "{structure:#x} {namespace}");
    }
    let (done, _) = admin.ask(&ask_for(identify::CONTROLLER, 0), Vec::new(), 512);
    assert_eq!(done.status, Status::SGL_LENGTH_INVALID);
}

#[test]
fn features_and_logs() {
    let controllers = controllers();
    let (mut admin, id) = Host::admin(&controllers);
    let set = |feature, value| Command::Admin(Admin::SetFeatures { namespace: 0, feature, saves: false, value });
    let get = |feature, value| Command::Admin(Admin::GetFeatures { namespace: 0, feature, select: 0, value });
    let (done, _) = admin.ask(&set(7, 0x0003_0005), Vec::new(), 0);
    assert_eq!((done.status, done.result), (Status::SUCCESS, 0x0003_0003));
    assert_eq!(admin.ask(&get(7, 0), Vec::new(), 0).0.result, 0x0003_0003);
    let (done, _) = admin.ask(&set(7, 0xffff), Vec::new(), 0);
    assert_eq!(done.status, Status::INVALID_FIELD);
    assert_eq!(fresh(&controllers).connect(5, 31, id, 0, SUBSYSTEM).0.status, Status::CONNECT_INVALID);
    let _io = Host::io(&controllers, id, 4, Digests::default());
    assert_eq!(admin.ask(&set(7, 0), Vec::new(), 0).0.status, Status::SEQUENCE_ERROR);
    admin.events.clear();
    assert_eq!(admin.ask(&set(0x0f, 7_500), Vec::new(), 0).0.status, Status::SUCCESS);
    assert_eq!(admin.events, [Event::Patience(Some(std::time::Duration::from_secs(8)))]);
    assert_eq!(admin.ask(&get(0x0f, 0), Vec::new(), 0).0.result, 8_000);
    let mut behavior = vec![0; 512];
    behavior[0] = 1;
    assert_eq!(admin.ask(&set(0x16, 0), behavior.clone(), 0).0.status, Status::SUCCESS);
    assert_eq!(admin.ask(&get(0x16, 0), Vec::new(), 512).1, behavior);
    assert_eq!(admin.ask(&get(0x81, 1), Vec::new(), 16).1, [9; 16]);
    for (command, status) in [
        (set(6, 0), Status::INVALID_FIELD),
        (get(0x55, 0), Status::INVALID_FIELD),
        (get(0x81, 0), Status::HOST_ID_FORMAT),
    ] {
        assert_eq!(admin.ask(&command, Vec::new(), 0).0.status, status);
    }
    let (_, supported) = admin.ask(&ask_log(log::SUPPORTED, 1024, 0), Vec::new(), 1024);
    for page in 0..=255_u8 {
        let is_there = supported[usize::from(page) * 4] & 1 != 0;
        let (done, _) = admin.ask(&ask_log(page, 64, 0), Vec::new(), 64);
        assert_eq!(done.status == Status::SUCCESS, is_there, "{page:#x}");
    }
    assert_eq!(admin.ask(&ask_log(log::SMART, 512, 1024), Vec::new(), 512).0.status, Status::INVALID_FIELD);
}

#[test]
fn a_host_learns_which_path_is_the_better_one() {
    let page = |specific, len| {
        let ask = Admin::GetLogPage { namespace: 0, page: log::ACCESS, specific, retains_event: false, len, offset: 0 };
        Command::Admin(ask)
    };
    for (path, state) in [(PathState::Optimized, 1), (PathState::NonOptimized, 2)] {
        let mut admin = fresh(&controllers());
        admin.one.path.set(path);
        assert_eq!(admin.connect(0, 31, 0xffff, 0, SUBSYSTEM).0.status, Status::SUCCESS);
        admin.enable();
        let (_, controller) = admin.ask(&ask_for(identify::CONTROLLER, 0), Vec::new(), 4096);
        assert_eq!((controller[76], controller[93] & 8, controller[343]), (0x0b, 8, 0x43), "CMIC, OAES, ANACAP");
        assert!(controller[342] > 0, "ANATT");
        assert_eq!((controller[344], controller[348]), (1, 1), "ANAGRPMAX, NANAGRPID");
        let (_, namespace) = admin.ask(&ask_for(identify::NAMESPACE, 1), Vec::new(), 4096);
        assert_eq!(namespace[92], 1, "ANAGRPID");
        let (_, whole) = admin.ask(&page(0, 52), Vec::new(), 52);
        let mut expected = vec![0; 52];
        (expected[8], expected[16], expected[20], expected[32], expected[48]) = (1, 1, 1, state, 1);
        assert_eq!(whole, expected);
        let (_, groups) = admin.ask(&page(1, 48), Vec::new(), 48);
        assert_eq!((groups[20], groups[32]), (0, state), "no namespaces, and the state all the same");
    }
}

#[test]
fn a_volume_that_grows_is_an_event() {
    let (mut admin, _) = Host::admin(&controllers());
    let wants = Command::Admin(Admin::SetFeatures { namespace: 0, feature: 0x0b, saves: false, value: 1 << 8 });
    assert_eq!(admin.ask(&wants, Vec::new(), 0).0.status, Status::SUCCESS);
    let event = Command::Admin(Admin::AsynchronousEvent);
    let first = admin.command(&event, &[], 0);
    admin.run();
    assert!(admin.received().is_empty(), "nothing has happened");
    admin.one.size.set(8 << 20);
    admin.run();
    let (done, _) = admin.completed(first);
    assert_eq!((done.status, done.result), (Status::SUCCESS, 0x0004_0002));
    admin.command(&event, &[], 0);
    admin.one.size.set(16 << 20);
    admin.run();
    assert!(admin.received().is_empty(), "the host has not read the log yet");
    let (_, changed) = admin.ask(&ask_log(log::CHANGED_NAMESPACES, 4096, 0), Vec::new(), 4096);
    assert_eq!(changed[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    admin.one.size.set(32 << 20);
    admin.run();
    assert_eq!(admin.completions().len(), 1);
    for _ in 0..4 {
        admin.command(&event, &[], 0);
    }
    let limit = admin.command(&event, &[], 0);
    assert_eq!(admin.completed(limit).0.status, Status::EVENT_LIMIT);
    let abort = Command::Admin(Admin::Abort { queue: 0, command: limit - 1 });
    let abort = admin.command(&abort, &[], 0);
    let done: Vec<(u16, Status, u64)> =
        admin.completions().iter().map(|one| (one.command, one.status, one.result)).collect();
    assert_eq!(done, [(limit - 1, Status::ABORT_REQUESTED, 0), (abort, Status::SUCCESS, 0)]);
}

#[test]
fn a_sign_of_life_on_any_queue() {
    let controllers = controllers();
    let (mut admin, id) = Host::admin(&controllers);
    let mut io = Host::io(&controllers, id, 1, Digests::default());
    assert!(admin.conn.was_heard() && !admin.conn.was_heard());
    io.ask(&read(0, 512), Vec::new(), 512);
    assert!(admin.conn.was_heard() && !admin.conn.was_heard());
    admin.ask(&Command::Admin(Admin::KeepAlive), Vec::new(), 0);
    assert!(admin.conn.was_heard());
}

#[test]
fn discovery() {
    let controllers = controllers();
    let mut host = fresh(&controllers);
    assert_eq!(host.connect(0, 31, 0xffff, 0, DISCOVERY).0.status, Status::SUCCESS);
    assert_eq!(host.events[0], Event::Stays);
    host.enable();
    let (_, controller) = host.ask(&ask_for(identify::CONTROLLER, 0), Vec::new(), 4096);
    assert_eq!((controller[111], controller[1806]), (2, 1));
    assert_eq!(host.ask(&ask_for(identify::NAMESPACE, 1), Vec::new(), 4096).0.status, Status::INVALID_FIELD);
    let mut page = |offset: u64, len: u64| host.ask(&ask_log(log::DISCOVERY, len, offset), Vec::new(), len as u32).1;
    let whole = page(0, 101 * 1024);
    assert_eq!((whole[8], whole[16]), (100, 0));
    let entry = &whole[3 * 1024..4 * 1024];
    assert_eq!(entry[..8], [3, 1, 2, 6, 1, 0, 0xff, 0xff]);
    let text =
        |at: usize| String::from_utf8(entry[at..].iter().copied().take_while(|byte| *byte != 0).collect()).unwrap();
    assert_eq!((text(32), text(512)), ("4420".to_owned(), "10.0.0.1".to_owned()));
    assert_eq!(text(256), "nqn.2026-01.io.azekura:vol3");
    assert_eq!(page(1000, 4096), whole[1000..5096], "in any pieces");
    assert!(page(200 * 1024, 1024).iter().all(|byte| *byte == 0));
    assert_eq!(host.set(CC, 0), Status::SUCCESS);
    assert_eq!(host.get(CSTS), 0, "it has nothing to wait for");
}

#[test]
fn a_discovery_names_the_portals_of_all_nodes() {
    let mut host = fresh(&controllers());
    let mut one = One::new();
    one.portals.add("nvme", Portal { node: NodeId(2), address: "[fd00::2]:4421".parse().unwrap() });
    host.one = Rc::new(one);
    assert_eq!(host.connect(0, 31, 0xffff, 0, DISCOVERY).0.status, Status::SUCCESS);
    host.enable();
    let mut page = |offset: u64, len: u64| host.ask(&ask_log(log::DISCOVERY, len, offset), Vec::new(), len as u32).1;
    assert_eq!(page(0, 1024)[8], 200, "a hundred volumes at two portals");
    let text = |entry: &[u8], at: usize| {
        String::from_utf8(entry[at..].iter().copied().take_while(|byte| *byte != 0).collect()).unwrap()
    };
    let entry = page(6 * 1024, 1024);
    assert_eq!(entry[..5], [3, 2, 2, 6, 2], "IPv6, port 2");
    assert_eq!((text(&entry, 32), text(&entry, 512)), ("4421".to_owned(), "fd00::2".to_owned()));
    assert_eq!((text(&entry, 256), text(&page(5 * 1024, 1024), 512)), (format!("{PREFIX}vol3"), "10.0.0.1".to_owned()));
    assert!(page(201 * 1024, 1024).iter().all(|byte| *byte == 0));
}
