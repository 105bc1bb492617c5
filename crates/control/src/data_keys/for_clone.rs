//! A data key of its own for a clone: another generation, and a copy of those that its blocks have until then.

use azekura_base::KeyId;
use azekura_model::transitions::data_keys::{ALL_IN_USE, CloneKey};
use azekura_model::{CSI_PROVIDER, DataKeyRecord, MetaError, Model, Unknown, Versioned, WrappedKey};
use azekura_secrets::KeyPlace;

use super::{ANSWER_WAIT, DataKeys, new_id, number, open, within, wrap, wrapped_now};

/// Why a volume with a secret of its own is not cloned with another key.
const OF_A_SECRET: &str = "its source's data key is wrapped with a secret of the volume's own, which no node keeps, and \
                           the blocks are encrypted anew by a node that need not have the volume";

impl DataKeys {
    /// A data key for a clone of what has the key `source`, all of it wrapped by the provider that wraps new ones.
    ///
    /// # Errors
    /// When a generation of the source's key can't be opened here, or all generations are in use.
    pub async fn draw_for_clone(
        &self,
        model: &Model,
        source: &Versioned<DataKeyRecord>,
    ) -> Result<CloneKey, MetaError> {
        let refused = |reason: String| MetaError::NotEncrypted { reason };
        if source.generations.iter().any(|generation| generation.provider == CSI_PROVIDER) {
            return Err(refused(OF_A_SECRET.to_owned()));
        }
        let place = KeyPlace {
            cluster: number(model).map_err(|why| refused(why.to_owned()))?,
            key: new_id().map_err(refused)?,
        };
        let mut copies = Vec::new();
        for generation in &source.generations {
            copies.push(self.copy(place, source.id, generation).await.map_err(refused)?);
        }
        let newest = wrapped_now(self.draw_by_provider(model, place).await.map_err(refused)?);
        let record = source.for_clone(place.key, copies, newest).ok_or_else(|| refused(ALL_IN_USE.to_owned()))?;
        Ok(CloneKey { record, since: source.mod_revision })
    }

    /// A generation of the data key `of`, wrapped as one of another data key.
    async fn copy(&self, place: KeyPlace, of: KeyId, generation: &WrappedKey) -> Result<WrappedKey, String> {
        let (opens, wraps) = (self.providers.of(generation)?, self.wraps()?);
        let (number, created) = (generation.number, generation.created.clone());
        let generation = generation.clone();
        let copied = within(ANSWER_WAIT, move || {
            let opened = open(&*opens, place.cluster, &[(of, generation)])?;
            let key = opened.into_iter().next().ok_or("nothing came back of what was to be opened")??;
            let check = key.check(place.key);
            Ok((wraps.name().to_owned(), wrap(&*wraps, place, &key, &check)?, check))
        });
        let (provider, wrapped, check) = copied.await?;
        Ok(WrappedKey { number, provider, wrapped, check, created, unknown: Unknown::default() })
    }
}
