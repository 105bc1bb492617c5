//! Hosts that have to prove something (Base section 8.13.5), over connections: who is let in, and who is not.
#![allow(clippy::unwrap_used)]

use crate::support::host::{CHALLENGE, HOST, Host, SUBSYSTEM, identify, read, write};
use azekura_base::{ChapSecret, ChapSecrets, DhchapKey, DhchapTransform, GrantId, HostName};
use azekura_frontend::{Admittance, Event, Named};
use azekura_nvme::authentication::messages::Message;
use azekura_nvme::authentication::response::{Hash, Prover, Question};
use azekura_nvme::authentication::{PROTOCOL_SPECIFIC, SECURITY_PROTOCOL};
use azekura_nvme::command::Command;
use azekura_nvme::command::fabrics::{Fabrics, Security};
use azekura_nvme::names::DISCOVERY;
use azekura_nvme::pdu::Digests;
use azekura_nvme::properties::CSTS;
use azekura_nvme::{Completion, Controllers, Status};
use std::sync::Arc;

/// ATR in what is answered to Connect.
const REQUIRED: u64 = 1 << 17;

fn key(seed: u8) -> DhchapKey {
    DhchapKey { transform: DhchapTransform::Sha384, bytes: vec![seed; 48].into() }
}

fn secret(text: &[u8]) -> ChapSecret {
    ChapSecret { user: HOST.to_owned(), secret: Arc::new(text.to_vec().into()) }
}

fn proves(initiator: ChapSecret, target: Option<ChapSecret>) -> Admittance {
    Admittance::Proves(GrantId(5), Arc::new(ChapSecrets { initiator, target }))
}

/// Hosts have to prove the first key, and are proved the second.
fn asks() -> Admittance {
    let of = |seed| secret(key(seed).text().as_bytes());
    proves(of(1), Some(of(2)))
}

fn named() -> Option<Named> {
    Some(Named { host: HostName::of_nvme_host(HOST), grant: Some(GrantId(5)) })
}

fn controllers() -> Arc<Controllers> {
    Arc::new(Controllers::new(1))
}

/// A connection that has to prove something, once it has connected.
fn asked(controllers: &Arc<Controllers>, queue: u16, controller: u16, subsystem: &str) -> (Host, u16) {
    let mut host = Host::new(controllers, Digests::default());
    *host.one.admittance.borrow_mut() = asks();
    let (done, _) = host.connect(queue, 31, controller, 0, subsystem);
    assert_eq!((done.status, done.result & !0xffff), (Status::SUCCESS, REQUIRED));
    assert_eq!((host.named.clone(), host.events.len()), (None, 0), "nothing is asked for it");
    (host, done.result as u16)
}

fn security(len: u32) -> Security {
    Security { protocol: SECURITY_PROTOCOL, specific: PROTOCOL_SPECIFIC, len }
}

fn send(host: &mut Host, message: &Message) -> Status {
    let bytes = message.bytes();
    let command = Command::Fabrics(Fabrics::AuthenticationSend(security(bytes.len() as u32)));
    host.ask(&command, bytes, 0).0.status
}

fn fetch(host: &mut Host) -> (Completion, Vec<u8>) {
    let room = 4096;
    let command = Command::Fabrics(Fabrics::AuthenticationReceive(security(room)));
    host.ask(&command, Vec::new(), room)
}

fn fetched(host: &mut Host) -> Message {
    let (done, data) = fetch(host);
    assert_eq!((done.status, data.len()), (Status::SUCCESS, 4096));
    Message::of(&data).unwrap()
}

/// What Linux says first.
fn negotiate() -> Message {
    Message::Negotiate { transaction: 3, channel: 0, hashes: vec![1, 2, 3], groups: vec![0, 1, 2, 3, 4, 5] }
}

fn reply(known: &DhchapKey, asks: Option<Vec<u8>>) -> Message {
    reply_for(SUBSYSTEM, known, asks)
}

