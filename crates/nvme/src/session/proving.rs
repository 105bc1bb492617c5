//! A host that has connected and has yet to prove what it knows: until then nothing is looked up for it, and nothing of
//! what it has elsewhere is touched (docs/decisions/0053-hosts.md).

use super::connect::Connect;
use super::link::Link;
use crate::LOG_MAX;
use crate::authentication::{Authentication, PROTOCOL_SPECIFIC, SECURITY_PROTOCOL, Taken};
use crate::command::fabrics::{Fabrics, Security};
use crate::command::{Command, Entry, Queue};
use crate::completion::Status;
use crate::pdu::Pdu;
use crate::pdu::reader::Received;
use azekura_base::Outbox;
use azekura_frontend::{Event, Named};

/// What a step comes to.
#[derive(Debug)]
pub(super) enum Step {
    /// Its host goes on.
    On,
    /// The front end is to be told; then it goes on.
    Tells(Event),
    /// The host has proved it.
    Proved,
    /// The connection ends.
    Ends(Event),
}

#[derive(Debug)]
pub(super) struct Proving {
    link: Link,
    connect: Box<Connect>,
    authentication: Authentication,
    /// As whom it comes in.
    named: Named,
    /// The command that is completed when its host has waited long enough.
    held: Option<u16>,
}

impl Proving {
    pub fn new(link: Link, connect: Box<Connect>, authentication: Authentication, named: Named) -> Proving {
        Proving { link, connect, authentication, named, held: None }
    }

    /// What goes on when all is proved.
    pub fn proved(self) -> (Link, Box<Connect>, Named) {
        (self.link, self.connect, self.named)
    }

    /// The host has waited for having shown a wrong secret.
    pub fn has_waited(&mut self, outbox: &mut Outbox) {
        if let Some(id) = self.held.take() {
            self.link.complete(outbox, id, Status::SUCCESS, 0);
        }
    }

    fn host(&self) -> &str {
        self.named.host.as_ref().map_or("a host", |host| host.as_str())
    }

    /// Deals with a command.
    pub fn pdu(&mut self, received: &Received, outbox: &mut Outbox) -> Step {
        let Pdu::Command(entry) = received.pdu else {
            return Step::Ends(Event::Violation("a queue that is not authenticated has asked for no data".to_owned()));
        };
        let entry = Entry(entry);
        let dealt = match Command::of(&entry, Queue::Admin) {
            Ok(Command::Fabrics(Fabrics::AuthenticationSend(of))) => self.sent(&entry, &of, received, outbox),
            Ok(Command::Fabrics(Fabrics::AuthenticationReceive(of))) => self.fetched(&entry, &of, outbox),
            _ => Err(Status::AUTHENTICATION_REQUIRED),
        };
        dealt.unwrap_or_else(|status| {
            self.link.complete(outbox, entry.id(), status, 0);
            Step::On
        })
    }

    /// Authentication Send (Base section 6.2).
    fn sent(&mut self, entry: &Entry, of: &Security, received: &Received, outbox: &mut Outbox) -> Result<Step, Status> {
        check(of)?;
        if !received.is_intact {
            return Err(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        let data = entry.sgl()?.in_capsule(&received.data)?.ok_or(Status::SGL_TYPE_INVALID)?;
        let data = data.get(..of.len as usize).ok_or(Status::SGL_LENGTH_INVALID)?;
        let taken = self.authentication.take(data);
        if taken == Taken::Mistaken {
            self.held = Some(entry.id());
            let what = format!("{} has shown a wrong secret for DH-HMAC-CHAP", self.host());
            return Ok(Step::Tells(Event::Mistaken(what)));
        }
        self.link.complete(outbox, entry.id(), Status::SUCCESS, 0);
        Ok(match taken {
            Taken::Distrusted => Step::Ends(Event::Violation(format!(
                "{} ends the authentication: the cluster has another secret than it knows of the cluster",
                self.host()
            ))),
            _ if self.authentication.is_proved() => Step::Proved,
            _ => Step::On,
        })
    }

    /// Authentication Receive (Base section 6.1).
    fn fetched(&mut self, entry: &Entry, of: &Security, outbox: &mut Outbox) -> Result<Step, Status> {
        check(of)?;
        let room = of.len.min(entry.sgl()?.len()) as usize;
        if room > LOG_MAX {
            return Err(Status::INVALID_FIELD);
        }
        let mut message = self.authentication.fetch().ok_or(Status::SEQUENCE_ERROR)?;
        if message.len() > room {
            return Ok(Step::Ends(Event::Violation(format!("{room} bytes are not enough for a message to it"))));
        }
        // What is behind a message is zeros: hosts count on as many bytes as they have asked for.
        message.resize(room, 0);
        self.link.complete_with(outbox, entry.id(), message);
        Ok(match () {
            () if self.authentication.is_proved() => Step::Proved,
            () if self.authentication.is_over() => Step::Ends(Event::Closed),
            () => Step::On,
        })
    }
}

/// Whether a command is about this protocol.
fn check(of: &Security) -> Result<(), Status> {
    let is_this = of.protocol == SECURITY_PROTOCOL && of.specific == PROTOCOL_SPECIFIC;
    if is_this { Ok(()) } else { Err(Status::INVALID_FIELD) }
}
