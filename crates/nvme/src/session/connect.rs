//! Connect (Base section 6.3): what a connection becomes a queue of.

use crate::command::Entry;
use crate::command::fabrics::{ConnectData, Fabrics};
use crate::completion::Status;
use crate::controllers::{Controllers, NoQueue, Registered, Shared};
use crate::keep_alive::KeepAlive;
use crate::names::{DISCOVERY, Host, party, volume_name};
use crate::pdu::reader::Received;
use crate::{QUEUE_ENTRIES, QUEUES_MAX};
use azekura_base::{ChapSecrets, GrantId, HostName};
use azekura_frontend::{Admittance, Event, Export, Exports, Named, Opening};
use std::sync::Arc;

/// What a connection has become.
#[derive(Debug)]
pub(super) enum Queue {
    /// A controller's admin queue; without an export it is a discovery controller's.
    Admin(Registered, Option<Export>, KeepAlive),
    /// An I/O queue.
    Io(Arc<Shared>, Export),
}

/// What a step of Connect comes to.
#[derive(Debug)]
pub(super) enum Step {
    /// The front end is to do something first; then the same is asked again.
    Waits(Event),
    /// The host has to prove that it knows a secret, and is let in by this grant then.
    Proves(GrantId, Arc<ChapSecrets>),
    /// It fails: with this in dword 0.
    Fails(Status, u64),
    /// It is done.
    Done(Queue),
}

/// How much of it has been done.
#[derive(Debug)]
enum Stage {
    Named,
    Registered(Registered),
    Joined(Arc<Shared>),
}

/// A Connect under way.
#[derive(Debug)]
pub(super) struct Connect {
    /// CID.
    pub id: u16,
    /// Entries of the queue.
    pub entries: u16,
    pub has_flow_control: bool,
    queue: u16,
    keep_alive: KeepAlive,
    controller: u16,
    /// SUBNQN.
    pub subsystem: String,
    /// Whose it is.
    pub host: Host,
    /// The host is let in.
    is_named: bool,
    /// The host has been told that it is connected, and has proved what it knows since.
    pub is_answered: bool,
    /// The controller whose number it was told then.
    begun: Option<Registered>,
    stage: Option<Stage>,
}

/// What is wrong, and where: in the command, or in its data (IATTR).
fn invalid(offset: u16, is_data: bool) -> (Status, u64) {
    (Status::CONNECT_INVALID, u64::from(offset) | u64::from(is_data) << 16)
}

const AT_QUEUE: u16 = 42;
const AT_SIZE: u16 = 44;
const AT_CONTROLLER: u16 = 16;
const AT_SUBSYSTEM: u16 = 256;
const DYNAMIC: u16 = 0xffff;

impl Connect {
    /// What a Connect asks for.
    pub fn of(entry: &Entry, fabrics: &Fabrics, received: &Received) -> Result<Connect, (Status, u64)> {
        const NO_FLOW_CONTROL: u8 = 1 << 2;
        let failed = |status| (status, 0);
        let Fabrics::Connect { queue, size, attributes, keep_alive_ms } = *fabrics else {
            return Err(failed(Status::SEQUENCE_ERROR));
        };
        if !received.is_intact {
            return Err(failed(Status::TRANSIENT_TRANSPORT_ERROR));
        }
        let data = entry.sgl().and_then(|sgl| sgl.in_capsule(&received.data)).map_err(failed)?;
        let data = data.ok_or(failed(Status::SGL_TYPE_INVALID))?;
        let data = ConnectData::of(&data).map_err(|offset| invalid(offset, true))?;
        if size == 0 || size >= QUEUE_ENTRIES {
            return Err(invalid(AT_SIZE, false));
        }
        if (queue == 0) != (data.controller == DYNAMIC) {
            return Err(invalid(AT_CONTROLLER, true));
        }
        Ok(Connect {
            id: entry.id(),
            entries: size + 1,
            has_flow_control: attributes & NO_FLOW_CONTROL == 0,
            queue,
            keep_alive: KeepAlive::new(keep_alive_ms).map_err(failed)?,
            controller: data.controller,
            subsystem: data.subsystem,
            host: Host { name: data.host, id: data.host_id },
            is_named: false,
            is_answered: false,
            begun: None,
            stage: Some(Stage::Named),
        })
    }

