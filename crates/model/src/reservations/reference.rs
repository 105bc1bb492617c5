//! A second, slower account of the standards, for tests: written from their words, with SCSI's numbers of types and the
//! set of all holders in place of one. It shares nothing with the rules but the commands.

use std::collections::{BTreeMap, BTreeSet};

use super::{CommandKind, NoticeKind, RegistrantName, ReservationCommand, ReservationStatus};

type Name = RegistrantName;

/// What a volume's device server knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Reference {
    pub(super) keys: BTreeMap<Name, u64>,
    pub(super) kind: u8,
    pub(super) holders: BTreeSet<Name>,
    pub(super) generation: u32,
    /// What the last command has said to whom.
    pub(super) told: BTreeSet<(Name, NoticeKind)>,
    /// Whose commands the last command has ended.
    pub(super) aborted: BTreeSet<Name>,
}

const ALL_REGISTRANTS: [u8; 2] = [7, 8];
const REGISTRANTS_ONLY: [u8; 2] = [5, 6];

impl Reference {
    /// "The persistent reservation holder is, for all registrants types, any registered I_T nexus" (5.13.10); "if the
    /// persistent reservation holder is more than one, the reservation shall not be released until the registrations
    /// for all are removed".
    fn settle(&mut self) {
        if ALL_REGISTRANTS.contains(&self.kind) {
            self.holders = self.keys.keys().cloned().collect();
        }
        if self.holders.is_empty() {
            self.kind = 0;
        }
    }

    fn others(&self, from: &Name) -> Vec<Name> {
        self.keys.keys().filter(|name| *name != from).cloned().collect()
    }

    fn tell(&mut self, whom: Vec<Name>, what: NoticeKind) {
        self.told.extend(whom.into_iter().map(|name| (name, what)));
    }

    fn unregister(&mut self, from: &Name) {
        self.keys.remove(from);
        let held = self.holders.remove(from);
        if held && !ALL_REGISTRANTS.contains(&self.kind) {
            if REGISTRANTS_ONLY.contains(&self.kind) {
                self.tell(self.others(from), NoticeKind::ReservationsReleased);
            }
            self.kind = 0;
        }
    }

    fn count(&mut self) -> ReservationStatus {
        self.generation = self.generation.wrapping_add(1);
        ReservationStatus::Good
    }

    /// A registration command's first question, by table: the key that it must name; then what it does.
    fn register(&mut self, from: &Name, new: u64) -> ReservationStatus {
        match (self.keys.contains_key(from), new) {
            (false, 0) => return ReservationStatus::Good,
            (true, 0) => self.unregister(from),
            _ => drop(self.keys.insert(from.clone(), new)),
        }
        self.count()
    }

    pub(super) fn step(&mut self, from: &Name, command: &ReservationCommand) -> ReservationStatus {
        use ReservationCommand as C;
        use ReservationStatus as S;
        self.told.clear();
        self.aborted.clear();
        let mine = self.keys.get(from).copied().unwrap_or(0);
        let status = match command {
            // Table 67: from an unregistered nexus the key must be zero, from a registered one its own.
            C::Register { key, new } if *key == mine => self.register(from, *new),
            C::RegisterIgnoringKey { new } => self.register(from, *new),
            C::RegisterNew { new: 0 } | C::ReplaceKey { new: 0, .. } => S::InvalidParameter,
            C::RegisterNew { new } if mine == 0 || mine == *new => self.register(from, *new),
            C::ReplaceKey { key: None, new } => self.register(from, *new),
            C::ReplaceKey { key: Some(key), new } if mine != 0 && *key == mine => self.register(from, *new),
            C::Unregister { key } if mine != 0 && key.unwrap_or(mine) == mine => self.register(from, 0),
            _ if mine == 0 => S::Conflict,
            C::RegisterAndMove { key, new, to, unregister } if *key == mine => self.shift(from, *new, to, *unregister),
            C::Reserve { key, kind } if *key == mine => match self.kind {
                0 => {
                    (self.kind, self.holders) = (kind.scsi(), [from.clone()].into());
                    S::Good
                }
                held if self.holders.contains(from) && held == kind.scsi() => S::Good,
                _ => S::Conflict,
            },
            C::Release { key, kind } if *key == mine => {
                let holds = self.holders.contains(from);
                if holds && self.kind != kind.scsi() {
                    return S::InvalidRelease;
                }
                if holds {
                    if ![1, 3].contains(&self.kind) {
                        self.tell(self.others(from), NoticeKind::ReservationsReleased);
                    }
                    self.kind = 0;
                    self.holders.clear();
                }
                S::Good
            }
            C::Clear { key } if *key == mine => {
                self.tell(self.others(from), NoticeKind::ReservationsPreempted);
                self.keys.clear();
                self.holders.clear();
                self.count()
            }
            C::Preempt { key, victim, kind, abort } if *key == mine => self.preempt(from, *victim, kind.scsi(), *abort),
            _ => S::Conflict,
        };
        self.settle();
        status
    }

