//! Attachments: what front ends ask for, as the control plane does it for their clients. An operator ends attachments
//! by force, and what was written under an ended one must be there when that is confirmed, or never.

mod steps;

use crate::cluster::records::VOLUME_ID;
use crate::kernel::process::Life;
use crate::kernel::random::Random;
use crate::kernel::time::Stamp;
use crate::plan::{Mode, Plan};
use azekura_base::{Generation, HostName, NodeId, VolumeId};
use azekura_frontend::{Attachment, VolumeUse};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long groups may take to confirm.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client waits for a volume that somebody else has.
const CLIENT_WAIT: Duration = Duration::from_secs(8);
/// So long a host has time to come again to where it is to write.
const LINGERS: Duration = Duration::from_secs(2);
/// So often it is looked whether whoever is in the way has gone.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// See [`Holders::leaves_percent`], in the runs in which clients leave.
const LEAVES_PERCENT: u64 = 4;
/// The name that nobody refuses, for looking at everything in the end.
pub(crate) const INSPECTOR: Generation = Generation(u64::MAX);

/// A process: its node, and which start of that.
type Process = (NodeId, u64);

/// What a front end wants done with a volume.
enum Errand {
    /// Attach it; clients wait until then.
    Attach(Duration),
    /// Attach it to write, until then.
    AttachToWrite(Duration),
    GiveBack(Generation),
    /// Give it back if no front end has it.
    LetGo(Generation),
}

/// A fence that is waited for.
struct Fence {
    from: Life,
    which: VolumeUse,
    volume: VolumeId,
    /// Everything that had ended by this generation is kept out when it is confirmed.
    generation: Generation,
    /// The process waits for it with an attachment of its own, and if so, whether to write.
    attaches: Option<bool>,
}

/// An attachment that does not stand any more.
struct Ended {
    /// The generation that it ended in.
    generation: Generation,
    /// Whoever had it did not give it back.
    by_force: bool,
    /// When it was first confirmed that nothing comes of it any more.
    confirmed: Option<Stamp>,
}

/// An attachment of which a process does not know yet.
struct Unheard {
    life: Life,
    which: VolumeUse,
    revision: u64,
    attached: Attachment,
    to_write: bool,
}

/// All attachments.
pub(crate) struct Holders {
    /// The configuration says who has a volume; else anybody has it who wants to.
    pub(crate) recorded: bool,
    /// An operator ends attachments of the volume by force.
    pub(crate) on: bool,
    /// What front ends were told last of the volumes that they have asked for.
    attached: BTreeMap<(Life, VolumeUse), (VolumeId, Generation)>,
    /// Attachments of hosts to read alone.
    reading: BTreeSet<(VolumeId, Generation)>,
    /// What the front ends of a process have asked for, one thing a volume at a time: an attachment is the process's.
    errands: BTreeMap<(Process, VolumeUse), VecDeque<(Life, Errand)>>,
    unheard: Vec<Unheard>,
    ended: BTreeMap<(VolumeId, Generation), Ended>,
    fences: BTreeMap<u64, Fence>,
    asked: u64,
    /// Of a hundred turns of a client of the volume, in so many it closes its connection, whatever is under way.
    leaves_percent: u64,
    /// Draws which ones.
    leaving: Random,
    /// Clients belong to hosts that come through several nodes (0048).
    pub(crate) hosts: bool,
    /// Where they do, they have sessions with several units.
    pub(crate) sessions: bool,
    /// The operator seldom ends attachments: who ends all of them puts hosts' former paths out for them.
    pub(crate) alone: bool,
}

impl Holders {
    pub(crate) fn new(plan: &Plan, mut leaving: Random) -> Holders {
        let on = matches!(plan.mode, Mode::Attachments | Mode::Reservations | Mode::All);
        // A stream of their own.
        let mut hosts = Random::new(leaving.clone().below(u64::MAX) ^ 0x7061_7468);
        let mut sessions = Random::new(hosts.clone().below(u64::MAX) ^ 0x756e_6974);
        let (hosts, alone) = (plan.mode == Mode::Attachments && hosts.chance(50), hosts.chance(50));
        Holders {
            // Who rotates a key has to know who may write.
            recorded: on || plan.rekeys || plan.mode == Mode::Fsx,
            on,
            attached: BTreeMap::new(),
            reading: BTreeSet::new(),
            errands: BTreeMap::new(),
            unheard: Vec::new(),
            ended: BTreeMap::new(),
            fences: BTreeMap::new(),
            asked: 0,
            // Who has left can't come back while its node does not reach the store: then nothing is late.
            leaves_percent: if on && (leaving.chance(50) || hosts) { LEAVES_PERCENT } else { 0 },
            leaving,
            hosts,
            sessions: hosts && sessions.chance(60),
            alone: hosts && alone,
        }
    }

    /// Draws whether a client closes its connection.
    pub(crate) fn client_leaves(&mut self) -> bool {
        self.leaves_percent > 0 && self.leaving.chance(self.leaves_percent)
    }

    /// Has an attachment been ended otherwise than by being given back?
    pub(crate) fn has_ended(&self, volume: VolumeId, attachment: Generation) -> bool {
        self.ended.get(&(volume, attachment)).is_some_and(|ended| ended.by_force)
    }

    /// Whether an attachment is a host's to read: its connections may be closed when there is a write on one of them.
    pub(crate) fn reads(&self, volume: VolumeId, attachment: Generation) -> bool {
        self.reading.contains(&(volume, attachment))
    }

    /// From when on nothing written to the volume under an attachment may be applied.
    pub(crate) fn confirmed(&self, attachment: Generation) -> Option<Stamp> {
        self.ended.get(&(VOLUME_ID, attachment))?.confirmed
    }

    /// The attachment under which a process has a volume, as it was told last.
    pub(crate) fn attached_as(&self, life: Life, which: &VolumeUse) -> Option<Generation> {
        self.attached.get(&(life, which.clone())).map(|(_, attachment)| *attachment)
    }

    /// The host that a client belongs to, and what it calls itself.
    pub(crate) fn host_of(&self, client: u64) -> Option<(u64, HostName)> {
        let host = client % 2;
        let name = format!("iqn.2026-01.example:host{host}").parse().ok().filter(|_| self.hosts)?;
        Some((host, name))
    }

    /// Some front end of a process has this attachment.
    fn is_held(&self, life: Life, which: &VolumeUse, attachment: Generation) -> bool {
        self.attached.iter().any(|((other, volume), (_, held))| {
            other.process() == life.process() && volume == which && *held == attachment
        })
    }

    /// A front end has no more use for an attachment. True when no other shard of its process has it.
    fn give_up(&mut self, life: Life, which: &VolumeUse, attachment: Generation) -> bool {
        let Some(given) = self.attached.remove(&(life, which.clone())) else { return true };
        let shared = self.attached.iter().any(|((other, volume), attached)| {
            other.process() == life.process() && volume == which && *attached == given && given.1 == attachment
        });
        !shared
    }

    /// A process waits for a fence for others.
    pub(crate) fn is_fencing(&self, from: Life) -> bool {
        self.fences.values().any(|fence| fence.from == from && fence.attaches.is_none())
    }

    /// Nobody waits for anything.
    pub(crate) fn idle(&self) -> bool {
        self.fences.is_empty() && self.errands.is_empty()
    }
}
