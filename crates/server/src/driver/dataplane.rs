//! The data plane's thread: one io_uring event loop that performs what the [`Node`] asks for.
//!
//! The loop owns every data socket and device of the process. Other threads reach it through [`Handle`]: they send a
//! [`Command`] and wake it. It reports through a channel. It blocks when there is nothing to do.

use crate::bridge::attachments::{Fence, Freeze, Trim};
use crate::bridge::layer_questions::{LayerQuestion, LayerQuestions};
use crate::driver::clock::Clock;
use crate::driver::devices::{OpenDevice, told};
use crate::driver::stream::Conn;
use crate::listeners::Speak;
use crate::opening::{ReadyDevice, opens_late};
use azekura_base::{DeviceId, Endpoint, Generation, IoStatus, LayerId, PgId, Slab, VolumeId, trim_free_buffers};
use azekura_frontend::{ClientLimits, Frontend};
use azekura_gateway::VolumeView;
use azekura_node::{Breakdown, ClusterView, ConnKey, Effect, FoundBlock, Identity, Node};
use azekura_reactor::{Close, CloseReason, ConnId, Event, ListenerId, Reactor, Waker};
use azekura_replica::{GroupConfig, ScrubKind, ScrubReport};
use azekura_store as store;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::{mpsc as tokio_mpsc, oneshot};

/// How often buffers that were not needed meanwhile are given back to the system.
const TRIM_INTERVAL: Duration = Duration::from_secs(1);

/// What other threads ask of the data plane.
pub enum Command {
    /// The cluster changed.
    Configure(Box<ClusterView>),
    /// The cluster has not changed up to this revision.
    Known(u64),
    /// A group's proposed configuration was accepted, in this revision, or was not.
    ProposalDone(PgId, DeviceId, u64, Option<u64>),
    /// Take in a device.
    AddDevice(Box<ReadyDevice>),
    /// A device's log is initialised up to this segment.
    SegmentsReady(DeviceId, u32),
    /// A device's log can't be initialised further, for this reason.
    NotInitialised(DeviceId, String),
    /// A device's map has done what it was asked for.
    MapDone(DeviceId, store::IoId, store::Done),
    /// Keep former users of a volume out.
    Fence(Fence),
    /// Freeze a volume's head layer.
    Freeze(Freeze),
    /// Trim a volume.
    Trim(Trim),
    /// Tell something about layers.
    AskOfLayers(LayerQuestion),
    /// The volume of a name is attached to this node for its clients, or is not, and why.
    Attached(String, Result<(VolumeId, Generation), String>),
    /// A volume is given back.
    GivenBack(String),
    /// The configuration was read up to this revision for [`Report::Look`].
    Looked(u64),
    /// Look at the node.
    Inspect(Box<dyn FnOnce(Look<'_>) + Send>),
    /// Scrub a group that this node is primary of.
    Scrub(PgId, ScrubKind),
    /// Take leave of the other nodes; answered with the number of groups that still wait for something.
    Leave(oneshot::Sender<usize>),
    /// Stop; answered when all devices are closed.
    Stop(oneshot::Sender<()>),
}

/// What can be seen from other threads.
pub struct Look<'a> {
    /// The node.
    pub node: &'a Node,
    /// Clients' connections, and what they have opened.
    pub connections: &'a BTreeMap<ConnId, Arc<VolumeView>>,
}

/// What the data plane tells.
#[derive(Debug)]
pub enum Report {
    /// A group wants its configuration changed.
    Propose(PgId, DeviceId, GroupConfig),
    /// A group was scrubbed.
    Scrubbed(PgId, ScrubReport, Vec<FoundBlock>),
    /// Readers have met a bad block.
    Found(PgId, FoundBlock),
    /// A dropped layer's space on a device has come back.
    LayerDropped(DeviceId, LayerId),
    /// A device has given a layer's blocks to its child.
    LayerMerged(DeviceId, LayerId),
    /// A device has given up its copy of a group that it was to leave.
    CopyForgotten(DeviceId, PgId),
    /// A device is open, or out of service.
    DeviceOpen(DeviceId, Result<(), Breakdown>),
    /// A device has had too many errors.
    DeviceFailing(DeviceId, String),
    /// A device has not answered for so long, or, when false, answers again.
    DeviceHangs(DeviceId, bool, Duration),
    /// A write takes so long on a device, many times longer than on others.
    DeviceSlow(DeviceId, Duration),
    /// Clients want a volume.
    Attach(String),
    /// No client wants this attachment of a volume any more.
    GiveBack(String, Generation),
    /// Clients ask for exports that are not known here: the configuration may have them.
    Look,
    /// Something that people should know.
    Warn(String),
}

/// The way to the data plane from other threads.
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    waker: Waker,
}

