//! Clients' connections: from their requests to the gateway, and back.

use crate::admission::{Admission, Who};
use crate::attaching::Attaching;
use crate::attachment::VolumeUse;
use crate::branches::Branches;
use crate::client::{Client, Ready};
use crate::doors::Doors;
use crate::effect::{Close, Effect};
use crate::exports::{Listings, Volumes};
use crate::heeding::{Era, Heeding};
use crate::limits::{Throttle, Throttled};
use crate::members::Members;
use crate::memory::{Memory, MemoryLimits};
use crate::missing::Missing;
use crate::nexuses::News;
use crate::patience::Patience;
use crate::portals::Portals;
use crate::protocol::{Event, StreamProtocol, Tag};
use crate::request::Request;
use crate::reservations::KnownReservations;
use crate::targets::Targets;
use crate::tries::Tries;
use crate::turns::{TurnLimits, Turns};
use crate::work::{Step, Work};
use crate::{CONNECTION_REQUESTS_MAX, ClientLimits};
use azekura_base::{Generation, Repeats, Slab, VolumeId, Warning};
use azekura_gateway::{Backend, IN_FLIGHT_BYTES_MAX, Outcome, Unsettled, VolumeView, WRITE_WINDOW};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

mod admission;
mod answers;
mod branching;
mod closing;
mod knowing;
mod leaving;
mod nexus;
mod reserving;
mod targets;
mod working;
mod writing;

use closing::Notice;

/// Where the connections are: whoever has their sockets keeps a [`Client`] for each.
pub trait Clients<K> {
    /// The client of a connection; `None` when it has ended.
    fn client(&mut self, conn: K) -> Option<&mut Client>;

    /// Keeps a client whose connection has no socket, because that of its trunk is enough, and gives the connection a
    /// name; `None`: there is no place for one.
    fn branch(&mut self, trunk: K, client: Client) -> Option<K> {
        let _ = (trunk, client);
        None
    }

    /// Bytes that wait to be sent to it, those among them that the system has not taken yet.
    fn unsent_bytes(&mut self, conn: K) -> usize;
}

/// What a front end works on.
pub struct Context<'a, K> {
    /// The connections.
    pub clients: &'a mut dyn Clients<K>,
    /// The volumes.
    pub backend: &'a mut dyn Backend,
    /// The time since some fixed moment.
    pub now: Duration,
}

/// Whose request it is.
enum Owner<K> {
    /// A client's; absent when the client has gone.
    Client {
        waits: Option<(K, Tag, usize)>,
        volume: Arc<VolumeUse>,
        attachment: Generation,
        /// The nexus that is not over before: of a client that has gone.
        member: Option<u64>,
        /// It has taken a turn.
        in_turn: bool,
        /// The volume that a write changes, and the era of its rights.
        writes: Option<(VolumeId, Era)>,
        /// What it takes several steps for.
        work: Option<Box<Work>>,
    },
    /// A step of such a request.
    Step(u64, Step),
    /// One of [`Frontend::submit`].
    Other(u64),
}

