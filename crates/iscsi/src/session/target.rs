//! A target of several logical units, as a session has it: which of them the host sees, and their branches
//! (docs/decisions/0060-logical-units.md).
//!
//! ```text
//!   unit:  closed ──► opening ──► open ──► lost
//!             ▲          └──► refused        │
//!             └─────────────┴────────────────┘
//! ```
//!
//! A unit is opened by the first command that needs its volume, while commands of others go on. Reads wait for that.
//! Writes do not, nor do those that were sent before it was open: they are answered with BUSY and come again. Why is
//! said in `azekura_frontend::Branch`.

use super::full::Full;
use super::task::Task;
use super::unit::{Unit, Way};
use crate::login::LoggedInto;
use crate::scsi::opcodes::{MAINTENANCE_IN, REPORT_TARGET_PORT_GROUPS, TEST_UNIT_READY};
use crate::scsi::sense::{Failure, Sense};
use crate::scsi::{Disk, Plan, Use, plan_of};
use crate::{TASKS_MAX, session::room::Pending};
use azekura_base::Outbox;
use azekura_frontend::{Branch, BranchNews, Event, Export, Exports, Nexus};
use azekura_model::RegistrantName;
use std::collections::BTreeSet;

/// Commands of one unit at a time, where there are others: half of the session's, or these would wait with it.
const UNIT_TASKS_MAX: u32 = TASKS_MAX / 2;

/// The target of a session that has several logical units.
#[derive(Debug)]
pub(super) struct Target {
    of: LoggedInto,
    registrant: Option<RegistrantName>,
    port: u16,
    /// What was looked at last.
    era: Option<u64>,
    /// The host has been told of units.
    is_known: bool,
}

impl Target {
    pub fn new(of: LoggedInto, registrant: Option<RegistrantName>, port: u16) -> Target {
        Target { of, registrant, port, era: None, is_known: false }
    }

    /// Its iSCSI name.
    pub fn iscsi_name(&self) -> &str {
        &self.of.target
    }
}

/// It changes what its volume holds, or says.
fn is_write(plan: &Plan) -> bool {
    !matches!(plan, Plan::Take(_, Use::Verify(_) | Use::VerifySame(_) | Use::ModeSelect { .. }))
        && matches!(plan, Plan::Take(..) | Plan::Zero(_))
}

/// To be carried out again, it does no harm.
fn is_repeatable(plan: &Plan) -> bool {
    !matches!(plan, Plan::Take(_, Use::CompareAndWrite(_) | Use::Copy | Use::Reservations(_)))
}

/// Whether it can be answered only when its volume is open, though nothing of what that holds is asked for.
fn asks_for_the_way(cdb: &[u8; 16]) -> bool {
    cdb[0] == TEST_UNIT_READY || cdb[0] == MAINTENANCE_IN && cdb[1] & 0x1f == REPORT_TARGET_PORT_GROUPS
}

impl Full {
    /// Looks which units the host sees, where that may have changed, and hears what has become of branches.
    pub fn look_at_units(&mut self, exports: &dyn Exports, outbox: &mut Outbox) {
        let Some(target) = &mut self.target else { return };
        if target.era.replace(exports.units_era()) != Some(exports.units_era()) {
            self.renew_units(exports, outbox);
        }
        if self.units.has_no_branches() {
            return;
        }
        for number in self.units.branches() {
            let next_status = self.answers.stat_sn;
            while let Some(news) = self.units.branch_mut(number).and_then(|branch| branch.next_news(next_status)) {
                self.hear(number, news, outbox);
            }
        }
    }

