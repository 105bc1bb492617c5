//! An I/O queue: its commands, their data, and the memory for both (decision 0017).
//!
//! ```text
//!   command without data, or with data that is to be asked for ──► line ──► has memory ──► data is asked for ──► ready
//!   command with data in its capsule ──► line, with its data ──► has memory ──► ready ──► given out, until it is done
//! ```
//!
//! Data in capsules is small and comes unasked for. So much of it is kept without memory; beyond that the stream stands
//! still. But not while data that was asked for is in it, since its memory may be what others wait for: then some more
//! is kept, and after that the command is answered with Command Interrupted, and sent again by its host.

mod fused;
mod reserving;

use super::link::Link;
use super::plan::{Disk, Plan, Use, plan};
use super::task::Task;
use crate::command::Entry;
use crate::completion::Status;
use crate::controllers::Shared;
use crate::pdu::reader::{Received, Taking};
use crate::pdu::transfers::Transfers;
use crate::pdu::{DataHeader, Fatal, Pdu};
use crate::reservations::allowed;
use crate::{PARKED_BYTES_MAX, RECEIVING_BYTES_MAX, RECEIVING_TASKS_MAX, TRANSFERS_MAX};
use azekura_base::{IoStatus, Outbox, Slab};
use azekura_frontend::{Event, Exports, Request, Standing, Tag};
use azekura_gateway::Outcome;
use fused::Fused;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What a request of this side is for.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Task(u16),
    /// It only gives memory back that nobody had a use for.
    Release,
}

/// An I/O queue that has connected.
#[derive(Debug)]
pub(super) struct Io {
    shared: Arc<Shared>,
    standing: Standing,
    disk: Disk,
    link: Link,
    entries: usize,
    tasks: BTreeMap<u16, Task>,
    transfers: Transfers,
    /// Bytes of tasks that have data without memory, and of those that have memory without all of their data.
    parked: usize,
    receiving: usize,
    /// The command whose header has come is to be answered with Command Interrupted.
    is_refused: bool,
    /// Tasks that want memory, in their order.
    line: VecDeque<u16>,
    /// Tasks that have memory and data.
    ready: VecDeque<u16>,
    requests: Slab<Pending>,
    /// Memory that nobody has a use for.
    surplus: VecDeque<usize>,
    wants: Option<(u16, usize)>,
    fused: Fused,
}

impl Io {
    pub fn new(shared: Arc<Shared>, disk: Disk, link: Link, entries: u16) -> Io {
        Io {
            standing: Standing::new(Some(shared.host.registrant())),
            shared,
            disk,
            link,
            entries: usize::from(entries),
            tasks: BTreeMap::new(),
            transfers: Transfers::new(TRANSFERS_MAX),
            parked: 0,
            receiving: 0,
            is_refused: false,
            line: VecDeque::new(),
            ready: VecDeque::new(),
            requests: Slab::default(),
            surplus: VecDeque::new(),
            wants: None,
            fused: Fused::default(),
        }
    }

    pub fn is_stalled(&mut self, outbox: &Outbox) -> bool {
        self.link.is_stalled(outbox)
    }

    /// What is to be done with the data of a PDU whose header has come.
    pub fn admit(&mut self, pdu: &Pdu, len: usize) -> Result<Taking, Fatal> {
        let entry = match pdu {
            Pdu::HostData(data) => return self.transfers.check(data).map(|()| Taking::Take),
            Pdu::Command(entry) => Entry(*entry),
            _ => return Ok(Taking::Take),
        };
        // What lies outside of the volume may not, once it is looked at again.
        if !matches!(plan(&self.disk, &entry), Ok(Plan::Take(..)) | Err(Status::LBA_OUT_OF_RANGE)) {
            return Ok(Taking::Skip);
        }
        let after = self.parked + len;
        let must_go_on = !self.transfers.is_empty();
        Ok(match after {
            _ if after <= PARKED_BYTES_MAX || must_go_on && after <= 4 * PARKED_BYTES_MAX => Taking::Take,
            _ if must_go_on => {
                self.is_refused = true;
                Taking::Skip
            }
            _ => Taking::Later,
        })
    }