fn reply_for(subsystem: &str, known: &DhchapKey, asks: Option<Vec<u8>>) -> Message {
    let (challenge, sequence) = (&CHALLENGE.bytes[..], CHALLENGE.sequence);
    let question = Question { challenge, sequence, transaction: 3, host: HOST, subsystem };
    let response = Hash::Sha512.response(known, Prover::Host, &question);
    Message::Reply { transaction: 3, response, challenge: asks, sequence: 9, exponential_len: 0 }
}

/// Goes through with it, with the right key.
fn prove(host: &mut Host) {
    assert_eq!(send(host, &negotiate()), Status::SUCCESS);
    let Message::Challenge { hash: 3, group: 0, challenge, .. } = fetched(host) else { panic!("no challenge") };
    assert_eq!(challenge, CHALLENGE.bytes);
    assert_eq!(send(host, &reply(&key(1), None)), Status::SUCCESS);
    assert_eq!(fetched(host), Message::Success1 { transaction: 3, hash_len: 64, response: None });
}

#[test]
fn who_knows_the_secret_has_a_controller() {
    let controllers = controllers();
    let (mut admin, id) = asked(&controllers, 0, 0xffff, SUBSYSTEM);
    prove(&mut admin);
    assert_eq!(admin.named, named());
    assert!(admin.events.contains(&Event::Opened { name: "vol1".to_owned() }), "{:?}", admin.events);
    admin.enable();
    assert_eq!(admin.get(CSTS), 1);
    // Each queue proves it for itself.
    let (mut io, same) = asked(&controllers, 1, id, SUBSYSTEM);
    assert_eq!(same, id);
    prove(&mut io);
    assert_eq!((io.named.clone(), io.ask(&read(0, 1), Vec::new(), 512).0.status), (named(), Status::SUCCESS));
    // It is not proved a second time.
    assert_eq!(send(&mut admin, &negotiate()), Status::INVALID_OPCODE);
}

#[test]
fn the_controller_proves_what_it_knows() {
    let (mut host, _) = asked(&controllers(), 0, 0xffff, SUBSYSTEM);
    send(&mut host, &negotiate());
    fetched(&mut host);
    let challenge = vec![6; 64];
    send(&mut host, &reply(&key(1), Some(challenge.clone())));
    let Message::Success1 { response: Some(response), .. } = fetched(&mut host) else { panic!("no response") };
    let (challenge, sequence, transaction) = (&challenge[..], 9, 3);
    let question = Question { challenge, sequence, transaction, host: HOST, subsystem: SUBSYSTEM };
    assert_eq!(response, Hash::Sha512.response(&key(2), Prover::Controller, &question));
    assert_eq!(host.named, None, "the host may not believe it");
    assert_eq!(send(&mut host, &Message::Success2 { transaction: 3 }), Status::SUCCESS);
    assert_eq!(host.named, named());
}

#[test]
fn who_does_not_know_it_has_nothing() {
    let controllers = controllers();
    let (mut host, _) = asked(&controllers, 0, 0xffff, SUBSYSTEM);
    send(&mut host, &negotiate());
    fetched(&mut host);
    assert_eq!(send(&mut host, &reply(&key(2), None)), Status::SUCCESS);
    assert!(matches!(fetched(&mut host), Message::Failure { is_hosts: false, explanation: 1, .. }));
    let [Event::Mistaken(what), Event::Closed] = &host.events[..] else { panic!("{:?}", host.events) };
    assert!(what.contains(HOST) && host.named.is_none(), "{what}");
    assert_eq!(controllers.len(), 0, "the number that it was told is free again");
}

