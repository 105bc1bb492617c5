//! Which volumes this node's clients have attached. A volume is attached for the first client that opens it, and given
//! back when the last one has gone and nothing of it is under way (0009, point 2).
//!
//! | state | on | next |
//! |---|---|---|
//! | absent | a client wants it | `Wanted` |
//! | `Wanted` | attached; refused; another volume has the name | `Held`; absent; `Wanted`, asked again |
//! | `Held` | its last client and request are gone; fenced or deleted | `Detaching`; absent |
//! | `Detaching` | given back, and a client wants it by now; nobody does | `Wanted`; absent |
//!
//! A host that comes through several nodes has the volume at each, and writes through one (0048): at the others it is
//! held to be read.

use crate::attachment::{Attachment, VolumeUse};
use crate::exports::{Export, Opening};
use crate::portals::PathState;
use azekura_base::{Generation, HostName, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is being attached.
    Wanted,
    /// Its clients' requests carry this attachment; and whether they may write.
    Held(Generation, bool),
    /// It is being given back; whoever wants it now waits until that is done.
    Detaching,
}

/// One volume.
#[derive(Debug)]
struct Volume<K> {
    id: VolumeId,
    state: State,
    /// Connections that have opened it, or want to.
    users: BTreeSet<K>,
    /// Requests under way, also of clients that are gone.
    requests: u64,
}

impl<K> Volume<K> {
    fn new(id: VolumeId, state: State, users: BTreeSet<K>) -> Volume<K> {
        Volume { id, state, users, requests: 0 }
    }
}

/// The volumes that this node's clients use. See the module's description.
#[derive(Debug)]
pub(crate) struct Attaching<K> {
    volumes: BTreeMap<VolumeUse, Volume<K>>,
    /// Names for which an attachment was asked and has not been answered: they may have come to be another volume's.
    asked: BTreeSet<VolumeUse>,
    /// What to tell connections whose wish was refused.
    refused: BTreeMap<K, String>,
}

/// A volume that was taken out: which, the attachment that was held, and its users.
pub(crate) type Taken<K> = (VolumeUse, Option<Generation>, BTreeSet<K>);

/// What comes of an attachment, or of its refusal.
pub(crate) struct Attached<K> {
    /// Connections that have waited for it.
    pub waiting: Vec<K>,
    /// The volume is to be attached anew: another one has, or had, the name.
    pub again: bool,
    /// Nobody wants it any more: this is to be given back.
    pub unwanted: Option<Generation>,
}