    /// Deals with a PDU.
    pub fn pdu(&mut self, received: Received, outbox: &mut Outbox, exports: &dyn Exports) -> Result<(), String> {
        match received.pdu {
            Pdu::Command(entry) => {
                self.shared.heard();
                let entry = Entry(entry);
                // The host goes by SQHD, and by the size of its queue.
                if self.tasks.len() >= self.entries {
                    return Err(format!("more than {} commands are under way in a queue", self.entries));
                }
                let is_refused = std::mem::take(&mut self.is_refused);
                let began =
                    if is_refused { Err(Status::INTERRUPTED) } else { self.command(&entry, &received, exports) };
                match self.fuse(&entry, began, outbox) {
                    Ok(Some(task)) => {
                        self.tasks.insert(entry.id(), task);
                        self.line.push_back(entry.id());
                    }
                    Ok(None) if self.tasks.contains_key(&entry.id()) => {}
                    Ok(None) => self.link.complete(outbox, entry.id(), Status::SUCCESS, 0),
                    Err(status) => self.link.complete(outbox, entry.id(), status, 0),
                }
            }
            Pdu::HostData(data) => self.data(&data, received, outbox),
            _ => {}
        }
        Ok(())
    }

    /// What a command comes to; `None` when there is nothing to do.
    fn command(&mut self, entry: &Entry, received: &Received, exports: &dyn Exports) -> Result<Option<Task>, Status> {
        let id = entry.id();
        if !self.shared.is_enabled() {
            return Err(Status::SEQUENCE_ERROR);
        }
        if self.tasks.contains_key(&id) {
            return Err(Status::COMMAND_ID_CONFLICT);
        }
        let mut planned = plan(&self.disk, entry);
        if planned == Err(Status::LBA_OUT_OF_RANGE) && self.has_grown(exports) {
            planned = plan(&self.disk, entry);
        }
        let (planned, kind) = (planned?, allowed::kind_of(entry.opcode()));
        self.check_rights(kind)?;
        if planned == Plan::Done {
            return Ok(None);
        }
        let mut task = Task::new(planned, kind);
        if task.data.wanted > 0
            && let Some(data) = entry.sgl()?.in_capsule(&received.data)?
        {
            if !received.is_intact {
                return Err(Status::TRANSIENT_TRANSPORT_ERROR);
            }
            self.parked += data.len();
            task.is_parked = true;
            task.data.take(data);
        }
        Ok(Some(task))
    }

    /// The volume is larger than it was when it was looked at last.
    fn has_grown(&mut self, exports: &dyn Exports) -> bool {
        let export = exports.find(&self.disk.name).filter(|export| export.id.0 == self.disk.identity.volume);
        let (before, now) = (self.disk.blocks, export.map_or(0, |export| self.disk.blocks_of(&export)));
        self.disk.blocks = before.max(now);
        now > before
    }

    /// H2CData, of which [`Transfers`] have said that it is asked for.
    fn data(&mut self, header: &DataHeader, received: Received, outbox: &mut Outbox) {
        let Ok(is_over) = self.transfers.came(header) else { return };
        let id = header.command;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.data.is_torn |= !received.is_intact;
        task.data.take(received.data);
        if !is_over {
            return;
        }
        self.receiving -= task.data.wanted;
        if task.fused.is_some() {
            return self.fused_data(id);
        }
        if task.data.is_torn {
            task.failure = Some(Status::TRANSIENT_TRANSPORT_ERROR);
            self.finish(id, outbox);
        } else {
            self.ready.push_back(id);
        }
    }

    /// Bytes that are wanted, if any are.
    pub fn wants_room(&self) -> Option<usize> {
        self.wants.map(|(_, bytes)| bytes)
    }

    /// What was wanted is there.
    pub fn give_room(&mut self, outbox: &mut Outbox) {
        let Some((id, bytes)) = self.wants.take() else { return };
        if self.line.front() == Some(&id) {
            self.line.pop_front();
        } else {
            self.line.retain(|other| *other != id);
        }
        let Some(task) = self.tasks.get_mut(&id) else { return self.surplus.push_back(bytes) };
        task.room = Some(bytes);
        if std::mem::take(&mut task.is_parked) {
            self.parked -= task.data.wanted;
        }
        if task.fused.is_some() {
            return self.ask_for_both(id, outbox);
        }
        // Of one that has failed meanwhile, no data is wanted.
        if task.data.is_complete() || task.failure.is_some() {
            return self.ready.push_back(id);
        }
        self.ask_for_data(id, outbox);
    }

    fn ask_for_data(&mut self, id: u16, outbox: &mut Outbox) {
        let Some(len) = self.tasks.get(&id).map(|task| task.data.wanted) else { return };
        self.receiving += len;
        // There are not many more transfers than tasks may have memory at a time.
        match self.transfers.ask(id, 0, len as u32) {
            Some(r2t) => self.link.ask(outbox, r2t),
            None => debug_assert!(false, "no transfer is free"),
        }
    }

