//! A host's connection, as a protocol of the front end.
//!
//! ```text
//!   ICReq ──► Connect ──► (authenticates) ──► waits for its volume, and for the end of its host's former controllers
//!                                                ├──► admin queue ──► over
//!                                                └──► I/O queue ──► over
//! ```

mod admin;
mod connect;
mod features;
mod io;
mod link;
pub mod plan;
mod proving;
mod task;

use crate::authentication::{Authentication, Challenge, Keys};
use crate::command::{Command, Entry, Queue as Side};
use crate::completion::Status;
use crate::controllers::Controllers;
use crate::pdu::reader::{self, Reader, Received, Taking};
use crate::pdu::writer::{put, terminate};
use crate::pdu::{Digests, Fatal, InitializeRequest, Offer, Pdu, Terminate, Terms};
use crate::{CONNECT_OUTBOX_MAX, OUTBOX_MAX};
use admin::Admin;
use azekura_base::{ChapSecrets, DhchapKey, GrantId, HostName, Inbox, Outbox};
use azekura_frontend::{Event, Export, Exports, Named, Protocol, ReservationAnswer, StreamProtocol, Tag};
use azekura_gateway::Outcome;
use bytes::Bytes;
use connect::{Connect, Queue, Step};
use io::Io;
use link::Link;
use plan::Disk;
use proving::Proving;
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug)]
enum Phase {
    /// ICReq is to come.
    Fresh,
    /// Connect is to come, or waits.
    Connecting(Link, Option<Box<Connect>>),
    /// The host has yet to prove that it knows a secret.
    Proving(Box<Proving>),
    Admin(Box<Admin>),
    Io(Box<Io>),
    Over,
}

/// A host's connection: one queue of a controller.
///
/// # How it is driven
///
/// As any [`StreamProtocol`]. Each command of an I/O queue asks for the memory of its data and of its answer, and keeps
/// that until it has become a request. Beside that a connection has [`crate::PARKED_BYTES_MAX`] of data that came in
/// capsules, four times that while data that was asked for is on its way, one PDU of a command that fails, and
/// [`crate::UNMETERED_MAX`] of small answers.
///
/// # What it costs
///
/// A header is read where it came. Data that comes in one PDU is handed on as it is; data that comes in several is
/// copied once more, into one buffer. What is read goes out by reference.
#[derive(Debug)]
pub struct Connection {
    inbox: Inbox,
    outbox: Outbox,
    reader: Reader,
    phase: Phase,
    controllers: Arc<Controllers>,
    portal: Option<SocketAddr>,
    challenge: Option<Challenge>,
    starved: bool,
}

impl Connection {
    /// A host that has just connected, with a receive buffer of at most so many bytes. Hosts that ask where subsystems
    /// are, are sent to `portal`. Who has to prove something is asked this `challenge`, which was drawn for this
    /// connection alone; without one nobody is let in who has to.
    #[must_use]
    pub fn new(
        stream_bytes_max: usize,
        portal: Option<SocketAddr>,
        controllers: &Arc<Controllers>,
        challenge: Option<Challenge>,
    ) -> Connection {
        let mut inbox = Inbox::new();
        inbox.limit_stream(stream_bytes_max);
        Connection {
            inbox,
            outbox: Outbox::new(),
            reader: Reader::new(reader::Side::Controller),
            phase: Phase::Fresh,
            controllers: Arc::clone(controllers),
            portal,
            challenge,
            starved: true,
        }
    }

    fn is_stalled(&mut self) -> bool {
        match &mut self.phase {
            Phase::Io(io) => self.outbox.len() > OUTBOX_MAX || io.is_stalled(&self.outbox),
            Phase::Admin(admin) => self.outbox.len() > OUTBOX_MAX || admin.is_stalled(&self.outbox),
            _ => self.outbox.len() > CONNECT_OUTBOX_MAX,
        }
    }

    fn end(&mut self, event: Event) -> Option<Event> {
        self.phase = Phase::Over;
        Some(event)
    }

    fn terminate(&mut self, why: &Terminate) -> Option<Event> {
        terminate(&mut self.outbox, why);
        self.end(Event::Violation(why.to_string()))
    }

    /// The next PDU; `None` when it has not come, or when its data has to wait.
    fn next_pdu(&mut self) -> Result<Option<Received>, Terminate> {
        let (phase, mut waits) = (&mut self.phase, false);
        let mut taking = |pdu: &Pdu, len: usize| {
            let taking = match phase {
                Phase::Io(io) => io.admit(pdu, len)?,
                // They ask for no data.
                _ if matches!(pdu, Pdu::HostData(_)) => return Err(Fatal::Sequence),
                _ => Taking::Take,
            };
            waits = taking == Taking::Later;
            Ok(taking)
        };
        let next = self.reader.next_if(&mut self.inbox, &mut taking)?;
        self.starved = next.is_none() && !waits;
        Ok(next)
    }

