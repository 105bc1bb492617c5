//! Opening exports that can't be opened at once, or are not known yet. Section names are those of the NBD protocol
//! document.
#![allow(clippy::unwrap_used)]

use crate::support::client::{Heard, Say, info_data, meta_data, sent};
use azekura_base::VolumeId;
use azekura_frontend::{Export, Exports, Listing, MakeListing, Opening};
use azekura_nbd::numbers::*;
use azekura_nbd::{Command, Event, Session, Violation};
use std::cell::{Cell, RefCell};

/// Exports that can't always be opened at once.
struct Attached(RefCell<Opening>);

impl Exports for Attached {
    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        make(&mut [("vol1", "")].into_iter())
    }

    fn find(&self, name: &str) -> Option<Export> {
        ["", "vol1"].contains(&name).then(|| Export::new("vol1", VolumeId(1), 1 << 30))
    }

    fn open(&self, _: &str) -> Opening {
        self.0.borrow().clone()
    }
}

fn say_to(session: &mut Session, say: &Say) {
    let mut fill = session.inbox_mut().take_fill();
    fill.buf[fill.at..fill.at + say.0.len()].copy_from_slice(&say.0);
    session.inbox_mut().filled(fill, say.0.len());
}

/// An export that is not open yet is waited for; what the client has sent behind its wish stays where it is.
#[test]
fn opening_can_take_time() {
    for option in [OPT_GO, OPT_EXPORT_NAME] {
        let exports = Attached(Opening::Later("vol1".into()).into());
        let data = if option == OPT_GO { info_data("", &[]) } else { Vec::new() };
        let mut session = Session::new();
        say_to(&mut session, &Say::hello().option(option, &data).request(0, CMD_FLUSH, 7, 0, 0));
        sent(&mut session);
        for _ in 0..3 {
            assert_eq!(session.poll(&exports), Some(Event::Wanted { name: "vol1".into() }));
            assert!(!session.wants_bytes() && !session.is_open());
            assert!(sent(&mut session).is_empty(), "nothing is promised");
        }
        exports.0.replace(Opening::Ready(Export::new("vol1", VolumeId(1), 1 << 30)));
        assert_eq!(session.poll(&exports), Some(Event::Opened { name: "vol1".into() }));
        assert!(matches!(session.poll(&exports), Some(Event::Request { command: Command::Flush, .. })));
    }
}

/// Exports that are found out about when a client asks.
struct Hearsay {
    known: RefCell<Vec<Export>>,
    certain: Cell<bool>,
}

impl Exports for Hearsay {
    fn listing(&self, _: &'static str, make: &MakeListing<'_>) -> Listing {
        make(&mut self.known.borrow().iter().map(|export| (&*export.name, "")))
    }

    fn find(&self, name: &str) -> Option<Export> {
        self.known.borrow().iter().find(|export| name == export.name).cloned()
    }

    fn may_come(&self, _: &str) -> bool {
        !self.certain.get()
    }
}

/// A name that is not known is waited for by every option that speaks of an export, and what comes of it is used.
#[test]
fn exports_can_turn_up() {
    for option in [OPT_INFO, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_GO, OPT_EXPORT_NAME] {
        for comes in [true, false] {
            let exports = Hearsay { known: Vec::new().into(), certain: false.into() };
            let data = match option {
                OPT_EXPORT_NAME => b"vol1".to_vec(),
                OPT_INFO | OPT_GO => info_data("vol1", &[]),
                _ => meta_data("vol1", &["base:allocation"]),
            };
            let mut session = Session::new();
            say_to(&mut session, &Say::hello().structured().option(option, &data));
            for _ in 0..3 {
                assert_eq!(session.poll(&exports), Some(Event::Missing { name: "vol1".into() }), "{option}");
                assert!(!session.wants_bytes() && !session.is_open());
            }
            exports.certain.set(true);
            if comes {
                exports.known.borrow_mut().push(Export::new("vol1", VolumeId(1), 1 << 30));
            }
            sent(&mut session);
            let event = session.poll(&exports);
            let all = sent(&mut session);
            match (option, comes) {
                (OPT_GO | OPT_EXPORT_NAME, true) => {
                    assert_eq!(event, Some(Event::Opened { name: "vol1".into() }));
                }
                (OPT_EXPORT_NAME, false) => {
                    let missing = Violation::NoSuchExport("vol1".into());
                    assert_eq!(event, Some(Event::Violation(missing)));
                }
                (_, comes) => {
                    assert_eq!(event, None);
                    let first = if option == OPT_INFO { REP_INFO } else { REP_META_CONTEXT };
                    let wanted = if comes { first } else { REP_ERR_UNKNOWN };
                    assert_eq!(Heard(&all).option_reply(option).0, wanted);
                }
            }
        }
    }
}

/// *Option reply types*, `NBD_REP_ERR_POLICY`: the reason reaches people, and the client may choose another export.
#[test]
fn opening_can_be_refused() {
    let exports = Attached(Opening::Refused("node n1 has it".into()).into());
    let mut session = Session::new();
    say_to(&mut session, &Say::hello().go("vol1", &[]));
    assert_eq!(session.poll(&exports), None);
    let all = sent(&mut session);
    let mut heard = Heard(&all);
    heard.greeting();
    assert_eq!(heard.option_reply(OPT_GO), (REP_ERR_POLICY, &b"node n1 has it"[..]));
    heard.end();
    say_to(&mut session, &Say::nothing().option(OPT_EXPORT_NAME, b"vol1"));
    let refused = Violation::Refused { name: "vol1".into(), why: "node n1 has it".into() };
    assert_eq!(session.poll(&exports), Some(Event::Violation(refused)));
}

/// `NBD_OPT_INFO` only describes: it waits for nobody.
#[test]
fn describing_opens_nothing() {
    let exports = Attached(Opening::Refused("node n1 has it".into()).into());
    let mut session = Session::new();
    say_to(&mut session, &Say::hello().option(OPT_INFO, &info_data("vol1", &[])));
    assert_eq!(session.poll(&exports), None);
    let all = sent(&mut session);
    let mut heard = Heard(&all);
    heard.greeting();
    assert_eq!(heard.option_reply(OPT_INFO).0, REP_INFO);
    assert_eq!(heard.option_reply(OPT_INFO).0, REP_ACK);
}