    fn renew_units(&mut self, exports: &dyn Exports, outbox: &mut Outbox) {
        let Some(target) = &self.target else { return };
        let seen = exports.units(&target.of.name).unwrap_or_default();
        let seen = seen.into_iter().filter_map(|(number, volume)| Some((number, exports.find(&volume)?)));
        let seen: Vec<(u16, Export)> = seen.collect();
        let before = self.units.numbers().to_vec();
        let keeps = |number: u16, id: u64| seen.iter().any(|(other, export)| *other == number && export.id.0 == id);
        let all = self.units.iter_mut();
        let gone: Vec<u16> =
            all.filter(|(number, unit)| !keeps(*number, unit.disk.id)).map(|(number, _)| number).collect();
        gone.into_iter().for_each(|number| self.unit_goes(number, outbox));
        let Some(target) = &self.target else { return };
        for (number, export) in &seen {
            if let Some(unit) = self.units.any_mut(Some(*number)) {
                // One that has not gone wholly yet may have come again; another volume has to wait.
                unit.is_gone &= unit.disk.id != export.id.0;
            } else {
                let disk = Disk::of(export, &target.of.target, target.port);
                self.units.add(*number, Unit::new(disk, Way::Branch(None), target.registrant.clone()));
            }
        }
        self.units.count();
        let is_known = self.target.as_mut().is_some_and(|target| std::mem::replace(&mut target.is_known, true));
        if is_known && self.units.numbers() != before {
            self.units.iter_mut().for_each(|(_, unit)| unit.raise(Sense::LUNS_CHANGED));
        }
    }

    /// The host has heard that other units are there than before.
    pub(super) fn luns_are_told(&mut self) {
        self.units.iter_mut().for_each(|(_, unit)| unit.forget_attention(Sense::LUNS_CHANGED));
    }

    /// A unit is not the host's any more.
    fn unit_goes(&mut self, number: u16, outbox: &mut Outbox) {
        let Some(unit) = self.units.any_mut(Some(number)).filter(|unit| !unit.is_gone) else { return };
        unit.is_gone = true;
        match self.units.branch_mut(number) {
            Some(branch) => {
                branch.end();
                self.functions.events.push_back(Event::Tells(u32::from(number)));
            }
            None => self.unit_is_over(number, Failure::Check(Sense::NO_LUN), outbox),
        }
    }

    /// A command needs the volume of a unit.
    pub(super) fn open_unit(&mut self, number: Option<u16>) {
        let Some((target, number)) = self.target.as_ref().zip(number) else { return };
        let Some(unit) = self.units.get(Some(number)).filter(|unit| unit.is_closed()) else { return };
        let nexus: Nexus = format!("{},lun {number}", target.of.nexus).into();
        let (branch, end) = Branch::new(&unit.disk.name, nexus);
        self.units.put_branch(number, branch);
        self.functions.events.push_back(Event::Branches(u32::from(number), end));
    }

    /// Why a command is to come again, which would be this task.
    pub(super) fn why_not_now(&self, task: &Task) -> Option<Failure> {
        let unit = self.units.get(task.unit).filter(|unit| matches!(unit.way, Way::Branch(_)))?;
        if matches!(task.plan, Plan::Data(_) | Plan::Check(_)) {
            return None;
        }
        if unit.tasks >= UNIT_TASKS_MAX && self.units.numbers().len() > 1 {
            return Some(Failure::TaskSetFull);
        }
        (is_write(&task.plan) && !unit.takes_writes()).then_some(Failure::Busy)
    }

    /// Whether a task has to wait until its unit is open, though it has its answer.
    pub(super) fn waits_for_the_way(&self, task: &Task) -> bool {
        let unit = self.units.get(task.unit).filter(|_| asks_for_the_way(&task.command.cdb));
        unit.is_some_and(|unit| !unit.is_open())
    }

