//! Memory for commands (decision 0017): when it is asked for, what waits for it, and what goes on without.
//!
//! ```text
//!   command without data ──► line ──► has memory ──► its data is asked for, if it has any ──► ready ──► given out
//!   command that brings data: its header waits in the stream ──► has memory ──► its data is received ──┘
//! ```
//!
//! What comes unasked for is not received before there is memory for all of its command. So the stream stands still
//! meanwhile; but not while data is in it that was asked for and whose memory others wait for: then the command is
//! answered with TASK SET FULL, and its data dropped.

use super::begin::begin;
use super::copies::Way;
use super::full::{Full, Violation};
use super::rights;
use super::unit::{Unit, Units};
use crate::pdu::Bhs;
use crate::pdu::initiator::{DATA_OUT, LOGOUT, NOP_OUT, SCSI_COMMAND, ScsiCommand, TASK_MANAGEMENT, TEXT};
use crate::pdu::reader::Taking;
use crate::scsi::opcodes::{READ_16, WRITE_16};
use crate::scsi::sense::{Failure, Sense};
use crate::{PARKED_BYTES_MAX, RECEIVING_BYTES_MAX, RECEIVING_TASKS_MAX};
use azekura_base::{Outbox, Slab};
use azekura_frontend::{Event, Request, Tag};
use std::collections::VecDeque;

/// What a request of this side is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Task(u64),
    /// It only gives memory back that nobody had a use for.
    Release,
}

/// Who asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Task(u64),
    /// The command whose header has come.
    Head,
}

/// The command whose header has come, and which brings data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Head {
    /// There is none, or nothing is known of it yet.
    #[default]
    Free,
    Waits,
    Has(usize),
    Refused(Failure),
}

/// Memory of a session's commands.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Tasks that want memory, in their order.
    pub line: VecDeque<u64>,
    /// Tasks that have memory and data.
    pub ready: VecDeque<u64>,
    pub requests: Slab<Pending>,
    /// Memory that nobody has a use for.
    surplus: VecDeque<usize>,
    wants: Option<(Asker, usize)>,
    head: Head,
}

impl Room {
    /// What the command that has come now has, and why it is to be refused, if it is.
    pub fn of_command(&mut self) -> (Option<usize>, Option<Failure>) {
        match std::mem::take(&mut self.head) {
            Head::Has(bytes) => (Some(bytes), None),
            Head::Refused(failure) => (None, Some(failure)),
            Head::Free | Head::Waits => (None, None),
        }
    }

    pub fn give_back(&mut self, bytes: Option<usize>) {
        self.surplus.extend(bytes);
    }

    /// Gives memory back: a flush has nothing to do.
    fn release(&mut self, memory_bytes: usize) -> Event {
        let tag = Tag(self.requests.insert(Pending::Release));
        Event::Request { tag, memory_bytes, request: Request::Flush }
    }
}

impl Full {
    /// What is to be done with the data of a PDU whose header has come.
    pub fn admit(&mut self, bhs: &Bhs) -> Result<Taking, Violation> {
        self.units.acknowledged(bhs.u32(28));
        let is_numbered = matches!(bhs.opcode(), NOP_OUT | SCSI_COMMAND | TASK_MANAGEMENT | TEXT | LOGOUT);
        Ok(match bhs.opcode() {
            _ if self.is_leaving => Taking::Skip,
            DATA_OUT if !self.by_itt.contains_key(&bhs.itt()) => Taking::Skip,
            _ if is_numbered && !bhs.is_immediate() && bhs.cmd_sn() != self.answers.exp_cmd_sn => {
                return self.admit_early(bhs);
            }
            SCSI_COMMAND => return self.admit_command(bhs),
            _ => Taking::Take,
        })
    }

    /// A request before which others are to come. On one connection they do not overtake each other (section 4.2.2.1),
    /// so there is no reason to have much memory for it.
    fn admit_early(&self, bhs: &Bhs) -> Result<Taking, Violation> {
        if !self.is_in_window(bhs.cmd_sn()) || self.parked.contains_key(&bhs.cmd_sn()) {
            return Ok(Taking::Skip);
        }
        let parked: usize = self.parked.values().flatten().map(|pdu| pdu.data.len()).sum();
        let sends_more = bhs.opcode() == SCSI_COMMAND && !self.task(ScsiCommand::of(bhs), false).command.is_final;
        if sends_more || parked + bhs.data_bytes() > PARKED_BYTES_MAX {
            return Err("requests with data came before others that are numbered lower");
        }
        Ok(Taking::Take)
    }

