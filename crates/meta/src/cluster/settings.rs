//! The cluster's settings.

use azekura_model::transitions::settings::change_settings;
use azekura_model::{Key, MetaError, SettingsRecord};
use tokio::time::Instant;

use super::{MetaClient, OPERATION_TIMEOUT};

pub use azekura_model::transitions::settings::{MOVES_AT_ONCE_MAX, SettingsChange};

impl MetaClient {
    /// The settings as they are now: what was read before may be older.
    pub async fn settings(&self) -> Result<SettingsRecord, MetaError> {
        let [found] = self.get_all([&Key::Settings], Instant::now() + OPERATION_TIMEOUT).await?;
        Ok(found.record()?.unwrap_or_default())
    }

    /// Changes settings; returns all of them as they are then.
    pub async fn change_settings(&self, change: SettingsChange) -> Result<SettingsRecord, MetaError> {
        Ok(self.run("changing the settings", |records| change_settings(records, change)).await?.0)
    }
}
