//! Data keys are wrapped anew, by the newest key of the provider that wraps new ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use azekura_base::KeyId;
use azekura_model::{CSI_PROVIDER, DataKeyRecord, Model, WrappedKey, Wrapping};
use azekura_secrets::{DataKey, KeyPlace, KeyProvider, UNWRAPS_MAX, version_of};
use tokio::time::Instant;

use super::{ANSWER_WAIT, DataKeys, KeyName, Wrapped, number, open, within, wrap};

/// What wraps a data key, and what would anew; or why that can't be made.
pub type Rewrapped = Result<(Wrapping, Wrapping), String>;

/// Some data keys of those that are to be wrapped anew.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// What was tried, by generation.
    pub done: BTreeMap<KeyName, Rewrapped>,
    /// How many are left.
    pub left: usize,
    /// Behind which these are.
    pub upto: Option<KeyId>,
}

/// After this time no further data key is begun in one call.
const REWRAP_WAIT: Duration = Duration::from_secs(10);

impl DataKeys {
    /// Of the data keys behind `after` that are not wrapped by this version of the provider that wraps new ones, the
    /// first `most`: what wraps each, and what would wrap it then, or why that can't be made. Each was opened and
    /// compared with its check value before, and what was wrapped opens again. What would take too long is left for the
    /// next call, which goes on where this one ends: so keys that fail are in nobody's way.
    ///
    /// # Errors
    /// When there is no provider.
    pub async fn rewrap(&self, model: &Model, newest: u32, after: Option<KeyId>, most: usize) -> Result<Part, String> {
        let older: Vec<_> = self.older(model, newest).filter(|record| Some(record.id) > after).collect();
        let done = self.tried(model, newest, &older[..older.len().min(most)]).await?;
        let is_tried = |record: &&&DataKeyRecord| {
            let mut wanted = self.older_of(record, newest);
            wanted.all(|generation| done.contains_key(&(record.id, generation.number)))
        };
        let whole = older.iter().take_while(is_tried).count();
        let upto = older[..whole].last().map(|record| record.id).or(after);
        Ok(Part { done, left: older.len() - whole, upto })
    }

    /// These data keys, wrapped anew; some may be missing, for which there was no time.
    async fn tried(
        &self,
        model: &Model,
        newest: u32,
        records: &[&DataKeyRecord],
    ) -> Result<BTreeMap<KeyName, Rewrapped>, String> {
        let (wraps, cluster, begun) = (self.wraps()?, number(model)?, Instant::now());
        self.expect_known_kek(model, &wraps, Some(newest)).await?;
        let mut done = BTreeMap::new();
        let mut by_provider: Vec<(Arc<dyn KeyProvider>, Wrapped)> = Vec::new();
        let all = records.iter().flat_map(|record| self.older_of(record, newest).map(|key| (record.id, key)));
        for (id, generation) in all {
            match self.providers.of(generation) {
                Err(why) => drop(done.insert((id, generation.number), Err(why))),
                Ok(provider) => {
                    let of = by_provider.iter_mut().find(|(known, _)| known.name() == provider.name());
                    let one = (id, generation.clone());
                    match of {
                        Some((_, records)) => records.push(one),
                        None => by_provider.push((provider, vec![one])),
                    }
                }
            }
        }
        for (provider, records) in by_provider {
            for batch in records.chunks(UNWRAPS_MAX) {
                if begun.elapsed() > REWRAP_WAIT {
                    return Ok(done);
                }
                let (asked, records) = (Arc::clone(&provider), batch.to_vec());
                let opened = within(ANSWER_WAIT, move || open(&*asked, cluster, &records)).await;
                let keys = match opened {
                    Ok(keys) => keys,
                    Err(why) => {
                        done.extend(batch.iter().map(|(id, generation)| ((*id, generation.number), Err(why.clone()))));
                        continue;
                    }
                };
                for ((id, generation), key) in batch.iter().zip(keys) {
                    if begun.elapsed() > REWRAP_WAIT {
                        return Ok(done);
                    }
                    let wrapped = anew(&wraps, KeyPlace { cluster, key: *id }, generation, key).await;
                    done.insert((*id, generation.number), wrapped);
                }
            }
        }
        Ok(done)
    }

    /// Those that are not wrapped by this version of the provider that wraps new ones. Those with a secret of their own
    /// stay with that.
    pub fn older<'a>(&self, model: &'a Model, newest: u32) -> impl Iterator<Item = &'a DataKeyRecord> {
        let records = model.data_keys.values().map(|record| &record.record);
        records.filter(move |record| self.older_of(record, newest).next().is_some())
    }

    /// The generations of a data key that are not wrapped by this version.
    fn older_of<'a>(&self, record: &'a DataKeyRecord, newest: u32) -> impl Iterator<Item = &'a WrappedKey> + use<'a> {
        let by = self.wraps_by();
        record.generations.iter().filter(move |generation| {
            let is_newest = Some(&*generation.provider) == by
                && version_of(&generation.provider, &generation.wrapped) == Some(newest);
            !is_newest && generation.provider != CSI_PROVIDER
        })
    }
}

/// One data key, wrapped anew.
async fn anew(
    wraps: &Arc<dyn KeyProvider>,
    place: KeyPlace,
    generation: &WrappedKey,
    key: Result<DataKey, String>,
) -> Rewrapped {
    let (key, wraps, check) = (key?, Arc::clone(wraps), generation.check.clone());
    let provider = wraps.name().to_owned();
    let wrapped = within(ANSWER_WAIT, move || wrap(&*wraps, place, &key, &check)).await?;
    Ok((generation.wrapping(), Wrapping { provider, wrapped }))
}
