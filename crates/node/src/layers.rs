//! The tree of layers: what this node knows, and what it tells others before they hear of a layer from it.
//!
//! A store must know on which layer another lies before the first record that names it, and a copy must know that a
//! layer is a volume's head before it is asked to store a write to it (docs/decisions/0011). Nodes learn of both from
//! the configuration, some later than others; one that may be behind is told.

use crate::heads::Heads;
use crate::view::ClusterView;
use azekura_base::{DeviceId, Endpoint, LayerId, PgId, VolumeId};
use azekura_wire::{LAYERS_MAX, Layers as LayersMessage};
use std::collections::{BTreeMap, BTreeSet};

mod steps;

/// What another shard knows.
#[derive(Debug, Default)]
struct Peer {
    /// The configuration, up to this revision.
    revision: u64,
    /// Layers that it was told of on the present connection, as they were from these revisions on.
    learned: BTreeMap<LayerId, u64>,
}

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// The layers that there are, and from which revision on the configuration says what it says of each now, or
    /// earlier.
    since: BTreeMap<LayerId, u64>,
    /// Heads that take writes.
    heads: BTreeMap<LayerId, VolumeId>,
    /// Heads to be, of cuts that are under way. A cut may be called off: then nothing must be left of its layer.
    planned: BTreeSet<LayerId>,
    /// Layers that took writes once, and the first revision known that has them closed.
    closed: BTreeMap<LayerId, u64>,
    /// Parents of layers that others know from later revisions than this node, which are named.
    learned: BTreeMap<LayerId, (u64, LayerId)>,
    children: BTreeMap<LayerId, Vec<LayerId>>,
    peers: BTreeMap<Endpoint, Peer>,
    /// The revision that was known when a copy's changes were last listed for another.
    listings: BTreeMap<(PgId, DeviceId), u64>,
}

impl Layers {
    /// Follows the configuration.
    fn follow(&mut self, view: &ClusterView) {
        let open = view.volumes.values().filter(|volume| volume.cut.is_none() && !volume.read_only);
        let heads: BTreeMap<LayerId, VolumeId> = open.map(|volume| (volume.layer, volume.id)).collect();
        let before = std::mem::take(&mut self.since);
        let mut note = |layer: LayerId| {
            let head = heads.get(&layer);
            let changed = head.is_some() && self.heads.get(&layer) != head;
            let since = before.get(&layer).copied().filter(|_| !changed);
            self.since.insert(layer, since.unwrap_or(view.revision));
        };
        heads.keys().copied().for_each(&mut note);
        // A snapshot's layer, or one that is cut for the first time, may lie on none.
        view.volumes.values().for_each(|volume| note(volume.layer));
        view.parents.iter().for_each(|(layer, parent)| {
            note(*layer);
            note(*parent);
        });
        self.closed.retain(|layer, _| self.since.contains_key(layer));
        let closed = self.heads.keys().filter(|layer| !heads.contains_key(layer) && self.since.contains_key(layer));
        self.closed.extend(closed.map(|layer| (*layer, view.revision)));
        self.planned = view.volumes.values().filter_map(|volume| volume.cut).collect();
        self.heads = heads;
        self.children.clear();
        for (layer, parent) in &view.parents {
            self.children.entry(*parent).or_default().push(*layer);
        }
    }

    /// The layer exists, as far as is known.
    fn is_known(&self, layer: LayerId) -> bool {
        let learned = || self.learned.iter().any(|(learned, (_, parent))| *learned == layer || *parent == layer);
        self.since.contains_key(&layer) || learned()
    }

    /// The changes of a group are being listed for a copy.
    pub(crate) fn listing(&mut self, pg: PgId, copy: DeviceId, revision: u64) {
        self.listings.insert((pg, copy), revision);
    }

    /// The layers above `layer` that may have taken writes since a copy's changes were listed.
    pub(crate) fn descendants(&self, heads: &Heads, pg: PgId, copy: DeviceId, layer: LayerId) -> Vec<LayerId> {
        let listed = self.listings.get(&(pg, copy)).copied().unwrap_or(0);
        let known = |layer: LayerId| self.children.get(&layer).into_iter().flatten().copied();
        // A layer takes writes from when this node was told of it.
        let told = |below: LayerId| {
            let lies_on = move |(_, (_, parent)): &(&LayerId, &(u64, LayerId))| *parent == below;
            self.learned.iter().filter(lies_on).map(|(layer, _)| *layer)
        };
        let children = |layer: LayerId| known(layer).chain(told(layer));
        let is_open = |layer: LayerId| self.heads.contains_key(&layer) || heads.learned_head(layer).is_some();
        // It may have been opened and closed between two revisions that this node has seen.
        let is_young = |layer: LayerId| self.since.get(&layer).is_none_or(|since| *since >= listed);
        let was_open = |layer: LayerId| self.closed.get(&layer).is_some_and(|closed| *closed >= listed);
        let mut above: Vec<LayerId> = children(layer).collect();
        let mut descendants = Vec::new();
        while let Some(layer) = above.pop() {
            if is_open(layer) || was_open(layer) || is_young(layer) && !self.planned.contains(&layer) {
                descendants.push(layer);
            }
            above.extend(children(layer));
        }
        descendants
    }

