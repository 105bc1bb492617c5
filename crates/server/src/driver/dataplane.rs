//! A shard of the data plane: a thread with one io_uring event loop that performs what the [`Node`] asks for.
//!
//! The loop owns its sockets and devices. Other threads, those of other shards included, reach it through
//! [`Handle`]: they send a [`Command`] and wake the loop. It reports through a channel, and blocks when there is
//! nothing to do.

use crate::bridge::layer_questions::LayerQuestions;
use crate::driver::clients::{ClientConn, ClientSide, Share};
use crate::driver::clock::Clock;
use crate::driver::commands::{Command, Fence, Freeze, Inspection, ReadyDevice};
use crate::driver::devices::{OpenDevice, device_result};
use crate::driver::local::LocalSide;
use crate::driver::messages::{Handle, Handles, Report, Reports};
use crate::driver::peers::{Dialled, PeerSide};
use crate::driver::stream::Conn;
use crate::listeners::Speak;
use crate::opening::opens_late;
use azekura_base::{DeviceId, PgId, Transport, Warning, trim_free_buffers};
use azekura_frontend::Frontend;
use azekura_node::{Breakdown, Effect, Identity, Node};
use azekura_reactor::{Close, CloseReason, ConnId, Event, ListenerId, Reactor};
use azekura_store as store;
use azekura_transport::Credentials;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often buffers that were not needed meanwhile are given back to the system.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// Listening sockets of a shard.
#[derive(Default)]
pub struct Listeners {
    /// Where other nodes connect to whichever shard.
    pub peers: Vec<ListenerId>,
    /// Where clients connect.
    pub clients: Vec<ClientsListener>,
    /// Those among them that were opened while the node ran, by their sockets' paths.
    pub named: BTreeMap<PathBuf, ListenerId>,
}

/// Where clients connect.
pub struct ClientsListener {
    /// The socket.
    pub listener: ListenerId,
    /// What they speak there.
    pub speak: Speak,
    /// They are dealt out to all shards: else they stay here.
    pub deals: bool,
}

/// What a shard needs to know before it begins.
pub struct Membership {
    /// Who it is.
    pub identity: Identity,
    /// What it proves to others that it has.
    pub credentials: Credentials,
    /// How nodes talk with each other when it begins.
    pub transport: Transport,
    /// Its devices.
    pub devices: Vec<ReadyDevice>,
    /// Devices that have not answered for so long are out of service.
    pub device_timeout: Duration,
    /// Where it reports.
    pub reports: Reports,
    /// All shards of the process, itself included.
    pub shards: Handles,
}

