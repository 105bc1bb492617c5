//! Initiators that have to prove something (RFC 7143 section 12.1.3): who is let in, and who is not.
#![allow(clippy::unwrap_used)]

use crate::support::{CHALLENGE, Gate, Peer, TARGET, login, text};
use azekura_base::{ChapSecret, ChapSecrets, GrantId, HostName};
use azekura_frontend::{Admittance, Event, Named};
use azekura_iscsi::Connection;
use azekura_iscsi::login::binary;
use azekura_iscsi::login::chap::Algorithm;
use azekura_iscsi::login::text::parse;
use azekura_iscsi::pdu::initiator::LoginRequest;
use proptest::prelude::*;
use std::sync::Arc;

const ME: &str = "iqn.2000-01.example:me";
const SECRET: &[u8] = b"the initiator's secret";
const TARGETS: &[u8] = b"what the target knows";

fn secret(user: &str, secret: &[u8]) -> ChapSecret {
    ChapSecret { user: user.to_owned(), secret: Arc::new(secret.to_vec().into()) }
}

fn gate(mutual: bool) -> Gate {
    let target = mutual.then(|| secret("azekura", TARGETS));
    let secrets = ChapSecrets { initiator: secret("user", SECRET), target };
    Gate(Admittance::Proves(GrantId(5), Arc::new(secrets)))
}

/// An initiator that wants to log in, and who asks it for a proof.
struct Asked {
    peer: Peer,
    gate: Gate,
}

/// The status of an answer, whether it lets the initiator on, and its keys.
type Heard = (u16, bool, Vec<(String, String)>);

impl Asked {
    fn new(mutual: bool) -> Asked {
        Asked { peer: Peer::new(), gate: gate(mutual) }
    }

    fn say(&mut self, request: LoginRequest, keys: &[(&str, &str)]) -> Heard {
        self.peer.queue(request.bhs(), &text(keys));
        self.peer.run(&self.gate);
        let pdus = self.peer.received();
        let [pdu] = &pdus[..] else { panic!("{pdus:?} {:?}", self.peer.events) };
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let keys = parse(&pdu.data).unwrap().iter().map(own).collect();
        (pdu.bhs.u16(36), pdu.bhs.0[1] & 0x80 != 0, keys)
    }

    /// Up to the challenge, as libiscsi does it: it would go on at once.
    fn challenged(mutual: bool, algorithms: &str) -> Asked {
        let mut asked = Asked::new(mutual);
        let first = [("InitiatorName", ME), ("TargetName", TARGET), ("AuthMethod", "CHAP,None")];
        let (status, goes_on, keys) = asked.say(login(0, 1), &first);
        assert_eq!((status, goes_on), (0, false), "the stage is not over");
        assert!(keys.contains(&("AuthMethod".to_owned(), "CHAP".to_owned())), "{keys:?}");
        let (status, goes_on, keys) = asked.say(stay(), &[("CHAP_A", algorithms)]);
        assert_eq!((status, goes_on), (0, false));
        let value = |key: &str| keys.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        assert_eq!(value("CHAP_I"), Some("77"));
        assert_eq!(value("CHAP_C").and_then(binary::read).as_deref(), Some(&CHALLENGE.bytes[..]));
        asked
    }

    /// Whether it is let in with this name and response, and further keys.
    fn shows(&mut self, user: &str, response: &str, more: &[(&str, &str)]) -> Heard {
        let keys = [&[("CHAP_N", user), ("CHAP_R", response)], more].concat();
        self.say(login(0, 1), &keys)
    }
}

/// A request that stays in the security stage.
fn stay() -> LoginRequest {
    LoginRequest { transit: false, ..login(0, 0) }
}

fn response(algorithm: Algorithm, secret: &[u8]) -> String {
    binary::write(&algorithm.response(CHALLENGE.identifier, secret, &CHALLENGE.bytes))
}

#[test]
fn who_knows_the_secret_is_let_in() {
    for (algorithms, algorithm) in [("5", Algorithm::Md5), ("6,5,7", Algorithm::Sha256), ("5,8", Algorithm::Sha3)] {
        let mut asked = Asked::challenged(false, algorithms);
        assert_eq!(asked.shows("user", &response(algorithm, SECRET), &[]), (0, true, Vec::new()));
        assert_eq!(asked.peer.named, None, "nothing is opened before the login ends");
        // libiscsi says once more who it is.
        let who = [("InitiatorName", ME), ("InitiatorAlias", "me"), ("TargetName", TARGET)];
        let again = [&who[..], &[("SessionType", "Normal"), ("HeaderDigest", "None")]].concat();
        assert_eq!(asked.say(login(1, 3), &again).0, 0);
        let named = Named { host: HostName::of_initiator(ME), grant: Some(GrantId(5)) };
        assert_eq!(asked.peer.named, Some(named));
        assert_eq!(asked.peer.events, [Event::Opened { name: "vol1".to_owned() }]);
    }
}