    /// Deals with a PDU. `None`: on.
    fn pdu(&mut self, received: Received, exports: &dyn Exports) -> Option<Event> {
        if let Pdu::HostTerminates(why) = received.pdu {
            let text = format!("its host ends it with status {:#x}, {:#x}", why.status, why.info);
            return self.end(Event::Violation(text));
        }
        let dealt = match &mut self.phase {
            Phase::Fresh => match received.pdu {
                Pdu::InitializeRequest(request) => return self.initialize(&request),
                _ => Ok(()),
            },
            Phase::Connecting(..) => return self.connect(&received, exports),
            Phase::Proving(_) => return self.prove(&received),
            Phase::Admin(admin) => admin.pdu(&received, &mut self.outbox, exports),
            Phase::Io(io) => io.pdu(received, &mut self.outbox, exports),
            Phase::Over => Ok(()),
        };
        match dealt {
            Ok(()) => None,
            Err(violation) => self.end(Event::Violation(violation)),
        }
    }

    /// ICReq (TCP section 3.6.2.2).
    fn initialize(&mut self, request: &InitializeRequest) -> Option<Event> {
        let offer = Offer::default();
        match request.answer(&offer) {
            Err(fatal) => self.terminate(&Terminate { fatal, header: Bytes::from_static(&[0; 8]) }),
            Ok(answer) => {
                let none = Terms { digests: Digests::default(), alignment: 0, capsule_data_max: 0, data_max: 0 };
                put(&mut self.outbox, &none, &Pdu::InitializeResponse(answer), &[]);
                self.reader.agree(answer.to_controller(&offer));
                self.phase = Phase::Connecting(Link::new(answer.to_host(request, u32::MAX)), None);
                None
            }
        }
    }

    /// The first command of a connection is Connect (Base section 3.3.2.2).
    fn connect(&mut self, received: &Received, exports: &dyn Exports) -> Option<Event> {
        let Phase::Connecting(link, connect) = &mut self.phase else { return None };
        let Pdu::Command(entry) = received.pdu else { return None };
        let entry = Entry(entry);
        let asked = match Command::of(&entry, Side::Admin) {
            Ok(Command::Fabrics(fabrics)) => Connect::of(&entry, &fabrics, received),
            Ok(_) => Err((Status::SEQUENCE_ERROR, 0)),
            Err(status) => Err((status, 0)),
        };
        match asked {
            Ok(asked) => *connect = Some(Box::new(asked)),
            Err((status, result)) => {
                link.complete(&mut self.outbox, entry.id(), status, result);
                return None;
            }
        }
        self.connect_again(exports)
    }

    /// A Connect goes on.
    fn connect_again(&mut self, exports: &dyn Exports) -> Option<Event> {
        let Phase::Connecting(_, Some(connect)) = &mut self.phase else { return None };
        let step = match connect.step(exports, &self.controllers) {
            Step::Waits(event) => return Some(event),
            Step::Proves(grant, secrets) => match self.begin_to_prove(grant, &secrets) {
                Ok(()) => return None,
                Err(status) => Step::Fails(status, 0),
            },
            step => step,
        };
        let Phase::Connecting(mut link, Some(connect)) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return None;
        };
        let Connect { id, entries, has_flow_control, is_answered, .. } = *connect;
        match step {
            Step::Waits(event) => Some(event),
            // Its host has been told that it is connected, and finds that it is not.
            Step::Fails(..) if is_answered => Some(Event::Closed),
            // Who has to prove something has begun to, above.
            Step::Proves(..) => Some(Event::Closed),
            Step::Fails(status, result) => {
                link.complete(&mut self.outbox, id, status, result);
                // What waits for another name waits on another connection.
                self.phase = Phase::Over;
                Some(Event::Closed)
            }
            Step::Done(queue) => {
                let (shared, name) = match &queue {
                    Queue::Admin(registered, export, _) => (&registered.shared, export.as_ref()),
                    Queue::Io(shared, export) => (shared, Some(export)),
                };
                if !is_answered {
                    link.begin(entries, has_flow_control);
                    link.complete(&mut self.outbox, id, Status::SUCCESS, u64::from(shared.id));
                }
                let name = name.map(|export| export.name.clone());
                self.phase = match queue {
                    Queue::Admin(registered, export, keep_alive) => {
                        let of = |export: Export| Disk {
                            // As it is from the beginning, it is not news.
                            reserves: !export.is_read_only() && exports.reservations(export.id).is_some(),
                            ..Disk::of(&export, self.controllers.cluster())
                        };
                        let disk = export.map(of);
                        Phase::Admin(Box::new(Admin::new(registered, disk, link, entries, keep_alive, self.portal)))
                    }
                    Queue::Io(shared, export) => {
                        let disk = Disk::of(&export, self.controllers.cluster());
                        Phase::Io(Box::new(Io::new(shared, disk, link, entries)))
                    }
                };
                Some(name.map_or(Event::Stays, |name| Event::Opened { name }))
            }
        }
    }
}

