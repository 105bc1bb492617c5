//! Hostile bytes, and honest bytes cut anywhere.
#![allow(clippy::unwrap_used)]

use crate::support::Fixed;
use crate::support::client::{Say, feed, info_data, meta_data, sent};
use azekura_base::VolumeId;
use azekura_frontend::{Export, Verbs};
use azekura_nbd::numbers::*;
use azekura_nbd::{Command, ErrorCode, Event, Extent, LIST_REPLY_MAX, OUTBOX_MAX, ReadPiece, Session};
use bytes::Bytes;
use proptest::prelude::*;

const SIZE: u64 = 1 << 20;

fn exports() -> Fixed {
    Fixed(vec![
        Export::new("vol1", VolumeId(1), SIZE),
        Export { verbs: Verbs::READ_ONLY, ..Export::new("frozen", VolumeId(1), SIZE) },
    ])
}

/// What a session did with a stream: its events as text, and all its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    events: Vec<String>,
    said: Vec<u8>,
}

/// Answers a request, in a way that depends on nothing but the request.
fn answer(session: &mut Session, event: Event) {
    let Event::Request { token, command } = event else { return };
    match (token.cookie() % 4, command) {
        (0, _) => session.reply_error(token, ErrorCode::Io, "unreadable"),
        (_, Command::Read { offset, length }) => {
            let hole = (offset as u32) % length;
            let mut pieces =
                vec![ReadPiece::Hole(hole), ReadPiece::Data(Bytes::from(vec![7; (length - hole) as usize]))];
            session.reply_read(token, &mut pieces);
        }
        (_, Command::BlockStatus { offset, .. }) => {
            let extents = [
                Extent { length: offset, hole: false, zero: false },
                Extent { length: u64::MAX, hole: true, zero: true },
            ];
            session.reply_block_status(token, &extents);
        }
        _ => session.reply_done(token),
    }
}

/// Drives a session over `stream`, received in pieces of the given sizes, to the stream's or the session's end.
fn course(stream: &[u8], cuts: &[usize]) -> Course {
    let exports = exports();
    let mut session = Session::new();
    let (mut events, mut said) = (Vec::new(), Vec::new());
    let mut stream = stream;
    let mut cuts = cuts.iter().cycle();
    loop {
        while let Some(event) = session.poll(&exports) {
            assert!(!session.wants_bytes());
            events.push(format!("{event:?}"));
            answer(&mut session, event);
            assert_eq!(session.in_flight(), 0);
        }
        let waiting = session.outbox_mut().len();
        assert!(waiting <= OUTBOX_MAX + LIST_REPLY_MAX, "{waiting} bytes wait to be sent");
        said.extend(sent(&mut session));
        if stream.is_empty() || !session.wants_bytes() {
            return Course { events, said };
        }
        let before = stream.len();
        feed(&mut session, &mut stream, *cuts.next().unwrap());
        assert!(stream.len() < before, "a session that wants bytes has room for them");
    }
}

fn flags() -> impl Strategy<Value = u16> {
    prop_oneof![4 => Just(0), 2 => Just(CMD_FLAG_FUA), 2 => 0u16..32, 1 => any::<u16>()]
}

/// Mostly inside the export.
fn range() -> impl Strategy<Value = (u64, u32)> {
    prop_oneof![
        6 => (0..SIZE, 0u32..40_000).prop_map(|(offset, length)| (offset, length.min((SIZE - offset) as u32))),
        1 => (any::<u64>(), 0u32..40_000),
        1 => (0..SIZE, 0u32..2_000_000),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("vol1".to_owned()), 1 => Just("frozen".to_owned()), 1 => Just(String::new()), 1 => ".{0,9}"]
}

