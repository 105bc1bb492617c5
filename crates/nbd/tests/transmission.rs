//! The transmission phase, command by command. Section names are those of the NBD protocol document.
#![allow(clippy::unwrap_used)]

use crate::support::client::{Heard, ReplyChunk, Say, feed, hear, meta_data, sent};
use crate::support::{Export, Fixed, VolumeId};
use azekura_frontend::{Verb, Verbs};
use azekura_nbd::numbers::*;
use azekura_nbd::{
    Command, EXTENTS_MAX, ErrorCode, Event, Extent, OUTBOX_MAX, REQUEST_MAX, ReadPiece, RequestToken, STRING_MAX,
    Session, Violation,
};
use bytes::Bytes;
use proptest::prelude::*;

const SIZE: u64 = 1 << 40;

fn exports() -> Fixed {
    let frozen = Export { verbs: Verbs::READ_ONLY, ..Export::new("frozen", VolumeId(1), SIZE) };
    let sectors = Export {
        block_size_min: 512,
        block_size_preferred: 512,
        block_size_max: 1 << 20,
        ..Export::new("sectors", VolumeId(1), SIZE)
    };
    let few = Verbs::of(&[Verb::Read, Verb::Write, Verb::Flush]);
    let plain = Export { verbs: few, ..Export::new("plain", VolumeId(1), SIZE) };
    let odd = Export::new("odd", VolumeId(1), 10_001);
    Fixed(vec![Export::new("vol1", VolumeId(1), SIZE), frozen, sectors, odd, plain])
}

/// A session in the transmission phase on an export, with nothing left to send.
struct Open {
    session: Session,
    exports: Fixed,
}

impl Open {
    fn with(name: &str, say: Say) -> Open {
        let mut session = Session::new();
        let exports = exports();
        let events = hear(&mut session, &exports, &say.go(name, &[INFO_BLOCK_SIZE]));
        assert_eq!(events, [Event::Opened { name: name.into() }]);
        sent(&mut session);
        Open { session, exports }
    }

    /// With simple replies.
    fn simple(name: &str) -> Open {
        Open::with(name, Say::hello())
    }

    /// With structured replies and `base:allocation`.
    fn structured(name: &str) -> Open {
        let meta = meta_data(name, &["base:allocation"]);
        Open::with(name, Say::hello().structured().option(OPT_SET_META_CONTEXT, &meta))
    }

    /// The only event of one request.
    fn request(&mut self, say: Say) -> (RequestToken, Command) {
        let mut events = hear(&mut self.session, &self.exports, &say);
        match (events.pop(), events.len()) {
            (Some(Event::Request { token, command }), 0) => (token, command),
            other => panic!("not one request: {other:?}"),
        }
    }

    /// The command of one request, which is accepted and left unanswered.
    fn accepts(&mut self, say: Say) -> Command {
        self.request(say).1
    }

    /// What is said in reply to requests that the session answers by itself.
    fn unasked(&mut self, say: Say) -> Vec<u8> {
        assert!(hear(&mut self.session, &self.exports, &say).is_empty());
        sent(&mut self.session)
    }

    /// The error by which a request is refused, with structured and simple replies alike.
    fn refused(name: &str, flags: u16, command: u16, offset: u64, length: u32) -> u32 {
        let payload = if command == CMD_WRITE { vec![0xee; length as usize] } else { Vec::new() };
        // A flush behind it shows that the session goes on, and at the right byte.
        let say =
            Say::nothing().request(flags, command, 1, offset, length).raw(&payload).request(0, CMD_FLUSH, 2, 0, 0);
        let mut structured = Open::structured(name);
        let (token, _) = structured.request(say.clone());
        structured.session.reply_done(token);
        let said = sent(&mut structured.session);
        let mut heard = Heard(&said);
        let error = heard.error(1);
        assert_eq!(heard.simple(), (2, 0));
        heard.end();
        if flags & CMD_FLAG_DF == 0 && command != CMD_BLOCK_STATUS {
            let mut simple = Open::simple(name);
            let (token, _) = simple.request(say);
            simple.session.reply_done(token);
            let said = sent(&mut simple.session);
            let mut heard = Heard(&said);
            assert_eq!(heard.simple(), (1, error));
            assert_eq!(heard.simple(), (2, 0));
            heard.end();
        }
        error
    }
}

