//! Cuts: new heads are put into the places of some volumes' at one instant, and what were their heads become snapshots.
//! The steps are those of docs/decisions/0011-snapshots.md: the configuration says so, all groups stop, the
//! configuration says that it is done.

use crate::events::{Event, Life};
use crate::history::Stamp;
use crate::snapshots::tree::State;
use crate::world::World;
use azekura_base::{LayerId, NodeId, PgId, VolumeId};
use azekura_gateway::VolumeView;
use azekura_node::ClusterView;
use std::collections::BTreeMap;
use std::sync::Arc;
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

    /// The whole name of the snapshot.
    pub(crate) fn full_name(&self) -> String {
        format!("{}@{}", self.volume, self.name)
    }
}

/// A cut under way.
pub(crate) struct Cut {
    from: Life,
    wishes: Vec<Wish>,
    heads: Vec<Head>,
    pub(crate) asked: Stamp,
    /// Volumes whose groups have not all stopped.
    left: usize,
}

struct Head {
    volume: VolumeId,
    layer: LayerId,
    next: LayerId,
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
    pub(crate) under_way: BTreeMap<u64, Cut>,
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

fn change_volume(view: &mut ClusterView, name: &str, change: impl FnOnce(&mut VolumeView)) {
    if let Some(volume) = view.volumes.get_mut(name) {
        change(Arc::make_mut(volume));
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
        let volumes = &self.configuration.view().volumes;
        let mut heads = Vec::new();
        for wish in &wishes {
            let volume = volumes.get(&wish.volume).filter(|volume| volume.cut.is_none())?;
            let below = match &wish.back_to {
                Some(name) => volumes.get(name)?.layer,
                None => volume.layer,
            };
            heads.push((volume.id, volume.layer, below));
        }
        let asked = self.history.stamp();
        let mut made = Vec::new();
        let reverted = &mut self.snapshots.cuts.reverted;
        let revision = self.configuration.edit(|view, tree| {
            for ((volume, layer, below), wish) in heads.into_iter().zip(&wishes) {
                let next = tree.make(Some(below), State::Next);
                if wish.back_to.is_some() {
                    reverted.insert(next, layer);
                }
                change_volume(view, &wish.volume, |volume| volume.cut = Some(next));
                made.push(Head { volume, layer, next });
            }
        });
        self.snapshots.cuts.begun += 1;
        let id = self.snapshots.cuts.begun;
        self.trace.step(self.now, id, || {
            let heads: Vec<_> = made.iter().map(|head| format!("{:?} on {:?}", head.next, head.layer)).collect();
            format!("{from:?} begins cut {id} at {asked}: {wishes:?}, {}", heads.join(", "))
        });
        self.inform_all();
        let groups: Vec<PgId> = self.configuration.group_ids();
        for (index, head) in (0..).zip(&made) {
            let (token, groups) = (TOKENS + id * TOKENS_PER_CUT + index, groups.clone());
            self.tell(from, |node| node.freeze(token, head.volume, head.layer, revision, groups, PATIENCE));
        }
        let left = made.len();
        self.snapshots.cuts.under_way.insert(id, Cut { from, wishes, heads: made, asked, left });
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
        let Some(Cut { from, wishes, heads, asked, .. }) = self.snapshots.cuts.under_way.remove(&id) else { return };
        let answered = self.history.stamp();
        let revision = self.configuration.edit(|view, tree| {
            for (wish, head) in wishes.iter().zip(&heads) {
                let Some(before) = view.volumes.get(&wish.volume).cloned() else { continue };
                let back_to = wish.back_to.as_ref().and_then(|name| view.volumes.get(name)).map(|to| to.size);
                let snapshot = VolumeView {
                    id: VolumeView::snapshot_id(head.layer),
                    name: wish.full_name(),
                    cut: None,
                    read_only: true,
                    ..VolumeView::clone(&before)
                };
                view.volumes.insert(wish.full_name(), Arc::new(snapshot));
                change_volume(view, &wish.volume, |volume| {
                    (volume.layer, volume.cut) = (head.next, None);
                    volume.size = back_to.unwrap_or(volume.size);
                });
                tree.becomes(head.layer, State::Frozen);
                tree.becomes(head.next, State::Head);
            }
        });
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
        let Some(Cut { wishes, heads, .. }) = self.snapshots.cuts.under_way.remove(&id) else { return };
        self.configuration.edit(|view, tree| {
            heads.iter().for_each(|head| tree.call_off(head.next));
            wishes.iter().for_each(|wish| change_volume(view, &wish.volume, |volume| volume.cut = None));
        });
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