impl<K> Default for Attaching<K> {
    fn default() -> Attaching<K> {
        Attaching { volumes: BTreeMap::new(), asked: BTreeSet::new(), refused: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Attaching<K> {
    /// Whether a connection can open an export.
    pub fn opening(&self, conn: K, host: Option<&HostName>, export: Export) -> Opening {
        if let Some(why) = self.refused.get(&conn) {
            return Opening::Refused(why.clone());
        }
        // Nobody writes to a snapshot: any number of clients may read it, anywhere.
        if export.is_read_only() {
            return Opening::Ready(export);
        }
        let which = VolumeUse { volume: export.name.clone(), host: host.cloned() };
        match self.volumes.get(&which).map(|volume| volume.state) {
            Some(State::Held(_, true)) => Opening::Ready(export),
            Some(State::Held(_, false)) => Opening::Ready(Export { path: PathState::NonOptimized, ..export }),
            _ => Opening::Later(export.name),
        }
    }

    /// A connection has opened a volume that is held; answers the attachment that its requests carry, and whether they
    /// may write. Clients after the first have not asked for the volume: they are counted from here on. Snapshots are
    /// attached to nobody.
    pub fn opened(&mut self, conn: K, which: &VolumeUse) -> Option<(Generation, bool)> {
        let volume = self.volumes.get_mut(which)?;
        let State::Held(attachment, writes) = volume.state else { return None };
        #[cfg(feature = "sabotage")]
        let writes = writes || crate::sabotage::writes_by_every_path();
        #[cfg(feature = "sabotage")]
        if crate::sabotage::counts_only_first() {
            return Some((attachment, writes));
        }
        volume.users.insert(conn);
        Some((attachment, writes))
    }

    /// A refusal was told, or is void.
    pub fn forget_refusal(&mut self, conn: K) {
        self.refused.remove(&conn);
    }

    /// A client wants to open a volume. True when the volume is to be attached.
    #[must_use]
    pub fn want(&mut self, conn: K, which: &VolumeUse, id: VolumeId) -> bool {
        if let Some(volume) = self.volumes.get_mut(which) {
            volume.users.insert(conn);
            return false;
        }
        self.volumes.insert(which.clone(), Volume::new(id, State::Wanted, BTreeSet::from([conn])));
        self.asked.insert(which.clone())
    }

    /// A volume is attached to this node, or is not, and why.
    pub fn attached(&mut self, which: &VolumeUse, outcome: Result<Attachment, String>) -> Attached<K> {
        self.asked.remove(which);
        let mut attached = Attached { waiting: Vec::new(), again: false, unwanted: None };
        let Some(volume) = self.volumes.get_mut(which) else {
            if let Ok(has) = outcome {
                let detaching = Volume::new(has.volume, State::Detaching, BTreeSet::new());
                self.volumes.insert(which.clone(), detaching);
                attached.unwanted = Some(has.generation);
            }
            return attached;
        };
        match outcome {
            Ok(has) if has.volume != volume.id => attached.again = self.asked.insert(which.clone()),
            Ok(has) => {
                volume.state = State::Held(has.generation, has.writes);
                attached.waiting.extend(&volume.users);
            }
            Err(why) => {
                attached.waiting.extend(&volume.users);
                self.refused.extend(volume.users.iter().map(|conn| (*conn, why.clone())));
                self.volumes.remove(which);
            }
        }
        attached
    }

    /// A volume is given back. True when it is to be attached again, because somebody has come to want it.
    #[must_use]
    pub fn given_back(&mut self, which: &VolumeUse) -> bool {
        let Some(volume) = self.volumes.get_mut(which).filter(|volume| volume.state == State::Detaching) else {
            return false;
        };
        if volume.users.is_empty() {
            self.volumes.remove(which);
            return false;
        }
        volume.state = State::Wanted;
        self.asked.insert(which.clone())
    }

    /// A client's connection has ended; answers the volumes that it has used.
    #[must_use]
    pub fn gone(&mut self, conn: K) -> Vec<VolumeUse> {
        self.forget_refusal(conn);
        let used =
            self.volumes.iter_mut().filter_map(|(which, volume)| volume.users.remove(&conn).then(|| which.clone()));
        used.collect()
    }

    /// A client's request begins under an attachment of a volume.
    pub fn begin(&mut self, which: &VolumeUse, attachment: Generation) {
        if let Some(volume) = self.holding(which, attachment) {
            volume.requests += 1;
        }
    }

    /// And ends.
    pub fn end(&mut self, which: &VolumeUse, attachment: Generation) {
        if let Some(volume) = self.holding(which, attachment) {
            volume.requests = volume.requests.saturating_sub(1);
        }
    }

    fn holding(&mut self, which: &VolumeUse, attachment: Generation) -> Option<&mut Volume<K>> {
        let is_it = |volume: &&mut Volume<K>| matches!(volume.state, State::Held(mine, _) if mine == attachment);
        self.volumes.get_mut(which).filter(is_it)
    }

    /// The number of a volume that is held and that nobody uses.
    pub fn unused(&self, which: &VolumeUse) -> Option<VolumeId> {
        let volume = self.volumes.get(which).filter(|volume| matches!(volume.state, State::Held(..)))?;
        (volume.users.is_empty() && volume.requests == 0).then_some(volume.id)
    }

    /// Gives a volume back if nobody uses it; answers the attachment that is to be given back.
    #[must_use]
    pub fn leave(&mut self, which: &VolumeUse) -> Option<Generation> {
        let volume = self.volumes.get_mut(which)?;
        let State::Held(attachment, _) = volume.state else { return None };
        let unused = volume.users.is_empty() && volume.requests == 0;
        if unused {
            volume.state = State::Detaching;
        }
        unused.then_some(attachment)
    }

    /// Takes out the volumes whose attachment has ended.
    pub fn take_ended(&mut self, is_ended: impl Fn(VolumeId, Generation) -> bool) -> Vec<Taken<K>> {
        let is_over = |volume: &Volume<K>| match volume.state {
            State::Held(attachment, _) => is_ended(volume.id, attachment),
            State::Wanted | State::Detaching => false,
        };
        self.take(|_, volume| is_over(volume))
    }

    /// Takes out the volumes that are gone.
    pub fn take_deleted(&mut self, is_gone: impl Fn(&str, VolumeId) -> bool) -> Vec<Taken<K>> {
        self.take(|name, volume| is_gone(name, volume.id))
    }

    fn take(&mut self, is_over: impl Fn(&str, &Volume<K>) -> bool) -> Vec<Taken<K>> {
        let over = self.volumes.iter().filter(|(which, volume)| is_over(&which.volume, volume));
        let over: Vec<VolumeUse> = over.map(|(which, _)| which.clone()).collect();
        let over = over.into_iter().filter_map(|which| self.volumes.remove_entry(&which));
        let held = |volume: &Volume<K>| match volume.state {
            State::Held(attachment, _) => Some(attachment),
            State::Wanted | State::Detaching => None,
        };
        over.map(|(which, volume)| (which, held(&volume), volume.users)).collect()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.asked.is_empty() && self.refused.is_empty()
    }
}