#[test]
fn who_does_not_is_told_nothing_of_why() {
    let good = response(Algorithm::Md5, SECRET);
    for (user, shown) in [
        ("user", response(Algorithm::Md5, b"another secret")),
        ("user", response(Algorithm::Sha256, SECRET)),
        ("user", good[..good.len() - 2].to_owned()),
        ("user", format!("{good}00")),
        ("User", good.clone()),
        ("", good.clone()),
        ("azekura", response(Algorithm::Md5, TARGETS)),
    ] {
        let mut asked = Asked::challenged(true, "5");
        assert_eq!(asked.shows(user, &shown, &[]), (0x0201, false, Vec::new()), "{user} {shown}");
        let [Event::Mistaken(what), Event::Closed] = &asked.peer.events[..] else { panic!("{:?}", asked.peer.events) };
        assert!(what.contains(ME) && !what.contains(&shown), "{what}");
        assert_eq!(asked.peer.named, None);
    }
}

#[test]
fn nobody_is_talked_down() {
    let who = [("InitiatorName", ME), ("TargetName", TARGET)];
    let with = |keys: &[(&'static str, &'static str)]| [&who[..], keys].concat();
    for (request, keys, status) in [
        (login(1, 3), with(&[]), 0x0201),
        (login(0, 3), with(&[]), 0x0201),
        (login(0, 1), with(&[("AuthMethod", "None")]), 0x0201),
        (login(0, 1), with(&[("AuthMethod", "chap,SRP,None")]), 0x0201),
        (stay(), with(&[("CHAP_A", "5")]), 0x0201),
        (stay(), with(&[("AuthMethod", "CHAP"), ("CHAP_A", "5")]), 0x0200),
    ] {
        let mut asked = Asked::new(false);
        assert_eq!(asked.say(request, &keys).0, status, "{keys:?}");
        assert_eq!(asked.peer.named, None);
        assert!(!asked.peer.events.iter().any(|event| matches!(event, Event::Mistaken(_))), "it has not tried");
    }
    // After the challenge: another stage, another method, other names, the same keys.
    for (request, keys, status) in [
        (login(1, 3), vec![], 0x0200),
        (login(0, 1), vec![("AuthMethod", "None")], 0x0200),
        (login(0, 3), vec![], 0x0200),
        (login(0, 1), vec![("CHAP_A", "5")], 0x0200),
        (login(0, 1), vec![("CHAP_N", "user")], 0x0200),
        (login(0, 1), vec![("CHAP_R", "0x00")], 0x0200),
        (login(0, 1), vec![("CHAP_N", "user"), ("CHAP_R", "0x00"), ("CHAP_I", "1")], 0x0200),
        (login(0, 1), vec![("CHAP_N", "user"), ("CHAP_R", "0x00"), ("CHAP_I", "256"), ("CHAP_C", "0x00")], 0x0200),
        (login(0, 1), vec![("CHAP_N", "user"), ("CHAP_R", "5")], 0x0200),
        (login(0, 1), vec![("InitiatorName", ME)], 0x0200),
    ] {
        let mut asked = Asked::challenged(true, "5");
        assert_eq!(asked.say(request, &keys).0, status, "{keys:?}");
        assert_eq!(asked.peer.named, None);
    }
}

#[test]
fn who_has_proved_to_be_one_is_no_other_afterwards() {
    for keys in
        [[("InitiatorName", "iqn.2000-01.example:you")], [("SessionType", "Discovery")], [("AuthMethod", "None")]]
    {
        let mut asked = Asked::challenged(false, "5");
        assert_eq!(asked.shows("user", &response(Algorithm::Md5, SECRET), &[]).0, 0);
        let status = asked.say(login(1, 3), &keys).0;
        assert!(matches!(status, 0x0200 | 0x0201), "{keys:?}: {status:#x}");
        assert_eq!(asked.peer.named, None, "{keys:?}");
    }
}

#[test]
fn the_target_proves_itself_to_who_has_and_asks() {
    let good = response(Algorithm::Md5, SECRET);
    let mut asked = Asked::challenged(true, "5");
    let (status, goes_on, keys) = asked.shows("user", &good, &[("CHAP_I", "9"), ("CHAP_C", "0bAAEC")]);
    let answer = binary::write(&Algorithm::Md5.response(9, TARGETS, &[0, 1, 2]));
    let wanted =
        [("CHAP_N", "azekura"), ("CHAP_R", answer.as_str())].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!((status, goes_on, keys), (0, true, wanted.to_vec()));
    // Who has not proved anything gets no answer to his own question.
    let mut stranger = Asked::challenged(true, "5");
    let wrong = response(Algorithm::Md5, b"another secret");
    assert_eq!(stranger.shows("user", &wrong, &[("CHAP_I", "9"), ("CHAP_C", "0x00")]), (0x0201, false, Vec::new()));
    // Nobody gets our own question answered by ourselves.
    let mut mirror = Asked::challenged(true, "5");
    let own = binary::write(&CHALLENGE.bytes);
    assert_eq!(mirror.shows("user", &good, &[("CHAP_I", "9"), ("CHAP_C", &own)]), (0x0201, false, Vec::new()));
    // A host without a second secret.
    let mut other = Asked::challenged(false, "5");
    assert_eq!(other.shows("user", &good, &[("CHAP_I", "9"), ("CHAP_C", "0x00")]).0, 0x0201);
    assert!(!other.peer.events.iter().any(|event| matches!(event, Event::Mistaken(_))), "it has not tried");
}

