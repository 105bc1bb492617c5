//! Which layer is each volume's head, as far as this node knows: from the configuration, or because another node that
//! knows a later one has said so (0011).

use crate::view::ClusterView;
use azekura_base::{LayerId, VolumeId};
use azekura_gateway::VolumeView;
use std::collections::BTreeMap;

/// A volume's head, as of a revision of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    layer: LayerId,
    /// It takes writes.
    open: bool,
}

/// All heads.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    known: BTreeMap<VolumeId, Head>,
    /// What others have said of revisions that this node does not know yet.
    learned: BTreeMap<VolumeId, (u64, LayerId)>,
}

impl Heads {
    fn head(&self, volume: VolumeId) -> Option<Head> {
        let learned = self.learned.get(&volume).map(|(_, layer)| Head { layer: *layer, open: true });
        learned.or_else(|| self.known.get(&volume).copied())
    }

    /// True when the layer is the volume's head, and no snapshot is being made of it.
    pub(crate) fn takes_writes(&self, volume: VolumeId, layer: LayerId) -> bool {
        self.head(volume).is_some_and(|head| head.open && head.layer == layer)
    }

    /// True when the layer is the volume's head, or the snapshot's layer. Also while a snapshot is being made: until a
    /// copy is asked to store a write to the next head, it knows of no newer contents, and then it knows of that head.
    pub(crate) fn answers_reads(&self, volume: VolumeId, layer: LayerId) -> bool {
        self.head(volume).is_some_and(|head| head.layer == layer)
    }

    /// The configuration's word on a volume whose head is being frozen: the head, and no write is taken to it.
    pub(crate) fn is_frozen(&self, volume: VolumeId, head: LayerId) -> bool {
        self.answers_reads(volume, head) && !self.takes_writes(volume, head)
    }

    /// The volume whose head this layer is, as others have said, and from which revision on.
    pub(crate) fn learned_head(&self, layer: LayerId) -> Option<(u64, VolumeId)> {
        self.learned
            .iter()
            .find(|(_, (_, learned))| *learned == layer)
            .map(|(volume, (revision, _))| (*revision, *volume))
    }

    /// Follows the configuration; what others have said of it is void once this node knows it itself. Gives the volumes
    /// whose former head takes no writes any more, or none now.
    pub(crate) fn follow(&mut self, view: &ClusterView) -> Vec<VolumeId> {
        let before = std::mem::take(&mut self.known);
        let volumes = view.volumes.values();
        self.known = volumes.map(|volume| (volume.id, head_of(volume))).collect();
        self.forget_learned(view.revision);
        let closes = |(volume, head): &(&VolumeId, &Head)| head.open && self.known.get(volume) != Some(head);
        before.iter().filter(closes).map(|(volume, _)| *volume).collect()
    }

    /// This node knows the configuration up to `revision`.
    pub(crate) fn forget_learned(&mut self, revision: u64) {
        self.learned.retain(|_, (learned, _)| *learned > revision);
    }

    /// Another node knows, from a later revision than this one, that a layer is a volume's head and takes writes. True
    /// when that is news.
    pub(crate) fn learn(&mut self, revision: u64, volume: VolumeId, layer: LayerId) -> bool {
        let news = self.learned.get(&volume).is_none_or(|(learned, _)| *learned < revision);
        if news {
            self.learned.insert(volume, (revision, layer));
        }
        news
    }
}

fn head_of(volume: &VolumeView) -> Head {
    Head { layer: volume.layer, open: volume.cut.is_none() && !volume.read_only }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const VOLUME: VolumeId = VolumeId(1);

    fn view(revision: u64, layer: u64, cut: Option<u64>) -> ClusterView {
        let volume = VolumeView {
            id: VOLUME,
            name: "v".into(),
            size: 1,
            logical_block: azekura_base::LogicalBlock::Bytes512,
            layer: LayerId(layer),
            cut: cut.map(LayerId),
            read_only: false,
            io_timeout: None,
            groups: Arc::from([]),
            group_offset: 0,
            key: None,
            limits: None,
        };
        ClusterView { revision, volumes: BTreeMap::from([("v".into(), Arc::new(volume))]), ..ClusterView::default() }
    }

    #[test]
    fn a_cut_closes_the_head_and_then_there_is_another() {
        let mut heads = Heads::default();
        assert!(!heads.takes_writes(VOLUME, LayerId(1)) && !heads.answers_reads(VOLUME, LayerId(1)));
        assert!(heads.follow(&view(1, 1, None)).is_empty());
        assert!(heads.takes_writes(VOLUME, LayerId(1)) && !heads.is_frozen(VOLUME, LayerId(1)));
        assert_eq!(heads.follow(&view(2, 1, Some(2))), [VOLUME]);
        assert!(heads.is_frozen(VOLUME, LayerId(1)) && heads.answers_reads(VOLUME, LayerId(1)));
        assert!(!heads.takes_writes(VOLUME, LayerId(2)) && !heads.answers_reads(VOLUME, LayerId(2)));
        assert!(heads.follow(&view(3, 2, None)).is_empty(), "it was closed before");
        assert!(heads.takes_writes(VOLUME, LayerId(2)) && !heads.answers_reads(VOLUME, LayerId(1)));
    }

    #[test]
    fn what_others_say_counts_until_the_configuration_is_as_new() {
        let mut heads = Heads::default();
        heads.follow(&view(2, 1, Some(2)));
        assert!(heads.learn(5, VOLUME, LayerId(2)));
        assert!(!heads.learn(4, VOLUME, LayerId(1)), "older news");
        assert!(heads.takes_writes(VOLUME, LayerId(2)) && !heads.answers_reads(VOLUME, LayerId(1)));
        heads.follow(&view(4, 1, Some(2)));
        assert!(heads.takes_writes(VOLUME, LayerId(2)));
        heads.follow(&view(5, 2, Some(3)));
        assert!(heads.is_frozen(VOLUME, LayerId(2)));
    }
}
