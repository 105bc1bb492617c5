//! Clients that speak NBD over TLS: between the socket's buffers and those of the protocol stands a channel, from the
//! client's STARTTLS on (docs/decisions/0037-who-may.md). A connection without TLS has nothing of this.

use azekura_base::{Inbox, Outbox};
use azekura_frontend::{Event, Exports, Protocol, StreamProtocol, Tag};
use azekura_gateway::Outcome;
use azekura_nbd::{Connection, HANDSHAKE_OUTBOX_MAX, OUTBOX_MAX};
use azekura_transport::https::StreamTls;
use azekura_transport::{Channel, Opened};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Handshakes of TLS that clients of a process have begun and not ended, at the most. Each has at most 64 KiB of what
/// was received, and about as much of its own.
pub const HANDSHAKES_MAX: usize = 512;
/// Handshakes that clients of a process begin in a second, at the most: each takes about 0.2 ms of a thread that has
/// other clients and other nodes to answer.
pub const HANDSHAKES_A_SECOND: u32 = 500;

/// Clients that begin TLS, of all shards of a process.
#[derive(Debug, Default)]
pub struct Handshakes {
    under_way: AtomicUsize,
    second: Mutex<Second>,
}

#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    count: u32,
    refused: bool,
}

/// A handshake that is under way.
#[derive(Debug)]
struct Place(Arc<Handshakes>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// There are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooMany {
    /// Nobody has been told in this second.
    tell: bool,
}

impl Handshakes {
    fn begin(self: &Arc<Handshakes>, now: Instant) -> Result<Place, TooMany> {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if second.began.is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1)) {
            *second = Second { began: Some(now), ..Second::default() };
        }
        let more = |under_way| (under_way < HANDSHAKES_MAX).then_some(under_way + 1);
        if second.count >= HANDSHAKES_A_SECOND
            || self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err()
        {
            return Err(TooMany { tell: !std::mem::replace(&mut second.refused, true) });
        }
        second.count += 1;
        Ok(Place(Arc::clone(self)))
    }
}

/// What connections with TLS are made with.
#[derive(Clone, Debug)]
pub struct SecuredDoor {
    tls: StreamTls,
    handshakes: Arc<Handshakes>,
}

impl SecuredDoor {
    /// Shows what this shows.
    #[must_use]
    pub fn new(tls: StreamTls) -> SecuredDoor {
        SecuredDoor { tls, handshakes: Arc::default() }
    }

    /// A client that has just connected, with a receive buffer of at most so many bytes.
    #[must_use]
    pub fn connected(&self, stream_bytes_max: usize) -> Secured {
        Secured {
            inner: Connection::secured(stream_bytes_max),
            stage: Stage::Clear,
            door: self.clone(),
            stream_bytes_max,
            starved: true,
            ends: false,
        }
    }
}

/// How far a connection is.
#[derive(Debug)]
enum Stage {
    /// It has not begun TLS: nothing is served.
    Clear,
    /// The handshake of TLS is under way.
    Shaking(Channel, Place),
    Open(Channel),
    /// What is still in the channel may be sent. What comes is nobody's, whatever it says.
    Over(Channel),
}

/// A client's connection that has to begin TLS.
///
/// ```text
///   clear ──► shaking hands ──► open ──► over
///     └──► over    └──► over
/// ```
///
/// Bytes are decrypted where they were received, and go through one buffer into the protocol's. What the protocol says
/// is encrypted when the socket is to have it: in NBD nothing is urgent, so that nothing has to stay behind.
#[derive(Debug)]
pub struct Secured {
    inner: Connection,
    stage: Stage,
    door: SecuredDoor,
    stream_bytes_max: usize,
    /// The last poll ended because it needs more bytes.
    starved: bool,
    /// Nothing follows what the protocol has said.
    ends: bool,
}

impl Secured {
    /// The client begins TLS. The protocol believes from now on that what it is given comes from there: so it gets
    /// nothing more where there is no TLS.
    fn begin(&mut self) -> Result<(), Option<String>> {
        self.stage = Stage::Over(Channel::plain());
        let place = self.door.handshakes.begin(Instant::now()).map_err(|TooMany { tell }| {
            tell.then(|| {
                format!(
                    "there are {HANDSHAKES_MAX} unfinished handshakes of TLS, or {HANDSHAKES_A_SECOND} in this second: \
                     refusing those of clients that come now"
                )
            })
        })?;
        let channel = self.door.tls.accept_begun(self.inner.inbox_mut());
        let mut channel = channel.map_err(|error| Some(error.to_string()))?;
        // The answer to the client's wish, still in clear.
        channel.send_first(self.inner.outbox_mut());
        self.stage = Stage::Shaking(channel, place);
        Ok(())
    }