    fn hear(&mut self, number: u16, news: BranchNews, outbox: &mut Outbox) {
        match news {
            BranchNews::Opened(export) => self.unit_is_open(number, &export, outbox),
            BranchNews::Answered(tag, outcome) => self.reply(tag, outcome, outbox),
            BranchNews::Reserved(tag, answer) => self.reserved(tag, answer, outbox),
            BranchNews::Sweep(sweep, why) => self.sweep(number, sweep, why, outbox),
            BranchNews::Swept(token) => self.swept(token, outbox),
            BranchNews::Refused(_) => {
                self.units.take_branch(number);
                self.unit_is_over(number, Failure::Check(Sense::INTERVENTION_REQUIRED), outbox);
            }
            BranchNews::Lost => {
                let unused = self.units.take_branch(number).map(|mut branch| branch.take_unused());
                unused.into_iter().flatten().for_each(|bytes| self.room.give_back(Some(bytes)));
                let is_gone = self.units.any(Some(number)).is_none_or(|unit| unit.is_gone);
                let why = if is_gone { Failure::Check(Sense::NO_LUN) } else { Failure::Busy };
                self.unit_is_over(number, why, outbox);
            }
        }
    }

    /// A unit's volume is open: what has waited for that goes on.
    fn unit_is_open(&mut self, number: u16, export: &Export, outbox: &mut Outbox) {
        let Some((target, unit)) = self.target.as_ref().zip(self.units.any_mut(Some(number))) else { return };
        if unit.disk.id != export.id.0 {
            // Another volume has the name, of which the target does not know yet.
            return self.unit_goes(number, outbox);
        }
        let (blocks, reserves, path) = (unit.disk.blocks, unit.disk.reserves, unit.disk.path);
        if std::mem::replace(&mut unit.was_open, true) && path != export.path {
            unit.raise(Sense::ACCESS_CHANGED);
        }
        unit.disk = Disk { blocks, reserves, ..Disk::of(export, &target.of.target, target.port) };
        let waiting = self.tasks.iter().filter(|(_, task)| task.unit == Some(number) && !task.is_aborted);
        let waiting = waiting.filter(|(_, task)| asks_for_the_way(&task.command.cdb));
        let waiting: Vec<u64> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            let plan = plan_of(self.units.get(Some(number)).map(|unit| &unit.disk), &[], &task.command.cdb);
            *task = Task::new(task.command, plan);
            self.finish(id, Vec::new(), outbox);
        }
    }

    /// Nothing of a unit's branch is under way any more, or it could not be opened: its tasks are answered with that,
    /// but for those that may have been carried out and would come to something else when they are repeated.
    fn unit_is_over(&mut self, number: u16, why: Failure, outbox: &mut Outbox) {
        let of_unit = self.tasks.iter().filter(|(_, task)| task.concerns(Some(number)));
        let tasks: BTreeSet<u64> = of_unit.map(|(id, _)| id).collect();
        // A piece of a copy that another unit writes is answered there.
        let is_elsewhere = |task: &Task| task.outstanding > 0 && task.asks_unit() != Some(number);
        let elsewhere: BTreeSet<u64> =
            tasks.iter().filter(|id| self.tasks.get(**id).is_some_and(is_elsewhere)).copied().collect();
        let ends_here = |id: &u64| tasks.contains(id) && !elsewhere.contains(id);
        let requests = self.room.requests.iter();
        let requests = requests.filter(|(_, of)| matches!(of, Pending::Task(id) if ends_here(id)));
        let requests: Vec<u64> = requests.map(|(tag, _)| tag).collect();
        for tag in requests {
            self.room.requests.remove(tag);
        }
        for id in tasks {
            let Some(task) = self.tasks.get_mut(id) else { continue };
            let may_have_happened = task.is_started && !is_repeatable(&task.plan);
            let failure = if may_have_happened { Failure::Check(Sense::ABORTED) } else { why };
            task.failure = Some(failure);
            task.requests.clear();
            if !elsewhere.contains(&id) {
                task.outstanding = 0;
                self.finish(id, Vec::new(), outbox);
            }
        }
        self.functions_lose(number, outbox);
        let Some(unit) = self.units.any_mut(Some(number)) else { return };
        if unit.is_gone {
            self.units.remove(number);
            // Another volume may have its number's place by now.
            self.target.iter_mut().for_each(|target| target.era = None);
        }
    }
}