    fn shift(&mut self, from: &Name, new: u64, to: &Name, unregister: bool) -> ReservationStatus {
        if self.kind == 0 {
            return ReservationStatus::InvalidField;
        }
        if ALL_REGISTRANTS.contains(&self.kind) || !self.holders.contains(from) {
            return ReservationStatus::Conflict;
        }
        let port = |name: &Name| match name {
            Name::Iscsi { initiator, isid, .. } => Some((initiator.clone(), *isid)),
            Name::Nvme { .. } => None,
        };
        if new == 0 || to == from || port(from).is_some() && port(from) == port(to) {
            return ReservationStatus::InvalidParameter;
        }
        self.keys.insert(to.clone(), new);
        self.holders = [to.clone()].into();
        if unregister {
            self.keys.remove(from);
        }
        self.count()
    }

    /// Figure 9.
    fn preempt(&mut self, from: &Name, victim: u64, kind: u8, abort: bool) -> ReservationStatus {
        let victims: BTreeSet<Name> =
            self.keys.iter().filter(|(_, key)| **key == victim).map(|(name, _)| name.clone()).collect();
        let before = self.kind;
        if victim == 0 {
            if !ALL_REGISTRANTS.contains(&before) {
                return ReservationStatus::InvalidParameter;
            }
            let others = self.others(from);
            // "The device server shall abort all commands for all registered I_T nexuses" (5.13.11.2.6).
            self.aborted = if abort { self.keys.keys().cloned().collect() } else { BTreeSet::new() };
            self.keys.retain(|name, _| name == from);
            self.spare(from);
            self.tell(others, NoticeKind::RegistrationsPreempted);
        } else if victims.is_empty() {
            return ReservationStatus::Conflict;
        } else {
            let takes = before != 0
                && !ALL_REGISTRANTS.contains(&before)
                && self.holders.iter().any(|holder| victims.contains(holder));
            self.keys.retain(|name, _| !victims.contains(name) || takes && name == from);
            self.tell(
                victims.iter().filter(|name| *name != from).cloned().collect(),
                NoticeKind::RegistrationsPreempted,
            );
            self.aborted = if abort { victims } else { BTreeSet::new() };
            self.spare(from);
            if !takes {
                return self.count();
            }
            if before != kind {
                self.tell(self.others(from), NoticeKind::ReservationsReleased);
            }
        }
        (self.kind, self.holders) = (kind, [from.clone()].into());
        self.count()
    }

    /// NVMe ends the commands of hosts that were unregistered, and of no others.
    fn spare(&mut self, from: &Name) {
        if matches!(from, Name::Nvme { .. }) && self.keys.contains_key(from) {
            self.aborted.remove(from);
        }
    }

    /// The table of commands in the presence of reservations (SPC-4 section 5.13.1): rows are what the reservation
    /// allows a nexus that does not hold it.
    pub(super) fn conflicts(&self, of: &Name, command: CommandKind) -> bool {
        let holds = self.holders.contains(of);
        let registered = self.keys.contains_key(of);
        match (self.kind, command) {
            (0, _) | (_, CommandKind::Inform) => false,
            (1, CommandKind::Write) | (3, _) => !holds,
            (5 | 7, CommandKind::Write) | (6 | 8, _) => !registered,
            _ => false,
        }
    }
}