/// A shard of the data plane; lives on its own thread.
///
/// # How it is driven
///
/// Nobody calls it: [`DataPlane::run`] is a loop that is its thread's whole work, and ends with it. Other threads send
/// a [`Command`] through a [`Handle`], which wakes the loop, and hear of a shard by its [`Report`]s. One turn:
///
/// 1. wait for events until the [`Node`] or the [`Frontend`] has to be looked at again;
/// 2. look at the clock, once: what the events bring was there before that time, so no lease begins too late for them;
/// 3. hand each event on: bytes of clients to the front end, those of other nodes through the decoder to the node, what
///    a device has done to its store, and on a wake-up the commands first, then what other shards of the process have
///    sent;
/// 4. let the front end admit requests and the node work ([`Node::poll`]), and perform every [`Effect`], until neither
///    has anything that is done at once;
/// 5. send, once for each connection, what has gathered: in outboxes, and on the links to other shards.
///
/// What is in the same turn goes together: one write of a device's log, one message of a connection, one wake-up of
/// another shard.
///
/// # States
///
/// ```text
///   made ──► running ──► stopped          Command::Stop: devices are closed, and the shard says so
///               │
///               └──► ended                the kernel refuses the ring, or a panic: the whole process ends
///
///   client      accepted ──► dealt to another shard ──► adopted there ──► served ──► closed
///               accepted ──► served                     accepted, adopted ──► refused: no place
///   other node  dialled ──► connected ──► has a key ──► closed      dialled ──► failed
///               accepted ──► has a key ──► handed to the shard that it greets ──► adopted there
///   bell        handed over by a client ──► watched, or kept to be rung ──► forgotten with its client
///   own shard   offered ──► joined ──► closed           one offer at a time for each other shard
///   device      added ──► under the node's eyes, for good; out of service it stays, and its store refuses
/// ```
///
/// A shard has no state of its own beyond who waits for an answer (`fences`, `layer_questions`) and which connections
/// are to be looked at when the turn ends: what requests, groups and stores do is in the node. Before it is made, its
/// sockets are open and its thread waits for the [`Membership`]. A shard that stands still holds up its own clients and
/// groups, and others notice as they notice a node that is silent.
///
/// # What that costs
///
/// Asleep, nothing: no thread polls. Awake, one system call a turn, in which all that the turn asks of the kernel goes
/// along, and one more to wake another shard that sleeps. An event finds its connection by index, a peer's key its
/// connection by one look into a hash map. Payloads are not copied here, and no lock is taken: a command takes a place
/// in a queue, and a message for another shard one in that link's. All commands that have come are done before the next
/// request, so a command must be short; what may block (files, the saved maps, the configuration) is done by other
/// threads.
pub struct DataPlane {
    pub(super) reactor: Reactor<Conn>,
    pub(super) node: Node,
    pub(super) shards: Handles,
    pub(super) clients: ClientSide,
    pub(super) peers: PeerSide,
    pub(super) local: LocalSide,
    pub(super) devices: BTreeMap<DeviceId, OpenDevice>,
    pub(super) listeners: Listeners,
    /// Connections to be kicked at the end of the turn.
    pub(super) touched: BTreeSet<ConnId>,
    commands: mpsc::Receiver<Command>,
    reports: Reports,
    pub(super) clock: Clock,
    /// What the clock showed when what this turn is about had come.
    pub(super) time: Duration,
    next_trim: Duration,
    /// Who waits for a fence.
    fences: BTreeMap<u64, oneshot::Sender<Result<(), Vec<PgId>>>>,
    fences_asked: u64,
    layer_questions: LayerQuestions,
    stopping: Option<oneshot::Sender<()>>,
}

impl DataPlane {
    /// A shard with its sockets, its devices, and its share of what clients may take.
    #[must_use]
    pub fn new(
        reactor: Reactor<Conn>,
        commands: mpsc::Receiver<Command>,
        listeners: Listeners,
        clients: Share,
        membership: Membership,
    ) -> DataPlane {
        let Membership { identity, credentials, transport, devices, device_timeout, reports, shards } = membership;
        let clock = clients.clock;
        let time = clock.now();
        let mut node = Node::new(identity, time);
        node.set_device_timeout(device_timeout);
        node.demand_keys(transport.needs_tls());
        node.share(clients.unsettled.clone());
        node.set_shards(clients.shards);
        node.join(clients.shards);
        let mut data_plane = DataPlane {
            reactor,
            node,
            shards,
            clients: ClientSide::new(identity.endpoint.node, clients),
            peers: PeerSide::new(credentials),
            local: LocalSide::default(),
            devices: BTreeMap::new(),
            listeners,
            touched: BTreeSet::new(),
            commands,
            reports,
            clock,
            time,
            next_trim: time + TRIM_INTERVAL,
            fences: BTreeMap::new(),
            fences_asked: 0,
            layer_questions: LayerQuestions::default(),
            stopping: None,
        };
        devices.into_iter().for_each(|device| data_plane.add_device(device));
        data_plane
    }

    /// The way here for other threads.
    pub(super) fn handle(&self) -> Handle {
        let shard = self.node.identity().endpoint.shard;
        self.shards.of(shard).cloned().expect("a shard is one of those of its process")
    }

