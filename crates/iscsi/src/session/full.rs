//! The full feature phase (RFC 7143 section 4.2): commands in their order, their data, and their ends.

use super::answers::Answers;
use super::begin::begin;
use super::functions::Function;
use super::listing::Text;
use super::task::{After, Task};
use crate::login::LoggedIn;
use crate::pdu::initiator::{DATA_OUT, LOGOUT, NOP_OUT, SCSI_COMMAND, SNACK, ScsiCommand, TASK_MANAGEMENT, TEXT};
use crate::pdu::reader::Pdu;
use crate::pdu::target::{LOGOUT_RESPONSE, NOP_IN, RejectReason};
use crate::pdu::{Bhs, NO_TAG};
use crate::scsi::capacity::lba_status_data;
use crate::scsi::sense::{Failure, Sense};
use crate::scsi::{Disk, Plan, plan};
use crate::{IMMEDIATE_TASKS_MAX, TASKS_MAX};
use azekura_base::{Outbox, Slab};
use azekura_frontend::{Event, Exports, Request, Tag};
use azekura_gateway::{Outcome, Piece};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// What a request of this side is for.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Task(u64),
    /// It only gives memory back that its task had no use for.
    Release,
}

/// What a PDU came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// More may follow.
    Goes,
    /// The session is over.
    Ends,
}

/// What a client can do that ends its session.
pub(crate) type Violation = &'static str;

/// A session whose login is over.
#[derive(Debug)]
pub(crate) struct Full {
    pub(super) answers: Answers,
    disk: Option<Disk>,
    /// Requests that came before others that are numbered lower; nothing stands for one that has been aborted.
    pub(super) parked: BTreeMap<u32, Option<Pdu>>,
    pub(super) tasks: Slab<Task>,
    pub(super) by_itt: BTreeMap<u32, u64>,
    /// Tasks that have requests to give out, in their order.
    queue: VecDeque<u64>,
    requests: Slab<Pending>,
    /// Memory that was given for the next request.
    room: Option<usize>,
    pub(super) wants_room: Option<usize>,
    pub(super) functions: Vec<Function>,
    pub(super) text: Text,
    portal: String,
}

impl Full {
    pub fn new(login: LoggedIn, portal: &str) -> Full {
        let mut full = Full {
            answers: Answers {
                parameters: login.parameters,
                stat_sn: login.stat_sn,
                exp_cmd_sn: login.exp_cmd_sn,
                max_cmd_sn: login.exp_cmd_sn,
            },
            disk: login.export.as_ref().map(Disk::of),
            parked: BTreeMap::new(),
            tasks: Slab::default(),
            by_itt: BTreeMap::new(),
            queue: VecDeque::new(),
            requests: Slab::default(),
            room: None,
            wants_room: None,
            functions: Vec::new(),
            text: Text::default(),
            portal: portal.to_owned(),
        };
        full.open_window();
        full
    }

    /// Lets as many commands come as there is room for (section 4.2.2.1). The window never closes behind its end.
    fn open_window(&mut self) {
        let free = TASKS_MAX.saturating_sub(self.tasks.len() as u32);
        let max = self.answers.exp_cmd_sn.wrapping_add(free).wrapping_sub(1);
        if max.wrapping_sub(self.answers.max_cmd_sn) as i32 > 0 {
            self.answers.max_cmd_sn = max;
        }
    }

    /// Whether a command of this number may come.
    pub(super) fn is_in_window(&self, cmd_sn: u32) -> bool {
        let size = self.answers.max_cmd_sn.wrapping_sub(self.answers.exp_cmd_sn).wrapping_add(1);
        cmd_sn.wrapping_sub(self.answers.exp_cmd_sn) < size
    }

    /// Deals with a PDU.
    pub fn pdu(&mut self, pdu: Pdu, outbox: &mut Outbox, exports: &dyn Exports) -> Result<Flow, Violation> {
        let reason = match pdu.bhs.opcode() {
            DATA_OUT => return self.data_out(pdu).map(|()| Flow::Goes),
            NOP_OUT | SCSI_COMMAND | TASK_MANAGEMENT | TEXT | LOGOUT => return self.numbered(pdu, outbox, exports),
            SNACK => RejectReason::Snack,
            crate::pdu::initiator::LOGIN => RejectReason::Protocol,
            _ => RejectReason::NotSupported,
        };
        self.answers.reject(outbox, reason, &pdu.bhs);
        Ok(Flow::Goes)
    }