#[test]
fn a_discovery_takes_the_same_proof() {
    let mut asked = Asked::new(false);
    let first = [("InitiatorName", ME), ("SessionType", "Discovery"), ("AuthMethod", "CHAP")];
    assert!(!asked.say(stay(), &first).1, "the stage is not over");
    assert_eq!(asked.say(stay(), &[("CHAP_A", "5")]).0, 0);
    assert_eq!(asked.shows("user", &response(Algorithm::Md5, SECRET), &[]).0, 0);
    assert_eq!(asked.say(login(1, 3), &[]).0, 0);
    assert!(asked.peer.named.is_some() && asked.peer.events.is_empty());
}

#[test]
fn without_randomness_nobody_is_asked() {
    let mut asked = Asked::new(false);
    asked.peer.conn = Connection::new(256 << 10, Some(([10, 0, 0, 1], 3260).into()), None);
    let first = [("InitiatorName", ME), ("TargetName", TARGET), ("AuthMethod", "CHAP")];
    assert_eq!(asked.say(stay(), &first).0, 0x0301, "it comes again");
}

#[test]
fn who_is_asked_for_nothing_speaks_of_no_secret() {
    let mut peer = Peer::new();
    let keys = [("InitiatorName", ME), ("TargetName", TARGET), ("CHAP_A", "5")];
    let pdus = peer.exchange(stay().bhs(), &text(&keys));
    assert_eq!(pdus[0].bhs.u16(36), 0x0200);
}

/// Keys of a login, good and bad.
fn pair() -> impl Strategy<Value = (String, String)> {
    let good = response(Algorithm::Md5, SECRET);
    let key = prop_oneof![
        Just("InitiatorName"),
        Just("TargetName"),
        Just("AuthMethod"),
        Just("CHAP_A"),
        Just("CHAP_I"),
        Just("CHAP_C"),
        Just("CHAP_N"),
        Just("SessionType"),
        Just("HeaderDigest"),
        Just("CHAP_R"),
    ];
    let value = prop_oneof![
        Just(ME.to_owned()),
        Just(TARGET.to_owned()),
        Just("CHAP".to_owned()),
        Just("CHAP,None".to_owned()),
        Just("None".to_owned()),
        Just("5".to_owned()),
        Just("77".to_owned()),
        Just("user".to_owned()),
        Just(binary::write(&CHALLENGE.bytes)),
        Just("Normal".to_owned()),
        "0[xb][0-9a-fA-F=]{0,70}",
        ".{0,20}",
        // What would let it in has the value of one secret that is not this one's.
        Just(good.replace('a', "b").replace('0', "1")),
    ];
    (key.prop_map(str::to_owned), value)
}

/// A text's stage, the next one, whether it is to begin, and the keys.
type Said = (u8, u8, bool, Vec<(String, String)>);

fn texts() -> impl Strategy<Value = Vec<Said>> {
    let keys = proptest::collection::vec(pair(), 0..5);
    proptest::collection::vec((0..2_u8, prop_oneof![Just(1_u8), Just(3)], any::<bool>(), keys), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever is said, in whatever order: nobody is let in without the response.
    #[test]
    fn no_order_of_keys_lets_a_stranger_in(begins in any::<bool>(), said in texts()) {
        let mut peer = Peer::new();
        let gate = gate(true);
        if begins {
            let first = [("InitiatorName", ME), ("TargetName", TARGET), ("AuthMethod", "CHAP,None")];
            peer.queue(login(0, 1).bhs(), &text(&first));
            peer.run(&gate);
            peer.queue(stay().bhs(), &text(&[("CHAP_A", "5")]));
            peer.run(&gate);
        }
        for (csg, nsg, transit, keys) in said {
            if peer.events.iter().any(|event| matches!(event, Event::Closed | Event::Violation(_))) {
                break;
            }
            let keys: Vec<(&str, &str)> = keys.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            peer.queue(LoginRequest { transit, ..login(csg, nsg) }.bhs(), &text(&keys));
            peer.run(&gate);
        }
        prop_assert_eq!(&peer.named, &None);
        let has_opened = peer.events.iter().any(|event| matches!(event, Event::Opened { .. }));
        prop_assert!(!has_opened);
    }
}
