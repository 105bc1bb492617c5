//! What a gateway has asked of one placement group, which has numbers and a window of its own (0018).
//!
//! A write that was sent and is given up before it is answered may still be applied, until the group commits one with a
//! later number that says so by its `oldest`. Until then the volume's writes to the group are unsettled. So are they
//! while writes are under way whose client is gone: it may have come back as another one, and not know of them.

use super::in_flight::{InFlight, Wanted};
use crate::WRITE_WINDOW;
use azekura_base::{Generation, KeyGeneration, RequestId, VolumeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// See the module's description. A group that does not answer fills its own window, and no other's.
#[derive(Default)]
pub(super) struct Lane {
    /// Writes that have a number and no answer.
    writes: BTreeMap<RequestId, InFlight>,
    /// Writes that the window has no room for yet.
    backlog: VecDeque<InFlight>,
    /// Writes that may have no number before what was given up of their volume is settled.
    held: VecDeque<InFlight>,
    given_up: BTreeMap<VolumeId, GivenUp>,
    /// How many writes of each volume are under way, or in the backlog, whose clients are gone.
    orphans: BTreeMap<VolumeId, usize>,
    /// The last number given. Never goes back while the session lives.
    last: u64,
    /// When the group last answered a write with anything but a refusal.
    wrote_at: Duration,
    /// The same of reads.
    read_at: Duration,
}

/// What was given up of a volume's writes to the group, and may still be applied.
struct GivenUp {
    /// The last of them.
    last: RequestId,
    /// The attachment that it was asked under.
    attachment: Generation,
    /// A write that settles it is under way.
    settles: bool,
    /// The generations of the volume's key that something of it is encrypted under.
    keys: BTreeSet<KeyGeneration>,
}

impl Lane {
    /// No write of this group with a lower number will be sent again.
    pub(super) fn oldest(&self) -> RequestId {
        let oldest = self.writes.first_key_value().map_or(RequestId(self.last + 1), |(id, _)| *id);
        oldest.min(RequestId(self.last))
    }

    pub(super) fn has_room(&self) -> bool {
        self.last - self.oldest().0 + 1 < WRITE_WINDOW
    }

    /// A write waits for room in the window.
    pub(super) fn queue(&mut self, in_flight: InFlight) {
        self.backlog.push_back(in_flight);
    }

    /// Numbers the next write of the backlog, if the window has room for it. Those of volumes that `is_held` by other
    /// gateways' writes stay behind, without a number.
    pub(super) fn number_next(&mut self, is_held: impl Fn(VolumeId) -> bool) -> Option<(RequestId, VolumeId)> {
        if !self.has_room() {
            return None;
        }
        let mut in_flight = loop {
            let next = self.backlog.pop_front()?;
            let volume = next.wanted().volume;
            // Neither waits for its own kind: of two gateways that both have some, each would wait for the other.
            let is_first = next.is_to_settle() || next.is_orphan();
            if self.comes_late(volume) || !is_first && (self.orphans.contains_key(&volume) || is_held(volume)) {
                self.held.push_back(next);
            } else {
                break next;
            }
        };
        in_flight.numbered();
        in_flight.waits_behind(self.wrote_at);
        self.last += 1;
        let (id, volume) = (RequestId(self.last), in_flight.wanted().volume);
        self.writes.insert(id, in_flight);
        Some((id, volume))
    }

    /// A write that is numbered now could not say that what was given up of the volume is not to come: a write before
    /// that one is not answered yet.
    fn comes_late(&self, volume: VolumeId) -> bool {
        let given_up = self.given_up.get(&volume);
        given_up.is_some_and(|given_up| self.writes.first_key_value().is_some_and(|(first, _)| *first <= given_up.last))
    }

    /// The clients of writes that `which` selects are gone. Gives the volumes that have such writes now and had none.
    pub(super) fn orphan(&mut self, which: impl Fn(&InFlight) -> bool) -> Vec<VolumeId> {
        let all = self.writes.values_mut().chain(&mut self.held).chain(&mut self.backlog);
        let mut new = Vec::new();
        for in_flight in all.filter(|in_flight| !in_flight.is_orphan() && which(in_flight)) {
            in_flight.set_orphan();
            let count = self.orphans.entry(in_flight.wanted().volume).or_default();
            *count += 1;
            if *count == 1 {
                new.push(in_flight.wanted().volume);
            }
        }
        new
    }

    /// A write was taken out.
    fn is_out(&mut self, in_flight: &InFlight) {
        let volume = in_flight.wanted().volume;
        if in_flight.is_orphan()
            && let Some(count) = self.orphans.get_mut(&volume)
        {
            *count -= 1;
            if *count == 0 {
                self.orphans.remove(&volume);
            }
        }
    }

    /// Nothing of the volume's writes can be applied any more behind the back of somebody.
    pub(super) fn is_settled(&self, volume: VolumeId) -> bool {
        !self.given_up.contains_key(&volume) && !self.orphans.contains_key(&volume)
    }

    /// Writes that wait for what was given up.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// The volumes with something that was given up.
    pub(super) fn given_up(&self) -> impl Iterator<Item = VolumeId> {
        self.given_up.keys().copied()
    }

    /// What waits for something that was given up is looked at again, before all that came later.
    pub(super) fn release(&mut self) {
        while let Some(in_flight) = self.held.pop_back() {
            self.backlog.push_front(in_flight);
        }
    }

    /// The generations of volumes' keys that something which was given up is encrypted under.
    pub(super) fn given_up_keys(&self) -> impl Iterator<Item = (VolumeId, KeyGeneration)> {
        self.given_up.iter().flat_map(|(volume, given_up)| given_up.keys.iter().map(|key| (*volume, *key)))
    }

    /// A write that was sent is given up.
    pub(super) fn gives_up(&mut self, id: RequestId, wanted: &Wanted) {
        let attachment = wanted.attachment;
        let first = || GivenUp { last: id, attachment, settles: false, keys: BTreeSet::new() };
        let given_up = self.given_up.entry(wanted.volume).or_insert_with(first);
        (given_up.last, given_up.attachment) = (given_up.last.max(id), attachment);
        given_up.keys.extend(wanted.ask.key());
    }

    /// The volumes for whose writes one that settles them is to be sent: it counts as sent.
    pub(super) fn take_unsettled(&mut self) -> Vec<(VolumeId, Generation)> {
        let wait = self.given_up.iter_mut().filter(|(_, given_up)| !given_up.settles);
        wait.map(|(volume, given_up)| {
            given_up.settles = true;
            (*volume, given_up.attachment)
        })
        .collect()
    }

    /// The write that was to settle what was given up of the volume is answered, and is `committed` or not. True when
    /// nothing of that can be applied any more.
    pub(super) fn settled(&mut self, id: RequestId, volume: VolumeId, committed: bool) -> bool {
        self.settles_no_more(volume);
        let settled = committed && self.given_up.get(&volume).is_some_and(|given_up| given_up.last < id);
        if settled {
            self.given_up.remove(&volume);
        }
        settled
    }

    /// The volume's write that was to settle is not under way any more.
    pub(super) fn settles_no_more(&mut self, volume: VolumeId) {
        if let Some(given_up) = self.given_up.get_mut(&volume) {
            given_up.settles = false;
        }
    }

    /// Forgets what was given up of volumes, under attachments, that have ended: nobody takes it any more. Gives the
    /// volumes.
    pub(super) fn forget(&mut self, ended: impl Fn(VolumeId, Generation) -> bool) -> Vec<VolumeId> {
        let mut over = Vec::new();
        self.given_up.retain(|volume, given_up| {
            let is_over = ended(*volume, given_up.attachment);
            over.extend(is_over.then_some(*volume));
            !is_over
        });
        over
    }

    /// The group answered a part of a read with anything but a refusal.
    pub(super) fn answered_read(&mut self, now: Duration) {
        self.read_at = now;
    }

    /// The group answered a write with anything but a refusal: takes it out.
    pub(super) fn answered_write(&mut self, id: RequestId, now: Duration) -> Option<InFlight> {
        let in_flight = self.writes.remove(&id)?;
        self.is_out(&in_flight);
        self.wrote_at = now;
        Some(in_flight)
    }

    /// When the group last answered a write, or a read, with anything but a refusal.
    pub(super) fn answered_at(&self, write: bool) -> Duration {
        if write { self.wrote_at } else { self.read_at }
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&InFlight> {
        self.writes.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut InFlight> {
        self.writes.get_mut(&id)
    }

    /// Writes that have a number, in their order.
    pub(super) fn writes_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut InFlight)> {
        self.writes.iter_mut().map(|(id, in_flight)| (*id, in_flight))
    }

    /// All writes.
    pub(super) fn all(&self) -> impl Iterator<Item = &InFlight> {
        self.writes.values().chain(&self.held).chain(&self.backlog)
    }

    /// All writes, to be changed.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.writes.values_mut().chain(&mut self.held).chain(&mut self.backlog)
    }

    /// Takes out all writes that `which` selects: those with a number, and those without.
    pub(super) fn extract(&mut self, which: impl Fn(&InFlight) -> bool) -> (Vec<(RequestId, InFlight)>, Vec<InFlight>) {
        let ids: Vec<RequestId> = self.writes.iter().filter(|(_, write)| which(write)).map(|(id, _)| *id).collect();
        let numbered: Vec<_> = ids.into_iter().filter_map(|id| self.writes.remove_entry(&id)).collect();
        let mut others = Vec::new();
        for queue in [&mut self.held, &mut self.backlog] {
            let (gone, stays) = std::mem::take(queue).into_iter().partition(|in_flight| which(in_flight));
            *queue = stays;
            others.extend::<VecDeque<InFlight>>(gone);
        }
        numbered.iter().map(|(_, in_flight)| in_flight).chain(&others).for_each(|in_flight| self.is_out(in_flight));
        (numbered, others)
    }
}
