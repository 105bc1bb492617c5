//! Data keys are wrapped anew, by the newest key of the provider that wraps new ones.

use std::sync::Arc;
use std::time::Duration;

use azekura_base::KeyId;
use azekura_model::{CSI_PROVIDER, DataKeyRecord, KeyGeneration, Model, Wrapping};
use azekura_secrets::{DataKey, KeyPlace, KeyProvider, UNWRAPS_MAX, version_of};
use tokio::time::Instant;

use super::{ANSWER_WAIT, DataKeys, Wrapped, number, open, within, wrap};

/// What wraps a data key, and what would anew; or why that can't be made.
pub type Rewrapped = Result<(Wrapping, Wrapping), String>;

/// After this time no further data key is begun in one call.
const REWRAP_WAIT: Duration = Duration::from_secs(10);

impl DataKeys {
    /// Of the data keys that are not wrapped by this version of the provider that wraps new ones, so many at most: what
    /// wraps each, and what would wrap it then, or why that can't be made. Each was opened and compared with its check
    /// value before, and what was wrapped opens again. What would take too long is left for the next call.
    ///
    /// # Errors
    /// When there is no provider.
    pub async fn rewrap(&self, model: &Model, newest: u32, most: usize) -> Result<Vec<(KeyId, Rewrapped)>, String> {
        let (wraps, cluster, begun) = (self.wraps()?, number(model)?, Instant::now());
        let mut done = Vec::new();
        let mut by_provider: Vec<(Arc<dyn KeyProvider>, Wrapped)> = Vec::new();
        for record in self.older(model, newest) {
            let Some(generation) = record.current() else { continue };
            match self.providers.of(generation) {
                Err(why) if done.len() < most => done.push((record.id, Err(why))),
                Err(_) => {}
                Ok(provider) => {
                    let of = by_provider.iter_mut().find(|(known, _)| known.name() == provider.name());
                    let one = (record.id, generation.clone());
                    match of {
                        Some((_, records)) => records.push(one),
                        None => by_provider.push((provider, vec![one])),
                    }
                }
            }
        }
        let mut left = most;
        for (provider, records) in by_provider {
            for batch in records[..records.len().min(left)].chunks(UNWRAPS_MAX) {
                if begun.elapsed() > REWRAP_WAIT {
                    return Ok(done);
                }
                left -= batch.len();
                let (asked, records) = (Arc::clone(&provider), batch.to_vec());
                let opened = within(ANSWER_WAIT, move || open(&*asked, cluster, &records)).await;
                let keys = match opened {
                    Ok(keys) => keys,
                    Err(why) => {
                        done.extend(batch.iter().map(|(id, _)| (*id, Err(why.clone()))));
                        continue;
                    }
                };
                for ((id, generation), key) in batch.iter().zip(keys) {
                    if begun.elapsed() > REWRAP_WAIT {
                        return Ok(done);
                    }
                    done.push((*id, anew(&wraps, KeyPlace { cluster, key: *id }, generation, key).await));
                }
            }
        }
        Ok(done)
    }

    /// Those that are not wrapped by this version of the provider that wraps new ones. Those with a secret of their own
    /// stay with that.
    pub fn older<'a>(&self, model: &'a Model, newest: u32) -> impl Iterator<Item = &'a DataKeyRecord> {
        let by = self.wraps_by();
        model.data_keys.values().map(|record| &record.record).filter(move |record| {
            !record.current().is_some_and(|generation| {
                let is_newest = Some(&*generation.provider) == by
                    && version_of(&generation.provider, &generation.wrapped) == Some(newest);
                is_newest || generation.provider == CSI_PROVIDER
            })
        })
    }
}

/// One data key, wrapped anew.
async fn anew(
    wraps: &Arc<dyn KeyProvider>,
    place: KeyPlace,
    generation: &KeyGeneration,
    key: Result<DataKey, String>,
) -> Rewrapped {
    let (key, wraps, check) = (key?, Arc::clone(wraps), generation.check.clone());
    let provider = wraps.name().to_owned();
    let wrapped = within(ANSWER_WAIT, move || wrap(&*wraps, place, &key, &check)).await?;
    Ok((generation.wrapping(), Wrapping { provider, wrapped }))
}
