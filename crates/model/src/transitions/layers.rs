//! Layers that end: merged into the only one on top, or dropped. Every device confirms that it has nothing of such a
//! layer any more, then the record goes.

use azekura_base::{DeviceId, LayerId};

use crate::{Key, LayerEnd, LayerRecord, LayerState, Model, Outcome, Records, Step, Txn};

/// Notes that a device has nothing of a deleted or merging layer any more. Nothing happens when the layer's record is
/// gone already.
///
/// # Errors
/// When the record can't be read.
pub fn confirm_layer_gone(records: &Records<'_>, layer: LayerId, device: DeviceId) -> Outcome<()> {
    let found = records.find(&Key::Layer(layer))?;
    let ending = |layer: LayerRecord| matches!(layer.state, LayerState::Deleted | LayerState::Merging);
    if !found.record()?.is_some_and(ending) {
        return Ok(Step::Done((), found.mod_revision()));
    }
    let confirmation = Key::LayerDropped(layer, device).to_string();
    Ok(Step::Run(Txn::new().when_as(&found).put(&confirmation, &true), ()))
}

/// Begins the end of a hidden layer as `end` was found in `model`; `None` when the model does not know the layers. When
/// they have changed since, the conditions do not hold, and whoever looks next sees what is.
#[must_use]
pub fn begin_layer_end(model: &Model, layer: LayerId, end: LayerEnd) -> Option<Txn> {
    let record = model.layers.get(&layer)?;
    let mut ended = record.record.clone();
    let key = Key::Layer(layer).to_string();
    let mut txn = Txn::new().when_unchanged(&key, record.mod_revision);
    match end {
        LayerEnd::Drop => ended.state = LayerState::Deleted,
        LayerEnd::MergeInto(child) => {
            let above = model.layers.get(&child)?;
            (ended.state, ended.into) = (LayerState::Merging, Some(child));
            txn = txn.when_unchanged(&Key::Layer(child).to_string(), above.mod_revision);
        }
    }
    Some(txn.put(&key, &ended))
}

/// Removes the record and the confirmations of a layer that has ended everywhere; what lay on a merged one lies on its
/// parent then.
///
/// # Errors
/// When a record can't be read.
pub fn remove_layer(records: &Records<'_>, layer: LayerId) -> Outcome<()> {
    let found = records.find(&Key::Layer(layer))?;
    let Some(record) = found.record::<LayerRecord>()? else { return Ok(Step::Done((), 0)) };
    let mut txn = Txn::new().when_as(&found).delete(&found.key).delete_prefix(&format!("{}/dropped/", found.key));
    match (record.state, record.into) {
        (LayerState::Deleted, _) => {}
        (LayerState::Merging, Some(into)) => {
            let above = records.find(&Key::Layer(into))?;
            if let Some(mut child) = above.record::<LayerRecord>()? {
                child.parent = record.parent;
                txn = txn.when_as(&above).put(&above.key, &child);
            }
        }
        _ => return Ok(Step::Done((), found.mod_revision())),
    }
    Ok(Step::Run(txn, ()))
}