impl Connection {
    /// The host is told that it is connected, and has to prove that it knows a secret before anything else.
    fn begin_to_prove(&mut self, grant: GrantId, secrets: &ChapSecrets) -> Result<(), Status> {
        /// ATR in AUTHREQ, the upper half of dword 0 of what is answered to Connect (Base section 6.3).
        const REQUIRED: u64 = 1 << 17;
        let Phase::Connecting(_, Some(connect)) = &mut self.phase else { return Err(Status::SEQUENCE_ERROR) };
        let key = |secret| DhchapKey::of_secret(secret).map_err(|_| Status::CONNECT_INVALID_HOST);
        let controller = secrets.target.as_ref().map(key).transpose()?;
        let keys = Keys { host: key(&secrets.initiator)?, controller };
        // One authentication for each challenge that was drawn.
        let challenge = self.challenge.take().ok_or(Status::CONNECT_BUSY)?;
        let id = connect.answer(&self.controllers).ok_or(Status::CONNECT_BUSY)?;
        let Phase::Connecting(mut link, Some(connect)) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Err(Status::SEQUENCE_ERROR);
        };
        link.begin(connect.entries, connect.has_flow_control);
        link.complete(&mut self.outbox, connect.id, Status::SUCCESS, u64::from(id) | REQUIRED);
        let authentication = Authentication::new(keys, challenge, &connect.host.name, &connect.subsystem);
        let named = Named { host: HostName::of_nvme_host(&connect.host.name), grant: Some(grant) };
        self.phase = Phase::Proving(Box::new(Proving::new(link, connect, authentication, named)));
        Ok(())
    }

    /// An authentication goes on.
    fn prove(&mut self, received: &Received) -> Option<Event> {
        let Phase::Proving(proving) = &mut self.phase else { return None };
        match proving.pdu(received, &mut self.outbox) {
            proving::Step::On => None,
            proving::Step::Tells(event) => Some(event),
            proving::Step::Ends(event) => self.end(event),
            proving::Step::Proved => {
                let Phase::Proving(proving) = std::mem::replace(&mut self.phase, Phase::Over) else { return None };
                let (link, mut connect, named) = proving.proved();
                connect.prove();
                self.phase = Phase::Connecting(link, Some(connect));
                Some(Event::Named(named))
            }
        }
    }
}

impl Protocol for Connection {
    fn name() -> &'static str {
        "nvme"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        self.starved = false;
        loop {
            if let Phase::Admin(admin) = &mut self.phase
                && let Some(event) = admin.next_event(exports, &mut self.outbox)
            {
                return Some(event);
            }
            if let Phase::Io(io) = &mut self.phase {
                io.look_at_reservations(exports);
            }
            if self.is_stalled() {
                return None;
            }
            match &mut self.phase {
                Phase::Over => return None,
                Phase::Proving(proving) => proving.has_waited(&mut self.outbox),
                Phase::Connecting(_, Some(_)) => {
                    if let Some(event) = self.connect_again(exports) {
                        return Some(event);
                    }
                }
                Phase::Io(io) => {
                    if let Some(event) = io.next_request(&mut self.outbox) {
                        return Some(event);
                    }
                }
                _ => {}
            }
            if self.inbox.is_filling() {
                self.starved = true;
                return None;
            }
            match self.next_pdu() {
                Err(why) => return self.terminate(&why),
                Ok(None) => return None,
                Ok(Some(received)) => {
                    if let Some(event) = self.pdu(received, exports) {
                        return Some(event);
                    }
                }
            }
        }
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        // Nobody waits for the answers of a connection that is over.
        if let Phase::Io(io) = &mut self.phase {
            io.reply(tag, outcome, &mut self.outbox);
        }
    }

    fn reserved(&mut self, tag: Tag, answer: ReservationAnswer) {
        if let Phase::Io(io) = &mut self.phase {
            io.reserved(tag, answer, &mut self.outbox);
        }
    }

    fn heeds_reservations(&self) -> bool {
        true
    }

    fn wants_room(&self) -> Option<usize> {
        match &self.phase {
            Phase::Io(io) => io.wants_room(),
            _ => None,
        }
    }

    fn give_room(&mut self) {
        if let Phase::Io(io) = &mut self.phase {
            io.give_room(&mut self.outbox);
        }
    }

    fn swept(&mut self, token: u64) {
        if let Phase::Admin(admin) = &mut self.phase {
            admin.swept(token);
        }
    }

    fn was_heard(&mut self) -> bool {
        match &self.phase {
            Phase::Admin(admin) => admin.was_heard(),
            _ => true,
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
