//! Addresses that demand TLS: *TLS support*, FORCEDTLS mode.
#![allow(clippy::unwrap_used)]

use crate::support::Fixed;
use crate::support::VolumeId;
use crate::support::client::{Heard, Say, feed, hear, info_data, meta_data, sent};
use azekura_frontend::{Export, Exports, Listing, MakeListing, Opening};
use azekura_nbd::numbers::*;
use azekura_nbd::{Event, HANDSHAKE_OUTBOX_MAX, OPTION_DATA_MAX, OPTION_SKIP_MAX, Session, Violation};
use proptest::prelude::*;

/// Nobody may ask for these.
struct Untouchable;

impl Exports for Untouchable {
    fn find(&self, _: &str) -> Option<Export> {
        panic!("a client without TLS has come to the exports")
    }

    fn may_come(&self, _: &str) -> bool {
        panic!("a client without TLS has come to the exports")
    }

    fn open(&self, _: &str) -> Opening {
        panic!("a client without TLS has come to the exports")
    }

    fn refusal(&self) -> Option<String> {
        panic!("a client without TLS has come to the exports")
    }

    fn listing(&self, _: &'static str, _: &MakeListing<'_>) -> Listing {
        panic!("a client without TLS has come to the exports")
    }
}

/// What a session that demands TLS does with this, and says behind its greeting.
fn dialogue(say: &Say) -> (Vec<Event>, Vec<u8>) {
    let mut session = Session::secured();
    let events = hear(&mut session, &Untouchable, say);
    let all = sent(&mut session);
    let mut heard = Heard(&all);
    heard.greeting();
    (events, heard.0.to_vec())
}

fn answers(said: &[u8], options: &[u32]) -> Vec<u32> {
    let mut heard = Heard(said);
    let kinds = options.iter().map(|option| heard.option_reply(*option).0).collect();
    assert!(heard.0.is_empty(), "more was said than was asked");
    kinds
}

fn starttls() -> Say {
    Say::hello().option(OPT_STARTTLS, &[])
}

#[test]
fn nothing_is_served_before_tls() {
    let options = [
        (OPT_LIST, vec![]),
        (OPT_GO, info_data("vol1", &[])),
        (OPT_INFO, info_data("vol1", &[])),
        (OPT_STRUCTURED_REPLY, vec![]),
        (OPT_SET_META_CONTEXT, meta_data("vol1", &["base:allocation"])),
        (OPT_LIST_META_CONTEXT, meta_data("vol1", &[])),
        (77, vec![1; 9]),
        (OPT_INFO, vec![1; OPTION_DATA_MAX as usize + 1]),
    ];
    let say = options.iter().fold(Say::hello(), |say, (option, data)| say.option(*option, data));
    let (events, said) = dialogue(&say);
    assert_eq!(events, []);
    let numbers: Vec<u32> = options.iter().map(|(option, _)| *option).collect();
    assert_eq!(answers(&said, &numbers), vec![REP_ERR_TLS_REQD; options.len()]);
}

#[test]
fn who_says_goodbye_is_answered_and_who_can_not_be_answered_is_not() {
    let (events, said) = dialogue(&Say::hello().option(OPT_ABORT, &[]));
    assert_eq!((events, answers(&said, &[OPT_ABORT])), (vec![Event::Closed], vec![REP_ACK]));
    for say in [Say::hello().option(OPT_EXPORT_NAME, b"vol1"), Say::flags(0).option(OPT_EXPORT_NAME, b"vol1")] {
        assert_eq!(dialogue(&say), (vec![Event::Violation(Violation::NoTls)], vec![]));
    }
}

#[test]
fn tls_begins_when_it_is_asked_for() {
    let (events, said) = dialogue(&Say::hello().option(OPT_STARTTLS, &[7]).option(OPT_STARTTLS, &[]));
    assert_eq!(events, [Event::StartsTls]);
    assert_eq!(answers(&said, &[OPT_STARTTLS, OPT_STARTTLS]), [REP_ERR_INVALID, REP_ACK]);
}

/// Somebody on the way has added what stands behind the wish for TLS (CVE-2011-0411 is the oldest of its kind).
#[test]
fn what_comes_behind_the_wish_is_nobodys() {
    for behind in [&b"x"[..], &Say::nothing().option(OPT_LIST, &[]).0, &[22, 3, 1, 0, 200]] {
        let (events, said) = dialogue(&starttls().raw(behind));
        assert_eq!(events, [Event::Violation(Violation::BehindStartTls(behind.len()))]);
        assert!(said.is_empty(), "the wish is not granted");
    }
}