    /// A PDU that has a command number, if it is not immediate.
    fn numbered(&mut self, pdu: Pdu, outbox: &mut Outbox, exports: &dyn Exports) -> Result<Flow, Violation> {
        if pdu.bhs.is_immediate() {
            return self.execute(pdu, outbox, exports);
        }
        let cmd_sn = pdu.bhs.cmd_sn();
        // Section 4.2.2.1: what is outside of the window, or comes twice, is silently ignored.
        if !self.is_in_window(cmd_sn) || self.parked.contains_key(&cmd_sn) {
            return Ok(Flow::Goes);
        }
        self.parked.insert(cmd_sn, Some(pdu));
        while let Some(next) = self.parked.remove(&self.answers.exp_cmd_sn) {
            self.answers.exp_cmd_sn = self.answers.exp_cmd_sn.wrapping_add(1);
            let flow = next.map_or(Ok(Flow::Goes), |pdu| self.execute(pdu, outbox, exports))?;
            self.open_window();
            if flow == Flow::Ends {
                return Ok(flow);
            }
        }
        Ok(Flow::Goes)
    }

    fn execute(&mut self, pdu: Pdu, outbox: &mut Outbox, exports: &dyn Exports) -> Result<Flow, Violation> {
        match pdu.bhs.opcode() {
            SCSI_COMMAND => self.command(pdu, outbox)?,
            NOP_OUT => self.nop(&pdu, outbox),
            TEXT => self.text(&pdu, outbox, exports),
            TASK_MANAGEMENT => return Ok(self.function(&pdu.bhs, outbox)),
            _ => return Ok(self.logout(&pdu.bhs, outbox)),
        }
        Ok(Flow::Goes)
    }

    /// NOP-Out (section 11.18) is answered with its own data; one without a tag answers a ping, and there are none.
    fn nop(&mut self, pdu: &Pdu, outbox: &mut Outbox) {
        if pdu.bhs.itt() == NO_TAG {
            return;
        }
        let most = self.answers.parameters.send_segment_max as usize;
        let data = pdu.data.slice(..pdu.data.len().min(most));
        let fill = |bhs: &mut Bhs| {
            bhs.put(8, &pdu.bhs.lun());
            bhs.put_u32(20, NO_TAG);
        };
        self.answers.respond(outbox, NOP_IN, pdu.bhs.itt(), fill, data);
    }

    /// Logout (section 11.14): of the session, or of its only connection.
    fn logout(&mut self, bhs: &Bhs, outbox: &mut Outbox) -> Flow {
        const RECOVERY: u8 = 2;
        const RECOVERY_NOT_SUPPORTED: u8 = 2;
        let is_recovery = bhs.0[1] & 0x7f >= RECOVERY;
        let response = if is_recovery { RECOVERY_NOT_SUPPORTED } else { 0 };
        self.answers.respond(outbox, LOGOUT_RESPONSE, bhs.itt(), |bhs| bhs.0[2] = response, Bytes::new());
        if is_recovery { Flow::Goes } else { Flow::Ends }
    }

    fn text(&mut self, pdu: &Pdu, outbox: &mut Outbox, exports: &dyn Exports) {
        let disk = self.disk.as_ref().map(|disk| disk.name.as_str());
        self.text.request(pdu, &mut self.answers, outbox, exports, (disk, &self.portal));
    }

