//! SCSI commands and their data (RFC 7143 sections 11.3, 11.4, 11.7 and 11.8), from the first PDU to the answer.

use super::copies::failure;
use super::full::{Full, Violation};
use super::rights::conflict;
use super::room::Pending;
use super::task::{After, Task};
use crate::pdu::NO_TAG;
use crate::pdu::initiator::ScsiCommand;
use crate::pdu::reader::Pdu;
use crate::pdu::target::RejectReason;
use crate::scsi::capacity::lba_status_data;
use crate::scsi::opcodes::{INQUIRY, REPORT_LUNS, REQUEST_SENSE, TEST_UNIT_READY};
use crate::scsi::sense::{Failure, Sense};
use crate::scsi::{Cdb, Plan, asks_how_it_is, plan_of, request_sense};
use crate::{IMMEDIATE_TASKS_MAX, TASKS_MAX};
use azekura_base::{Outbox, is_zero};
use azekura_frontend::{Exports, Tag};
use azekura_gateway::{Outcome, Piece};

impl Full {
    /// The task that a command would be.
    pub(super) fn task(&self, command: ScsiCommand, has_ahs: bool) -> Task {
        let unit = command.unit();
        let disk = self.units.get(unit).map(|unit| &unit.disk);
        let plan = match plan_of(disk, self.units.numbers(), &command.cdb) {
            // A long CDB, or a second direction: there is no command here that has either.
            _ if has_ahs => Plan::Check(Sense::FIELD),
            Plan::CopyStatus(list, room) => self.copy_status(unit, list, room),
            plan => plan,
        };
        let is_final = command.is_final || self.answers.parameters.initial_r2t;
        Task::new(ScsiCommand { is_final, ..command }, plan)
    }

    /// Why there is to be no task of a command.
    pub(super) fn why_rejected(&self, command: &ScsiCommand) -> Option<RejectReason> {
        let is_full = self.tasks.len() >= (TASKS_MAX + IMMEDIATE_TASKS_MAX) as usize;
        match command.itt {
            _ if self.is_discovery => Some(RejectReason::Protocol),
            NO_TAG => Some(RejectReason::InvalidField),
            itt if self.by_itt.contains_key(&itt) => Some(RejectReason::TaskInProgress),
            _ => is_full.then_some(RejectReason::Immediate),
        }
    }

    /// Begins a SCSI command (section 11.3).
    pub(super) fn command(&mut self, pdu: Pdu, outbox: &mut Outbox, exports: &dyn Exports) -> Result<(), Violation> {
        let command = ScsiCommand::of(&pdu.bhs);
        let (room, refusal) = self.room.of_command();
        if let Some(reason) = self.why_rejected(&command) {
            self.room.give_back(room);
            self.answers.reject(outbox, reason, &pdu.bhs);
            return Ok(());
        }
        // An attention goes before a conflict: it may say why there is one.
        let failure = refusal.or_else(|| self.news(&command, exports)).or_else(|| {
            let unit = self.units.get(command.unit())?;
            conflict(&unit.standing, &command.cdb)
        });
        let sense = if failure.is_none() { self.pending_sense(&command) } else { None };
        let mut task = match sense {
            Some(plan) => Task::new(command, plan),
            None => self.task(command, pdu.has_ahs),
        };
        let needs_none = matches!(task.plan, Plan::Data(_) | Plan::Check(_)) && !self.waits_for_the_way(&task);
        if !needs_none {
            self.open_unit(task.unit);
        }
        // Its data was dropped when its header came, for a reason that does not hold any more.
        let is_short = pdu.data.len() < pdu.bhs.data_bytes() && task.data.wanted > 0;
        let failure = failure.or_else(|| self.why_not_now(&task)).or_else(|| is_short.then_some(Failure::Busy));
        if failure.is_some() {
            self.room.give_back(room);
            let expected = u64::from(command.read_bytes.max(command.write_bytes));
            self.answers.status(outbox, command.itt, expected, 0, failure);
            return Ok(());
        }
        task.room = room;
        if command.write_bytes > 0 {
            task.data.come(pdu.data, pdu.bhs.data_bytes());
        }
        let has_answer = matches!(task.plan, Plan::Data(_) | Plan::Check(_));
        self.units.any_mut(task.unit).into_iter().for_each(|unit| unit.tasks += 1);
        let id = self.tasks.insert(task);
        self.by_itt.insert(command.itt, id);
        match room {
            _ if needs_none => self.finish(id, Vec::new(), outbox),
            // It has it when its unit is open.
            _ if has_answer => {}
            Some(_) => self.has_room(id, outbox),
            None => self.room.line.push_back(id),
        }
        Ok(())
    }

