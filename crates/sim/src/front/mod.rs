//! Clients' connections. Whatever a run's clients ask goes through the front end of a process
//! ([`azekura_frontend::Frontend`]): it attaches what they open, lets their requests in, gives volumes back, and closes
//! the connections to what has ended or is gone. Only the bytes between a client and the process are left out.

mod plain;

use crate::attachments::INSPECTOR;
use crate::events::{Event, Life};
use crate::fsx;
use crate::lost;
use crate::machine::Machine;
use crate::report::Invariant;
use crate::snapshots::relay;
use crate::world::World;
use azekura_base::{Generation, VolumeId};
use azekura_frontend::{Client, ClientLimits, Clients, Context, Effect, Frontend, Request};
use azekura_gateway::Op;
use plain::{Plain, Stage, Wire};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::rc::Rc;
use std::time::Duration;

/// A process that does not reach the configuration store reads nothing of it within this time.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// A client's connection; no two of a run have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line(u64);

/// Whose connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// One of the clients that all use one volume.
    Client(usize),
    /// Whoever reads snapshots.
    Reader,
    /// The clients that write one after the other.
    Relay,
    /// Those of the volume that is lost for a while.
    Lost,
    /// The one that does everything, with a volume of this number.
    Fsx(VolumeId),
}

/// The front end of a process.
pub(crate) struct Front {
    frontend: Frontend<Line>,
    sockets: Sockets,
}

impl Front {
    pub(crate) fn new() -> Front {
        Front { frontend: Frontend::new(ClientLimits::default()), sockets: Sockets(BTreeMap::new()) }
    }

    /// When it wants to look again.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.frontend.next_look()
    }
}

struct Sockets(BTreeMap<Line, Client>);

impl Clients<Line> for Sockets {
    fn client(&mut self, line: Line) -> Option<&mut Client> {
        self.0.get_mut(&line)
    }

    fn unsent_bytes(&mut self, _: Line) -> usize {
        0
    }
}

/// A connection as its client has it.
struct Connection {
    life: Life,
    who: Who,
    name: String,
    wire: Rc<RefCell<Wire>>,
    /// What it has opened, and the attachment that its requests carry.
    opened: Option<(VolumeId, Generation)>,
    /// Requests without an answer.
    under_way: BTreeSet<u64>,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Connections {
    all: BTreeMap<Line, Connection>,
    by_name: BTreeMap<(Life, Who, String), Line>,
    made: u64,
}

impl Connections {
    fn remove(&mut self, line: Line) -> Option<Connection> {
        let connection = self.all.remove(&line)?;
        self.by_name.remove(&(connection.life, connection.who, connection.name.clone()));
        Some(connection)
    }

    /// A process is gone, and its clients' connections with it. Gives the requests that were under way.
    pub(crate) fn lose(&mut self, life: Life) -> Vec<u64> {
        let all = self.all.iter().filter(|(_, connection)| connection.life == life);
        let all: Vec<Line> = all.map(|(line, _)| *line).collect();
        all.into_iter().filter_map(|line| self.remove(line)).flat_map(|connection| connection.under_way).collect()
    }

    /// The process at the other end; `None` when the connection has ended.
    pub(crate) fn life(&self, line: Line) -> Option<Life> {
        self.all.get(&line).map(|connection| connection.life)
    }

