//! Task management (RFC 7143 sections 11.5 and 11.6).

use super::full::Full;
use crate::FUNCTIONS_MAX;
use crate::pdu::Bhs;
use crate::pdu::target::TASK_MANAGEMENT_RESPONSE;
use crate::scsi::lun_is_zero;
use crate::scsi::sense::Sense;
use azekura_base::Outbox;
use bytes::Bytes;
use std::collections::BTreeSet;

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TARGET_COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;
const NO_SUCH_LUN: u8 = 2;
const NO_REASSIGN: u8 = 4;
const NOT_SUPPORTED: u8 = 5;
const REJECTED: u8 = 255;

/// A function, or a logout, that is answered when the tasks that it ends have no request under way any more: after its
/// answer nothing of them changes the volume.
#[derive(Debug)]
pub(crate) struct Function {
    /// Of the answer.
    opcode: u8,
    itt: u32,
    /// It ends the session.
    ends: bool,
    waits_for: BTreeSet<u64>,
}

impl Full {
    pub(super) fn function(&mut self, bhs: &Bhs, outbox: &mut Outbox) {
        let function = bhs.0[1] & 0x7f;
        let tasks: Vec<u64> = match function {
            _ if self.functions.len() >= FUNCTIONS_MAX => return self.respond(bhs.itt(), REJECTED, outbox),
            ABORT_TASK => match self.by_itt.get(&bhs.u32(20)) {
                Some(id) => vec![*id],
                None => {
                    let response = self.abort_unseen(bhs.u32(32));
                    return self.respond(bhs.itt(), response, outbox);
                }
            },
            ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET if !lun_is_zero(bhs.lun()) => {
                return self.respond(bhs.itt(), NO_SUCH_LUN, outbox);
            }
            ABORT_TASK_SET | CLEAR_TASK_SET => self.all_tasks(),
            LOGICAL_UNIT_RESET | TARGET_WARM_RESET => {
                self.attention = Some(Sense::RESET);
                self.all_tasks()
            }
            // Section 11.5.1: the session ends.
            TARGET_COLD_RESET => return self.end_all(TASK_MANAGEMENT_RESPONSE, bhs.itt(), outbox),
            TASK_REASSIGN => return self.respond(bhs.itt(), NO_REASSIGN, outbox),
            _ => return self.respond(bhs.itt(), NOT_SUPPORTED, outbox),
        };
        let function =
            Function { opcode: TASK_MANAGEMENT_RESPONSE, itt: bhs.itt(), ends: false, waits_for: BTreeSet::new() };
        self.end_tasks(tasks, function, outbox);
    }

    fn all_tasks(&self) -> Vec<u64> {
        self.tasks.iter().map(|(id, _)| id).collect()
    }

    /// Ends the session with an answer of this opcode, when nothing of it is under way any more.
    pub(super) fn end_all(&mut self, opcode: u8, itt: u32, outbox: &mut Outbox) {
        self.is_leaving = true;
        let function = Function { opcode, itt, ends: true, waits_for: BTreeSet::new() };
        self.end_tasks(self.all_tasks(), function, outbox);
    }

    fn end_tasks(&mut self, tasks: Vec<u64>, mut function: Function, outbox: &mut Outbox) {
        tasks.iter().for_each(|id| self.abort(*id, outbox));
        function.waits_for.extend(tasks.into_iter().filter(|id| self.tasks.get(*id).is_some()));
        if function.waits_for.is_empty() {
            self.function_is_done(&function, outbox);
        } else {
            self.functions.push(function);
        }
    }

    fn function_is_done(&mut self, function: &Function, outbox: &mut Outbox) {
        let fill = |bhs: &mut Bhs| bhs.0[2] = COMPLETE;
        self.answers.respond(outbox, function.opcode, function.itt, fill, Bytes::new());
        self.has_left |= function.ends;
    }

    /// A task that is not here: over, or its command has not come yet, and then it is as if it had (section 11.6.1).
    fn abort_unseen(&mut self, cmd_sn: u32) -> u8 {
        if !self.is_in_window(cmd_sn) {
            return NO_SUCH_TASK;
        }
        // The number that is expected next is the function's own, or that of a command that will come: both are no
        // more than a hole in the order, which what comes behind it closes.
        if cmd_sn != self.answers.exp_cmd_sn {
            self.parked.insert(cmd_sn, None);
        }
        COMPLETE
    }

    fn respond(&mut self, itt: u32, response: u8, outbox: &mut Outbox) {
        self.answers.respond(outbox, TASK_MANAGEMENT_RESPONSE, itt, |bhs| bhs.0[2] = response, Bytes::new());
    }

    /// A task has ended, for which functions may have waited.
    pub(super) fn function_has_ended(&mut self, task: u64, outbox: &mut Outbox) {
        if self.functions.is_empty() {
            return;
        }
        self.functions.iter_mut().for_each(|function| {
            function.waits_for.remove(&task);
        });
        let (done, rest) = std::mem::take(&mut self.functions).into_iter().partition(|f| f.waits_for.is_empty());
        self.functions = rest;
        let done: Vec<Function> = done;
        done.iter().for_each(|function| self.function_is_done(function, outbox));
    }
}