    fn admit_command(&mut self, bhs: &Bhs) -> Result<Taking, Violation> {
        let (command, len) = (ScsiCommand::of(bhs), bhs.data_bytes());
        let parameters = &self.answers.parameters;
        let most = if parameters.immediate_data { command.write_bytes.min(parameters.first_burst_max) } else { 0 };
        if command.write_bytes > 0 && len > most as usize {
            return Err("more data came with a command than was agreed on");
        }
        let task = self.task(command, bhs.ahs_bytes() > 0);
        let has_none = command.write_bytes == 0 || len == 0 && task.command.is_final;
        if has_none || task.data.wanted == 0 || self.why_rejected(&command).is_some() {
            return Ok(Taking::Skip);
        }
        if self.room.head == Head::Free {
            self.room.head = self.why_not_now(&task).map_or(Head::Free, Head::Refused);
        }
        Ok(match self.room.head {
            Head::Has(_) => Taking::Take,
            Head::Refused(_) => Taking::Skip,
            Head::Free | Head::Waits => {
                self.room.head = Head::Waits;
                self.room.wants.get_or_insert((Asker::Head, task.memory_bytes()));
                Taking::Later
            }
        })
    }

    /// Bytes that are wanted, if any are.
    pub fn wants_room(&self) -> Option<usize> {
        self.room.wants.map(|(_, bytes)| bytes)
    }

    /// What was wanted is there.
    pub fn give_room(&mut self, outbox: &mut Outbox) {
        match self.room.wants.take() {
            None => {}
            Some((Asker::Head, bytes)) => self.room.head = Head::Has(bytes),
            Some((Asker::Task(id), bytes)) => {
                self.room.line.retain(|other| *other != id);
                match self.tasks.get_mut(id).filter(|task| !task.is_aborted) {
                    Some(task) => task.room = Some(bytes),
                    None => self.room.give_back(Some(bytes)),
                }
                self.has_room(id, outbox);
            }
        }
    }

    /// It is not there. True when it is not wanted any more for now, because data that was asked for, whose memory may
    /// be what others wait for, is in the stream behind a command that would have to wait.
    pub fn room_is_late(&mut self) -> bool {
        let must_go_on = self.room.head == Head::Waits && self.tasks.iter().any(|(_, task)| task.is_receiving());
        if must_go_on {
            (self.room.head, self.room.wants) = (Head::Refused(Failure::TaskSetFull), None);
        }
        must_go_on
    }

    /// The next request for the front end. Where there is none, memory is asked for.
    pub fn next_request(&mut self, outbox: &mut Outbox) -> Option<Event> {
        loop {
            if let Some(bytes) = self.room.surplus.pop_front() {
                return Some(self.room.release(bytes));
            }
            let Some(id) = self.next_ready() else { break };
            if let Some(event) = self.give_out(id, outbox) {
                return Some(event);
            }
        }
        if self.room.wants.is_none() {
            self.room.wants = self.next_in_line();
        }
        None
    }

    /// The first task that has all it needs, and whose volume takes a request now.
    fn next_ready(&mut self) -> Option<u64> {
        let (tasks, units) = (&self.tasks, &self.units);
        let takes = |id: &u64| {
            let unit = tasks.get(*id).and_then(|task| units.any(task.asks_unit()));
            unit.is_none_or(Unit::takes_request)
        };
        let next = self.room.ready.iter().position(takes)?;
        self.room.ready.remove(next)
    }

    /// The first task that may have memory now. Of those whose data is still to be sent, so many at a time.
    fn next_in_line(&mut self) -> Option<(Asker, usize)> {
        let tasks = &self.tasks;
        self.room.line.retain(|id| tasks.get(*id).is_some_and(|task| !task.is_aborted));
        if self.room.line.is_empty() {
            return None;
        }
        let units = &self.units;
        let receiving = tasks.iter().filter(|(_, task)| task.is_receiving());
        let (count, bytes) = receiving.fold((0, 0), |(count, bytes), (_, task)| (count + 1, bytes + task.data.wanted));
        self.room.line.iter().find_map(|id| {
            let task = tasks.get(*id)?;
            let fits = count < RECEIVING_TASKS_MAX && bytes + task.data.wanted <= RECEIVING_BYTES_MAX;
            let may_ask = task.has_its_data() || count == 0 || fits;
            // What waits for its volume to be opened takes no memory meanwhile.
            let is_open = units.any(task.unit).is_none_or(Unit::is_open);
            (may_ask && is_open).then(|| (Asker::Task(*id), task.memory_bytes()))
        })
    }

