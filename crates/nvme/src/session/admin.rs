//! An admin queue, and so a controller: what it says of itself, how it is enabled and reset, and its events.

mod reserving;

use super::features::{Features, Got};
use super::link::Link;
use super::plan::Disk;
use crate::command::admin::Admin as Command;
use crate::command::fabrics::Fabrics;
use crate::command::{self, Entry, Queue, Sgl, reservation};
use crate::completion::Status;
use crate::controllers::Registered;
use crate::keep_alive::{KeepAlive, STEPS};
use crate::pdu::Pdu;
use crate::pdu::reader::Received;
use crate::properties::{Change, Properties, TIMEOUT_STEPS};
use crate::reservations::notices::Notifications;
use crate::{
    ADMIN_CAPSULE_DATA_MAX, ADMIN_ENTRIES, EVENTS_MAX, LOG_MAX, QUEUE_ENTRIES, TRANSFER_POWER, ZEROES_POWER, discovery,
    identify, log, reservations,
};
use azekura_base::Outbox;
use azekura_frontend::{Event, Exports, PathState, Standing};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// OAES and Asynchronous Event Configuration: attributes of namespaces change.
const NAMESPACE_EVENTS: u32 = 1 << 8;
/// The same: states of access change. Whoever reports these has that (Base section 8.1.1), and here it never happens: a
/// path that becomes a better or a worse one ends, and its host comes again.
const ACCESS_EVENTS: u32 = 1 << 11;
/// The group of access of each namespace: each subsystem has one.
const ACCESS_GROUP: u32 = 1;
/// ANATT: seconds that a change of access takes at the most.
const ACCESS_SECONDS: u8 = 30;
/// ANACAP: optimized and non-optimized are reported, and a namespace's group does not change.
const ACCESS_STATES: u8 = 1 | 1 << 1 | 1 << 6;
/// FR of every controller.
const FIRMWARE: &str = "1";

/// A controller, and the connection of its admin queue.
#[derive(Debug)]
pub(super) struct Admin {
    registered: Registered,
    /// The namespace; absent in a discovery controller.
    disk: Option<Disk>,
    link: Link,
    entries: usize,
    portal: Option<SocketAddr>,
    properties: Properties,
    features: Features,
    /// Event requests that wait for an event.
    requests: VecDeque<u16>,
    /// The namespace has changed: since the host has read the log of that, and it has not heard of it yet.
    has_changed: bool,
    is_unheard: bool,
    standing: Standing,
    notifications: Notifications,
    /// What the front end is to be told.
    told: VecDeque<Event>,
    /// Counts resets and shutdowns.
    ends: u64,
}

impl Admin {
    pub fn new(
        registered: Registered,
        disk: Option<Disk>,
        link: Link,
        entries: u16,
        keep_alive: KeepAlive,
        portal: Option<SocketAddr>,
    ) -> Admin {
        let is_discovery = disk.is_none();
        let kind = if is_discovery { identify::ControllerType::Discovery } else { identify::ControllerType::Io };
        let standing = Standing::new(Some(registered.shared.host.registrant()));
        Admin {
            registered,
            disk,
            link,
            entries: usize::from(entries),
            portal,
            properties: Properties::new(kind, QUEUE_ENTRIES),
            features: Features::new(keep_alive, is_discovery),
            requests: VecDeque::new(),
            has_changed: false,
            is_unheard: false,
            standing,
            notifications: Notifications::default(),
            told: VecDeque::from([Event::Patience(keep_alive.timeout())]),
            ends: 0,
        }
    }

    pub fn is_stalled(&mut self, outbox: &Outbox) -> bool {
        self.link.is_stalled(outbox)
    }

    /// A command has come on any of its queues since this was asked last.
    pub fn was_heard(&self) -> bool {
        self.registered.shared.take_heard()
    }