    /// What a command is told instead of being carried out: a unit attention (SAM-5 section 5.14), once. The volume is
    /// looked at again for who asks how it is: one that has another size by now is news for TEST UNIT READY (SBC-3
    /// section 4.10), and who asks for the size itself is told the new one.
    fn news(&mut self, command: &ScsiCommand, exports: &dyn Exports) -> Option<Failure> {
        if command.cdb[0] == REPORT_LUNS {
            self.luns_are_told();
        }
        let unit = self.units.get_mut(command.unit())?;
        let disk = &mut unit.disk;
        if asks_how_it_is(&command.cdb)
            && let Some(export) = exports.find(&disk.name).filter(|export| export.id.0 == disk.id)
        {
            let blocks = export.size / u64::from(disk.block_bytes());
            let is_news = std::mem::replace(&mut disk.blocks, blocks) != blocks;
            if is_news && command.cdb[0] == TEST_UNIT_READY {
                unit.raise(Sense::CAPACITY_CHANGED);
            }
        }
        if matches!(command.cdb[0], INQUIRY | REPORT_LUNS | REQUEST_SENSE) {
            return None;
        }
        self.attention(command).map(Failure::Check)
    }

    /// REQUEST SENSE says what the next command would have been told (SPC-4 section 6.39), and then it is said.
    fn pending_sense(&mut self, command: &ScsiCommand) -> Option<Plan> {
        if command.cdb[0] != REQUEST_SENSE {
            return None;
        }
        self.attention(command).map(|sense| request_sense(Cdb(&command.cdb), sense))
    }

    /// The unit attention that a command is told. What concerns all units is told once (SPC-4 section 6.33).
    fn attention(&mut self, command: &ScsiCommand) -> Option<Sense> {
        let sense = self.units.get_mut(command.unit())?.attention()?;
        if sense == Sense::LUNS_CHANGED {
            self.luns_are_told();
        }
        Some(sense)
    }

    /// SCSI Data-Out (section 11.7). What comes for a task that is over is dropped.
    pub(super) fn data_out(&mut self, pdu: &Pdu, outbox: &mut Outbox) -> Result<(), Violation> {
        let bhs = &pdu.bhs;
        let Some(id) = self.by_itt.get(&bhs.itt()).copied() else { return Ok(()) };
        let Some(task) = self.tasks.get_mut(id) else { return Ok(()) };
        let (tag, data_sn, offset) = (bhs.u32(20), bhs.u32(36), bhs.u32(40));
        let data = &mut task.data;
        let is_unsolicited = tag == NO_TAG;
        let end = if is_unsolicited {
            let most = self.answers.parameters.first_burst_max.min(task.command.write_bytes) as usize;
            data.unsolicited.then_some(most)
        } else {
            data.asked_until.filter(|_| tag == data.r2t_sn)
        };
        let Some(end) = end.filter(|end| data.have + bhs.data_bytes() <= *end) else {
            return Err("data came that was not asked for");
        };
        // A sequence with a gap in it or out of order fails its command, once all of it has come (section 7.8).
        data.is_torn |= data_sn != data.data_sn || offset as usize != data.have;
        data.data_sn = data.data_sn.wrapping_add(1);
        data.come(pdu.data.clone(), bhs.data_bytes());
        if !bhs.is_final() {
            return Ok(());
        }
        data.data_sn = 0;
        if is_unsolicited {
            data.unsolicited = false;
        } else {
            data.is_torn |= data.have != end;
            data.asked_until = None;
            data.r2t_sn = data.r2t_sn.wrapping_add(1);
        }
        if data.is_torn {
            task.failure = Some(Failure::Check(Sense::DATA_PHASE));
            self.finish(id, Vec::new(), outbox);
        } else {
            self.has_room(id, outbox);
        }
        Ok(())
    }

