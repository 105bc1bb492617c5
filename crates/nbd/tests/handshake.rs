//! The handshake, option by option. Section names are those of the NBD protocol document.
#![allow(clippy::unwrap_used)]

use crate::support::Fixed;
use crate::support::client::{Heard, Say, hear, info_data, meta_data, sent};
use azekura_base::VolumeId;
use azekura_frontend::{Export, Verbs};
use azekura_nbd::numbers::*;
use azekura_nbd::{Event, LIST_REPLY_MAX, OPTION_DATA_MAX, OPTION_SKIP_MAX, STRING_MAX, Session, Violation};

const COMMON: u16 = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN | FLAG_SEND_CACHE;
const WRITABLE: u16 = COMMON | FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO;

fn one() -> Fixed {
    Fixed(vec![Export::new("vol1", VolumeId(1), 1 << 30)])
}

fn two() -> Fixed {
    let frozen = Export {
        verbs: Verbs::READ_ONLY,
        description: "as of Monday".into(),
        ..Export::new("frozen", VolumeId(1), 5000)
    };
    Fixed(vec![Export::new("vol1", VolumeId(1), 1 << 30), frozen])
}

fn opened(name: &str) -> Vec<Event> {
    vec![Event::Opened { name: name.into() }]
}

/// What `say` brings forth: events, and the server's bytes behind the greeting.
fn dialogue(exports: &Fixed, say: &Say) -> (Vec<Event>, Vec<u8>) {
    let mut session = Session::new();
    let events = hear(&mut session, exports, say);
    let all = sent(&mut session);
    let mut heard = Heard(&all);
    heard.greeting();
    (events, heard.0.to_vec())
}

/// One option in fixed newstyle that does not end the handshake: its replies.
fn replies(exports: &Fixed, before: Say, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut session = Session::new();
    assert_eq!(hear(&mut session, exports, &before), []);
    sent(&mut session);
    assert_eq!(hear(&mut session, exports, &Say::nothing().option(option, data)), []);
    let said = sent(&mut session);
    let mut heard = Heard(&said);
    let mut replies = Vec::new();
    while !heard.0.is_empty() {
        let (kind, data) = heard.option_reply(option);
        replies.push((kind, data.to_vec()));
    }
    let last = replies.pop().unwrap();
    assert!(last.0 == REP_ACK && last.1.is_empty() || last.0 >> 31 == 1, "final reply {last:?}");
    assert!(replies.iter().all(|reply| reply.0 != REP_ACK && reply.0 >> 31 == 0), "{replies:?}");
    replies.push((last.0, if last.0 == REP_ACK { last.1 } else { Vec::new() }));
    // Whatever it was, the handshake can go on.
    assert_eq!(hear(&mut session, exports, &Say::nothing().option(OPT_EXPORT_NAME, b"vol1")), opened("vol1"));
    replies
}

fn ack() -> (u32, Vec<u8>) {
    (REP_ACK, Vec::new())
}

fn refused(kind: u32) -> Vec<(u32, Vec<u8>)> {
    vec![(kind, Vec::new())]
}

/// *Newstyle negotiation*: the server speaks first.
#[test]
fn greeting_comes_first() {
    let mut session = Session::new();
    assert!(session.wants_bytes() && !session.is_open());
    let all = sent(&mut session);
    let mut heard = Heard(&all);
    heard.greeting();
    heard.end();
}

/// *Client flags*: unknown flags end the connection.
#[test]
fn unknown_client_flags_end_the_connection() {
    for flags in [4, 1 << 31, FLAG_C_FIXED_NEWSTYLE | 8] {
        let (events, said) = dialogue(&one(), &Say::flags(flags).option(OPT_LIST, &[]));
        assert_eq!(events, [Event::Violation(Violation::ClientFlags(flags))]);
        assert!(said.is_empty());
    }
}

/// *Fixed newstyle negotiation*: each option begins with the magic number.
#[test]
fn option_without_magic_ends_the_connection() {
    let (events, _) = dialogue(&one(), &Say::hello().raw(b"IHAVEOPS").raw(&[0; 8]));
    assert_eq!(events, [Event::Violation(Violation::OptionMagic(IHAVEOPT - 1))]);
}

/// *Option types*: without fixed newstyle, only `NBD_OPT_EXPORT_NAME`.
#[test]
fn options_need_fixed_newstyle() {
    let (events, _) = dialogue(&one(), &Say::flags(0).option(OPT_LIST, &[]));
    assert_eq!(events, [Event::Violation(Violation::OptionWithoutFixedNewstyle(OPT_LIST))]);
    let (events, _) = dialogue(&one(), &Say::flags(0).option(OPT_EXPORT_NAME, b"vol1"));
    assert_eq!(events, opened("vol1"));
}