    /// What the front end is to be told next, once the namespace has been looked at.
    pub fn next_event(&mut self, exports: &dyn Exports, outbox: &mut Outbox) -> Option<Event> {
        if let Some(disk) = &mut self.disk
            && let Some(export) = exports.find(&disk.name).filter(|export| export.id.0 == disk.identity.volume)
        {
            let blocks = disk.blocks_of(&export);
            if std::mem::replace(&mut disk.blocks, blocks) != blocks {
                self.namespace_has_changed();
            }
        }
        self.look_at_reservations(exports);
        self.send_event(outbox);
        self.told.pop_front()
    }

    /// What the host has read of the namespace is not so any more.
    fn namespace_has_changed(&mut self) {
        // One event until the host has read the log (Base section 5.2).
        self.is_unheard = !self.has_changed || self.is_unheard;
        self.has_changed = true;
    }

    fn send_event(&mut self, outbox: &mut Outbox) {
        const NOTICE: u64 = 2;
        let is_wanted = self.features.events & NAMESPACE_EVENTS != 0 && self.properties.is_ready();
        if self.is_unheard
            && is_wanted
            && let Some(id) = self.requests.pop_front()
        {
            self.is_unheard = false;
            self.link.complete(outbox, id, Status::SUCCESS, NOTICE | u64::from(log::CHANGED_NAMESPACES) << 16);
        }
        self.send_reservation_event(outbox);
    }

    /// Nothing that was asked for on I/O queues is under way any more.
    pub fn swept(&mut self, token: u64) {
        if token == self.ends {
            self.quiet();
        }
    }

    fn quiet(&mut self) {
        self.registered.shared.forget_queues();
        self.features.reset();
        (self.has_changed, self.is_unheard) = (false, false);
        self.notifications.reset();
        self.properties.quiet();
    }

    /// Deals with a command.
    pub fn pdu(&mut self, received: &Received, outbox: &mut Outbox, exports: &dyn Exports) -> Result<(), String> {
        let Pdu::Command(entry) = received.pdu else {
            return Err("an admin queue has asked for no data".to_owned());
        };
        let entry = Entry(entry);
        self.registered.shared.heard();
        if self.requests.len() >= self.entries {
            return Err(format!("more than {} commands are under way in a queue", self.entries));
        }
        match self.command(&entry, received, outbox, exports) {
            Ok(()) => {}
            Err(status) => self.link.complete(outbox, entry.id(), status, 0),
        }
        Ok(())
    }

    /// Carries out a command, and completes it unless it fails.
    fn command(
        &mut self,
        entry: &Entry,
        received: &Received,
        outbox: &mut Outbox,
        exports: &dyn Exports,
    ) -> Result<(), Status> {
        if !received.is_intact {
            return Err(Status::TRANSIENT_TRANSPORT_ERROR);
        }
        let admin = match command::Command::of(entry, Queue::Admin)? {
            command::Command::Fabrics(fabrics) => return self.fabrics(entry.id(), fabrics, outbox),
            command::Command::Admin(admin) if self.properties.is_ready() => admin,
            _ => return Err(Status::SEQUENCE_ERROR),
        };
        let id = entry.id();
        match admin {
            Command::Identify { .. } => {
                let data = self.identify(&admin)?;
                self.answer(entry, data, outbox)
            }
            Command::GetLogPage { page, specific, offset, len, retains_event, .. } => {
                // NUMD is how much of the descriptor is used.
                let len = usize::try_from(len).ok().filter(|len| *len <= LOG_MAX).ok_or(Status::INVALID_FIELD)?;
                let data = self.log((page, specific), offset, len, exports)?;
                self.answer(entry, data, outbox)?;
                match page {
                    log::CHANGED_NAMESPACES if !retains_event => self.has_changed = false,
                    log::RESERVATIONS if !retains_event && offset == 0 => self.notifications.was_read(),
                    _ => {}
                }
                Ok(())
            }
            Command::SetFeatures { feature, saves, value, namespace } => {
                if saves {
                    return Err(Status::NOT_SAVEABLE);
                }
                if self.has_reservation_feature(feature) {
                    self.set_reservation_feature(feature, namespace, value)?;
                    return self.done(id, 0, outbox);
                }
                let data = entry.sgl()?.in_capsule(&received.data)?.unwrap_or_default();
                let before = self.features.keep_alive;
                let result = self.features.set(feature, value, &data, &self.registered.shared)?;
                if self.features.keep_alive != before {
                    self.told.push_back(Event::Patience(self.features.keep_alive.timeout()));
                }
                self.done(id, u64::from(result), outbox)
            }
            Command::GetFeatures { feature, select, namespace, .. } if self.has_reservation_feature(feature) => {
                let value = self.reservation_feature(feature, select, namespace)?;
                self.done(id, u64::from(value), outbox)
            }
            Command::GetFeatures { feature, select, value, .. } => {
                match self.features.get(feature, select, value, &self.registered.shared)? {
                    Got::Value(value) => self.done(id, u64::from(value), outbox),
                    Got::Data(data) => self.answer(entry, data, outbox),
                }
            }
            Command::AsynchronousEvent => {
                if self.requests.len() >= EVENTS_MAX {
                    return Err(Status::EVENT_LIMIT);
                }
                self.requests.push_back(id);
                self.send_event(outbox);
                Ok(())
            }
            Command::Abort { queue, command } => self.abort(id, queue, command, outbox),
            Command::KeepAlive => self.done(id, 0, outbox),
        }
    }

