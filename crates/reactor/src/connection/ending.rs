//! How connections end: at once, when all is sent, or when the peer has closed, too.

use super::{Close, State};
use crate::{CloseReason, ConnId, Event, Reactor, Stream, socket};
use azekura_base::Outbox;
use std::mem;
use std::time::{Duration, Instant};

impl<S: Stream> Reactor<S> {
    /// Closes a connection, at once or when its outbox has been sent; [`Event::Closed`] follows, with the reason
    /// `Local` unless the connection breaks before. Does nothing to an ended one.
    pub fn close(&mut self, conn: ConnId, when: Close) {
        let Some(index) = self.connections.index(conn.0) else { return };
        let connection = self.connections.at(index);
        match (when, connection.state) {
            (Close::AfterDrain, State::Open) if connection.stream.is_some() => {
                connection.state = State::Draining;
                self.mark_dirty(index);
            }
            (Close::Lingering, State::Open | State::Draining) if connection.sending.is_some() => {
                if let Some(stream) = &mut connection.stream {
                    *stream.outbox() = Outbox::new();
                }
                connection.state = State::Draining;
                self.after_send(index);
            }
            // Somebody wanted the same before, and it is being done.
            (Close::AfterDrain, State::Draining | State::Lingering) | (Close::Lingering, State::Lingering) => {}
            _ => self.end(index, CloseReason::Local),
        }
    }

    /// Ends the lingering connections whose time is over. Returns the time until the next one's is.
    pub(crate) fn end_lingering(&mut self) -> Option<Duration> {
        let now = (!self.lingering.is_empty()).then(Instant::now)?;
        while let Some((until, conn)) = self.lingering.front() {
            if *until > now {
                return Some(*until - now);
            }
            if let Some(index) = self.connections.index(conn.0) {
                self.end(index, CloseReason::Local);
            }
            self.lingering.pop_front();
        }
        None
    }

    /// Ends a connection with its last event.
    pub(super) fn end(&mut self, index: u32, reason: CloseReason) {
        let conn = ConnId(self.connections.token(index));
        self.end_with(index, Event::Closed { conn, reason });
    }

    pub(super) fn end_with(&mut self, index: u32, last: Event) {
        let connection = self.connections.at(index);
        if connection.state == State::Ended {
            return;
        }
        connection.state = State::Ended;
        match connection.connecting {
            Some(ticket) => self.ring.cancel(ticket),
            None => socket::shut(&connection.socket),
        }
        self.ready.push(last);
        self.ending.push(index);
    }

    /// Voids the ids of the connections whose last event the previous wait delivered, and drops their streams. None of
    /// them is in the dirty list, which [`Reactor::start_kicked`] has emptied.
    pub(crate) fn forget_ended(&mut self) {
        let mut ended = mem::take(&mut self.ended);
        for index in ended.drain(..) {
            self.connections.void(index);
            let connection = self.connections.at(index);
            connection.stream = None;
            connection.forgotten = true;
            self.free_if_unused(index);
        }
        self.ended = ended;
    }

    /// Frees the slot of a forgotten connection when the kernel is done with it.
    pub(super) fn free_if_unused(&mut self, index: u32) {
        let connection = self.connections.at(index);
        if connection.in_flight == 0 && connection.forgotten {
            self.connections.take(index);
        }
    }
}
