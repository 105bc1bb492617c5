//! Both sides of an authentication, without a connection.

use super::*;
use azekura_base::DhchapTransform;
use proptest::prelude::*;

const HOST: &str = "nqn.2000-01.example:me";
const SUBSYSTEM: &str = "nqn.2026-01.io.azekura:vol1";
const TRANSACTION: u16 = 0x0506;

fn key(seed: u8) -> DhchapKey {
    DhchapKey { transform: DhchapTransform::Sha256, bytes: vec![seed; 32].into() }
}

fn asked(controller: Option<DhchapKey>) -> Authentication {
    let challenge = Challenge { bytes: std::array::from_fn(|at| at as u8), sequence: 77 };
    Authentication::new(Keys { host: key(1), controller }, challenge, HOST, SUBSYSTEM)
}

fn negotiate(hashes: &[u8], groups: &[u8]) -> Message {
    let (hashes, groups) = (hashes.to_vec(), groups.to_vec());
    Message::Negotiate { transaction: TRANSACTION, channel: 0, hashes, groups }
}

fn fetched(authentication: &mut Authentication) -> Message {
    Message::of(&authentication.fetch().expect("a message")).expect("a message that can be read")
}

/// What a host replies that knows this key.
fn reply(challenge: &Message, key: &DhchapKey, asks: Option<&[u8]>) -> Message {
    let Message::Challenge { hash, sequence, challenge, .. } = challenge else { panic!("{challenge:?}") };
    let hash = Hash::choose(&[*hash]).expect("a hash that is known");
    let question =
        Question { challenge, sequence: *sequence, transaction: TRANSACTION, host: HOST, subsystem: SUBSYSTEM };
    let response = hash.response(key, Prover::Host, &question);
    let challenge = asks.map(|asks| asks[..hash.bytes()].to_vec());
    Message::Reply { transaction: TRANSACTION, response, challenge, sequence: 88, exponential_len: 0 }
}

fn failure(authentication: &mut Authentication) -> u8 {
    assert!(!authentication.is_proved());
    let Message::Failure { is_hosts: false, explanation, .. } = fetched(authentication) else {
        panic!("{authentication:?}")
    };
    assert!(authentication.is_over() && authentication.fetch().is_none());
    explanation
}

#[test]
fn who_knows_the_secret_has_proved_it() {
    for (offered, len) in [(&[1][..], 32), (&[1, 2], 48), (&[3, 2, 1], 64)] {
        let mut asked = asked(None);
        assert_eq!(asked.take(&negotiate(offered, &[1, 0]).bytes()), Taken::On);
        let challenge = fetched(&mut asked);
        assert!(matches!(&challenge, Message::Challenge { group: 0, challenge, .. } if challenge.len() == len));
        assert_eq!(asked.take(&reply(&challenge, &key(1), None).bytes()), Taken::On);
        assert!(!asked.is_proved(), "the host has not heard of it");
        let success = Message::Success1 { transaction: TRANSACTION, hash_len: len as u8, response: None };
        assert_eq!(fetched(&mut asked), success);
        assert!(asked.is_proved() && asked.fetch().is_none());
    }
}

#[test]
fn the_controller_proves_what_it_knows_to_who_has_proved_himself() {
    let question = [5; 64];
    let mut asked = asked(Some(key(2)));
    asked.take(&negotiate(&[2], &[0]).bytes());
    let challenge = fetched(&mut asked);
    asked.take(&reply(&challenge, &key(1), Some(&question)).bytes());
    let Message::Success1 { response: Some(response), .. } = fetched(&mut asked) else { panic!("{asked:?}") };
    let question = Question {
        challenge: &question[..48],
        sequence: 88,
        transaction: TRANSACTION,
        host: HOST,
        subsystem: SUBSYSTEM,
    };
    assert_eq!(response, Hash::Sha384.response(&key(2), Prover::Controller, &question));
    assert!(!asked.is_proved(), "the host may not believe it");
    assert_eq!(asked.take(&Message::Success2 { transaction: TRANSACTION }.bytes()), Taken::On);
    assert!(asked.is_proved());
}

#[test]
fn who_does_not_know_it_has_proved_nothing() {
    for (controller, known, asks, taken, explanation) in [
        (None, 9, None, Taken::Mistaken, Explanation::Failed),
        // What the controller knows is of no use to the host.
        (Some(key(2)), 2, None, Taken::Mistaken, Explanation::Failed),
        // It asks a controller that has no secret, or what it was asked itself.
        (None, 1, Some([5; 64]), Taken::On, Explanation::NotUsable),
        (Some(key(2)), 1, Some(std::array::from_fn(|at| at as u8)), Taken::On, Explanation::NotUsable),
        (Some(key(2)), 9, Some([5; 64]), Taken::Mistaken, Explanation::Failed),
    ] {
        let mut asked = asked(controller);
        asked.take(&negotiate(&[1], &[0]).bytes());
        let challenge = fetched(&mut asked);
        assert_eq!(asked.take(&reply(&challenge, &key(known), asks.as_ref().map(|asks| &asks[..])).bytes()), taken);
        assert_eq!(failure(&mut asked), explanation as u8);
    }
}

