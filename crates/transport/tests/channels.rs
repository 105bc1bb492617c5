//! Two ends of a channel, and what may happen to the bytes between them.
#![allow(clippy::unwrap_used)]

mod support;

use azekura_base::{Inbox, Outbox};
use azekura_transport::{Channel, ChannelError, HANDSHAKE_BYTES_MAX, Opened, SEALED_AHEAD_MAX};
use proptest::prelude::*;
use support::{End, credentials, pair, pattern, shake_hands};

#[test]
fn both_ends_know_whose_key_the_other_has() {
    let (ours, theirs) = (credentials(), credentials());
    let mut client = End::new(ours.1.connect().unwrap());
    let mut server = End::new(theirs.1.accept().unwrap());
    assert_eq!((client.channel.peer(), server.channel.peer()), (None, None));
    shake_hands(&mut client, &mut server);
    assert_eq!((client.channel.peer(), server.channel.peer()), (Some(theirs.0), Some(ours.0)));
}

#[test]
fn what_was_put_before_the_handshake_arrives_after_it() {
    let (mut client, mut server) = pair();
    client.own_out.put(b"early");
    server.own_out.put(b"as early");
    shake_hands(&mut client, &mut server);
    assert_eq!((client.got, server.got), (b"as early".to_vec(), b"early".to_vec()));
}

#[test]
fn a_plain_channel_passes_buffers_through() {
    let (mut inbox, mut outbox) = (Inbox::new(), Outbox::new());
    let mut plain = Channel::plain();
    let payload = bytes::Bytes::from(vec![7; 100_000]);
    outbox.put_payload(payload.clone());
    plain.seal(&mut outbox, 0).unwrap();
    assert_eq!(plain.unsent_bytes(&outbox), 100_000);
    let mut pieces = Vec::new();
    plain.outbox(&mut outbox).take(&mut pieces, 1, usize::MAX);
    assert_eq!(pieces[0].as_ptr(), payload.as_ptr(), "nothing is copied");
    let fill = plain.inbox(&mut inbox).take_fill();
    plain.inbox(&mut inbox).filled(fill, 9);
    assert_eq!((plain.open(&mut inbox), inbox.available().len()), (Ok(Opened::All), 9));
    assert_eq!((plain.peer(), plain.ended(), plain.close()), (None, Ok(()), Ok(())));
}

#[test]
fn large_messages_go_both_ways_at_once() {
    let (mut client, mut server) = pair();
    let (there, back) = (pattern(9 << 20, 1), pattern(5 << 20, 2));
    client.own_out.put_payload(there.clone().into());
    server.own_out.put_payload(back.clone().into());
    let mut turns = 0;
    while client.got.len() < back.len() || server.got.len() < there.len() {
        client.seal().unwrap();
        server.seal().unwrap();
        for end in [&mut client, &mut server] {
            let ahead = end.channel.outbox(&mut end.own_out).len();
            assert!(ahead < SEALED_AHEAD_MAX + (80 << 10), "{ahead}");
        }
        let (to_server, to_client) = (client.sent(), server.sent());
        server.receive(&to_server, usize::MAX).unwrap();
        client.receive(&to_client, usize::MAX).unwrap();
        turns += 1;
        assert!(turns < 1000);
    }
    assert!(client.got == back && server.got == there);
}

#[test]
fn urgent_bytes_overtake_what_is_not_sealed() {
    let (mut client, mut server) = pair();
    shake_hands(&mut client, &mut server);
    for _ in 0..100 {
        client.own_out.put_payload(pattern(64 << 10, 1).into());
        client.own_out.end_frame();
    }
    client.seal().unwrap();
    client.own_out.put_urgent(b"heartbeat");
    let unsent = client.channel.unsent_bytes(&client.own_out);
    assert!(unsent > 100 * (64 << 10), "{unsent}");
    while client.channel.unsent_bytes(&client.own_out) > 0 {
        client.seal().unwrap();
        let sent = client.sent();
        server.receive(&sent, usize::MAX).unwrap();
    }
    let at = server.got.windows(9).position(|bytes| bytes == b"heartbeat").unwrap();
    assert!(at <= SEALED_AHEAD_MAX + (192 << 10), "{at}");
    assert_eq!(server.got.len(), 100 * (64 << 10) + 9);
}

