//! The parts under way: writes by their placement group, where they are numbered, and reads.
//!
//! - [`in_flight`]: one part. [`patience`]: how long it waits. [`copies_tried`]: what of a read has met at which copy.
//! - [`lane`]: the writes of one group.

mod copies_tried;
mod in_flight;
mod lane;
mod patience;

pub(crate) use in_flight::{Ask, InFlight, Wanted};

use crate::operations::OpId;
use crate::view::GroupView;
use azekura_base::{Endpoint, Generation, KeyGeneration, PgId, RequestId, Slab, VolumeId};
use lane::Lane;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A part's name. Writes are numbered in their group, reads apart from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartId {
    Write(PgId, RequestId),
    Read(RequestId),
}

impl PartId {
    pub(crate) fn is_write(self) -> bool {
        matches!(self, PartId::Write(..))
    }

    pub(crate) fn number(self) -> RequestId {
        match self {
            PartId::Write(_, id) | PartId::Read(id) => id,
        }
    }
}

/// All parts under way.
#[derive(Default)]
pub(crate) struct Parts {
    lanes: BTreeMap<PgId, Lane>,
    /// Reads, each by the number that its answer names: no later one has it.
    reads: Slab<InFlight>,
    /// Numbered parts that wait to be sent, so that a tick need not look at all.
    idle: usize,
    /// Writes that wait for something that was given up, likewise.
    held: usize,
}

/// A numbered part, to be changed: the one way to say where it is, so that what waits to be sent is counted.
pub(crate) struct PartMut<'a> {
    in_flight: &'a mut InFlight,
    idle: &'a mut usize,
}

impl PartMut<'_> {
    /// The part, which waited, is sent to `to`.
    pub(crate) fn sent(&mut self, to: Endpoint, now: Duration) {
        *self.idle -= usize::from(self.in_flight.at().is_none());
        self.in_flight.sent(to, now);
    }

    /// Who had the part gives it back, or is not asked for it any more; it waits to be sent.
    pub(crate) fn given_back(&mut self, now: Duration) {
        *self.idle += usize::from(self.in_flight.at().is_some());
        self.in_flight.given_back(now);
    }

    /// Who had the part could not serve it; it waits to be sent.
    pub(crate) fn taken_back(&mut self) {
        *self.idle += usize::from(self.in_flight.at().is_some());
        self.in_flight.taken_back();
    }
}

impl Deref for PartMut<'_> {
    type Target = InFlight;

    fn deref(&self) -> &InFlight {
        self.in_flight
    }
}

impl DerefMut for PartMut<'_> {
    fn deref_mut(&mut self) -> &mut InFlight {
        self.in_flight
    }
}

impl Parts {
    /// Adds a part of a write, behind all that wait for a number in its group.
    pub(crate) fn add_write(&mut self, in_flight: InFlight) {
        self.lanes.entry(in_flight.wanted().pg).or_default().queue(in_flight);
    }

    /// Adds a part of a read, which waits to be sent.
    pub(crate) fn add_read(&mut self, in_flight: InFlight) -> PartId {
        self.lanes.entry(in_flight.wanted().pg).or_default();
        self.idle += 1;
        PartId::Read(RequestId(self.reads.insert(in_flight)))
    }

    /// Numbers the next write of a group's backlog, if the window has room for it; it waits to be sent. Writes of
    /// volumes that are `is_held` stay behind.
    pub(crate) fn number_next(&mut self, pg: PgId, is_held: impl Fn(VolumeId) -> bool) -> Option<(PartId, VolumeId)> {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::shares_window() && self.lanes.values().any(|lane| !lane.has_room()) {
            return None;
        }
        let lane = self.lanes.get_mut(&pg)?;
        let before = lane.held();
        let numbered = lane.number_next(is_held);
        self.held += lane.held() - before;
        let (id, volume) = numbered?;
        self.idle += 1;
        Some((PartId::Write(pg, id), volume))
    }

    /// The groups in which writes wait for something that was given up, to be looked at again.
    pub(crate) fn release_held(&mut self) -> Vec<PgId> {
        if self.held == 0 {
            return Vec::new();
        }
        self.held = 0;
        let holding = self.lanes.iter_mut().filter(|(_, lane)| lane.held() > 0);
        holding
            .map(|(pg, lane)| {
                lane.release();
                *pg
            })
            .collect()
    }

    /// True while writes wait for something that was given up.
    pub(crate) fn any_held(&self) -> bool {
        self.held > 0
    }

    /// The volumes with something that was given up.
    pub(crate) fn given_up_volumes(&self) -> BTreeSet<VolumeId> {
        self.lanes.values().flat_map(Lane::given_up).collect()
    }

    /// A write that was taken out, unanswered, may still be applied.
    pub(crate) fn gives_up(&mut self, id: RequestId, in_flight: &InFlight) {
        let wanted = in_flight.wanted();
        if let Some(lane) = self.lanes.get_mut(&wanted.pg) {
            lane.gives_up(id, wanted);
        }
    }

