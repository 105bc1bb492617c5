//! Connections of a process that have no clients of their own: parts of sessions.

use super::session::{Session, SessionWire};
use super::{Connection, Line, Shared, Who};
use crate::cluster::events::Event;
use crate::cluster::records::VOLUME_ID;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::report::Invariant;
use azekura_base::HostName;
use azekura_frontend::{Client, Member, News};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// What a client of a host and its session share, and the session: the client's only one with a process.
    pub(super) fn session_of(who: Who, host: Option<HostName>) -> (Shared, Client) {
        let wire = Rc::new(RefCell::new(SessionWire::new(format!("{} {}", who.0, who.1), host)));
        (Shared::Session(Rc::clone(&wire)), Client::new(Box::new(Session::new(wire))))
    }

    /// A process closes a branch of a session, which stays.
    pub(super) fn closed_branch(&mut self, life: Life, line: Line) {
        let Some(at) = self.loop_of_mut(life) else { return };
        let volume = at.front.frontend.opened().get(&line).map(|view| view.id);
        let client = at.front.sockets.clients.remove(&line);
        let trunk = line.trunk().and_then(|trunk| self.connections.all.get(&trunk));
        if let Some(Connection { name, opened: Some((id, attachment)), .. }) = trunk
            && volume == Some(VOLUME_ID)
            && !self.may_be_closed(name, *id, *attachment)
        {
            let what = format!("{life:?} closes {line:?} to {name}, opened as {attachment:?}");
            self.violate(Invariant::Protocol, what);
        }
        self.count("units closed");
        self.front(life, |frontend, context| frontend.branch_gone(line, client, context));
    }

    /// A session or a branch says something that concerns others, on whichever shard of its process they are.
    pub(super) fn heard_of_nexus(&mut self, life: Life, number: u64, news: News) {
        if self.loop_of_mut(life).is_none() {
            return;
        }
        let Some(machine) = self.machines.get_mut(&life.node) else { return };
        machine.nexuses.heard(Member { shard: life.shard, number }, news);
        while let Some(word) = self.machines.get_mut(&life.node).and_then(|machine| machine.nexuses.next_word()) {
            let told = Life { shard: word.member().shard, ..life };
            self.front(told, |frontend, context| frontend.told(word, context));
            self.wake(told);
        }
    }

    /// Whether the client of a session has come again since, to whichever shard of the same process.
    pub(super) fn has_come_again(&self, line: Line) -> bool {
        let Some(former) = self.connections.all.get(&line) else { return false };
        let is_later = |other: &Connection| {
            other.who == former.who && other.name == former.name && other.life.process() == former.life.process()
        };
        self.is_session(line) && self.connections.all.range(line..).skip(1).any(|(_, other)| is_later(other))
    }

    /// What a client has sent on a session comes so much later, whatever has become of the session's units meanwhile.
    pub(crate) fn submit_late(&mut self, line: Line, token: u64, request: azekura_frontend::Request, after: Duration) {
        let Some(connection) = self.connections.all.get_mut(&line) else { return };
        connection.under_way.insert(token);
        connection.wire.ask(token, request, true);
        let (at, life) = (self.now + after, connection.life);
        self.queue.push(at, Event::Late(life, line));
    }

    /// What the network has held back comes.
    pub(crate) fn comes_late(&mut self, life: Life, line: Line) {
        let Some(connection) = self.connections.all.get(&line) else { return };
        if let Shared::Session(wire) = &connection.wire {
            wire.borrow_mut().bring();
        }
        self.front(life, |frontend, context| {
            frontend.pump(line, context);
            frontend.admit(context);
        });
        self.wake(life);
    }

    /// Whether a connection is a session with several units.
    pub(crate) fn is_session(&self, line: Line) -> bool {
        self.connections.all.get(&line).is_some_and(|connection| matches!(connection.wire, Shared::Session(_)))
    }
}