    /// Works until told to stop.
    ///
    /// # Errors
    /// When the kernel refuses to go on with the ring.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::new();
        self.turn();
        loop {
            let now = self.clock.now();
            if now >= self.next_trim {
                self.next_trim = now + TRIM_INTERVAL;
                trim_free_buffers();
            }
            let wake = self.node.next_wake();
            let timeout = self.clients.frontend.next_look().map_or(wake, |look| look.min(wake)).saturating_sub(now);
            let timeout = if self.clients.shared.has_to_poll() { Duration::ZERO } else { timeout };
            self.reactor.wait(Some(timeout), &mut events)?;
            // After the events: everything that they bring was there before this time.
            self.see_time();
            for event in events.drain(..) {
                self.handle_event(event);
            }
            self.poll_again();
            self.turn();
            if let Some(stopped) = self.stopping.take() {
                // Everything answered is durable already: there is nothing to wait for.
                drop(self.devices);
                drop(self.reactor);
                let _ = stopped.send(());
                return Ok(());
            }
        }
    }

    /// Looks at the clock: after something was taken in, and before anybody is answered.
    pub(super) fn see_time(&mut self) {
        let (now, jump) = self.clock.look();
        self.time = now;
        self.node.advance(now);
        if let Some(jump) = jump {
            // The machine may have stood still, and its clock with it.
            self.node.void_leases();
            let jump = jump.as_millis();
            self.warn(Warning::new(format!("the wall clock has jumped by {jump} ms: leases are taken anew")));
        }
    }

    /// Lets the node work and performs what it asks for, until it asks for nothing that is done at once.
    fn turn(&mut self) {
        self.clients.frontend.close_late(self.time);
        self.front(Frontend::admit);
        loop {
            self.node.poll(self.clock.now());
            while let Some(effect) = self.node.next_effect() {
                self.perform(effect);
            }
            let told = self.grant_wishes();
            if !(self.front(Frontend::admit) || told) {
                break;
            }
        }
        self.front(Frontend::settle);
        self.perform_for_clients();
        self.flush_local();
        for conn in std::mem::take(&mut self.touched) {
            self.rearm(conn);
        }
    }

    /// Sends what a connection's outbox holds, and receives more if the connection can take it.
    fn rearm(&mut self, conn: ConnId) {
        if let Some(Conn::Client(_)) = self.reactor.stream(conn) {
            self.front(|frontend, context| frontend.note_traffic(ClientConn::Socket(conn), context));
        }
        let ready = match self.reactor.stream(conn) {
            Some(Conn::Client(client)) => client.wants_bytes(),
            Some(Conn::Peer(_)) => {
                if !self.send_to_peer(conn) {
                    return;
                }
                true
            }
            None => return,
        };
        if ready {
            self.reactor.resume_reading(conn);
        } else {
            self.reactor.pause_reading(conn);
            self.reactor.kick(conn);
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Accepted { listener, conn, peer } => self.accepted(listener, conn, peer),
            Event::Connected { conn } => {
                if let Some(dialled) = self.peers.dial_ended(conn) {
                    self.peer_connected(conn, dialled);
                }
            }
            Event::ConnectFailed { conn, error } => {
                if let Some(Dialled { to, .. }) = self.peers.dial_ended(conn) {
                    let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                    self.node.connect_failed(to, refused);
                }
            }
            Event::Received { conn } => match self.reactor.stream(conn) {
                Some(Conn::Client(_)) => self.pump(conn),
                Some(Conn::Peer(_)) => self.read_peer(conn),
                None => {}
            },
            Event::Sent { conn } => match self.reactor.stream(conn) {
                Some(Conn::Client(_)) => self.pump(conn),
                Some(Conn::Peer(_)) => drop(self.touched.insert(conn)),
                None => {}
            },
            Event::Closed { conn, reason } => self.closed(conn, &reason),
            Event::DeviceRead { token, result } => self.io_done(token, store::Done::Read(device_result(result))),
            Event::DeviceWritten { token, result } => self.io_done(token, store::Done::Written(device_result(result))),
            Event::DeviceSynced { token, result } => self.io_done(token, store::Done::Flushed(device_result(result))),
            Event::Rung { bell } => self.rung(bell),
            Event::Woken => {
                while let Ok(command) = self.commands.try_recv() {
                    self.command(command);
                }
                self.read_local();
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Configure(view) => {
                self.peers.floods.follow(&view);
                self.node.configure(view);
                self.front(Frontend::volumes_changed);
            }
            Command::Known(revision) => {
                self.node.known_up_to(revision);
                self.front(Frontend::known);
            }
            Command::Keys(keys) => self.node.set_keys(keys),
            Command::Portals(portals) => self.clients.frontend.set_portals(portals),
            Command::Targets(targets) => self.front(|frontend, context| frontend.set_targets(targets, context)),
            Command::Admit(admission) => self.front(|frontend, context| frontend.admit_by(admission, context)),
            Command::ProposalDone(pg, device, version, accepted) => {
                self.node.proposal_done(pg, device, version, accepted);
            }
            Command::AddDevice(device) => self.add_device(*device),
            Command::SegmentsReady(device, segments, others) => self.node.segments_ready(device, segments, others),
            Command::NotInitialised(device, why) => self.node.device_fails(device, why),
            Command::MapDone(device, io, done) => self.node.store_done(device, io, done),
            Command::Fence(Fence { volume, attachments, groups, patience, answer }) => {
                self.fences_asked += 1;
                self.fences.insert(self.fences_asked, answer);
                self.node.fence(self.fences_asked, volume, attachments, groups, patience);
            }
            Command::Freeze(Freeze { volume, head, revision, groups, patience, answer }) => {
                self.fences_asked += 1;
                self.fences.insert(self.fences_asked, answer);
                self.node.freeze(self.fences_asked, volume, head, revision, groups, patience);
            }
            Command::AskAbout(processes) => {
                processes.into_iter().for_each(|(node, incarnation)| self.node.ask_about(node, incarnation));
            }
            Command::Trim(trim) => self.trim(trim),
            Command::AskOfLayers(question) => self.layer_questions.ask(&mut self.node, question),
            Command::Attached(volume, outcome) => {
                self.front(|frontend, context| frontend.volume_attached(&volume, outcome, context));
            }
            Command::GivenBack(volume) => self.clients.frontend.volume_given_back(&volume),
            Command::Nexus(word) => self.front(|frontend, context| frontend.told(word, context)),
            Command::Reservations(all) => {
                self.front(|frontend, context| frontend.reservations_known(all.as_ref().clone(), context));
            }
            Command::Reserved(token, answer) => {
                self.front(|frontend, context| frontend.reserved(token, answer, context))
            }
            Command::ConfigurationRead(revision) => {
                self.front(|frontend, context| frontend.configuration_read(revision, context))
            }
            Command::TakeClient(released, speak) => self.take_client(released, &speak),
            Command::TakePeer(handed) => self.take_peer(*handed),
            Command::Join(end) => self.joined(end),
            Command::Inspect(see) => {
                let frontend = &self.clients.frontend;
                let (connections, throttled) = (frontend.opened(), frontend.throttled());
                see(Inspection { node: &self.node, connections, throttled });
            }
            Command::Door(wish) => self.door(wish),
            Command::Rekey(wishes, revision) => self.node.rekey(&wishes, revision),
            Command::Scrub(pg, wish) => self.node.scrub(pg, wish),
            Command::Leave(busy) => {
                let _ = busy.send(self.node.leave());
            }
            Command::Stop(stopped) => self.stopping = Some(stopped),
        }
    }

    fn closed(&mut self, conn: ConnId, reason: &CloseReason) {
        match self.reactor.stream(conn) {
            Some(Conn::Peer(peer)) => {
                let (key, from) = (peer.key, peer.from);
                self.peers.remove(key);
                let (about, other) = self.other_end(key, from);
                self.node.closed(key);
                if let CloseReason::Error(error) = reason {
                    self.tell(about, &format!("the connection with {other} broke: {error}"));
                }
            }
            Some(Conn::Client(_)) => self.client_gone(conn),
            None => {
                if let Some(Dialled { to, .. }) = self.peers.dial_ended(conn) {
                    self.node.connect_failed(to, false);
                }
            }
        }
        self.touched.remove(&conn);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connect(to, address, tls) => match self.reactor.connect_tcp(address) {
                Ok(conn) => self.peers.dials(conn, to, tls),
                Err(error) => {
                    self.warn(Warning::new(format!("can't connect to node {to}: {error}")).peer(to));
                    self.node.connect_failed(to, false);
                }
            },
            Effect::ConnectLocal(to) => self.join(to),
            Effect::Send(key, message) if LocalSide::has(key) => self.local.send(key, message),
            Effect::Send(key, message) => {
                let Some(conn) = self.peers.conn(key) else { return };
                if let Some(Conn::Peer(peer)) = self.reactor.stream(conn) {
                    azekura_wire::encode(&message, &mut peer.outbox);
                    self.touched.insert(conn);
                }
            }
            Effect::Close(key) if LocalSide::has(key) => self.local.close(key),
            Effect::Close(key) => {
                if let Some(conn) = self.peers.remove(key) {
                    self.reactor.close(conn, Close::AtOnce);
                }
            }
            Effect::Store(device, effect) => self.store_effect(device, effect),
            Effect::Complete(token, outcome) => {
                self.front(|frontend, context| frontend.complete(token, outcome, context));
            }
            Effect::Fenced(token, result) => {
                if let Some(answer) = self.fences.remove(&token) {
                    // Whoever asked may have given up.
                    let _ = answer.send(result);
                }
            }
            Effect::Compared(token, result) => self.layer_questions.compared(token, result),
            Effect::Measured(token, result) => self.layer_questions.measured(token, result),
            Effect::AttachmentsEnded => self.clients.frontend.attachments_ended(),
            Effect::Scrubbed(pg, wish, report, found) => self.report(Report::Scrubbed(pg, wish, (report, found))),
            Effect::Found(pg, found) => self.report(Report::Found(pg, found)),
            Effect::Propose(pg, device, config) => self.report(Report::Propose(pg, device, config)),
            Effect::LayerDropped(device, layer) => self.report(Report::LayerDropped(device, layer)),
            Effect::LayerMerged(device, layer) => self.report(Report::LayerMerged(device, layer)),
            Effect::CopyForgotten(device, pg) => self.report(Report::CopyForgotten(device, pg)),
            Effect::DeviceOpen(device, result) => self.report(Report::DeviceOpen(device, result)),
            Effect::DeviceOut(device, reason) => {
                self.report(Report::DeviceOpen(device, Err(Breakdown { reason, for_good: false })));
            }
            Effect::DeviceOpensLate(device, silence) => self.report(opens_late(device, silence)),
            Effect::DeviceFailing(device, why) => self.report(Report::DeviceFailing(device, why)),
            Effect::DeviceHangs(device, hangs, silence) => self.report(Report::DeviceHangs(device, hangs, silence)),
            Effect::DeviceSlow(device, time) => self.report(Report::DeviceSlow(device, time)),
            Effect::Warn(what) => self.report(Report::Warn(what)),
        }
    }

    pub(super) fn report(&self, report: Report) {
        self.reports.send(report);
    }

    pub(super) fn warn(&self, warning: Warning) {
        self.report(Report::Warn(Box::new(warning)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::driver::fixture::Fixture;
    use azekura_frontend::ClientLimits;
    use std::num::NonZeroU8;

    #[test]
    fn shards_of_a_process_go_by_one_clock_whenever_they_begin() {
        let share = Share::of(ClientLimits::default(), NonZeroU8::new(2).unwrap());
        let one = Fixture::with(share.clone()).plane;
        std::thread::sleep(Duration::from_millis(20));
        let two = Fixture::with(share).plane;
        let [before, between, after] = [one.clock.now(), two.clock.now(), one.clock.now()];
        assert!(before <= between && between <= after, "{before:?}, {between:?}, {after:?}");
    }
}
