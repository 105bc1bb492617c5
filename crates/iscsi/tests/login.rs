//! The login phase (RFC 7143 section 6.3), discovery, and refused logins.
#![allow(clippy::unwrap_used)]

use crate::support::{Gate, Late, One, Peer, TARGET, login, text};
use azekura_base::{GrantId, HostName, NodeId};
use azekura_frontend::{Admittance, Event, Named, Opening, Portal, Portals};
use azekura_iscsi::login::text::parse;
use azekura_iscsi::pdu::Bhs;
use azekura_iscsi::pdu::initiator::{LoginRequest, TEXT};
use azekura_iscsi::pdu::target::REJECT;
use proptest::prelude::*;

const ME: (&str, &str) = ("InitiatorName", "iqn.2000-01.example:me");

fn refused(request: LoginRequest, keys: &[(&str, &str)]) -> u16 {
    let mut peer = Peer::new();
    let pdus = peer.exchange(request.bhs(), &text(keys));
    assert!(matches!(peer.events[..], [Event::Closed | Event::Violation(_)]), "{:?}", peer.events);
    pdus[0].bhs.u16(36)
}

#[test]
fn a_refused_login_says_why() {
    let to = |target| [ME, ("TargetName", target)];
    assert_eq!(refused(login(1, 3), &to("iqn.2026-01.io.azekura:other")), 0x0203);
    assert_eq!(refused(login(1, 3), &to("iqn.2000-01.else:vol1")), 0x0203);
    assert_eq!(refused(login(1, 3), &[ME]), 0x0207);
    assert_eq!(refused(login(1, 3), &[("TargetName", TARGET)]), 0x0207);
    assert_eq!(refused(login(1, 3), &[ME, ("SessionType", "Odd")]), 0x0209);
    assert_eq!(refused(login(0, 1), &[ME, ("TargetName", TARGET), ("AuthMethod", "CHAP")]), 0x0201);
    assert_eq!(refused(LoginRequest { version_min: 1, ..login(1, 3) }, &to(TARGET)), 0x0205);
    assert_eq!(refused(LoginRequest { tsih: 5, ..login(1, 3) }, &to(TARGET)), 0x020a);
    for (csg, nsg) in [(1, 1), (1, 0), (0, 2), (1, 2), (2, 3), (3, 3)] {
        assert_eq!(refused(login(csg, nsg), &to(TARGET)), 0x0200, "{csg} to {nsg}");
    }
    assert_eq!(refused(login(1, 3), &[ME, ME, ("TargetName", TARGET)]), 0x0200, "a key comes once");
}

#[test]
fn an_initiator_is_let_in_before_it_hears_of_what_there_is() {
    let targets = [TARGET, "iqn.2026-01.io.azekura:other", "iqn.2000-01.else:vol1"];
    for (said, status) in [(Admittance::Refused, 0x0202), (Admittance::NotYet, 0x0301)] {
        for stage in [(0, 1), (1, 3)] {
            let to = targets.map(|target| [ME, ("TargetName", target)]);
            for keys in to.iter().chain([&[ME, ("SessionType", "Discovery")]]) {
                let mut peer = Peer::new();
                peer.queue(login(stage.0, stage.1).bhs(), &text(keys));
                peer.run(&Gate(said.clone()));
                assert_eq!(peer.received()[0].bhs.u16(36), status, "{keys:?}");
                assert_eq!((peer.named, &peer.events[..]), (None, &[Event::Closed][..]), "{keys:?}");
            }
        }
    }
    let mut peer = Peer::new();
    peer.queue(login(1, 3).bhs(), &text(&[("InitiatorName", "IQN.2000-01.example:Me"), ("TargetName", TARGET)]));
    peer.run(&Gate(Admittance::Granted(Some(GrantId(5)))));
    assert_eq!(peer.received()[0].bhs.u16(36), 0);
    assert_eq!(peer.named, Some(Named { host: HostName::of_initiator(ME.1), grant: Some(GrantId(5)) }));
    assert_eq!(peer.events, [Event::Opened { name: "vol1".to_owned() }]);
}