/// `NBD_OPT_EXPORT_NAME`: size, flags, and 124 zeroes unless the client asked for none.
#[test]
fn export_name_opens() {
    for (flags, zeroes) in [(FLAG_C_FIXED_NEWSTYLE, 124), (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES, 0), (0, 124)] {
        let (events, said) = dialogue(&one(), &Say::flags(flags).option(OPT_EXPORT_NAME, b""));
        assert_eq!(events, opened("vol1"));
        let mut heard = Heard(&said);
        assert_eq!((heard.u64(), heard.u16()), (1 << 30, WRITABLE));
        assert_eq!(heard.bytes(zeroes), vec![0; zeroes]);
        heard.end();
    }
}

/// `NBD_OPT_EXPORT_NAME`: can't fail but by closing.
#[test]
fn export_name_of_nothing_closes() {
    let closes = |name: &[u8], violation| {
        let (events, said) = dialogue(&two(), &Say::hello().option(OPT_EXPORT_NAME, name));
        assert_eq!(events, [Event::Violation(violation)]);
        assert!(said.is_empty());
    };
    closes(b"vol2", Violation::NoSuchExport("vol2".into()));
    closes(b"", Violation::NoSuchExport(String::new()));
    closes(b"\xff", Violation::MalformedName);
    closes(b"vol1\0", Violation::MalformedName);
    closes(&vec![b'v'; STRING_MAX + 1], Violation::MalformedName);
    let length = OPTION_DATA_MAX + 1;
    closes(&vec![b'v'; length as usize], Violation::OptionTooLong { option: OPT_EXPORT_NAME, length });
}

/// `NBD_OPT_ABORT`: acknowledged, its data ignored, and nothing is read behind it.
#[test]
fn abort_is_acknowledged() {
    for data in [&b""[..], b"goodbye"] {
        let (events, said) = dialogue(&one(), &Say::hello().option(OPT_ABORT, data).option(OPT_LIST, &[]));
        assert_eq!(events, [Event::Closed]);
        let mut heard = Heard(&said);
        assert_eq!(heard.option_reply(OPT_ABORT), (REP_ACK, &[][..]));
        heard.end();
    }
}

/// `NBD_OPT_LIST`: one `NBD_REP_SERVER` for each export, with its description.
#[test]
fn list_names_all_exports() {
    let entry = |name: &str, description: &str| {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend([name, description].concat().bytes());
        (REP_SERVER, data)
    };
    let all = vec![entry("vol1", ""), entry("frozen", "as of Monday"), ack()];
    assert_eq!(replies(&two(), Say::hello(), OPT_LIST, &[]), all);
    assert_eq!(replies(&two(), Say::hello(), OPT_LIST, &[0]), refused(REP_ERR_INVALID));
}

/// `NBD_REP_ERR_TOO_BIG`: a list that would not fit its limit is refused as a whole.
#[test]
fn endless_list_is_refused() {
    let named = |i: usize| Export {
        description: "d".repeat(STRING_MAX + 1),
        ..Export::new(&format!("{i:0>width$}", width = STRING_MAX), VolumeId(1), 4096)
    };
    let few: Vec<Export> = (0..LIST_REPLY_MAX / (2 * STRING_MAX + 24)).map(named).collect();
    let many: Vec<Export> = (0..few.len() + 1).map(named).collect();
    let list = |exports: Vec<Export>| {
        let (_, said) = dialogue(&Fixed(exports), &Say::hello().option(OPT_LIST, &[]));
        let mut heard = Heard(&said);
        let (kind, data) = heard.option_reply(OPT_LIST);
        (kind, data.len(), said.len())
    };
    let (kind, data, whole) = list(few);
    assert_eq!((kind, data), (REP_SERVER, 4 + 2 * STRING_MAX));
    assert!(whole <= LIST_REPLY_MAX + 20);
    assert_eq!(list(many).0, REP_ERR_TOO_BIG);
}

/// `NBD_OPT_STARTTLS`, *NOTLS mode*.
#[test]
fn tls_is_refused() {
    assert_eq!(replies(&one(), Say::hello(), OPT_STARTTLS, &[]), refused(REP_ERR_UNSUP));
    assert_eq!(replies(&one(), Say::hello(), OPT_STARTTLS, &[1]), refused(REP_ERR_INVALID));
}

/// *Fixed newstyle negotiation*: unknown options, whatever their data.
#[test]
fn unknown_options_are_unsupported() {
    for option in [0, 4, 11, 12, 1000, u32::MAX] {
        assert_eq!(replies(&one(), Say::hello(), option, &[7; 300]), refused(REP_ERR_UNSUP));
    }
}