    /// A task has memory: it begins, or its data is asked for (section 11.8), if none is on its way.
    pub(super) fn has_room(&mut self, id: u64, outbox: &mut Outbox) {
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.room.is_some()) else { return };
        if task.has_its_data() {
            return self.room.ready.push_back(id);
        }
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
        let Some(Pending::Task(id)) = self.room.requests.remove(tag.0) else { return };
        let task = self.tasks.get_mut(id).expect("a task is there until all of its requests are answered");
        task.outstanding -= 1;
        let mut pieces = Vec::new();
        match (outcome, &task.after) {
            (Outcome::Failed(status), after) => {
                let is_read = !matches!(after, After::Nothing);
                let why = || if task.copying.is_some() { failure(status) } else { Failure::of(status, is_read) };
                task.failure.get_or_insert_with(why);
                task.requests.clear();
            }
            (Outcome::Read(read), After::Compare { with, every }) if !is_equal(&read, with, *every) => {
                task.failure = Some(Failure::Check(Sense::MISCOMPARE));
            }
            (Outcome::Read(read), After::Send) => pieces = read,
            (Outcome::Status(runs), After::Status { block, offset, room }) => {
                let bytes = lba_status_data(*block, *offset, &runs, *room);
                task.length = bytes.len() as u64;
                pieces.push(Piece::Data(bytes.into()));
            }
            _ => {}
        }
        if let Some(copying) = &mut task.copying {
            copying.ended(task.failure.is_none());
        }
        if task.outstanding > 0 {
            return;
        }
        if task.requests.is_empty() {
            self.finish(id, pieces, outbox);
        } else if task.copying.is_some() {
            self.room.line.push_back(id);
        }
    }

    /// Answers a task, unless nobody wants that any more, and forgets it.
    pub(super) fn finish(&mut self, id: u64, pieces: Vec<Piece>, outbox: &mut Outbox) {
        let Some(mut task) = self.tasks.remove(id) else { return };
        self.room.give_back(task.room.take());
        if !task.is_aborted {
            self.by_itt.remove(&task.command.itt);
        }
        self.open_window();
        if let Some(unit) = self.units.any_mut(task.unit) {
            unit.tasks = unit.tasks.saturating_sub(1);
            if let Some(copying) = task.copying.take().filter(|_| !task.is_aborted) {
                unit.copies.ended(&copying, task.failure.is_some());
            }
        }
        if task.tells_end {
            let expected = u64::from(task.command.read_bytes.max(task.command.write_bytes));
            self.answers.status(outbox, task.command.itt, expected, 0, Some(Failure::TaskAborted));
        } else if !task.is_aborted {
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
            (None, Plan::Read(_) | Plan::Status(..) | Plan::Reservations(..)) => {
                self.answers.data(outbox, command.itt, u64::from(command.read_bytes), task.length, pieces);
            }
            (None, _) => self.answers.status(outbox, command.itt, expected, task.length, None),
        }
    }

    /// Ends a task: at once, or when the front end has answered what it has of it. It has no answer, or TASK ABORTED
    /// where `tells` says so: its initiator would wait for it until it gives the session up. An initiator that has
    /// ended a task itself is told no more of it.
    pub(super) fn abort(&mut self, id: u64, tells: bool, outbox: &mut Outbox) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.tells_end = tells && (task.tells_end || !task.is_aborted);
        if std::mem::replace(&mut task.is_aborted, true) {
            return;
        }
        task.requests.clear();
        self.by_itt.remove(&task.command.itt);
        self.room.give_back(task.room.take());
        if task.outstanding == 0 {
            self.finish(id, Vec::new(), outbox);
        }
    }
}

/// Whether what was read is `with`, or `with` again and again.
fn is_equal(read: &[Piece], with: &[u8], every: bool) -> bool {
    let mut at = 0;
    read.iter().all(|piece| {
        let (mut done, len) = (
            0,
            match piece {
                Piece::Data(bytes) => bytes.len(),
                Piece::Zero(len) => *len,
            },
        );
        while done < len {
            if at == with.len() && every {
                at = 0;
            }
            let count = (len - done).min(with.len() - at);
            let other = &with[at..at + count];
            let is_same = match piece {
                Piece::Data(bytes) => bytes[done..done + count] == *other,
                Piece::Zero(_) => is_zero(other),
            };
            if count == 0 || !is_same {
                return false;
            }
            (done, at) = (done + count, at + count);
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_read_is_compared_byte_by_byte(block in proptest::collection::vec(0..2_u8, 1..5), times in 0..5_usize,
            cuts in proptest::collection::vec((any::<bool>(), 0..6_usize), 0..6), flip in any::<usize>(), flips in any::<bool>()) {
            let mut bytes = block.repeat(times);
            if flips && !bytes.is_empty() {
                let at = flip % bytes.len();
                bytes[at] ^= 1;
            }
            let (mut rest, mut pieces) = (&bytes[..], Vec::new());
            for (as_zeros, len) in cuts.into_iter().chain([(false, usize::MAX)]) {
                let (piece, behind) = rest.split_at(len.min(rest.len()));
                let is_zero = as_zeros && piece.iter().all(|byte| *byte == 0);
                pieces.push(if is_zero { Piece::Zero(piece.len()) } else { Piece::Data(piece.to_vec().into()) });
                rest = behind;
            }
            let is_same = !flips || bytes.is_empty();
            prop_assert_eq!(is_equal(&pieces, &block, true), is_same);
            prop_assert_eq!(is_equal(&pieces, &block.repeat(times), false), is_same);
        }
    }
}