#[test]
fn a_login_goes_through_both_stages() {
    let mut peer = Peer::new();
    let keys = text(&[ME, ("TargetName", TARGET), ("SessionType", "Normal"), ("AuthMethod", "CHAP,None")]);
    let first = peer.exchange(login(0, 1).bhs(), &keys);
    assert_eq!((first[0].bhs.0[1], first[0].bhs.u16(36)), (0x81, 0));
    assert_eq!(parse(&first[0].data).unwrap(), [("AuthMethod", "None"), ("TargetPortalGroupTag", "1")]);
    assert!(peer.events.is_empty());

    // The text of the next stage comes in two requests.
    let keys = text(&[("HeaderDigest", "CRC32C,None"), ("MaxBurstLength", "16776192"), ("X-odd", "1")]);
    let part = LoginRequest { transit: false, goes_on: true, ..login(1, 0) };
    let second = peer.exchange(part.bhs(), &keys[..20]);
    assert!(second[0].data.is_empty() && second[0].bhs.0[1] == 0x04);
    let third = peer.exchange(login(1, 3).bhs(), &keys[20..]);
    let said = parse(&third[0].data).unwrap();
    assert!(said.contains(&("HeaderDigest", "CRC32C")) && said.contains(&("X-odd", "NotUnderstood")), "{said:?}");
    assert!(said.contains(&("MaxRecvDataSegmentLength", "262144")) && said.contains(&("MaxBurstLength", "16776192")));
    assert_eq!(third[0].bhs.0[1], 0x87);
    assert_ne!(third[0].bhs.u16(14), 0, "the session has a name");
    let numbers: Vec<u32> = [first, second, third].iter().map(|pdus| pdus[0].bhs.u32(24)).collect();
    assert_eq!(numbers, [0, 1, 2], "each answer is a status");
    assert_eq!(peer.events, [Event::Opened { name: "vol1".to_owned() }]);
}

#[test]
fn a_login_waits_for_its_volume() {
    let mut peer = Peer::new();
    let mut bytes = login(1, 3).bhs();
    let keys = text(&[ME, ("TargetName", TARGET)]);
    bytes.set_data_bytes(keys.len());
    let mut fill = azekura_frontend::StreamProtocol::inbox_mut(&mut peer.conn).take_fill();
    let all = [&bytes.0[..], &keys, &[0; 3][..keys.len().wrapping_neg() % 4]].concat();
    fill.buf[..all.len()].copy_from_slice(&all);
    azekura_frontend::StreamProtocol::inbox_mut(&mut peer.conn).filled(fill, all.len());
    peer.run(&Late(Opening::Unknown));
    assert_eq!(peer.events, [Event::Missing { name: "vol1".to_owned() }]);
    peer.run(&Late(Opening::Later("vol1".to_owned())));
    assert_eq!(peer.events.pop(), Some(Event::Wanted { name: "vol1".to_owned() }));
    assert!(peer.received().is_empty());
    peer.run(&One);
    assert_eq!(peer.received()[0].bhs.u16(36), 0);
    assert_eq!(peer.events.pop(), Some(Event::Opened { name: "vol1".to_owned() }));
}

#[test]
fn all_targets_are_listed_over_as_many_answers_as_it_takes() {
    let mut peer = Peer::new();
    let keys = [ME, ("SessionType", "Discovery"), ("MaxRecvDataSegmentLength", "512")];
    let first = peer.exchange(login(1, 3).bhs(), &text(&keys));
    assert_eq!(first[0].bhs.u16(36), 0);
    assert!(peer.events.is_empty(), "a discovery session opens nothing");

    let mut request = Bhs::new(TEXT);
    request.0[1] = 0x80;
    request.put_u32(16, 9);
    request.put_u32(20, u32::MAX);
    let (mut all, mut cmd_sn) = (Vec::new(), 10_u32);
    let mut data = text(&[("SendTargets", "All")]);
    loop {
        request.put_u32(24, cmd_sn);
        let pdus = peer.exchange(request, &data);
        all.extend_from_slice(&pdus[0].data);
        assert!(pdus[0].data.len() <= 512);
        if pdus[0].bhs.is_final() {
            break;
        }
        assert_eq!(pdus[0].bhs.0[1], 0x40, "it goes on");
        request.put_u32(20, pdus[0].bhs.u32(20));
        (data, cmd_sn) = (Vec::new(), cmd_sn + 1);
    }
    let said = parse(&all).unwrap();
    assert_eq!(said.len(), 200);
    assert_eq!(said[..2], [("TargetName", TARGET), ("TargetAddress", "10.0.0.1:3260,1")]);
}

