//! Task management (RFC 7143 sections 11.5 and 11.6).

use super::full::Full;
use crate::FUNCTIONS_MAX;
use crate::pdu::Bhs;
use crate::pdu::target::TASK_MANAGEMENT_RESPONSE;
use crate::scsi::lun_number;
use crate::scsi::sense::Sense;
use azekura_base::Outbox;
use azekura_frontend::Event;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

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

/// Why tasks of other sessions end.
const RESET: u8 = 0;
const COLD_RESET: u8 = 1;
const CLEARED: u8 = 2;

/// What has been done when the tasks that a function ends have no request under way any more: after that, nothing of
/// them changes the volume.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A function, or a logout, is answered by this opcode.
    Answer { opcode: u8, itt: u32 },
    /// Another session's function has ended all that there was here of this unit.
    Swept(u16, u64),
}

/// Tasks that are being ended.
#[derive(Debug)]
struct Function {
    end: End,
    /// It ends the session.
    leaves: bool,
    waits_for: BTreeSet<u64>,
    /// And for other sessions of these units, by these numbers.
    others: BTreeSet<(u16, u64)>,
    /// Not all of them were reached.
    has_failed: bool,
}

impl Function {
    fn of(end: End, leaves: bool) -> Function {
        Function { end, leaves, waits_for: BTreeSet::new(), others: BTreeSet::new(), has_failed: false }
    }

    fn is_done(&self) -> bool {
        self.waits_for.is_empty() && self.others.is_empty()
    }
}

/// Functions that wait for tasks, and those that reach other sessions of the logical unit (SAM-5 sections 6.3.2 and 7.3
/// to 7.10).
#[derive(Debug, Default)]
pub(crate) struct Functions {
    waiting: Vec<Function>,
    made: u64,
    /// What other sessions are to be told of functions, and that theirs have been done here; what goes to units'
    /// branches goes the same way.
    pub(super) events: VecDeque<Event>,
}

impl Full {
    pub(super) fn function(&mut self, bhs: &Bhs, outbox: &mut Outbox) {
        let function = bhs.0[1] & 0x7f;
        let mut others = BTreeSet::new();
        let unit = lun_number(bhs.lun());
        let tasks: Vec<u64> = match function {
            _ if self.functions.waiting.len() >= FUNCTIONS_MAX => return self.respond(bhs.itt(), REJECTED, outbox),
            // One that was ended before is there until nothing of it is under way.
            ABORT_TASK => {
                let of_tag = self.tasks.iter().filter(|(_, task)| task.command.itt == bhs.u32(20));
                let tasks: Vec<u64> = of_tag.map(|(id, _)| id).collect();
                if tasks.is_empty() {
                    let response = self.abort_unseen(bhs.u32(32));
                    return self.respond(bhs.itt(), response, outbox);
                }
                tasks
            }
            ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET if self.units.get(unit).is_none() => {
                return self.respond(bhs.itt(), NO_SUCH_LUN, outbox);
            }
            ABORT_TASK_SET => self.tasks_of(unit),
            // There is one task set for all sessions (TST 0 of the control mode page).
            CLEAR_TASK_SET => {
                self.open_unit(unit);
                others.extend(self.sweep_others(unit, CLEARED));
                self.tasks_of(unit)
            }
            LOGICAL_UNIT_RESET => {
                self.units.get_mut(unit).into_iter().for_each(|unit| unit.raise(Sense::RESET));
                self.open_unit(unit);
                others.extend(self.sweep_others(unit, RESET));
                self.tasks_of(unit)
            }
            TARGET_WARM_RESET => {
                self.units.iter_mut().for_each(|(_, unit)| unit.raise(Sense::RESET));
                others = self.sweep_all(RESET);
                self.all_tasks()
            }
            // Section 11.5.1: all sessions end.
            TARGET_COLD_RESET => {
                self.is_leaving = true;
                others = self.sweep_all(COLD_RESET);
                self.all_tasks()
            }
            TASK_REASSIGN => return self.respond(bhs.itt(), NO_REASSIGN, outbox),
            _ => return self.respond(bhs.itt(), NOT_SUPPORTED, outbox),
        };
        let end = End::Answer { opcode: TASK_MANAGEMENT_RESPONSE, itt: bhs.itt() };
        let leaves = function == TARGET_COLD_RESET;
        self.end_tasks(tasks, Function { others, ..Function::of(end, leaves) }, outbox);
    }

