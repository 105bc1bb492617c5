//! Data keys of encrypted volumes.

use azekura_base::{KeyGeneration, KeyId};
use azekura_model::transitions::data_keys::{
    add_generation, forget_former, note_rekeyed, rewrap_key, write_with_newest,
};
use azekura_model::{MetaError, WrappedKey, Wrapping};

use super::MetaClient;

impl MetaClient {
    /// Puts what wraps a data key anew in the place of what wrapped it; gives whether it was still wrapped by that, and
    /// a revision from which on it is so.
    pub async fn rewrap_key(&self, key: KeyId, from: &Wrapping, to: &Wrapping) -> Result<(bool, i64), MetaError> {
        self.run("wrapping a data key anew", |records| rewrap_key(records, key, from, to)).await
    }

    /// Adds a generation to a data key; gives its number, and a revision from which on it is there.
    pub async fn add_generation(&self, key: KeyId, new: &WrappedKey) -> Result<(KeyGeneration, i64), MetaError> {
        self.run("adding a data key", |records| add_generation(records, key, new)).await
    }

    /// Has writes be encrypted with the newest generation of a data key; gives whether that is still this one.
    pub async fn write_with_newest(&self, key: KeyId, newest: KeyGeneration) -> Result<bool, MetaError> {
        Ok(self.run("taking a data key into use", |records| write_with_newest(records, key, newest)).await?.0)
    }

    /// Notes that all of a volume that has gone back to a snapshot so often is under this generation of its data key,
    /// whose record has this revision; gives whether neither has changed.
    pub async fn note_rekeyed(&self, volume: &str, reverts: u32, to: (KeyGeneration, i64)) -> Result<bool, MetaError> {
        Ok(self.run("noting a volume's data key", |records| note_rekeyed(records, volume, reverts, to)).await?.0)
    }

    /// Forgets the former generations of a data key, if nobody needs them: true then.
    pub async fn forget_former(&self, key: KeyId, newest: KeyGeneration) -> Result<bool, MetaError> {
        Ok(self.run("forgetting former data keys", |records| forget_former(records, key, newest)).await?.0)
    }
}