#[test]
fn a_target_is_at_the_portals_of_all_nodes() {
    let mut peer = Peer::new();
    peer.portals = Portals::of(NodeId(3));
    for (node, address) in [(1, "10.0.0.7:3260"), (2, "[fd00::2]:3260"), (3, "10.0.0.9:3260")] {
        peer.portals.add("iscsi", Portal { node: NodeId(node), address: address.parse().unwrap() });
    }
    peer.exchange(login(1, 3).bhs(), &text(&[ME, ("SessionType", "Discovery")]));
    let mut request = Bhs::new(TEXT);
    request.0[1] = 0x80;
    request.put_u32(16, 9);
    request.put_u32(20, u32::MAX);
    request.put_u32(24, 10);
    let pdus = peer.exchange(request, &text(&[("SendTargets", TARGET)]));
    let at = |address| ("TargetAddress", address);
    let expected = [("TargetName", TARGET), at("10.0.0.1:3260,3"), at("10.0.0.7:3260,1"), at("[fd00::2]:3260,2")];
    assert_eq!(parse(&pdus[0].data).unwrap(), expected);
    let mut peer = Peer::new();
    peer.portals = Portals::of(NodeId(3));
    let first = peer.exchange(login(1, 3).bhs(), &text(&[ME, ("TargetName", TARGET)]));
    assert!(parse(&first[0].data).unwrap().contains(&("TargetPortalGroupTag", "3")));
}

#[test]
fn a_login_has_so_many_keys() {
    let mut peer = Peer::new();
    let first = [ME, ("TargetName", TARGET)];
    for round in 0..100 {
        let keys: Vec<String> = (0..10).map(|number| format!("X-{round}-{number}")).collect();
        let mut pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), "1")).collect();
        pairs.extend(first.iter().filter(|_| round == 0));
        let request = LoginRequest { transit: false, ..login(1, 0) };
        let pdus = peer.exchange(request.bhs(), &text(&pairs));
        if pdus[0].bhs.u16(36) == 0x0200 {
            assert!(matches!(peer.events[..], [Event::Violation(_)]));
            return assert!(round > 4, "round {round}: that is no more than some initiators say");
        }
    }
    panic!("a thousand keys are remembered");
}

#[test]
fn an_initiators_name_is_no_longer_than_names_are() {
    let long = format!("iqn.2000-01.example:{}", "a".repeat(224));
    assert_eq!(refused(login(1, 3), &[("InitiatorName", &long), ("TargetName", TARGET)]), 0x0200);
}

#[test]
fn all_targets_are_asked_for_once_in_a_text() {
    let mut peer = Peer::new();
    let keys = [ME, ("SessionType", "Discovery")];
    assert_eq!(peer.exchange(login(1, 3).bhs(), &text(&keys))[0].bhs.u16(36), 0);
    let mut request = Bhs::new(TEXT | 0x40);
    request.0[1] = 0x80;
    request.put_u32(20, u32::MAX);
    for keys in [&[("SendTargets", "All"), ("SendTargets", "All")][..], &[("SendTargets", "All"), ("X-odd", "1")]] {
        let pdus = peer.exchange(request, &text(keys));
        assert_eq!((pdus.len(), pdus[0].bhs.opcode()), (1, REJECT), "a short request, and a long answer");
    }
    assert!(peer.exchange(request, &text(&[("SendTargets", "All")]))[0].data.len() > 5000);
}

proptest! {
    /// Whatever comes, something is answered or the connection ends; nothing panics.
    #[test]
    fn any_login_is_survived(flags in any::<u8>(), version in any::<u8>(), tsih in any::<u16>(),
        keys in proptest::collection::vec(("[A-Za-z]{1,20}", ".{0,20}"), 0..6), bytes in any::<[u8; 16]>()) {
        let mut peer = Peer::new();
        let mut bhs = login(1, 3).bhs();
        (bhs.0[1], bhs.0[3]) = (flags, version);
        bhs.put(14, &tsih.to_be_bytes());
        bhs.put(20, &bytes);
        let pairs: Vec<_> = keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let pdus = peer.exchange(bhs, &text(&pairs));
        prop_assert_eq!(pdus.len(), 1);
    }
}