impl Handle {
    /// Sends a command. It is lost when the data plane has stopped.
    pub fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        self.waker.wake();
    }

    /// What `see` sees in the node; `None` when the data plane has stopped.
    pub async fn inspect<T: Send + 'static>(&self, see: impl FnOnce(Look<'_>) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Inspect(Box::new(move |look| drop(answer.send(see(look))))));
        answered.await.ok()
    }
}

/// Listening sockets.
#[derive(Default)]
pub struct Listeners {
    /// Where other nodes connect.
    pub peers: Vec<ListenerId>,
    /// Where clients connect, and what they speak there.
    pub clients: Vec<(ListenerId, Speak)>,
}

/// The data plane; lives on its own thread.
pub struct DataPlane {
    pub(super) reactor: Reactor<Conn>,
    pub(super) node: Node,
    pub(super) frontend: Frontend<ConnId>,
    /// Who waits for a trim.
    pub(super) trims: Slab<oneshot::Sender<Result<(), IoStatus>>>,
    listeners: Listeners,
    pub(super) devices: BTreeMap<DeviceId, OpenDevice>,
    pub(super) conns: HashMap<ConnKey, ConnId>,
    dialled: HashMap<ConnId, Endpoint>,
    pub(super) last_key: u64,
    /// Connections to be kicked at the end of the turn.
    pub(super) touched: BTreeSet<ConnId>,
    commands: mpsc::Receiver<Command>,
    sender: mpsc::Sender<Command>,
    reports: tokio_mpsc::UnboundedSender<Report>,
    clock: Clock,
    /// What the clock showed when the events of this turn had come.
    pub(super) time: Duration,
    next_trim: Duration,
    /// Who waits for a fence.
    fences: BTreeMap<u64, oneshot::Sender<Result<(), Vec<PgId>>>>,
    fences_asked: u64,
    layer_questions: LayerQuestions,
    stopping: Option<oneshot::Sender<()>>,
}

impl DataPlane {
    /// A data plane with its listeners, and no devices yet.
    #[must_use]
    pub fn new(
        reactor: Reactor<Conn>,
        identity: Identity,
        listeners: Listeners,
        reports: tokio_mpsc::UnboundedSender<Report>,
        clients: ClientLimits,
    ) -> DataPlane {
        let (sender, commands) = mpsc::channel();
        DataPlane {
            reactor,
            node: Node::new(identity, Duration::ZERO),
            frontend: Frontend::new(clients),
            trims: Slab::default(),
            listeners,
            devices: BTreeMap::new(),
            conns: HashMap::new(),
            dialled: HashMap::new(),
            last_key: 0,
            touched: BTreeSet::new(),
            commands,
            sender,
            reports,
            clock: Clock::start(),
            time: Duration::ZERO,
            next_trim: TRIM_INTERVAL,
            fences: BTreeMap::new(),
            fences_asked: 0,
            layer_questions: LayerQuestions::default(),
            stopping: None,
        }
    }

