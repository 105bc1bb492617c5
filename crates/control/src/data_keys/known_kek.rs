//! Before a key (KEK) wraps data keys, it is tried on what its version has wrapped already. A file with another key of
//! the same version would else wrap new data keys, which no other node and no later process opens.

use std::sync::Arc;

use azekura_model::{Model, WrappedKey};
use azekura_secrets::{KeyProvider, version_of};

use super::{ANSWER_WAIT, DataKeys, Wrapped, number, open, within};

/// So many data keys are tried: one that was spoilt does not keep all others from being made.
const TRIED_MAX: usize = 3;

impl DataKeys {
    /// That this version of the provider's key is the one that wraps data keys of the configuration, if it wraps any.
    ///
    /// # Errors
    /// When it opens none of them, with what to do.
    pub(super) async fn expect_known_kek(
        &self,
        model: &Model,
        provider: &Arc<dyn KeyProvider>,
        version: Option<u32>,
    ) -> Result<(), String> {
        let (name, cluster) = (provider.name(), number(model)?);
        let is_its =
            |generation: &&WrappedKey| generation.provider == name && version_of(name, &generation.wrapped) == version;
        let all = model.data_keys.values();
        let its =
            all.flat_map(|record| record.generations.iter().filter(is_its).map(|generation| (record.id, generation)));
        let known: Wrapped = its.take(TRIED_MAX).map(|(id, generation)| (id, generation.clone())).collect();
        if known.is_empty() {
            return Ok(());
        }
        let asked = Arc::clone(provider);
        let opened = within(ANSWER_WAIT, move || open(&*asked, cluster, &known)).await?;
        if opened.iter().any(Result::is_ok) {
            return Ok(());
        }
        let why = opened.into_iter().find_map(Result::err).unwrap_or_default();
        let version = version.map_or_else(String::new, |version| format!("version {version} of "));
        Err(format!(
            "{version}its key '{name}' is not the one that has wrapped other data keys, so it wraps no more of them ({why}); \
             'azekura kek show' compares the nodes"
        ))
    }
}
