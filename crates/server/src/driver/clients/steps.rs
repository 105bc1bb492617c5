//! What happens on clients' connections.

use crate::driver::clients::{BranchClients, ClientConn, ClientSide, Places};
use crate::driver::commands::{Command, Trim};
use crate::driver::dataplane::DataPlane;
use crate::driver::messages::Report;
use crate::driver::stream::Conn;
use crate::listeners::Speak;
use azekura_frontend::{Client, Clients, Close, Context, Effect, Frontend};
use azekura_gateway::Op;
use azekura_reactor::{self as reactor, ConnId, Reactor, Released};

/// Bytes of the receive buffers of all connections of all shards, about: where there are many, each has less.
const RECEIVE_BYTES_MAX: usize = 64 << 20;

/// The sockets, and what goes without, as the front end sees them.
struct Sockets<'a> {
    reactor: &'a mut Reactor<Conn>,
    branches: &'a mut BranchClients,
    places: &'a Places,
}

impl Clients<ClientConn> for Sockets<'_> {
    fn client(&mut self, conn: ClientConn) -> Option<&mut Client> {
        match conn {
            ClientConn::Socket(conn) => match self.reactor.stream(conn) {
                Some(Conn::Client(client)) => Some(client),
                _ => None,
            },
            ClientConn::Branch(number) => self.branches.clients.get_mut(&number),
        }
    }

    fn branch(&mut self, _: ClientConn, client: Client) -> Option<ClientConn> {
        if !self.places.take() {
            return None;
        }
        self.branches.made += 1;
        self.branches.clients.insert(self.branches.made, client);
        Some(ClientConn::Branch(self.branches.made))
    }

    fn unsent_bytes(&mut self, conn: ClientConn) -> usize {
        match conn {
            ClientConn::Socket(conn) => self.reactor.unsent_bytes(conn),
            ClientConn::Branch(_) => 0,
        }
    }
}