    /// The way here for other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { commands: self.sender.clone(), waker: self.reactor.waker() }
    }

    /// Puts devices out of service that have not answered for so long.
    pub fn set_device_timeout(&mut self, timeout: Duration) {
        self.node.set_device_timeout(timeout);
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
            let timeout = self.frontend.next_look().map_or(wake, |look| look.min(wake)).saturating_sub(now);
            self.reactor.wait(Some(timeout), &mut events)?;
            // After the events: everything that they bring was there before this time.
            let (now, jump) = self.clock.look();
            self.time = now;
            self.node.advance(now);
            if let Some(jump) = jump {
                // Before anybody is answered: the machine may have stood still, and its clock with it.
                self.node.void_leases();
                let jump = jump.as_millis();
                self.report(Report::Warn(format!("the wall clock has jumped by {jump} ms: leases are taken anew")));
            }
            for event in events.drain(..) {
                self.handle_event(event);
            }
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

    /// Lets the node work and performs what it asks for, until it asks for nothing that is done at once.
    fn turn(&mut self) {
        self.frontend.close_late(self.time);
        self.front(Frontend::admit);
        loop {
            self.node.poll(self.clock.now());
            while let Some(effect) = self.node.next_effect() {
                self.perform(effect);
            }
            if !self.front(Frontend::admit) {
                break;
            }
        }
        self.front(Frontend::settle);
        self.perform_for_clients();
        for conn in std::mem::take(&mut self.touched) {
            self.rearm(conn);
        }
    }

    /// Sends what a connection's outbox holds, and receives more if the connection can take it.
    fn rearm(&mut self, conn: ConnId) {
        if let Some(Conn::Client(_)) = self.reactor.stream(conn) {
            self.front(|frontend, context| frontend.note_traffic(conn, context));
        }
        let ready = match self.reactor.stream(conn) {
            Some(Conn::Client(client)) => client.wants_bytes(),
            Some(Conn::Peer(_)) => {
                self.tell_unsent(conn);
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
            Event::Accepted { listener, conn, .. } => self.accepted(listener, conn),
            Event::Connected { conn } => {
                if let Some(to) = self.dialled.remove(&conn) {
                    let key = self.add_peer(conn);
                    self.node.connected(to, key);
                }
            }
            Event::ConnectFailed { conn, error } => {
                if let Some(to) = self.dialled.remove(&conn) {
                    let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                    self.node.connect_failed(to, refused);
                }
            }
            Event::Received { conn } => match self.reactor.stream(conn) {
                Some(Conn::Client(_)) => self.front(|frontend, context| frontend.pump(conn, context)),
                Some(Conn::Peer(_)) => self.read_peer(conn),
                None => {}
            },
            Event::Sent { conn } => match self.reactor.stream(conn) {
                Some(Conn::Client(_)) => self.front(|frontend, context| frontend.pump(conn, context)),
                Some(Conn::Peer(_)) => drop(self.touched.insert(conn)),
                None => {}
            },
            Event::Closed { conn, reason } => self.closed(conn, &reason),
            Event::DeviceRead { token, result } => self.io_done(token, store::Done::Read(told(result))),
            Event::DeviceWritten { token, result } => self.io_done(token, store::Done::Written(told(result))),
            Event::DeviceSynced { token, result } => self.io_done(token, store::Done::Flushed(told(result))),
            Event::Woken => {
                while let Ok(command) = self.commands.try_recv() {
                    self.command(command);
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Configure(view) => {
                self.node.configure(*view);
                self.front(Frontend::volumes_changed);
            }
            Command::Known(revision) => {
                self.node.known_up_to(revision);
                self.front(Frontend::known);
            }
            Command::ProposalDone(pg, device, version, accepted) => {
                self.node.proposal_done(pg, device, version, accepted);
            }
            Command::AddDevice(device) => self.add_device(*device),
            Command::SegmentsReady(device, segments) => self.node.segments_ready(device, segments),
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
            Command::Trim(trim) => self.trim(trim),
            Command::AskOfLayers(question) => self.layer_questions.ask(&mut self.node, question),
            Command::Attached(volume, outcome) => {
                self.front(|frontend, context| frontend.volume_attached(&volume, outcome, context));
            }
            Command::GivenBack(volume) => self.frontend.volume_given_back(&volume),
            Command::Looked(revision) => self.front(|frontend, context| frontend.looked(revision, context)),
            Command::Inspect(see) => see(Look { node: &self.node, connections: self.frontend.opened() }),
            Command::Scrub(pg, kind) => self.node.scrub(pg, kind),
            Command::Leave(busy) => {
                let _ = busy.send(self.node.leave());
            }
            Command::Stop(stopped) => self.stopping = Some(stopped),
        }
    }

    fn accepted(&mut self, listener: ListenerId, conn: ConnId) {
        let clients = self.listeners.clients.iter().find(|(clients, _)| *clients == listener);
        if let Some(speak) = clients.map(|(_, speak)| Arc::clone(speak)) {
            self.client_accepted(conn, &speak);
        } else {
            let key = self.add_peer(conn);
            self.node.accepted(key);
        }
    }

    fn closed(&mut self, conn: ConnId, reason: &CloseReason) {
        match self.reactor.stream(conn) {
            Some(Conn::Peer(peer)) => {
                let key = peer.key;
                self.conns.remove(&key);
                let other = self.node.other_end(key);
                self.node.closed(key);
                if let CloseReason::Error(error) = reason {
                    let other =
                        other.map_or_else(|| "a node that had not greeted yet".to_owned(), |n| format!("node {n}"));
                    self.report(Report::Warn(format!("the connection with {other} broke: {error}")));
                }
            }
            Some(Conn::Client(_)) => self.frontend.gone(conn),
            None => {
                if let Some(to) = self.dialled.remove(&conn) {
                    self.node.connect_failed(to, false);
                }
            }
        }
        self.touched.remove(&conn);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connect(to, address) => match self.reactor.connect_tcp(address) {
                Ok(conn) => drop(self.dialled.insert(conn, to)),
                Err(error) => {
                    self.report(Report::Warn(format!("can't connect to node {to}: {error}")));
                    self.node.connect_failed(to, false);
                }
            },
            // Only asked for by a node that was told to join others.
            Effect::ConnectLocal(to) => self.node.connect_failed(to, false),
            Effect::Send(key, message) => {
                let Some(conn) = self.conns.get(&key).copied() else { return };
                if let Some(Conn::Peer(peer)) = self.reactor.stream(conn) {
                    azekura_wire::encode(&message, &mut peer.outbox);
                    self.touched.insert(conn);
                }
            }
            Effect::Close(key) => {
                if let Some(conn) = self.conns.remove(&key) {
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
            Effect::AttachmentsEnded => self.frontend.attachments_ended(),
            Effect::Scrubbed(pg, report, found) => self.report(Report::Scrubbed(pg, report, found)),
            Effect::Found(pg, found) => self.report(Report::Found(pg, found)),
            Effect::Propose(pg, device, config) => self.report(Report::Propose(pg, device, config)),
            Effect::LayerDropped(device, layer) => self.report(Report::LayerDropped(device, layer)),
            Effect::LayerMerged(device, layer) => self.report(Report::LayerMerged(device, layer)),
            Effect::CopyForgotten(device, pg) => self.report(Report::CopyForgotten(device, pg)),
            Effect::DeviceOpen(device, result) => self.report(Report::DeviceOpen(device, result)),
            Effect::DeviceOpensLate(device, silence) => self.report(opens_late(device, silence)),
            Effect::DeviceFailing(device, why) => self.report(Report::DeviceFailing(device, why)),
            Effect::DeviceHangs(device, hangs, silence) => self.report(Report::DeviceHangs(device, hangs, silence)),
            Effect::DeviceSlow(device, time) => self.report(Report::DeviceSlow(device, time)),
            Effect::Warn(what) => self.report(Report::Warn(what)),
        }
    }

    pub(super) fn report(&self, report: Report) {
        // Nobody listens any more only while the process is ending.
        let _ = self.reports.send(report);
    }
}
