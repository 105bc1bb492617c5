//! What a gateway has asked of one placement group, which has numbers and a window of its own (0018).

use super::in_flight::InFlight;
use crate::WRITE_WINDOW;
use azekura_base::{RequestId, VolumeId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// See the module's description. A group that does not answer fills its own window, and no other's.
#[derive(Default)]
pub(super) struct Lane {
    /// Writes that have a number and no answer.
    writes: BTreeMap<RequestId, InFlight>,
    /// Writes that the window has no room for yet.
    backlog: VecDeque<InFlight>,
    /// The last number given. Never goes back while the session lives.
    last: u64,
    /// When the group last answered a write with anything but a refusal.
    wrote_at: Duration,
    /// The same of reads.
    read_at: Duration,
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

    /// Numbers the next write of the backlog, if the window has room for it.
    pub(super) fn number_next(&mut self) -> Option<(RequestId, VolumeId)> {
        let mut in_flight = if self.has_room() { self.backlog.pop_front() } else { None }?;
        in_flight.numbered();
        in_flight.waits_behind(self.wrote_at);
        self.last += 1;
        let (id, volume) = (RequestId(self.last), in_flight.wanted().volume);
        self.writes.insert(id, in_flight);
        Some((id, volume))
    }

    /// The group answered a part of a read with anything but a refusal.
    pub(super) fn answered_read(&mut self, now: Duration) {
        self.read_at = now;
    }

    /// The group answered a write with anything but a refusal: takes it out.
    pub(super) fn answered_write(&mut self, id: RequestId, now: Duration) -> Option<InFlight> {
        let in_flight = self.writes.remove(&id)?;
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
        self.writes.values().chain(&self.backlog)
    }

    /// All writes, to be changed.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.writes.values_mut().chain(&mut self.backlog)
    }

    /// Takes out all writes that `which` selects, those with a number into `numbered` and the others into `backlog`.
    pub(super) fn extract(
        &mut self,
        which: impl Fn(&InFlight) -> bool,
        numbered: &mut Vec<InFlight>,
        backlog: &mut Vec<InFlight>,
    ) {
        numbered.extend(take_out(&mut self.writes, &which));
        let (gone, stays) = std::mem::take(&mut self.backlog).into_iter().partition(|in_flight| which(in_flight));
        self.backlog = stays;
        backlog.extend::<VecDeque<InFlight>>(gone);
    }
}

/// Takes out the parts that `which` selects, in their order.
fn take_out(parts: &mut BTreeMap<RequestId, InFlight>, which: impl Fn(&InFlight) -> bool) -> Vec<InFlight> {
    let ids: Vec<RequestId> = parts.iter().filter(|(_, in_flight)| which(in_flight)).map(|(id, _)| *id).collect();
    ids.into_iter().filter_map(|id| parts.remove(&id)).collect()
}
