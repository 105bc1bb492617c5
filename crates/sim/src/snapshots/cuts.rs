//! Cuts: new heads are put into the places of some volumes' at one instant, and what were their heads become snapshots.
//! The steps are those of docs/decisions/0011-snapshots.md: the configuration says so, all groups stop, the
//! configuration says that it is done.

use crate::Invariant;
use crate::events::{Event, Life};
use crate::history::Stamp;
use crate::records::CLASS;
use crate::world::World;
use azekura_base::{LayerId, NodeId, PgId, VolumeId};
use azekura_model::transitions::cuts::{Cut, VolumeCut, begin_cut, call_off_cut, finish_cut};
use azekura_model::{CutRecord, SnapshotOrigin};
use azekura_node::ClusterView;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long groups may take to freeze.
const PATIENCE: Duration = Duration::from_secs(2);
/// Tokens of freezes begin here, those of fences below.
const TOKENS: u64 = 1 << 32;
/// Tokens that each cut has.
const TOKENS_PER_CUT: u64 = 64;

/// One volume of a cut.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) volume: String,
    /// The name of the snapshot, behind the volume's.
    pub(crate) name: String,
    /// The snapshot that the volume goes back to.
    pub(crate) back_to: Option<String>,
}

impl Wish {
    /// A snapshot of the present.
    pub(crate) fn snapshot(volume: &str, name: &str) -> Wish {
        Wish { volume: volume.into(), name: name.into(), back_to: None }
    }

    /// What the control plane is asked for.
    fn to_cut(&self) -> VolumeCut {
        let of_volume = |name: &String| name.split_once('@').map_or_else(|| name.clone(), |(_, name)| name.to_owned());
        VolumeCut {
            back_to: self.back_to.as_ref().map(of_volume),
            unattached: self.back_to.is_some(),
            ..VolumeCut::snapshot(&self.volume, &self.name, SnapshotOrigin::Person)
        }
    }

    /// The whole name of the snapshot.
    pub(crate) fn full_name(&self) -> String {
        format!("{}@{}", self.volume, self.name)
    }
}

/// A cut under way.
pub(crate) struct UnderWay {
    from: Life,
    wishes: Vec<Wish>,
    cut: Cut,
    pub(crate) asked: Stamp,
    /// Volumes whose groups have not all stopped.
    left: usize,
}

/// A cut that is finished.
pub(crate) struct Done {
    pub(crate) wishes: Vec<Wish>,
    pub(crate) asked: Stamp,
    pub(crate) answered: Stamp,
    /// The revision that says so.
    pub(crate) revision: u64,
}

/// All cuts.
#[derive(Default)]
pub(crate) struct Cuts {
    pub(crate) under_way: BTreeMap<u64, UnderWay>,
    begun: u64,
    /// Heads that reverts have made, and the heads before them, for a lie.
    reverted: BTreeMap<LayerId, LayerId>,
}

impl Cuts {
    /// Makes a view say that reverts have changed nothing.
    pub(crate) fn unrevert(&self, view: &mut ClusterView) {
        for (head, before) in &self.reverted {
            if let Some(parent) = view.parents.get_mut(head) {
                *parent = *before;
            }
        }
    }
}

impl World {
    /// Nodes that run and reach the configuration store.
    pub(crate) fn reaching(&self) -> Vec<Life> {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        let lives = nodes.into_iter().filter_map(|node| self.life_of(node));
        lives.filter(|life| self.configuration.away(life.node, self.now).is_none()).collect()
    }

    /// Asks a node for a cut; `None` when one of the volumes is being cut, or what it is to go back to is not there.
    pub(crate) fn begin_cut(&mut self, from: Life, wishes: Vec<Wish>) -> Option<u64> {
        let id = self.snapshots.cuts.begun + 1;
        let volumes: Vec<VolumeCut> = wishes.iter().map(Wish::to_cut).collect();
        let now = (self.now.as_secs(), self.now.subsec_nanos());
        let begun = self.configuration.run(|records| begin_cut(records, &id.to_string(), from.node, &volumes, now));
        let (volumes, revision) = begun.ok()?;
        self.snapshots.cuts.begun = id;
        let asked = self.history.stamp();
        let mut heads: Vec<(VolumeId, LayerId, LayerId)> = Vec::new();
        for (wish, volume) in &volumes {
            let Some(CutRecord { next, .. }) = &volume.cut else { continue };
            heads.push((volume.id, volume.head, *next));
            if wish.back_to.is_some() {
                self.snapshots.cuts.reverted.insert(*next, volume.head);
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
        self.snapshots.cuts.under_way.insert(id, UnderWay { from, wishes, cut, asked, left });
        // Whoever leads ends what the caller does not.
        let latest = self.now + PATIENCE + self.snapshots.random.spread_millis(500, 2000);
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
        let Some(cut) = self.snapshots.cuts.under_way.get_mut(&id) else { return true };
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
        let Some(UnderWay { from, wishes, cut, asked, .. }) = self.snapshots.cuts.under_way.remove(&id) else { return };
        let revision = match self.configuration.run(|records| finish_cut(records, &cut)) {
            Ok((_, revision)) => revision,
            Err(error) => {
                self.trace.step(self.now, id, || format!("{from:?} can't finish cut {id}: {error}"));
                return self.end_cut(id, &cut);
            }
        };
        let answered = self.history.stamp();
        self.trace.step(self.now, id, || format!("{from:?} has finished cut {id} at {answered}"));
        for wish in &wishes {
            let kind = if wish.back_to.is_some() { "revert" } else { "snapshot" };
            *self.faults.counts.entry(kind).or_default() += 1;
        }
        if wishes.len() > 1 {
            *self.faults.counts.entry("snapshot of several volumes").or_default() += 1;
        }
        self.inform_all();
        self.cut_is_over(id, Some(Done { wishes, asked, answered, revision }));
    }

    /// A cut that is not finished by now is not to be.
    pub(crate) fn call_off(&mut self, id: u64) {
        if let Some(UnderWay { cut, .. }) = self.snapshots.cuts.under_way.remove(&id) {
            self.end_cut(id, &cut);
        }
    }

    fn end_cut(&mut self, id: u64, cut: &Cut) {
        let volumes: Vec<String> = cut.volumes.iter().map(|(wish, _)| wish.volume.clone()).collect();
        if let Err(error) = self.configuration.run(|records| call_off_cut(records, &cut.id, &volumes)) {
            return self.violate(Invariant::Protocol, format!("cut {id} can't be called off: {error}"));
        }
        self.trace.step(self.now, id, || format!("cut {id} is called off"));
        *self.faults.counts.entry("snapshot called off").or_default() += 1;
        self.inform_all();
        self.cut_is_over(id, None);
    }

    fn cut_is_over(&mut self, id: u64, done: Option<Done>) {
        if self.fsx.on {
            self.fsx_cut_over(id, done);
        } else if let Some(done) = done {
            self.snapshots_made(id, &done);
        }
    }
}