/// The clients of a node, sans-IO and for all protocols.
///
/// # How it is driven
///
/// Its owner keeps the sockets and a [`Client`] for each connection, names connections by keys, and tells what
/// happens: [`Frontend::connect`], [`Frontend::pump`] when bytes have come or gone, [`Frontend::gone`], and
/// [`Frontend::complete`] for answers of the gateway. In each turn of its loop it calls [`Frontend::close_late`] and
/// [`Frontend::admit`] before the gateway works, and [`Frontend::settle`] at the end, and performs what
/// [`Frontend::next_effect`] gives. What that asks of the control plane is answered by a call, later.
///
/// # States
///
/// ```text
///   connection:  connected ◄──► waits for a volume to be attached, or for word whether there is one
///                connected ──► open ──► closed, by the client or with a warning
///   request:     announced ──► waits for memory ──► received ──► waits for its turn ──► in the gateway ──► replied
/// ```
///
/// One request of each connection waits for its turn; those behind it wait in the connection, and so in the client. At
/// most [`CONNECTION_REQUESTS_MAX`] others are in the gateway. [`Doors`] closes clients that take longer than
/// [`HANDSHAKE_MAX`](crate::HANDSHAKE_MAX) for a step towards `open`; while they wait for this node their time stands
/// still.
///
/// # What it costs
///
/// For each request a place among those under way, and a look-up of its connection in [`Memory`] and in
/// [`Turns`]. A protocol is called by its trait, once for an event and once for a reply. Payloads are handed on, not
/// copied; [`ClientLimits`] bounds them. A connection that ends is looked for in all requests under way.
pub struct Frontend<K> {
    running: Slab<Owner<K>>,
    /// A step of a request has been taken, and the gateway has not been told to work since.
    has_stepped: bool,
    attaching: Attaching<K>,
    missing: Missing<K>,
    members: Members<K>,
    branches: Branches<K>,
    patience: Patience<K>,
    /// Connections that have opened a volume or a snapshot, and which, as it was when its size or limits
    /// changed last.
    opened: BTreeMap<K, Arc<VolumeView>>,
    listings: Listings,
    reservations: KnownReservations,
    heeding: Heeding,
    /// What those may of whom a key or a name is asked.
    admission: Arc<Admission>,
    portals: Arc<Portals>,
    targets: Arc<Targets>,
    /// Connections that have opened nothing and stay: sessions with targets, among others.
    staying: BTreeSet<K>,
    /// How often what clients see of targets may have changed.
    units_era: u64,
    doors: Doors<K>,
    tries: Tries<K>,
    memory: Memory<K>,
    turns: Turns<K>,
    throttle: Throttle,
    notices: Repeats<Notice>,
    /// Clients' breaches of their protocol, by what is said of them: whoever connects again and again fills no disk.
    violations: Repeats<String>,
    /// Some attachments may have ended.
    look_for_ended: bool,
    /// What the process's gateways have given up.
    unsettled: Arc<Unsettled>,
    /// Volumes that nobody uses, but of which something that was given up may still be applied.
    unsettled_unused: BTreeSet<VolumeUse>,
    effects: VecDeque<Effect<K>>,
}