#[test]
fn an_answer_is_of_use_to_nobody_else() {
    let answered = |host: &str, subsystem: &str, sequence: u32| {
        let challenge = Challenge { bytes: [3; CHALLENGE_BYTES], sequence };
        let mut asked = Authentication::new(Keys { host: key(1), controller: None }, challenge, host, subsystem);
        asked.take(&negotiate(&[1], &[0]).bytes());
        let challenge = fetched(&mut asked);
        asked.take(&reply(&challenge, &key(1), None).bytes()) == Taken::On
    };
    assert!(answered(HOST, SUBSYSTEM, 4));
    assert!(!answered("nqn.2000-01.example:you", SUBSYSTEM, 4) && !answered(HOST, "nqn.2026-01.io.azekura:vol2", 4));
    // Recorded, and shown again when another question is asked.
    let mut first = asked(None);
    first.take(&negotiate(&[1], &[0]).bytes());
    let recorded = reply(&fetched(&mut first), &key(1), None);
    let challenge = Challenge { bytes: [3; CHALLENGE_BYTES], sequence: 78 };
    let mut second = Authentication::new(Keys { host: key(1), controller: None }, challenge, HOST, SUBSYSTEM);
    second.take(&negotiate(&[1], &[0]).bytes());
    fetched(&mut second);
    assert_eq!(second.take(&recorded.bytes()), Taken::Mistaken);
}

#[test]
fn what_can_not_be_agreed_on_fails_with_its_reason() {
    let secured = Message::Negotiate { transaction: 1, channel: 1, hashes: vec![1], groups: vec![0] };
    for (message, explanation) in [
        (negotiate(&[9], &[0]), Explanation::Hash),
        (negotiate(&[1], &[1, 2, 3, 4, 5]), Explanation::Group),
        (negotiate(&[], &[]), Explanation::NotUsable),
        (secured, Explanation::Concatenation),
        (Message::Success2 { transaction: 0 }, Explanation::Message),
        (Message::Success1 { transaction: 0, hash_len: 32, response: None }, Explanation::Message),
    ] {
        let mut asked = asked(None);
        assert_eq!(asked.take(&message.bytes()), Taken::On, "it has not tried");
        assert_eq!(failure(&mut asked), explanation as u8, "{message:?}");
    }
    let mut asked = asked(None);
    assert!(asked.fetch().is_none(), "it is the host's turn");
    asked.take(&[0; 5]);
    assert_eq!(failure(&mut asked), Explanation::Payload as u8);
}

#[test]
fn a_reply_is_to_the_question_that_was_asked() {
    let Message::Reply { response, sequence, .. } = ({
        let mut asked = asked(None);
        asked.take(&negotiate(&[1], &[0]).bytes());
        reply(&fetched(&mut asked), &key(1), None)
    }) else {
        panic!("no reply")
    };
    let of = |transaction, response: &[u8], exponential_len| Message::Reply {
        transaction,
        response: response.to_vec(),
        challenge: None,
        sequence,
        exponential_len,
    };
    for message in [of(7, &response, 0), of(TRANSACTION, &response, 256), of(TRANSACTION, &response[..16], 0)] {
        let mut asked = asked(None);
        asked.take(&negotiate(&[1], &[0]).bytes());
        fetched(&mut asked);
        asked.take(&message.bytes());
        assert_eq!(failure(&mut asked), Explanation::Payload as u8);
    }
    // Before the question was fetched, it is no answer.
    let mut asked = asked(None);
    asked.take(&negotiate(&[1], &[0]).bytes());
    asked.take(&of(TRANSACTION, &response, 0).bytes());
    assert_eq!(failure(&mut asked), Explanation::Message as u8);
}

#[test]
fn a_host_that_does_not_believe_the_controller_ends_it() {
    let mut asked = asked(Some(key(2)));
    let failure = Message::Failure { transaction: TRANSACTION, is_hosts: true, explanation: 1 };
    asked.take(&negotiate(&[1], &[0]).bytes());
    let challenge = fetched(&mut asked);
    asked.take(&reply(&challenge, &key(1), Some(&[5; 64])).bytes());
    fetched(&mut asked);
    assert_eq!(asked.take(&failure.bytes()), Taken::Distrusted);
    assert!(asked.is_over() && !asked.is_proved());
}

proptest! {
    /// Whatever comes in whatever order: without the secret nothing is proved, and nothing panics.
    #[test]
    fn nobody_is_let_in_by_chance(steps in prop::collection::vec(
        (any::<bool>(), 0..5_u8, prop::collection::vec(any::<u8>(), 0..200)), 0..12,
    )) {
        let mut asked = asked(Some(key(2)));
        for (fetches, kind, bytes) in steps {
            match (fetches, kind) {
                (true, _) => drop(asked.fetch()),
                (_, 0) => assert_ne!(asked.take(&negotiate(&[1, 2], &[0]).bytes()), Taken::Distrusted),
                (_, 1) => drop(asked.take(&Message::Success2 { transaction: TRANSACTION }.bytes())),
                (_, 2) => {
                    let response = bytes.iter().copied().chain(std::iter::repeat(0)).take(48).collect();
                    let reply =
                        Message::Reply { transaction: TRANSACTION, response, challenge: None, sequence: 1, exponential_len: 0 };
                    let _ = asked.take(&reply.bytes());
                }
                _ => drop(asked.take(&bytes)),
            }
            prop_assert!(!asked.is_proved());
        }
    }
}
