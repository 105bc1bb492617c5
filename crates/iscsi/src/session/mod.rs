//! A session and its one connection, as a protocol of the front end.
//!
//! ```text
//!   login ──► waits for its volume ──► full feature phase ──► over
//!       └────────────────────────────────────────────────────►┘
//! ```

mod answers;
mod begin;
mod full;
mod functions;
mod listing;
mod task;

use crate::login::{Login, Refusal, Step};
use crate::pdu::initiator::{LOGIN, LoginRequest};
use crate::pdu::reader::{Pdu, Reader};
use crate::pdu::target::put;
use crate::pdu::{Bhs, Digests};
use crate::{LOGIN_OUTBOX_MAX, LOGIN_SEGMENT_MAX, OUTBOX_MAX, SEGMENT_MAX};
use azekura_base::{Inbox, Outbox};
use azekura_frontend::{Event, Exports, Protocol, StreamProtocol, Tag};
use azekura_gateway::Outcome;
use full::{Flow, Full};

#[derive(Debug)]
enum Phase {
    Login(Login),
    Full(Box<Full>),
    Over,
}

/// An initiator's connection.
///
/// # How it is driven
///
/// As any [`StreamProtocol`]. Memory is asked for by one command at a time, the first that has requests to give out:
/// its data and that of its answer. Meanwhile what comes is read on, so that data that was asked for does come.
/// Commands that wait hold their immediate data, at most [`crate::FIRST_BURST_MAX`] each, and the window of commands
/// bounds how many there are.
///
/// # What it costs
///
/// A header is read where it came. Data that comes with its command, all of it, is handed on as it is; data that comes
/// in several PDUs is copied once more, into one buffer. What is read goes out by reference.
#[derive(Debug)]
pub struct Connection {
    inbox: Inbox,
    outbox: Outbox,
    reader: Reader,
    phase: Phase,
    portal: String,
    starved: bool,
}

impl Connection {
    /// An initiator that has just connected to the portal `portal` (`host:port`; empty where that has many addresses),
    /// with a receive buffer of at most so many bytes.
    #[must_use]
    pub fn new(stream_bytes_max: usize, portal: &str) -> Connection {
        let mut inbox = Inbox::new();
        inbox.limit_stream(stream_bytes_max);
        Connection {
            inbox,
            outbox: Outbox::new(),
            reader: Reader::default(),
            phase: Phase::Login(Login::default()),
            portal: portal.to_owned(),
            starved: true,
        }
    }

    fn is_stalled(&self) -> bool {
        let is_open = matches!(self.phase, Phase::Full(_));
        self.outbox.len() > if is_open { OUTBOX_MAX } else { LOGIN_OUTBOX_MAX }
    }

    fn end(&mut self, event: Event) -> Option<Event> {
        self.phase = Phase::Over;
        Some(event)
    }

    /// What a step of the login came to. `None`: on.
    fn login_step(&mut self, step: Step) -> Option<Event> {
        let send = |outbox: &mut Outbox, bhs: Bhs, text: Vec<u8>| put(outbox, Digests::default(), bhs, &[text.into()]);
        match step {
            Step::Reply(bhs, text) => send(&mut self.outbox, bhs, text),
            Step::Wanted(name) => return Some(Event::Wanted { name }),
            Step::Missing(name) => return Some(Event::Missing { name }),
            Step::Refused(bhs, refusal) => {
                send(&mut self.outbox, bhs, Vec::new());
                return self.end(match refusal {
                    // What any initiator may try.
                    Refusal::NotFound | Refusal::Unavailable | Refusal::Authentication => Event::Closed,
                    _ => Event::Violation(format!("its login was refused with status {:#06x}", refusal as u16)),
                });
            }
            Step::Done(bhs, text, login) => {
                send(&mut self.outbox, bhs, text);
                self.reader.digests = login.parameters.digests;
                let opened = login.export.as_ref().map(|export| Event::Opened { name: export.name.clone() });
                self.phase = Phase::Full(Box::new(Full::new(*login, &self.portal)));
                return opened;
            }
        }
        None
    }

    /// Deals with a PDU. `None`: on.
    fn pdu(&mut self, pdu: Pdu, exports: &dyn Exports) -> Option<Event> {
        match &mut self.phase {
            Phase::Login(_) if pdu.bhs.opcode() != LOGIN => {
                self.end(Event::Violation("it began with something else than a login".to_owned()))
            }
            Phase::Login(login) => {
                let step = login.request(LoginRequest::of(&pdu.bhs), &pdu.data, exports);
                self.login_step(step)
            }
            Phase::Full(full) => match full.pdu(pdu, &mut self.outbox, exports) {
                Ok(Flow::Goes) => None,
                Ok(Flow::Ends) => self.end(Event::Closed),
                Err(violation) => self.end(Event::Violation(violation.to_owned())),
            },
            Phase::Over => None,
        }
    }
}

impl Protocol for Connection {
    fn name() -> &'static str {
        "iscsi"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        self.starved = false;
        loop {
            if self.is_stalled() {
                return None;
            }
            let segment_max = match &mut self.phase {
                Phase::Over => return None,
                Phase::Login(login) if login.waits() => {
                    let step = login.again(exports);
                    match self.login_step(step) {
                        Some(event) => return Some(event),
                        None => continue,
                    }
                }
                Phase::Login(_) => LOGIN_SEGMENT_MAX,
                Phase::Full(full) => {
                    if let Some(event) = full.next_request(&mut self.outbox) {
                        return Some(event);
                    }
                    SEGMENT_MAX
                }
            };
            if self.inbox.is_filling() {
                self.starved = true;
                return None;
            }
            match self.reader.next(&mut self.inbox, segment_max as usize) {
                Err(bad) => return self.end(Event::Violation(bad.to_string())),
                Ok(None) => {
                    self.starved = true;
                    return None;
                }
                Ok(Some(pdu)) => {
                    if let Some(event) = self.pdu(pdu, exports) {
                        return Some(event);
                    }
                }
            }
        }
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        // Nobody waits for the answers of a session that is over.
        if let Phase::Full(full) = &mut self.phase {
            full.reply(tag, outcome, &mut self.outbox);
        }
    }

    fn wants_room(&self) -> Option<usize> {
        match &self.phase {
            Phase::Full(full) => full.wants_room,
            _ => None,
        }
    }

    fn give_room(&mut self) {
        if let Phase::Full(full) = &mut self.phase {
            full.give_room();
        }
    }
}

impl StreamProtocol for Connection {
    fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn wants_bytes(&self) -> bool {
        self.starved && !self.inbox.is_filling()
    }
}