    /// Other sessions are to end their tasks of a unit. What they are waited for by; `None`: it has no way to them.
    fn sweep_others(&mut self, unit: Option<u16>, why: u8) -> Option<(u16, u64)> {
        self.functions.made += 1;
        let (number, token) = (unit?, self.functions.made);
        let event = self.units.get_mut(unit)?.asked(number, Event::Sweeps(token, why))?;
        self.functions.events.push_back(event);
        Some((number, token))
    }

    /// The same for all units that this session has opened.
    fn sweep_all(&mut self, why: u8) -> BTreeSet<(u16, u64)> {
        let units = self.units.numbers().to_vec();
        units.into_iter().filter_map(|number| self.sweep_others(Some(number), why)).collect()
    }

    /// Another session's function ends all tasks of a unit.
    pub fn sweep(&mut self, number: u16, sweep: u64, why: u8, outbox: &mut Outbox) {
        let unit = self.units.any_mut(Some(number));
        match why {
            COLD_RESET => self.is_leaving = true,
            // Each task says so itself: there is no unit attention beside TASK ABORTED (SAM-5 section 5.3.1).
            CLEARED => {}
            _ => unit.into_iter().for_each(|unit| unit.raise(Sense::RESET)),
        }
        let leaves = why == COLD_RESET;
        let tasks = if leaves { self.all_tasks() } else { self.tasks_of(Some(number)) };
        self.end_tasks(tasks, Function::of(End::Swept(number, sweep), leaves), outbox);
    }

    /// Other sessions have ended their tasks.
    pub fn swept(&mut self, token: u64, outbox: &mut Outbox) {
        for function in &mut self.functions.waiting {
            function.others.retain(|(_, other)| *other != token);
        }
        self.end_functions(outbox);
    }

    /// A unit's branch is over: whether other sessions have ended what they had is not known.
    pub(super) fn functions_lose(&mut self, number: u16, outbox: &mut Outbox) {
        for function in &mut self.functions.waiting {
            let before = function.others.len();
            function.others.retain(|(unit, _)| *unit != number);
            function.has_failed |= function.others.len() < before;
        }
        self.end_functions(outbox);
    }

    /// What other sessions have to hear.
    pub fn next_sweep(&mut self) -> Option<Event> {
        self.functions.events.pop_front()
    }

    fn all_tasks(&self) -> Vec<u64> {
        self.tasks.iter().map(|(id, _)| id).collect()
    }

    /// The task set of a logical unit, as far as it is this session's, with copies from it and to it.
    fn tasks_of(&self, unit: Option<u16>) -> Vec<u64> {
        self.tasks.iter().filter(|(_, task)| task.concerns(unit)).map(|(id, _)| id).collect()
    }

    /// Ends the session with an answer of this opcode, when nothing of it is under way any more.
    pub(super) fn end_all(&mut self, opcode: u8, itt: u32, outbox: &mut Outbox) {
        self.is_leaving = true;
        self.end_tasks(self.all_tasks(), Function::of(End::Answer { opcode, itt }, true), outbox);
    }

    fn end_tasks(&mut self, tasks: Vec<u64>, mut function: Function, outbox: &mut Outbox) {
        // Who is sent away hears that alone.
        let tells = matches!(function.end, End::Swept(..)) && !function.leaves;
        tasks.iter().for_each(|id| self.abort(*id, tells, outbox));
        function.waits_for.extend(tasks.into_iter().filter(|id| self.tasks.get(*id).is_some()));
        if function.is_done() {
            self.function_is_done(&function, outbox);
        } else {
            self.functions.waiting.push(function);
        }
    }

    fn function_is_done(&mut self, function: &Function, outbox: &mut Outbox) {
        match function.end {
            End::Answer { opcode, itt } => {
                let response = if function.has_failed { REJECTED } else { COMPLETE };
                let fill = |bhs: &mut Bhs| bhs.0[2] = response;
                self.answers.respond(outbox, opcode, itt, fill, Bytes::new());
            }
            End::Swept(number, sweep) => {
                let event = self.units.any_mut(Some(number)).and_then(|unit| unit.asked(number, Event::Swept(sweep)));
                self.functions.events.extend(event);
            }
        }
        self.has_left |= function.leaves;
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
        if self.functions.waiting.is_empty() {
            return;
        }
        self.functions.waiting.iter_mut().for_each(|function| {
            function.waits_for.remove(&task);
        });
        self.end_functions(outbox);
    }

    fn end_functions(&mut self, outbox: &mut Outbox) {
        let (done, rest) = std::mem::take(&mut self.functions.waiting).into_iter().partition(Function::is_done);
        self.functions.waiting = rest;
        let done: Vec<Function> = done;
        done.iter().for_each(|function| self.function_is_done(function, outbox));
    }
}