    /// Takes the handshake further.
    fn shake(&mut self, mut channel: Channel, place: Place) -> Option<Event> {
        match channel.open(self.inner.inbox_mut()) {
            Err(error) => {
                self.stage = Stage::Over(channel);
                Some(Event::Violation(error.to_string()))
            }
            Ok(_) if channel.stands() => {
                let key = channel.peer();
                channel.expect(self.stream_bytes_max);
                self.inner.inbox_mut().limit_stream(self.stream_bytes_max);
                self.stage = Stage::Open(channel);
                Some(Event::Proved(key))
            }
            Ok(Opened::Ended) => {
                self.stage = Stage::Over(channel);
                Some(Event::Closed)
            }
            Ok(_) => {
                self.stage = Stage::Shaking(channel, place);
                self.starved = true;
                None
            }
        }
    }

    /// Decrypts what has come. `Ok(false)`: nothing has. An error is the last thing that the client does.
    fn take_in(&mut self) -> Result<bool, Box<Event>> {
        let Stage::Open(channel) = &mut self.stage else { return Ok(false) };
        let inbox = self.inner.inbox_mut();
        let before = inbox.received_bytes();
        let opened = channel.open(inbox);
        let more = inbox.received_bytes() > before;
        match opened {
            Ok(_) if more => Ok(true),
            // A client that ends TLS has said all.
            Ok(Opened::Ended) => Err(Box::new(Event::Closed)),
            Ok(_) => Ok(false),
            Err(error) => Err(Box::new(Event::Violation(error.to_string()))),
        }
    }

    /// The next thing that a client does who has shaken hands.
    fn poll_open(&mut self, exports: &dyn Exports) -> Option<Event> {
        loop {
            if self.is_stalled() {
                return None;
            }
            if let Some(event) = self.inner.poll(exports) {
                self.ends |= matches!(event, Event::Closed | Event::Violation(_));
                return Some(event);
            }
            if !self.inner.wants_bytes() {
                return None;
            }
            match self.take_in() {
                Ok(true) => {}
                Ok(false) => {
                    self.starved = true;
                    return None;
                }
                Err(event) => {
                    if let Stage::Open(channel) = std::mem::replace(&mut self.stage, Stage::Clear) {
                        self.stage = Stage::Over(channel);
                    }
                    return Some(*event);
                }
            }
        }
    }

    /// Too much waits to be sent, on both sides of the channel.
    fn is_stalled(&mut self) -> bool {
        let most = if self.inner.is_open() { OUTBOX_MAX } else { HANDSHAKE_OUTBOX_MAX };
        let Stage::Open(channel) = &self.stage else { return false };
        channel.unsent_bytes(self.inner.outbox_mut()) > most
    }
}

impl Protocol for Secured {
    fn name() -> &'static str {
        "nbds"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        self.starved = false;
        if let Stage::Clear = self.stage {
            let event = self.inner.poll(exports);
            if event.is_some() || !self.inner.starts_tls() {
                self.starved = event.is_none() && self.inner.wants_bytes();
                return event;
            }
            if let Err(why) = self.begin() {
                return Some(why.map_or(Event::Closed, Event::Violation));
            }
        }
        match std::mem::replace(&mut self.stage, Stage::Clear) {
            Stage::Shaking(channel, place) => self.shake(channel, place),
            stage @ Stage::Open(_) => {
                self.stage = stage;
                self.poll_open(exports)
            }
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        self.inner.reply(tag, outcome);
    }

    fn wants_room(&self) -> Option<usize> {
        self.inner.wants_room()
    }

    fn give_room(&mut self) {
        self.inner.give_room();
    }
}

impl StreamProtocol for Secured {
    fn inbox_mut(&mut self) -> &mut Inbox {
        match &mut self.stage {
            Stage::Clear => self.inner.inbox_mut(),
            Stage::Shaking(channel, _) | Stage::Open(channel) | Stage::Over(channel) => {
                channel.inbox(self.inner.inbox_mut())
            }
        }
    }

    /// What is asked for here is sent: so it is encrypted now, and not before.
    fn outbox_mut(&mut self) -> &mut Outbox {
        let own = self.inner.outbox_mut();
        match &mut self.stage {
            Stage::Clear => own,
            Stage::Shaking(channel, _) | Stage::Over(channel) => channel.outbox(own),
            Stage::Open(channel) => {
                // What has gone wrong is told again when the channel is opened.
                let _ = channel.seal_all(own);
                if self.ends && own.is_empty() {
                    self.ends = false;
                    let _ = channel.close();
                }
                channel.outbox(own)
            }
        }
    }

    fn wants_bytes(&self) -> bool {
        self.starved
    }
}
