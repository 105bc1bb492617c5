//! Layers that no snapshot names any more end: merged into the only one on top, or dropped when nothing lies on them;
//! and the records of those that have ended on every device go.

use azekura_base::LayerId;

use azekura_model::{LayerEnd, Model};

/// Ends begun in one step: each takes two or three writes to the configuration.
const ENDS_AT_ONCE_MAX: usize = 64;

/// What is to be done with a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerPlan {
    /// It has ended on every device: its record goes.
    Remove(LayerId),
    /// It ends like this.
    Begin(LayerId, LayerEnd),
}

/// The next steps.
#[must_use]
pub fn step(model: &Model) -> Vec<LayerPlan> {
    if model.cluster.as_ref().is_some_and(|cluster| cluster.restored.is_some()) {
        return Vec::new(); // Devices may hold layers that lie on these and that the configuration does not know yet.
    }
    let ended = model.ended_layers().into_iter().map(LayerPlan::Remove);
    let ends = model.layers_to_end().into_iter().take(ENDS_AT_ONCE_MAX);
    ended.chain(ends.map(|(layer, end)| LayerPlan::Begin(layer, end))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_base::{DeviceId, PgId, VolumeId};
    use azekura_model::transitions::layers::{begin_layer_end, confirm_layer_gone, remove_layer};
    use azekura_model::{GroupRecord, Key, LayerRecord, LayerState, Memory, Records, Step, Txn};

    /// A group on devices 1 and 2, and these layers, each with the one below it.
    fn memory(layers: &[(u64, Option<u64>, LayerState)], in_sync: &[u32]) -> Memory {
        let mut memory = Memory::new();
        let device = |id: u32| serde_json::json!({ "id": id, "uuid": "u", "node": id, "name": "d", "capacity_bytes": 1, "state": "up" });
        let mut txn = Txn::new().put("/azekura/v1/devices/1", &device(1)).put("/azekura/v1/devices/2", &device(2));
        txn = txn.put(&Key::Group(PgId(1)).to_string(), &group(in_sync));
        for (id, parent, state) in layers {
            let layer = LayerRecord::new(LayerId(*id), VolumeId(1), parent.map(LayerId), *state, "c");
            txn = txn.put(&Key::Layer(LayerId(*id)).to_string(), &layer);
        }
        memory.run(&txn).unwrap();
        assert!(memory.model().problems.is_empty(), "{:?}", memory.model().problems);
        memory
    }

    fn group(in_sync: &[u32]) -> GroupRecord {
        let new = azekura_model::transitions::groups::NewGroup {
            members: vec![DeviceId(1), DeviceId(2)],
            primary: DeviceId(1),
        };
        GroupRecord { in_sync: in_sync.iter().copied().map(DeviceId).collect(), ..new.into_record(PgId(1), "c", 0) }
    }

    /// Does what is planned.
    fn take(memory: &mut Memory, plans: &[LayerPlan]) {
        for plan in plans {
            let model = memory.model();
            let txn = match plan {
                LayerPlan::Begin(layer, end) => begin_layer_end(model, *layer, *end).unwrap(),
                LayerPlan::Remove(layer) => txn_of(remove_layer(&Records::known(model), *layer)),
            };
            memory.run(&txn).unwrap();
        }
    }

    fn txn_of(outcome: azekura_model::Outcome<()>) -> Txn {
        let Ok(Step::Run(txn, ())) = outcome else { panic!("{outcome:?}") };
        txn
    }

    fn confirm(memory: &mut Memory, layer: u64, device: u32) {
        let txn = txn_of(confirm_layer_gone(&Records::known(memory.model()), LayerId(layer), DeviceId(device)));
        memory.run(&txn).unwrap();
    }

    fn merge(layer: u64, into: u64) -> LayerPlan {
        LayerPlan::Begin(LayerId(layer), LayerEnd::MergeInto(LayerId(into)))
    }

    #[test]
    fn a_layer_ends_in_its_only_child_one_at_a_time() {
        use LayerState::{Head, Hidden};
        let layers = [(1, None, Hidden), (2, Some(1), Hidden), (3, Some(2), Hidden), (4, Some(3), Head)];
        assert_eq!(step(memory(&layers, &[1]).model()), [], "a copy that comes back must have what the others gave on");
        let mut memory = memory(&layers, &[1, 2]);
        let plans = step(memory.model());
        assert_eq!(plans, [merge(1, 2), merge(3, 4)]);
        take(&mut memory, &plans[..1]);
        confirm(&mut memory, 1, 1);
        assert!(!step(memory.model()).contains(&LayerPlan::Remove(LayerId(1))));
        confirm(&mut memory, 1, 2);
        assert_eq!(step(memory.model()), [LayerPlan::Remove(LayerId(1)), merge(3, 4)]);
        take(&mut memory, &[LayerPlan::Remove(LayerId(1))]);
        assert_eq!(memory.model().layers[&LayerId(2)].parent, None);
        assert!(memory.model().dropped.is_empty(), "the confirmations go with the record");
        assert_eq!(step(memory.model()), [merge(2, 3)]);
    }

    #[test]
    fn a_layer_with_two_children_waits() {
        use LayerState::{Deleted, Head, Hidden};
        let mut memory = memory(&[(1, None, Hidden), (2, Some(1), Deleted), (3, Some(1), Head)], &[1, 2]);
        assert_eq!(step(memory.model()), [], "it is still there");
        confirm(&mut memory, 2, 1);
        confirm(&mut memory, 2, 2);
        let gone = step(memory.model());
        assert_eq!(gone, [LayerPlan::Remove(LayerId(2))]);
        take(&mut memory, &gone);
        assert_eq!(step(memory.model()), [merge(1, 3)]);
    }

    #[test]
    fn nothing_ends_before_all_devices_have_said_what_they_hold_after_a_restore() {
        let mut memory = memory(&[(1, None, LayerState::Hidden)], &[1, 2]);
        assert_eq!(step(memory.model()), [LayerPlan::Begin(LayerId(1), LayerEnd::Drop)]);
        let cluster = serde_json::json!({ "id": "0".repeat(32), "name": "", "created": "", "restored": { "at": "" } });
        memory.run(&Txn::new().put(&Key::Cluster.to_string(), &cluster)).unwrap();
        assert_eq!(step(memory.model()), []);
    }
}