    /// What a connection has opened, and the attachment that its requests carry.
    pub(crate) fn opened(&self, line: Line) -> Option<(VolumeId, Generation)> {
        self.all.get(&line)?.opened
    }
}

impl World {
    /// Lets the front end of a process do something, and does what it asks for.
    pub(crate) fn front(&mut self, life: Life, act: impl FnOnce(&mut Frontend<Line>, &mut Context<'_, Line>)) {
        if self.life_of(life.node) != Some(life) {
            return;
        }
        let Some(machine) = self.machines.get_mut(&life.node) else { return };
        let clock = machine.clock(self.now);
        let Machine { node: Some(node), front, .. } = machine else { return };
        node.advance(clock);
        let mut context = Context { clients: &mut front.sockets, backend: node, now: clock };
        act(&mut front.frontend, &mut context);
        while let Some(effect) = self.next_front_effect(life) {
            self.perform_for_clients(life, effect);
        }
    }

    fn next_front_effect(&mut self, life: Life) -> Option<Effect<Line>> {
        self.life_of(life.node).filter(|now| *now == life)?;
        self.machines.get_mut(&life.node)?.front.frontend.next_effect()
    }

    fn perform_for_clients(&mut self, life: Life, effect: Effect<Line>) {
        match effect {
            Effect::Touched(line) => self.touched(line),
            Effect::Close(line, _) => self.closed_by_process(line),
            Effect::Attach(name) => self.attach_for_clients(life, name),
            Effect::GiveBack(name, attachment) => self.give_back_for_clients(life, name, attachment),
            Effect::Look => {
                let at = match self.configuration.away(life.node, self.now) {
                    None => self.now + self.configuration.delay(),
                    Some(until) => until.min(self.now + LOOK_MAX),
                };
                self.queue.push(at, Event::Look(life));
            }
            Effect::Answered(token, outcome) => self.completed(token, outcome),
            Effect::Warn(what) => self.trace.remark(self.now, || format!("{:?} warns: {what}", life.node)),
        }
    }

    /// A process has read the configuration for its clients, or does not reach it.
    pub(crate) fn look(&mut self, life: Life) {
        let reaches = self.configuration.away(life.node, self.now).is_none();
        let revision = if reaches { self.configuration.view().revision } else { 0 };
        self.inform(life);
        self.front(life, |frontend, context| frontend.looked(revision, context));
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
        let wire = Rc::new(RefCell::new(Wire::new(name)));
        let machine = self.machines.get_mut(&life.node)?;
        let clock = machine.clock(self.now);
        if !machine.front.frontend.connect(line, clock) {
            self.violate(Invariant::Liveness, format!("{life:?} takes no more clients"));
            return None;
        }
        machine.front.sockets.0.insert(line, Client::new(Box::new(Plain::new(Rc::clone(&wire)))));
        let connection = Connection { life, who, name: key.2.clone(), wire, opened: None, under_way: BTreeSet::new() };
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
        connection.wire.borrow_mut().ask(token, request);
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
        let (stage, answers) = {
            let wire = &mut *connection.wire.borrow_mut();
            (wire.stage.clone(), take(&mut wire.answers))
        };
        match stage {
            Stage::Open(volume, attached) if connection.opened.is_none() => {
                let attachment = if attached { self.holders.told(connection.life, &connection.name) } else { None };
                connection.opened = Some((volume, attachment.unwrap_or_default()));
            }
            Stage::Refused(why) => {
                let (life, name) = (connection.life, connection.name.clone());
                self.trace.remark(self.now, || format!("{life:?} refuses {name}: {why}"));
                return self.hang_up(line);
            }
            _ => {}
        }
        for (token, _) in &answers {
            connection.under_way.remove(token);
        }
        answers.into_iter().for_each(|(token, outcome)| self.completed(token, outcome));
    }

    /// A process closes a connection: because its attachment has ended otherwise than by being given back, or what it
    /// has opened is gone.
    fn closed_by_process(&mut self, line: Line) {
        let Some(connection) = self.connections.all.get(&line) else { return };
        let Connection { life, name, opened, .. } = connection;
        let is_there = |id| self.configuration.view().volumes.get(name).is_some_and(|volume| volume.id == id);
        let by_right = opened.is_some_and(|(id, attachment)| self.holders.has_ended(id, attachment) || !is_there(id));
        let what = format!("{life:?} closes the connection to {name}, opened as {opened:?}");
        self.trace.remark(self.now, || what.clone());
        if !by_right {
            return self.violate(Invariant::Protocol, what);
        }
        self.hang_up(line);
    }

    /// A client's connection ends: what it has asked for is not answered any more.
    pub(crate) fn hang_up(&mut self, line: Line) {
        let Some(connection) = self.connections.remove(line) else { return };
        if self.life_of(connection.life.node) == Some(connection.life) {
            let machine = self.machines.get_mut(&connection.life.node);
            machine.into_iter().for_each(|machine| drop(machine.front.sockets.0.remove(&line)));
        }
        self.front(connection.life, |frontend, _| frontend.gone(line));
        connection.under_way.into_iter().for_each(|token| self.unanswered(token));
    }

    /// The gateways of a life are gone, and with them the answers.
    pub(crate) fn clients_lose(&mut self, life: Life) {
        self.connections.lose(life).into_iter().for_each(|token| self.unanswered(token));
        self.lost_loses(life);
        self.inspections_end(life);
    }

    fn unanswered(&mut self, token: u64) {
        match token {
            lost::TOKENS.. => self.lost_unanswered(token),
            fsx::client::TOKENS.. => self.fsx_unanswered(token),
            relay::TOKENS.. => self.relay_unanswered(token),
            _ => self.operation_unanswered(token),
        }
    }
}