fn say(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Say {
    Say::nothing().request(flags, command, cookie, offset, length)
}

/// *Request types*: each command arrives with its fields and flags, FUA allowed on all.
#[test]
fn commands_arrive() {
    let mut open = Open::structured("vol1");
    let mut expect = |flags, command, expected: Command| {
        let (token, got) = open.request(say(flags, command, u64::MAX, 4097, 513));
        assert_eq!((got, token.cookie()), (expected, u64::MAX));
    };
    let (offset, length) = (4097, 513);
    for fua in [false, true] {
        let flag = if fua { CMD_FLAG_FUA } else { 0 };
        expect(flag, CMD_READ, Command::Read { offset, length });
        expect(flag | CMD_FLAG_DF, CMD_READ, Command::Read { offset, length });
        expect(flag, CMD_TRIM, Command::Trim { offset, length, fua });
        expect(flag, CMD_CACHE, Command::Cache { offset, length });
        expect(flag, CMD_BLOCK_STATUS, Command::BlockStatus { offset, length, one: false });
        expect(flag | CMD_FLAG_REQ_ONE, CMD_BLOCK_STATUS, Command::BlockStatus { offset, length, one: true });
        for (no_hole, fast) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut flags = flag | if no_hole { CMD_FLAG_NO_HOLE } else { 0 };
            flags |= if fast { CMD_FLAG_FAST_ZERO } else { 0 };
            expect(flags, CMD_WRITE_ZEROES, Command::WriteZeroes { offset, length, no_hole, fast, fua });
        }
        assert_eq!(Open::simple("vol1").accepts(say(flag, CMD_FLUSH, 3, 0, 0)), Command::Flush);
    }
}

/// `NBD_CMD_WRITE`: the payload comes page-aligned, of any length and at any offset up to the export's last byte.
#[test]
fn writes_arrive_with_their_data() {
    let mut open = Open::simple("vol1");
    for (i, length) in [1, 511, 4096, 4097, 65_536, 300_001, REQUEST_MAX as usize].into_iter().enumerate() {
        let data: Vec<u8> = (0..length).map(|at| (at * 31 + i) as u8).collect();
        let fua = i % 2 == 0;
        let flags = if fua { CMD_FLAG_FUA } else { 0 };
        let offset = SIZE - length as u64;
        let (token, command) = open.request(Say::nothing().write(flags, 9, offset, &data));
        let Command::Write { data: got, .. } = &command else { panic!("{command:?}") };
        assert_eq!(got.as_ptr().align_offset(4096), 0);
        assert!(command == Command::Write { offset, data: data.into(), fua });
        open.session.reply_done(token);
        let said = sent(&mut open.session);
        let mut heard = Heard(&said);
        assert_eq!(heard.simple(), (9, 0));
        heard.end();
    }
}

/// *Error values*: what lies behind the end of the export.
#[test]
fn behind_the_end_is_refused() {
    for (offset, length) in [(10_001, 1), (10_000, 2), (0, 10_002), (u64::MAX, 1), (u64::MAX - 9, 20)] {
        for command in [CMD_READ, CMD_TRIM, CMD_CACHE, CMD_BLOCK_STATUS] {
            assert_eq!(Open::refused("odd", 0, command, offset, length), ErrorCode::Invalid as u32);
        }
        for command in [CMD_WRITE, CMD_WRITE_ZEROES] {
            assert_eq!(Open::refused("odd", 0, command, offset, length), ErrorCode::NoSpace as u32);
        }
    }
    Open::simple("odd").accepts(say(0, CMD_READ, 1, 10_000, 1));
    Open::simple("odd").accepts(say(0, CMD_READ, 1, 0, 10_001));
}