impl DataPlane {
    /// Lets the front end work.
    pub(in crate::driver) fn front<T>(
        &mut self,
        act: impl FnOnce(&mut Frontend<ClientConn>, &mut Context<'_, ClientConn>) -> T,
    ) -> T {
        let ClientSide { frontend, branches, places, .. } = &mut self.clients;
        let mut sockets = Sockets { reactor: &mut self.reactor, branches, places };
        let mut context = Context { clients: &mut sockets, backend: &mut self.node, now: self.time };
        act(frontend, &mut context)
    }

    /// Lets the front end take what a client has sent.
    pub(in crate::driver) fn pump(&mut self, conn: ConnId) {
        self.front(|frontend, context| frontend.pump(ClientConn::Socket(conn), context));
    }

    /// A client has connected to a listener, which speaks a protocol.
    pub(in crate::driver) fn client_accepted(&mut self, conn: ConnId, speak: &Speak) {
        if self.has_place(conn) {
            self.serve(conn, speak);
        }
    }

    /// Takes a place for a client, or closes its connection.
    fn has_place(&mut self, conn: ConnId) -> bool {
        let has = self.clients.places.take();
        if !has {
            self.clients.frontend.refuse(self.time);
            self.reactor.close(conn, reactor::Close::AtOnce);
        }
        has
    }

    /// Serves a client that has a place.
    fn serve(&mut self, conn: ConnId, speak: &Speak) {
        if !self.clients.frontend.connect(ClientConn::Socket(conn), self.time) {
            self.clients.places.give_back();
            return self.reactor.close(conn, reactor::Close::AtOnce);
        }
        let stream_bytes = RECEIVE_BYTES_MAX / self.shards.count() / self.clients.frontend.connections();
        // A connection that has ended meanwhile is reported as closed; its stream is of no use.
        let from = self.reactor.peer_address(conn).map(|address| address.ip());
        let client = speak(stream_bytes, self.reactor.own_address(conn)).coming_from(from);
        let _ = self.reactor.install(conn, Conn::Client(Box::new(client)));
        self.look_for_sharing(conn);
    }

    /// A client's connection has ended.
    pub(in crate::driver) fn client_gone(&mut self, conn: ConnId) {
        self.clients.frontend.gone(ClientConn::Socket(conn));
        self.clients.places.give_back();
        self.sharing_ends(conn);
    }

    /// A client's connection is to be closed.
    fn close_client(&mut self, conn: ClientConn, how: Close) {
        let conn = match conn {
            ClientConn::Socket(conn) => conn,
            ClientConn::Branch(number) => {
                let Some(client) = self.clients.branches.clients.remove(&number) else { return };
                self.clients.places.give_back();
                return self.front(|frontend, context| frontend.branch_gone(conn, Some(client), context));
            }
        };
        self.reactor.close(
            conn,
            match how {
                Close::AtOnce => reactor::Close::AtOnce,
                Close::Lingering => reactor::Close::Lingering,
                Close::AfterDrain => reactor::Close::AfterDrain,
            },
        );
    }

    /// A client has connected where one shard accepts for all: they have them in turn.
    pub(in crate::driver) fn deal(&mut self, conn: ConnId, speak: Speak) {
        let turn = self.clients.next_turn(self.shards.count());
        let shard = self.shards.all().nth(turn).cloned();
        match shard.filter(|_| turn != usize::from(self.node.identity().endpoint.shard.0)) {
            // Clients that wait for a shard which stands still count, too.
            Some(shard) if self.has_place(conn) => match self.reactor.release(conn) {
                Some(released) => shard.send(Command::TakeClient(released, speak)),
                // One that has ended is nobody's.
                None => self.clients.places.give_back(),
            },
            Some(_) => {}
            None => self.client_accepted(conn, &speak),
        }
    }

    /// Another shard has accepted a client for this one.
    pub(in crate::driver) fn take_client(&mut self, released: Released, speak: &Speak) {
        match self.reactor.adopt(released) {
            Some(conn) => self.serve(conn, speak),
            None => self.clients.places.give_back(),
        }
    }

    /// Does what the front end asks for.
    pub(in crate::driver) fn perform_for_clients(&mut self) {
        while let Some(effect) = self.clients.frontend.next_effect() {
            match effect {
                Effect::Touched(ClientConn::Socket(conn)) => drop(self.touched.insert(conn)),
                // It has nothing to send.
                Effect::Touched(ClientConn::Branch(_)) => {}
                Effect::Close(conn, how) => self.close_client(conn, how),
                Effect::Attach(volume) => self.report(Report::Attach(volume)),
                Effect::AttachToWrite(volume) => self.report(Report::AttachToWrite(volume)),
                Effect::GiveBack(volume, attachment) => self.report(Report::GiveBack(volume, attachment)),
                Effect::Ended(volume, attachment) => self.report(Report::Ended(volume, attachment)),
                Effect::Nexus(number, news) => self.report(Report::Nexus(number, news)),
                Effect::ReadConfiguration => self.report(Report::ReadConfiguration),
                Effect::Orphaned(token) => self.node.orphan(token),
                Effect::Reserves(token, name, volume, request) => {
                    self.report(Report::Reserves(token, name, volume, request))
                }
                Effect::Heeds(volume, number) => self.report(Report::Heeds(volume, number)),
                Effect::Answered(token, outcome) => self.clients.trimmed(token, &outcome),
                Effect::Warn(what) => self.report(Report::Warn(what)),
            }
        }
    }

    /// Trims a volume for the control plane.
    pub(in crate::driver) fn trim(&mut self, trim: Trim) {
        let Trim { volume, attachment, offset, len, answer } = trim;
        let token = self.clients.trimming(answer);
        self.clients.frontend.submit(token, &volume, attachment, Op::Trim { offset, len }, &mut self.node);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::driver::fixture::{CLIENTS_MAX, Fixture};
    use azekura_nbd::Connection;
    use std::sync::Arc;

    #[test]
    fn clients_that_wait_for_a_shard_which_stands_still_have_places() {
        let mut fixture = Fixture::new();
        let speak: Speak = Arc::new(|bytes, _| Client::new(Box::new(Connection::new(bytes))));
        for _ in 0..4 * CLIENTS_MAX {
            let conn = fixture.accept();
            fixture.plane.deal(conn, Arc::clone(&speak));
        }
        let waiting = fixture.commands_there.try_iter().count();
        let served = fixture.plane.clients.frontend.connections();
        assert_eq!((served, waiting), (CLIENTS_MAX / 2, CLIENTS_MAX / 2), "more than the process may have");
    }
}
