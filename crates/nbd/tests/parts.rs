//! Long requests: given out in parts, answered once.
#![allow(clippy::unwrap_used)]

mod support;

use azekura_nbd::numbers::*;
use azekura_nbd::{Command, ErrorCode, Event, Export, PART_MAX, REQUEST_MAX, ReadPiece, RequestToken, Session};
use bytes::Bytes;
use support::Fixed;
use support::client::{Heard, Say, hear, sent};

const SIZE: u64 = 1 << 40;
const PART: u64 = PART_MAX as u64;

fn exports() -> Fixed {
    Fixed(vec![Export::new("vol1", SIZE)])
}

fn open(say: Say) -> Session {
    let mut session = Session::new();
    let events = hear(&mut session, &exports(), &say.go("vol1", &[]));
    assert_eq!(events, [Event::Opened { name: "vol1".into() }]);
    sent(&mut session);
    session
}

fn requests(session: &mut Session, say: &Say) -> Vec<(RequestToken, Command)> {
    let request = |event| match event {
        Event::Request { token, command } => (token, command),
        other => panic!("not a request: {other:?}"),
    };
    hear(session, &exports(), say).into_iter().map(request).collect()
}

/// What is said in reply, with all of `parts` answered by `answer` in reverse order.
fn answer_backwards(
    session: &mut Session,
    parts: Vec<(RequestToken, Command)>,
    mut answer: impl FnMut(&mut Session, usize, RequestToken, &Command),
) -> Vec<u8> {
    for (index, (token, command)) in parts.into_iter().enumerate().rev() {
        assert!(sent(session).is_empty() || matches!(command, Command::Read { .. }), "answered too early");
        answer(session, index, token, &command);
    }
    assert_eq!(session.in_flight(), 0);
    sent(session)
}

/// A write's parts are page-aligned, end at multiples, follow each other, and carry its flags.
#[test]
fn a_long_write_comes_in_parts() {
    let mut session = open(Say::hello());
    for (offset, length) in [(0, 2 * PART as usize), (5 * PART - 100, 600_001), (SIZE - (32 << 20), REQUEST_MAX as usize)] {
        let data: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
        let parts = requests(&mut session, &Say::nothing().write(CMD_FLAG_FUA, 9, offset, &data));
        let (mut at, mut got) = (offset, Vec::new());
        for (_, command) in &parts {
            let Command::Write { offset, data, fua: true } = command else { panic!("{command:?}") };
            assert_eq!(*offset, at);
            assert_eq!(data.as_ptr().align_offset(4096), 0);
            at += data.len() as u64;
            assert!(data.len() as u64 <= PART && (at % PART == 0 || got.len() + data.len() == length));
            got.extend_from_slice(data);
        }
        assert!(got == data);
        let said = answer_backwards(&mut session, parts, |session, _, token, _| session.reply_done(token));
        let mut heard = Heard(&said);
        assert_eq!(heard.simple(), (9, 0));
        heard.end();
    }
}

/// One failed part fails the request, with the error that came first.
#[test]
fn a_failed_part_fails_the_write() {
    let mut session = open(Say::hello().structured());
    let data = vec![1; 3 * PART as usize];
    let parts = requests(&mut session, &Say::nothing().write(0, 7, 0, &data));
    assert_eq!(parts.len(), 3);
    let said = answer_backwards(&mut session, parts, |session, index, token, _| match index {
        0 => session.reply_error(token, ErrorCode::Io, "second"),
        1 => session.reply_error(token, ErrorCode::NoSpace, "first"),
        _ => session.reply_done(token),
    });
    let mut heard = Heard(&said);
    assert_eq!(heard.error(7), 28);
    heard.end();
}

/// Parts that are answered before the next ones arrive don't end the request.
#[test]
fn early_answers_wait_for_the_rest() {
    let mut session = open(Say::hello());
    let all = Say::nothing().write(0, 7, 0, &vec![1; 2 * PART as usize]);
    let (start, rest) = all.0.split_at(PART as usize + 100);
    let mut first = requests(&mut session, &Say(start.to_vec()));
    session.reply_done(first.pop().unwrap().0);
    assert!(first.is_empty() && sent(&mut session).is_empty());
    let mut second = requests(&mut session, &Say(rest.to_vec()));
    session.reply_done(second.pop().unwrap().0);
    assert_eq!(Heard(&sent(&mut session)).simple(), (7, 0));
}

fn read(flags: u16, offset: u64, length: u32) -> Say {
    Say::nothing().request(flags, CMD_READ, 6, offset, length)
}

/// Each part's data goes out when it is there; the last chunk says that it is the last.
#[test]
fn a_long_read_is_answered_part_by_part() {
    let mut session = open(Say::hello().structured());
    let parts = requests(&mut session, &read(0, PART - 4096, 2 * PART_MAX));
    assert_eq!(parts.len(), 3);
    let mut chunks = Vec::new();
    for (token, command) in parts.into_iter().rev() {
        let Command::Read { offset, length } = command else { panic!("{command:?}") };
        let half = length as usize / 2;
        let data = ReadPiece::Data(Bytes::from(vec![offset as u8 | 1; half]));
        session.reply_read(token, &mut vec![data, ReadPiece::Hole(length - half as u32)]);
        let said = sent(&mut session);
        let mut heard = Heard(&said);
        let (data, hole) = (heard.chunk(), heard.chunk());
        heard.end();
        assert_eq!((data.kind, hole.kind), (REPLY_TYPE_OFFSET_DATA, REPLY_TYPE_OFFSET_HOLE));
        assert_eq!(Heard(data.payload).u64(), offset);
        assert_eq!(data.payload.len(), 8 + half);
        chunks.extend([data.done, hole.done]);
    }
    assert_eq!(chunks, [false, false, false, false, false, true]);
}

/// The error comes last, whichever part it was.
#[test]
fn a_failed_part_fails_the_read() {
    for bad in 0..2 {
        let mut session = open(Say::hello().structured());
        let parts = requests(&mut session, &read(0, 0, 2 * PART_MAX));
        let said = answer_backwards(&mut session, parts, |session, index, token, _| {
            if index == bad {
                session.reply_error(token, ErrorCode::Io, "");
            } else {
                session.reply_read(token, &mut vec![ReadPiece::Hole(PART_MAX)]);
            }
        });
        let mut heard = Heard(&said[said.len() - 26..]);
        assert_eq!(heard.error(6), 5);
        heard.end();
    }
}

/// A simple reply, and one that must not be cut, is one piece.
#[test]
fn reads_that_need_one_answer_stay_whole() {
    for (say, flags) in [(Say::hello(), 0), (Say::hello().structured(), CMD_FLAG_DF)] {
        let mut session = open(say);
        let parts = requests(&mut session, &read(flags, 0, REQUEST_MAX));
        assert_eq!(parts.len(), 1);
    }
}