    /// The generations of volumes' keys that something which was given up is encrypted under.
    pub(crate) fn given_up_keys(&self) -> impl Iterator<Item = (VolumeId, KeyGeneration)> {
        self.lanes.values().flat_map(Lane::given_up_keys)
    }

    /// The client of a request is gone. Gives where writes are unsettled by that which were not.
    pub(crate) fn orphan(&mut self, op: OpId) -> Vec<(PgId, VolumeId)> {
        let lanes = self.lanes.iter_mut();
        lanes
            .flat_map(|(pg, lane)| {
                lane.orphan(|in_flight| in_flight.wanted().op == op).into_iter().map(|volume| (*pg, volume))
            })
            .collect()
    }

    /// Nothing of the volume's writes to the group is unsettled by this gateway.
    pub(crate) fn is_settled(&self, pg: PgId, volume: VolumeId) -> bool {
        self.lanes.get(&pg).is_none_or(|lane| lane.is_settled(volume))
    }

    /// The volumes, in their groups, for which a write is to be sent that settles what was given up.
    pub(crate) fn take_unsettled(&mut self) -> Vec<(PgId, VolumeId, Generation)> {
        let lanes = self.lanes.iter_mut();
        lanes
            .flat_map(|(pg, lane)| {
                lane.take_unsettled().into_iter().map(|(volume, attachment)| (*pg, volume, attachment))
            })
            .collect()
    }

    /// A write that was to settle what was given up is answered. True when nothing of that can be applied any more.
    pub(crate) fn settled(&mut self, pg: PgId, id: RequestId, volume: VolumeId, committed: bool) -> bool {
        self.lanes.get_mut(&pg).is_some_and(|lane| lane.settled(id, volume, committed))
    }

    /// The write that was to settle what was given up was taken out unanswered.
    pub(crate) fn settles_no_more(&mut self, pg: PgId, volume: VolumeId) {
        if let Some(lane) = self.lanes.get_mut(&pg) {
            lane.settles_no_more(volume);
        }
    }

    /// Forgets what was given up of volumes, under attachments, that have ended. Gives the volumes, in their groups.
    pub(crate) fn forget_given_up(&mut self, ended: impl Fn(VolumeId, Generation) -> bool) -> Vec<(PgId, VolumeId)> {
        let lanes = self.lanes.iter_mut();
        lanes.flat_map(|(pg, lane)| lane.forget(&ended).into_iter().map(|volume| (*pg, volume))).collect()
    }

    /// What a part says of the writes of its group: none with a lower number will be sent again.
    pub(crate) fn oldest(&self, id: PartId) -> RequestId {
        match id {
            PartId::Write(pg, id) => self.lanes.get(&pg).map_or(id, Lane::oldest),
            PartId::Read(id) => id,
        }
    }

    /// When the group of a write last answered one with anything but a refusal. Refusals of reads are no news of it.
    pub(crate) fn wrote_at(&self, id: PartId) -> Duration {
        match id {
            PartId::Write(pg, _) => self.lanes.get(&pg).map_or(Duration::ZERO, |lane| lane.answered_at(true)),
            PartId::Read(_) => Duration::ZERO,
        }
    }

    pub(crate) fn get(&self, id: PartId) -> Option<&InFlight> {
        match id {
            PartId::Write(pg, id) => self.lanes.get(&pg)?.get(id),
            PartId::Read(id) => self.reads.get(id.0),
        }
    }