    /// Goes on as far as possible.
    pub fn step(&mut self, exports: &dyn Exports, controllers: &Arc<Controllers>) -> Step {
        let busy = || Step::Fails(Status::CONNECT_BUSY, 0);
        // Before anything else: who is not let in learns nothing of what there is.
        if !self.is_named {
            let host = HostName::of_nvme_host(&self.host.name);
            return match exports.admittance(host.as_ref()) {
                Admittance::Granted(grant) => {
                    self.is_named = true;
                    Step::Waits(Event::Named(Named { host, grant }))
                }
                Admittance::Proves(grant, secrets) => Step::Proves(grant, secrets),
                Admittance::Refused => Step::Fails(Status::CONNECT_INVALID_HOST, 0),
                Admittance::NotYet => busy(),
            };
        }
        if self.subsystem == DISCOVERY {
            if self.queue != 0 {
                return fails(invalid(AT_QUEUE, false));
            }
            return match self.begin(controllers) {
                Some(registered) => Step::Done(Queue::Admin(registered, None, self.keep_alive)),
                None => busy(),
            };
        }
        let Some(name) = volume_name(&self.subsystem) else { return fails(invalid(AT_SUBSYSTEM, true)) };
        let export = match exports.open(name) {
            Opening::Ready(export) => export,
            Opening::Unknown if exports.may_come(name) => return Step::Waits(Event::Missing { name: name.to_owned() }),
            Opening::Unknown => return fails(invalid(AT_SUBSYSTEM, true)),
            Opening::Later(name) => return Step::Waits(Event::Wanted { name }),
            // Another node may have it for a while: the host tries again.
            Opening::Refused(_) => return busy(),
        };
        match self.stage.take() {
            Some(Stage::Registered(registered)) if exports.has_nexus() => {
                Step::Done(Queue::Admin(registered, Some(export), self.keep_alive))
            }
            Some(Stage::Joined(shared)) if exports.has_nexus() => Step::Done(Queue::Io(shared, export)),
            Some(Stage::Registered(registered)) => self.leads(registered, export),
            Some(Stage::Joined(shared)) => self.follows(shared, export),
            _ if self.queue == 0 => match self.begin(controllers) {
                Some(registered) => self.leads(registered, export),
                None => busy(),
            },
            _ => match controllers.join(self.controller, &self.subsystem, &self.host, self.queue) {
                Ok(shared) => self.follows(shared, export),
                Err(NoQueue::NoController) => fails(invalid(AT_CONTROLLER, true)),
                Err(NoQueue::Queue) => fails(invalid(AT_QUEUE, false)),
                Err(NoQueue::OtherHost) => Step::Fails(Status::CONNECT_INVALID_HOST, 0),
                Err(NoQueue::NotEnabled) => Step::Fails(Status::SEQUENCE_ERROR, 0),
            },
        }
    }

    /// The controller that this is the admin queue of; `None`: there are too many.
    fn begin(&mut self, controllers: &Arc<Controllers>) -> Option<Registered> {
        self.begun.take().or_else(|| controllers.begin(&self.subsystem, self.host.clone(), QUEUES_MAX))
    }

    /// The host is told that it is connected, before it has proved anything, and whether or not there is what it wants
    /// to use. The controller's number; `None`: there are too many.
    pub fn answer(&mut self, controllers: &Arc<Controllers>) -> Option<u16> {
        self.is_answered = true;
        if self.queue != 0 {
            return Some(self.controller);
        }
        self.begun = self.begin(controllers);
        self.begun.as_ref().map(|registered| registered.shared.id)
    }

    /// It has proved what it knows.
    pub fn prove(&mut self) {
        self.is_named = true;
    }

    /// A controller begins when nothing is left of its host's former ones.
    fn leads(&mut self, registered: Registered, export: Export) -> Step {
        let (party, family) = (party(registered.shared.number), self.host.family(&self.subsystem));
        self.stage = Some(Stage::Registered(registered));
        Step::Waits(Event::Leads { party, family, export: export.name })
    }

    fn follows(&mut self, shared: Arc<Shared>, export: Export) -> Step {
        let party = party(shared.number);
        self.stage = Some(Stage::Joined(shared));
        Step::Waits(Event::Follows { party, export: export.name })
    }
}

fn fails((status, result): (Status, u64)) -> Step {
    Step::Fails(status, result)
}