    fn done(&mut self, id: u16, result: u64, outbox: &mut Outbox) -> Result<(), Status> {
        self.link.complete(outbox, id, Status::SUCCESS, result);
        Ok(())
    }

    /// Completes a command with data, for which it has to have a descriptor.
    fn answer(&mut self, entry: &Entry, data: Vec<u8>, outbox: &mut Outbox) -> Result<(), Status> {
        match entry.sgl()? {
            Sgl::InCapsule { .. } => Err(Status::SGL_TYPE_INVALID),
            Sgl::Transport { len } if len as usize != data.len() => Err(Status::SGL_LENGTH_INVALID),
            Sgl::Transport { .. } => {
                self.link.complete_with(outbox, entry.id(), data);
                Ok(())
            }
        }
    }

    /// Abort (Base section 5.1). Of commands on I/O queues none is called back: what is with the gateway is carried
    /// out. Event requests end.
    fn abort(&mut self, id: u16, queue: u16, command: u16, outbox: &mut Outbox) -> Result<(), Status> {
        const NOT_ABORTED: u64 = 1;
        let found = self.requests.iter().position(|request| queue == 0 && *request == command);
        if let Some(request) = found.and_then(|at| self.requests.remove(at)) {
            self.link.complete(outbox, request, Status::ABORT_REQUESTED, 0);
            return self.done(id, 0, outbox);
        }
        self.done(id, NOT_ABORTED, outbox)
    }

    fn fabrics(&mut self, id: u16, fabrics: Fabrics, outbox: &mut Outbox) -> Result<(), Status> {
        match fabrics {
            Fabrics::PropertyGet { offset, is_long } => {
                let value = self.properties.get(offset, is_long)?;
                self.done(id, value, outbox)
            }
            Fabrics::PropertySet { offset, is_long, value } => {
                let change = self.properties.set(offset, is_long, value)?;
                match change {
                    Change::No => {}
                    Change::Enabled => self.registered.shared.enable(true),
                    Change::Ends => self.end_queues(),
                }
                self.done(id, 0, outbox)
            }
            // It has connected; and an admin queue is not deleted.
            Fabrics::Connect { .. } => Err(Status::SEQUENCE_ERROR),
            // And a host proves what it knows when it connects, not again.
            Fabrics::Disconnect | Fabrics::AuthenticationSend(_) | Fabrics::AuthenticationReceive(_) => {
                Err(Status::INVALID_OPCODE)
            }
        }
    }

