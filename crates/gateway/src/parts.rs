//! The parts under way: writes by their placement group, where they are numbered, and reads.

use crate::WRITE_WINDOW;
use crate::gateway::Under;
use azekura_base::{PgId, RequestId};
use std::collections::{BTreeMap, VecDeque};
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

/// What this gateway has asked of one placement group. A group that does not answer fills its own window, and no
/// other's.
#[derive(Default)]
pub(crate) struct Lane {
    /// Writes that have a number and no answer.
    pub(crate) writes: BTreeMap<RequestId, Under>,
    /// Writes that the window has no room for yet.
    pub(crate) backlog: VecDeque<Under>,
    /// The last number given. Never goes back while the session lives.
    last: u64,
    /// When the group last answered a write with anything but a refusal.
    pub(crate) wrote_at: Duration,
    /// The same of reads.
    pub(crate) read_at: Duration,
}

impl Lane {
    /// No write of this group with a lower number will be sent again.
    pub(crate) fn oldest(&self) -> RequestId {
        let oldest = self.writes.first_key_value().map_or(RequestId(self.last + 1), |(id, _)| *id);
        oldest.min(RequestId(self.last))
    }

    fn has_room(&self) -> bool {
        self.last - self.oldest().0 + 1 < WRITE_WINDOW
    }

    /// Numbers the next write of the backlog, if the window has room for it.
    fn number_next(&mut self) -> Option<RequestId> {
        let under = if self.has_room() { self.backlog.pop_front() } else { None }?;
        self.last += 1;
        self.writes.insert(RequestId(self.last), under);
        Some(RequestId(self.last))
    }
}

/// All parts under way.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) lanes: BTreeMap<PgId, Lane>,
    pub(crate) reads: BTreeMap<RequestId, Under>,
    last_read: u64,
    /// Numbered parts that wait to be sent, so that a tick need not look at all.
    pub(crate) idle: usize,
}

impl Parts {
    pub(crate) fn lane(&mut self, pg: PgId) -> &mut Lane {
        self.lanes.entry(pg).or_default()
    }

    /// Numbers the next write of a group's backlog, if the window has room for it.
    pub(crate) fn number_next(&mut self, pg: PgId) -> Option<PartId> {
        #[cfg(feature = "sabotage")]
        if crate::sabotage::shares_window() && self.lanes.values().any(|lane| !lane.has_room()) {
            return None;
        }
        let id = self.lanes.get_mut(&pg)?.number_next()?;
        self.idle += 1;
        Some(PartId::Write(pg, id))
    }

    pub(crate) fn add_read(&mut self, under: Under) -> PartId {
        self.last_read += 1;
        self.idle += 1;
        self.reads.insert(RequestId(self.last_read), under);
        PartId::Read(RequestId(self.last_read))
    }

    pub(crate) fn get(&self, id: PartId) -> Option<&Under> {
        match id {
            PartId::Write(pg, id) => self.lanes.get(&pg)?.writes.get(&id),
            PartId::Read(id) => self.reads.get(&id),
        }
    }

    pub(crate) fn get_mut(&mut self, id: PartId) -> Option<&mut Under> {
        match id {
            PartId::Write(pg, id) => self.lanes.get_mut(&pg)?.writes.get_mut(&id),
            PartId::Read(id) => self.reads.get_mut(&id),
        }
    }

    /// Takes out a part that is not with anybody any more, or is answered.
    pub(crate) fn remove(&mut self, id: PartId) -> Option<Under> {
        let under = match id {
            PartId::Write(pg, id) => self.lanes.get_mut(&pg)?.writes.remove(&id),
            PartId::Read(id) => self.reads.remove(&id),
        }?;
        self.idle -= usize::from(under.at.is_none());
        Some(under)
    }

    /// The part is with nobody any more, and waits to be sent.
    pub(crate) fn take_back(&mut self, id: PartId) {
        if let Some(under) = self.get_mut(id)
            && under.at.take().is_some()
        {
            self.idle += 1;
        }
    }

    /// Every part that has a number: writes by group, then reads, each in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PartId, &Under)> {
        let lanes = self.lanes.iter();
        let writes =
            lanes.flat_map(|(pg, lane)| lane.writes.iter().map(|(id, under)| (PartId::Write(*pg, *id), under)));
        writes.chain(self.reads.iter().map(|(id, under)| (PartId::Read(*id), under)))
    }

    /// The same, to be changed; who changes where a part is keeps `idle` right.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PartId, &mut Under)> {
        let lanes = self.lanes.iter_mut();
        let writes =
            lanes.flat_map(|(pg, lane)| lane.writes.iter_mut().map(|(id, under)| (PartId::Write(*pg, *id), under)));
        writes.chain(self.reads.iter_mut().map(|(id, under)| (PartId::Read(*id), under)))
    }

    /// Takes out all parts, numbered or not, that `which` selects.
    pub(crate) fn extract(&mut self, which: impl Fn(&Under) -> bool) -> (Vec<Under>, Vec<Under>) {
        let (mut numbered, mut backlog) = (Vec::new(), Vec::new());
        for lane in self.lanes.values_mut() {
            numbered.extend(take_out(&mut lane.writes, &which));
            let (gone, stays) = std::mem::take(&mut lane.backlog).into_iter().partition(|under| which(under));
            lane.backlog = stays;
            backlog.extend::<VecDeque<Under>>(gone);
        }
        numbered.extend(take_out(&mut self.reads, &which));
        self.idle -= numbered.iter().filter(|under| under.at.is_none()).count();
        (numbered, backlog)
    }
}

fn take_out(parts: &mut BTreeMap<RequestId, Under>, which: impl Fn(&Under) -> bool) -> Vec<Under> {
    let ids: Vec<RequestId> = parts.iter().filter(|(_, under)| which(under)).map(|(id, _)| *id).collect();
    ids.into_iter().filter_map(|id| parts.remove(&id)).collect()
}