    /// Another shard knows the configuration up to `revision`.
    pub(crate) fn peer_knows(&mut self, peer: Endpoint, revision: u64) {
        let peer = self.peers.entry(peer).or_default();
        peer.revision = peer.revision.max(revision);
        peer.learned.retain(|_, since| *since > revision);
    }

    /// A new connection: perhaps with another process.
    pub(crate) fn forget(&mut self, peer: Endpoint) {
        self.peers.remove(&peer);
    }

    /// What a peer has to hear before it is sent something that names `layer`. What this shard has only been told
    /// itself, it passes on.
    fn news(&mut self, view: &ClusterView, heads: &Heads, to: Endpoint, layer: LayerId) -> Vec<LayersMessage> {
        let learned = |layer: &LayerId| self.learned.get(layer).copied();
        let since = |layer: &LayerId| self.since.get(layer).copied().or(learned(layer).map(|(revision, _)| revision));
        let learned_head = heads.learned_head(layer);
        let Some(known) = since(&layer).max(learned_head.map(|(revision, _)| revision)) else { return Vec::new() };
        let peer = self.peers.entry(to).or_default();
        if peer.revision >= known || peer.learned.get(&layer).is_some_and(|learned| *learned >= known) {
            return Vec::new();
        }
        let mut parents = Vec::new();
        let mut at = layer;
        while let Some(parent) = view.parents.get(&at).copied().or(learned(&at).map(|(_, parent)| parent)) {
            // What lies below a layer that it knows, it knows as well.
            if since(&at).is_none_or(|since| since <= peer.revision) {
                break;
            }
            parents.push((at, parent));
            at = parent;
        }
        peer.learned.insert(layer, known);
        let revision = view.revision.max(known);
        let below = parents.chunks(LAYERS_MAX).rev();
        let mut messages: Vec<LayersMessage> =
            below.map(|parents| LayersMessage { revision, heads: Vec::new(), parents: parents.to_vec() }).collect();
        let volume = learned_head.map(|(_, volume)| volume).or_else(|| self.heads.get(&layer).copied());
        let head = volume.map(|volume| (volume, layer));
        match messages.last_mut() {
            Some(last) => last.heads.extend(head),
            None => messages.push(LayersMessage { revision, heads: head.into_iter().collect(), parents: Vec::new() }),
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::NodeId;
    use azekura_gateway::VolumeView;
    use std::sync::Arc;

    const PG: PgId = PgId(1);
    const COPY: DeviceId = DeviceId(7);

    /// A configuration in which each of these layers is a volume's head.
    fn view(revision: u64, heads: &[u64], parents: &[(u64, u64)]) -> ClusterView {
        let volume = |head: &u64| {
            let volume = VolumeView {
                id: VolumeId(*head),
                name: format!("v{head}"),
                size: 1,
                logical_block: azekura_base::LogicalBlock::Bytes512,
                layer: LayerId(*head),
                cut: None,
                read_only: false,
                io_timeout: None,
                groups: Arc::from([]),
                group_offset: 0,
                key: None,
                limits: None,
            };
            (volume.name.clone(), Arc::new(volume))
        };
        ClusterView {
            revision,
            volumes: heads.iter().map(volume).collect(),
            parents: parents.iter().map(|(layer, parent)| (LayerId(*layer), LayerId(*parent))).collect(),
            ..ClusterView::default()
        }
    }

    #[test]
    fn what_a_node_was_told_it_tells_others() {
        let mut layers = Layers::default();
        let mut heads = Heads::default();
        let (near, far) = (Endpoint::first(NodeId(2)), Endpoint::first(NodeId(3)));
        let before = view(20, &[2], &[(2, 1)]);
        layers.follow(&before);
        heads.follow(&before);
        for node in [near, far] {
            layers.peer_knows(node, 20);
            assert_eq!(layers.news(&before, &heads, node, LayerId(2)), []);
        }
        // As `Node::learn_layers` does: layer 4 lies on layer 3, which this node does not know either.
        layers.learned.extend([(LayerId(3), (22, LayerId(2))), (LayerId(4), (22, LayerId(3)))]);
        heads.learn(22, VolumeId(2), LayerId(4));
        let news = LayersMessage {
            revision: 22,
            heads: vec![(VolumeId(2), LayerId(4))],
            parents: vec![(LayerId(4), LayerId(3)), (LayerId(3), LayerId(2))],
        };
        assert_eq!(layers.news(&before, &heads, far, LayerId(4)), [news]);
        assert_eq!(layers.news(&before, &heads, far, LayerId(4)), [], "once");
        layers.peer_knows(near, 22);
        assert_eq!(layers.news(&before, &heads, near, LayerId(4)), [], "it knows by itself");
    }

    #[test]
    fn a_head_that_a_node_was_told_of_it_tells_others_although_all_know_the_layer() {
        let (mut layers, mut heads) = (Layers::default(), Heads::default());
        let far = Endpoint::first(NodeId(3));
        // A cut is under way: layer 3 is on layer 2, but not the head yet.
        let before = view(20, &[], &[(2, 1), (3, 2)]);
        layers.follow(&before);
        heads.follow(&before);
        layers.peer_knows(far, 20);
        assert_eq!(layers.news(&before, &heads, far, LayerId(3)), []);
        heads.learn(21, VolumeId(7), LayerId(3));
        let news = LayersMessage { revision: 21, heads: vec![(VolumeId(7), LayerId(3))], parents: Vec::new() };
        assert_eq!(layers.news(&before, &heads, far, LayerId(3)), [news]);
        assert_eq!(layers.news(&before, &heads, far, LayerId(3)), []);
    }

    #[test]
    fn layers_that_took_writes_since_the_changes_were_listed_are_descendants() {
        let mut layers = Layers::default();
        let mut heads = Heads::default();
        let all = |layers: &Layers, heads: &Heads| layers.descendants(heads, PG, COPY, LayerId(1));
        let descendants = |layers: &Layers| all(layers, &Heads::default()).into_iter().collect::<BTreeSet<_>>();
        // Layer 2 was a head long before, layer 3 is one.
        layers.follow(&view(4, &[2], &[(2, 1)]));
        layers.follow(&view(5, &[3], &[(2, 1), (3, 2)]));
        layers.listing(PG, COPY, 10);
        assert_eq!(descendants(&layers), BTreeSet::from([LayerId(3)]));
        // A cut: layer 4 is the head now.
        layers.follow(&view(11, &[4], &[(2, 1), (3, 2), (4, 3)]));
        assert_eq!(descendants(&layers), BTreeSet::from([LayerId(3), LayerId(4)]));
        // The volume goes back to layer 2: nothing lies on layer 4, which took writes all the same.
        layers.follow(&view(12, &[5], &[(2, 1), (3, 2), (4, 3), (5, 2)]));
        assert_eq!(descendants(&layers), BTreeSet::from([LayerId(3), LayerId(4), LayerId(5)]));
        // A head of which this node sees the end only.
        layers.follow(&view(14, &[7], &[(2, 1), (3, 2), (4, 3), (5, 2), (6, 5), (7, 2)]));
        assert!(descendants(&layers).contains(&LayerId(6)));
        // Another copy's changes are listed now.
        layers.listing(PG, COPY, 15);
        assert_eq!(descendants(&layers), BTreeSet::from([LayerId(7)]));
        // A cut is under way: what may be called off must not be sent. Then another node knows that it is over.
        let mut cut = view(16, &[7], &[(2, 1), (7, 2), (8, 7)]);
        for volume in cut.volumes.values_mut() {
            Arc::make_mut(volume).cut = Some(LayerId(8));
        }
        layers.follow(&cut);
        assert_eq!(descendants(&layers), BTreeSet::from([LayerId(7)]));
        heads.learn(17, VolumeId(7), LayerId(8));
        assert!(all(&layers, &heads).contains(&LayerId(8)));
    }

    /// A clone takes writes as soon as this node was told of it, which may be long before the configuration says so.
    #[test]
    fn layers_that_only_others_know_of_are_descendants_too() {
        let (mut layers, mut heads) = (Layers::default(), Heads::default());
        let descendants = |layers: &Layers, heads: &Heads, layer| {
            layers.descendants(heads, PG, COPY, LayerId(layer)).into_iter().collect::<BTreeSet<_>>()
        };
        let before = view(20, &[2], &[(2, 1)]);
        layers.follow(&before);
        heads.follow(&before);
        layers.listing(PG, COPY, 30);
        assert_eq!(descendants(&layers, &heads, 1), BTreeSet::from([LayerId(2)]));
        // As `Node::learn_layers` does: 3 is a clone's head on layer 1; of another clone there is a snapshot, 4.
        layers.learned.extend([
            (LayerId(3), (31, LayerId(1))),
            (LayerId(4), (31, LayerId(1))),
            (LayerId(5), (31, LayerId(4))),
        ]);
        heads.learn(31, VolumeId(3), LayerId(3));
        heads.learn(31, VolumeId(5), LayerId(5));
        assert_eq!(descendants(&layers, &heads, 1), BTreeSet::from([2, 3, 4, 5].map(LayerId)));
        assert_eq!(descendants(&layers, &heads, 4), BTreeSet::from([LayerId(5)]));
        assert_eq!(descendants(&layers, &heads, 2), BTreeSet::new());
    }
}
