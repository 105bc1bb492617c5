//! One connection: where it is in the protocol, and the events and replies that move it on.

use crate::error::ErrorCode;
use crate::event::Event;
use crate::handshake::Handshake;
use crate::numbers::{CMD_DISC, REQUEST_MAGIC};
use crate::reply::{self, Extent, ReadPiece};
use crate::request::{Answer, Header, Opened, Refusal, RequestToken};
use crate::step::Step;
use crate::violation::Violation;
use crate::{HANDSHAKE_OUTBOX_MAX, OUTBOX_MAX, STRING_MAX};
use azekura_base::{Inbox, Outbox};
use azekura_frontend::Exports;
use bytes::Bytes;

/// Where the connection is.
#[derive(Debug)]
enum Phase {
    /// Options are being haggled over.
    Handshake(Handshake),
    /// Between requests.
    Request(Opened),
    /// Before the payload of a write.
    Payload(Opened, Header),
    /// Inside the payload of a write that has been refused.
    Skip { opened: Opened, cookie: u64, left: u32, refusal: Refusal },
    /// After the last event.
    Over,
}

/// The server's side of one connection.
///
/// # How it is driven
///
/// As the crate's description says: bytes in, [`Session::poll`] until there is no event, replies, bytes out. A
/// [metered](Session::metered) session also stops before a request that it has no memory for: its owner sees what
/// [`Session::wants_room`], and polls again after [`Session::give_room`].
///
/// # States
///
/// ```text
///   handshake ──► handshake                      an option is answered, or an export waited for
///             └─► request                        an export is opened
///   request   ──► payload ──► request            a write: given out when its payload is here
///             ├─► skip ─────► request            a refused write: answered when its payload has gone by
///             └─► request                        any other: given out, or refused, at once
///   handshake, request ──► over                  the client said goodbye, or broke the protocol
/// ```
///
/// Replies are no states: requests that were given out are answered in any order, also while the next one comes in.
///
/// # What it costs
///
/// Headers are read where they arrived. A small payload is copied once, out of the stream buffer; of a large one only
/// what had arrived with its header. A reply is a header in the outbox for each run of data or zeros, and the data by
/// reference, unless it is so short that it is copied.
///
/// Memory: one stream buffer and at most one payload of [`crate::REQUEST_MAX`] bytes on the way in; on the way out the
/// replies that its owner has given and [`OUTBOX_MAX`] bytes of the session's own. A metered session asks its owner
/// before it takes any of that but the stream buffer and [`HANDSHAKE_OUTBOX_MAX`] bytes.
#[derive(Debug)]
pub struct Session {
    inbox: Inbox,
    outbox: Outbox,
    phase: Phase,
    structured: bool,
    starved: bool,
    in_flight: usize,
    metered: bool,
    /// Bytes that it may take for the next request.
    room: u32,
    /// Bytes that it needs for the next request, and may not take.
    wants_room: Option<u32>,
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

impl Session {
    /// A connection that has just been accepted. Its outbox holds the greeting.
    #[must_use]
    pub fn new() -> Session {
        Session::greeting(false)
    }

    fn greeting(demands_tls: bool) -> Session {
        let mut outbox = Outbox::new();
        let handshake = Handshake::greet(&mut outbox, demands_tls);
        Session {
            inbox: Inbox::new(),
            outbox,
            phase: Phase::Handshake(handshake),
            structured: false,
            starved: true,
            in_flight: 0,
            metered: false,
            room: 0,
            wants_room: None,
        }
    }

    /// As [`Session::new`], and it takes a request only when it was given the memory for it and for its answer: see
    /// [`Session::wants_room`].
    #[must_use]
    pub fn metered() -> Session {
        Session { metered: true, ..Session::new() }
    }

    /// As [`Session::metered`], and nothing is served before TLS has begun: see [`Event::StartsTls`].
    #[must_use]
    pub fn secured() -> Session {
        Session { metered: true, ..Session::greeting(true) }
    }