/// CVE-2021-3716: somebody on the way agrees on something before TLS that the client does not know of.
#[test]
fn what_was_haggled_before_is_forgotten() {
    let exports = Fixed(vec![Export::new("vol1", VolumeId(1), 1 << 30)]);
    let mut session = Session::secured();
    let say = Say::hello().structured().option(OPT_SET_META_CONTEXT, &meta_data("vol1", &["base:allocation"]));
    assert_eq!(hear(&mut session, &exports, &say.option(OPT_STARTTLS, &[])), [Event::StartsTls]);
    sent(&mut session);
    let events = hear(&mut session, &exports, &Say::nothing().go("vol1", &[]));
    assert_eq!(events, [Event::Opened { name: "vol1".into() }]);
    sent(&mut session);
    let events = hear(&mut session, &exports, &Say::nothing().request(0, CMD_READ, 1, 0, 0));
    assert_eq!(events, []);
    session.give_room();
    assert_eq!(hear(&mut session, &exports, &Say::nothing()), [], "an empty request is answered at once");
    assert_eq!(sent(&mut session)[..4], SIMPLE_REPLY_MAGIC.to_be_bytes(), "replies are simple");
}

#[test]
fn tls_begins_once() {
    let exports = Fixed(vec![]);
    let mut session = Session::secured();
    hear(&mut session, &exports, &starttls());
    sent(&mut session);
    assert_eq!(hear(&mut session, &exports, &Say::nothing().option(OPT_STARTTLS, &[])), []);
    assert_eq!(answers(&sent(&mut session), &[OPT_STARTTLS]), [REP_ERR_INVALID]);
}

/// A client that may not even ask hears the same whatever it asks for.
#[test]
fn strangers_learn_nothing() {
    struct Guarded;
    impl Exports for Guarded {
        fn find(&self, _: &str) -> Option<Export> {
            panic!("it is not looked for")
        }
        fn refusal(&self) -> Option<String> {
            Some("who are you?".to_owned())
        }
        fn listing(&self, _: &'static str, _: &MakeListing<'_>) -> Listing {
            panic!("it is not made")
        }
    }
    let exports = Guarded;
    let mut session = Session::secured();
    hear(&mut session, &exports, &starttls());
    sent(&mut session);
    for name in ["vol1", "none"] {
        let options = [(OPT_GO, info_data(name, &[])), (OPT_INFO, info_data(name, &[])), (OPT_LIST, vec![])];
        for (option, data) in options {
            assert_eq!(hear(&mut session, &exports, &Say::nothing().option(option, &data)), []);
            assert_eq!(answers(&sent(&mut session), &[option]), [REP_ERR_POLICY], "{name} {option}");
        }
    }
    let events = hear(&mut session, &exports, &Say::nothing().option(OPT_EXPORT_NAME, b"vol1"));
    assert_eq!(events, [Event::Violation(Violation::Stranger("who are you?".to_owned()))]);
}

fn something() -> impl Strategy<Value = Say> {
    let data = proptest::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        4 => (1u32..12, data).prop_map(|(option, data)| Say::nothing().option(option, &data)),
        1 => Just(Say::nothing().option(OPT_STARTTLS, &[])),
        1 => Just(Say::nothing().go("vol1", &[])),
        1 => (8u32..12, 60_000usize..140_000).prop_map(|(option, length)| Say::nothing().option(option, &vec![1; length])),
        1 => (8u32..12, OPTION_SKIP_MAX..u32::MAX).prop_map(|(option, length)| {
            Say::nothing().raw(&IHAVEOPT.to_be_bytes()).raw(&option.to_be_bytes()).raw(&length.to_be_bytes())
        }),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Say::nothing().raw(&bytes)),
    ]
}

proptest! {
    /// Whatever a client says without TLS, and however it is cut up: it comes to no export, opens nothing, and makes
    /// the node hold little.
    #[test]
    fn without_tls_there_is_nothing(
        flags in prop_oneof![4 => Just(3u32), 1 => 0u32..8],
        all in proptest::collection::vec(something(), 0..12),
        cuts in proptest::collection::vec(prop_oneof![1usize..9, 1usize..300, 1usize..40_000], 1..12),
    ) {
        let say = all.iter().fold(Say::flags(flags), |say, next| say.raw(&next.0));
        let mut session = Session::secured();
        let mut stream = &say.0[..];
        let mut cuts = cuts.iter().cycle();
        let mut last = None;
        loop {
            while let Some(event) = session.poll(&Untouchable) {
                prop_assert!(
                    matches!(event, Event::Closed | Event::Violation(_) | Event::StartsTls), "{event:?}"
                );
                prop_assert!(last.is_none());
                last = Some(event);
                prop_assert!(!session.is_open());
                prop_assert!(!matches!(last, Some(Event::StartsTls)) || session.inbox_mut().available().is_empty());
            }
            prop_assert!(session.outbox_mut().len() <= HANDSHAKE_OUTBOX_MAX + 4096);
            prop_assert!(session.inbox_mut().memory_bytes() <= 256 << 10);
            sent(&mut session);
            // Behind the beginning of TLS comes what TLS yields.
            if stream.is_empty() || last.is_some() || !session.wants_bytes() {
                break;
            }
            feed(&mut session, &mut stream, *cuts.next().unwrap());
        }
    }
}