    /// The next request for the front end. Where there is none, memory is asked for.
    pub fn next_request(&mut self, outbox: &mut Outbox) -> Option<Event> {
        loop {
            if let Some(memory_bytes) = self.surplus.pop_front() {
                let tag = Tag(self.requests.insert(Pending::Release));
                return Some(Event::Request { tag, memory_bytes, request: Request::Flush });
            }
            let Some(id) = self.ready.pop_front() else { break };
            if let Some(event) = self.give_out(id, outbox) {
                return Some(event);
            }
        }
        if self.wants.is_none() {
            self.wants = self.next_in_line();
        }
        None
    }

    /// The first task that may have memory now. Of those whose data is still to be sent, so many at a time.
    fn next_in_line(&self) -> Option<(u16, usize)> {
        let may = |task: &Task| {
            let fits = self.transfers.len() < RECEIVING_TASKS_MAX
                && self.receiving + task.data.wanted <= RECEIVING_BYTES_MAX
                && self.parked <= PARKED_BYTES_MAX;
            task.data.is_complete() || self.transfers.is_empty() || fits
        };
        self.line.iter().find_map(|id| {
            let task = self.tasks.get(id)?;
            may(task).then(|| (*id, task.memory_bytes()))
        })
    }

    fn give_out(&mut self, id: u16, outbox: &mut Outbox) -> Option<Event> {
        let task = self.tasks.get_mut(&id)?;
        task.is_queued = false;
        if let Some(event) = self.ask(id) {
            return Some(event);
        }
        let fused = self.fused_request(id);
        let task = self.tasks.get_mut(&id)?;
        let Some(request) = fused.or_else(|| task.next_request(&self.disk)) else {
            self.surplus.extend(task.room.take());
            if task.outstanding == 0 {
                self.finish(id, outbox);
            }
            return None;
        };
        let memory_bytes = task.room.take()?;
        task.outstanding += 1;
        // An answer does not have this polled: whatever more there is asks for memory now.
        if task.has_more() {
            task.is_queued = true;
            self.line.push_back(id);
        }
        let tag = Tag(self.requests.insert(Pending::Task(id)));
        Some(Event::Request { tag, memory_bytes, request })
    }

    /// The front end has answered a request.
    pub fn reply(&mut self, tag: Tag, outcome: Outcome, outbox: &mut Outbox) {
        let Some(Pending::Task(id)) = self.requests.remove(tag.0) else { return };
        let task = self.tasks.get_mut(&id).expect("a task is there until its request is answered");
        task.outstanding -= 1;
        match (outcome, task.plan) {
            (Outcome::Failed(status), plan) => {
                let reads = matches!(plan, Plan::Read(_) | Plan::Scan(_) | Plan::Take(_, Use::Compare(_)));
                task.fail(failure(status, reads));
            }
            (Outcome::Read(pieces), Plan::Take(_, Use::Compare(_))) if !task.is_as_expected(&pieces) => {
                task.fail(Status::COMPARE_FAILURE);
            }
            (Outcome::Read(pieces), Plan::Read(range)) if task.failure.is_none() => {
                self.tasks.remove(&id);
                return self.link.complete_read(outbox, id, pieces, range.len as usize);
            }
            _ => {}
        }
        if task.outstanding == 0 && !task.is_queued {
            self.finish(id, outbox);
        }
    }

    fn finish(&mut self, id: u16, outbox: &mut Outbox) {
        let Some(task) = self.tasks.remove(&id) else { return };
        self.surplus.extend(task.room);
        let status = task.failure.unwrap_or(Status::SUCCESS);
        self.link.complete(outbox, id, status, 0);
        if let Some(second) = task.fused.filter(|second| self.tasks.remove(second).is_some()) {
            let is_done = status == Status::SUCCESS;
            self.link.complete(outbox, second, if is_done { status } else { Status::FUSED_FAILED }, 0);
        }
    }
}

/// How a command fails whose request has failed.
fn failure(status: IoStatus, is_read: bool) -> Status {
    match status {
        IoStatus::Io if is_read => Status::READ_ERROR,
        IoStatus::Io | IoStatus::OtherKey => Status::WRITE_FAULT,
        IoStatus::NoSpace => Status::CAPACITY_EXCEEDED,
        IoStatus::Invalid => Status::INVALID_FIELD,
        IoStatus::ReadOnly => Status::WRITE_PROTECTED,
        IoStatus::Gone => Status::INVALID_NAMESPACE,
        IoStatus::Fenced => Status::INTERNAL_PATH_ERROR,
        IoStatus::Miscompare(_) => Status::COMPARE_FAILURE,
        IoStatus::Redirect | IoStatus::Stale => Status::INTERRUPTED,
    }
}
