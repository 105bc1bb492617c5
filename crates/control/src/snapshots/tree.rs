//! The tree of layers: what lies between two of them, and which end when a snapshot is deleted. Pure functions.

use std::collections::BTreeMap;

use azekura_base::LayerId;
use azekura_model::{LayerState, Model};

/// A layer and those that it lies on, nearest first.
fn path(model: &Model, layer: LayerId) -> impl Iterator<Item = LayerId> + '_ {
    let parent = |layer: &LayerId| model.layers.get(layer).and_then(|record| record.parent);
    // A loop in broken records must not hold anybody up.
    std::iter::successors(Some(layer), move |layer| parent(layer)).take(model.layers.len().max(1))
}

/// Whether two layers have a layer in common, so that what they show can be compared.
#[must_use]
pub fn are_related(model: &Model, one: LayerId, other: LayerId) -> bool {
    let one: Vec<LayerId> = path(model, one).collect();
    path(model, other).any(|layer| one.contains(&layer))
}

/// Whether `layer` is `head`, or `head` lies on it.
#[must_use]
pub fn lies_on(model: &Model, head: LayerId, layer: LayerId) -> bool {
    path(model, head).any(|below| below == layer)
}

/// The revision from which on the configuration says what it says of these layers and of what they lie on.
#[must_use]
pub fn known_since(model: &Model, layers: &[LayerId]) -> u64 {
    let all = layers.iter().flat_map(|layer| path(model, *layer)).filter_map(|layer| model.layers.get(&layer));
    all.map(|record| u64::try_from(record.mod_revision).unwrap_or(0)).max().unwrap_or(0)
}

/// What becomes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    /// It ends, and this layer gets what it shows of it.
    Ends(Option<LayerId>),
}

/// The layers that end when the snapshot with this layer is deleted, each with the layer that gets what it shows of it:
/// the snapshot's own, and those below it that no snapshot names and that only wait for it, or are being merged. None
/// when two others lie on it: then it stays until one of them is gone.
///
/// What comes back is what these layers own and those that they are merged into do not show.
#[must_use]
pub fn ends_with(model: &Model, snapshot: LayerId) -> Vec<(LayerId, Option<LayerId>)> {
    let mut fates: BTreeMap<LayerId, Fate> = BTreeMap::new();
    let mut children: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
    // A layer's number is larger than that of the one that it lies on.
    for (layer, record) in model.layers.iter().rev() {
        if let Some(parent) = record.parent {
            children.entry(parent).or_default().push(*layer);
        }
        let named = matches!(record.state, LayerState::Head | LayerState::Next | LayerState::Frozen);
        let targets = children.get(layer).into_iter().flatten().filter_map(|child| match fates.get(child) {
            Some(Fate::Stays) | None => Some(*child),
            Some(Fate::Ends(merged_into)) => *merged_into,
        });
        let targets: Vec<LayerId> = targets.collect();
        let fate = match targets[..] {
            _ if named && *layer != snapshot => Fate::Stays,
            [] => Fate::Ends(None),
            [only] => Fate::Ends(Some(only)),
            _ => Fate::Stays,
        };
        fates.insert(*layer, fate);
    }
    let fate = |layer: LayerId| match fates.get(&layer) {
        Some(Fate::Ends(merged_into)) => Some((layer, *merged_into)),
        _ => None,
    };
    path(model, snapshot).map_while(fate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_model::{Key, KeyValue};

    /// A tree of layers: number, parent (0: none), state.
    fn model(layers: &[(u64, u64, &str)]) -> Model {
        let kv = |(id, parent, state): &(u64, u64, &str)| {
            let parent = (*parent > 0).then_some(*parent);
            let record = serde_json::json!({ "id": id, "volume": 1, "parent": parent, "state": state });
            KeyValue {
                key: Key::Layer(LayerId(*id)).to_string().into_bytes(),
                value: record.to_string().into_bytes(),
                mod_revision: 100 + *id as i64,
                ..KeyValue::default()
            }
        };
        let kvs: Vec<KeyValue> = layers.iter().map(kv).collect();
        let model = Model::from_keys(&kvs, 1000);
        assert_eq!(model.layers.len(), layers.len(), "{:?}", model.problems);
        model
    }

    fn ends(model: &Model, snapshot: u64) -> Vec<(u64, Option<u64>)> {
        ends_with(model, LayerId(snapshot)).iter().map(|(layer, into)| (layer.0, into.map(|into| into.0))).collect()
    }

    #[test]
    fn a_snapshot_in_a_row_goes_to_the_next() {
        let model = model(&[(1, 0, "frozen"), (2, 1, "frozen"), (3, 2, "head")]);
        assert_eq!(ends(&model, 1), [(1, Some(2))]);
        assert_eq!(ends(&model, 2), [(2, Some(3))]);
        assert!(are_related(&model, LayerId(1), LayerId(3)) && lies_on(&model, LayerId(3), LayerId(1)));
        assert!(!lies_on(&model, LayerId(1), LayerId(3)));
        assert_eq!((known_since(&model, &[LayerId(2)]), known_since(&model, &[])), (102, 0));
    }

    #[test]
    fn one_that_two_lie_on_stays_until_one_of_them_is_gone() {
        let tree = |state| model(&[(1, 0, state), (2, 1, "frozen"), (3, 1, "head"), (4, 2, "deleted")]);
        assert_eq!(ends(&tree("frozen"), 1), []);
        // It waits for the snapshot on it: both end.
        assert_eq!(ends(&tree("hidden"), 2), [(2, None), (1, Some(3))]);
        assert_eq!(ends(&tree("frozen"), 2), [(2, None)]);
    }

    #[test]
    fn what_is_being_merged_counts_for_where_it_goes() {
        let model = model(&[(1, 0, "frozen"), (2, 1, "merging"), (3, 2, "frozen"), (4, 3, "hidden"), (5, 4, "head")]);
        assert_eq!(ends(&model, 3), [(3, Some(5)), (2, Some(5))]);
        assert_eq!(ends(&model, 1), [(1, Some(3))]);
    }

    #[test]
    fn layers_without_anything_in_common() {
        let model = model(&[(1, 0, "frozen"), (2, 1, "head"), (3, 0, "head")]);
        assert!(!are_related(&model, LayerId(2), LayerId(3)));
        assert_eq!(ends(&model, 9), [], "a layer that is not there");
    }
}