/// *Error values*: nothing that writes gets at a read-only export.
#[test]
fn read_only_exports_are_not_written() {
    for command in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
        assert_eq!(Open::refused("frozen", 0, command, 0, 4096), ErrorCode::NotPermitted as u32);
    }
    assert_eq!(Open::simple("frozen").accepts(say(0, CMD_READ, 1, 0, 4096)), Command::Read { offset: 0, length: 4096 });
}

/// *Transmission flags*: what an export does not offer is refused, and is no mistake that ends the connection.
#[test]
fn commands_that_an_export_does_not_offer_are_refused() {
    for command in [CMD_TRIM, CMD_WRITE_ZEROES, CMD_CACHE, CMD_BLOCK_STATUS] {
        assert_eq!(Open::refused("plain", 0, command, 0, 4096), ErrorCode::Invalid as u32, "{command}");
    }
    assert_eq!(Open::simple("plain").accepts(say(0, CMD_READ, 1, 0, 4096)), Command::Read { offset: 0, length: 4096 });
}

/// *Block size constraints*: the largest block size bounds READ and WRITE, whose payload is skipped.
#[test]
fn long_requests_are_refused() {
    for (export, max) in [("vol1", REQUEST_MAX), ("sectors", 1 << 20)] {
        let over = max + 512;
        assert_eq!(Open::refused(export, 0, CMD_READ, 0, over), ErrorCode::Invalid as u32);
        assert_eq!(Open::refused(export, 0, CMD_READ, 0, u32::MAX - 511), ErrorCode::Invalid as u32);
        assert_eq!(Open::refused(export, 0, CMD_WRITE, 0, over), ErrorCode::Invalid as u32);
        Open::simple(export).accepts(say(0, CMD_READ, 1, 0, max));
        // What carries no payload may be longer.
        for command in [CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES, CMD_BLOCK_STATUS] {
            Open::structured(export).accepts(say(0, command, 1, 512, u32::MAX - 511));
        }
    }
}

/// *Block size constraints*: the smallest block size.
#[test]
fn misaligned_requests_are_refused() {
    for (offset, length) in [(1, 512), (512, 511), (256, 256)] {
        for command in [CMD_READ, CMD_WRITE, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES, CMD_BLOCK_STATUS] {
            assert_eq!(Open::refused("sectors", 0, command, offset, length), ErrorCode::Invalid as u32);
        }
    }
}

/// *Error values*: unknown commands, unknown flags, and flags of other commands.
#[test]
fn unknown_commands_and_flags_are_refused() {
    for command in [8, 9, 1000, u16::MAX] {
        assert_eq!(Open::refused("vol1", 0, command, 0, 4096), ErrorCode::Invalid as u32);
    }
    let allowed = [
        (CMD_READ, CMD_FLAG_DF),
        (CMD_WRITE, 0),
        (CMD_FLUSH, 0),
        (CMD_TRIM, 0),
        (CMD_CACHE, 0),
        (CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO),
        (CMD_BLOCK_STATUS, CMD_FLAG_REQ_ONE),
    ];
    for (command, flags) in allowed {
        let length = if command == CMD_FLUSH { 0 } else { 4096 };
        for bit in (1..16).map(|bit| 1 << bit).filter(|bit| bit & flags == 0) {
            assert_eq!(Open::refused("vol1", bit, command, 0, length), ErrorCode::Invalid as u32);
        }
    }
    // DF needs structured replies.
    let said = Open::simple("vol1").unasked(say(CMD_FLAG_DF, CMD_READ, 5, 0, 4096));
    assert_eq!(Heard(&said).simple(), (5, ErrorCode::Invalid as u32));
}

/// `NBD_CMD_FLUSH`: offset and length must be zero.
#[test]
fn a_flush_has_no_range() {
    assert_eq!(Open::refused("vol1", 0, CMD_FLUSH, 1, 0), ErrorCode::Invalid as u32);
    assert_eq!(Open::refused("vol1", 0, CMD_FLUSH, 0, 1), ErrorCode::Invalid as u32);
}

