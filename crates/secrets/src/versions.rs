//! Versions of KEKs, by what they have wrapped: also of providers that are not here.

use crate::{FileProvider, KmipProvider, VaultProvider, keks, vault};

/// The version of the key that wrapped a data key, as the provider of this name has it; `None`: that is not in it, or
/// nobody knows such a provider.
#[must_use]
pub fn version_of(provider: &str, wrapped: &str) -> Option<u32> {
    match provider {
        FileProvider::NAME | KmipProvider::NAME => keks::parts(wrapped).ok().map(|(version, _)| version),
        VaultProvider::NAME => vault::version(wrapped),
        _ => None,
    }
}