#[test]
fn what_the_socket_is_sending_counts_as_sealed() {
    let (mut client, mut server) = pair();
    shake_hands(&mut client, &mut server);
    client.own_out.put_payload(pattern(4 << 20, 1).into());
    for (sending, least) in [(SEALED_AHEAD_MAX, 0), (SEALED_AHEAD_MAX - 1, 64 << 10), (0, SEALED_AHEAD_MAX)] {
        client.channel.seal(&mut client.own_out, sending).unwrap();
        let sealed = client.channel.outbox(&mut client.own_out).len();
        assert!((least..=least + (66 << 10)).contains(&sealed), "{sealed} with {sending} under way");
    }
}

#[test]
fn a_channel_may_begin_when_its_first_bytes_have_come() {
    let (ours, theirs) = (credentials(), credentials());
    let mut client = End::new(ours.1.connect().unwrap());
    client.own_out.put(b"words");
    client.seal().unwrap();
    let mut before = End::new(Channel::plain());
    before.fill(&client.sent());
    let mut server = before.begun_as(&theirs.1);
    server.receive(&[], usize::MAX).unwrap();
    server.seal().unwrap();
    client.receive(&server.sent(), usize::MAX).unwrap();
    shake_hands(&mut client, &mut server);
    assert_eq!((server.channel.peer(), server.got), (Some(ours.0), b"words".to_vec()));
}

#[test]
fn an_end_that_is_said_is_told_from_one_that_is_not() {
    let (mut client, mut server) = pair();
    shake_hands(&mut client, &mut server);
    client.own_out.put(b"the last words");
    client.seal().unwrap();
    let words = client.sent();
    client.channel.close().unwrap();
    let end = client.sent();
    assert_eq!(server.receive(&words, usize::MAX).unwrap(), Opened::All);
    assert_eq!(server.channel.ended(), Err(ChannelError::Truncated));
    assert_eq!(server.receive(&end[..end.len() - 1], usize::MAX).unwrap(), Opened::All);
    assert_eq!(server.channel.ended(), Err(ChannelError::Truncated));
    assert_eq!(server.receive(&end[end.len() - 1..], usize::MAX).unwrap(), Opened::Ended);
    assert_eq!((server.channel.ended(), server.got), (Ok(()), b"the last words".to_vec()));
}

#[test]
fn a_protocol_that_takes_nothing_is_given_a_bounded_part() {
    let (mut client, mut server) = pair();
    shake_hands(&mut client, &mut server);
    let data = pattern(1 << 20, 3);
    client.own_out.put_payload(data.clone().into());
    client.seal().unwrap();
    let sealed = client.sent();
    let (mut idle, mut at) = (Inbox::new(), 0);
    loop {
        at += server.fill(&sealed[at..sealed.len().min(at + 30_000)]);
        if server.channel.open(&mut idle).unwrap() == Opened::Part {
            break;
        }
        assert!(at < sealed.len(), "all of it was opened");
    }
    let had = idle.available().len();
    assert!(had <= Inbox::PEEK_MAX && idle.available() == &data[..had], "{had}");
    // Asked again, it gives no more until something is taken.
    while server.channel.open(&mut idle).unwrap() == Opened::Part && idle.available().len() < Inbox::PEEK_MAX {}
    assert_eq!(server.channel.open(&mut idle), Ok(Opened::Part));
    assert!(idle.available().len() <= Inbox::PEEK_MAX, "{}", idle.available().len());
    idle.consume(had);
    assert!(server.channel.open(&mut idle).is_ok());
    assert!(idle.available() == &data[had..had + idle.available().len()]);
}