    pub(crate) fn get_mut(&mut self, id: PartId) -> Option<PartMut<'_>> {
        let in_flight = match id {
            PartId::Write(pg, id) => self.lanes.get_mut(&pg)?.get_mut(id),
            PartId::Read(id) => self.reads.get_mut(id.0),
        }?;
        Some(PartMut { in_flight, idle: &mut self.idle })
    }

    /// The part, if `peer` has it.
    pub(crate) fn held_by(&mut self, peer: Endpoint, id: PartId) -> Option<PartMut<'_>> {
        self.get_mut(id).filter(|part| part.at() == Some(peer))
    }

    /// A copy answered a part with anything but a refusal: takes it out.
    pub(crate) fn answered(&mut self, id: PartId, now: Duration) -> Option<InFlight> {
        let in_flight = match id {
            PartId::Write(pg, id) => self.lanes.get_mut(&pg)?.answered_write(id, now)?,
            PartId::Read(id) => {
                let in_flight = self.reads.remove(id.0)?;
                self.lanes.entry(in_flight.wanted().pg).or_default().answered_read(now);
                in_flight
            }
        };
        self.idle -= usize::from(in_flight.at().is_none());
        Some(in_flight)
    }

    /// True while parts wait to be sent that have a number.
    pub(crate) fn any_idle(&self) -> bool {
        self.idle > 0
    }

    /// The groups that were ever asked for something.
    pub(crate) fn groups(&self) -> impl Iterator<Item = PgId> {
        self.lanes.keys().copied()
    }

    /// All parts, those without a number too.
    pub(crate) fn all(&self) -> impl Iterator<Item = &InFlight> {
        self.lanes.values().flat_map(Lane::all).chain(self.reads.iter().map(|(_, in_flight)| in_flight))
    }

    /// All parts, those without a number too, and since when each waits for a group that does not serve it.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (&InFlight, Duration)> {
        let answered = |in_flight: &InFlight| {
            self.lanes.get(&in_flight.wanted().pg).map_or(Duration::ZERO, |lane| lane.answered_at(in_flight.is_write()))
        };
        let writes = self.lanes.values().flat_map(Lane::all);
        writes
            .chain(self.reads.iter().map(|(_, in_flight)| in_flight))
            .map(move |in_flight| (in_flight, in_flight.unserved_since(answered(in_flight))))
    }

    /// Every part that has a number: writes by group and in their order, then reads. Who changes where a part is
    /// keeps `idle` right.
    fn numbered_mut(&mut self) -> impl Iterator<Item = (PartId, &mut InFlight)> {
        let lanes = self.lanes.iter_mut();
        let writes =
            lanes.flat_map(|(pg, lane)| lane.writes_mut().map(|(id, in_flight)| (PartId::Write(*pg, id), in_flight)));
        writes.chain(self.reads.iter_mut().map(|(id, in_flight)| (PartId::Read(RequestId(id)), in_flight)))
    }

    /// The parts that wait to be sent and that `which` selects, in their order; they may be sent now.
    pub(crate) fn release(&mut self, which: impl Fn(&InFlight) -> bool) -> Vec<PartId> {
        let mut waiting = Vec::new();
        for (id, in_flight) in self.numbered_mut().filter(|(_, in_flight)| in_flight.at().is_none() && which(in_flight))
        {
            in_flight.send_now();
            waiting.push(id);
        }
        waiting
    }

    /// Takes back the parts that a shard has and that `which` selects: they wait to be sent, to whom ever it may be.
    pub(crate) fn take_back(&mut self, now: Duration, which: impl Fn(&InFlight, Endpoint) -> bool) {
        let mut taken = 0;
        for (_, in_flight) in self.numbered_mut() {
            if in_flight.at().is_some_and(|peer| which(in_flight, peer)) {
                in_flight.given_back(now);
                in_flight.ask_primary_only(false);
                taken += 1;
            }
        }
        self.idle += taken;
    }

    /// Takes back what has been without an answer for long, although the connection to whom it was sent stands: it is
    /// sent again, a read to another copy, if there is one that is `up` and has not been asked. Gives how much it was.
    pub(crate) fn take_back_unanswered<'g>(
        &mut self,
        now: Duration,
        group: impl Fn(PgId) -> Option<&'g GroupView>,
        up: impl Fn(Endpoint) -> bool,
    ) -> usize {
        let mut taken = 0;
        for (_, in_flight) in self.numbered_mut() {
            if in_flight.at().is_some() && in_flight.is_overdue(now, group(in_flight.wanted().pg), &up) {
                in_flight.unanswered();
                taken += 1;
            }
        }
        self.idle += taken;
        taken
    }

    /// These groups have other primaries than before, or are reached again: who waits for them gets another chance.
    pub(crate) fn another_chance(&mut self, now: Duration, at: impl Fn(PgId) -> bool) {
        let lanes = self.lanes.iter_mut().filter(|(pg, _)| at(**pg));
        lanes.for_each(|(_, lane)| lane.all_mut().for_each(|in_flight| in_flight.another_chance(now)));
        let reads = self.reads.values_mut().filter(|in_flight| at(in_flight.wanted().pg));
        reads.for_each(|in_flight| in_flight.another_chance(now));
    }

    /// Takes out all parts that `which` selects: those with a number, and those without.
    pub(crate) fn extract(&mut self, which: impl Fn(&InFlight) -> bool) -> (Vec<(PartId, InFlight)>, Vec<InFlight>) {
        let (mut numbered, mut backlog) = (Vec::new(), Vec::new());
        for (pg, lane) in &mut self.lanes {
            let before = lane.held();
            let (writes, others) = lane.extract(&which);
            self.held -= before - lane.held();
            numbered.extend(writes.into_iter().map(|(id, in_flight)| (PartId::Write(*pg, id), in_flight)));
            backlog.extend(others);
        }
        let reads = self.reads.iter().filter(|(_, in_flight)| which(in_flight)).map(|(id, _)| id);
        let reads: Vec<u64> = reads.collect();
        let taken = reads.into_iter().filter_map(|id| Some((PartId::Read(RequestId(id)), self.reads.remove(id)?)));
        numbered.extend(taken);
        self.idle -= numbered.iter().filter(|(_, in_flight)| in_flight.at().is_none()).count();
        (numbered, backlog)
    }
}