/// *Request types*: a length of zero is unspecified, but must not end the connection.
#[test]
fn empty_requests_do_nothing() {
    let mut open = Open::structured("vol1");
    let said = open.unasked(say(0, CMD_READ, 1, 0, 0));
    let mut heard = Heard(&said);
    assert_eq!(heard.chunk(), ReplyChunk { done: true, kind: REPLY_TYPE_NONE, cookie: 1, payload: &[] });
    heard.end();
    let said = open.unasked(say(0, CMD_BLOCK_STATUS, 2, 0, 0));
    assert_eq!(Heard(&said).error(2), ErrorCode::Invalid as u32);
    for command in [CMD_WRITE, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES] {
        let said = open.unasked(say(CMD_FLAG_FUA, command, 3, SIZE, 0));
        let mut heard = Heard(&said);
        assert_eq!(heard.simple(), (3, 0));
        heard.end();
    }
    let said = Open::simple("vol1").unasked(say(0, CMD_READ, 1, 0, 0));
    assert_eq!(Heard(&said).simple(), (1, 0));
}

/// *Terminating the transmission phase*: a goodbye leaves what is in flight to be answered, and ends all reading.
#[test]
fn disconnect_lets_requests_finish() {
    let mut open = Open::simple("vol1");
    let (token, _) = open.request(say(0, CMD_FLUSH, 1, 0, 0));
    let goodbye = say(0, CMD_DISC, 0, 0, 0).request(0, CMD_FLUSH, 2, 0, 0);
    assert_eq!(hear(&mut open.session, &open.exports, &goodbye), [Event::Closed]);
    assert!(!open.session.is_open() && !open.session.wants_bytes() && open.session.in_flight() == 1);
    assert_eq!(open.session.poll(&open.exports), None);
    open.session.reply_done(token);
    let said = sent(&mut open.session);
    let mut heard = Heard(&said);
    assert_eq!(heard.simple(), (1, 0));
    heard.end();
    assert_eq!(open.session.in_flight(), 0);
}

/// *Request message*: without the magic number there is no knowing what follows.
#[test]
fn request_without_magic_ends_the_connection() {
    let mut open = Open::simple("vol1");
    let events = hear(&mut open.session, &open.exports, &Say::nothing().raw(&[0x25; 28]));
    assert_eq!(events, [Event::Violation(Violation::RequestMagic(0x2525_2525))]);
    assert_eq!(open.session.poll(&open.exports), None);
    assert!(!open.session.wants_bytes());
}

