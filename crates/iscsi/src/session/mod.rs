//! A session and its one connection, as a protocol of the front end.
//!
//! ```text
//!   login ──► waits for its volume ──► waits for an earlier session to end ──► full feature phase ──► over
//!       └──────────────────────────────────────────────────────────────────────────────────────────►┘
//! ```

mod answers;
mod begin;
mod commands;
mod copies;
mod copying;
mod full;
mod functions;
mod listing;
mod pings;
mod reserving;
mod rights;
mod room;
mod target;
mod task;
mod unit;

use crate::login::chap::Challenge;
use crate::login::{Login, Refusal, Step};
use crate::pdu::initiator::{LOGIN, LoginRequest};
use crate::pdu::reader::{Pdu, Reader, Taking};
use crate::pdu::target::put;
use crate::pdu::{Bhs, Digests};
use crate::{LOGIN_OUTBOX_MAX, LOGIN_SEGMENT_MAX, OUTBOX_MAX, SEGMENT_MAX};
use azekura_base::{Inbox, Outbox};
use azekura_frontend::{Event, Exports, Protocol, ReservationAnswer, StreamProtocol, Tag};
use azekura_gateway::Outcome;
use full::Full;
use pings::Pings;
use std::collections::VecDeque;
use std::net::SocketAddr;

#[derive(Debug)]
enum Phase {
    Login(Box<Login>),
    /// Its login is refused by this, which waits: the more often somebody is mistaken, the longer.
    Mistaken(Bhs),
    Full(Box<Full>),
    Over,
}

/// An initiator's connection.
///
/// # How it is driven
///
/// As any [`StreamProtocol`]. Each command asks for the memory of its data and of its answer, and keeps that until it
/// has become a request: several have data on its way at a time. Data that was not asked for is not received before
/// there is memory for its command. Beside that a connection has one data segment at most, [`crate::PARKED_BYTES_MAX`]
/// for what came out of order, and [`crate::UNMETERED_MAX`] of small answers.
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
    portal: Option<SocketAddr>,
    starved: bool,
    /// Sweeps that came before there was anything to sweep.
    swept: VecDeque<u64>,
    pings: Pings,
}

impl Connection {
    /// An initiator that has just connected to the portal `portal`, which discoveries name with those of other nodes,
    /// with a receive buffer of at most so many bytes. Who has to prove something is asked this `challenge`, which was
    /// drawn for this connection alone; without one nobody is let in who has to.
    #[must_use]
    pub fn new(stream_bytes_max: usize, portal: Option<SocketAddr>, challenge: Option<Challenge>) -> Connection {
        let mut inbox = Inbox::new();
        inbox.limit_stream(stream_bytes_max);
        Connection {
            inbox,
            outbox: Outbox::new(),
            reader: Reader::default(),
            phase: Phase::Login(Box::new(Login::new(challenge))),
            portal,
            starved: true,
            swept: VecDeque::new(),
            pings: Pings::default(),
        }
    }

    fn is_stalled(&mut self) -> bool {
        match &mut self.phase {
            Phase::Full(full) => self.outbox.len() > OUTBOX_MAX || full.is_stalled(&self.outbox),
            _ => self.outbox.len() > LOGIN_OUTBOX_MAX,
        }
    }

