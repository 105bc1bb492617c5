//! One client's connection.

use crate::admission::Who;
use crate::attachment::VolumeUse;
use crate::heeding::Era;
use crate::protocol::{StreamProtocol, Tag};
use crate::request::Asked;
use azekura_base::{Generation, HostName};
use std::net::IpAddr;
use std::sync::Arc;

/// A connection, kept by whoever keeps its socket, and driven by the [`Frontend`](crate::Frontend).
pub struct Client {
    protocol: Box<dyn StreamProtocol>,
    /// A request that waits for its turn.
    pub(crate) ready: Option<Ready>,
    /// Bytes that had been received when it was looked at last.
    pub(crate) received_bytes: u64,
    /// The volume that it has opened, and the attachment that its requests carry.
    pub(crate) volume: Option<(Arc<VolumeUse>, Generation)>,
    /// The process has the volume to read alone.
    pub(crate) reads_only: bool,
    /// The host that it belongs to, where that may have other paths.
    pub(crate) host: Option<HostName>,
    /// Who is at its other end.
    pub(crate) who: Who,
    /// Where it comes from, over a network.
    pub(crate) from: Option<IpAddr>,
    /// It is being closed: nothing of it is looked at any more.
    pub(crate) has_ended: bool,
}

/// A request that waits for its turn.
pub(crate) struct Ready {
    pub tag: Tag,
    pub memory_bytes: usize,
    pub asked: Asked,
    /// Its rights were looked at in this era.
    pub era: Era,
}

impl Client {
    /// A client that has just connected and speaks `protocol`.
    #[must_use]
    pub fn new(protocol: Box<dyn StreamProtocol>) -> Client {
        Client {
            protocol,
            ready: None,
            received_bytes: 0,
            volume: None,
            reads_only: false,
            host: None,
            who: Who::Unasked,
            from: None,
            has_ended: false,
        }
    }

    /// The same, at a door on a network where nobody is asked for anything: it has to do with the default project,
    /// unless anybody is an administrator.
    #[must_use]
    pub fn anybody(protocol: Box<dyn StreamProtocol>) -> Client {
        Client { who: Who::Anybody, ..Client::new(protocol) }
    }

    /// The same, and what it may depends on the key that it proves: none before
    /// [`Event::Proved`](crate::Event::Proved).
    #[must_use]
    pub fn asked(protocol: Box<dyn StreamProtocol>) -> Client {
        Client { who: Who::Asked(None), ..Client::new(protocol) }
    }

    /// The same, and what it may depends on what it calls itself: nothing before
    /// [`Event::Named`](crate::Event::Named).
    #[must_use]
    pub fn host(protocol: Box<dyn StreamProtocol>) -> Client {
        Client { who: Who::Host(None), ..Client::new(protocol) }
    }

    /// The same, from this address.
    #[must_use]
    pub fn coming_from(self, address: Option<IpAddr>) -> Client {
        Client { from: address, ..self }
    }

    /// Its branch, which speaks `protocol`: who is at the other end is the same.
    pub(crate) fn branch(&self, protocol: Box<dyn StreamProtocol>) -> Client {
        Client { who: self.who.clone(), host: self.host.clone(), from: self.from, ..Client::new(protocol) }
    }

    /// Its protocol, to be sent from and received into.
    pub fn protocol(&mut self) -> &mut dyn StreamProtocol {
        &mut *self.protocol
    }

    /// The same, who is at its other end, and the host that it belongs to.
    pub(crate) fn parts(&mut self) -> (&mut dyn StreamProtocol, &Who, Option<&HostName>) {
        (&mut *self.protocol, &self.who, self.host.as_ref())
    }

    /// A volume as this client would use it.
    pub(crate) fn using(&self, volume: &str) -> VolumeUse {
        VolumeUse { volume: volume.to_owned(), host: self.host.clone() }
    }

    /// True while it can take more bytes. What it has sent that waits for its turn is not looked at meanwhile: more
    /// would overflow its inbox.
    pub fn wants_bytes(&mut self) -> bool {
        self.protocol.wants_bytes() && self.ready.is_none() || self.protocol.inbox_mut().is_filling()
    }
}
