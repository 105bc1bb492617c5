//! What protocols of clients ask for that share memory with this process.

use crate::driver::dataplane::DataPlane;
use crate::driver::stream::Conn;
use azekura_base::{SharedMemory, Warning};
use azekura_frontend::{Sharing, Wish};
use azekura_reactor::{BellId, Close, ConnId, Line, MappedMemory};

impl DataPlane {
    fn sharing(&mut self, conn: ConnId) -> Option<&mut dyn Sharing> {
        match self.reactor.stream(conn) {
            Some(Conn::Client(client)) => client.protocol().sharing(),
            _ => None,
        }
    }

    /// A client's protocol is there.
    pub(in crate::driver) fn look_for_sharing(&mut self, conn: ConnId) {
        if self.sharing(conn).is_some() {
            self.clients.shared.add(conn);
        }
    }

    /// The connection of a client has ended.
    pub(in crate::driver) fn sharing_ends(&mut self, conn: ConnId) {
        let bells = self.clients.shared.gone(conn);
        bells.into_iter().for_each(|bell| self.reactor.remove_bell(bell));
    }

    /// A client has rung.
    pub(in crate::driver) fn rung(&mut self, bell: BellId) {
        // One that was forgotten in the same turn is nobody's.
        let Some((conn, queue)) = self.clients.shared.owner(bell) else { return };
        if let Some(sharing) = self.sharing(conn) {
            sharing.rung(queue);
        }
        self.pump(conn);
    }

    /// Polls those protocols that have asked for that in the last turn.
    pub(in crate::driver) fn poll_again(&mut self) {
        for conn in self.clients.shared.take_again() {
            self.pump(conn);
        }
    }

    /// Does what these protocols ask for. True when one of them was told something, and polled for that.
    pub(in crate::driver) fn grant_wishes(&mut self) -> bool {
        let mut told = false;
        for conn in self.clients.shared.conns() {
            let mut news = false;
            while let Some(wish) = self.sharing(conn).and_then(Sharing::next_wish) {
                news |= self.grant(conn, wish);
            }
            if news {
                self.pump(conn);
            }
            told |= news;
        }
        told
    }

    /// True when the protocol was told something.
    fn grant(&mut self, conn: ConnId, wish: Wish) -> bool {
        let (queue, bell) = match wish {
            Wish::Map { region, file, offset, len } => {
                let memory = MappedMemory::new(&file, offset, len);
                let memory = memory.map(|memory| -> Box<dyn SharedMemory> { Box::new(memory) });
                if let Some(sharing) = self.sharing(conn) {
                    sharing.mapped(region, memory.map_err(|error| error.to_string()));
                }
                return true;
            }
            Wish::Ring { queue } => {
                let kept = self.clients.shared.kept(conn, queue);
                kept.into_iter().for_each(|bell| self.reactor.ring_bell(bell));
                return false;
            }
            Wish::Lend { bytes, len } => {
                // Without it the client would wait for an answer for ever.
                if let Err(error) = self.reactor.lend(conn, &bytes, len) {
                    self.warn(Warning::new(format!("closing a client's connection: can't lend it memory: {error}")));
                    self.reactor.close(conn, Close::AtOnce);
                }
                return false;
            }
            Wish::Tell { queue, bytes } => {
                self.clients.shared.tell(conn, queue, &bytes);
                return false;
            }
            Wish::Poll => {
                self.clients.shared.poll_again(conn);
                return false;
            }
            Wish::Forget { queue } => {
                let bells = self.clients.shared.forget(conn, queue);
                bells.for_each(|bell| self.reactor.remove_bell(bell));
                return false;
            }
            Wish::Reach { queue, socket } => {
                let line = Line::new(socket).map(|line| self.clients.shared.reach(conn, queue, line));
                (queue, line.map(|()| None))
            }
            Wish::Hear { queue, eventfd } => {
                let bell = self.reactor.watch_bell(eventfd);
                (queue, bell.map(|bell| self.clients.shared.hear(conn, queue, bell)))
            }
            Wish::Keep { queue, eventfd } => {
                let bell = self.reactor.add_bell(eventfd);
                (queue, bell.map(|bell| self.clients.shared.keep(conn, queue, bell)))
            }
        };
        match bell {
            Ok(former) => {
                former.into_iter().for_each(|bell| self.reactor.remove_bell(bell));
                false
            }
            Err(error) => {
                if let Some(sharing) = self.sharing(conn) {
                    sharing.refused(queue, error.to_string());
                }
                true
            }
        }
    }
}
