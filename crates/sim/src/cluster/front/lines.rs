//! What goes over the connections of clients.

use super::plain::{Plain, Stage, Wire};
use super::{Connection, LOOK_MAX, Line, Shared, Who};
use crate::cluster::attachments::INSPECTOR;
use crate::cluster::events::Event;
use crate::cluster::machine::EventLoop;
use crate::cluster::reservations::name_of;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::report::Invariant;
use azekura_base::{Generation, VolumeId};
use azekura_frontend::{Admission, Client, Context, Effect, Frontend, Request, VolumeUse};
use azekura_gateway::Op;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

impl<S: Scene> Cluster<S> {
    /// Lets the front end of a process do something, and does what it asks for.
    pub(crate) fn front(&mut self, life: Life, act: impl FnOnce(&mut Frontend<Line>, &mut Context<'_, Line>)) {
        let clock = self.clock_on(life.node);
        let Some(EventLoop { node, front, .. }) = self.loop_of_mut(life) else { return };
        node.advance(clock);
        let mut context = Context { clients: &mut front.sockets, backend: node, now: clock };
        act(&mut front.frontend, &mut context);
        while let Some(effect) = self.next_front_effect(life) {
            self.perform_for_clients(life, effect);
        }
    }

    fn next_front_effect(&mut self, life: Life) -> Option<Effect<Line>> {
        self.loop_of_mut(life)?.front.frontend.next_effect()
    }

    fn perform_for_clients(&mut self, life: Life, effect: Effect<Line>) {
        match effect {
            Effect::Touched(line) => self.touched(line),
            Effect::Close(line, _) if line.trunk().is_some() => self.closed_branch(life, line),
            Effect::Close(line, _) => self.closed_by_process(line),
            Effect::Attach(which) => self.attach_for_clients(life, which),
            Effect::AttachToWrite(which) => self.attach_to_write(life, which),
            Effect::GiveBack(which, attachment) => self.give_back_for_clients(life, which, attachment),
            // A process has one shard, which has let go already.
            Effect::Ended(..) => {}
            // Of the simulator's clients only sessions have names.
            Effect::Nexus(number, news) => self.heard_of_nexus(life, number, news),
            // What hosts ask of reservations does not go over these connections.
            Effect::Reserves(..) => {}
            Effect::Heeds(_, number) => self.heeds(life, number),
            Effect::ReadConfiguration => {
                let at = match self.configuration.away(life.node, self.now) {
                    None => self.now + self.configuration.delay(),
                    Some(until) => until.min(self.now + LOOK_MAX),
                };
                self.queue.push(at, Event::Look(life));
            }
            Effect::Orphaned(token) => {
                if let Some(shard) = self.loop_of_mut(life) {
                    shard.node.orphan(token);
                }
            }
            Effect::Answered(token, outcome) => S::answered(self, token, outcome),
            Effect::Warn(what) => self.trace.remark(self.now, || format!("{:?} warns: {what}", life.endpoint())),
        }
    }

    /// A process has read the configuration for its clients, or does not reach it.
    pub(crate) fn look(&mut self, life: Life) {
        let reaches = self.configuration.away(life.node, self.now).is_none();
        let revision = reaches.then(|| self.configuration.view().revision);
        self.inform(life);
        self.front(life, |frontend, context| frontend.configuration_read(revision, context));
        self.wake(life);
    }

    /// A client's connection to a process, where it opens a volume or snapshot. `None`: it was refused.
    pub(crate) fn line_to(&mut self, life: Life, who: Who, name: &str) -> Option<Line> {
        let key = (life, who, name.to_owned());
        if let Some(line) = self.connections.by_name.get(&key) {
            return Some(*line);
        }
        self.connections.made += 1;
        let line = Line(self.connections.made);
        let host = if who.0 == "client" { self.reservers.host_of(who.1) } else { None };
        let path_of = if who.0 == "client" { self.holders.host_of(who.1).map(|(_, name)| name) } else { None };
        if path_of.is_some() {
            let admission =
                Admission { is_known: true, open: true, host_paths: true, compares: true, ..Admission::default() };
            self.front(life, |frontend, context| frontend.admit_by(Arc::new(admission), context));
        }
        let (wire, client) = if path_of.is_some() && self.holders.sessions {
            Self::session_of(who, path_of.clone())
        } else {
            let wire = Rc::new(RefCell::new(Wire::new(name, host.map(name_of), path_of.clone())));
            (Shared::Plain(Rc::clone(&wire)), Client::new(Box::new(Plain::new(wire))))
        };
        let clock = self.clock_on(life.node);
        let front = &mut self.loop_of_mut(life)?.front;
        if !front.frontend.connect(line, clock) {
            self.violate(Invariant::Liveness, format!("{life:?} takes no more clients"));
            return None;
        }
        front.sockets.clients.insert(line, client);
        let which = VolumeUse { volume: key.2.clone(), host: path_of };
        let connection = Connection {
            life,
            who,
            name: key.2.clone(),
            which,
            wire,
            opened: None,
            under_way: BTreeSet::new(),
            abandoned: None,
            left: BTreeSet::new(),
        };
        self.connections.all.insert(line, connection);
        self.connections.by_name.insert(key, line);
        self.front(life, |frontend, context| frontend.pump(line, context));
        self.connections.all.contains_key(&line).then_some(line)
    }

    /// A client asks for something on its connection. It is answered with `token`.
    pub(crate) fn submit(&mut self, line: Line, token: u64, request: Request) {
        let Some(life) = self.connections.life(line) else { return };
        self.submit_quietly(line, token, request);
        self.wake(life);
    }

    /// The same, and the process takes its next turn when it would have done so anyway.
    pub(crate) fn submit_quietly(&mut self, line: Line, token: u64, request: Request) {
        let Some(connection) = self.connections.all.get_mut(&line) else { return };
        let life = connection.life;
        connection.under_way.insert(token);
        connection.wire.ask(token, request, false);
        self.front(life, |frontend, context| {
            frontend.pump(line, context);
            frontend.admit(context);
        });
    }

    /// Somebody looks at what a volume holds, whoever has it.
    pub(crate) fn inspect(&mut self, life: Life, volume: &str, token: u64, op: Op) {
        self.front(life, |frontend, context| frontend.submit(token, volume, INSPECTOR, op, &mut *context.backend));
        self.wake(life);
    }

    /// There may be answers for a client.
    fn touched(&mut self, line: Line) {
        let Some(connection) = self.connections.all.get_mut(&line) else { return };
        let (stage, (answers, turned_back)) = (connection.wire.stage(), connection.wire.receive());
        match stage {
            Stage::Open(volume, attached) if connection.opened.is_none() => {
                let attachment =
                    if attached { self.holders.attached_as(connection.life, &connection.which) } else { None };
                connection.opened = Some((volume, attachment.unwrap_or_default()));
            }
            Stage::Refused(why) => {
                let (life, name) = (connection.life, connection.name.clone());
                self.trace.remark(self.now, || format!("{life:?} refuses {name}: {why}"));
                return self.hang_up(line);
            }
            // Its unit was lost, and is opened again.
            Stage::Opening => connection.opened = None,
            Stage::Open(..) => {}
        }
        let under_way = &mut connection.under_way;
        // To what was abandoned nobody listens.
        let heard: Vec<_> = answers.into_iter().filter(|(token, _)| under_way.remove(token)).collect();
        let unanswered: Vec<u64> = turned_back.into_iter().filter(|token| under_way.remove(token)).collect();
        heard.into_iter().for_each(|(token, outcome)| S::answered(self, token, outcome));
        unanswered.into_iter().for_each(|token| S::unanswered(self, token));
    }

    /// A process closes a connection: because its attachment has ended otherwise than by being given back, or what it
    /// has opened is gone.
    fn closed_by_process(&mut self, line: Line) {
        let Some(connection) = self.connections.all.get(&line) else { return };
        let Connection { life, name, opened, .. } = connection;
        let by_right = self.has_come_again(line)
            || opened.is_some_and(|(id, attachment)| self.may_be_closed(name, id, attachment));
        let what = format!("{life:?} closes the connection to {name}, opened as {opened:?}");
        self.trace.remark(self.now, || what.clone());
        if !by_right {
            return self.violate(Invariant::Protocol, what);
        }
        self.hang_up(line);
    }

    /// Whether a connection that has opened this under this attachment may be closed.
    pub(super) fn may_be_closed(&self, name: &str, id: VolumeId, attachment: Generation) -> bool {
        let is_there = self.configuration.view().volumes.get(name).is_some_and(|volume| volume.id == id);
        self.holders.has_ended(id, attachment) || self.holders.reads(id, attachment) || !is_there
    }

    /// A client goes on without a connection, of which the process does not know: the network between them is cut, and
    /// what was asked for is carried out.
    pub(crate) fn abandon(&mut self, line: Line) {
        for token in self.connections.abandon(line, self.now) {
            S::unanswered(self, token);
        }
    }

    /// Processes notice which connections were abandoned so long ago.
    pub(crate) fn notice_abandoned(&mut self, after: Duration) {
        for line in self.connections.abandoned_before(self.now.saturating_sub(after)) {
            self.hang_up(line);
        }
    }

    /// A client's connection ends: what it has asked for is not answered any more.
    pub(crate) fn hang_up(&mut self, line: Line) {
        let Some(connection) = self.connections.remove(line) else { return };
        if let Some(at) = self.loop_of_mut(connection.life) {
            at.front.sockets.clients.remove(&line);
        }
        self.front(connection.life, |frontend, _| frontend.gone(line));
        connection.under_way.into_iter().for_each(|token| S::unanswered(self, token));
    }

    /// The gateways of a life are gone, and with them the answers.
    pub(crate) fn clients_lose(&mut self, life: Life) {
        self.connections.lose(life).into_iter().for_each(|token| S::unanswered(self, token));
        S::clients_gone(self, life);
    }
}