    fn next_sweep(&mut self) -> Option<Event> {
        match &mut self.phase {
            Phase::Full(full) => full.next_sweep(),
            _ => None,
        }
        .or_else(|| self.swept.pop_front().map(Event::Swept))
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
            Step::Named(named) => return Some(Event::Named(named)),
            Step::Wanted(name) => return Some(Event::Wanted { name }),
            Step::Missing(name) => return Some(Event::Missing { name }),
            Step::Nexus(nexus, export) => return Some(Event::WantsNexus { nexus, export }),
            Step::Refused(bhs, refusal) => {
                if let Phase::Login(login) = &self.phase
                    && let Some(host) = login.mistaken()
                {
                    let event = Event::Mistaken(format!("{host} has shown a wrong name or secret for CHAP"));
                    self.phase = Phase::Mistaken(bhs);
                    return Some(event);
                }
                send(&mut self.outbox, bhs, Vec::new());
                return self.end(match refusal {
                    // What any initiator may try.
                    Refusal::NotFound | Refusal::Unavailable | Refusal::Authentication | Refusal::Forbidden => {
                        Event::Closed
                    }
                    _ => Event::Violation(format!("its login was refused with status {:#06x}", refusal as u16)),
                });
            }
            Step::Done(bhs, text, login) => {
                send(&mut self.outbox, bhs, text);
                self.reader.digests = login.parameters.digests;
                let opened = match (&login.export, &login.units) {
                    (Some(export), _) => Some(Event::Opened { name: export.name.clone() }),
                    (None, units) => units.as_ref().map(|_| Event::Stays),
                };
                self.phase = Phase::Full(Box::new(Full::new(*login, self.portal)));
                self.pings.begin();
                return opened;
            }
        }
        None
    }

    /// The next PDU; `None` when it has not come, or when its data has to wait for memory.
    fn next_pdu(&mut self, segment_max: usize) -> Result<Option<Pdu>, String> {
        let (phase, mut waits, mut violation) = (&mut self.phase, false, None);
        let mut taking = |bhs: &Bhs| {
            let taking = match phase {
                Phase::Full(full) => full.admit(bhs),
                _ => Ok(Taking::Take),
            };
            let taking = taking.unwrap_or_else(|why| {
                violation = Some(why);
                Taking::Later
            });
            waits = taking == Taking::Later;
            taking
        };
        let next = self.reader.next_if(&mut self.inbox, segment_max, &mut taking).map_err(|bad| bad.to_string())?;
        if let Some(violation) = violation {
            return Err(violation.to_owned());
        }
        self.starved = next.is_none() && !waits;
        Ok(next)
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
                Ok(()) => None,
                Err(violation) => self.end(Event::Violation(violation.to_owned())),
            },
            Phase::Mistaken(_) | Phase::Over => None,
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
            if let Phase::Full(full) = &mut self.phase {
                if let Some(event) = self.pings.next_event() {
                    return Some(event);
                }
                full.look_at_units(exports, &mut self.outbox);
                full.look_at_reservations(exports, &mut self.outbox);
            }
            // Others wait for these, whatever this initiator does.
            if let Some(event) = self.next_sweep() {
                return Some(event);
            }
            if self.is_stalled() {
                return None;
            }
            let segment_max = match &mut self.phase {
                Phase::Over => return None,
                Phase::Mistaken(bhs) => {
                    let bhs = *bhs;
                    put(&mut self.outbox, Digests::default(), bhs, &[]);
                    return self.end(Event::Closed);
                }
                Phase::Login(login) if login.waits() => {
                    let step = login.again(exports);
                    match self.login_step(step) {
                        Some(event) => return Some(event),
                        None => continue,
                    }
                }
                Phase::Login(_) => LOGIN_SEGMENT_MAX,
                Phase::Full(full) if full.has_left() => return self.end(Event::Closed),
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
            match self.next_pdu(segment_max as usize) {
                Err(violation) => return self.end(Event::Violation(violation)),
                Ok(None) => return None,
                Ok(Some(pdu)) => {
                    self.pings.heard();
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

    fn reserved(&mut self, tag: Tag, answer: ReservationAnswer) {
        if let Phase::Full(full) = &mut self.phase {
            full.reserved(tag, answer, &mut self.outbox);
        }
    }

    fn heeds_reservations(&self) -> bool {
        true
    }

    fn wants_room(&self) -> Option<usize> {
        match &self.phase {
            Phase::Full(full) => full.wants_room(),
            _ => None,
        }
    }

    fn give_room(&mut self) {
        if let Phase::Full(full) = &mut self.phase {
            full.give_room(&mut self.outbox);
        }
    }

    fn room_is_late(&mut self) -> bool {
        match &mut self.phase {
            Phase::Full(full) => full.room_is_late(),
            _ => false,
        }
    }

    fn was_heard(&mut self) -> bool {
        // What has come and waits to be read may be a sign of life, and one that takes its answers lives.
        let listens = self.starved && self.outbox.is_empty();
        match &mut self.phase {
            Phase::Full(full) if listens => self.pings.look(full, &mut self.outbox),
            _ => true,
        }
    }

    fn sweep(&mut self, sweep: u64, why: u8) {
        match &mut self.phase {
            Phase::Full(full) => full.sweep(0, sweep, why, &mut self.outbox),
            Phase::Login(_) => self.swept.push_back(sweep),
            // What it had may be under way: it has swept when its connection is gone.
            Phase::Mistaken(_) | Phase::Over => {}
        }
    }

    fn swept(&mut self, token: u64) {
        if let Phase::Full(full) = &mut self.phase {
            full.swept(token, &mut self.outbox);
        }
    }

    fn keeps_room(&self) -> bool {
        true
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