/// A ClientHello as TLS 1.2 has it (RFC 5246, 7.4.1.2).
fn hello_of_tls_1_2() -> Vec<u8> {
    let groups = [0, 10, 0, 4, 0, 2, 0, 23];
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3];
    let mut body = vec![3, 3];
    body.extend([9; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    body.extend([0, (groups.len() + signatures.len()) as u8]);
    body.extend(groups.into_iter().chain(signatures));
    let mut record = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    record.extend(body);
    record
}

#[test]
fn tls_1_2_is_refused() {
    let (_, mut server) = pair();
    let refused = server.receive(&hello_of_tls_1_2(), usize::MAX);
    assert!(matches!(&refused, Err(ChannelError::Tls(said)) if said.contains("SupportedVersions")), "{refused:?}");
    let alert = server.sent();
    assert_eq!((alert[0], alert[5], alert[6]), (21, 2, 70), "protocol_version (RFC 8446, 6.2): {alert:?}");
    assert_eq!(server.receive(b"", usize::MAX), refused, "an error stays");
    assert_eq!(server.seal(), refused.map(|_| ()));
}

#[test]
fn a_handshake_without_end_is_cut_off() {
    // One fragment of a message of 60,000 bytes after another, each a record of its own; and records that mean nothing.
    let mut long = vec![22, 3, 1, 0x40, 0, 1, 0, 0xea, 0x60];
    long.resize(5 + 0x4000, 0);
    let mut more = vec![22, 3, 1, 0x40, 0];
    more.resize(5 + 0x4000, 0);
    let change_cipher_spec = [20, 3, 3, 0, 1, 1];
    for (first, rest) in [(&long[..], &more[..]), (&change_cipher_spec[..], &change_cipher_spec[..])] {
        let (_, mut server) = pair();
        let mut outcome = server.receive(first, 1000).map(|_| ());
        let mut sent = first.len();
        while outcome.is_ok() {
            outcome = server.receive(rest, 1000).map(|_| ());
            sent += rest.len();
            assert!(sent < 2 * HANDSHAKE_BYTES_MAX, "it goes on");
            assert!(server.memory_bytes() <= HANDSHAKE_BYTES_MAX);
        }
    }
}

#[test]
fn altered_bytes_are_noticed() {
    let (mut client, mut server) = pair();
    shake_hands(&mut client, &mut server);
    client.own_out.put(&[1; 5000]);
    client.seal().unwrap();
    let sealed = client.sent();
    for at in (5..sealed.len()).step_by(97) {
        let (mut client, mut server) = pair();
        shake_hands(&mut client, &mut server);
        client.own_out.put(&[1; 5000]);
        client.seal().unwrap();
        let mut sealed = client.sent();
        sealed[at] ^= 1;
        assert!(matches!(server.receive(&sealed, usize::MAX), Err(ChannelError::Tls(_))), "{at}");
        assert!(server.got.is_empty());
    }
}

#[test]
fn a_recorded_session_can_not_be_played_back() {
    let (mut client, mut server) = pair();
    client.own_out.put(b"delete it");
    client.seal().unwrap();
    let mut recorded = vec![client.sent()];
    server.receive(&recorded[0], usize::MAX).unwrap();
    client.receive(&server.sent(), usize::MAX).unwrap();
    client.seal().unwrap();
    recorded.push(client.sent());
    server.receive(&recorded[1], usize::MAX).unwrap();
    assert_eq!(server.got, b"delete it");
    let (_, mut other) = pair();
    other.receive(&recorded[0], usize::MAX).unwrap();
    assert!(matches!(other.receive(&recorded[1], usize::MAX), Err(ChannelError::Tls(_))));
    assert!(other.got.is_empty() && other.channel.peer().is_none());
    // Nor does the session itself take a record twice.
    assert!(server.receive(&recorded[1], usize::MAX).is_err());
}

/// Every single place to cut the handshake and a message in two.
#[test]
fn a_cut_at_any_byte_changes_nothing() {
    let message = pattern(300, 5);
    let mut at = 1;
    loop {
        let (mut client, mut server) = pair();
        client.own_out.put(&message);
        let mut longest = 0;
        for _ in 0..4 {
            client.seal().unwrap();
            let sent = client.sent();
            longest = longest.max(sent.len());
            let (head, tail) = sent.split_at(at.min(sent.len()));
            server.receive(head, usize::MAX).unwrap();
            server.receive(tail, usize::MAX).unwrap();
            server.seal().unwrap();
            let sent = server.sent();
            longest = longest.max(sent.len());
            let (head, tail) = sent.split_at(at.min(sent.len()));
            client.receive(head, usize::MAX).unwrap();
            client.receive(tail, usize::MAX).unwrap();
        }
        assert_eq!(server.got, message, "cut at {at}");
        if at >= longest {
            return;
        }
        at += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the messages and whatever the cuts, both ways at once.
    #[test]
    fn any_cut_gives_the_same_bytes(
        there in proptest::collection::vec(0usize..70_000, 0..12),
        back in proptest::collection::vec(0usize..70_000, 0..12),
        pieces in proptest::collection::vec(1usize..40_000, 1..9),
        by_reference in any::<bool>(),
    ) {
        let (mut client, mut server) = pair();
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        for (end, lens, all) in [(&mut client, &there, &mut to_server), (&mut server, &back, &mut to_client)] {
            for (number, len) in lens.iter().enumerate() {
                let message = pattern(*len, number);
                all.extend_from_slice(&message);
                if by_reference {
                    end.own_out.put_payload(message.into());
                } else {
                    end.own_out.put(&message);
                }
            }
        }
        let mut piece = pieces.iter().copied().cycle();
        for _ in 0..400 {
            client.seal().unwrap();
            server.receive(&client.sent(), piece.next().unwrap()).unwrap();
            server.seal().unwrap();
            client.receive(&server.sent(), piece.next().unwrap()).unwrap();
            if client.got.len() == to_client.len() && server.got.len() == to_server.len() && client.channel.peer().is_some() {
                break;
            }
        }
        prop_assert!(client.got == to_client && server.got == to_server);
    }
}

proptest! {
    /// Noise ends with an error, or waits for more; it never gets anything through.
    #[test]
    fn noise_is_refused(noise in proptest::collection::vec(any::<u8>(), 0..3000), as_record in any::<bool>()) {
        let mut noise = noise;
        if as_record && noise.len() > 5 {
            let len = noise.len() - 5;
            noise[..5].copy_from_slice(&[22, 3, 1, (len >> 8) as u8, len as u8]);
        }
        let (mut client, mut server) = pair();
        client.seal().unwrap();
        for end in [&mut client, &mut server] {
            let _ = end.receive(&noise, usize::MAX);
            prop_assert!(end.got.is_empty() && end.channel.peer().is_none());
            prop_assert!(end.memory_bytes() <= HANDSHAKE_BYTES_MAX);
        }
    }

    /// A handshake with bytes changed, left out or doubled on either way never panics, and never lets anything through
    /// that was not put there.
    #[test]
    fn damaged_handshakes_are_refused(
        way in 0usize..3, at in any::<prop::sample::Index>(), kind in 0usize..3, value in 1u8..=255,
    ) {
        let (mut client, mut server) = pair();
        client.own_out.put(b"through");
        let mut flight = 0;
        let mut damaged = |bytes: Vec<u8>| {
            let mut bytes = bytes;
            if flight == way && !bytes.is_empty() {
                let at = at.index(bytes.len());
                match kind {
                    0 => bytes[at] ^= value,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, value),
                }
            }
            flight += 1;
            bytes
        };
        for _ in 0..3 {
            if client.seal().is_err() || server.receive(&damaged(client.sent()), usize::MAX).is_err() {
                break;
            }
            if server.seal().is_err() || client.receive(&damaged(server.sent()), usize::MAX).is_err() {
                break;
            }
        }
        prop_assert!(server.got.is_empty() || server.got == b"through");
        prop_assert!(client.got.is_empty());
    }
}