    /// A reset or a shutdown: I/O queues end, and event requests with them.
    fn end_queues(&mut self) {
        self.registered.shared.enable(false);
        self.requests.clear();
        self.ends += 1;
        if self.disk.is_some() {
            self.told.push_back(Event::Disbands(self.ends));
        } else {
            self.quiet();
        }
    }

    fn identify(&self, command: &Command) -> Result<Vec<u8>, Status> {
        let Command::Identify { namespace, structure, command_set, .. } = *command else {
            return Err(Status::INVALID_FIELD);
        };
        let disk = match &self.disk {
            _ if structure == identify::CONTROLLER => return Ok(self.controller().bytes()),
            None => return Err(Status::INVALID_FIELD),
            Some(disk) => disk,
        };
        let is_set =
            matches!(structure, identify::SET_NAMESPACE | identify::SET_CONTROLLER | identify::SET_NAMESPACE_LIST);
        // The NVM command set is the only one.
        if is_set && command_set != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let own = || if namespace == 1 { Ok(()) } else { Err(Status::INVALID_NAMESPACE) };
        let Disk { identity, .. } = disk;
        match structure {
            identify::NAMESPACE => own().map(|()| namespace_of(disk).bytes()),
            identify::INDEPENDENT_NAMESPACE => own().map(|()| namespace_of(disk).independent()),
            identify::SET_NAMESPACE => own().map(|()| vec![0; identify::IDENTIFY_SIZE]),
            identify::DESCRIPTORS => own().map(|()| identify::descriptors(&identity.nguid(), &identity.uuid())),
            identify::NAMESPACE_LIST | identify::SET_NAMESPACE_LIST if namespace >= 0xffff_fffe => {
                Err(Status::INVALID_NAMESPACE)
            }
            identify::NAMESPACE_LIST | identify::SET_NAMESPACE_LIST => Ok(identify::namespace_list([1], namespace)),
            identify::SET_CONTROLLER => Ok(identify::set_controller(TRANSFER_POWER, ZEROES_POWER, 0)),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn controller(&self) -> identify::Controller {
        /// ONCS: Compare, Dataset Management, Write Zeroes, SEL of Get Features, Verify.
        const COMMANDS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 7;
        /// CTRATT: host identifiers of 128 bits.
        const LONG_HOST_ID: u32 = 1;
        /// ONCS: commands of reservations.
        const RESERVATIONS: u16 = 1 << 5;
        let reserves = self.disk.as_ref().is_some_and(|disk| disk.reserves);
        let compares = self.disk.as_ref().is_some_and(|disk| disk.compares);
        let commands = COMMANDS | if reserves { RESERVATIONS } else { 0 };
        let (is_io, shared) = (self.disk.is_some(), &self.registered.shared);
        let serial = self.disk.as_ref().map_or_else(|| "discovery".to_owned(), |disk| disk.identity.serial());
        identify::Controller {
            controller_type: if is_io { identify::ControllerType::Io } else { identify::ControllerType::Discovery },
            serial,
            model: "Azekura volume".to_owned(),
            firmware: FIRMWARE.to_owned(),
            subsystem: shared.subsystem.clone(),
            id: shared.id,
            // Several ports, several controllers, ANA.
            multipath: if is_io { 1 | 1 << 1 | 1 << 3 } else { 0 },
            transfer_power: TRANSFER_POWER,
            shutdown_seconds: TIMEOUT_STEPS / 2,
            events: if is_io { NAMESPACE_EVENTS | ACCESS_EVENTS } else { 0 },
            attributes: LONG_HOST_ID | KeepAlive::ATTRIBUTE,
            event_requests: (EVENTS_MAX - 1) as u8,
            keep_alive_steps: STEPS,
            access_seconds: if is_io { ACCESS_SECONDS } else { 0 },
            access_states: if is_io { ACCESS_STATES } else { 0 },
            access_groups: if is_io { ACCESS_GROUP } else { 0 },
            commands_max: if is_io { QUEUE_ENTRIES } else { ADMIN_ENTRIES },
            namespaces: u32::from(is_io),
            optional_commands: if is_io { commands } else { 0 },
            // Compare and Write.
            fused: u16::from(compares),
            // No write cache; and Flush may be of all namespaces (bits 2:1).
            write_cache: if is_io { 6 } else { 0 },
            capsule_data: ADMIN_CAPSULE_DATA_MAX,
        }
    }

    fn log(
        &self,
        (page, specific): (u8, u8),
        offset: u64,
        len: usize,
        exports: &dyn Exports,
    ) -> Result<Vec<u8>, Status> {
        const ADMIN: [u8; 7] = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18];
        const IO: [u8; 6] = [0x00, 0x01, 0x02, 0x08, 0x09, 0x0c];
        const WRITES: [u8; 3] = [0x01, 0x08, 0x09];
        const PAGES: [u8; 7] = [
            log::SUPPORTED,
            log::ERRORS,
            log::SMART,
            log::FIRMWARE,
            log::CHANGED_NAMESPACES,
            log::EFFECTS,
            log::ACCESS,
        ];
        /// LSP of the page of access: RGO.
        const GROUPS_ONLY: u8 = 1;
        if !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        let reserves = self.disk.as_ref().is_some_and(|disk| disk.reserves);
        let only = |of: &[u8]| if reserves { of.to_vec() } else { Vec::new() };
        let whole = match (page, self.disk.is_some()) {
            (log::ACCESS, true) => log::access(ACCESS_GROUP, 1, self.access_state(), specific & GROUPS_ONLY != 0),
            (log::DISCOVERY, false) => return Ok(discovery::page(exports, self.portal, offset, len)),
            (log::SUPPORTED, true) => log::supported(&[&PAGES[..], &only(&[log::RESERVATIONS])].concat()),
            (log::SUPPORTED, false) => log::supported(&[log::SUPPORTED, log::ERRORS, log::DISCOVERY]),
            (log::ERRORS, _) => log::errors(),
            (log::SMART, true) => log::smart(),
            (log::FIRMWARE, true) => log::firmware(FIRMWARE),
            (log::CHANGED_NAMESPACES, true) => log::changed_namespaces(self.has_changed),
            (log::EFFECTS, true) => log::effects(&ADMIN, &[&IO[..], &only(&reservation::OPCODES)].concat(), &WRITES),
            (log::RESERVATIONS, _) if reserves => self.notifications.page(1),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        let offset = usize::try_from(offset).ok().filter(|offset| *offset <= whole.len());
        Ok(log::part(&whole, offset.ok_or(Status::INVALID_FIELD)?, len))
    }
}

impl Admin {
    fn access_state(&self) -> u8 {
        match self.disk.as_ref().map(|disk| disk.path) {
            Some(PathState::NonOptimized) => log::NON_OPTIMIZED,
            _ => log::OPTIMIZED,
        }
    }
}

fn namespace_of(disk: &Disk) -> identify::Namespace {
    /// NSFEAT: thin, and the optimal sizes are there.
    const THIN_WITH_SIZES: u8 = 1 | 1 << 4;
    /// DLFEAT: deallocated blocks are zeros, and Write Zeroes may deallocate.
    const ZEROS: u8 = 1 | 1 << 3;
    identify::Namespace {
        blocks: disk.blocks,
        used_blocks: disk.blocks,
        block_power: disk.block.power(),
        features: THIN_WITH_SIZES,
        is_shared: true,
        reservations: if disk.reserves { reservations::CAPABILITIES } else { 0 },
        deallocated: ZEROS,
        compare_and_write: 0,
        preferred_blocks: 1 << disk.block.physical_power(),
        access_group: ACCESS_GROUP,
        is_read_only: disk.is_read_only,
        nguid: disk.identity.nguid(),
    }
}
