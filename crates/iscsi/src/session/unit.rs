//! What of a session is a logical unit's own (SAM-5 section 4.6.4): the disk, the way to its volume, what its next
//! command is told, copies that have ended, and how the session stands with its reservations. Commands, their order,
//! their data and their memory are the session's.

use super::copies::Copies;
use crate::scsi::Disk;
use crate::scsi::sense::Sense;
use azekura_frontend::{Ask, Branch, Event, Standing};
use azekura_model::RegistrantName;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How requests of a unit get to its volume.
#[derive(Debug)]
pub(crate) enum Way {
    /// The session's own connection has opened it.
    Own,
    /// On a branch of the session's connection; absent as long as no command has needed one.
    Branch(Option<Branch>),
}

/// A logical unit, as one session has it.
#[derive(Debug)]
pub(crate) struct Unit {
    pub disk: Disk,
    pub way: Way,
    pub copies: Copies,
    pub standing: Standing,
    /// Commands of it under way.
    pub tasks: u32,
    /// Its volume has been open in this session.
    pub was_open: bool,
    /// It is not the host's any more: what is left of it is waited for.
    pub is_gone: bool,
    /// What the next commands are told instead of being carried out (SAM-5 section 5.14).
    attentions: VecDeque<Sense>,
}

impl Unit {
    /// One of which nothing has been asked yet, by whoever can register as this.
    pub fn new(disk: Disk, way: Way, registrant: Option<RegistrantName>) -> Unit {
        let (copies, standing) = (Copies::default(), Standing::new(registrant));
        Unit { disk, way, copies, standing, tasks: 0, was_open: false, is_gone: false, attentions: VecDeque::new() }
    }

    /// A unit attention, for the next command that hears of it. A reset says all that was to be said before.
    pub fn raise(&mut self, sense: Sense) {
        if sense == Sense::RESET {
            self.attentions.clear();
        }
        if !self.attentions.contains(&sense) {
            self.attentions.push_back(sense);
        }
    }

    /// The next unit attention, which is told now.
    pub fn attention(&mut self) -> Option<Sense> {
        self.attentions.pop_front()
    }

    /// It has been said elsewhere.
    pub fn forget_attention(&mut self, sense: Sense) {
        self.attentions.retain(|other| *other != sense);
    }

    /// Requests can be given out.
    pub fn is_open(&self) -> bool {
        match &self.way {
            Way::Own => true,
            Way::Branch(branch) => branch.as_ref().is_some_and(Branch::is_open),
        }
    }

    /// A write that has come now is later than all that the host had sent by other paths when the volume was opened.
    pub fn takes_writes(&self) -> bool {
        match &self.way {
            Way::Own => true,
            Way::Branch(branch) => branch.as_ref().is_some_and(Branch::takes_writes),
        }
    }

    /// A request that is given out now is looked at now, or comes back at once since its volume is closed.
    pub fn takes_request(&self) -> bool {
        match &self.way {
            Way::Own | Way::Branch(None) => true,
            Way::Branch(Some(branch)) => branch.takes_request(),
        }
    }

    /// It is opened when a command needs it, and has not been.
    pub fn is_closed(&self) -> bool {
        matches!(&self.way, Way::Branch(None))
    }

    /// The event by which something is asked of its volume; `None`: it is closed, or this is nothing that goes there.
    pub fn asked(&mut self, number: u16, event: Event) -> Option<Event> {
        let branch = match &mut self.way {
            Way::Own => return Some(event),
            Way::Branch(branch) => branch.as_mut()?,
        };
        branch.ask(match event {
            Event::Request { tag, memory_bytes, request } => Ask::Request { tag, memory_bytes, request },
            Event::Reserves { tag, memory_bytes, request } => Ask::Reserves { tag, memory_bytes, request },
            Event::Sweeps(token, why) => Ask::Sweeps(token, why),
            Event::Swept(sweep) => Ask::Swept(sweep),
            _ => return None,
        });
        Some(Event::Tells(u32::from(number)))
    }
}

/// The logical units of a session, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Units {
    by_number: BTreeMap<u16, Unit>,
    /// Of those that the host sees.
    numbers: Vec<u16>,
    /// Those that have a branch, or want one.
    branches: BTreeSet<u16>,
}

impl Units {
    /// One, whose number is 0.
    pub fn one(unit: Unit) -> Units {
        Units { by_number: BTreeMap::from([(0, unit)]), numbers: vec![0], branches: BTreeSet::new() }
    }

    /// Numbers of what the host sees, in order.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// Those that the host sees, in order.
    pub fn seen(&self) -> impl Iterator<Item = (u16, &Unit)> {
        self.by_number.iter().filter(|(_, unit)| !unit.is_gone).map(|(number, unit)| (*number, unit))
    }

    /// One that the host sees.
    pub fn get(&self, number: Option<u16>) -> Option<&Unit> {
        self.by_number.get(&number?).filter(|unit| !unit.is_gone)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: Option<u16>) -> Option<&mut Unit> {
        self.by_number.get_mut(&number?).filter(|unit| !unit.is_gone)
    }

    /// One of which something is left, perhaps.
    pub fn any(&self, number: Option<u16>) -> Option<&Unit> {
        self.by_number.get(&number?)
    }

    /// The same, to be changed.
    pub fn any_mut(&mut self, number: Option<u16>) -> Option<&mut Unit> {
        self.by_number.get_mut(&number?)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut Unit)> {
        self.by_number.iter_mut().map(|(number, unit)| (*number, unit))
    }

    /// Units that have a branch, or have had one until now.
    pub fn branches(&self) -> Vec<u16> {
        self.branches.iter().copied().collect()
    }

    /// True while none has a branch.
    pub fn has_no_branches(&self) -> bool {
        self.branches.is_empty()
    }

    /// A unit has this branch from now on.
    pub fn put_branch(&mut self, number: u16, branch: Branch) {
        if let Some(unit) = self.by_number.get_mut(&number) {
            unit.way = Way::Branch(Some(branch));
            self.branches.insert(number);
        }
    }

    /// The branch of a unit.
    pub fn branch_mut(&mut self, number: u16) -> Option<&mut Branch> {
        match &mut self.by_number.get_mut(&number)?.way {
            Way::Branch(Some(branch)) => Some(branch),
            _ => None,
        }
    }

    /// A unit's branch is over.
    pub fn take_branch(&mut self, number: u16) -> Option<Branch> {
        self.branches.remove(&number);
        match &mut self.by_number.get_mut(&number)?.way {
            Way::Branch(branch) => branch.take(),
            Way::Own => None,
        }
    }

    /// A unit has come.
    pub fn add(&mut self, number: u16, unit: Unit) {
        self.by_number.insert(number, unit);
        self.count();
    }

    /// Nothing is left of a unit that had gone.
    pub fn remove(&mut self, number: u16) {
        self.by_number.remove(&number);
        self.count();
    }

    /// What the host sees has changed.
    pub fn count(&mut self) {
        let seen = self.by_number.iter().filter(|(_, unit)| !unit.is_gone);
        self.numbers = seen.map(|(number, _)| *number).collect();
    }

    /// The initiator had received all statuses before this number when it sent what has come now.
    pub fn acknowledged(&mut self, exp_stat_sn: u32) {
        let Units { by_number, branches, .. } = self;
        for number in &*branches {
            if let Some(Unit { way: Way::Branch(Some(branch)), .. }) = by_number.get_mut(number) {
                branch.acknowledged(exp_stat_sn);
            }
        }
    }
}