#[test]
fn before_it_is_proved_nothing_else_is_answered() {
    let controllers = controllers();
    let (mut admin, id) = asked(&controllers, 0, 0xffff, SUBSYSTEM);
    let (mut queue, _) = asked(&controllers, 1, id, SUBSYSTEM);
    for (host, commands) in [
        (&mut admin, vec![identify(1, 0), Command::Fabrics(Fabrics::PropertyGet { offset: CSTS, is_long: false })]),
        (&mut queue, vec![read(0, 1), write(0, 0), Command::Fabrics(Fabrics::Disconnect)]),
    ] {
        for command in commands {
            assert_eq!(host.ask(&command, Vec::new(), 4096).0.status, Status::AUTHENTICATION_REQUIRED, "{command:?}");
        }
        let other = Security { protocol: 0, ..security(64) };
        let command = Command::Fabrics(Fabrics::AuthenticationReceive(other));
        assert_eq!(host.ask(&command, Vec::new(), 64).0.status, Status::INVALID_FIELD);
        assert_eq!(fetch(host).0.status, Status::SEQUENCE_ERROR, "there is nothing to fetch");
        let short = Command::Fabrics(Fabrics::AuthenticationSend(security(300)));
        assert_eq!(host.ask(&short, vec![0; 8], 0).0.status, Status::SGL_LENGTH_INVALID);
        let elsewhere = Command::Fabrics(Fabrics::AuthenticationSend(security(72)));
        assert_eq!(host.ask(&elsewhere, Vec::new(), 72).0.status, Status::SGL_TYPE_INVALID);
        assert!(host.named.is_none() && host.events.is_empty());
    }
}

/// What somebody is told who knows the name of a host and no secret is the same, whatever there is; and it takes
/// nothing away from the host.
#[test]
fn what_there_is_shows_after_that_alone() {
    let controllers = controllers();
    let unknown = "nqn.2026-01.io.azekura:other";
    for subsystem in [SUBSYSTEM, unknown, "nqn.2000-01.example:else", DISCOVERY] {
        asked(&controllers, 0, 0xffff, subsystem);
    }
    asked(&controllers, 1, 77, SUBSYSTEM);
    // Somebody is at work, and has not proved anything to a queue that another one would like to be.
    let (mut admin, id) = asked(&controllers, 0, 0xffff, SUBSYSTEM);
    prove(&mut admin);
    admin.enable();
    let (_impostor, _) = asked(&controllers, 1, id, SUBSYSTEM);
    let (mut io, _) = asked(&controllers, 1, id, SUBSYSTEM);
    prove(&mut io);
    assert_eq!(io.ask(&read(0, 1), Vec::new(), 512).0.status, Status::SUCCESS);
    // Who has proved it finds that there is no such volume.
    let (mut host, _) = asked(&controllers, 0, 0xffff, "nqn.2000-01.example:else");
    send(&mut host, &negotiate());
    fetched(&mut host);
    send(&mut host, &reply_for("nqn.2000-01.example:else", &key(1), None));
    fetched(&mut host);
    assert_eq!((host.named.clone(), host.events.last()), (named(), Some(&Event::Closed)));
}

#[test]
fn a_host_whose_secret_is_none_is_refused() {
    let controllers = controllers();
    for (admittance, status) in [
        (proves(secret(b"twelve bytes"), None), Status::CONNECT_INVALID_HOST),
        (proves(secret(key(1).text().as_bytes()), Some(secret(b"twelve bytes"))), Status::CONNECT_INVALID_HOST),
        (Admittance::NotYet, Status::CONNECT_BUSY),
    ] {
        let mut host = Host::new(&controllers, Digests::default());
        *host.one.admittance.borrow_mut() = admittance;
        assert_eq!(host.connect(0, 31, 0xffff, 0, SUBSYSTEM).0.status, status);
        assert_eq!(host.events, [Event::Closed]);
    }
}

#[test]
fn a_host_that_does_not_believe_the_controller_ends_it() {
    let (mut host, _) = asked(&controllers(), 0, 0xffff, SUBSYSTEM);
    send(&mut host, &negotiate());
    fetched(&mut host);
    send(&mut host, &reply(&key(1), Some(vec![6; 64])));
    fetched(&mut host);
    send(&mut host, &Message::Failure { transaction: 3, is_hosts: true, explanation: 1 });
    let [Event::Violation(what)] = &host.events[..] else { panic!("{:?}", host.events) };
    assert!(what.contains(HOST) && host.named.is_none(), "{what}");
}
