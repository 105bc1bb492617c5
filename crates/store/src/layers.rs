//! The tree of layers, as the configuration gives it.

use azekura_base::LayerId;
use std::collections::BTreeMap;

/// The tree of layers.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    parents: BTreeMap<LayerId, LayerId>,
    children: BTreeMap<LayerId, Vec<LayerId>>,
}

impl Layers {
    pub fn set_parent(&mut self, layer: LayerId, parent: LayerId) {
        assert!(layer != parent, "{layer:?} can't be its own parent");
        if let Some(before) = self.parents.insert(layer, parent) {
            if before == parent {
                return;
            }
            if let Some(children) = self.children.get_mut(&before) {
                children.retain(|child| *child != layer);
            }
        }
        self.children.entry(parent).or_default().push(layer);
    }

    pub fn parent(&self, layer: LayerId) -> Option<LayerId> {
        self.parents.get(&layer).copied()
    }

    pub fn children(&self, layer: LayerId) -> impl Iterator<Item = LayerId> + '_ {
        self.children.get(&layer).into_iter().flatten().copied()
    }
}
