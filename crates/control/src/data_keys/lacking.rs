//! Keys of providers that wrap data keys and that this node does not have. What is open stays open, so nothing else
//! tells of that before the node's next start, when volumes can't be served.

use std::collections::BTreeMap;

use azekura_model::Model;
use azekura_secrets::{FileProvider, version_of};

use super::{DataKeys, ProviderKeks};

impl DataKeys {
    /// What this node lacks, for people. A node without a provider lacks nothing, and a server that does not answer now
    /// may do so in a moment.
    pub async fn lacking(&self, model: &Model) -> Vec<String> {
        let mut wrapped: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for generation in model.data_keys.values().flat_map(|record| &record.generations) {
            if let Some(version) = version_of(&generation.provider, &generation.wrapped) {
                *wrapped.entry((generation.provider.as_str(), version)).or_default() += 1;
            }
        }
        if wrapped.is_empty() {
            return Vec::new();
        }
        let of = self.keks(model).await.unwrap_or_default();
        let told = wrapped.into_iter().filter_map(|((provider, version), keys)| lack(&of, provider, version, keys));
        told.collect()
    }
}

fn lack(of: &[ProviderKeks], provider: &str, version: u32, keys: u64) -> Option<String> {
    let kek =
        format!("version {version} of '{provider}', which wraps {keys} data key{}", if keys == 1 { "" } else { "s" });
    match &of.iter().find(|one| one.provider == provider)?.keks {
        Ok(keks) if keks.iter().any(|kek| kek.version == version) => None,
        Ok(_) => Some(kek),
        Err(why) if provider == FileProvider::NAME => Some(format!("{kek}: {why}")),
        Err(_) => None,
    }
}
