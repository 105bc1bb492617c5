//! A client's connection to the socket of a volume.

mod control;
mod queues;
mod requests;

use crate::QUEUES_MAX;
use crate::block;
use crate::message::{InflightAt, LogAt, RegionAt, Violation, config_change};
use azekura_base::{Inbox, Outbox, SharedMemory, Slab};
use azekura_frontend::{Event, Export, Exports, Opening, Protocol, Sharing, StreamProtocol, Tag, Wish};
use azekura_gateway::Outcome;
use queues::Queues;
use requests::{Pending, Task};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

/// What the event loop calls the in-flight memory and the log, among regions.
const INFLIGHT: u32 = u32::MAX;
const LOG: u32 = u32::MAX - 1;
/// What the event loop calls the eventfd for what was logged, and the socket for messages of this side, among queues.
const LOG_BELL: u32 = QUEUES_MAX as u32;
const CHANNEL: u32 = LOG_BELL + 1;

/// Memory that is being mapped. Messages wait meanwhile.
enum Loading {
    /// The guest's.
    Regions {
        regions: Vec<(RegionAt, Option<Box<dyn SharedMemory>>)>,
        /// The message that is to be acknowledged.
        acknowledge: Option<u32>,
    },
    /// The record of what is under way.
    Inflight { at: InflightAt, acknowledge: Option<u32> },
    /// The log of what is written to the guest's memory. Its message has an answer in any case.
    Log { at: LogAt, acknowledge: u32 },
}

/// How far a connection is with its volume. The volume is opened for the first ring that is to begin, and not before:
/// where a guest is to be moved to, a client comes minutes earlier, while the guest writes elsewhere.
///
/// | phase | on | next |
/// |---|---|---|
/// | `Arriving` | the volume is known | `Standing` |
/// | `Standing` | a ring has all that it needs | `Opening` |
/// | `Opening` | the volume is this connection's; it is refused | `Open`, rings begin; `Over` |
/// | `Opening`, `Open` | what is written is logged, and no ring runs any more | `Standing`, the volume is left |
/// | any | a breach | `Over` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for its volume to be known.
    Arriving,
    /// The volume can be described, and is not used.
    Standing,
    /// It waits for its volume to be opened.
    Opening,
    Open,
    /// It has broken the protocol.
    Over,
}

/// Another client's wish that all ends which was asked for before.
struct Sweep {
    number: u64,
    waits_for: BTreeSet<u64>,
}

/// A vhost-user client's connection, on a socket that is one volume's: the back-end of a virtio block device.
///
/// Messages are taken one by one, in the order in which they came; those behind one that needs time (memory to be
/// mapped, a ring that is to stand still) wait for it. Requests are taken from rings that have been kicked, of one
/// queue after the other, and are the front end's from then on.
pub struct Connection {
    volume: String,
    cluster: u128,
    phase: Phase,
    /// The volume as it was looked at last.
    export: Option<Export>,
    /// It leaves the volume, which the front end has not been told.
    leaves: bool,
    inbox: Inbox,
    outbox: Outbox,
    descriptors: VecDeque<OwnedFd>,
    wishes: VecDeque<Wish>,
    /// Features that were negotiated, and those of the protocol.
    features: u64,
    protocol_features: u64,
    loading: Option<Loading>,
    queues: Queues,
    has_log_bell: bool,
    /// There is a socket for messages of this side, and the size that the client knows of.
    has_channel: bool,
    told_size: u64,
    /// A ring that is to stand still: the answer to GET_VRING_BASE is owed.
    stopping: Option<usize>,
    /// A request that has been taken and waits for memory.
    pending: Option<Pending>,
    wants_room: Option<usize>,
    has_room: bool,
    /// Requests that the front end has.
    tasks: Slab<Task>,
    /// The request that was handed out last, until the next poll.
    handed_out: Option<u64>,
    /// Requests in a row that were answered at once.
    empty_requests: u32,
    /// It waits for the next turn.
    rests: bool,
    sweeps: Vec<Sweep>,
    trouble: Option<Violation>,
    starved: bool,
}