/// `NBD_REP_ERR_TOO_BIG`: long data is skipped, endless data ends the connection.
#[test]
fn long_options_are_skipped() {
    for length in [OPTION_DATA_MAX + 1, OPTION_SKIP_MAX] {
        assert_eq!(replies(&one(), Say::hello(), OPT_GO, &vec![0; length as usize]), refused(REP_ERR_TOO_BIG));
    }
    assert_eq!(replies(&one(), Say::hello(), 77, &vec![0; OPTION_DATA_MAX as usize]), refused(REP_ERR_UNSUP));
    let length = OPTION_SKIP_MAX + 1;
    let (events, _) = dialogue(&one(), &Say::hello().option(OPT_INFO, &vec![0; length as usize]));
    assert_eq!(events, [Event::Violation(Violation::OptionTooLong { option: OPT_INFO, length })]);
}

fn info_export(size: u64, flags: u16) -> (u32, Vec<u8>) {
    (REP_INFO, [&INFO_EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat())
}

fn info_sizes(min: u32, preferred: u32, max: u32) -> (u32, Vec<u8>) {
    let mut data = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    [min, preferred, max].iter().for_each(|size| data.extend(size.to_be_bytes()));
    (REP_INFO, data)
}

fn info_text(kind: u16, text: &str) -> (u32, Vec<u8>) {
    (REP_INFO, [&kind.to_be_bytes()[..], text.as_bytes()].concat())
}

/// `NBD_OPT_INFO`: `NBD_INFO_EXPORT` always, the rest on request, unknown requests ignored.
#[test]
fn info_tells_what_was_asked() {
    let all = [INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE, 99];
    assert_eq!(
        replies(&one(), Say::hello(), OPT_INFO, &info_data("", &all)),
        [info_sizes(1, 4096, 32 << 20), info_export(1 << 30, WRITABLE), info_text(INFO_NAME, "vol1"), ack()]
    );
    assert_eq!(
        replies(&two(), Say::hello(), OPT_INFO, &info_data("frozen", &[INFO_DESCRIPTION])),
        [info_export(5000, COMMON | FLAG_READ_ONLY), info_text(INFO_DESCRIPTION, "as of Monday"), ack()]
    );
    assert_eq!(
        replies(&one(), Say::hello().structured(), OPT_INFO, &info_data("vol1", &[])),
        [info_export(1 << 30, WRITABLE | FLAG_SEND_DF), ack()]
    );
}

/// `NBD_OPT_INFO` and `NBD_OPT_GO`: what is wrong with them.
#[test]
fn info_and_go_refuse() {
    for option in [OPT_INFO, OPT_GO] {
        let refuses = |data: &[u8], kind| assert_eq!(replies(&two(), Say::hello(), option, data), refused(kind));
        refuses(&info_data("vol2", &[]), REP_ERR_UNKNOWN);
        refuses(&info_data("", &[]), REP_ERR_UNKNOWN);
        refuses(&[], REP_ERR_INVALID);
        refuses(&[0, 0, 0, 5, b'v', 0, 0], REP_ERR_INVALID);
        refuses(&[0xff; 8], REP_ERR_INVALID);
        refuses(&[info_data("vol1", &[]), vec![0]].concat(), REP_ERR_INVALID);
        refuses(&info_data("vol1", &[1])[..10], REP_ERR_INVALID);
        refuses(&info_data("vol1\0", &[]), REP_ERR_INVALID);
        refuses(&info_data(&"v".repeat(STRING_MAX + 1), &[]), REP_ERR_TOO_BIG);
    }
}

/// `NBD_OPT_GO`: the same replies as `NBD_OPT_INFO`, never zeroes behind them, then the transmission phase.
#[test]
fn go_opens() {
    let say = Say::flags(FLAG_C_FIXED_NEWSTYLE).go("vol1", &[INFO_BLOCK_SIZE]).request(0, CMD_FLUSH, 7, 0, 0);
    let mut session = Session::new();
    let mut events = hear(&mut session, &one(), &say);
    assert!(session.is_open() && session.in_flight() == 1);
    assert!(matches!(events.pop(), Some(Event::Request { token, .. }) if token.cookie() == 7));
    assert_eq!(events, opened("vol1"));
    let said = sent(&mut session);
    let mut heard = Heard(&said);
    heard.greeting();
    for (kind, data) in [info_sizes(1, 4096, 32 << 20), info_export(1 << 30, WRITABLE), ack()] {
        assert_eq!(heard.option_reply(OPT_GO), (kind, &data[..]));
    }
    heard.end();
}

/// *Block size constraints*, `NBD_REP_ERR_BLOCK_SIZE_REQD`: who does not ask for unusual sizes can't get in.
#[test]
fn unusual_block_sizes_must_be_asked_for() {
    let strict = Fixed(vec![
        Export { block_size_min: 512, ..Export::new("strict", VolumeId(1), 8192) },
        Export::new("vol1", VolumeId(1), 4096),
    ]);
    for option in [OPT_INFO, OPT_GO] {
        assert_eq!(
            replies(&strict, Say::hello(), option, &info_data("strict", &[INFO_NAME])),
            [info_sizes(512, 4096, 32 << 20), (REP_ERR_BLOCK_SIZE_REQD, Vec::new())]
        );
    }
    let (events, _) = dialogue(&strict, &Say::hello().go("strict", &[INFO_BLOCK_SIZE]));
    assert_eq!(events, opened("strict"));
    let (events, _) = dialogue(&strict, &Say::hello().option(OPT_EXPORT_NAME, b"strict"));
    assert_eq!(events, [Event::Violation(Violation::NoSuchExport("strict".into()))]);
}

/// `NBD_OPT_STRUCTURED_REPLY`: once, without data.
#[test]
fn structured_replies_are_negotiated_once() {
    assert_eq!(replies(&one(), Say::hello(), OPT_STRUCTURED_REPLY, &[]), [ack()]);
    assert_eq!(replies(&one(), Say::hello(), OPT_STRUCTURED_REPLY, &[1]), refused(REP_ERR_INVALID));
    assert_eq!(replies(&one(), Say::hello().structured(), OPT_STRUCTURED_REPLY, &[]), refused(REP_ERR_INVALID));
}

fn context(id: u32) -> (u32, Vec<u8>) {
    (REP_META_CONTEXT, [&id.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat())
}

/// `NBD_OPT_LIST_META_CONTEXT`, *The `base:` metadata namespace*.
#[test]
fn metadata_contexts_are_listed() {
    let list = |queries: &[&str]| {
        replies(&one(), Say::hello().structured(), OPT_LIST_META_CONTEXT, &meta_data("vol1", queries))
    };
    assert_eq!(list(&[]), [context(0), ack()]);
    assert_eq!(list(&["base:"]), [context(0), ack()]);
    assert_eq!(list(&["x-other:thing", "base:allocation", "base:allocation"]), [context(0), ack()]);
    assert_eq!(list(&["base:other", "qemu:", "base:allocation "]), [ack()]);
    assert_eq!(list(&["base"]), refused(REP_ERR_INVALID));
}

/// `NBD_OPT_SET_META_CONTEXT`: no wildcards, and no query selects nothing.
#[test]
fn metadata_contexts_are_selected() {
    let set =
        |queries: &[&str]| replies(&one(), Say::hello().structured(), OPT_SET_META_CONTEXT, &meta_data("", queries));
    assert_eq!(set(&["base:allocation"]), [context(BASE_ALLOCATION_ID), ack()]);
    assert_eq!(set(&["base:allocation", "base:allocation"]), [context(BASE_ALLOCATION_ID), ack()]);
    assert_eq!(set(&[]), [ack()]);
    assert_eq!(set(&["base:", "x-other:thing"]), [ack()]);
}

/// Both metadata options: what is wrong with them.
#[test]
fn metadata_options_refuse() {
    for option in [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
        let good = meta_data("vol1", &["base:allocation"]);
        assert_eq!(replies(&one(), Say::hello(), option, &good), refused(REP_ERR_INVALID));
        let refuses =
            |data: &[u8], kind| assert_eq!(replies(&one(), Say::hello().structured(), option, data), refused(kind));
        refuses(&meta_data("vol2", &[]), REP_ERR_UNKNOWN);
        refuses(&[], REP_ERR_INVALID);
        refuses(&good[..good.len() - 1], REP_ERR_INVALID);
        refuses(&[&good[..], &[0]].concat(), REP_ERR_INVALID);
        // Four thousand million queries are announced, and one is there.
        let mut liar = good.clone();
        liar[8..12].fill(0xff);
        refuses(&liar, REP_ERR_INVALID);
        let long = format!("base:{}", "a".repeat(STRING_MAX));
        refuses(&meta_data("vol1", &[&long]), REP_ERR_TOO_BIG);
    }
}

/// *Option types*: every option reply names its option, in order, however many come at once.
#[test]
fn options_may_come_at_once() {
    let say = Say::hello().structured().option(OPT_LIST, &[]).option(99, &[]).go("vol1", &[]);
    let (events, said) = dialogue(&one(), &say);
    assert_eq!(events, opened("vol1"));
    let mut heard = Heard(&said);
    assert_eq!(heard.option_reply(OPT_STRUCTURED_REPLY).0, REP_ACK);
    assert_eq!(heard.option_reply(OPT_LIST).0, REP_SERVER);
    assert_eq!(heard.option_reply(OPT_LIST).0, REP_ACK);
    assert_eq!(heard.option_reply(99).0, REP_ERR_UNSUP);
    assert_eq!(heard.option_reply(OPT_GO).0, REP_INFO);
    assert_eq!(heard.option_reply(OPT_GO).0, REP_ACK);
    heard.end();
}
