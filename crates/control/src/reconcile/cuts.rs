//! Cuts that nobody finishes are called off: a volume must not stand still because the node that was making its
//! snapshot has died.

use std::collections::BTreeMap;
use std::time::Duration;

use azekura_meta::MetaClient;
use azekura_model::{MetaError, Model};
use tokio::time::Instant;

use crate::attachments::FREEZE_WAIT;

/// A cut that has not been finished for so long will not be: whoever makes it gives up before. Measured by this
/// leader's clock from when it first saw the cut.
const PATIENCE: Duration = Duration::from_secs(4);

const _: () = assert!(PATIENCE.as_secs() > FREEZE_WAIT.as_secs());

/// Cuts under way, and since when this leader has seen them.
#[derive(Debug, Default)]
pub(super) struct Seen {
    cuts: BTreeMap<String, Instant>,
}

impl Seen {
    /// Calls off what is late.
    pub(super) async fn reconcile(&mut self, meta: &MetaClient, model: &Model, now: Instant) -> Result<(), MetaError> {
        let mut under_way: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for volume in model.volumes.values() {
            if let Some(cut) = &volume.cut {
                under_way.entry(&cut.id).or_default().push(volume.name.clone());
            }
        }
        self.cuts.retain(|id, _| under_way.contains_key(id.as_str()));
        for (id, volumes) in under_way {
            let since = *self.cuts.entry(id.to_owned()).or_insert(now);
            if now.duration_since(since) >= PATIENCE {
                tracing::warn!("a snapshot of {} is called off: nobody has finished it", volumes.join(", "));
                meta.call_off_cut(id, &volumes).await?;
            }
        }
        Ok(())
    }

    /// When the next one will be late.
    pub(super) fn next(&self) -> Option<Instant> {
        self.cuts.values().map(|since| *since + PATIENCE).min()
    }
}
