//! Task management (RFC 7143 sections 11.5 and 11.6).

use super::full::{Flow, Full};
use crate::pdu::Bhs;
use crate::pdu::target::TASK_MANAGEMENT_RESPONSE;
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

/// A function that is answered when the tasks that it ends have no request under way any more: after its answer nothing
/// of them changes the volume.
#[derive(Debug)]
pub(crate) struct Function {
    itt: u32,
    waits_for: BTreeSet<u64>,
}

impl Full {
    pub(super) fn function(&mut self, bhs: &Bhs, outbox: &mut Outbox) -> Flow {
        let function = bhs.0[1] & 0x7f;
        let is_lun_there = bhs.lun() == [0; 8];
        let tasks: Vec<u64> = match function {
            ABORT_TASK => match self.by_itt.get(&bhs.u32(20)) {
                Some(id) => vec![*id],
                None => {
                    let response = self.abort_unseen(bhs.u32(32));
                    self.respond(bhs.itt(), response, outbox);
                    return Flow::Goes;
                }
            },
            ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET if !is_lun_there => {
                self.respond(bhs.itt(), NO_SUCH_LUN, outbox);
                return Flow::Goes;
            }
            ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET | TARGET_WARM_RESET | TARGET_COLD_RESET => {
                self.tasks.iter().map(|(id, _)| id).collect()
            }
            _ => {
                let response = if function == TASK_REASSIGN { NO_REASSIGN } else { NOT_SUPPORTED };
                self.respond(bhs.itt(), response, outbox);
                return Flow::Goes;
            }
        };
        tasks.iter().for_each(|id| self.abort(*id, outbox));
        let waits_for: BTreeSet<u64> = tasks.into_iter().filter(|id| self.tasks.get(*id).is_some()).collect();
        if function == TARGET_COLD_RESET {
            // Section 11.5.1: the session ends.
            self.respond(bhs.itt(), COMPLETE, outbox);
            return Flow::Ends;
        }
        if waits_for.is_empty() {
            self.respond(bhs.itt(), COMPLETE, outbox);
        } else {
            self.functions.push(Function { itt: bhs.itt(), waits_for });
        }
        Flow::Goes
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
        done.iter().for_each(|function| self.respond(function.itt, COMPLETE, outbox));
    }
}