/// Options that leave the handshake open, well-formed and not.
fn option() -> impl Strategy<Value = Say> {
    let query = prop_oneof![Just("base:allocation".to_owned()), Just("base:".to_owned()), ".{0,20}"];
    let meta = (name(), proptest::collection::vec(query, 0..4)).prop_map(|(name, queries)| {
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        meta_data(&name, &queries)
    });
    let info = (name(), proptest::collection::vec(0u16..6, 0..6)).prop_map(|(name, infos)| info_data(&name, &infos));
    prop_oneof![
        Just(Say::nothing().option(OPT_LIST, &[])),
        Just(Say::nothing().structured()),
        Just(Say::nothing().option(OPT_STARTTLS, &[])),
        info.prop_map(|data| Say::nothing().option(OPT_INFO, &data)),
        (any::<bool>(), meta).prop_map(|(list, data)| {
            Say::nothing().option(if list { OPT_LIST_META_CONTEXT } else { OPT_SET_META_CONTEXT }, &data)
        }),
        (3u32..14, proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(option, data)| Say::nothing().option(option, &data)),
        (8u32..14, 60_000usize..140_000).prop_map(|(option, length)| Say::nothing().option(option, &vec![1; length])),
    ]
}

fn request() -> impl Strategy<Value = Say> {
    (flags(), 0u16..9, any::<u64>(), range()).prop_map(|(flags, command, cookie, (offset, length))| match command {
        CMD_WRITE => {
            let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
            Say::nothing().write(flags, cookie, offset, &data)
        }
        CMD_DISC => Say::nothing().request(0, CMD_FLUSH, cookie, 0, 0),
        _ => Say::nothing().request(flags, command, cookie, offset, length),
    })
}

/// A whole dialogue of a client that breaks no rule badly enough to be thrown out.
fn dialogue() -> impl Strategy<Value = Vec<u8>> {
    (proptest::collection::vec(option(), 0..6), 0usize..3, proptest::collection::vec(request(), 0..12), any::<bool>())
        .prop_map(|(options, opening, requests, goodbye)| {
            let say = options.iter().fold(Say::hello(), |say, option| say.raw(&option.0));
            let say = match opening {
                0 => say.option(OPT_EXPORT_NAME, b"vol1"),
                1 => say.go("vol1", &[INFO_BLOCK_SIZE]),
                _ => say.go("frozen", &[]),
            };
            let say = requests.iter().fold(say, |say, request| say.raw(&request.0));
            let say = if goodbye { say.request(0, CMD_DISC, 0, 0, 0) } else { say };
            say.0
        })
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    let cut = prop_oneof![1usize..9, 1usize..300, 1usize..40_000];
    proptest::collection::vec(cut, 1..12)
}

proptest! {
    /// An honest dialogue has the same course however it is cut up on its way.
    #[test]
    fn cuts_change_nothing(stream in dialogue(), cuts in cuts()) {
        let whole = course(&stream, &[usize::MAX]);
        prop_assert!(whole.events.first().is_some_and(|event| event.starts_with("Opened")), "{:?}", whole.events);
        prop_assert!(!whole.events.iter().any(|event| event.starts_with("Violation")), "{:?}", whole.events);
        let cut = course(&stream, &cuts);
        prop_assert!(whole.events == cut.events);
        prop_assert!(whole.said == cut.said);
    }

    /// A dialogue damaged anywhere neither panics nor makes the session hold more than it may.
    #[test]
    fn damage_is_survived(
        stream in dialogue(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cuts in cuts(),
    ) {
        let mut stream = stream;
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        course(&stream, &cuts);
    }

    /// So do any bytes at all, alone and behind a good beginning.
    #[test]
    fn any_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        beginning in 0usize..4,
        cuts in cuts(),
    ) {
        let beginning = match beginning {
            0 => Say::nothing(),
            1 => Say::hello(),
            2 => Say::hello().raw(&IHAVEOPT.to_be_bytes()),
            _ => Say::hello().structured().go("vol1", &[]).raw(&REQUEST_MAGIC.to_be_bytes()),
        };
        course(&beginning.raw(&bytes).0, &cuts);
    }
}