    /// Of a [metered](Session::metered) session: the bytes that the next request and its answer take, if the last
    /// [`Session::poll`] ended because they have not been [given](Session::give_room).
    #[must_use]
    pub fn wants_room(&self) -> Option<u32> {
        self.wants_room
    }

    /// Gives the bytes that the session wants; to be polled again.
    pub fn give_room(&mut self) {
        self.room = self.wants_room.take().unwrap_or(0);
    }

    /// What to receive into; only while [`Session::wants_bytes`], or it may overflow.
    pub fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// What to send.
    pub fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// True when the last [`Session::poll`] ended because it needs more bytes, and none are being received yet.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        self.starved && !self.inbox.is_filling()
    }

    /// True while too much waits to be sent: [`Session::poll`] gives nothing until the outbox has got shorter.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let handshake = self.metered && matches!(self.phase, Phase::Handshake(_));
        self.outbox.len() > if handshake { HANDSHAKE_OUTBOX_MAX } else { OUTBOX_MAX }
    }

    /// True once the handshake is over and until the client has gone; before that, its time should be limited.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Request(_) | Phase::Payload(..) | Phase::Skip { .. })
    }

    /// Requests that have been given out and not been answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The next event. `None` when there is none before more bytes arrive ([`Session::wants_bytes`]) or are sent
    /// ([`Session::is_stalled`]), and after [`Event::Closed`] and [`Event::Violation`]. Requests that can't be served
    /// are answered without an event.
    pub fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        self.starved = false;
        self.wants_room = None;
        loop {
            if self.is_stalled() {
                return None;
            }
            if self.inbox.is_filling() {
                self.starved = true;
                return None;
            }
            let step = match &mut self.phase {
                Phase::Handshake(handshake) => handshake.step(&mut self.inbox, &mut self.outbox, exports),
                Phase::Request(opened) => {
                    let opened = *opened;
                    self.next_request(opened)
                }
                Phase::Payload(opened, header) => {
                    let (opened, header) = (*opened, *header);
                    Ok(self.payload(opened, &header))
                }
                Phase::Skip { .. } => Ok(self.skip()),
                Phase::Over => return None,
            };
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Give(event)) => return Some(event),
                Ok(Step::Starved) => {
                    self.starved = true;
                    return None;
                }
                Ok(Step::Full(bytes)) => {
                    self.wants_room = Some(bytes);
                    return None;
                }
                Ok(Step::Wait(name)) => return Some(Event::Wanted { name }),
                Ok(Step::Missing(name)) => return Some(Event::Missing { name }),
                Ok(Step::Open(name, opened)) => {
                    self.structured = opened.structured;
                    self.phase = Phase::Request(opened);
                    return Some(Event::Opened { name });
                }
                Ok(Step::Close) => {
                    self.phase = Phase::Over;
                    return Some(Event::Closed);
                }
                Err(violation) => {
                    self.phase = Phase::Over;
                    return Some(Event::Violation(violation));
                }
            }
        }
    }

    /// Takes the next request's header.
    fn next_request(&mut self, opened: Opened) -> Result<Step, Violation> {
        let Some(bytes) = self.inbox.peek(Header::SIZE).and_then(|bytes| bytes.first_chunk()) else {
            return Ok(Step::Starved);
        };
        let (magic, header) = Header::parse(bytes);
        if magic != REQUEST_MAGIC {
            return Err(Violation::RequestMagic(magic));
        }
        if self.metered && header.command != CMD_DISC {
            let bytes = header.memory_bytes();
            if self.room < bytes {
                return Ok(Step::Full(bytes));
            }
            self.room = 0;
        }
        self.inbox.consume(Header::SIZE);
        if header.command == CMD_DISC {
            return Ok(Step::Close);
        }
        match opened.check(&header) {
            Err(refusal) if header.has_payload() => {
                // The payload is still to come; replying only behind it keeps clients that can't do both at once.
                self.phase = Phase::Skip { opened, cookie: header.cookie, left: header.length, refusal };
            }
            Err((code, message)) => self.put_error(header.cookie, code, message),
            // Empty requests are unspecified, but must not end the connection (*Request types*).
            Ok(()) if header.length == 0 && !header.is_flush() => self.put_done(&header.token()),
            Ok(()) if header.has_payload() => self.phase = Phase::Payload(opened, header),
            Ok(()) => return Ok(self.give_out(&header, Bytes::new())),
        }
        Ok(Step::Again)
    }

    fn give_out(&mut self, header: &Header, data: Bytes) -> Step {
        self.in_flight += 1;
        Step::Give(Event::Request { token: header.token(), command: header.command(data) })
    }

    fn payload(&mut self, opened: Opened, header: &Header) -> Step {
        let Some(data) = self.inbox.take_payload(header.length as usize) else { return Step::Starved };
        self.phase = Phase::Request(opened);
        self.give_out(header, data)
    }

    /// Drops what has arrived of a refused payload.
    fn skip(&mut self) -> Step {
        let Phase::Skip { opened, cookie, left, refusal } = &mut self.phase else { return Step::Again };
        let count = self.inbox.available().len().min(*left as usize);
        self.inbox.consume(count);
        *left -= count as u32;
        if *left > 0 {
            return Step::Starved;
        }
        let ((code, message), cookie) = (*refusal, *cookie);
        self.phase = Phase::Request(*opened);
        self.put_error(cookie, code, message);
        Step::Again
    }

    /// *Structured reply chunk message* prefers an error with a message wherever the client can take one.
    fn put_error(&mut self, cookie: u64, code: ErrorCode, message: &str) {
        if self.structured {
            reply::put_error(&mut self.outbox, cookie, code, message);
        } else {
            reply::put_simple(&mut self.outbox, cookie, code as u32);
        }
    }

    /// A success without data; READ must not get a simple reply in a session with structured ones.
    fn put_done(&mut self, token: &RequestToken) {
        if self.structured && token.answer != Answer::Done {
            reply::put_none(&mut self.outbox, token.cookie);
        } else {
            reply::put_simple(&mut self.outbox, token.cookie, 0);
        }
    }

    fn answered(&mut self) {
        assert!(self.in_flight > 0, "a reply to a request of another session");
        self.in_flight -= 1;
    }

    /// Answers a [`Command::Read`](crate::Command::Read) with `pieces`, which it takes out of the vector; data goes out
    /// by reference.
    ///
    /// # Panics
    /// When the request was no read, or the pieces are not as long as was asked for.
    pub fn reply_read(&mut self, token: RequestToken, pieces: &mut Vec<ReadPiece>) {
        let Answer::Data { whole } = token.answer else { panic!("data in reply to something else than a read") };
        let length: usize = pieces.iter().map(ReadPiece::len).sum();
        assert_eq!(length, token.length as usize, "a read was answered with another length than it asked for");
        self.answered();
        if self.structured {
            reply::put_read_structured(&mut self.outbox, &token, whole, pieces);
        } else {
            reply::put_read_simple(&mut self.outbox, &token, pieces);
        }
    }

    /// Answers a [`Command::BlockStatus`](crate::Command::BlockStatus) with the states of what follows its offset: as
    /// much as is known, at best all that was asked for.
    ///
    /// # Panics
    /// When the request was no block status.
    pub fn reply_block_status(&mut self, token: RequestToken, extents: &[Extent]) {
        let Answer::Extents { one } = token.answer else { panic!("extents in reply to something else") };
        self.answered();
        reply::put_block_status(&mut self.outbox, &token, one, extents);
    }

    /// Answers any other request: it is done.
    ///
    /// # Panics
    /// When the request was a read or a block status.
    pub fn reply_done(&mut self, token: RequestToken) {
        assert_eq!(token.answer, Answer::Done, "a request for data was answered without any");
        self.answered();
        self.put_done(&token);
    }

    /// Answers any request: it failed. `message` is for people, may be empty, and is cut after [`STRING_MAX`] bytes.
    pub fn reply_error(&mut self, token: RequestToken, code: ErrorCode, message: &str) {
        self.answered();
        self.put_error(token.cookie, code, message);
    }
}

const _: () = assert!(STRING_MAX <= u16::MAX as usize, "message lengths have 16 bits");