/// *Transmission*: replies may come in any order.
#[test]
fn replies_in_any_order() {
    let mut open = Open::simple("vol1");
    let requests = say(0, CMD_TRIM, 1, 0, 1).request(0, CMD_READ, 2, 0, 3).request(0, CMD_FLUSH, 2, 0, 0);
    let events = hear(&mut open.session, &open.exports, &requests);
    let mut tokens: Vec<RequestToken> = events
        .into_iter()
        .map(|event| match event {
            Event::Request { token, .. } => token,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(open.session.in_flight(), 3);
    open.session.reply_error(tokens.pop().unwrap(), ErrorCode::Io, "the disk burns");
    let mut pieces = vec![ReadPiece::Hole(1), ReadPiece::Data(Bytes::from_static(b"ab"))];
    open.session.reply_read(tokens.pop().unwrap(), &mut pieces);
    open.session.reply_done(tokens.pop().unwrap());
    assert!(pieces.is_empty());
    let said = sent(&mut open.session);
    let mut heard = Heard(&said);
    assert_eq!(heard.simple(), (2, ErrorCode::Io as u32));
    assert_eq!(heard.simple(), (2, 0));
    assert_eq!(heard.bytes(3), b"\0ab");
    assert_eq!(heard.simple(), (1, 0));
    heard.end();
}

/// `NBD_REPLY_TYPE_ERROR`: a failed READ has an error chunk and nothing else; messages are cut to what a string may be.
#[test]
fn errors_carry_a_message() {
    let mut open = Open::structured("vol1");
    for (message, length) in [("", 0), ("no copy answers", 15), (&"é".repeat(STRING_MAX)[..], STRING_MAX)] {
        let (token, _) = open.request(say(0, CMD_READ, 1, 0, 4096));
        open.session.reply_error(token, ErrorCode::Shutdown, message);
        let said = sent(&mut open.session);
        let mut heard = Heard(&said);
        let chunk = heard.chunk();
        heard.end();
        assert_eq!(chunk.payload[..4], [0, 0, 0, 108]);
        assert_eq!(chunk.payload[4..6], (length as u16).to_be_bytes());
        assert_eq!(chunk.payload[6..], message.as_bytes()[..length]);
    }
}

/// READ data goes out by reference, in both kinds of replies.
#[test]
fn read_data_is_not_copied() {
    for mut open in [Open::simple("vol1"), Open::structured("vol1")] {
        let data = Bytes::from(vec![7; 4096]);
        let (token, _) = open.request(say(0, CMD_READ, 1, 0, 4096));
        open.session.reply_read(token, &mut vec![ReadPiece::Data(data.clone())]);
        let mut pieces = Vec::new();
        open.session.outbox_mut().take(&mut pieces, 8, usize::MAX);
        assert_eq!(pieces.len(), 2, "a header and the data");
        assert_eq!(pieces[1].as_ptr(), data.as_ptr());
    }
}

/// The descriptors of one BLOCK_STATUS reply.
fn descriptors(flags: u16, length: u32, extents: &[Extent]) -> Vec<(u32, u32)> {
    let mut open = Open::structured("vol1");
    let (token, _) = open.request(say(flags, CMD_BLOCK_STATUS, 4, 1000, length));
    open.session.reply_block_status(token, extents);
    let said = sent(&mut open.session);
    let mut heard = Heard(&said);
    let chunk = heard.chunk();
    heard.end();
    assert_eq!((chunk.kind, chunk.cookie, chunk.done), (REPLY_TYPE_BLOCK_STATUS, 4, true));
    let mut payload = Heard(chunk.payload);
    assert_eq!(payload.u32(), BASE_ALLOCATION_ID);
    let mut descriptors = Vec::new();
    while !payload.0.is_empty() {
        descriptors.push((payload.u32(), payload.u32()));
    }
    descriptors
}

fn extent(length: u64, hole: bool, zero: bool) -> Extent {
    Extent { length, hole, zero }
}

/// `NBD_CMD_BLOCK_STATUS`: neighbours are joined, nothing reaches behind the request, `REQ_ONE` gets one.
#[test]
fn block_status_describes_extents() {
    let mixed = [
        extent(100, false, false),
        extent(0, true, true),
        extent(50, false, false),
        extent(1000, true, true),
        extent(7, false, true),
        extent(u64::MAX, true, false),
    ];
    let all = [(150, 0), (1000, STATE_HOLE | STATE_ZERO), (7, STATE_ZERO), (843, STATE_HOLE)];
    assert_eq!(descriptors(0, 2000, &mixed), all);
    assert_eq!(descriptors(0, 151, &mixed), [(150, 0), (1, STATE_HOLE | STATE_ZERO)]);
    assert_eq!(descriptors(CMD_FLAG_REQ_ONE, 2000, &mixed), [(150, 0)]);
    assert_eq!(descriptors(CMD_FLAG_REQ_ONE, 120, &mixed), [(120, 0)]);
    assert_eq!(descriptors(0, u32::MAX, &mixed[5..]), [(u32::MAX, STATE_HOLE)]);
    // Nothing known: allocated, unknown contents.
    assert_eq!(descriptors(0, 2000, &[]), [(2000, 0)]);
    let checkers: Vec<Extent> = (0..2 * EXTENTS_MAX as u64).map(|i| extent(1, i % 2 == 0, false)).collect();
    assert_eq!(descriptors(0, u32::MAX, &checkers).len(), EXTENTS_MAX);
}

/// `NBD_OPT_SET_META_CONTEXT`: only counts for the export that it named, and only when it was last and successful.
#[test]
fn block_status_needs_a_context() {
    let good = meta_data("vol1", &["base:allocation"]);
    let set = |data: &[u8]| Say::hello().structured().option(OPT_SET_META_CONTEXT, data);
    let cases = [
        Say::hello(),
        Say::hello().structured(),
        Say::hello().structured().option(OPT_LIST_META_CONTEXT, &good),
        set(&meta_data("odd", &["base:allocation"])),
        set(&good).option(OPT_SET_META_CONTEXT, &meta_data("vol1", &[])),
        set(&good).option(OPT_SET_META_CONTEXT, &[]),
        set(&good).option(OPT_SET_META_CONTEXT, &[0; 100_000]),
    ];
    for case in cases {
        let mut open = Open::with("vol1", case);
        let said = open.unasked(say(0, CMD_BLOCK_STATUS, 1, 0, 4096));
        let error = match said[..4] == SIMPLE_REPLY_MAGIC.to_be_bytes() {
            true => Heard(&said).simple().1,
            false => Heard(&said).error(1),
        };
        assert_eq!(error, ErrorCode::Invalid as u32);
    }
    Open::with("vol1", set(&good)).accepts(say(0, CMD_BLOCK_STATUS, 1, 0, 4096));
}

/// A client that asks for nonsense and never reads gets no more than the outbox may hold; when it reads, it goes on.
#[test]
fn unread_replies_stop_the_input() {
    let mut open = Open::structured("vol1");
    let nonsense = (0..8000).fold(Say::nothing(), |all, cookie| all.request(0, 999, cookie, 0, 0));
    let mut fed = 0;
    while open.session.wants_bytes() {
        let mut stream = &nonsense.0[..];
        while !stream.is_empty() && open.session.wants_bytes() {
            let before = stream.len();
            feed(&mut open.session, &mut stream, usize::MAX);
            fed += before - stream.len();
            assert_eq!(open.session.poll(&open.exports), None);
        }
        assert!(fed < 4 * OUTBOX_MAX, "the input is never stopped");
    }
    assert!(open.session.is_stalled());
    let waiting = open.session.outbox_mut().len();
    assert!(waiting > OUTBOX_MAX && waiting < OUTBOX_MAX + 100, "{waiting}");
    let mut said = sent(&mut open.session);
    assert_eq!(open.session.poll(&open.exports), None);
    assert!(open.session.wants_bytes() && !open.session.is_stalled());
    said.extend(sent(&mut open.session));
    let mut heard = Heard(&said);
    for request in 0..fed / 28 {
        assert_eq!(heard.error(request as u64 % 8000), ErrorCode::Invalid as u32);
    }
    heard.end();
}

/// The inbox is not looked at while its owner receives into it.
#[test]
fn nothing_happens_during_a_receive() {
    let mut open = Open::simple("vol1");
    let mut stream = &say(0, CMD_FLUSH, 1, 0, 0).0[..];
    feed(&mut open.session, &mut stream, usize::MAX);
    let fill = open.session.inbox_mut().take_fill();
    assert_eq!(open.session.poll(&open.exports), None);
    assert!(!open.session.wants_bytes());
    open.session.inbox_mut().filled(fill, 0);
    assert!(matches!(open.session.poll(&open.exports), Some(Event::Request { .. })));
    assert!(!open.session.wants_bytes(), "there may be more to poll");
    assert_eq!(open.session.poll(&open.exports), None);
    assert!(open.session.wants_bytes());
}

/// Not even when a payload is waited for, of which a part has arrived.
#[test]
fn nothing_happens_during_a_receive_of_a_payload() {
    let mut open = Open::simple("vol1");
    let data: Vec<u8> = (0..20_000).map(|at| (at / 7) as u8).collect();
    let write = Say::nothing().write(0, 1, 0, &data).0;
    let (mut now, mut later) = write.split_at(3_000);
    feed(&mut open.session, &mut now, usize::MAX);
    assert_eq!(open.session.poll(&open.exports), None);
    let mut fill = open.session.inbox_mut().take_fill();
    assert_eq!(open.session.poll(&open.exports), None);
    fill.buf[fill.at..fill.at + 1].copy_from_slice(&later[..1]);
    later = &later[1..];
    open.session.inbox_mut().filled(fill, 1);
    let mut event = open.session.poll(&open.exports);
    while !later.is_empty() {
        assert_eq!(event, None);
        feed(&mut open.session, &mut later, usize::MAX);
        event = open.session.poll(&open.exports);
    }
    let Some(Event::Request { command, .. }) = event else { panic!("the write is there") };
    assert!(command == Command::Write { offset: 0, data: data.into(), fua: false });
}

/// A refused write of 4 GiB is taken in without being kept.
#[test]
fn refused_payloads_are_not_kept() {
    let mut open = Open::simple("vol1");
    assert!(open.unasked(say(0, CMD_WRITE, 1, 0, u32::MAX)).is_empty());
    let mut left = u64::from(u32::MAX);
    // The bytes themselves don't matter: receiving is only announced.
    while left > 0 {
        assert!(open.session.wants_bytes());
        let fill = open.session.inbox_mut().take_fill();
        assert!(fill.buf.len() <= 1 << 20);
        let count = (fill.buf.len() - fill.at).min(left as usize);
        open.session.inbox_mut().filled(fill, count);
        left -= count as u64;
        assert_eq!(open.session.poll(&open.exports), None);
    }
    let said = sent(&mut open.session);
    assert_eq!(Heard(&said).simple(), (1, ErrorCode::Invalid as u32));
    assert_eq!(open.accepts(say(0, CMD_FLUSH, 2, 0, 0)), Command::Flush);
}

fn piece() -> impl Strategy<Value = ReadPiece> {
    prop_oneof![
        proptest::collection::vec(1u8.., 0..2000).prop_map(|data| ReadPiece::Data(data.into())),
        (0u32..70_000).prop_map(ReadPiece::Hole),
        any::<bool>().prop_map(|hole| if hole { ReadPiece::Hole(0) } else { ReadPiece::Data(Bytes::new()) }),
    ]
}

proptest! {
    /// `NBD_CMD_READ`: however the data is cut into pieces, the client gets it all, once, in well-formed chunks.
    #[test]
    fn read_replies_hold_the_data(
        mut pieces in proptest::collection::vec(piece(), 1..12),
        offset in 0..SIZE / 2,
        whole: bool,
        simple: bool,
    ) {
        let expected: Vec<u8> = pieces.iter().flat_map(|piece| match piece {
            ReadPiece::Data(data) => data.to_vec(),
            ReadPiece::Hole(length) => vec![0; *length as usize],
        }).collect();
        prop_assume!(!expected.is_empty());
        let mut open = if simple { Open::simple("vol1") } else { Open::structured("vol1") };
        let flags = if whole && !simple { CMD_FLAG_DF } else { 0 };
        let (token, _) = open.request(say(flags, CMD_READ, 6, offset, expected.len() as u32));
        open.session.reply_read(token, &mut pieces);
        let said = sent(&mut open.session);
        let mut heard = Heard(&said);
        if simple {
            prop_assert_eq!(heard.simple(), (6, 0));
            prop_assert!(heard.bytes(expected.len()) == &expected[..]);
        } else {
            let mut got = Vec::new();
            let mut last = None;
            loop {
                let chunk = heard.chunk();
                prop_assert_eq!(chunk.cookie, 6);
                prop_assert!(last != Some(chunk.kind), "runs of the same kind belong together");
                last = Some(chunk.kind);
                let mut payload = Heard(chunk.payload);
                prop_assert_eq!(payload.u64(), offset + got.len() as u64);
                match chunk.kind {
                    REPLY_TYPE_OFFSET_DATA => got.extend_from_slice(payload.0),
                    REPLY_TYPE_OFFSET_HOLE => got.resize(got.len() + payload.u32() as usize, 0),
                    other => prop_assert!(false, "chunk of type {}", other),
                }
                prop_assert!(chunk.payload.len() > 8);
                if chunk.done {
                    break;
                }
                prop_assert!(!whole, "a reply that must not be cut was cut");
            }
            prop_assert!(got == expected);
        }
        heard.end();
    }
}
