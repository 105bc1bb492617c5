//! Data keys of encrypted volumes.

use azekura_base::KeyId;
use azekura_model::transitions::data_keys::rewrap_key;
use azekura_model::{MetaError, Wrapping};

use super::MetaClient;

impl MetaClient {
    /// Puts what wraps a data key anew in the place of what wrapped it; gives whether it was still wrapped by that, and
    /// a revision from which on it is so.
    pub async fn rewrap_key(&self, key: KeyId, from: &Wrapping, to: &Wrapping) -> Result<(bool, i64), MetaError> {
        self.run("wrapping a data key anew", |records| rewrap_key(records, key, from, to)).await
    }
}