impl<K: Copy + Ord> Frontend<K> {
    /// No clients yet.
    #[must_use]
    pub fn new(limits: ClientLimits) -> Frontend<K> {
        Frontend {
            running: Slab::default(),
            has_stepped: false,
            attaching: Attaching::default(),
            missing: Missing::default(),
            members: Members::default(),
            branches: Branches::default(),
            patience: Patience::default(),
            opened: BTreeMap::new(),
            listings: Listings::default(),
            reservations: KnownReservations::default(),
            heeding: Heeding::default(),
            admission: Arc::default(),
            portals: Arc::new(Portals::alone().clone()),
            targets: Arc::default(),
            staying: BTreeSet::new(),
            units_era: 0,
            doors: Doors::new(limits.connections_max),
            tries: Tries::default(),
            memory: Memory::new(MemoryLimits { bytes_max: limits.memory_bytes_max, ..MemoryLimits::default() }),
            turns: Turns::new(TurnLimits {
                connection_requests_max: CONNECTION_REQUESTS_MAX,
                window_requests: WRITE_WINDOW as usize,
                window_bytes: IN_FLIGHT_BYTES_MAX,
            }),
            throttle: Throttle::default(),
            notices: Repeats::default(),
            violations: Repeats::default(),
            look_for_ended: false,
            unsettled: Arc::default(),
            unsettled_unused: BTreeSet::new(),
            effects: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect<K>> {
        self.effects.pop_front()
    }

    /// Connections that have opened a volume or a snapshot, and which, as it was when its size or limits
    /// changed last.
    #[must_use]
    pub fn opened(&self) -> &BTreeMap<K, Arc<VolumeView>> {
        &self.opened
    }

    /// How much the clients of volumes with limits have waited for these here; volumes of which none has are not in it.
    #[must_use]
    pub fn throttled(&self) -> &BTreeMap<VolumeId, Throttled> {
        self.throttle.throttled()
    }

    /// Connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.doors.len()
    }

    /// When [`Frontend::close_late`], [`Frontend::admit`] and [`Frontend::settle`] are to be called at the latest.
    #[must_use]
    pub fn next_look(&self) -> Option<Duration> {
        let Frontend { doors, tries, memory, patience, throttle, .. } = self;
        let all = [doors.next_overdue(), tries.next_look(), memory.next_look(), patience.next_look()];
        all.into_iter().chain([throttle.next_look()]).flatten().min()
    }

    /// A client has connected. False when there are too many: the connection is to be closed.
    #[must_use]
    pub fn connect(&mut self, conn: K, now: Duration) -> bool {
        let room = self.doors.connect(conn, now);
        if !room {
            self.refuse(now);
        }
        room
    }

    /// A client was refused because there are too many.
    pub fn refuse(&mut self, now: Duration) {
        let most = self.doors.connections_max();
        let what = format!("refusing a client: {most} are connected, and --client-connections allows no more");
        self.notice(Notice::TooMany, now, &what);
    }

    fn warn(&mut self, warning: Warning) {
        self.effects.push_back(Effect::Warn(Box::new(warning)));
    }

    fn notice(&mut self, notice: Notice, now: Duration, what: &str) {
        if let Some(more) = self.notices.note(&notice, now) {
            self.warn(Warning::new(format!("{what}{more}")));
        }
    }

    /// The connection is gone: nobody waits for its answers.
    pub fn gone(&mut self, conn: K) {
        let number = self.members.number(conn);
        let payer = self.payer(conn);
        let (mut left, mut orphans) = (0, Vec::new());
        for (token, owner) in self.running.iter_mut() {
            if let Owner::Client { waits, member, in_turn, work, .. } = owner
                && let Some((.., memory_bytes)) = waits.take_if(|(owner, ..)| *owner == conn)
            {
                self.memory.answered(payer, memory_bytes);
                *member = number;
                left += 1;
                match work {
                    Some(work) => {
                        work.give_up();
                        orphans.push(token);
                    }
                    // The gateway knows nothing of what is asked of reservations.
                    None => self.effects.extend(in_turn.then_some(Effect::Orphaned(token))),
                }
            }
        }
        self.orphan_steps(&orphans);
        self.nexus_left(conn, left);
        self.doors.gone(conn);
        self.tries.gone(conn);
        self.patience.gone(conn);
        self.memory.gone(conn);
        self.turns.gone(conn);
        self.opened.remove(&conn);
        self.staying.remove(&conn);
        self.missing.forget(conn);
        self.attaching.gone(conn).iter().for_each(|which| self.leave_if_unused(which));
        for branch in self.branches.trunk_gone(conn) {
            self.turns.gone(branch);
            self.effects.push_back(Effect::Close(branch, Close::AtOnce));
        }
    }

    /// Takes what a client has sent, as far as there is memory for it, up to the first request: that waits for its
    /// turn.
    pub fn pump(&mut self, conn: K, cx: &mut Context<'_, K>) {
        self.pump_one(conn, cx);
        if let Some(trunk) = self.branches.trunk_of(conn) {
            self.pump_one(trunk, cx);
        }
    }

    fn pump_one(&mut self, conn: K, cx: &mut Context<'_, K>) {
        if !self.branches.has(conn) {
            self.effects.push_back(Effect::Touched(conn));
        } else if self.is_cut_off(conn, cx) {
            return;
        }
        loop {
            let Some(client) = cx.clients.client(conn) else { return };
            if client.ready.is_some() || client.has_ended || self.tries.is_waiting(conn) {
                return;
            }
            let (protocol, who, host) = client.parts();
            let exports = Volumes {
                all: cx.backend.volumes(),
                keys: cx.backend.keys(),
                listings: &self.listings,
                portals: &self.portals,
                targets: &self.targets,
                units_era: self.units_era,
                attaching: &self.attaching,
                reservations: &self.reservations,
                is_certain: self.missing.is_certain(conn),
                who,
                host,
                admission: &self.admission,
                has_nexus: self.members.has(conn),
                conn,
            };
            let Some(event) = protocol.poll(&exports) else {
                match protocol.wants_room() {
                    Some(bytes) if self.take_room(conn, bytes, protocol, cx.now) => {}
                    Some(_) => return,
                    None => {
                        // A refusal has been told; whoever asks again gets another answer.
                        self.attaching.forget_refusal(conn);
                        self.missing.answered(conn);
                        self.doors.heard(conn, cx.now);
                        return;
                    }
                }
                continue;
            };
            if !self.event(conn, event, cx) {
                return;
            }
        }
    }

    /// Takes memory for a protocol that wants some. True when it is to be polled again: it has the memory, or does
    /// without.
    fn take_room(&mut self, conn: K, bytes: usize, protocol: &mut dyn StreamProtocol, now: Duration) -> bool {
        if !protocol.keeps_room() {
            self.memory.refused(conn);
        }
        if self.memory.take(conn, bytes, now) {
            protocol.give_room();
            return true;
        }
        let renounces = protocol.room_is_late();
        if renounces {
            self.memory.renounced(conn);
        }
        renounces
    }

    /// Deals with what a client has done. False when nothing more is to be taken from it for now.
    fn event(&mut self, conn: K, event: Event, cx: &mut Context<'_, K>) -> bool {
        let Some(client) = cx.clients.client(conn) else { return false };
        match event {
            Event::Missing { .. } => {
                self.doors.answering(conn);
                self.missing.ask(conn);
                self.look_if_asked();
                false
            }
            Event::Wanted { name } => {
                self.doors.answering(conn);
                let which = client.using(&name);
                self.want(conn, which, cx);
                false
            }
            Event::WantsNexus { nexus, export } => {
                let unit = export.as_str().into();
                self.want_nexus(conn, News::Wants { nexus, unit }, &export, cx)
            }
            Event::Leads { party, family, export } => self.want_nexus(conn, News::Leads { party, family }, &export, cx),
            Event::Follows { party, export } => self.want_nexus(conn, News::Follows(party), &export, cx),
            Event::Sweeps(token, why) => self.say_as_member(conn, News::Sweeps(token, why), token, cx),
            Event::Disbands(token) => self.say_as_member(conn, News::Disbands(token), token, cx),
            Event::Swept(sweep) => {
                let number = self.members.swept(conn);
                self.effects.extend(number.map(|number| Effect::Nexus(number, News::Swept(sweep))));
                true
            }
            Event::Patience(period) => {
                self.patience.set(conn, period, cx.now);
                true
            }
            Event::Proved(key) => {
                client.who = Who::Asked(key);
                true
            }
            Event::Named(named) => {
                client.host = named.host.clone().filter(|_| self.admission.has_host_paths());
                if let Who::Host(who) = &mut client.who {
                    *who = Some(named);
                }
                true
            }
            Event::Mistaken(what) => {
                let address = client.from;
                self.mistaken(conn, address, &what, cx.now)
            }
            Event::Stays => {
                self.staying.insert(conn);
                self.doors.opened(conn);
                true
            }
            Event::Opened { name } => {
                self.opens(conn, client, &name, &*cx.backend);
                true
            }
            Event::Leaves => self.leave(conn, client),
            Event::Request { tag, memory_bytes, request } => self.requested(conn, client, tag, memory_bytes, request),
            Event::Reserves { tag, memory_bytes, request } => {
                self.reserves(conn, client, tag, memory_bytes, request);
                true
            }
            Event::Branches(number, end) => {
                self.branch(conn, number, end, cx);
                true
            }
            Event::Tells(number) => {
                self.look_at_branch(conn, number, cx);
                true
            }
            Event::Closed => {
                self.effects.push_back(Effect::Close(conn, Close::AfterDrain));
                false
            }
            Event::Violation(violation) => {
                self.violated(conn, client, &violation, cx.now);
                false
            }
        }
    }

    /// A client has opened an export. It was there a moment ago, in the protocol's poll.
    fn opens(&mut self, conn: K, client: &mut Client, name: &str, backend: &dyn Backend) {
        self.doors.opened(conn);
        let which = client.using(name);
        let (attachment, writes) = self.attaching.opened(conn, &which).unwrap_or((Generation::default(), true));
        (client.volume, client.reads_only) = (Some((Arc::new(which), attachment)), !writes);
        #[cfg(feature = "sabotage")]
        writes.then(|| self.branches.go_on(conn));
        let view = backend.volumes().get(name).cloned();
        self.opened.extend(view.map(|view| (conn, view)));
    }

    /// A client has asked for something. False: that waits for its turn, and nothing more is taken meanwhile.
    fn requested(&mut self, conn: K, client: &mut Client, tag: Tag, memory_bytes: usize, request: Request) -> bool {
        let payer = self.payer(conn);
        self.memory.received(payer, memory_bytes);
        #[cfg(feature = "sabotage")]
        if crate::sabotage::goes_on_with_lost() && !matches!(request, Request::Read { .. }) {
            self.branches.keep(conn, crate::branch::Ask::Request { tag, memory_bytes, request: request.clone() });
        }
        let done = match self.why_barred(conn, client, &request) {
            Some(why) => Err(Outcome::Failed(why)),
            None => request.asked().ok_or(Outcome::Done),
        };
        match done {
            Ok(asked) => {
                if client.reads_only && asked.is_write() {
                    self.memory.answered(payer, memory_bytes);
                    self.turn_away(conn, client);
                    return false;
                }
                client.ready = Some(Ready { tag, memory_bytes, asked, era: self.heeding.now() });
                self.turns.ask(conn, memory_bytes);
                false
            }
            Err(outcome) => {
                self.memory.answered(payer, memory_bytes);
                client.protocol().reply(tag, outcome);
                true
            }
        }
    }
}