impl Connection {
    /// A client that has just connected to the socket of `volume`, which may be a snapshot; with a receive buffer of at
    /// most so many bytes. The volume's identity is made of its own number and the cluster's.
    #[must_use]
    pub fn new(stream_bytes_max: usize, volume: &str, cluster: u128) -> Connection {
        let mut inbox = Inbox::new();
        inbox.limit_stream(stream_bytes_max);
        Connection {
            volume: volume.to_owned(),
            cluster,
            phase: Phase::Arriving,
            export: None,
            leaves: false,
            inbox,
            outbox: Outbox::new(),
            descriptors: VecDeque::new(),
            wishes: VecDeque::new(),
            features: 0,
            protocol_features: 0,
            loading: None,
            queues: Queues::default(),
            has_log_bell: false,
            has_channel: false,
            told_size: 0,
            stopping: None,
            pending: None,
            wants_room: None,
            has_room: false,
            tasks: Slab::default(),
            handed_out: None,
            empty_requests: 0,
            rests: false,
            sweeps: Vec::new(),
            trouble: None,
            starved: false,
        }
    }

    fn step(&mut self, exports: &dyn Exports) -> Result<Option<Event>, Violation> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        match self.phase {
            Phase::Over => return Ok(None),
            Phase::Arriving => return self.arrive(exports).map(Some),
            Phase::Standing | Phase::Opening | Phase::Open => {}
        }
        if let Some(index) = self.sweeps.iter().position(|sweep| sweep.waits_for.is_empty()) {
            return Ok(Some(Event::Swept(self.sweeps.remove(index).number)));
        }
        self.take_messages(exports)?;
        if std::mem::take(&mut self.leaves) {
            return Ok(Some(Event::Leaves));
        }
        if self.phase == Phase::Standing && self.queues.wait() {
            self.phase = Phase::Opening;
        }
        if self.phase == Phase::Opening {
            return self.open(exports).map(Some);
        }
        self.look_at_size(exports);
        self.no_page_is_missed()?;
        self.next_request()
    }

    /// The client may describe the volume to its guest from now on.
    fn arrive(&mut self, exports: &dyn Exports) -> Result<Event, Violation> {
        let name = self.volume.clone();
        if let Opening::Refused(why) = exports.open(&name) {
            return Err(Violation::Refused { name, why });
        }
        match exports.find(&name) {
            Some(export) => {
                self.told_size = export.size;
                (self.phase, self.export) = (Phase::Standing, Some(export));
                Ok(Event::Stays)
            }
            None if exports.may_come(&name) => Ok(Event::Missing { name }),
            None => Err(Violation::NoVolume(name)),
        }
    }

    /// What can be written has one client at a time: what is left of an earlier one on this socket ends first, so that
    /// nothing of it lands over what this one writes.
    fn open(&mut self, exports: &dyn Exports) -> Result<Event, Violation> {
        let name = self.volume.clone();
        match exports.open(&name) {
            Opening::Ready(export) if export.is_read_only() || exports.has_nexus() => {
                let is_it = |was: &Export| was.id == export.id && block::offered(was) == block::offered(&export);
                if !self.export.as_ref().is_some_and(is_it) {
                    return Err(Violation::Changed(name));
                }
                let name = export.name.clone();
                (self.phase, self.export) = (Phase::Open, Some(export));
                self.queues.open()?;
                Ok(Event::Opened { name })
            }
            Opening::Ready(export) => {
                Ok(Event::WantsNexus { nexus: format!("vhost-user {name}").into(), export: export.name })
            }
            Opening::Later(name) => Ok(Event::Wanted { name }),
            Opening::Unknown if exports.may_come(&name) => Ok(Event::Missing { name }),
            Opening::Unknown => Err(Violation::NoVolume(name)),
            Opening::Refused(why) => Err(Violation::Refused { name, why }),
        }
    }

    /// Where the client logs what is written, its guest is being moved, and goes on elsewhere once all rings stand: the
    /// volume is left, so that it can be had there. A guest that stands still for another reason keeps its volume.
    fn leave_if_moved(&mut self) {
        if matches!(self.phase, Phase::Opening | Phase::Open) && self.queues.log() && self.queues.stand() {
            (self.phase, self.leaves) = (Phase::Standing, true);
            self.queues.close();
        }
    }

    /// A client that takes messages is told when its volume has another size than it knows of.
    fn look_at_size(&mut self, exports: &dyn Exports) {
        if !self.has_channel || self.phase != Phase::Open {
            return;
        }
        let Some(export) = &mut self.export else { return };
        if let Some(now) = exports.find(&export.name).filter(|now| now.id == export.id)
            && std::mem::replace(&mut self.told_size, now.size) != now.size
        {
            *export = now;
            self.wishes.push_back(Wish::Tell { queue: CHANNEL, bytes: config_change() });
        }
    }

    /// A page that was written and is not logged would be missing where the guest goes.
    fn no_page_is_missed(&self) -> Result<(), Violation> {
        self.queues.regions().missed().map_or(Ok(()), |address| Err(Violation::Log(address)))
    }

    /// To be polled again, in the next turn.
    fn want_poll(&mut self) {
        if !self.wishes.iter().any(|wish| matches!(wish, Wish::Poll)) {
            self.wishes.push_back(Wish::Poll);
        }
    }

    /// Something went wrong where there is nobody to tell.
    fn note(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.trouble.get_or_insert(violation);
            self.want_poll();
        }
    }
}