    /// The list of a copy has been read, and its memory is not needed any more: each piece has its own.
    fn copy_begins(&mut self, id: u64, memory_bytes: usize, outbox: &mut Outbox) -> Option<Event> {
        self.room.give_back(Some(memory_bytes));
        let why_not =
            if self.begins_copy(id) { self.why_no_copy(id) } else { Some(Failure::Check(Sense::IN_PROGRESS)) };
        let task = self.tasks.get_mut(id)?;
        if why_not.is_some() {
            (task.failure, task.copying, task.requests) = (why_not, None, VecDeque::new());
        }
        if task.requests.is_empty() {
            self.finish(id, Vec::new(), outbox);
        } else {
            self.room.line.push_back(id);
        }
        None
    }

    /// Why a copy can't begin. Units that it is to read or to write are opened for it.
    fn why_no_copy(&mut self, id: u64) -> Option<Failure> {
        let ways: Vec<Way> = self.tasks.get(id)?.copying.as_ref()?.ways().collect();
        for number in ways.iter().flat_map(|(from, to)| [*from, *to]) {
            self.open_unit(Some(number));
        }
        ways.into_iter().find_map(|way| why_no_piece(&self.units, way))
    }

    fn give_out(&mut self, id: u64, outbox: &mut Outbox) -> Option<Event> {
        let task = self.tasks.get_mut(id)?;
        let memory_bytes = task.room.take()?;
        let unit = self.units.any(task.unit);
        if unit.is_some_and(Unit::is_closed) {
            task.failure = Some(Failure::Busy);
            task.requests.clear();
        } else if let Some(conflict) = unit.and_then(|unit| rights::conflict(&unit.standing, &task.command.cdb)) {
            // Somebody has reserved the volume meanwhile: no more of it is sent.
            task.failure = Some(conflict);
            task.requests.clear();
        } else if !task.is_started
            && let Some(unit) = unit
        {
            begin(task, &unit.disk, &self.units);
            if task.copying.is_some() {
                return self.copy_begins(id, memory_bytes, outbox);
            }
        } else if let Some(copying) = &task.copying
            && let Some(why) = copying.ways().next().and_then(|way| why_no_piece(&self.units, way))
        {
            // To be repeated as a whole, it has to be none yet.
            let is_part = copying.has_begun() && matches!(why, Failure::Busy);
            task.failure = Some(if is_part { Failure::Check(Sense::ABORTED) } else { why });
            task.requests.clear();
        }
        let asks = task.asks.take().zip(unit);
        if let Some(request) = asks.and_then(|(asks, unit)| rights::request(&unit.standing, asks)) {
            task.outstanding += 1;
            let (number, tag) = (task.unit, Tag(self.room.requests.insert(Pending::Task(id))));
            return self.asked(number, Event::Reserves { tag, memory_bytes, request: Box::new(request) });
        }
        let Some(request) = task.requests.pop_front() else {
            let is_over = task.outstanding == 0;
            self.room.give_back(Some(memory_bytes));
            if is_over {
                self.finish(id, Vec::new(), outbox);
            }
            return None;
        };
        task.outstanding += 1;
        match &mut task.copying {
            Some(copying) => copying.begins(&request),
            None if task.requests.is_empty() => {}
            None => self.room.line.push_back(id),
        }
        let (number, tag) = (task.asks_unit(), Tag(self.room.requests.insert(Pending::Task(id))));
        self.asked(number, Event::Request { tag, memory_bytes, request })
    }

    /// The event by which something is asked of a unit's volume.
    fn asked(&mut self, number: Option<u16>, event: Event) -> Option<Event> {
        self.units.any_mut(number)?.asked(number?, event)
    }
}

/// Why nothing can be copied from one unit to another now.
fn why_no_piece(units: &Units, (from, to): Way) -> Option<Failure> {
    const READ: [u8; 16] = [READ_16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const WRITE: [u8; 16] = [WRITE_16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (Some(source), Some(destination)) = (units.get(Some(from)), units.get(Some(to))) else {
        return Some(Failure::Check(Sense::TARGET_NOT_REACHABLE));
    };
    if !source.is_open() || !destination.takes_writes() {
        return Some(Failure::Busy);
    }
    rights::conflict(&source.standing, &READ).or_else(|| rights::conflict(&destination.standing, &WRITE))
}