    fn command(&mut self, pdu: Pdu, outbox: &mut Outbox) -> Result<(), Violation> {
        let mut command = ScsiCommand::of(&pdu.bhs);
        let Some(disk) = &self.disk else {
            self.answers.reject(outbox, RejectReason::Protocol, &pdu.bhs);
            return Ok(());
        };
        let reason = if self.by_itt.contains_key(&command.itt) {
            Some(RejectReason::TaskInProgress)
        } else if command.itt == NO_TAG {
            Some(RejectReason::InvalidField)
        } else if self.tasks.len() >= (TASKS_MAX + IMMEDIATE_TASKS_MAX) as usize {
            Some(RejectReason::Immediate)
        } else {
            None
        };
        if let Some(reason) = reason {
            self.answers.reject(outbox, reason, &pdu.bhs);
            return Ok(());
        }
        // A long CDB, or a second direction: there is no command here that has either.
        let plan = if pdu.has_ahs { Plan::Check(Sense::FIELD) } else { plan(disk, command.lun, &command.cdb) };
        let parameters = &self.answers.parameters;
        command.is_final |= parameters.initial_r2t;
        let most = command.write_bytes.min(parameters.first_burst_max) as usize;
        let has_data = command.write_bytes > 0 && !pdu.data.is_empty();
        if has_data && (!parameters.immediate_data || pdu.data.len() > most) {
            return Err("more data came with a command than was agreed on");
        }
        let mut task = Task::new(command, plan);
        if has_data {
            task.data.take(pdu.data);
        }
        let needs_none = matches!(task.plan, Plan::Data(_) | Plan::Check(_));
        let id = self.tasks.insert(task);
        self.by_itt.insert(command.itt, id);
        if needs_none {
            self.finish(id, Vec::new(), outbox)
        } else {
            self.queue.push_back(id)
        }
        Ok(())
    }

    /// SCSI Data-Out (section 11.7). What comes for a task that is over is dropped.
    fn data_out(&mut self, pdu: Pdu) -> Result<(), Violation> {
        let bhs = &pdu.bhs;
        let Some(task) = self.by_itt.get(&bhs.itt()).and_then(|id| self.tasks.get_mut(*id)) else { return Ok(()) };
        let (tag, data_sn, offset) = (bhs.u32(20), bhs.u32(36), bhs.u32(40));
        let data = &mut task.data;
        let (end, is_unsolicited) = if tag == NO_TAG {
            let most = self.answers.parameters.first_burst_max.min(task.command.write_bytes) as usize;
            (if data.unsolicited { most } else { 0 }, true)
        } else {
            (data.asked_until.filter(|_| tag == data.r2t_sn).unwrap_or(0), false)
        };
        if data_sn != data.data_sn || offset as usize != data.have {
            return Err("data came in another order than it was to");
        }
        if data.have + pdu.data.len() > end {
            return Err("data came that was not asked for");
        }
        data.data_sn += 1;
        let is_final = bhs.is_final();
        data.take(pdu.data);
        if is_final && is_unsolicited {
            (data.unsolicited, data.data_sn) = (false, 0);
        } else if is_final {
            if data.have != end {
                return Err("less data came than was asked for");
            }
            (data.asked_until, data.data_sn) = (None, 0);
            data.r2t_sn += 1;
        }
        Ok(())
    }

    /// Memory for the next request was given.
    pub fn give_room(&mut self) {
        self.room = self.wants_room.take();
    }

    /// The next request for the front end: of the task whose turn it is, as soon as its memory and its data are there.
    /// Tasks behind wait, so that one task's data is asked for at a time.
    pub fn next_request(&mut self, outbox: &mut Outbox) -> Option<Event> {
        loop {
            let Some(id) = self.queue.front().copied() else { return self.room.take().map(|room| self.release(room)) };
            let Some(task) = self.tasks.get_mut(id).filter(|task| !task.is_given_out()) else {
                self.queue.pop_front();
                continue;
            };
            let needs = task.memory_bytes();
            match self.room {
                Some(room) if room == needs => {}
                Some(room) => {
                    self.room = None;
                    return Some(self.release(room));
                }
                None => {
                    // What was asked for stays asked for, also when its task has been aborted since.
                    self.wants_room.get_or_insert(needs);
                    return None;
                }
            }
            if !task.is_started {
                if !task.data.is_complete() {
                    self.ask_for_data(id, outbox);
                    return None;
                }
                if let Some(disk) = &self.disk {
                    begin(task, disk);
                }
            }
            let Some(request) = task.requests.pop_front() else {
                self.queue.pop_front();
                self.finish(id, Vec::new(), outbox);
                continue;
            };
            task.outstanding += 1;
            self.room = None;
            let tag = Tag(self.requests.insert(Pending::Task(id)));
            return Some(Event::Request { tag, memory_bytes: needs, request });
        }
    }

    /// Gives memory back: a flush has nothing to do.
    fn release(&mut self, memory_bytes: usize) -> Event {
        let tag = Tag(self.requests.insert(Pending::Release));
        Event::Request { tag, memory_bytes, request: Request::Flush }
    }

