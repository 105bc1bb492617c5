//! Reservations: two hosts put each other out of the volume, as the control plane does it for them. What was written by
//! a host that has lost its rights must be there when that is confirmed, or never.

mod steps;

use crate::kernel::process::Life;
use crate::kernel::time::Stamp;
use crate::plan::{Mode, Plan};
use azekura_model::{RegistrantName, ReservationCommand};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many hosts there are. Each uses any node, by several clients.
pub(crate) const HOSTS: usize = 2;
/// How long a process may take to confirm that it heeds a change.
const HEED_WAIT: Duration = Duration::from_secs(6);
/// From when on it is asked whether those who have not confirmed have ended.
const GONE_AFTER: Duration = Duration::from_millis(500);
/// So often it is looked whether all have confirmed.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A command that a host has sent to a process.
struct Sent {
    host: usize,
    /// What is to be done; nothing more, but for waiting for others.
    command: Option<ReservationCommand>,
    /// Since when it waits for others.
    waits: Duration,
}

/// A host may not write.
#[derive(Clone, Copy)]
struct Lost {
    /// Since this change.
    number: u64,
    /// When it was first confirmed that nothing from before is under way.
    confirmed: Option<Stamp>,
}

/// All reservations.
pub(crate) struct Reservers {
    /// There are some.
    pub(crate) on: bool,
    /// Up to which change each shard heeds them.
    heeded: BTreeMap<Life, u64>,
    sent: BTreeMap<(Life, u64), Sent>,
    asked: u64,
    lost: [Option<Lost>; HOSTS],
}

/// How a host is called in a record.
pub(crate) fn name_of(host: usize) -> RegistrantName {
    RegistrantName::Nvme { host: host as u128 + 1 }
}

/// The key that a host registers with.
pub(crate) fn key_of(host: usize) -> u64 {
    host as u64 + 0xa
}

impl Reservers {
    pub(crate) fn new(plan: &Plan) -> Reservers {
        Reservers {
            on: plan.mode == Mode::Reservations,
            heeded: BTreeMap::new(),
            sent: BTreeMap::new(),
            asked: 0,
            lost: [None; HOSTS],
        }
    }

    /// The host that a client belongs to; none where nothing is reserved.
    pub(crate) fn host_of(&self, client: u64) -> Option<usize> {
        self.on.then_some(client as usize % HOSTS)
    }

    /// A host waits for the answer to a command.
    pub(crate) fn is_asking(&self, host: usize) -> bool {
        self.sent.values().any(|sent| sent.host == host)
    }

    /// Since when nothing of a host may be written: it was confirmed that it has lost its rights, and it has not got
    /// them back.
    pub(crate) fn out_since(&self, host: usize) -> Option<Stamp> {
        self.lost.get(host).copied().flatten()?.confirmed
    }

    /// Nobody waits for anything.
    pub(crate) fn idle(&self) -> bool {
        self.sent.is_empty()
    }
}
