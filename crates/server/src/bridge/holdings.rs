//! After the configuration was restored, each device says what it holds, before groups open
//! (decision 0019).

use crate::driver::commands::Inspection;
use crate::driver::messages::Handles;
use azekura_base::{DeviceId, LayerId};
use azekura_meta::MetaClient;
use azekura_model::{HeldRecord, HoldingsRecord, MetaError, Model};
use azekura_store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;

/// Pause before a device is looked at again whose store is not open yet.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// The tree of layers as devices' folders have it. It knows of layers that a restored configuration does not.
pub type Parents = BTreeMap<LayerId, LayerId>;

/// Tells what this node's devices hold, whenever the configuration is one that was restored; ends with its task.
pub async fn tell(client: MetaClient, shards: Handles, mut parents: watch::Receiver<Parents>) {
    let mut models = client.watch_model();
    loop {
        let model = models.borrow_and_update().clone();
        let known = parents.borrow_and_update().clone();
        let silent = match due(&model) {
            true => tell_once(&client, &shards, &model, &known).await.unwrap_or_else(|error| {
                tracing::warn!("can't tell what this node's devices hold: {error}");
                true
            }),
            false => false,
        };
        let again = async {
            if silent {
                tokio::time::sleep(LOOK_AGAIN).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            changed = models.changed() => if changed.is_err() { return },
            // There is another device.
            changed = parents.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

fn due(model: &Model) -> bool {
    model.cluster.as_ref().is_some_and(|cluster| cluster.restored.is_some())
}

/// Tells for the devices that are open and have not spoken. True when some are not open.
async fn tell_once(client: &MetaClient, shards: &Handles, model: &Model, parents: &Parents) -> Result<bool, MetaError> {
    let Some(life) = model.cluster.as_ref().map(|cluster| cluster.life.clone()) else { return Ok(false) };
    let spoken = |device: &DeviceId| model.holdings.get(device).is_some_and(|holdings| holdings.life == life);
    let spoken: BTreeSet<DeviceId> = model.holdings.keys().copied().filter(spoken).collect();
    let known: BTreeSet<LayerId> = model.layers.keys().copied().collect();
    let parents = parents.clone();
    let revision = u64::try_from(model.revision).unwrap_or(0);
    let look = move |look: Inspection<'_>| {
        // What the data plane runs must be what this model says: nothing of a closed group.
        let current = look.node.revision() >= revision;
        let ids = look.node.device_ids().filter(|id| !spoken.contains(id));
        let of = |id| {
            let store = look.node.store(id).filter(|_| current)?;
            Some(holdings(id, &life, store, &known, &parents))
        };
        ids.map(of).collect::<Vec<_>>()
    };
    let found = shards.inspect(look).await.unwrap_or_default().concat();
    for holdings in found.iter().flatten() {
        client.tell_holdings(holdings).await?;
        tracing::info!(
            device = %holdings.device,
            "the configuration was restored: device {} holds copies of {} groups, and {} layers that it does not know",
            holdings.device,
            holdings.groups.len(),
            holdings.unknown_layers.len()
        );
    }
    Ok(found.iter().any(Option::is_none))
}

fn holdings(
    device: DeviceId,
    life: &str,
    store: &Store,
    known: &BTreeSet<LayerId>,
    parents: &Parents,
) -> HoldingsRecord {
    let groups = store.groups().filter(|(pg, _)| !store.is_forgetting(*pg));
    let groups = groups.filter(|(_, state)| state.epoch.0 > 0 || state.prepared_end.0 > 0).map(|(pg, state)| {
        let held = HeldRecord {
            epoch: state.epoch,
            committed: state.committed,
            prepared: state.prepared_end,
            complete: state.complete,
        };
        (pg, held)
    });
    let mut unknown_layers = BTreeMap::new();
    for (layer, _) in store.layers().filter(|(layer, blocks)| *blocks > 0 && !known.contains(layer)) {
        let mut at = Some(layer);
        while let Some(layer) = at.filter(|layer| !known.contains(layer) && !unknown_layers.contains_key(layer)) {
            at = parents.get(&layer).copied();
            unknown_layers.insert(layer, at);
        }
    }
    HoldingsRecord { device, life: life.to_owned(), groups: groups.collect(), unknown_layers }
}