    /// Asks for more data of a task (section 11.8), if none is on its way.
    fn ask_for_data(&mut self, id: u64, outbox: &mut Outbox) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let data = &mut task.data;
        if data.unsolicited || data.asked_until.is_some() {
            return;
        }
        let len = (data.wanted - data.have).min(self.answers.parameters.burst_max as usize);
        data.asked_until = Some(data.have + len);
        let (lun, itt) = (task.command.lun, task.command.itt);
        self.answers.r2t(outbox, lun, itt, data.r2t_sn, data.have, len);
    }

    /// The front end has answered a request.
    pub fn reply(&mut self, tag: Tag, outcome: Outcome, outbox: &mut Outbox) {
        let Some(Pending::Task(id)) = self.requests.remove(tag.0) else { return };
        let task = self.tasks.get_mut(id).expect("a task is there until all of its requests are answered");
        task.outstanding -= 1;
        let mut pieces = Vec::new();
        match (outcome, &task.after) {
            (Outcome::Failed(status), after) => {
                let is_read = !matches!(after, After::Nothing);
                task.failure.get_or_insert(Failure::of(status, is_read));
                task.requests.clear();
            }
            (Outcome::Read(read), After::Compare { with, every }) if !is_equal(&read, with, *every) => {
                task.failure = Some(Failure::Check(Sense::MISCOMPARE));
            }
            (Outcome::Read(read), _) => pieces = read,
            (Outcome::Status(runs), After::Status { offset, room }) => {
                let bytes = lba_status_data(*offset, &runs, *room);
                task.length = bytes.len() as u64;
                pieces.push(Piece::Data(bytes.into()));
            }
            _ => {}
        }
        if task.outstanding == 0 && task.requests.is_empty() {
            self.finish(id, pieces, outbox);
        }
    }

    /// Answers a task, unless nobody wants that any more, and forgets it.
    pub(super) fn finish(&mut self, id: u64, pieces: Vec<Piece>, outbox: &mut Outbox) {
        let Some(task) = self.tasks.remove(id) else { return };
        if !task.is_aborted {
            self.by_itt.remove(&task.command.itt);
        }
        self.open_window();
        if !task.is_aborted {
            self.answer(task, pieces, outbox);
        }
        self.function_has_ended(id, outbox);
    }

    fn answer(&mut self, task: Task, pieces: Vec<Piece>, outbox: &mut Outbox) {
        let command = &task.command;
        let expected = u64::from(command.read_bytes.max(command.write_bytes));
        match (task.failure, task.plan) {
            (Some(failure), _) => self.answers.status(outbox, command.itt, expected, 0, Some(failure)),
            (None, Plan::Check(sense)) => {
                self.answers.status(outbox, command.itt, expected, 0, Some(Failure::Check(sense)));
            }
            (None, Plan::Data(bytes)) => {
                let to_send = u64::from(command.read_bytes);
                if bytes.is_empty() {
                    self.answers.status(outbox, command.itt, expected, 0, None);
                } else {
                    self.answers.data(outbox, command.itt, to_send, task.length, vec![Piece::Data(bytes.into())]);
                }
            }
            (None, Plan::Read(_) | Plan::Status(..)) => {
                self.answers.data(outbox, command.itt, u64::from(command.read_bytes), task.length, pieces);
            }
            (None, _) => self.answers.status(outbox, command.itt, expected, task.length, None),
        }
    }

    /// Ends a task without an answer: at once, or when the front end has answered what it has of it.
    pub(super) fn abort(&mut self, id: u64, outbox: &mut Outbox) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.is_aborted = true;
        task.requests.clear();
        self.by_itt.remove(&task.command.itt);
        self.queue.retain(|queued| *queued != id);
        if task.outstanding == 0 {
            self.finish(id, Vec::new(), outbox);
        }
    }
}

/// Whether what was read is `with`, or `with` again and again.
fn is_equal(read: &[Piece], with: &[u8], every: bool) -> bool {
    let mut at = 0;
    let mut same = |byte: u8| {
        let other = with.get(if every { at % with.len().max(1) } else { at });
        at += 1;
        other == Some(&byte)
    };
    read.iter().all(|piece| match piece {
        Piece::Data(bytes) => bytes.iter().all(|byte| same(*byte)),
        Piece::Zero(len) => (0..*len).all(|_| same(0)),
    })
}