impl Protocol for Connection {
    fn name() -> &'static str {
        "vhost-user"
    }

    fn poll(&mut self, exports: &dyn Exports) -> Option<Event> {
        (self.starved, self.wants_room) = (false, None);
        if self.handed_out.take().is_some() {
            self.empty_requests = 0;
        }
        self.step(exports).unwrap_or_else(|violation| {
            self.phase = Phase::Over;
            Some(Event::Violation(violation.to_string()))
        })
    }

    fn reply(&mut self, tag: Tag, outcome: Outcome) {
        let result = self.end_request(tag.0, outcome);
        self.note(result);
    }

    fn wants_room(&self) -> Option<usize> {
        self.wants_room
    }

    fn give_room(&mut self) {
        self.has_room = true;
    }

    fn sweep(&mut self, number: u64, _: u8) {
        let waits_for = self.tasks.iter().map(|(tag, _)| tag).collect();
        self.sweeps.push(Sweep { number, waits_for });
        self.want_poll();
    }
}

impl StreamProtocol for Connection {
    fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    fn wants_bytes(&self) -> bool {
        self.starved && !self.inbox.is_filling()
    }

    fn sharing(&mut self) -> Option<&mut dyn Sharing> {
        Some(self)
    }
}

impl Sharing for Connection {
    fn descriptors(&mut self) -> &mut VecDeque<OwnedFd> {
        &mut self.descriptors
    }

    fn next_wish(&mut self) -> Option<Wish> {
        let wish = self.wishes.pop_front();
        if matches!(wish, Some(Wish::Poll)) {
            (self.rests, self.empty_requests) = (false, 0);
        }
        wish
    }

    fn mapped(&mut self, region: u32, memory: Result<Box<dyn SharedMemory>, String>) {
        let result = memory.map_err(Violation::Memory).and_then(|memory| self.loaded(region, memory));
        self.note(result);
    }

    fn rung(&mut self, queue: u32) {
        self.queues.activate(queue as usize);
    }

    fn refused(&mut self, queue: u32, why: String) {
        self.note(Err(if queue == CHANNEL { Violation::Channel(why) } else { Violation::Eventfd(why) }));
    }
}
