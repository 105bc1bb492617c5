//! The steps of a cut.

use super::{Done, PATIENCE, TOKENS, TOKENS_PER_CUT, UnderWay, Wish};
use crate::cluster::events::Event;
use crate::cluster::records::CLASS;
use crate::cluster::{Cluster, Scene};
use crate::kernel::process::Life;
use crate::report::Invariant;
use azekura_base::{LayerId, PgId, VolumeId};
use azekura_model::CutRecord;
use azekura_model::transitions::cuts::{Cut, VolumeCut, begin_cut, call_off_cut, finish_cut};

impl<S: Scene> Cluster<S> {
    /// Asks a node for a cut; `None` when one of the volumes is being cut, or what it is to go back to is not there.
    pub(crate) fn begin_cut(&mut self, from: Life, wishes: Vec<Wish>) -> Option<u64> {
        let id = self.cuts.begun + 1;
        let volumes: Vec<VolumeCut> = wishes.iter().map(Wish::to_cut).collect();
        let now = (self.now.as_secs(), self.now.subsec_nanos());
        let begun = self.configuration.run(|records| begin_cut(records, &id.to_string(), from.node, &volumes, now));
        let (volumes, revision) = begun.ok()?;
        self.cuts.begun = id;
        let asked = self.stamp();
        let mut heads: Vec<(VolumeId, LayerId, LayerId)> = Vec::new();
        for (wish, volume) in &volumes {
            let Some(CutRecord { next, .. }) = &volume.cut else { continue };
            heads.push((volume.id, volume.head, *next));
            if wish.back_to.is_some() {
                self.cuts.reverted.insert(*next, volume.head);
            }
        }
        self.trace.step(self.now, id, || {
            let heads: Vec<_> = heads.iter().map(|(_, layer, next)| format!("{next:?} on {layer:?}")).collect();
            format!("{from:?} begins cut {id} at {asked}: {wishes:?}, {}", heads.join(", "))
        });
        self.inform_all();
        let groups: Vec<PgId> = self.configuration.groups_of(CLASS);
        for (index, (volume, layer, _)) in (0..).zip(&heads) {
            let (token, groups) = (TOKENS + id * TOKENS_PER_CUT + index, groups.clone());
            self.tell(from, |node| node.freeze(token, *volume, *layer, revision, groups, PATIENCE));
        }
        let left = heads.len();
        let cut = Cut { id: id.to_string(), volumes, revision: i64::try_from(revision).unwrap_or(i64::MAX) };
        self.cuts.under_way.insert(id, UnderWay { from, wishes, cut, asked, left });
        // Whoever leads ends what the caller does not.
        let latest = self.now + PATIENCE + self.cuts.random.spread_millis(500, 2000);
        self.queue.push(latest, Event::CallOff(id));
        Some(id)
    }

    /// All groups have stopped, or not all in time. False when that is not about a cut.
    pub(crate) fn freeze_ended(&mut self, token: u64, result: &Result<(), Vec<PgId>>) -> bool {
        if token <= TOKENS {
            return false;
        }
        let id = (token - TOKENS) / TOKENS_PER_CUT;
        self.trace.step(self.now, token, || format!("the freeze {token} of cut {id}: {result:?}"));
        let Some(cut) = self.cuts.under_way.get_mut(&id) else { return true };
        // The caller's wish gets to the store when it is there again.
        let node = cut.from.node;
        let event = match result {
            Ok(()) => {
                cut.left -= 1;
                (cut.left == 0).then_some(Event::CutDone(id))
            }
            Err(_) => Some(Event::CallOff(id)),
        };
        if let Some(event) = event {
            let away = self.configuration.away(node, self.now).unwrap_or_default();
            let at = self.now.max(away) + self.configuration.delay();
            self.queue.push(at, event);
        }
        true
    }

    /// The next heads are the heads from now on, and what were the heads are snapshots.
    pub(crate) fn cut_done(&mut self, id: u64) {
        let Some(UnderWay { from, wishes, cut, asked, .. }) = self.cuts.under_way.remove(&id) else { return };
        let revision = match self.configuration.run(|records| finish_cut(records, &cut)) {
            Ok((_, revision)) => revision,
            Err(error) => {
                self.trace.step(self.now, id, || format!("{from:?} can't finish cut {id}: {error}"));
                return self.end_cut(id, &cut);
            }
        };
        let answered = self.stamp();
        self.trace.step(self.now, id, || format!("{from:?} has finished cut {id} at {answered}"));
        for wish in &wishes {
            let kind = if wish.back_to.is_some() { "revert" } else { "snapshot" };
            self.count(kind);
        }
        if wishes.len() > 1 {
            self.count("snapshot of several volumes");
        }
        self.inform_all();
        S::cut_is_over(self, id, Some(Done { wishes, asked, answered, revision }));
    }

    /// A cut that is not finished by now is not to be.
    pub(crate) fn call_off(&mut self, id: u64) {
        if let Some(UnderWay { cut, .. }) = self.cuts.under_way.remove(&id) {
            self.end_cut(id, &cut);
        }
    }

    fn end_cut(&mut self, id: u64, cut: &Cut) {
        let volumes: Vec<String> = cut.volumes.iter().map(|(wish, _)| wish.volume.clone()).collect();
        if let Err(error) = self.configuration.run(|records| call_off_cut(records, &cut.id, &volumes)) {
            return self.violate(Invariant::Protocol, format!("cut {id} can't be called off: {error}"));
        }
        self.trace.step(self.now, id, || format!("cut {id} is called off"));
        self.count("snapshot called off");
        self.inform_all();
        S::cut_is_over(self, id, None);
    }
}
