//! NBD as a protocol of the front end.

use crate::error::ErrorCode;
use crate::event;
use crate::reply::{Extent, ReadPiece};
use crate::request::{Command, RequestToken};
use crate::session::Session;
use azekura_base::{Inbox, Outbox, Slab};
use azekura_frontend::{Event, Exports, Protocol, Request, StreamProtocol, Tag};
use azekura_gateway::{Outcome, Piece};

/// A client's connection: a metered [`Session`] whose requests have tags.
#[derive(Debug)]
pub struct Connection {
    session: Session,
    /// Requests without an answer, by tag.
    tokens: Slab<RequestToken>,
    /// The pieces of the last read's answer, empty: their memory is used again.
    pieces: Vec<ReadPiece>,
    /// The client has begun TLS, and nobody has been told.
    starts_tls: bool,
}

impl Connection {
    /// A client that has just connected, with a receive buffer of at most so many bytes.
    #[must_use]
    pub fn new(stream_bytes_max: usize) -> Connection {
        Connection::of(Session::metered(), stream_bytes_max)
    }

    /// The same, and nothing is served before TLS has begun: see [`Connection::starts_tls`].
    #[must_use]
    pub fn secured(stream_bytes_max: usize) -> Connection {
        Connection::of(Session::secured(), stream_bytes_max)
    }

    fn of(mut session: Session, stream_bytes_max: usize) -> Connection {
        session.inbox_mut().limit_stream(stream_bytes_max);
        Connection { session, tokens: Slab::default(), pieces: Vec::new(), starts_tls: false }
    }

    /// To be asked when [`Protocol::poll`] has given no event: the client begins TLS when it has what the outbox holds.
    /// Told once. What is received from now on is TLS's; nothing of it is in the inbox yet.
    pub fn starts_tls(&mut self) -> bool {
        std::mem::take(&mut self.starts_tls)
    }

    /// The handshake is over.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.session.is_open()
    }
}

impl Protocol for Connection {
    fn name() -> &'static str {
        "nbd"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        Some(match self.session.poll(exports)? {
            event::Event::Opened { name } => Event::Opened { name },
            event::Event::Wanted { name } => Event::Wanted { name },
            event::Event::Missing { name } => Event::Missing { name },
            event::Event::Request { token, command } => {
                let memory_bytes = token.memory_bytes();
                Event::Request { tag: Tag(self.tokens.insert(token)), memory_bytes, request: request(command) }
            }
            event::Event::StartsTls => {
                self.starts_tls = true;
                return None;
            }
            event::Event::Closed => Event::Closed,
            event::Event::Violation(violation) => Event::Violation(violation.to_string()),
        })
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        let token = self.tokens.remove(tag.0).expect("a request is answered once");
        match outcome {
            Outcome::Done => self.session.reply_done(token),
            Outcome::Read(pieces) => {
                self.pieces.extend(pieces.into_iter().map(|piece| match piece {
                    Piece::Data(bytes) => ReadPiece::Data(bytes),
                    Piece::Zero(len) => ReadPiece::Hole(len as u32),
                }));
                self.session.reply_read(token, &mut self.pieces);
                self.pieces.clear();
            }
            Outcome::Status(runs) => {
                let extent = |(length, data): (u64, bool)| Extent { length, hole: !data, zero: !data };
                let extents: Vec<Extent> = runs.into_iter().map(extent).collect();
                self.session.reply_block_status(token, &extents);
            }
            Outcome::Failed(status) => self.session.reply_error(token, ErrorCode::from(status), &status.to_string()),
        }
    }

    fn wants_room(&self) -> Option<usize> {
        self.session.wants_room().map(|bytes| bytes as usize)
    }

    fn give_room(&mut self) {
        self.session.give_room();
    }
}

impl StreamProtocol for Connection {
    fn inbox_mut(&mut self) -> &mut Inbox {
        self.session.inbox_mut()
    }

    fn outbox_mut(&mut self) -> &mut Outbox {
        self.session.outbox_mut()
    }

    fn wants_bytes(&self) -> bool {
        self.session.wants_bytes()
    }
}

/// A command in the words of the front end. Whether a WRITE_ZEROES may make a hole or is to be fast needs no saying:
/// every volume is thin, and zeros are always fast.
fn request(command: Command) -> Request {
    match command {
        Command::Read { offset, length } => Request::Read { offset, len: u64::from(length) },
        Command::Write { offset, data, .. } => Request::Write { offset, bytes: data },
        Command::Flush => Request::Flush,
        Command::Trim { offset, length, .. } => Request::Trim { offset, len: u64::from(length) },
        Command::WriteZeroes { offset, length, .. } => Request::Zero { offset, len: u64::from(length) },
        Command::BlockStatus { offset, length, .. } => Request::Extents { offset, len: u64::from(length) },
        Command::Cache { offset, length } => Request::Cache { offset, len: u64::from(length) },
    }
}
